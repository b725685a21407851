"""Low-rank factors that are multiplied and added to whole weights in every call, for few rows: x (W + B A) instead of x W + (x B) A.

Writing the product of the factors, reading it with the weights and writing their sum takes longer than all that few rows need of them.
"""

from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator, Phase
from ...graph.facts.linear import is_scaled
from ...resource import HBM
from ...workload import Avoidable, Facts
from .narrow_last import KIND, WORTH

GROUP = "added"
_SAME = RENAMING | {Operator.CAST}


def added_factors(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of two factors, and the kernels that add them to weights which multiply few rows."""
    for first in graph.of(Operator.DOT):
        added = _added(graph, first.gives[0]) if first.kernel != NO_KERNEL and first.sizes.batch == 1 else None
        if added is None or added.kernel == NO_KERNEL:
            continue
        uses = list(graph.uses(added.gives[0], _SAME))
        products = [user for user, _ in uses if user.operator == Operator.DOT and user.phase != Phase.BACKWARD]
        if not products or len(products) < len(uses):
            continue
        sizes = first.sizes
        rows = sum(user.sizes.multiplications for user in products) / (sizes.rows * sizes.columns)
        needed = rows * (sizes.rows + sizes.columns) * sizes.depth
        if needed > WORTH * sizes.multiplications:
            continue
        facts = Facts(rows=sizes.rows, columns=sizes.columns, rank=sizes.depth)
        kernels = {first.kernel, added.kernel} - {user.kernel for user in products}
        factors = sum(graph.arrays[array].bytes for array in first.takes[:2])
        for kernel in kernels:
            besides = Cost.of({HBM: factors}) if kernel == first.kernel else NOTHING
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, facts=facts, group=GROUP, besides=besides)


def _added(graph: Graph, array: int) -> Node | None:
    """The only use of the product of two factors, scaled or not, if that adds it to as many other numbers."""
    uses = list(graph.uses(array, _SAME))
    while len(uses) == 1 and is_scaled(graph, *uses[0]):
        uses = list(graph.uses(uses[0][0].gives[0], _SAME))
    if len(uses) != 1:
        return None
    ((node, name),) = uses
    others = [other for other in node.takes if other != name]
    is_sum = node.operator == Operator.ADD and len(node.takes) == 2 and len(others) == 1
    return node if is_sum and graph.distinct(others[0]) == graph.arrays[name].elements else None
