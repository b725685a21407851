"""Products with one-hot rows: an embedding or its gradient computed as a product, where a gather or a scatter is cheaper.

A matrix is one-hot if its elements compare an index with a position: ``convert(iota == broadcast(ids))``. A product of two such arrays
along different dimensions is one-hot along both together, as in the dispatch of tokens to the slots of experts.
"""

from collections.abc import Iterator
from math import prod

from ...cost import NOTHING, Cost
from ...resource import HBM, vector
from ...workload import Avoidable, Facts
from ..ir.module import Computation
from .axes import source_axis
from .kernels import Kernels, Product
from .values import RENAMED, SPREAD, Value, Values

KIND, CLASS = "one-hot-product", "dense"
BINS = "bins"  # the group of histograms
DIAGONAL = "diagonal"  # the group of products with diagonal matrices
RUNNING = "running"  # the group of cumulative sums
SLOTS = "slots"  # the group of products with rows that are one-hot in two indices
LONG = 1_000  # elements; shorter cumulative sums are not faster than matmuls
_TRIGGERS = frozenset(("compare", "iota"))  # every one-hot matrix is made with these opcodes
_ORDERED = ("GE", "GT", "LE", "LT")
_MASKED = frozenset(("multiply", "broadcast"))  # what may combine several one-hot arrays
_ADDED = frozenset(("add", "subtract"))


def one_hot_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products with one-hot rows in a computation, and the kernels that only make those rows."""
    values, computation = kernels.values, kernels.computation
    if not kernels.module.opcodes.issuperset(_TRIGGERS):
        return
    makers: dict[int, str] = {}  # by kernel: the group of the products that it makes rows for
    products: set[int] = set()
    for index, found in kernels.products.items():
        for side, axes in ((found.left, found.dims.lhs_contracting), (found.right, found.dims.rhs_contracting)):
            hot, many = many_hot(values, side)
            if hot is None and is_diagonal(values, side):
                moved = 2 * (found.right if side is found.left else found.left).shape.bytes
                yield (
                    index,
                    Avoidable(kind=KIND, instead=Cost.of({HBM: moved}), facts={"product": str(found)}, unneeded=CLASS, group=DIAGONAL),
                )
                break
            if hot is None and found.depth >= LONG and _is_triangle_of_ones(values, side):
                other = found.right if side is found.left else found.left
                instead = Cost.of({HBM: 2 * other.shape.bytes, vector("fp32"): other.shape.elements})
                yield index, Avoidable(kind=KIND, instead=instead, facts={"product": str(found)}, unneeded=CLASS, group=RUNNING)
                break
            if hot is None:
                continue
            instead, cause = _instead(found, side, many, looked_up=hot in axes)
            facts, group = Facts(product=str(found), many=many), SLOTS if _has_slots(values, side) else ""
            yield index, Avoidable(kind=KIND, instead=instead, cause=cause, facts=facts, unneeded=CLASS, group=group)
            products.add(index)
            for maker in _source_kernels(kernels, side):
                makers.setdefault(maker, group)
            break
    for index, group in makers.items():
        if index not in products and all(
            _only_for(values, computation, user, products, makers) for user in values.users(computation, index)
        ):
            yield index, Avoidable(kind=KIND, instead=NOTHING, cause="rows", unneeded=CLASS, group=group)


def compared_bins(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that sum one-hot rows without a product: a histogram that compares every element with every bin."""
    if not kernels.module.opcodes.issuperset(_TRIGGERS):
        return
    for index, cost in kernels.costs.items():
        for made in kernels.values.written(kernels.computation, index):
            hot, many = many_hot(kernels.values, made) if made.shape.is_array else (None, 1)
            if hot is None or many == 1:
                continue
            elements, bins = many * made.shape.elements // made.shape.dims[hot], made.shape.dims[hot]
            instead = Cost.of({HBM: cost.known(HBM) + made.shape.bytes, vector("fp32"): elements})
            facts = Facts(elements=elements, bins=bins)
            yield index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=BINS)


