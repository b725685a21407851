"""Gradients of weights that a recurrent loop adds up: each iteration multiplies a few rows, and reads and writes the whole sum.

The state of the loop must be computed step by step, but the products need not be: with what they multiply stored for every iteration, one
product after the loop has the same FLOP, and the sum is written once.

Where the forward loop multiplies slices of its inputs by these weights (``xs[t] @ w``), one product before that loop is enough, as its
gradient is one product too. On an H200 an LSTM of 1024 units over 256 steps takes 21.5 ms, with ``xs @ w`` before the scan 15.4 ms
(predicted: 4.1 ms saved).
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ...cost import NOTHING, Cost
from ...graph import RENAMING, Graph, Node, Operator, Part, Region
from ...graph.facts.loops import Iteration
from ...graph.facts.pieces import pieces
from ...resource import HBM
from ...workload import Avoidable, Facts, Saves
from .few_rows import FEW_IN_LOOPS, LOOP
from .one_by_one import KIND

GROUP = "carried"
_LEAST_TRIPS = 8
_LAYOUT = (Operator.VIEW, Operator.TRANSPOSE, Operator.COPY)


class _Sum(Struct, frozen=True):
    """An array to which an iteration adds a product, or a part of one: ``starts`` are the first row and column of that."""

    product: Node
    added: int
    adder: int
    starts: tuple[int, ...]


def carried_sums(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop that add products of few rows to what it carries, and those that compute the products."""
    multiplied: dict[int, set[int]] | None = None
    for region in graph.regions:
        sums = list(_sums(graph, region)) if (region.trips or 0) >= _LEAST_TRIPS else []
        if sums and multiplied is None:
            multiplied = _multiplied(graph)
        by_product: dict[int, list[_Sum]] = {}
        for total in sums:
            by_product.setdefault(total.product.gives[0], []).append(total)
        for own in by_product.values():
            yield from _avoidable(graph, region, own, multiplied or {})


def _sums(graph: Graph, region: Region) -> Iterator[_Sum]:
    """The products of few rows that depend on the results of other iterations, and that an iteration adds to an array it carries."""
    iteration = Iteration(graph, region)
    for carried, handed_on in zip(region.carried, region.handed_on, strict=True):
        total = _sum(graph, carried, handed_on)
        if total is None or total.product.sizes.depth > min(FEW_IN_LOOPS, total.product.sizes.rows, total.product.sizes.columns):
            continue
        if not all(map(iteration.is_free, total.product.takes)):
            yield total


def _sum(graph: Graph, carried: int, handed_on: int) -> _Sum | None:
    """What an iteration adds to an array, if that is a product and nothing else uses the array."""
    add = graph.made_by(handed_on, Operator.ADD, through=_LAYOUT)
    sides = [graph.origin(side) for side in add.takes] if add is not None else []
    if add is None or len(sides) != 2 or sides.count(carried) != 1 or {user.kernel for user, _ in graph.uses(carried)} != {add.kernel}:
        return None
    added = sides[1 - sides.index(carried)]
    product = graph.made_by(added, Operator.DOT, through=RENAMING | {Operator.SLICE})
    if product is None or product.sizes.batch != 1 or product.sizes.groups or product.kernel not in graph.kernels:
        return None
    cut = graph.made_by(added, Operator.SLICE)  # one product may compute the gradients of several weights
    return _Sum(product, added, add.kernel, cut.params.starts if cut is not None and isinstance(cut.params, Part) else (0, 0))


def _avoidable(graph: Graph, region: Region, sums: Sequence[_Sum], multiplied: Mapping[int, set[int]]) -> Iterator[tuple[int, Avoidable]]:
    """What adding one product to carried arrays costs.

    If one of these belongs before the forward loop, the product that is left adds to its sum by itself.
    """
    product = sums[0].product
    left = [total for total in sums if not _is_of_inputs(graph, region, total, multiplied)]
    group = GROUP if len(left) == len(sums) else LOOP
    summed = sum(graph.arrays[total.added].bytes for total in sums if total not in left) or graph.arrays[product.gives[0]].bytes
    facts = Facts(gradients=summed, rows=product.sizes.depth)
    in_loop = sum(2 * graph.arrays[total.added].bytes for total in left) if group == LOOP else 0
    after = _after_the_loop(graph, product, region.trips or 1, in_loop)
    for kernel in dict.fromkeys((product.kernel, *(total.adder for total in sums))):
        instead = after if kernel == product.kernel else NOTHING
        yield kernel, Avoidable(kind=KIND, instead=instead, cause="added", facts=facts, group=group, saves=Saves.SHARED_LOOP)


def _is_of_inputs(graph: Graph, region: Region, total: _Sum, multiplied: Mapping[int, set[int]]) -> bool:
    """Whether a factor of the sum is a slice of an array of which another loop multiplies each slice by weights, whatever its state."""
    for side, start in zip(total.product.takes, total.starts, strict=False):
        cut = graph.made_by(_piece(graph, side, start * total.product.sizes.depth), Operator.SLICE)
        if cut is not None and multiplied.get(graph.origin(cut.takes[0]), set()) - {id(region)}:
            return True
    return False


def _piece(graph: Graph, side: int, elements: int) -> int:
    """Of the arrays that a factor is concatenated from, the one that begins after so many elements."""
    *parts, last = pieces(graph, side)
    for piece in parts:
        if elements < graph.arrays[piece].elements:
            return piece
        elements -= graph.arrays[piece].elements
    return last


def _multiplied(graph: Graph) -> dict[int, set[int]]:
    """The arrays of which loops multiply slices by weights, without the results of other iterations, each with these loops."""
    loops: dict[int, set[int]] = {}
    iterations = {id(region): Iteration(graph, region) for region in graph.regions}
    for product in graph.of(Operator.DOT):
        region = graph.region_of.get(product.gives[0])
        if region is None:
            continue
        iteration = iterations[id(region)]
        for weights, rows in (product.takes[:2], product.takes[1::-1]):
            cut = graph.made_by(rows, Operator.SLICE)
            if cut is not None and iteration.is_constant(weights) and iteration.is_free(rows):
                loops.setdefault(graph.origin(cut.takes[0]), set()).add(id(region))
    return loops


def _after_the_loop(graph: Graph, product: Node, trips: int, in_loop: int) -> Cost:
    """An iteration's share of one product after the loop: its rows are stored and read, and the result is written once.

    ``in_loop`` are the bytes of the sums that the loop reads and writes as before.
    """
    rows = sum(graph.arrays[array].bytes for array in product.takes)
    moved = 2 * rows + graph.arrays[product.gives[0]].bytes // trips + in_loop
    return Cost.of({resource: min(moved, amount) if resource == HBM else amount for resource, amount in graph.cost(product).amounts})
