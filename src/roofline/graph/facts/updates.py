"""Arrays of which a part is replaced: in place, where nothing needs the old values."""

from ..graph import Graph, Node
from ..operators import Operator

SMALL = 1 / 16  # of an array: the largest part whose change does not need a copy of the whole; a choice
UPDATES = (Operator.UPDATE, Operator.SCATTER, Operator.SCATTER_ADD)
_UNCHANGED = (Operator.VIEW, Operator.COPY)


def targets(node: Node) -> tuple[int, ...]:
    """The arrays of which a node replaces a part; none for one that does nothing of the kind."""
    if node.operator == Operator.UPDATE:
        return node.takes[:1]
    return node.takes[: max((len(node.takes) - 1) // 2, 1)] if node.operator in UPDATES else ()


def changed(graph: Graph, node: Node) -> int:
    """The elements that an update replaces."""
    values = node.takes[1:2] if node.operator == Operator.UPDATE else node.takes[-1:]
    return sum(graph.arrays[array].elements for array in values)


def is_updated(graph: Graph, array: int) -> bool:
    """Whether a part of an array, or of a copy of it, is replaced, also in a loop that begins with it."""
    return update_of(graph, array) is not None


def update_of(graph: Graph, array: int) -> Node | None:
    """The node that replaces a part of an array, or of a copy of it, also in a loop that begins with it."""
    carried: dict[int, list[int]] = {}
    for region in graph.regions:
        for initial, inside in zip(region.initial, region.carried, strict=True):
            carried.setdefault(initial, []).append(inside)
    waiting, seen = [array], {array}
    while waiting:
        here = waiting.pop()
        users = graph.users.get(here, ())
        update = next((user for user in users if here in targets(user)), None)
        if update is not None:
            return update
        names = [user.gives[0] for user in users if user.operator in _UNCHANGED and user.gives]
        new = {*names, *carried.get(here, ())} - seen
        seen |= new
        waiting += new
    return None


def takes_place(graph: Graph, new: int, old: int) -> bool:
    """Whether an array takes the place of one that the program, or an iteration of a loop, was given.

    What nothing takes is needed after the program.
    """
    region = graph.region_of.get(old)
    if old in graph.maker:
        return False
    if region is None:
        users = [user for user, _ in graph.uses(new)]
        return not users or any(user.operator == Operator.RESULT for user in users)
    return any(carried == old and graph.origin(after) == new for carried, after in zip(region.carried, region.handed_on, strict=True))
