"""Facts about calls that their recorded arguments do not have, from the ops around and inside them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import DType
from ...torch_prices import Tensor
from .host import Host
from .read.arrays import Integers
from .read.columns import NONE

# Ops that take one tensor twice if these ops call them: traces do not tell whether two operands are the same tensor.
_SAME_OPERANDS = (("aten::kl_div", "aten::xlogy"),)
_CONCATENATES = ("aten::cat", "aten::_cat", "aten::stack", "aten::_stack")


class Surroundings:
    """What the ops around and inside a call tell about it; ``arguments`` returns the arguments of an op by their number."""

    def __init__(self, host: Host, names: Sequence[Any], arguments: Callable[[int], tuple[Any, ...]]) -> None:
        self._host, self._arguments = host, arguments
        numbers = {str(name): number for number, name in enumerate(names)}
        self._same_operands = [(numbers[outer], numbers[inner]) for outer, inner in _SAME_OPERANDS if outer in numbers and inner in numbers]
        self._concatenates = [numbers[name] for name in _CONCATENATES if name in numbers]

    def takes_one_twice(self, op: Integers) -> Integers:
        """Whether each op takes the same tensor as both operands: 1 or 0."""
        facts = np.zeros(len(op), np.int64)
        for outer, inner in self._same_operands:
            events = self._named(op, [inner])
            parents = self._host.parent[op[events]]
            facts[events[(parents != NONE) & (self._host.name[parents] == outer)]] = 1
        return facts

    def list_formats(self, op: Integers, on_host: Integers) -> dict[int, DType]:
        """By place, the number format of the list that an op on the host concatenates: that of the result that its inner ops write."""
        joins = self._named(op, self._concatenates)
        formats = ((place, self._result_format(int(op[place]))) for place in joins[on_host[joins] != 0].tolist())
        return {place: number for place, number in formats if number is not None}

    def _named(self, op: Integers, names: Sequence[int]) -> Integers:
        """The places of the ops with these names."""
        known = np.flatnonzero(op != NONE) if names else np.empty(0, np.int64)
        return known[np.isin(self._host.name[op[known]], names)]

    def _result_format(self, op: int) -> DType | None:
        """The number format of a tensor of an inner op that has as many elements as the concatenated list."""
        parts = next((argument for argument in self._arguments(int(self._host.arguments[op])) if isinstance(argument, tuple)), ())
        whole = sum(tensor.elements for tensor in parts if isinstance(tensor, Tensor))
        for inner in range(op + 1, self._host.within(op)):
            for argument in self._arguments(int(self._host.arguments[inner])):
                if isinstance(argument, Tensor) and argument.dtype is not None and argument.elements == whole:
                    return argument.dtype
        return None
