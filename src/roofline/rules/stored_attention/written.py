"""Attention in several kernels, which write its scores and read them again: a fused kernel keeps them on chip.

Every kernel counts that reads or writes an array with an element for each score, in the forward and in the backward pass: masks and
gradients too, and the arrays in which a loop over layers keeps the scores for the loop of their gradients.
"""

from collections.abc import Iterator

from ...cost import less_traffic
from ...graph import NO_KERNEL, Graph, Node, Operator
from ...graph.facts.scores import Scores, attention_scores
from ...workload import Avoidable
from ..masked_attention.scores import without_masked

KIND = "stored-attention"


def stored_scores(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that write or read scores, and their cost if the scores, without the masked ones, stayed on chip."""
    for scores in graph.fact(attention_scores):
        moved = _moved_bytes(graph, scores)
        for kernel, stored in moved.items() if any(moved.values()) else ():
            yield kernel, Avoidable(kind=KIND, instead=less_traffic(without_masked(graph.kernels[kernel].cost, scores), stored))


def _moved_bytes(graph: Graph, scores: Scores) -> dict[int, int]:
    """The bytes of scores that each kernel moves through the main memory, with 0 for those whose scores are in another memory."""
    moved: dict[int, int] = {}
    read = set[tuple[int, int]]()
    for array in sorted(scores.arrays):
        maker = graph.maker.get(array)
        maker_kernel = maker.kernel if maker is not None else NO_KERNEL
        users = graph.users.get(array, [])
        is_inside = bool(users) and all(user.kernel == maker_kernel for user in users) and not graph.is_handed_on(array)
        if maker is not None and maker_kernel in graph.kernels and not is_inside:
            moved[maker_kernel] = moved.get(maker_kernel, 0) + _bytes(graph, _written(maker, array, scores))
        stored = _stored(graph, array)
        for user in users:
            if user.kernel in graph.kernels and user.kernel != maker_kernel and (user.kernel, stored) not in read:
                read.add((user.kernel, stored))
                moved[user.kernel] = moved.get(user.kernel, 0) + _bytes(graph, _read(user, stored, scores))
    return moved


def _stored(graph: Graph, array: int) -> int:
    """The array in memory that one is a name of."""
    while (
        (node := graph.maker.get(array)) is not None and node.kernel == NO_KERNEL and node.operator in (Operator.VIEW, Operator.TRANSPOSE)
    ):
        array = node.takes[0]
    return array


def _written(maker: Node, array: int, scores: Scores) -> int:
    """What a node writes of an array: of a stack that it updates, the new part."""
    return maker.takes[1] if maker.operator == Operator.UPDATE and array in scores.stacks and len(maker.takes) > 1 else array


def _read(user: Node, array: int, scores: Scores) -> int | None:
    """What a node reads of an array: of a stack, a part of it or, if it updates it, nothing."""
    if array not in scores.stacks or user.operator not in (Operator.UPDATE, Operator.SLICE):
        return array
    return user.gives[0] if user.operator == Operator.SLICE and user.gives else None


def _bytes(graph: Graph, array: int | None) -> int:
    """The bytes of an array in the main memory."""
    return graph.arrays[array].bytes if array is not None and not graph.arrays[array].space else 0
