"""Findings about kernels by their counters: why a kernel is slow, where neither its bytes nor its arithmetic are the reason.

For each launch, every cause that its counters show has a time that the kernel takes without it, at least that of a good kernel for the same
work; the cause with the least time is named. The estimates were compared on an H200 with kernels that have one fault each and the same
kernels without it: see `docs/findings.md`.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ...cost import Cost
from ...placement import MinimumTimes
from ...resource import HBM, Resource
from ...workload import Fact, Launch, Op, Usage
from ..op_times import OpTimes
from .clock import Clock
from .evidence import Evidence, Saving
from .reachable import OTHERWISE

SECTOR = 32  # bytes
WARP = 32  # threads
MOST_REQUESTED = 512  # bytes of a warp's request: 16 per thread
# The thresholds below are choices: on an H200 they find the faults of twelve kernels with one fault each (tests/data/ncu_faults.cu), with
# savings within 25% of those measured.
IDLE_SMS = 0.75  # of the time: SMs that have work for less of it are reported
MORE_MOVED = 1.5  # times the sectors that are used, or the passes that are needed
LOCAL = 0.2  # of the traffic: local memory with more of it is reported
ATOMICS, UNUSED = 0.2, 0.3  # share of atomics, and the busiest unit of a kernel that waits for them
FEW_LANES = 20  # of the threads of a warp
ISSUING = 0.6  # busiest unit of the SMs of a kernel that waits for its instructions
FEW_WARPS = 0.4  # share of the warps of an SM
WAITING = 0.5  # busiest unit of a kernel that waits for latencies
NARROW = 64  # bytes of a warp's request: two per thread
L2, L1 = Resource("l2"), Resource("l1")


class Loss(Struct, frozen=True):
    """A cause of lost time of one launch: the kind of finding, the time without it, and the facts that its words are written with."""

    kind: str
    after_s: float
    facts: Mapping[str, Fact | None]
    cause: str = ""


class Good(Struct, frozen=True):
    """The time of a good kernel for some work: the minimum over what good kernels reach, and at least a launch."""

    minimum_s: MinimumTimes
    launch_s: float

    def seconds(self, cost: Cost) -> float:
        return max(self.minimum_s(cost) / OTHERWISE, self.launch_s)


def counted_evidence(op_times: OpTimes, ids: Iterable[int], good: Good, clock: Clock) -> list[Evidence]:
    """The evidence of each cause, over all ops whose counters show it."""
    found: dict[str, dict[int, tuple[float, Loss]]] = {}
    for id in ids:
        for kind, (share, worst) in losses(op_times.ops[id], good).items():
            found.setdefault(kind, {})[id] = share * op_times.spent_s[id], worst
    evidence = []
    for kind, saved in found.items():
        ops = sorted(saved, key=lambda id: -saved[id][0])
        saving, worst = Saving.of(ops, [saved[id][0] for id in ops], clock), saved[ops[0]][1]
        if saving.steps_s >= clock.notable_s:
            evidence.append(Evidence(kind=kind, cause=worst.cause, facts=worst.facts, ops=ops, saved=saving))
    return evidence


def losses(op: Op, good: Good) -> dict[str, tuple[float, Loss]]:
    """By the kind of the finding, the share of an op's time that each cause takes, and the loss of the launch that loses most."""
    timed = [launch for launch in op.counted if launch.time_s]
    whole_s = sum(launch.time_s or 0.0 for launch in timed)
    lost: dict[str, list[tuple[float, Loss]]] = {}
    for launch in timed:
        worst = min(_losses(launch, good), key=lambda loss: loss.after_s, default=None)
        if worst is not None and worst.after_s < (launch.time_s or 0.0):
            lost.setdefault(worst.kind, []).append(((launch.time_s or 0.0) - worst.after_s, worst))
    most = {kind: max(each, key=lambda one: one[0])[1] for kind, each in lost.items()}
    return {kind: (sum(seconds for seconds, _ in each) / whole_s, most[kind]) for kind, each in lost.items()}


def _losses(launch: Launch, good: Good) -> list[Loss]:
    """The causes that the counters of a launch show."""
    found = [loss for find in CAUSES if (loss := find(launch, launch.time_s or 0.0, launch.usage, good)) is not None]
    reread = _cache_traffic(launch, launch.time_s or 0.0, launch.usage, good)
    return found or ([reread] if reread is not None else [])


