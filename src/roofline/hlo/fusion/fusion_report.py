"""The fusion report: the kernels of a program, the bytes that move between them, why they are not fused, and what fusing would save.

A boundary is a value that one kernel writes and others of the same computation read. Fusing them would avoid all reads, and the write
too unless the value is needed in memory anyway. Amounts are totals over all executions; a loop's body counts its trips.

    gain of a boundary   sum of its kernels' floors − floor of their costs total without the avoidable bytes

>>> from roofline.hlo.read import parse
>>> report = fusion_report(parse('''HloModule two
... ENTRY main {
...   x = f32[1000]{0} parameter(0)
...   a = f32[1000]{0} exponential(x)
...   ROOT b = f32[1000]{0} negate(a)
... }'''), "gpu")
>>> [(one.producer, one.consumers, one.avoidable_bytes, one.reason) for one in report.boundaries]
[('a', ('b',), 8000, 'none seen')]
>>> report.fragmentation.kernels, report.fragmentation.median_bytes
(2, 8000)
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING, Amount, Cost
from ...machine import Machine
from ...placement import place
from ...resource import HBM
from ..ir.module import HloModule
from ..ir.platforms import Platform, detect_platform
from ..price.collectives import Network
from ..price.program import Executed, executed
from .compiler_model import ESTIMATED
from .fusion_blockers import Reason, blocker
from .intermediates import Intermediate, intermediates

__all__ = ["Boundary", "Fragmentation", "FusionReport", "FusionReports", "KernelShare", "fusion_report"]

SCHEMA = "roofline.fusion-report/1"
Number = TypeVar("Number", Amount, float)


class Boundary(Struct, frozen=True, kw_only=True):
    """A value that one kernel writes to main memory and others read. ``gain_s`` is unknown without a machine."""

    value: str
    shape: str
    producer: str
    consumers: tuple[str, ...]
    reason: Reason
    detail: str
    count: int
    written_bytes: int
    read_bytes: int
    avoidable_bytes: int
    gain_s: float | None = None
    scope: str = ""
    location: str = ""


class KernelShare(Struct, frozen=True, kw_only=True):
    """A kernel, and how many of its bytes fusion could avoid: reads of other kernels' results, writes that only other kernels read."""

    name: str
    category: str
    count: int
    bytes: Amount
    avoidable_bytes: int
    floor_s: float | None = None
    scope: str = ""
    location: str = ""


class Fragmentation(Struct, frozen=True, kw_only=True):
    """How many kernels a program has, and how small they are.

    ``kernels`` counts executions, ``distinct`` the kernels of the program's text. Medians are over executions. Kernels whose floor is
    below the machine's launch latency are ``small``: shares of kernels, of bytes and of the summed floors. ``scopes`` are executions
    by named scope, most first.
    """

    kernels: int
    distinct: int
    median_bytes: Amount | None
    median_floor_s: float | None = None
    launch_latency_s: float | None = None
    small_kernels: int | None = None
    small_bytes_share: float | None = None
    small_floor_share: float | None = None
    scopes: tuple[tuple[str, int], ...] = ()


class FusionReport(Struct, frozen=True, kw_only=True):
    """Kernels and boundaries, each ranked by avoidable bytes, and the program's fragmentation."""

    module: str
    platform: Platform
    machine: str | None
    kernels: tuple[KernelShare, ...]
    boundaries: tuple[Boundary, ...]
    fragmentation: Fragmentation
    notes: tuple[str, ...] = ()

    @property
    def avoidable_bytes(self) -> int:
        """Bytes that would not move if every boundary were fused."""
        return sum(one.avoidable_bytes for one in self.boundaries)

    @property
    def bytes(self) -> Amount:
        """All bytes of main memory."""
        return sum((one.bytes for one in self.kernels), 0)

    @property
    def reasons(self) -> tuple[tuple[Reason, int], ...]:
        """Avoidable bytes by reason, most first."""
        found: dict[Reason, int] = {}
        for one in self.boundaries:
            found[one.reason] = found.get(one.reason, 0) + one.avoidable_bytes
        return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


class FusionReports(Struct, frozen=True, kw_only=True):
    """The fusion reports of the programs in a file or folder, as JSON."""

    schema: str = SCHEMA
    reports: tuple[FusionReport, ...]


def fusion_report(
    module: HloModule,
    platform: Platform | None = None,
    machine: Machine | None = None,
    *,
    link: str | Network | None = None,
    trips: Mapping[str, int] | None = None,
) -> FusionReport:
    """The fusion report of a program, compiled or not; see `program` for ``link`` and ``trips``.

    A program that was not compiled has a kernel for every instruction; give `fuse` of it to see the kernels a compiler would make.
    """
    platform = platform or detect_platform(module)
    ran = executed(module, platform, link=link, trips=trips)
    found = intermediates(module, platform, ran)
    boundaries = [_boundary(module, one, machine) for one in found]
    shares = _shares(found)
    kernels = [_kernel(one, shares.get(id(one), 0), machine) for one in ran]
    return FusionReport(
        module=module.name,
        platform=platform,
        machine=machine.name if machine else None,
        kernels=tuple(sorted(kernels, key=lambda one: (-one.avoidable_bytes, -one.bytes))),
        boundaries=tuple(sorted(boundaries, key=lambda one: -one.avoidable_bytes)),
        fragmentation=_fragmentation(ran, machine),
        notes=tuple(_notes(module, ran)),
    )


