"""A CPU's limits estimated from its cores, clock and vector width, for one that was not measured.

    rate = physical cores x clock x FMA units x lanes x 2

Cache rates are bytes per core and cycle. The bandwidth of main memory cannot be derived from the CPU's description: it is an assumption,
with a note.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ..machine import Capacity, Ceiling, Machine
from ..resource import HBM, Resource
from ..units import parse, show
from .cpu import Cpu

LAUNCH_LATENCY_S = parse("1 µs", "s")  # time to start a small task on a thread pool
CHANNEL = parse("25.6 GB/s", "B/s")  # one channel of DDR4-3200: 3200 MT/s x 8 B
CORES_PER_CHANNEL = 8
LEAST_CHANNELS = 2
ONE_CORE = parse("16 GB/s", "B/s")  # limit from the cache misses that one core keeps in flight
MEASURE = "roofline chips measure"
# Bytes per core and cycle: two loads and a store of a vector in L1; one line of 64 B from L2; half a line from L3 (Zen; Intel's mesh has
# less).
L2_BYTES, L3_BYTES = 64, 32
FP32_BYTES = 4
AMX_BF16 = (
    2 * 16 * 16 * 32 // 16
)  # FLOP per core and cycle: a 16 x 16 x 32 product every 16 cycles (Intel, Optimization Reference Manual, AMX)
ZEN4 = 25  # the x86 family up to which AMD runs 512-bit instructions as two halves (AMD, Software Optimization Guide for Zen 4)


class VectorUnits(Struct, frozen=True):
    """The vector units of one core: how many, of how many bytes, and the FLOP of a lane per cycle (2 where multiply-adds are fused)."""

    count: int
    bytes: int
    name: str
    flop_per_lane: int = 2

    def flop_per_cycle(self, number_bytes: int) -> int:
        return self.count * self.bytes // number_bytes * self.flop_per_lane


def vector_units(cpu: Cpu) -> VectorUnits:
    """The vector units of one core, by its instructions and vendor.

    Intel's servers have two FMA units for AVX-512 and every AVX2 core since Haswell has two; AMD runs 512 bits as two halves up to
    Zen 4. Neoverse V cores and Apple's have four 128-bit pipes (or two of 256 bits for SVE), other Arm cores two.
    """
    has = cpu.instructions
    if "avx512f" in has:
        return VectorUnits(2, 32 if cpu.vendor == "AMD" and cpu.family <= ZEN4 else 64, "AVX-512")
    if {"avx2", "fma"} <= has:
        return VectorUnits(2, 32, "AVX2")
    if "avx" in has:
        return VectorUnits(2, 32, "AVX", 1)  # one unit multiplies, one adds
    if "asimd" in has:
        wide = cpu.vendor == "Apple" or "Neoverse V" in cpu.model
        return VectorUnits(4 if wide else 2, 16, "SVE" if "sve" in has else "NEON")
    return VectorUnits(2, 16, "SSE2", 1)


def estimate(cpu: Cpu) -> Machine:
    """A CPU's estimated machine, with a note that names the command to measure it."""
    units = vector_units(cpu)
    cycles = cpu.cores * cpu.clock_hz
    place = f"{_cores(cpu.cores)} x {show(cpu.clock_hz, 'Hz')} ({cpu.clock_source})"
    ceilings = []

    def rate(resource: str, per_cycle: int, how: str) -> None:
        ceilings.append(Ceiling(resource=Resource(resource), rate=cycles * per_cycle, provenance="derived", citation=f"{place} x {how}"))

    for number, bytes in (("fp32", 4), ("fp64", 8)):
        per_cycle = units.flop_per_cycle(bytes)
        rate(f"vector/{number}", per_cycle, f"{per_cycle} FLOP per cycle ({units.count} {units.name} units)")
    for number, times, how in narrow_products(cpu):
        rate(f"matrix/{number}", round(times * units.flop_per_cycle(FP32_BYTES)), how)
    per_core = {1: 3 * units.bytes, 2: L2_BYTES, 3: L3_BYTES}
    for cache in cpu.caches:
        if cache.level in per_core:
            rate(f"l{cache.level}", per_core[cache.level], f"{per_core[cache.level]} B per cycle")
    channels = max(LEAST_CHANNELS, -(-cpu.cores // CORES_PER_CHANNEL))
    bandwidth = min(channels * CHANNEL, cpu.cores * ONE_CORE)
    assumed = (
        f"assumed: {show(ONE_CORE, 'B/s')} per core, at most {channels} channels of DDR4-3200 "
        f"({LEAST_CHANNELS}, or one per {CORES_PER_CHANNEL} cores if more)"
    )
    ceilings.append(Ceiling(resource=HBM, rate=bandwidth, provenance="derived", citation=assumed))
    note = f"rates are estimates from {place} and {units.name}; memory bandwidth is assumed; measure this computer with: {MEASURE}"
    return cpu_machine(cpu, ceilings, [note])


def cpu_machine(cpu: Cpu, ceilings: Iterable[Ceiling], notes: Iterable[str], conditions: Mapping[str, str] | None = None) -> Machine:
    """A CPU as a machine with these ceilings; ``conditions`` are those of a measurement."""
    return Machine(
        name=cpu.name,
        title=cpu.model,
        vendor=cpu.vendor,
        kind="cpu",
        cores=cpu.cores,
        launch_latency_s=LAUNCH_LATENCY_S,
        ceilings=tuple(ceilings),
        capacities=capacities(cpu),
        notes=tuple(notes),
        conditions=tuple((conditions or {}).items()),
    )


def narrow_products(cpu: Cpu) -> tuple[tuple[str, float, str], ...]:
    """The rate of products over the fp32 rate for formats with special instructions, and the reason."""
    units = vector_units(cpu)
    fp32 = units.flop_per_cycle(FP32_BYTES)
    has = cpu.instructions
    if "amx_bf16" in has or "amx_tile" in has:
        return (("bf16", AMX_BF16 / fp32, f"{AMX_BF16} FLOP per cycle (AMX)"),)
    if "avx512_bf16" in has or "bf16" in has:
        return (("bf16", 2.0, f"{2 * fp32} FLOP per cycle (bf16 dot products, twice fp32)"),)
    return ()


def capacities(cpu: Cpu) -> tuple[Capacity, ...]:
    """The capacities of caches and memory that the operating system reports; caches are summed over the usable cores."""
    citation = "the operating system"
    caches = [
        Capacity(
            level=Resource(f"l{cache.level}"),
            bytes=cache.total,
            provenance="derived",
            citation=citation,
            note=f"{cache.count} x {show(cache.bytes, 'B')}" if cache.count > 1 else "",
        )
        for cache in cpu.caches
    ]
    memory = [Capacity(level=HBM, bytes=cpu.memory_bytes, provenance="derived", citation=citation)] if cpu.memory_bytes else []
    return (*memory, *caches)


def _cores(count: int) -> str:
    return f"{count} core{'s' if count > 1 else ''}"