def _idle_sms(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    if usage.sms_busy is None or usage.sms_busy >= IDLE_SMS:
        return None
    after_s = max(spent_s * usage.sms_busy, good.seconds(launch.cost))
    facts = {"busy": usage.sms_busy, "blocks": usage.blocks or None, "sms": usage.sms}
    is_few = bool(usage.blocks and usage.sms and usage.blocks < usage.sms)
    return Loss("few-blocks" if is_few else "uneven-blocks", after_s, facts)


def _scattered(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    """Threads of a warp access addresses far apart. Each sector counts, of which only a part is used."""
    if not usage.sectors or not usage.sectors_used or usage.sectors < MORE_MOVED * usage.sectors_used:
        return None
    share = usage.sectors_used / usage.sectors
    used = usage.sectors_used * SECTOR
    dense = _with_bytes(launch.cost, lambda level, moved: min(moved, used) if level == HBM else moved * share)
    after_s = max(spent_s * share, good.seconds(dense))
    return Loss("scattered-access", after_s, {"times": 1 / share})


def _bank_conflicts(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    """Shared memory must be the busiest unit: otherwise conflicts cost nothing."""
    if not usage.passes or not usage.passes_needed or usage.passes < MORE_MOVED * usage.passes_needed:
        return None
    share = usage.passes_needed / usage.passes
    busy = usage.busy.get("shared memory")
    others = max((usage.busy[unit] for unit in ("compute", "dram") if unit in usage.busy), default=0.0)
    if not busy or busy < max(usage.busy.values()):
        return None
    after_s = max(spent_s * max(busy * share, others) / busy, good.seconds(_with_bytes(launch.cost, _scaled(L1, share))))
    return Loss("bank-conflicts", after_s, {"times": 1 / share})


def _local_memory(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    if usage.local is None or usage.local < LOCAL:
        return None
    rest = _with_bytes(launch.cost, lambda _, moved: moved * (1 - (usage.local or 0.0)))
    after_s = max(spent_s * (1 - usage.local), good.seconds(rest))
    return Loss("spilled-registers" if usage.spills else "local-arrays", after_s, {"share": usage.local})


def _atomics(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    """Atomics on few addresses wait for each other, while no unit is busy."""
    busiest = max(usage.busy.values(), default=1.0)
    if usage.atomics is None or usage.atomics < ATOMICS or busiest > UNUSED:
        return None
    return Loss("contended-atomics", good.seconds(launch.cost), {"share": usage.atomics, "busiest": busiest})


def _divergence(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    if usage.lanes is None or usage.lanes > FEW_LANES or usage.busy.get("compute", 0.0) < ISSUING:
        return None
    after_s = max(spent_s * usage.lanes / WARP, good.seconds(launch.cost))
    return Loss("divergence", after_s, {"lanes": usage.lanes, "threads": WARP})


def _few_warps(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    """Too few warps to wait for memory in turn. Kernels on the matrix unit have few on purpose: each works on a large tile."""
    if any(resource.unit == "matrix" for resource in launch.cost):
        return None
    busiest = max(usage.busy.values(), default=1.0)
    if usage.occupancy is None or usage.occupancy > FEW_WARPS or not usage.occupancy_limit or busiest > WAITING:
        return None
    after_s = max(spent_s * max(usage.occupancy, busiest / OTHERWISE), good.seconds(launch.cost))
    cause = usage.occupancy_limit if usage.occupancy_limit in ("shared memory", "registers") else ""
    return Loss("low-occupancy", after_s, {"share": usage.occupancy, "busiest": busiest}, cause)


def _narrow(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    busiest = max(usage.busy.values(), default=1.0)
    if not usage.bytes_a_request or usage.bytes_a_request > NARROW or busiest > WAITING:
        return None
    after_s = max(spent_s * usage.bytes_a_request / MOST_REQUESTED, good.seconds(launch.cost))
    return Loss("narrow-access", after_s, {"bytes": usage.bytes_a_request, "most": MOST_REQUESTED})


def _cache_traffic(launch: Launch, spent_s: float, usage: Usage, good: Good) -> Loss | None:
    """The traffic of L2 is what takes longest: values are read from it more often than from main memory."""
    moved, memory = float(launch.cost.known(L2)), float(launch.cost.known(HBM))
    busiest = max(usage.busy.values(), default=0.0)
    others = max((usage.busy[unit] for unit in ("compute", "dram") if unit in usage.busy), default=busiest)
    rest = _with_bytes(launch.cost, lambda level, each: 0.0 if level in (L1, L2) else each)
    if not busiest or not memory or good.seconds(launch.cost) < MORE_MOVED * good.seconds(rest):
        return None
    after_s = max(spent_s * others / busiest, good.seconds(rest))
    return Loss("cache-traffic", after_s, {"moved": moved, "times": moved / memory})


CAUSES: tuple[Callable[[Launch, float, Usage, Good], Loss | None], ...] = (
    _idle_sms,
    _scattered,
    _bank_conflicts,
    _local_memory,
    _atomics,
    _divergence,
    _few_warps,
    _narrow,
)


def _scaled(level: Resource, share: float) -> Callable[[Resource, float], float]:
    return lambda each, moved: moved * share if each == level else moved


def _with_bytes(cost: Cost, moved: Callable[[Resource, float], float]) -> Cost:
    """The same work with other bytes over each memory level."""
    changed = [(resource, moved(resource, float(amount)) if resource.is_memory else amount) for resource, amount in cost.amounts]
    return replace(cost, amounts=tuple(changed))
