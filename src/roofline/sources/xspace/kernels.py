"""Sums over the kernels on a GPU's streams, by program, instruction, graph node, and size of a copy."""

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...resource import HBM, PCIE, Resource
from ...workload import Block
from .scan import Buckets, Line, Plane, Totals, TotalsOf
from .tables import Steps

LAUNCH, SCOPE = "correlation_id", "scope_range_id"
NVLINK = Resource("nvlink")
_BY = ("program_id", "hlo_module", "hlo_op", "unique_hlo_op_id", "cuda_graph_node_id", "kernel_details", "memcpy_details", "Memset_details")
_DERIVED = range(0xDEADBEEF - 2**32, 0xDEADBEEF - 2**32 + 390)  # ids of lines that tools add when they convert a profile
_NOT_STREAMS = re.compile(r"Steps|Launch Stats|XLA (Modules|Ops)\b.*|Framework .*|Source code\b.*|CUPTI overhead|_counters_|.* - from #\d+")
# Events on streams that are not work of the device.
_NOT_WORK = re.compile(r"MemoryAlloc|MemoryFree|MemoryResidency|UnifiedMemory|Overhead|BUFFER_FLUSH|CudaGraph\b.*")
_SIZE = re.compile(r"\b(?:size|num_bytes):(\d+)")
_GRID = re.compile(r"\bgrid:(\d+),(\d+),(\d+)")
_BLOCK = re.compile(r"\bregs:(\d+) static_shared:(\d+) dynamic_shared:(\d+) .*\bblock:(\d+),(\d+),(\d+)")
_KINDS = re.compile(r"kind_src:(\S+) kind_dst:(\S+)")
_NODE_BITS, _NODE_MASK = 32, 0xFFFF_FFFF  # a node's id is its graph's id and its index there


