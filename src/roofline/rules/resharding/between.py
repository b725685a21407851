"""Arrays that are divided in one way where they are made and in another where they are used, so that devices exchange their parts."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import Graph
from ...graph.facts.exchanges import Reason, exchanges
from ...workload import Avoidable, Fact, source_line

KIND = "resharding"


def resharded(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that divide an array in another way."""
    if graph.devices < 2:
        return
    for kernel, why in graph.fact(exchanges).items():
        if why.reason == Reason.RESHARDED:
            lines = [source_line(node.location) if node is not None else "" for node in (why.maker, why.use)]
            facts: dict[str, Fact] = {
                "bytes": graph.arrays[why.array].bytes,
                "made": lines[0],
                "used": lines[1] if lines[1] != lines[0] else "",
            }
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, facts=facts)
