"""Fusing: a chain of operations grouped into kernels, with the traffic, time and speed-up of each grouping.

A kernel reads each external input of its stages once and writes each result that is needed outside of it; intermediate tensors stay on
chip. The arithmetic stays the same, so fewer bytes mean a higher intensity.

A grouping is legal when

1. its groups are contiguous: each is a run of neighbouring stages, in order;
2. a stage that reduces along an axis and needs the whole row again (LayerNorm, softmax) shares a group only if its row fits on
   chip, whether it is the first stage of the group or a later one; a stage whose row does not fit is a kernel of its own.

>>> from roofline.fusing.op_chain import StageSpec, chain
>>> tail = chain((65536, 4096), "bf16", [StageSpec("norm", 10, reduces=True), StageSpec("gelu", 8), StageSpec("add", 1)])
>>> chip = Machine.of("v7x", {"matrix/bf16": "2307 TFLOP/s", "hbm": "7.2 TB/s"})
>>> best(tail, chip).groups, best(tail, chip).speedup
((('norm', 'gelu', 'add'),), 3.0)
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, pairwise

from msgspec import Struct

from ..cost import NOTHING, Amount, Cost
from ..errors import UsageError
from ..machine import Machine
from ..placement import IDEAL, Corrections, Placement, place
from ..resource import HBM, main_bound
from ..units import show
from .op_chain import Chain

Groups = tuple[tuple[str, ...], ...]

SCHEMA = "roofline.fusion/1"
ENUMERABLE = 12  # stages up to which every grouping is listed: 2**11 of them
ON_CHIP = ("vmem", "sbuf", "sram", "l1", "lds")  # memories that can hold a row of a kernel, in order of preference
PER_CORE = ("l1", "lds")  # memories with one piece per core, whose total size is in machine files


class Kernel(Struct, frozen=True, kw_only=True):
    """One group of stages as one kernel: the tensors read and written in main memory, its cost and placement."""

    stages: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    placement: Placement

    @property
    def cost(self) -> Cost:
        return self.placement.cost

    @property
    def bytes(self) -> Amount:
        return self.cost.known(HBM)

    @property
    def flops(self) -> Amount | None:
        return self.cost.flops

    @property
    def intensity(self) -> float | None:
        return self.placement.intensity()

    @property
    def bound(self) -> str | None:
        return self.placement.bound

    @property
    def floor_s(self) -> float:
        return self.placement.floor_s

    @property
    def time_s(self) -> float:
        """The minimum time, with the corrections."""
        return self.placement.expected_s

    @property
    def attainable(self) -> float | None:
        """The best FLOP/s in that time."""
        return float(self.flops) / self.time_s if self.flops and self.time_s else None


class Fusion(Struct, frozen=True, kw_only=True):
    """A chain under one grouping: its kernels one after the other.

    ``unfused_s`` and ``unfused_bytes`` are those of the same chain with one kernel per stage. ``illegal`` says why the grouping
    cannot be built, and is empty when it can.
    """

    kernels: tuple[Kernel, ...]
    unfused_s: float
    unfused_bytes: Amount
    illegal: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> Groups:
        return tuple(kernel.stages for kernel in self.kernels)

    @property
    def legal(self) -> bool:
        return not self.illegal

    @property
    def cost(self) -> Cost:
        total: Cost = sum((kernel.cost for kernel in self.kernels), NOTHING)
        return total

    @property
    def bytes(self) -> Amount:
        return self.cost.known(HBM)

    @property
    def flops(self) -> Amount | None:
        return self.cost.flops

    @property
    def intensity(self) -> float | None:
        return self.cost.intensity()

    @property
    def floor_s(self) -> float:
        """The sum of the kernels' minimum times: the kernels of a chain run one after another."""
        return sum(kernel.floor_s for kernel in self.kernels)

    @property
    def time_s(self) -> float:
        """The same, with the corrections."""
        return sum(kernel.time_s for kernel in self.kernels)

    @property
    def bound(self) -> str | None:
        """The bound that holds for most of the time."""
        return main_bound((kernel.bound, kernel.time_s) for kernel in self.kernels)

    @property
    def attainable(self) -> float | None:
        """The best FLOP/s over the whole chain."""
        return float(self.flops) / self.time_s if self.flops and self.time_s else None

    @property
    def speedup(self) -> float:
        """The time of the unfused chain over this one's."""
        return self.unfused_s / self.time_s if self.time_s else 1.0


