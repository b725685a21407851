"""Costs and peaks from Nsight Compute's metrics.

Which counters are used, and why, as checked on an H200 with kernels of known work:

- A total is ``X.sum``; where only a rate was collected it is ``X.sum.per_second`` times the duration, or ``X.sum.per_cycle_elapsed`` times
  the average of the unit's elapsed cycles (with the maximum, integer counts come out fractional).
- ``dram__bytes`` is the traffic of main memory. ``lts__t_sectors_srcunit_tex`` is the traffic between SMs and L2, in sectors of 32 bytes:
  a copy of n bytes counts exactly 2n. ``lts__t_bytes`` is up to 1.5 times that on chips whose L2 has two partitions, as it includes the
  traffic between them. ``lts2xbar``, which the ``roofline`` set collects, counts the bytes that L2 sends out: reads only.
- ``l1tex__t_bytes`` are global and local accesses; shared memory has its own counters, in wavefronts of 128 bytes. Their total counts one
  wavefront per warp even in kernels without shared memory, so only the counters of loads, stores, atomics and matrix operands are added.
- Tensor operations are ``sm__ops_path_tensor_src_<format>``; a multiply-add is 2. Instructions of the tensor pipe cannot be used instead:
  one is 1,024 or 4,096 operations depending on shape, and some are moves. Peaks without ``sparsity_off`` are those with sparsity.
- An ``h…`` instruction works on two numbers at once, so a fused one is 4 FLOP, whether fp16 or bf16.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from msgspec import Struct, field

from ...cost import Amount, Cost
from ...dtypes import DTYPES, dtype
from ...errors import SourceError
from ...resource import HBM, Resource, matrix, vector
from .csv_table import TIME, Entry, number

SECTOR, WAVEFRONT = 32, 128  # bytes
L1, L2, UNNAMED_MATRIX = Resource("l1"), Resource("l2"), Resource("matrix")
NAME = "device__attribute_display_name"

_USED = re.compile(
    r"(?:gpu__time_duration\.sum"
    r"|device__attribute_(?:display_name|multiprocessor_count|(?:memory_)?clock_rate|total_memory|global_memory_bus_width)"
    r"|gpu__time_duration\.(?:avg|max)|(?:dram|lts|l1tex|sm|smsp|gpc)__cycles_elapsed\.(?:avg|max|sum)(?:\.per_second)?"
    r"|(?:sm|smsp)__inst_executed_pipe_tensor\.sum|sm__pipe_tensor_cycles_active\.sum"
    r"|(?:dram__bytes|dram__sectors|lts__t_|lts__lts2xbar|l1tex__|sm__ops_path_tensor_|(?:sm|smsp)__sass_thread_inst_executed_op_|derived__).*"
    r"\.sum(?:\.per_second|\.per_cycle_elapsed|\.peak_sustained)?)"
)

# FLOP of one thread's instruction, by format. The FLOP of a format are known if its first three instructions were counted; the others are
# packed fp32 arithmetic, which not every chip has.
VECTOR: dict[str, tuple[tuple[str, int], ...]] = {
    "fp32": (("fadd", 1), ("fmul", 1), ("ffma", 2), ("fadd2", 2), ("fmul2", 2), ("ffma2", 4)),
    "fp64": (("dadd", 1), ("dmul", 1), ("dfma", 2)),
    "fp16": (("hadd", 2), ("hmul", 2), ("hfma", 4)),
}
NEEDED = 3
FUSED = {"fp32": ("ffma", 2), "fp64": ("dfma", 2), "fp16": ("hfma", 4)}

_TENSOR = re.compile(
    r"sm__ops_path_tensor_(?:op_[a-z]+_)?src_(?P<source>[a-z]+\d+(?:_[a-z]+\d+)*?)(?:_dst_[a-z0-9]+)?(?:_sparsity_(?P<sparse>on|off))?"
)
# A counter that several formats share counts as one of them: the one that Turing has, or the one whose rate all have on Blackwell.
SHARED_SOURCES = {"fp16_bf16_tf32": "fp16", "fp4_fp6_fp8": "fp8", "fp4_fp6": "fp6"}
SPARSE_SINCE = 8.0  # compute capability
# The first compute capability whose tensor cores have a format. If all formats of a chip were counted, no other tensor work exists.
TENSOR_SINCE = {"fp16": 7.0, "bf16": 8.0, "tf32": 8.0, "int8": 7.2, "fp64": 8.0, "fp8": 8.9}
HAS_TENSOR = 7.0

ACCESSES = (
    *(f"lsu_mem_{space}_op_{op}" for space, ops in (("global", "ld st atom red"), ("local", "ld st")) for op in ops.split()),
    *("tex_mem_texture", "tex_mem_surface_op_ld", "tex_mem_surface_op_st"),
)

# The ways to count the bytes of each level, best first: the counters to add (each under alternative names), bytes per count, and a caveat.
Way = tuple[tuple[tuple[str, ...], ...], int, str]
LEVELS: dict[Resource, tuple[Way, ...]] = {
    HBM: (
        ((("dram__bytes_read", "dram__bytes_op_read"), ("dram__bytes_write", "dram__bytes_op_write")), 1, ""),
        ((("dram__bytes",),), 1, ""),
        ((("dram__sectors",),), SECTOR, ""),
        ((("dram__sectors_read",), ("dram__sectors_write",)), SECTOR, ""),
    ),
    L2: (
        ((("lts__t_sectors_srcunit_tex",),), SECTOR, ""),
        ((("l1tex__m_xbar2l1tex_read_bytes",), ("l1tex__m_l1tex2xbar_write_bytes",)), 1, ""),
        ((("lts__t_bytes",),), 1, "all L2 lookups, including traffic between its two partitions (up to 50% extra)"),
        ((("lts__t_sectors",),), SECTOR, "all L2 lookups, including traffic between its two partitions (up to 50% extra)"),
        ((("lts__lts2xbar_cycles_active",),), SECTOR, "reads only"),
        ((("derived__lts__lts2xbar_bytes",),), 1, "reads only"),
    ),
    L1: (
        ((("l1tex__t_bytes",),), 1, ""),
        ((("l1tex__t_sectors",),), SECTOR, ""),
        (tuple((f"l1tex__t_sectors_pipe_{access}",) for access in ACCESSES), SECTOR, ""),
        ((("l1tex__lsu_writeback_active_mem_lgds", "l1tex__lsu_writeback_active_mem_lg"),), WAVEFRONT, "loads only, without shared memory"),
    ),
}
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
SHARED_PARTS = tuple(f"{SHARED}_op_{op}" for op in ("ld", "st", "atom"))
SHARED_MATRIX = (f"{SHARED}_op_gmma", "l1tex__data_pipe_tc_wavefronts_mem_shared")  # operands that tensor cores read from shared memory
WITHOUT_SHARED = "without shared memory"
_TIMES = (TIME, "gpu__time_duration.avg", "gpu__time_duration.max")
_CYCLES = tuple(f"{unit}__cycles_elapsed.{how}" for unit in ("sm", "smsp", "gpc", "l1tex", "lts", "dram") for how in ("avg", "max", "sum"))
# Counters of any work on the tensor cores, whatever its format.
ALL_TENSOR = ("sm__inst_executed_pipe_tensor", "smsp__inst_executed_pipe_tensor", "sm__pipe_tensor_cycles_active")


def is_used(name: str) -> bool:
    """Whether this module uses a metric."""
    return _USED.fullmatch(name) is not None


class Metrics:
    """The metrics of one launch, in base units, parsed on demand. An error names the row and the column."""

    __slots__ = ("_commas", "_entry", "_read", "_where")

    def __init__(self, entry: Entry, where: str, *, commas: bool = False) -> None:
        self._entry, self._where, self._commas = entry, where, commas
        self._read: dict[str, Fraction | None] = {}

    def word(self, name: str) -> str:
        """A cell that is not a number."""
        return self._entry.cells.get(name, ("", ""))[1]

    def get(self, name: str) -> Fraction | None:
        """A number in base units; ``None`` if the file does not have it."""
        if name not in self._read:
            self._read[name] = self._number(name) if name in self._entry.cells else None
        return self._read[name]

    def plain(self, name: str) -> float | None:
        """A number whose unit does not matter (blocks, percent, sectors); ``None`` if the file does not have it, or has another word."""
        try:
            found = number(self._entry.cells[name][1], "", commas=self._commas) if name in self._entry.cells else None
        except SourceError:
            return None
        return None if found is None else float(found)

    def _number(self, name: str) -> Fraction | None:
        unit, cell = self._entry.cells[name]
        try:
            # Without a row of units, durations are in Nsight Compute's base unit, ns.
            return number(cell, unit or ("ns" if name in _TIMES else ""), commas=self._commas)
        except SourceError as error:
            raise SourceError(f"{self._where}: row {self._entry.row}, column {name!r}: {error}") from None

    @property
    def time(self) -> Fraction | None:
        """Seconds: the launch's duration, or the cycles of a unit over their rate."""
        for name in _TIMES:
            if (time := self.get(name)) is not None:
                return time
        for name in _CYCLES:
            cycles, rate = self.get(name), self.get(f"{name}.per_second")
            if cycles is not None and rate:
                return cycles / rate
        return None

    def total(self, *names: str) -> Fraction | None:
        """The total of a counter over the launch: its sum, or a rate times the time or cycles; the first of ``names`` that the file has."""
        for name in names:
            if (total := self.get(f"{name}.sum")) is not None:
                return total
            rated = _product(self.get(f"{name}.sum.per_second"), self.time)
            rated = rated if rated is not None else _product(self.get(f"{name}.sum.per_cycle_elapsed"), self._cycles(name))
            if rated is not None:
                return Fraction(round(rated))  # counts are integers; a fraction comes from the rounding of the rate
        return None

    def _cycles(self, name: str) -> Fraction | None:
        """Elapsed cycles of the unit that a counter belongs to."""
        elapsed = f"{name.partition('__')[0]}__cycles_elapsed.avg"
        cycles = self.get(elapsed)
        return cycles if cycles is not None else _product(self.get(f"{elapsed}.per_second"), self.time)

    def peak(self, name: str, unit: str) -> float | None:
        """The highest rate of a counter, per second, at the clock of its unit during the launch."""
        rate = _product(self.get(f"{name}.sum.peak_sustained"), self.get(f"{unit}__cycles_elapsed.avg.per_second"))
        return float(rate) if rate else None