def many_hot(values: Values, value: Value) -> tuple[int | None, int]:
    """The dimension along which few elements of each row are not zero, and how many: one, or the number of one-hot matrices summed."""
    made = values.origin(value)
    if made.opcode in _MASKED:
        return _merged_axis(made, value, hot_axes(values, made)), 1
    if made.opcode != "reduce" or not made.shape.is_array or made.shape.dims != value.shape.dims:
        return one_hot_axis(values, value), 1
    bodies = [values.module.computations[number] for number in made.instruction.called("to_apply")]
    rows, summed = values.operand(made, 0), made.instruction.dimensions
    hot = hot_axes(values, rows)
    if not hot or hot & {*summed} or any(body.root_instruction.opcode != "add" for body in bodies):
        return None, 1
    left = frozenset(axis - sum(before < axis for before in summed) for axis in hot)
    many = prod(rows.shape.dims[axis] for axis in summed)
    return (min(left) if len(left) == 1 else _merged_axis(made, value, left)), many


def _has_slots(values: Values, value: Value) -> bool:
    """Whether the rows of a matrix are one-hot in two indices, or sums of such rows: of tokens over the slots of experts."""
    made = values.origin(value)
    if made.opcode == "reduce":
        made = values.origin(values.operand(made, 0))
    return made.opcode in _MASKED and len(hot_axes(values, made)) > 1


def hot_axes(values: Values, value: Value, depth: int = 8) -> frozenset[int]:
    """The dimensions of a value along which at most one element of each row is not zero: those of all of its one-hot factors."""
    made = values.made_by(value)
    if depth == 0 or not made.shape.is_array:
        return frozenset()
    if made.opcode == "multiply":
        return frozenset().union(*(hot_axes(values, factor, depth - 1) for factor in values.operands(made)))
    if made.opcode == "broadcast":
        inner = hot_axes(values, values.operand(made, 0), depth - 1)
        return frozenset(axis for place, axis in enumerate(made.instruction.dimensions) if place in inner)
    if made.opcode in ("convert", "copy"):
        return hot_axes(values, values.operand(made, 0), depth - 1)
    axis = one_hot_axis(values, made) if values.origin(made).shape.dims == made.shape.dims else None
    return frozenset() if axis is None else frozenset((axis,))


def _merged_axis(made: Value, value: Value, axes: frozenset[int]) -> int | None:
    """The dimension of a value into which a reshape merged two or more neighbouring dimensions of the array that it was made from.

    The first of them, if nothing was merged.
    """
    if len(axes) < 2 or max(axes) - min(axes) != len(axes) - 1:
        return None
    if value.shape.dims == made.shape.dims:
        return min(axes)
    before, merged = prod(made.shape.dims[: min(axes)]), prod(made.shape.dims[axis] for axis in axes)
    sizes = value.shape.dims
    return next((axis for axis, size in enumerate(sizes) if size == merged and prod(sizes[:axis]) == before), None)


def one_hot_axis(values: Values, value: Value) -> int | None:
    """The dimension along which one element of each row is one; ``None`` if a value is not one-hot.

    A change of layout may move the dimension: it is found again by its size or, if several have that size, by following each.
    """
    made = values.origin(value)
    if made.opcode == "gather" and is_diagonal(values, values.operand(made, 0)):  # rows of the identity
        return len(value.shape.dims) - 1 if made.shape.dims[-1:] == value.shape.dims[-1:] else None
    if made.opcode == "select":
        made = values.origin(values.operand(made, 0))
    if made.opcode != "compare" or made.instruction.word("direction").upper() != "EQ":
        return None
    sides = [values.operand(made, number) for number in (0, 1)]
    for counter, index in (sides, sides[::-1]):
        counted = position(values, counter)
        if counted is None or position(values, index) is not None:
            continue
        if any(follows(values, counter, axis) and _varies(values, index, axis) for axis in range(len(made.shape.dims))):
            return None  # one position is compared with one index per row: a mask of rows, as in the gradient of a scatter
        size = counted[0].shape.dims[counted[1]]
        places = [axis for axis, length in enumerate(value.shape.dims) if length == size]
        if len(places) > 1:
            places = [axis for axis in places if _counts(values, value, axis, counter)]
        return places[0] if len(places) == 1 else None
    return None


def is_diagonal(values: Values, value: Value) -> bool:
    """Whether a matrix is zero outside its diagonal: only elements with two equal positions are selected or multiplied by one."""
    made = values.origin(value)
    places = values.operands(made)[: {"select": 1, "multiply": 2}.get(made.opcode, 0)]
    for place in (made, *places):
        compared = values.origin(place)
        if compared.opcode != "compare" or compared.instruction.word("direction").upper() != "EQ" or len(compared.shape.dims) != 2:
            continue
        counted = [position(values, side) for side in values.operands(compared)]
        if all(counted) and {one[1] for one in counted if one and len(one[0].shape.dims) == 2} == {0, 1}:
            return made.opcode != "select" or values.origin(values.operand(made, 2), SPREAD).opcode == "constant"
    return False


