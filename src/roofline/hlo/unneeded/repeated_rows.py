"""Products of repeated rows: a user's features for each candidate, a node's for each of its edges, multiplied each time.

Rows are repeated by a broadcast, or by a gather that takes rows several times. Anything computed from each row alone is the same for equal
rows, so repeated axes are followed through products and elementwise operations: computing first and repeating afterwards needs a fraction
of the work. A ragged product multiplies equal rows by different matrices, such as those of a token's experts, and does not count.
"""

from collections.abc import Iterator
from functools import cached_property
from math import prod

from ...cost import NOTHING, Cost, less_traffic
from ...rules.duplicated_work.equal_values import CLASS
from ...rules.repeated_operand.stored import KIND
from ...workload import Avoidable
from ..price.elementwise import ELEMENTWISE
from .kernels import Kernels, Product, product
from .padded_axes import Key, PaddedAxis, Shares, free_axes, kept, reshaped, share_of
from .values import LAYOUT, RENAMED, SPREAD, Value

GROUP = "rows"
_SAME = ELEMENTWISE | {"copy", "select", "optimization-barrier", "opt-barrier"}
_RESHAPES = frozenset(("reshape", "bitcast"))
_KEEPING = frozenset(("reduce", "slice", "dynamic-slice"))
_CUT = RENAMED | {"slice"}
_MOST_NEEDED = 0.6  # of a product
_TABLES = ("parameter", "get-tuple-element", "constant")  # opcodes of tables that are given: an embedding's rows are not computed
_TWICE = 2
_BY_INDEX = "gather "
_DEEPEST = 40


