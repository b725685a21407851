"""Why devices exchange arrays in a program that a compiler divided between them: what is exchanged, how it is divided, and what needs it.

A collective gathers an array that is divided but needed whole, adds up what each device has a part of, or divides an array in another way.
What it moves is followed back to an argument or to the operator that computes it, and on to the operators that use it.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from math import prod

from msgspec import Struct

from ..graph import Graph, Node, Phase
from ..operators import RENAMING, SCALING, DeviceAxes, Exchange, Operator

MOVING = RENAMING | {Operator.SLICE, Operator.PAD, Operator.BROADCAST, Operator.CONCATENATE}
_LOOKUPS = (Operator.GATHER, Operator.SCATTER, Operator.SCATTER_ADD)
_GATHERS = ("all-gather", "collective-broadcast")
_PARTIAL = (Operator.DOT, Operator.GATHER, Operator.REDUCE, Operator.SCATTER_ADD)
_ELEMENTWISE = SCALING | {Operator.ADD, Operator.SUBTRACT, Operator.SELECT, Operator.ELEMENTWISE}
_MOST_STEPS = 400  # arrays on the way from or to a collective
_MOST_USES = 8


class Reason(StrEnum):
    """Why an array is exchanged."""

    ARGUMENT = "argument"  # an argument is divided, and its use needs all of it
    TABLE = "table"  # rows are looked up in an array that is divided
    ROWS = "rows"  # each device looks up those rows of a table that it has, and they are added up
    VALUE = "value"  # a computed array is divided, and its use needs all of it
    SUMMED = "summed"  # a product sums over a dimension that is divided
    GRADIENT = "gradient"  # each device has the gradients of a part of the batch
    REDUCED = "reduced"  # a sum, a maximum, … of elements that are divided
    WRITTEN = "written"  # the author exchanges it, as experts do
    RESHARDED = "resharded"  # an array is divided in one way where it is made, and in another where it is used
    WINDOWED = "windowed"  # a product is computed in parts, while its operand goes round
    NEIGHBOURS = "neighbours"  # a part of an array is needed by the next device
    UNKNOWN = "unknown"


class Why(Struct, frozen=True):
    """Why a kernel exchanges an array, the largest of ``every`` that it exchanges at once: the number of that, of the argument that it is
    or is a part of, if any, the operator that makes it and the one that it is for, and the first of its uses. With ``padded``, all devices
    add up arrays that are zero but for their own part.
    """

    reason: Reason
    exchange: Exchange
    array: int
    argument: int | None = None
    maker: Node | None = None
    use: Node | None = None
    uses: tuple[Node, ...] = ()
    padded: bool = False
    every: tuple[int, ...] = ()


def exchanges(graph: Graph) -> dict[int, Why]:
    """Why each kernel exchanges an array: of several the largest."""
    reasons: dict[int, Why] = {}
    for kernel, (node, group) in _exchanging(graph).items():
        reasons[kernel] = _why(graph, node, group)
    return reasons


def _exchanging(graph: Graph) -> dict[int, tuple[Node, list[Node]]]:
    """The collective of each kernel that has one and pays for it, and the same one in all kernels that take part in it."""
    channels: dict[tuple[str, int], list[Node]] = {}
    nodes = [node for node in graph.of(Operator.COLLECTIVE) if isinstance(node.params, Exchange) and node.takes and node.gives]
    for node in nodes:
        if (key := _channel(node)) is not None:
            channels.setdefault(key, []).append(node)
    largest: dict[int, Node] = {}
    for node in nodes:
        if _crosses_links(graph, node) and (node.kernel not in largest or _bytes(graph, node) > _bytes(graph, largest[node.kernel])):
            largest[node.kernel] = node
    return {kernel: (node, channels[key] if (key := _channel(node)) is not None else [node]) for kernel, node in largest.items()}


def _crosses_links(graph: Graph, node: Node) -> bool:
    """Whether the kernel of a collective counts its bytes: of one that goes on under several kernels, that is the one that starts it."""
    return any(resource.is_link for resource, _ in graph.cost(node).amounts)


def _channel(node: Node) -> tuple[str, int] | None:
    assert isinstance(node.params, Exchange)
    return None if node.params.channel is None else (node.params.kind, node.params.channel)


def _bytes(graph: Graph, node: Node) -> int:
    return sum(graph.arrays[array].bytes for array in node.gives)


def _why(graph: Graph, node: Node, group: list[Node]) -> Why:
    exchange = node.params
    assert isinstance(exchange, Exchange)
    sent, given = max(zip(node.takes, node.gives, strict=False), key=lambda pair: graph.arrays[pair[1]].bytes)
    source, grown = _source(graph, sent)
    padded = exchange.function == Operator.ADD and grown >= prod(size for _, size in exchange.along or ()) > 1
    maker = graph.maker.get(source)
    uses = list(_uses(graph, [array for part in group for array in part.gives]))
    use = next((user for user, _ in uses if user.operator in (Operator.DOT, *_LOOKUPS)), uses[0][0] if uses else None)
    argument = source if graph.is_argument(source) else None
    if exchange.kind in _GATHERS or padded:
        reason = _gathered(uses, argument)
    elif exchange.function is None:
        reason = _moved(graph, node, uses)
    else:
        reason, maker = _reduced(graph, maker, node.phase)
        if maker is not None and reason == Reason.ROWS:
            argument = argument_of(graph, maker.takes[0])
    return Why(reason, exchange, given, argument, maker, use, tuple([user for user, _ in uses]), padded, node.gives[: len(node.takes)])


def _source(graph: Graph, array: int) -> tuple[int, float]:
    """The array that moves of elements lead back to, out of loops, and how many times its elements padding makes of it."""
    grown = 1.0
    for _ in range(_MOST_STEPS):
        maker = graph.maker.get(array)
        if maker is not None and maker.operator in MOVING and maker.takes:
            grown *= _growth(graph, maker, maker.takes[0]) if maker.operator == Operator.PAD else 1.0
            array = maker.takes[0]
        elif maker is not None and maker.operator == Operator.UPDATE and graph.value(maker.takes[0]) == 0:
            grown *= _growth(graph, maker, maker.takes[1])
            array = maker.takes[1]
        elif maker is None and (region := graph.region_of.get(array)) is not None and array in region.carried:
            array = region.initial[region.carried.index(array)]
        else:
            break
    return array, grown


def _growth(graph: Graph, node: Node, operand: int) -> float:
    return graph.arrays[node.gives[0]].elements / max(graph.arrays[operand].elements, 1)


def argument_of(graph: Graph, array: int) -> int | None:
    """The argument that an array is, is a part of, or is gathered from."""
    origin, _ = _origin(graph, array)
    return origin if graph.is_argument(origin) else None


def _origin(graph: Graph, array: int) -> tuple[int, set[tuple[int, int]]]:
    """The array that an array is, is a part of, or is gathered from, and the axes of devices that it is gathered over."""
    gathered = set[tuple[int, int]]()
    for _ in range(_MOST_STEPS):
        array, _ = _source(graph, array)
        maker = graph.maker.get(array)
        if maker is None or maker.operator != Operator.COLLECTIVE:
            break
        if isinstance(maker.params, Exchange):
            gathered.update(maker.params.along or ())
        array = maker.takes[0]
    return array, gathered


def _uses(graph: Graph, arrays: Iterable[int]) -> Iterator[tuple[Node, int]]:
    """The operators that use some arrays, under whichever name, also in a later iteration of a loop."""
    waiting, seen, count = list(arrays), set[int](), 0
    entered = {array: (region, place) for region in graph.regions for place, array in enumerate(region.initial)}
    while waiting and len(seen) < _MOST_STEPS and count < _MOST_USES:
        array = waiting.pop(0)
        if array in seen:
            continue
        seen.add(array)
        if array in entered:
            region, place = entered[array]
            waiting.append(region.carried[place])
        region_here = graph.region_of.get(array)
        if region_here is not None and array in region_here.handed_on:
            place = region_here.handed_on.index(array)
            waiting += [region_here.carried[place], region_here.final[place]]
        for user in graph.users.get(array, ()):
            if user.operator == Operator.COLLECTIVE or user.operator == Operator.LOOP:
                continue
            if (user.operator in MOVING or user.operator in (Operator.UPDATE, Operator.OTHER)) and user.gives:
                waiting += user.gives
            else:
                count += 1
                yield user, array


def _gathered(uses: list[tuple[Node, int]], argument: int | None) -> Reason:
    """Why an array is gathered."""
    if any(use.operator in _LOOKUPS and use.takes[0] == array for use, array in uses):
        return Reason.TABLE
    return Reason.VALUE if argument is None else Reason.ARGUMENT


def _reduced(graph: Graph, maker: Node | None, phase: Phase) -> tuple[Reason, Node | None]:
    """Why devices add up an array that an operator makes, and the operator of whose result each has a part."""
    for _ in range(_MOST_STEPS):
        if maker is None:
            break
        if maker.operator == Operator.DOT:
            weights = [array for array in maker.takes[:2] if argument_of(graph, array) is not None]
            return (Reason.SUMMED if weights else Reason.GRADIENT), maker
        if maker.operator in (Operator.CONVOLUTION, Operator.CONVOLUTION_GRADIENT, Operator.SCATTER_ADD):
            return (Reason.GRADIENT if phase == Phase.BACKWARD else Reason.SUMMED), maker
        if maker.operator == Operator.GATHER:
            return Reason.ROWS, maker
        if maker.operator == Operator.REDUCE:
            is_gradient = phase == Phase.BACKWARD and graph.arrays[maker.gives[0]].elements > 1
            return (Reason.GRADIENT if is_gradient else Reason.REDUCED), maker
        if maker.operator not in _ELEMENTWISE or not maker.takes:
            return Reason.UNKNOWN, maker
        largest = [
            graph.maker.get(_source(graph, array)[0]) for array in sorted(maker.takes, key=lambda array: -graph.arrays[array].elements)
        ]
        maker = next((source for source in largest if source is not None and source.operator in _PARTIAL), largest[0])
    return Reason.UNKNOWN, maker


def _moved(graph: Graph, node: Node, uses: list[tuple[Node, int]]) -> Reason:
    """Why an array goes to other devices as it is."""
    assert isinstance(node.params, Exchange)
    author = graph.operations.get(node.operation)
    moved = Reason.WRITTEN if author is not None and author.operator == Operator.COLLECTIVE else Reason.RESHARDED
    if not node.params.kind.startswith("collective-permute"):
        return moved
    whole, _ = _source(graph, node.takes[0])
    here = [use for use, _ in _uses(graph, [whole])]
    goes_round = any(use.operator == Operator.DOT for use in here) and any(use.operator == Operator.DOT for use, _ in uses)
    if goes_round or any(_adds_product(graph, use) for use, _ in uses):
        return Reason.WINDOWED
    return Reason.NEIGHBOURS if graph.arrays[node.gives[0]].elements < graph.arrays[whole].elements else moved


def _adds_product(graph: Graph, node: Node) -> bool:
    """Whether an operator adds a product to what came from another device."""
    return node.operator == Operator.ADD and any(graph.made_by(array, Operator.DOT, through=MOVING) is not None for array in node.takes)


def product_axes(graph: Graph, products: Iterable[Node]) -> frozenset[tuple[int, int]]:
    """The axes of devices over which products with an argument are divided: those of the argument that no collective gathers before."""
    kept = set[tuple[int, int]]()
    for product in products:
        for array in product.takes[:2]:
            argument, gathered = _origin(graph, array)
            divided = {factor for axes in graph.divided.get(argument, ()) for factor in axes}
            kept |= divided - gathered
    return frozenset(kept)


def whole_axes(graph: Graph, argument: int) -> DeviceAxes:
    """The axes of devices along which other arguments are divided, but not this one."""
    own = {factor for axes in graph.divided.get(argument, ()) for factor in axes}
    every = dict.fromkeys(factor for axes in graph.divided.values() for dimension in axes for factor in dimension)
    return tuple(factor for factor in every if factor not in own)
