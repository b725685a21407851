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
>>> [(boundary.producer, boundary.consumers, boundary.avoidable_bytes, boundary.reason) for boundary in report.boundaries]
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
        return sum(boundary.avoidable_bytes for boundary in self.boundaries)

    @property
    def bytes(self) -> Amount:
        """All bytes of main memory."""
        return sum((share.bytes for share in self.kernels), 0)

    @property
    def reasons(self) -> tuple[tuple[Reason, int], ...]:
        """Avoidable bytes by reason, most first."""
        avoidable: dict[Reason, int] = {}
        for boundary in self.boundaries:
            avoidable[boundary.reason] = avoidable.get(boundary.reason, 0) + boundary.avoidable_bytes
        return tuple(sorted(avoidable.items(), key=lambda item: (-item[1], item[0])))


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
    stored = intermediates(module, platform, ran)
    boundaries = [_boundary(module, intermediate, machine) for intermediate in stored]
    shares = _shares(stored)
    kernels = [_kernel(executed, shares.get(id(executed), 0), machine) for executed in ran]
    return FusionReport(
        module=module.name,
        platform=platform,
        machine=machine.name if machine else None,
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel.avoidable_bytes, -kernel.bytes))),
        boundaries=tuple(sorted(boundaries, key=lambda boundary: -boundary.avoidable_bytes)),
        fragmentation=_fragmentation(ran, machine),
        notes=tuple(_notes(module, ran)),
    )


def _boundary(module: HloModule, intermediate: Intermediate, machine: Machine | None) -> Boundary:
    runs = intermediate.producer.runs
    why = blocker(module, intermediate)
    instruction = intermediate.producer.site.instruction
    return Boundary(
        value=instruction.name + "".join(f".{place}" for place in intermediate.path),
        shape=str(intermediate.shape),
        producer=instruction.name,
        consumers=tuple(reader.kernel.site.instruction.name for reader in intermediate.readers),
        reason=why.reason,
        detail=why.detail,
        count=runs,
        written_bytes=runs * intermediate.written,
        read_bytes=runs * intermediate.read,
        avoidable_bytes=runs * intermediate.avoidable,
        gain_s=None if machine is None else runs * _gain(intermediate, machine),
        scope=intermediate.producer.op.scope,
        location=intermediate.producer.op.location,
    )


def _gain(intermediate: Intermediate, machine: Machine) -> float:
    """Seconds that fusing the kernels of a boundary would save per execution."""
    costs = [intermediate.producer.price.cost, *(reader.kernel.price.cost for reader in intermediate.readers)]
    total: Cost = sum(costs, NOTHING)
    rest = tuple((resource, amount) for resource, amount in total.amounts if resource != HBM)
    left = max(0, total.known(HBM) - intermediate.avoidable)
    fused = Cost(rest, total.unknown) + Cost.of({HBM: left})
    return max(0.0, sum(_floor(cost, machine) for cost in costs) - _floor(fused, machine))


def _floor(cost: Cost, machine: Machine) -> float:
    """The floor of a cost on the rated units; 0 if none is rated."""
    rated = tuple((resource, amount) for resource, amount in cost.amounts if machine.resolve(resource))
    return place(Cost(rated), machine).floor_s


def _shares(intermediates: Sequence[Intermediate]) -> dict[int, int]:
    """Avoidable bytes of each kernel, over all its executions."""
    shares: dict[int, int] = {}

    def add(kernel: Executed, size: int) -> None:
        shares[id(kernel)] = shares.get(id(kernel), 0) + kernel.runs * size

    for intermediate in intermediates:
        add(intermediate.producer, 0 if intermediate.is_needed else intermediate.written)
        for reader in intermediate.readers:
            add(reader.kernel, reader.bytes)
    return shares


def _kernel(executed: Executed, avoidable: int, machine: Machine | None) -> KernelShare:
    return KernelShare(
        name=executed.op.name,
        category=executed.op.category,
        count=executed.runs,
        bytes=executed.op.cost.known(HBM),
        avoidable_bytes=avoidable,
        floor_s=None if machine is None else _floor(executed.op.cost, machine),
        scope=executed.op.scope,
        location=executed.op.location,
    )


def _fragmentation(ran: Sequence[Executed], machine: Machine | None) -> Fragmentation:
    scopes: dict[str, int] = {}
    for kernel in ran:
        scopes[kernel.op.scope] = scopes.get(kernel.op.scope, 0) + kernel.runs
    pieces = [(kernel.price.cost.known(HBM), kernel.runs) for kernel in ran]
    kernels = sum(kernel.runs for kernel in ran)
    ranked = tuple(sorted(scopes.items(), key=lambda item: (-item[1], item[0])))
    fragmentation = Fragmentation(kernels=kernels, distinct=len(ran), median_bytes=_median(pieces), scopes=ranked)
    if machine is None:
        return fragmentation
    floors = [_floor(kernel.price.cost, machine) for kernel in ran]
    small = [floor < machine.launch_latency_s for floor in floors]
    return replace(
        fragmentation,
        median_floor_s=_median([(floor, kernel.runs) for floor, kernel in zip(floors, ran, strict=True)]),
        launch_latency_s=machine.launch_latency_s,
        small_kernels=sum(kernel.runs for kernel, is_small in zip(ran, small, strict=True) if is_small),
        small_bytes_share=_share([(size * runs, is_small) for (size, runs), is_small in zip(pieces, small, strict=True)]),
        small_floor_share=_share([(floor * kernel.runs, is_small) for floor, kernel, is_small in zip(floors, ran, small, strict=True)]),
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
    elif not module.is_scheduled and all(executed.site.instruction.opcode != "fusion" for executed in ran):
        notes.append("the program is not compiled: every instruction counts as a kernel")
    if any(not executed.is_certain for executed in ran):
        notes.append("trip counts of some loops are known only at run time: one iteration of each is counted")
    return notes