class Grouping(Struct, frozen=True, kw_only=True):
    """One grouping of a chain as JSON."""

    kernels: int
    groups: Groups
    legal: bool
    best: bool
    bytes: float
    flops: float | None
    intensity: float | None
    bound: str | None
    time_s: float
    attainable: float | None
    speedup: float
    reasons: tuple[str, ...]


class ChainReport(Struct, frozen=True, kw_only=True):
    """Groupings of a chain as JSON."""

    schema: str = SCHEMA
    machine: str
    shape: tuple[int, ...]
    dtype: str
    groupings: tuple[Grouping, ...]
    notes: tuple[str, ...]


def chain_report(shape: Sequence[int], dtype: str, machine: Machine, found: Sequence[Fusion], winner: Fusion) -> ChainReport:
    """The groupings of a chain as JSON, with ``winner`` marked as the best."""
    return ChainReport(
        machine=machine.name,
        shape=tuple(shape),
        dtype=dtype,
        groupings=tuple(_grouping(one, winner) for one in found),
        notes=tuple(dict.fromkeys((*machine.notes, *(note for one in found for note in one.notes)))),
    )


def _grouping(one: Fusion, winner: Fusion) -> Grouping:
    return Grouping(
        kernels=len(one.kernels),
        groups=one.groups,
        legal=one.legal,
        best=one.groups == winner.groups,
        bytes=float(one.bytes),
        flops=None if one.flops is None else float(one.flops),
        intensity=one.intensity,
        bound=one.bound,
        time_s=one.time_s,
        attainable=one.attainable,
        speedup=one.speedup,
        reasons=one.illegal,
    )


def groupings(chain: Chain) -> Iterator[Groups]:
    """Every way to cut a chain into contiguous groups, from one kernel per stage to one kernel for all: 2^(n−1) of them."""
    names = [stage.name for stage in chain.stages]
    inner = range(1, len(names))
    for cuts in range(len(names) - 1, -1, -1):
        for chosen in combinations(inner, cuts):
            yield tuple(tuple(names[start:stop]) for start, stop in pairwise((0, *chosen, len(names))))


def fuse(
    chain: Chain,
    groups: Sequence[Sequence[str]] | Sequence[int],
    machine: Machine,
    *,
    on_chip_bytes: float | None = None,
    corrections: Corrections = IDEAL,
) -> Fusion:
    """The cost and minimum time of a chain under one grouping on a machine.

    Groups are stage names, or sizes: ``(2, 2)`` is two kernels of two stages. ``on_chip_bytes`` is the on-chip memory that a row of a
    kernel must fit in, by default that of one core of the machine. ``Corrections(launches=1)`` charges each kernel a launch.
    """
    spans = _spans(chain, groups)
    row_capacity, notes = _row_capacity(chain, machine, on_chip_bytes)
    kernels = tuple(_kernel(chain, span, machine, corrections) for span in spans)
    alone = [_kernel(chain, (index, index + 1), machine, corrections) for index in range(len(chain))]
    return Fusion(
        kernels=kernels,
        unfused_s=sum(kernel.time_s for kernel in alone),
        unfused_bytes=sum(kernel.bytes for kernel in alone),
        illegal=tuple(reason for span in spans for reason in _illegal(chain, span, row_capacity)),
        notes=notes,
    )


def every_fusion(
    chain: Chain, machine: Machine, *, on_chip_bytes: float | None = None, corrections: Corrections = IDEAL
) -> tuple[Fusion, ...]:
    """Every grouping of a short chain, legal or not, for a table."""
    if len(chain) > ENUMERABLE:
        raise UsageError(
            f"{len(chain)} stages have 2^{len(chain) - 1} groupings; list at most {ENUMERABLE} stages, or request only the best grouping"
        )
    return tuple(fuse(chain, groups, machine, on_chip_bytes=on_chip_bytes, corrections=corrections) for groups in groupings(chain))


def best(chain: Chain, machine: Machine, *, on_chip_bytes: float | None = None, corrections: Corrections = IDEAL) -> Fusion:
    """The legal grouping that takes the least time; of equals, the one with the fewest kernels.

    Dynamic programming over the positions of the cuts: the best grouping of the first j stages is the best of the first i plus
    one kernel for the rest. Times are compared as exact fractions, so equal means equal.
    """
    lowered = corrections.lower(machine)
    row_capacity, _ = _row_capacity(chain, machine, on_chip_bytes)
    plans: list[tuple[Fraction, int, tuple[int, ...]]] = [(Fraction(), 0, ())]
    for stop in range(1, len(chain) + 1):
        options = []
        for start in range(stop):
            if not _illegal(chain, (start, stop), row_capacity):
                seconds, kernels, sizes = plans[start]
                own = _seconds(_cost(chain, (start, stop)), lowered, corrections)
                options.append((seconds + own, kernels + 1, (*sizes, stop - start)))
        plans.append(min(options))
    return fuse(chain, plans[-1][2], machine, on_chip_bytes=on_chip_bytes, corrections=corrections)


