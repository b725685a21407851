"""Arrays that are stored several times for a product: keys repeated for each query head, weights gathered for each token.

A kernel writes the copies, and the product reads them all, where one over the groups that share an array would read it once.
"""

from collections import Counter
from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...units import parse
from ...workload import Avoidable
from .kernels import Kernels
from .repeated import KIND
from .values import LAYOUT, Value

STORED, GATHERED = "stored", "gathered"  # the groups: copies in order, copies by index
_LEAST = parse("1 MB", "B")  # of the array that is repeated
_PASSED = LAYOUT | {"convert"}


def stored_repeats(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products that read an array several times over because it was stored so, and the kernels that store it."""
    if kernels.module.opcodes.isdisjoint(("broadcast", "gather")):
        return
    told: set[int] = set()
    for index, found in kernels.products.items():
        spared, group = 0, ""
        for side in (found.left, found.right):
            made = kernels.values.origin(side, _PASSED)
            maker = kernels.holding(made)
            matrix = (found.depth, found.rows if side is found.left else found.columns)
            is_stored = maker is not None and maker != index and maker in kernels.costs
            less = _repeated_bytes(kernels, made, found.batch, matrix) if is_stored else 0
            if not less or maker is None:
                continue
            spared, group = spared + less, GATHERED if made.opcode == "gather" else STORED
            if maker not in told:
                told.add(maker)
                yield maker, Avoidable(kind=KIND, instead=NOTHING, why=_WHY[group], group=group)
        if spared:
            amounts = dict(kernels.costs[index].amounts)
            amounts[HBM] = max(amounts.get(HBM, 0) - spared, 0)
            yield index, Avoidable(kind=KIND, instead=Cost.of(amounts), why=_WHY[group], group=group)


_WHY = {STORED: "stores an array several times over for a matmul", GATHERED: "gathers a matrix for each row of a matmul"}


def _repeated_bytes(kernels: Kernels, made: Value, batch: int, matrix: tuple[int, int]) -> int:
    """By how many bytes an operand is larger than the array that it repeats; 0 where it repeats none.

    Rows that are looked up or repeated are rows of one product; here whole matrices are, each for a product of its own.
    """
    if made.opcode not in ("broadcast", "gather") or not made.instruction.operands or batch < 2:
        return 0
    source = kernels.values.operand(made, 0)
    if not (source.shape.is_array and source.shape.is_bounded and made.shape.is_bounded) or source.shape.bytes < _LEAST:
        return 0
    if Counter(size for size in matrix if size > 1) - Counter(source.shape.dims):  # each of its sizes is an axis of the array
        return 0
    times = made.shape.elements // max(source.shape.elements, 1)
    return made.shape.bytes - made.shape.bytes // times if times >= 2 else 0