def _is_triangle_of_ones(values: Values, value: Value) -> bool:
    """Whether a matrix has one constant above its diagonal and another below: it compares two positions."""
    made = values.origin(value)
    if made.opcode == "select":
        if any(values.origin(side, SPREAD).opcode != "constant" for side in values.operands(made)[1:]):
            return False
        made = values.origin(values.operand(made, 0))
    if made.opcode != "compare" or made.instruction.word("direction").upper() not in _ORDERED or len(made.shape.dims) != 2:
        return False
    return all(position(values, side) is not None for side in values.operands(made))


def _counts(values: Values, value: Value, axis: int, counter: Value) -> bool:
    """Whether a dimension of a one-hot matrix is that of the compared iota."""
    here = source_axis(values, value, axis, RENAMED)
    if here is not None and (made := values.origin(value)).opcode == "select":
        here = source_axis(values, values.operand(made, 0), here, RENAMED)
    return follows(values, counter, here)


def follows(values: Values, counter: Value, axis: int | None) -> bool:
    """Whether a dimension of a value is that of the iota it is made from."""
    for _ in range(64):
        if axis is None:
            return False
        axis, counter = source_axis(values, counter, axis, SPREAD), values.origin(counter, SPREAD)
        if counter.opcode == "iota":
            return axis == (counter.instruction.integer("iota_dimension") or 0)
        if not counter.instruction.operands:
            return False
        counter = values.operand(counter, 0)
    return False


def _varies(values: Values, value: Value, axis: int) -> bool:
    """Whether a value differs along a dimension: not if the dimension was added by a broadcast."""
    before = source_axis(values, value, axis, SPREAD)
    return before is not None and values.origin(value, SPREAD).shape.dims[before] > 1


def position(values: Values, value: Value) -> tuple[Value, int] | None:
    """The iota that a value is made from by broadcasts and additions of constants, and the iota's dimension."""
    for _ in range(64):
        value = values.origin(value, SPREAD)
        if value.opcode == "iota":
            axis = value.instruction.integer("iota_dimension") or 0
            return (value, axis) if axis < len(value.shape.dims) else None
        if value.opcode not in _ADDED:
            return None
        constant = values.origin(values.operand(value, 1), SPREAD)
        if constant.opcode != "constant":
            return None
        value = values.operand(value, 0)
    return None


def _instead(found: Product, side: Value, many: int, *, looked_up: bool) -> tuple[Cost, str]:
    """The cost and the cause by the alternative: a gather if the one-hot dimension is contracted, else a scatter-add."""
    other = found.right if side is found.left else found.left
    rows = found.rows if side is found.left else found.columns
    width = found.columns if side is found.left else found.rows
    element = (other.shape.bytes or 0) // max(other.shape.elements, 1)
    if looked_up:
        instead = Cost.of({HBM: (1 + many) * found.batch * rows * width * element})
        return instead, "looked_up" if many == 1 else "summed"
    read, written = found.batch * found.depth * width * element, found.batch * rows * width * element
    instead = Cost.of({HBM: many * 3 * read + written, vector("fp32"): many * found.batch * found.depth * width})
    return instead, "added" if many == 1 else "all_added"


def _source_kernels(kernels: Kernels, side: Value) -> Iterator[int]:
    """The kernels of a computation that make the one-hot matrix or the positions for it."""
    for value in kernels.values.ancestors(side, frozenset(("iota", "parameter", "constant", "dot", "custom-call"))):
        holder = kernels.holding(value)
        if holder in kernels.costs and (value.inside or value.opcode in ("compare", "convert", "select", "iota")):
            yield holder


def _only_for(values: Values, computation: Computation, user: int, products: set[int], makers: dict[int, str]) -> bool:
    """Whether all uses of a value by ``user`` are in these kernels, directly or through tuples and renamings."""
    if user in products or user in makers:
        return True
    if computation[user].opcode in ("get-tuple-element", *RENAMED):
        return all(_only_for(values, computation, further, products, makers) for further in values.users(computation, user))
    return False
