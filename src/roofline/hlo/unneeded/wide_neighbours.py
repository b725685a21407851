"""Kernels between products of fp32 numbers that could be bf16: they read and write the same arrays, which then have half the bytes.

What a product makes or takes would be bf16, and what is computed from one product for another. Arguments and results of the program, such
as weights and the state of an optimizer, may have to stay as they are, and so do rows that a scatter adds, several times as fast in fp32.

On an H200, with products alone and with these kernels, of what bf16 saved: 83% and 94% in the forward pass of a transformer, 82% and 98% in
a vision transformer, 85% and 94% in an MLP; 43% and 54% in training, 63% and 71% in that of a Llama, where stored attention is told apart.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from ...cost import Cost, less_traffic
from ...resource import HBM
from ..ir.shapes import Shape
from .kernels import Kernels

_NAMES = frozenset(("bitcast", "get-tuple-element", "reshape", "optimization-barrier", "async-done"))
_APART = frozenset(("scatter", "sort", "fft", "custom-call", "rng-bit-generator"))
_WIDE = "f32"


class WideArrays(Struct, frozen=True):
    """The arrays of some products of fp32 numbers, and those between two of them, by the instructions of a computation that make them.

    ``are_added`` is whether scatters add rows of one product for another, as in a graph network: then all arrays stay fp32, since most
    would be cast back and forth. On an H200 such a step takes 4.69 ms, 4.62 ms with the matmuls in bf16.
    """

    kernels: Kernels
    products: frozenset[int]
    made: frozenset[int]
    are_added: bool

    @classmethod
    def around(cls, kernels: Kernels, products: Collection[int]) -> "WideArrays":
        """The arrays around some products of a computation."""
        body = kernels.computation.instructions
        after, before = set(products), set(products)
        for index, one in enumerate(body):
            if any(operand in after for operand in one.operands):
                after.add(index)
        for index in range(len(body) - 1, -1, -1):
            if index in before:
                before.update(body[index].operands)
        adding = {index for index in range(len(body)) if _adds_rows(kernels, index)}
        taken, added = ({_maker(kernels, operand) for index in those for operand in body[index].operands} for those in (products, adding))
        made = {index for index in {*products, *taken, *(after & before)} - added if body[index].opcode != "parameter"}
        return cls(kernels, frozenset(products), frozenset(made), bool(adding & after & before))

    def neighbours(self, functions: Collection[int]) -> Iterator[tuple[int, Cost]]:
        """The kernels other than products that read or write such arrays, and their cost with these in bf16.

        What reads the result of one of ``functions`` would compute these functions again, which takes about the time that the bytes save.
        """
        kernels, body, returned = self.kernels, self.kernels.computation, _returned(self.kernels)
        for index, cost in kernels.costs.items() if self.products and not self.are_added else ():
            if index in kernels.products or index in kernels.convolutions or kernels.values.opcodes(body[index]) & _APART:
                continue
            makers = [_maker(kernels, operand) for operand in body[index].operands]
            if any(maker in functions for maker in makers):
                continue
            less = sum(
                _spared(body[operand].shape) for operand, maker in zip(body[index].operands, makers, strict=True) if maker in self.made
            )
            if index in self.made:
                less += sum(_spared(leaf) for number, leaf in enumerate(body[index].shape.leaves) if (index, number) not in returned)
            if less:
                yield index, less_traffic(cost, min(less, int(cost.known(HBM)) // 2))


def _adds_rows(kernels: Kernels, index: int) -> bool:
    """Whether an instruction is a scatter of rows: the gradient of the elements that a loss picks scatters single ones."""
    for one in kernels.values.parts_with("scatter", kernels.computation, index):
        updates = kernels.values.operand(one, len(one.instruction.operands) - 1).shape.dims
        if any(updates[axis] > 1 for axis in one.instruction.integers("update_window_dims") if axis < len(updates)):
            return True
    return False


def _maker(kernels: Kernels, index: int) -> int:
    """The instruction that makes a value, followed through names for it."""
    while kernels.computation[index].opcode in _NAMES and kernels.computation[index].operands:
        index = kernels.computation[index].operands[0]
    return index


def _returned(kernels: Kernels) -> set[tuple[int, int]]:
    """The instructions of the entry whose result the program returns, with the number of it if there are several."""
    found = set[tuple[int, int]]()
    body, root = kernels.computation, kernels.computation.root_instruction
    for index in () if not kernels.are_in_entry else root.operands if root.opcode == "tuple" else (body.root,):
        number = 0
        while body[index].opcode in _NAMES and body[index].operands:
            number = body[index].integer("index") or 0 if body[index].opcode == "get-tuple-element" else number
            index = body[index].operands[0]
        found.add((index, number))
    return found


def _spared(shape: Shape) -> int:
    return shape.bytes // 2 if shape.is_array and shape.dtype == _WIDE else 0
