"""Attention in one kernel that reads a mask from memory: a causal one, of which the kernel also computes the half of the scores that it
removes, or one of keys, a row for all queries and heads of a sequence, which flash kernels do not take.

A kernel computes masks, and biases that depend on positions alone, from the positions: what builds them in memory is not needed either.
Where nothing is padded a mask of keys has no effect; where tokens are padded, attention over packed sequences needs none. A mask for one
query per sequence, as in decoding, says how much of a cache is filled.
"""

from collections.abc import Iterator

from ...cost import NOTHING, Cost, less_traffic
from ...graph import NO_KERNEL, SPREADING, Array, Graph, Node, Operator, Phase
from ...graph.facts.positions import positional_arrays
from ...graph.node_axes import ELEMENTWISE
from ...resource import HBM
from ...workload import Avoidable, Saves
from .scores import KIND

BUILT, BIAS, KEYS = "built", "bias", "keys"  # groups: masks that are built, the same for all heads or biases of each; masks of keys
_FIRST_MASK = 3  # the first operand of attention that may be a mask, after queries, keys and values
_BUILDING = ELEMENTWISE | SPREADING | {Operator.FILL, Operator.SLICE, Operator.PAD, Operator.CONCATENATE, Operator.UPDATE}


def causal_masks(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """Attention with a mask of positions, its cost without the scores that the mask removes, and the kernels that build the mask."""
    for attention, mask in _masked(graph):
        if len(graph.arrays[mask].shape) < 2 or mask not in graph.fact(positional_arrays):
            continue
        builders = _builders(graph, mask)
        group = ""
        if builders:
            group = BIAS if _differs_by_head(graph, mask) else BUILT
        for kernel in builders:
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, group=group)
        instead = _without(graph.cost(attention), graph.arrays[mask])
        yield attention.kernel, Avoidable(kind=KIND, instead=instead, unneeded="masked", group=group)


def key_masks(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """Attention whose mask is the same for all queries and heads, with its cost without reading the mask."""
    for attention, mask in _masked(graph):
        if _is_of_keys(graph.arrays[mask]):
            instead = less_traffic(graph.cost(attention), _bytes(graph.arrays[mask]))
            yield attention.kernel, Avoidable(kind=KIND, instead=instead, group=KEYS, saves=Saves.GOOD_KERNEL)


def _masked(graph: Graph) -> Iterator[tuple[Node, int]]:
    """Attention and its gradients, with the arrays that may be masks; a gradient may read another name of the mask."""
    for attention in graph.of(Operator.ATTENTION, Operator.ATTENTION_GRADIENT):
        for array in attention.takes[_FIRST_MASK:]:
            yield from ((node, array) for node in (attention, *graph.gradients(attention)) if node.kernel != NO_KERNEL)


def _builders(graph: Graph, mask: int) -> list[int]:
    """The kernels that only make a mask for attention, or what it is computed from, of as many queries and keys."""
    positions = graph.arrays[mask].shape[-2:]
    arrays, waiting, kernels = {mask}, [mask], dict[int, None]()
    while waiting:
        maker = graph.maker.get(waiting.pop())
        if maker is None or maker.operator not in _BUILDING or maker.phase == Phase.BACKWARD:
            continue
        if maker.kernel != NO_KERNEL:
            kernels[maker.kernel] = None
        before = {array for array in maker.takes if graph.arrays[array].shape[-2:] == positions} - arrays
        arrays |= before
        waiting += before
    results = {array for kernel in kernels for array in graph.written(kernel)}
    return [
        kernel for kernel in reversed(kernels) if results and all(_is_for_masks(graph, array, arrays) for array in graph.written(kernel))
    ]


def _is_for_masks(graph: Graph, array: int, masks: set[int]) -> bool:
    """Whether an array is one of masks, and used for these and by attention alone, as far as its uses are known."""
    if array not in masks or graph.is_handed_on(array):
        return False
    users = graph.users.get(array, ()) if graph.arrays[array].sure else ()
    return all(user.operator == Operator.ATTENTION or user.phase == Phase.BACKWARD or not masks.isdisjoint(user.gives) for user in users)


def _differs_by_head(graph: Graph, mask: int) -> bool:
    """Whether a mask, whose heads come before queries and keys, has another matrix for each head."""
    heads = len(graph.arrays[mask].shape) - 3
    axis = graph.source_axis(mask, heads, SPREADING) if heads >= 0 else None
    return axis is not None and graph.arrays[graph.origin(mask, SPREADING)].shape[axis] > 1


def _without(cost: Cost, mask: Array) -> Cost:
    """The cost of attention without the scores that a causal mask removes, half of those of as many keys as queries, and without it."""
    queries, keys = mask.shape[-2:]
    kept = 1 - min(queries, keys) / (2 * max(keys, 1))
    amounts = {resource: amount if resource == HBM else amount * kept for resource, amount in cost.amounts}
    return less_traffic(Cost.of(amounts), _bytes(mask))


def _bytes(mask: Array) -> int:
    """The bytes of a mask in memory."""
    return mask.dtype.bytes(mask.distinct) if mask.dtype is not None else 0


def _is_of_keys(mask: Array) -> bool:
    """Whether a mask repeats one row for several queries, and for all heads."""
    if mask.strides is None or len(mask.shape) != 4 or mask.shape[-2] == 1:
        return False
    return mask.strides[-2] == 0 and (mask.strides[1] == 0 or mask.shape[1] == 1)
