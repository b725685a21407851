"""The registry of custom calls: which function of this package prices which target. Each library's file fills it.

A target is written exactly, or as a prefix that ends in ``*``; a target has one function: registering a second is an error.
"""

from collections.abc import Callable

from ..types import Price, Site

Handler = Callable[[Site], Price | None]

EXACT: dict[str, Handler] = {}
PREFIXES: dict[str, Handler] = {}


def call(*targets: str) -> Callable[[Handler], Handler]:
    """Registers a function that prices these targets of a library."""

    def register(handler: Handler) -> Handler:
        for target in targets:
            if target in EXACT or target in PREFIXES:
                raise ValueError(f"the custom call {target!r} already has a price; choose one function for it")
            if target.endswith("*"):
                PREFIXES[target] = handler
            else:
                EXACT[target] = handler
        return handler

    return register