def _product(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    return None if first is None or second is None else first * second


def amount(value: Fraction) -> Amount:
    """An exact amount as an int if it is a whole number, else as a float."""
    return value.numerator if value.denominator == 1 else float(value)


class Plan(Struct, frozen=True):
    """How to count tensor operations with the metrics of a file: the counters to add for each format, and the formats that are counted.

    ``dense`` are the counters without sparsity of each format, for peaks.
    """

    tensor: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dense: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    formats: frozenset[str] = frozenset()


def plan(names: Iterable[str]) -> Plan:
    """The plan for the tensor counters among these metrics.

    A format may have one counter, or two (with and without sparsity), or one per format of the result, or one per instruction: the most
    general that the file has are used, so that nothing is counted twice.
    """
    general: dict[str, set[str]] = {}
    detailed: dict[str, set[str]] = {}
    dense: dict[str, set[str]] = {}
    totals: set[str] = set()
    for base in {name.partition(".sum")[0] for name in names if name.startswith("sm__ops_path_tensor_")}:
        match = _TENSOR.fullmatch(base)
        source = match and SHARED_SOURCES.get(match["source"], match["source"])
        if match is None or source not in DTYPES:
            continue
        kind = general if base.startswith("sm__ops_path_tensor_src_") else detailed
        kind.setdefault(source, set()).add(base)
        if match["sparse"] is None:
            totals.add(base)
        if match["sparse"] != "on":
            dense.setdefault(source, set()).add(base)
    tensor = {source: _without_parts(bases, totals) for source, bases in {**detailed, **general}.items()}
    formats = {
        part for base in tensor.values() for name in base if (found := _TENSOR.fullmatch(name)) for part in found["source"].split("_")
    }
    return Plan(tensor, {source: tuple(sorted(bases)) for source, bases in dense.items()}, frozenset(formats))


def _without_parts(bases: set[str], totals: set[str]) -> tuple[str, ...]:
    """The counters to add: without those that are included in another one."""
    parts = {base for base in bases for other in bases if other in totals and base.startswith(f"{other}_")}
    return tuple(sorted(bases - parts))


def cost_of(metrics: Metrics, plan: Plan, capability: float | None) -> Cost:
    """The cost of one launch. Arithmetic and main-memory bytes that were not counted are unknown; cache levels not counted are omitted."""
    amounts: dict[Resource, Amount | None] = {}
    for source, names in plan.tensor.items():
        _add(amounts, matrix(dtype(source)), _sum(metrics.total(name) for name in names))
    if not tensor_complete(plan, capability) and not any(metrics.get(f"{name}.sum") == 0 for name in ALL_TENSOR):
        amounts[UNNAMED_MATRIX] = None
    for kind, weights in VECTOR.items():
        _add(amounts, vector(kind), _flop(metrics, weights))
    integer = _instructions(metrics, "integer")
    if integer is not None:
        _add(amounts, vector("int32"), integer)
    for level in LEVELS:
        moved, _ = bytes_over(metrics, level)
        if moved is not None or level == HBM:
            _add(amounts, level, moved)
    return Cost.of(amounts)


def _flop(metrics: Metrics, weights: tuple[tuple[str, int], ...]) -> Fraction | None:
    """FLOP of the instructions of one format; ``None`` unless the first three, which every chip has, were counted."""
    counts = [(_instructions(metrics, op), flop) for op, flop in weights]
    if any(count is None for count, _ in counts[:NEEDED]):
        return None
    return sum((count * flop for count, flop in counts if count is not None), Fraction(0))


def _add(amounts: dict[Resource, Amount | None], resource: Resource, value: Fraction | None) -> None:
    had = amounts.get(resource, 0)
    amounts[resource] = None if value is None or had is None else had + amount(value)


def _sum(values: Iterable[Fraction | None]) -> Fraction | None:
    total = Fraction(0)
    for part in values:
        if part is None:
            return None
        total += part
    return total


def _instructions(metrics: Metrics, op: str) -> Fraction | None:
    name = f"__sass_thread_inst_executed_op_{op}_pred_on"
    return metrics.total(f"smsp{name}", f"sm{name}")


def tensor_complete(plan: Plan, capability: float | None) -> bool:
    """Whether every format that the chip's tensor cores have was counted."""
    if capability is not None and capability < HAS_TENSOR:
        return True
    needed = {name for name, since in TENSOR_SINCE.items() if capability is None or capability >= since}
    return needed <= plan.formats


def bytes_over(metrics: Metrics, level: Resource) -> tuple[Fraction | None, str]:
    """Bytes over a memory level, counted in the best way that the file allows, and the caveat of that way; ``None`` if it allows none."""
    for parts, size, caveat in LEVELS[level]:
        moved = _sum(metrics.total(*names) for names in parts)
        if moved is None:
            continue
        if level != L1 or caveat:
            return moved * size, caveat
        shared = _shared(metrics)
        return (moved * size, WITHOUT_SHARED) if shared is None else (moved * size + shared * WAVEFRONT, "")
    return None, ""


def _shared(metrics: Metrics) -> Fraction | None:
    """Wavefronts of shared memory."""
    parts = _sum(metrics.total(name) for name in SHARED_PARTS)
    return None if parts is None else parts + sum(((metrics.total(name) or 0) for name in SHARED_MATRIX), Fraction(0))


def peaks(metrics: Metrics, plan: Plan, capability: float | None) -> Iterator[tuple[str, float]]:
    """The chip's peak rates by its own counters, at the clocks of this launch: only dense ones, and only where that is certain."""
    for level, name, unit, size in (
        (HBM, "dram__bytes", "dram", 1),
        (L2, "lts__lts2xbar_cycles_active", "lts", SECTOR),
        (L1, "l1tex__lsu_writeback_active_mem_lgds", "l1tex", WAVEFRONT),
        (L1, "l1tex__lsu_writeback_active_mem_lg", "l1tex", WAVEFRONT),
    ):
        if (rate := metrics.peak(name, unit)) is not None:
            yield level.name, rate * size
    for kind, (op, flop) in FUSED.items():
        if (rate := metrics.peak(f"sm__sass_thread_inst_executed_op_{op}_pred_on", "sm")) is not None:
            yield vector(kind).name, rate * flop
    for source, names in plan.dense.items():
        # On chips with sparsity a peak without "sparsity_off" in its name is the sparse one, except for fp64, which has no sparsity.
        surely_dense = [name for name in names if name.endswith("_sparsity_off")]
        if not surely_dense and (source == "fp64" or (capability is not None and capability < SPARSE_SINCE)):
            surely_dense = list(names)
        for name in surely_dense:
            if (rate := metrics.peak(name, "sm")) is not None:
                yield matrix(dtype(source)).name, rate