def repeated_rows(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of a computation with repeated rows or columns, and their cost with each row once."""
    if not kernels.products or not _repeats_rows(kernels):
        return
    rows = _Rows(kernels)
    shares = {index: rows.needed(found) for index, found in kernels.products.items() if _is_plain(found)}
    reported = {index for index, (needed, _) in shares.items() if needed <= _MOST_NEEDED}
    if not reported or not rows.meet_others():
        return
    shares |= dict(rows.gradients(reported, shares))
    reported = {index for index, (needed, _) in shares.items() if needed <= _MOST_NEEDED}
    for index in sorted(reported):
        (needed, repeated_bytes), found = shares[index], kernels.products[index]
        amounts = {unit: amount * needed if unit.unit == "matrix" else amount for unit, amount in kernels.costs[index].amounts}
        instead = less_traffic(Cost.of(amounts), repeated_bytes)
        facts = {"product": str(found)}
        yield index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP, factor=1 / needed)
    for maker in dict.fromkeys(maker for index in sorted(reported) for maker in rows.makers(kernels.products[index])):
        if maker not in reported and kernels.users(maker) <= reported:
            yield maker, Avoidable(kind=KIND, instead=NOTHING, cause="stored", group=GROUP)


def _repeats_rows(kernels: Kernels) -> bool:
    """Whether a program has a gather, or a broadcast of a matrix, which may repeat rows; most programs have none.

    Masks do not count, nor one number per row, as in norms and softmax.
    """
    if "gather" in kernels.module.opcodes:
        return True
    for computation in kernels.module if "broadcast" in kernels.module.opcodes else ():
        for one in computation.instructions:
            if one.opcode == "broadcast" and one.operands and one.shape.is_array:
                source, last = computation[one.operands[0]].shape, len(one.shape.dims) - 1
                is_matrix = source.is_array and len(source.dims) > 1 and source.dtype != "pred"
                if is_matrix and last in one.dimensions and one.shape.elements >= _TWICE * source.elements:
                    return True
    return False


class _Rows:
    """The repeated rows of one computation: for each value its repeated axes, with the share of distinct rows, and what repeats them."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels, self.values = kernels, kernels.values
        self._seen: dict[Key, Shares] = {}

    def needed(self, found: Product) -> tuple[float, float]:
        """The share of a product that has distinct rows and columns, and the bytes of repeated ones."""
        dims = found.dims
        rows = self._different(found.left, dims.lhs_contracting, free_axes(found.left, dims.lhs_contracting, dims.lhs_batch))
        columns = self._different(found.right, dims.rhs_contracting, free_axes(found.right, dims.rhs_contracting, dims.rhs_batch))
        parts = ((found.left, rows), (found.right, columns), (found.made, rows * columns))
        return rows * columns, sum(side.shape.bytes * (1 - share) for side, share in parts if side.shape.is_array)

    def gradients(self, reported: set[int], shares: dict[int, tuple[float, float]]) -> Iterator[tuple[int, tuple[float, float]]]:
        """The products of a backward pass with repeated rows: the gradients of equal rows could be summed first.

        They contract the repeated rows (the gradient of weights), or multiply gradients of equally many rows by the same weights.
        """
        weights: dict[tuple[object, int], float] = {}
        for index in reported:
            found = self.kernels.products[index]
            for side, number in ((found.right, found.rows), (found.left, found.columns)):
                weights[self.values.origin(side, _CUT).key, number] = shares[index][0]
        for index, found in self.kernels.products.items():
            if index in reported or not _is_plain(found):
                continue
            sides = (found.left, found.dims.lhs_contracting), (found.right, found.dims.rhs_contracting)
            needed = min(share_of(self.axes(side), contracted) for side, contracted in sides)
            for side, number in ((found.right, found.rows), (found.left, found.columns)):
                needed = min(needed, weights.get((self.values.origin(side, _CUT).key, number), 1.0))
            yield index, (needed, (found.left.shape.bytes + found.right.shape.bytes) / 2 * (1 - needed))

    def makers(self, found: Product) -> Iterator[int]:
        """The kernels that store the repeated rows of a product."""
        for side in (found.left, found.right):
            made = self.values.origin(side, LAYOUT | {"convert"})
            maker = self.kernels.holding(made)
            if made.opcode in ("broadcast", "gather") and maker in self.kernels.costs and self.axes(made):
                yield maker

    def meet_others(self) -> bool:
        """Whether repeated rows are ever concatenated or combined with others; if not, the data itself is repeated."""
        if any(one.location.startswith(_BY_INDEX) for shares in self._seen.values() for one in shares.values()):
            return True
        for one in self._instructions:
            if one.opcode == "concatenate" or (one.opcode in _SAME and len(one.instruction.operands) > 1):
                arrays = [operand for operand in self.values.operands(one) if operand.shape.is_array and len(operand.shape.dims) > 1]
                repeated = [bool(self.axes(operand)) for operand in arrays]
                if any(repeated) and not all(repeated):
                    return True
        return False

    def axes(self, value: Value, depth: int = 0) -> Shares:
        """The axes of a value along which rows are repeated."""
        made = self.values.made_by(value)
        if made.key not in self._seen:
            self._seen[made.key] = {}
            self._seen[made.key] = self._find(made, depth + 1) if depth < _DEEPEST else {}
        return self._seen[made.key]

    @cached_property
    def _instructions(self) -> list[Value]:
        """The instructions of the computation, and of the bodies of its fusions."""
        computation = self.kernels.computation
        return [one for place in range(len(computation)) for one in self.values.parts(computation, place)]

    @cached_property
    def _edges(self) -> set[object]:
        """The indices with which computed rows are gathered: edges of a graph, not ids of an embedding."""
        gathers = [one for one in self._instructions if one.opcode == "gather"]
        computed = [one for one in gathers if self.values.origin(self.values.operand(one, 0)).opcode not in _TABLES]
        return {self._indices(one) for one in computed}

    def _indices(self, gather: Value) -> object:
        """Where the indices of a gather come from."""
        for one in self.values.ancestors(self.values.operand(gather, 1), frozenset(_TABLES)):
            if one.opcode in ("parameter", "get-tuple-element"):
                return one.key
        return self.values.operand(gather, 1).key

    def _different(self, side: Value, contracted: tuple[int, ...], free: list[int]) -> float:
        """The share of an operand with distinct rows; for one that was concatenated along the contracted axis, over its parts."""
        if self.values.origin(side, SPREAD).opcode in ("constant", "iota"):
            return 1.0
        share = share_of(self.axes(side), free)
        joined = self.values.origin(side, frozenset(("convert", "copy")))
        if joined.opcode != "concatenate" or joined.instruction.dimensions != contracted or joined.shape.dims != side.shape.dims:
            return share
        parts = [(one.shape.elements, share_of(self.axes(one), free)) for one in self.values.operands(joined)]
        return min(share, sum(size * part for size, part in parts) / max(side.shape.elements, 1))

    def _find(self, made: Value, depth: int) -> Shares:
        if made.opcode == "broadcast":
            return self._broadcast(made, depth)
        if made.opcode == "gather":
            return self._gathered(made)
        if made.opcode in _SAME:
            return self._of_elements(made, depth)
        inside = product(self.values, made)
        if inside is not None:
            return {} if inside.groups else self._of_product(inside, depth)
        if made.opcode not in ("transpose", *_RESHAPES, *_KEEPING):
            return {}
        before = self.values.operand(made, 0)
        inner = self.axes(before, depth) if before.shape.is_array else {}
        if made.opcode == "transpose":
            return {axis: inner[old] for axis, old in enumerate(made.instruction.dimensions) if old in inner}
        if made.opcode in _RESHAPES:
            return reshaped(before.shape, made.shape, inner, by_storage=made.opcode == "bitcast")
        return kept(made, before.shape, inner) if inner else {}

    def _broadcast(self, made: Value, depth: int) -> Shares:
        source, dimensions = self.values.operand(made, 0), made.instruction.dimensions
        inner = self.axes(source, depth) if source.shape.is_array else {}
        found = {dimensions[axis]: one for axis, one in inner.items() if axis < len(dimensions)}
        added = {axis: size for axis, size in enumerate(made.shape.dims) if axis not in dimensions and size > 1}
        return {**found, **{axis: PaddedAxis(1 / size, str(made.key)) for axis, size in added.items()}}

    def _gathered(self, made: Value) -> Shares:
        """The axis along which a gather takes more rows than its table has; empty if it takes parts of rows."""
        table, instruction = self.values.operand(made, 0), made.instruction
        places, sizes = instruction.integers("start_index_map"), instruction.integers("slice_sizes")
        if len(places) != 1 or len(sizes) != len(table.shape.dims) or sizes[places[0]] != 1:
            return {}
        if any(size != whole for axis, (size, whole) in enumerate(zip(sizes, table.shape.dims, strict=True)) if axis != places[0]):
            return {}
        rows, by = table.shape.dims[places[0]], self._indices(made)
        looked_up = [axis for axis in range(len(made.shape.dims)) if axis not in instruction.integers("offset_dims")]
        number = prod(made.shape.dims[axis] for axis in looked_up)
        if not looked_up or number < _TWICE * rows or (self.values.origin(table).opcode in _TABLES and by not in self._edges):
            return {}
        return {max(looked_up, key=made.shape.dims.__getitem__): PaddedAxis(rows / number, f"{_BY_INDEX}{by}")}

    def _of_elements(self, made: Value, depth: int) -> Shares:
        """The repeated axes of an elementwise result: those that all operands repeat in the same way, or are constant along."""
        found: Shares | None = None
        for operand in self.values.operands(made):
            if operand.shape.is_array and operand.shape.dims == made.shape.dims:
                axes = self.axes(operand, depth)
                found = axes if found is None else _both(found, axes, made.shape.dims)
                if not found:
                    break
        return found or {}

    def _of_product(self, found: Product, depth: int) -> Shares:
        """The repeated axes of a product's result: the free axes of its operands, which follow the batch."""
        left, right = self.axes(found.left, depth), self.axes(found.right, depth)
        axes: list[PaddedAxis | None] = [None] * len(found.dims.lhs_batch)
        axes += [left.get(axis) for axis in free_axes(found.left, found.dims.lhs_contracting, found.dims.lhs_batch)]
        axes += [right.get(axis) for axis in free_axes(found.right, found.dims.rhs_contracting, found.dims.rhs_batch)]
        return {axis: one for axis, one in enumerate(axes) if one is not None}


def _is_plain(found: Product) -> bool:
    """Whether all rows of a product are multiplied by one matrix."""
    return found.batch == 1 and not found.groups


def _both(one: Shares, other: Shares, dims: tuple[int, ...]) -> Shares:
    found = {}
    for axis in one.keys() & other.keys():
        less, more = sorted((one[axis], other[axis]))
        if less.location == more.location or less.share * dims[axis] <= 1:
            found[axis] = more
    return found