def _spans(chain: Chain, groups: Sequence[Sequence[str]] | Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The groups as half-open ranges of stages; an error unless they cover the chain in order."""
    names = [stage.name for stage in chain.stages]
    sizes = [group if isinstance(group, int) else len(group) for group in groups]
    spelled = [name for group in groups if not isinstance(group, int) for name in group]
    if min(sizes, default=0) < 1 or sum(sizes) != len(names) or (spelled and spelled != names):
        given = " ".join("+".join(group) if not isinstance(group, int) else str(group) for group in groups) or "nothing"
        raise UsageError(f"the groups {given} do not match the stages {', '.join(names)}; give contiguous groups in order")
    return tuple(pairwise(accumulate(sizes, initial=0)))


def _row_capacity(chain: Chain, machine: Machine, given: float | None) -> tuple[float | None, tuple[str, ...]]:
    """The longest row, in bytes, that fits in the memory of one core, and a note when that is unknown."""
    if given is not None:
        if not given >= 0:
            raise UsageError(f"on-chip memory of {given:g} B is negative; give 0 or more")
        return given, ()
    if all(stage.row_bytes is None for stage in chain.stages):
        return None, ()
    for level in ON_CHIP:
        if size := machine.capacity(level):
            whole = level in PER_CORE and machine.cores == 1
            note = f"{level} of {machine.name} is {show(size, 'B')} in total, but a row must fit in one core: set on_chip_bytes"
            return size / machine.cores, (note,) if whole else ()
    return None, (f"on-chip memory of {machine.name} is unknown: assuming every reduced row fits (set it with on_chip_bytes)",)


def _illegal(chain: Chain, span: tuple[int, int], capacity: float | None) -> list[str]:
    """Why a run of stages cannot be one kernel: one line per reduction whose row does not fit."""
    start, stop = span
    if stop - start == 1 or capacity is None:
        return []
    return [
        f"{stage.name} reduces a row of {show(stage.row_bytes, 'B')}, but only {show(capacity, 'B')} fit on chip: it needs its own kernel"
        for stage in chain.stages[start:stop]
        if stage.row_bytes is not None and stage.row_bytes > capacity
    ]


def _boundary(chain: Chain, span: tuple[int, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tensors that a run of stages reads from main memory, and those it writes there."""
    inside, outside = chain.stages[span[0] : span[1]], (*chain.stages[: span[0]], *chain.stages[span[1] :])
    made = [name for stage in inside for name in stage.writes]
    used_inside = {name for stage in inside for name in stage.reads}
    used_outside = {name for stage in outside for name in stage.reads} | set(chain.keep)
    reads = dict.fromkeys(name for stage in inside for name in stage.reads if name not in made)
    return tuple(reads), tuple(name for name in made if name in used_outside or name not in used_inside)


def _cost(chain: Chain, span: tuple[int, int]) -> Cost:
    """Arithmetic and compulsory traffic of a run of stages as one kernel."""
    size = {tensor.name: tensor.bytes for tensor in chain.tensors}
    reads, writes = _boundary(chain, span)
    work: Cost = sum((stage.work for stage in chain.stages[span[0] : span[1]]), NOTHING)
    return work + Cost.of({HBM: sum(size[name] for name in (*reads, *writes))})


def _kernel(chain: Chain, span: tuple[int, int], machine: Machine, corrections: Corrections) -> Kernel:
    reads, writes = _boundary(chain, span)
    names = tuple(stage.name for stage in chain.stages[span[0] : span[1]])
    return Kernel(stages=names, reads=reads, writes=writes, placement=place(_cost(chain, span), machine, corrections=corrections))


def _seconds(cost: Cost, machine: Machine, corrections: Corrections) -> Fraction:
    """The expected time of `placement` in exact numbers, on a machine whose rates are already lowered."""
    times: dict[str, Fraction] = {}
    for resource, amount in cost.amounts:
        if ceiling := machine.resolve(resource):
            unit = ceiling.resource.unit
            times[unit] = times.get(unit, Fraction()) + Fraction(amount) / Fraction(ceiling.rate)
    floor, serial = max(times.values(), default=Fraction()), sum(times.values(), Fraction())
    overlapped = floor + (1 - Fraction(corrections.overlap)) * (serial - floor)
    return max(overlapped, Fraction(corrections.launches) * Fraction(machine.launch_latency_s))
