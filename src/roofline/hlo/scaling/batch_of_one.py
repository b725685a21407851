"""Scaling a batch of 1. Compilers drop dimensions of size 1, so instead all arrays that are computed from data are scaled.

Arrays computed from data exist once per example; weights, and arrays computed from weights alone, exist once. Compilers turn a product of
one row with a weight into an elementwise multiplication and a sum; with several rows it is a product again.
"""

from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from ...cost import Amount, Cost
from ...operation import Attention, Collective, Convolution, Operation, Product, RowWise
from ...resource import HBM
from ..ir.module import HloModule, Instruction
from ..ir.shapes import Shape
from ..ir.values import RENAMED, Value, Values
from ..review.kernels import Product as Found

MATRIX = 2  # dimensions of a matrix
_PASSING = RENAMED | {"get-tuple-element"}
_SUMMING = frozenset(("dot", "convolution", "custom-call", "scatter"))


class RowProduct(Struct, frozen=True):
    """A product of one row with weights that is compiled to a multiplication and sums: the product, and the kernels that only sum."""

    product: Product
    sums: frozenset[int] = frozenset()


class Data:
    """Which instructions of a program's entry are computed from data, and which of them are ``gradients``, summed over examples."""

    def __init__(self, module: HloModule, arguments: set[int]) -> None:
        self.module, self.values, entry = module, Values(module), module.entry_computation
        self.held: set[int] = set(arguments)
        self.gradients: set[int] = set()
        weights = {_sizes(entry[index].shape) for index in entry.parameters if index not in arguments} - {()}
        for index, instruction in enumerate(entry.instructions):
            if any(operand in self.held and operand not in self.gradients for operand in instruction.operands):
                self.held.add(index)
                if _sizes(instruction.shape) in weights and self._sums_examples(instruction):
                    self.gradients.add(index)

    def _sums_examples(self, instruction: Instruction) -> bool:
        """Whether a kernel multiplies data by data, or sums rows of data, and has no weight among its operands."""
        entry = self.module.entry_computation
        taken = [self.values.origin(Value(entry, operand)) for operand in instruction.operands]
        weights = [value for value in taken if value.opcode == "parameter" and value.index not in self.held and len(_sizes(value.shape))]
        return not self.values.opcodes(instruction).isdisjoint(_SUMMING) and not weights

    def cost(self, index: int, cost: Cost, times: int) -> Cost:
        """The cost of a kernel with a larger batch: bytes of weights are still read once."""
        if index not in self.held:
            return cost
        entry = self.module.entry_computation
        once = {
            operand: entry[operand].shape.bytes
            for operand in entry[index].operands
            if operand not in self.held and entry[operand].shape.is_array
        }
        moved = cost.known(HBM)
        written = entry[index].shape.bytes if index in self.gradients else 0
        kept: Amount = min(sum(once.values()) + written, moved)
        amounts: dict = {resource: amount * times for resource, amount in cost.amounts}  # type: ignore[type-arg]
        if moved:
            amounts[HBM] = kept + (moved - kept) * times
        return replace(Cost.of(amounts), unknown=cost.unknown)

    def operation(self, index: int, operation: Operation | None, kernel: Found | None, times: int) -> Operation | None:
        """The operation of a kernel with a larger batch."""
        if index not in self.held:
            return operation
        if isinstance(operation, Product) and kernel is not None:
            left, right = self._is_data(kernel.left), self._is_data(kernel.right)
            if index in self.gradients:
                return replace(operation, k=operation.k * times)
            if left and right:
                return replace(operation, batch=operation.batch * times)
            return replace(operation, m=operation.m * times) if left or not right else replace(operation, n=operation.n * times)
        if isinstance(operation, Attention):
            return replace(operation, batch=operation.batch * times)
        if isinstance(operation, Convolution):
            return replace(operation, batch=operation.batch * times, bytes=None)
        if isinstance(operation, RowWise):
            return replace(operation, rows=operation.rows * times)
        return replace(operation, bytes=operation.bytes * Fraction(times)) if isinstance(operation, Collective) else operation

    def row_products(self) -> dict[int, RowProduct]:
        """The kernels of the entry that multiply data by weights elementwise and sum the products, themselves or in another kernel."""
        products = {}
        for index in sorted(self.held):
            instruction = self.module.entry_computation[index]
            weights = self._weights(instruction) if instruction.opcode == "fusion" else []
            row_product = self._summed(instruction, weights) or self._multiplied(index, instruction, weights) if weights else None
            if row_product is not None:
                products[index] = row_product
        return products

    def _weights(self, instruction: Instruction) -> list[Shape]:
        """The operands of a kernel that are matrices and are not computed from data."""
        entry = self.module.entry_computation
        shapes = [entry[operand].shape for operand in instruction.operands if operand not in self.held]
        return [shape for shape in shapes if shape.is_array and shape.rank >= MATRIX]

    def _summed(self, instruction: Instruction, weights: list[Shape]) -> RowProduct | None:
        """The row product of a kernel that multiplies by a weight and sums the products."""
        body = self.values.body(instruction)
        if body is None or not instruction.shape.is_array or len(weights) != 1 or "multiply" not in self.values.opcodes(instruction):
            return None
        weight = weights[0]
        sums = [
            operation
            for operation in body
            if operation.opcode == "reduce" and body[operation.operands[0]].shape.elements == weight.elements
        ]
        columns = instruction.shape.elements
        is_divided = 0 < columns < weight.elements and weight.elements % columns == 0
        return RowProduct(_row_times([weight], [instruction.shape])) if sums and is_divided else None

    def _multiplied(self, index: int, instruction: Instruction, weights: list[Shape]) -> RowProduct | None:
        """The row product of a kernel that writes elementwise products with a weight, which other kernels only sum."""
        shapes = [shape for shape in instruction.shape.leaves if shape.is_array]
        if sorted(shape.elements for shape in shapes) != sorted(shape.elements for shape in weights):
            return None
        entry, waiting, sums = self.module.entry_computation, [index], list[int]()
        while waiting:
            for user in self.values.users(entry, waiting.pop()):
                if entry[user].opcode in _PASSING:
                    waiting.append(user)
                else:
                    sums.append(user)
        results = [entry[user].shape for user in sums]
        if len(results) != len(weights) or not all(
            shape.is_array and self._is_sum(entry[user]) for user, shape in zip(sums, results, strict=True)
        ):
            return None
        product = _row_times(weights, results)
        return RowProduct(product, frozenset(sums)) if product.k * product.n == sum(shape.elements for shape in weights) else None

    def _is_sum(self, instruction: Instruction) -> bool:
        return len(instruction.operands) == 1 and instruction.opcode == "fusion" and "reduce" in self.values.opcodes(instruction)

    def _is_data(self, side: Value) -> bool:
        """Whether an operand of a product, or a part that it is concatenated from, is computed from data."""
        entry = self.module.entry_computation
        return any(value.computation is not entry or value.index in self.held for value in self.values.pieces(side, _PASSING))


def _sizes(shape: Shape) -> tuple[int, ...]:
    """The sorted dimensions of a matrix or a stack of matrices; empty for other arrays."""
    sizes = tuple(sorted(size for size in shape.dims if size > 1)) if shape.is_array else ()
    return sizes if len(sizes) >= MATRIX else ()


def _row_times(weights: list[Shape], results: list[Shape]) -> Product:
    """The product of one row with weights, whose columns are counted together."""
    columns, number = sum(shape.elements for shape in results), weights[0].number
    depth = sum(shape.elements for shape in weights) // max(columns, 1)
    return Product(m=1, k=depth, n=columns, left=number.name, right=number.name, out=results[0].number.name, compute=number.rate)
