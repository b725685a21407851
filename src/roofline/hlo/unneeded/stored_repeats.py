"""Arrays that are stored several times for a product: keys repeated for each query head, weights gathered for each token, and the
overlapping patches of an image, where a convolution would read it once.

A kernel writes the copies, and the product reads them all; a product over the groups that share an array would read it once.
"""

from collections import Counter
from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...units import parse
from ...workload import Avoidable
from .kernels import Kernels
from .repeated import KIND
from .values import LAYOUT, Value

STORED, GATHERED, PATCHES = "stored", "gathered", "patches"  # the groups: copies in order, copies by index, concatenated shifted copies
_LEAST = parse("1 MB", "B")  # of the array that is repeated
_LEAST_PATCHES = 4  # shifted copies: a window of 2 by 2
_PASSED = LAYOUT | {"convert"}
_FILLED = _PASSED | {"pad"}


def stored_repeats(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products that read several stored copies of an array, and the kernels that store them."""
    if kernels.module.opcodes.isdisjoint(("broadcast", "gather", "concatenate")):
        return
    reported: set[int] = set()
    for index, found in kernels.products.items():
        saved_bytes, group = 0, ""
        for side in (found.left, found.right):
            made = kernels.values.origin(side, _PASSED)
            maker = kernels.holding(made)
            matrix = (found.depth, found.rows if side is found.left else found.columns)
            is_stored = maker is not None and maker != index and maker in kernels.costs
            less = _extra_bytes(kernels, made, found.batch, matrix) if is_stored else 0
            if not less or maker is None:
                continue
            group = _GROUPS[made.opcode]
            saved_bytes += less if group != PATCHES else 0  # a convolution takes about as long as the matmul
            if maker not in reported:
                reported.add(maker)
                yield maker, Avoidable(kind=KIND, instead=NOTHING, cause=_CAUSES.get(group, ""), group=group)
        if saved_bytes:
            instead = less_traffic(kernels.costs[index], saved_bytes)
            yield index, Avoidable(kind=KIND, instead=instead, cause=_CAUSES.get(group, ""), group=group)


_CAUSES = {STORED: "stored_array"}
_GROUPS = {"broadcast": STORED, "gather": GATHERED, "concatenate": PATCHES}


def _extra_bytes(kernels: Kernels, made: Value, batch: int, matrix: tuple[int, int]) -> int:
    return _overlapping_bytes(kernels, made) if made.opcode == "concatenate" else _repeated_bytes(kernels, made, batch, matrix)


def _overlapping_bytes(kernels: Kernels, joined: Value) -> int:
    """The bytes by which an operand is larger than the array whose shifted copies it concatenates; 0 if it does not."""
    values = kernels.values
    parts = [values.origin(operand, _PASSED) for operand in values.operands(joined)]
    sources = [values.origin(values.operand(part, 0) if part.opcode == "slice" else part, _FILLED) for part in parts]
    cuts = {part.instruction.slices for part in parts if part.opcode == "slice"}
    source = sources[0].shape
    if len({one.key for one in sources}) != 1 or len(cuts) + 1 < _LEAST_PATCHES or not source.is_array or not source.is_bounded:
        return 0
    is_repeated = source.bytes >= _LEAST and joined.shape.elements >= 2 * source.elements
    return max(joined.shape.bytes - source.bytes, 0) if is_repeated else 0


def _repeated_bytes(kernels: Kernels, made: Value, batch: int, matrix: tuple[int, int]) -> int:
    """The bytes by which an operand is larger than the array that it repeats; 0 if it repeats none.

    Only whole matrices count, each for a product of its own, not repeated rows of one product.
    """
    if made.opcode not in ("broadcast", "gather") or not made.instruction.operands or batch < 2:
        return 0
    source = kernels.values.operand(made, 0)
    if not (source.shape.is_array and source.shape.is_bounded and made.shape.is_bounded) or source.shape.bytes < _LEAST:
        return 0
    if Counter(size for size in matrix if size > 1) - Counter(source.shape.dims):  # a size of the matrix is no axis of the array
        return 0
    times = made.shape.elements // max(source.shape.elements, 1)
    return made.shape.bytes - made.shape.bytes // times if times >= 2 else 0
