"""A batch of one made larger: a dimension of size 1 that compilers drop, so that arrays scale if they are computed from data.

Whatever is computed from data comes once an example; weights, and what is computed from them alone, once for all.
"""

from fractions import Fraction

from msgspec.structs import replace

from ...cost import Amount, Cost
from ...operation import Attention, Collective, Convolution, Operation, Product, RowWise
from ...resource import HBM
from ..ir.module import HloModule
from ..unneeded.kernels import Product as Found
from ..unneeded.values import RENAMED, Value, Values


class Data:
    """Which instructions of a program's entry are computed from data."""

    def __init__(self, module: HloModule, arguments: set[int]) -> None:
        self.module, self.values, entry = module, Values(module), module.entry_computation
        self.held: set[int] = set(arguments)
        for index, one in enumerate(entry.instructions):
            if any(operand in self.held for operand in one.operands):
                self.held.add(index)

    def cost(self, index: int, cost: Cost, times: int) -> Cost:
        """What a kernel costs with a larger batch: what it reads of weights is read once."""
        if index not in self.held:
            return cost
        entry = self.module.entry_computation
        once = {
            operand: entry[operand].shape.bytes
            for operand in entry[index].operands
            if operand not in self.held and entry[operand].shape.is_array
        }
        moved = cost.known(HBM)
        kept: Amount = min(sum(once.values()), moved)
        amounts: dict = {resource: amount * times for resource, amount in cost.amounts}  # type: ignore[type-arg]
        if moved:
            amounts[HBM] = kept + (moved - kept) * times
        return replace(Cost.of(amounts), unknown=cost.unknown)

    def operation(self, index: int, made: Operation | None, found: Found | None, times: int) -> Operation | None:
        """The operation of a kernel with a larger batch."""
        if index not in self.held:
            return made
        if isinstance(made, Product) and found is not None:
            left, right = self._is_data(found.left), self._is_data(found.right)
            if left and right:
                return replace(made, batch=made.batch * times)
            return replace(made, m=made.m * times) if left or not right else replace(made, n=made.n * times)
        if isinstance(made, Attention):
            return replace(made, batch=made.batch * times)
        if isinstance(made, Convolution):
            return replace(made, batch=made.batch * times, bytes=None)
        if isinstance(made, RowWise):
            return replace(made, rows=made.rows * times)
        return replace(made, bytes=made.bytes * Fraction(times)) if isinstance(made, Collective) else made

    def _is_data(self, side: Value) -> bool:
        source = self.values.origin(side, RENAMED | {"get-tuple-element"})
        if source.computation is self.module.entry_computation:
            return source.index in self.held
        return True
