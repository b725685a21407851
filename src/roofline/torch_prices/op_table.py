"""The table of PyTorch operators: which function of this package prices which operator. Each family of operators fills it."""

from collections.abc import Callable

from .call import Pricer

PRICES: dict[str, Pricer] = {}


def op(*names: str) -> Callable[[Pricer], Pricer]:
    """Registers a function of this package that prices these operators."""

    def registered(function: Pricer) -> Pricer:
        for name in names:
            if name in PRICES:
                raise ValueError(f"the operator {name!r} already has a price; choose one function for it")
            PRICES[name] = function
        return function

    return registered