def _boundary(module: HloModule, found: Intermediate, machine: Machine | None) -> Boundary:
    runs = found.producer.runs
    why = blocker(module, found)
    instruction = found.producer.site.instruction
    return Boundary(
        value=instruction.name + "".join(f".{place}" for place in found.path),
        shape=str(found.shape),
        producer=instruction.name,
        consumers=tuple(reader.kernel.site.instruction.name for reader in found.readers),
        reason=why.reason,
        detail=why.detail,
        count=runs,
        written_bytes=runs * found.written,
        read_bytes=runs * found.read,
        avoidable_bytes=runs * found.avoidable,
        gain_s=None if machine is None else runs * _gain(found, machine),
        scope=found.producer.op.scope,
        location=found.producer.op.location,
    )


def _gain(found: Intermediate, machine: Machine) -> float:
    """Seconds that fusing the kernels of a boundary would save per execution."""
    costs = [found.producer.price.cost, *(reader.kernel.price.cost for reader in found.readers)]
    total: Cost = sum(costs, NOTHING)
    rest = tuple((resource, amount) for resource, amount in total.amounts if resource != HBM)
    left = max(0, total.known(HBM) - found.avoidable)
    fused = Cost(rest, total.unknown) + Cost.of({HBM: left})
    return max(0.0, sum(_floor(cost, machine) for cost in costs) - _floor(fused, machine))


def _floor(cost: Cost, machine: Machine) -> float:
    """The floor of a cost on the rated units; 0 if none is rated."""
    rated = tuple((resource, amount) for resource, amount in cost.amounts if machine.resolve(resource))
    return place(Cost(rated), machine).floor_s


def _shares(found: Sequence[Intermediate]) -> dict[int, int]:
    """Avoidable bytes of each kernel, over all its executions."""
    shares: dict[int, int] = {}

    def add(kernel: Executed, size: int) -> None:
        shares[id(kernel)] = shares.get(id(kernel), 0) + kernel.runs * size

    for one in found:
        add(one.producer, 0 if one.is_needed else one.written)
        for reader in one.readers:
            add(reader.kernel, reader.bytes)
    return shares


def _kernel(one: Executed, avoidable: int, machine: Machine | None) -> KernelShare:
    return KernelShare(
        name=one.op.name,
        category=one.op.category,
        count=one.runs,
        bytes=one.op.cost.known(HBM),
        avoidable_bytes=avoidable,
        floor_s=None if machine is None else _floor(one.op.cost, machine),
        scope=one.op.scope,
        location=one.op.location,
    )


def _fragmentation(ran: Sequence[Executed], machine: Machine | None) -> Fragmentation:
    scopes: dict[str, int] = {}
    for one in ran:
        scopes[one.op.scope] = scopes.get(one.op.scope, 0) + one.runs
    pieces = [(one.price.cost.known(HBM), one.runs) for one in ran]
    kernels = sum(one.runs for one in ran)
    ranked = tuple(sorted(scopes.items(), key=lambda item: (-item[1], item[0])))
    found = Fragmentation(kernels=kernels, distinct=len(ran), median_bytes=_median(pieces), scopes=ranked)
    if machine is None:
        return found
    floors = [_floor(one.price.cost, machine) for one in ran]
    small = [floor < machine.launch_latency_s for floor in floors]
    return replace(
        found,
        median_floor_s=_median([(floor, one.runs) for floor, one in zip(floors, ran, strict=True)]),
        launch_latency_s=machine.launch_latency_s,
        small_kernels=sum(one.runs for one, is_small in zip(ran, small, strict=True) if is_small),
        small_bytes_share=_share([(size * runs, is_small) for (size, runs), is_small in zip(pieces, small, strict=True)]),
        small_floor_share=_share([(floor * one.runs, is_small) for floor, one, is_small in zip(floors, ran, small, strict=True)]),
    )


def _share(parts: Sequence[tuple[Amount, bool]]) -> float | None:
    """The share of the amounts whose flag is set; ``None`` if they sum to 0."""
    total = sum(float(amount) for amount, _ in parts)
    return sum(float(amount) for amount, chosen in parts if chosen) / total if total else None


def _median(values: Sequence[tuple[Number, int]]) -> Number | None:
    """The weighted median of (value, weight) pairs; the lower of two middle ones."""
    ordered = sorted((value for value in values if value[1]), key=lambda item: item[0])
    half = sum(times for _, times in ordered) / 2
    for (middle, _), reached in zip(ordered, accumulate(times for _, times in ordered), strict=True):
        if reached >= half:
            return middle
    return None


def _notes(module: HloModule, ran: Sequence[Executed]) -> list[str]:
    notes = []
    if ESTIMATED in module.frontend_attributes:
        notes.append("kernels are estimated by roofline's fusion model")
    elif not module.is_scheduled and all(one.site.instruction.opcode != "fusion" for one in ran):
        notes.append("the program is not compiled: every instruction counts as a kernel")
    if any(not one.is_certain for one in ran):
        notes.append("trip counts of some loops are known only at run time: one iteration of each is counted")
    return notes
