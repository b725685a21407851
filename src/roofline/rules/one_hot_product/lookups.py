"""Products with a one-hot matrix, where a gather or a scatter-add would do.

One-hot rows are made by a comparison of a column of ids with the numbers 0 to n - 1, or by a scatter of one value to each row of zeros.
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator
from ...resource import HBM, vector
from ...workload import Avoidable

KIND, CLASS = "one-hot-product", "dense"
_SPREAD = RENAMING | {Operator.BROADCAST}


class OneHot(Struct, frozen=True):
    """One-hot rows: how many, of how many columns, and the kernels that make them for products alone."""

    rows: int
    columns: int
    makers: tuple[int, ...]


def one_hot_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that multiply by one-hot rows, with the cost of a lookup instead, and those that make the rows."""
    makers: dict[int, Avoidable] = {}
    for product in graph.of(Operator.DOT):
        for place in (0, 1):
            hot = _one_hot(graph, product.takes[place])
            if hot is None:
                continue
            avoidable = _looked_up(graph, product, place, hot)
            yield product.kernel, avoidable
            makers |= dict.fromkeys(hot.makers, replace(avoidable, instead=NOTHING))
            break
    yield from makers.items()


def _one_hot(graph: Graph, array: int) -> OneHot | None:
    """The one-hot rows that an array has, or ``None``."""
    origin = graph.origin(array)
    maker = graph.maker.get(origin)
    if maker is None:
        return None
    if maker.operator == Operator.SCATTER:
        is_one_hot = _is_scattered(graph, maker)
    else:
        is_one_hot = maker.operator == Operator.EQUAL and _is_compared(graph, maker)
    whole = graph.arrays[maker.gives[0]]
    if not is_one_hot or not whole.elements:
        return None
    nodes = graph.between(array)
    spared = [node for node in (*nodes, maker) if all(user.operator == Operator.DOT for user, _ in graph.uses(node.gives[0]))]
    if maker in spared and maker.operator == Operator.SCATTER and (zeros := graph.made_by(maker.takes[0], Operator.FILL)) is not None:
        spared.append(zeros)
    kernels = tuple(node.kernel for node in spared if node.kernel != NO_KERNEL)
    return OneHot(whole.elements // whole.shape[-1], whole.shape[-1], kernels)


def _is_scattered(graph: Graph, scatter: Node) -> bool:
    """Whether a scatter writes one element in each row of its last axis, of an array of zeros."""
    base, positions = (graph.arrays[array] for array in scatter.takes[:2])
    axes = (-1, len(base.shape) - 1) if base.sure else (-1, len(base.shape) - 1, None)
    is_filled = graph.made_by(scatter.takes[0], Operator.FILL) is not None or not base.sure
    return scatter.params in axes and is_filled and bool(base.shape) and positions.shape == (*base.shape[:-1], 1)


def _is_compared(graph: Graph, equal: Node) -> bool:
    """Whether a comparison is of one id for each row with the numbers of the columns."""
    if len(equal.takes) != 2:
        return False
    columns = graph.arrays[equal.gives[0]].shape[-1:]
    for ids, numbers in (equal.takes, equal.takes[::-1]):
        origin = graph.origin(numbers, _SPREAD)
        of_columns = graph.arrays[origin]
        is_iota = graph.made_by(origin, Operator.IOTA) is not None
        is_unknown = not of_columns.sure and origin not in graph.maker and of_columns.elements != graph.arrays[ids].elements
        if graph.arrays[ids].shape[-1:] in ((1,), ()) and columns == (of_columns.elements,) and (is_iota or is_unknown):
            return True
    return False


def _looked_up(graph: Graph, product: Node, place: int, hot: OneHot) -> Avoidable:
    """The cost of a gather instead of a product that sums over the one-hot columns, else that of a scatter-add."""
    sizes, other = product.sizes, graph.arrays[product.takes[1 - place]]
    width = sizes.columns if place == 0 else sizes.rows
    number = other.dtype
    moved = number.bytes(hot.rows * width) if number is not None else 0
    if _sums_columns(graph, product, place, hot):
        instead, cause = Cost.of({HBM: 2 * moved}), "gather"
    else:
        written = number.bytes(hot.columns * width) if number is not None else 0
        instead, cause = Cost.of({HBM: 3 * moved + written, vector("fp32"): hot.rows * width}), "scatter_add"
    return Avoidable(kind=KIND, instead=instead, cause=cause, facts={"rows": hot.rows, "columns": hot.columns}, unneeded=CLASS)


def _sums_columns(graph: Graph, product: Node, place: int, hot: OneHot) -> bool:
    """Whether a product sums over the columns of its one-hot operand: of a square one, memory tells, where columns are neighbours."""
    operand = graph.arrays[product.takes[place]]
    if hot.rows == hot.columns and operand.strides is not None:
        return operand.strides[-1 if place == 0 else -2] == 1
    return product.sizes.depth == hot.columns