class Key(Struct, frozen=True, kw_only=True, eq=False):
    """The events of one kernel for one instruction or graph node, on one stream. It is equal only to itself.

    ``operation`` is the instruction that the events name, or their graph; ``scope`` the number of that instruction, or of the loop around
    the graph. ``launches`` and ``scopes`` count the launches, and the scopes of the host they were launched in. ``autotuned`` is whether a
    compiler launched it, to choose among kernels.
    """

    stream: int
    kernel: str
    program: int | None
    module: str
    operation: str
    scope: int | None
    node: int | None
    details: str
    copied: str
    cleared: str
    count: int
    time_ps: int
    self_ps: int
    first_ps: int
    launches: int
    scopes: int
    autotuned: bool = False

    @property
    def graph(self) -> int | None:
        """The id of its CUDA graph, from the node's id: events inside of conditionals do not have it as a stat."""
        return None if self.node is None else self.node >> _NODE_BITS

    @property
    def index(self) -> int:
        """The number of its node in its graph."""
        return (self.node or 0) & _NODE_MASK

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The blocks of its launch."""
        found = _GRID.search(self.details)
        return None if found is None else tuple(map(int, found.groups()))

    @property
    def block(self) -> Block | None:
        """What each of these blocks takes of a core."""
        if (found := _BLOCK.search(self.details)) is None:
            return None
        registers, static, dynamic, x, y, z = map(int, found.groups())
        return Block(x * y * z, registers, static + dynamic)

    @property
    def is_copy(self) -> bool:
        return bool(self.copied) or self.kernel.lower().startswith("memcpy")

    @property
    def towards(self) -> str:
        """The direction of a copy between host and device: ``in`` to the device, ``out`` of it, or empty if unknown."""
        name = self.kernel.upper()
        return "in" if "H2D" in name else "out" if "D2H" in name else ""

    @property
    def is_memset(self) -> bool:
        return bool(self.cleared) or self.kernel.lower().startswith("memset")

    @property
    def moved(self) -> dict[str, int]:
        """The bytes of one copy or memset, by memory or link; empty if the size is unknown."""
        size = _SIZE.search(self.copied or self.cleared)
        if size is None:
            return {}
        amount = int(size[1])
        if not self.copied:
            return {HBM.name: amount}
        if "P2P" in self.kernel:
            return {NVLINK.name: amount}
        kinds = _KINDS.search(self.copied)
        inside = kinds is not None and set(kinds.groups()) <= {"device", "unknown"} and "2H" not in self.kernel and "H2" not in self.kernel
        return {HBM.name: 2 * amount} if inside else {PCIE.name: amount}


def streams(plane: Plane) -> list[Line]:
    """The lines of a GPU on which work ran."""
    return [line for line in plane.lines if line.length and line.id not in _DERIVED and not _NOT_STREAMS.fullmatch(line.name)]


def requests(plane: Plane, steps: Steps | None, lines: Sequence[Line] | None = None, buckets: tuple[Buckets, ...] = ()) -> list[TotalsOf]:
    """The scanner requests for each stream of a GPU, or for some of them; ``buckets`` adds the self time of each key by bucket."""
    lines = streams(plane) if lines is None else lines
    idle = {id for id, name in plane.event_names.items() if _NOT_WORK.fullmatch(name)}
    # In a damaged plane some names are lost: events without a name count as work.
    work = [id for id in plane.event_names if id not in idle] if idle and plane.whole else None
    return [
        TotalsOf(line=line, by=_BY, distinct=(LAUNCH, SCOPE), only=work, steps=steps, intervals=True, buckets=buckets) for line in lines
    ]


def keys_of(plane: Plane, stream: int, totals: Totals) -> list[Key]:
    """The keys of one stream of a GPU, one per row of its table."""
    names = plane.event_names
    sums = zip(totals.count, totals.time_ps, totals.self_ps, totals.first_ps, totals.distinct[LAUNCH], totals.distinct[SCOPE], strict=True)
    stats = zip(*(totals.by[stat] for stat in _BY), strict=True)
    return [
        Key(
            stream=stream,
            kernel=names.get(metadata_id) or f"event {metadata_id}",
            program=_number(program),
            module=_text(module),
            operation=_text(operation),
            scope=_number(scope),
            node=_number(node),
            details=_text(details),
            copied=_text(copied),
            cleared=_text(cleared),
            count=count,
            time_ps=time_ps,
            self_ps=self_ps,
            first_ps=first_ps,
            launches=launches,
            scopes=scopes,
        )
        for metadata_id, (program, module, operation, scope, node, details, copied, cleared), (
            count,
            time_ps,
            self_ps,
            first_ps,
            launches,
            scopes,
        ) in zip(totals.metadata_id, stats, sums, strict=True)
    ]


def split_autotuned(key: Key, count: int, time_ps: int, self_ps: int) -> tuple[Key | None, Key]:
    """Splits a key: without the events that a compiler launched (``None`` if there are no others), and only those events."""
    if count == key.count:
        return None, replace(key, autotuned=True)
    left = replace(
        key,
        count=key.count - count,
        time_ps=key.time_ps - time_ps,
        self_ps=key.self_ps - self_ps,
        launches=max(1, key.launches - count),
        scopes=min(key.scopes, key.count - count),
    )
    return left, replace(key, count=count, time_ps=time_ps, self_ps=self_ps, launches=count, scopes=min(key.scopes, count), autotuned=True)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: object) -> str:
    return "" if value is None else str(value)


def count_executions(pieces: Sequence[tuple[Key, int]]) -> int:
    """The executions of one operation, from the executions of each of its keys.

    Keys without an operation add up. In graphs, the nodes of one graph belong to the same executions (so their maximum counts), and
    different graphs add up. Outside of graphs, different kernels, or copies of different sizes, belong to the same executions, and
    different streams add up.
    """
    if len(pieces) == 1:
        return pieces[0][1]
    alone = 0
    nodes: dict[int, dict[int, int]] = {}
    kernels: dict[str, dict[int, int]] = {}
    for key, executions in pieces:
        if not key.operation:
            alone += executions
        elif key.graph is not None:
            graph = nodes.setdefault(key.graph, {})
            graph[key.index] = graph.get(key.index, 0) + executions
        else:
            lines = kernels.setdefault(key.kernel, {})
            lines[key.stream] = max(lines.get(key.stream, 0), executions)
    in_graphs = sum(max(graph.values()) for graph in nodes.values())
    return alone + in_graphs + max((sum(lines.values()) for lines in kernels.values()), default=0)
