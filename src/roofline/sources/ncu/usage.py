"""How a kernel used the GPU, from Nsight Compute's metrics: what its time is lost to, where that is neither bandwidth nor arithmetic.

Checked on an H200 with kernels that have one fault each and the same kernels without it (`tests/data/ncu_faults.py`). Most metrics are in
the sets ``basic``, ``detailed`` and ``full``; sectors and passes of each instruction (``memory_l2_…``, ``memory_l1_…``) need the section
SourceCounters of the last two.
"""

from ...cost import sum_of_known
from ...workload import Usage
from .metrics import SECTOR, Metrics

_PEAK = ".avg.pct_of_peak_sustained_elapsed"
BUSY = {
    "memory": "gpu__compute_memory_throughput",
    "compute": "sm__throughput",
    "dram": "gpu__dram_throughput",
    "shared memory": "l1tex__data_pipe_lsu_wavefronts",
}
# The blocks of an SM that each resource allows, in words.
OCCUPANCY_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "barriers": "launch__occupancy_limit_barriers",
    "blocks": "launch__occupancy_limit_blocks",
    "warps": "launch__occupancy_limit_warps",
}
_BLOCKS, _SMS = "launch__grid_size", ("launch__sm_count", "device__attribute_multiprocessor_count")
_ACTIVE, _ELAPSED = "sm__cycles_active.avg", "sm__cycles_elapsed.avg"
_OCCUPANCY, _LANES = "sm__maximum_warps_per_active_cycle_pct", "smsp__thread_inst_executed_per_inst_executed.ratio"
_SECTORS, _PASSES = "memory_l2_theoretical_sectors_global", "memory_l1_wavefronts_shared"
_IDEAL = "_ideal"
_SPILLS = "derived__local_spilling_requests"
_LOCAL = tuple(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st"))
_L2_SECTORS = "lts__t_sectors_srcunit_tex.sum"
_ATOMICS = tuple(f"lts__t_sectors_srcunit_tex_op_{op}.sum" for op in ("atom", "red"))
_REQUESTS = tuple(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
_GLOBAL = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
_NAMES = frozenset(
    {
        *(name + _PEAK for name in BUSY.values()),
        *OCCUPANCY_LIMITS.values(),
        *(_BLOCKS, *_SMS, _ACTIVE, _ELAPSED, _OCCUPANCY, _LANES, _SPILLS, _L2_SECTORS),
        *(_SECTORS, _SECTORS + _IDEAL, _PASSES, _PASSES + _IDEAL),
        *(*_LOCAL, *_ATOMICS, *_REQUESTS, *_GLOBAL),
    }
)


def is_usage(name: str) -> bool:
    """Whether this module uses a metric."""
    return name in _NAMES


def usage_of(metrics: Metrics) -> Usage:
    """How one launch used the GPU, as far as it was counted."""
    blocks, sms = metrics.plain(_BLOCKS), next((count for name in _SMS if (count := metrics.plain(name))), None)
    occupancy = metrics.plain(_OCCUPANCY)
    busy = {unit: percent / 100 for unit, name in BUSY.items() if (percent := metrics.plain(name + _PEAK)) is not None}
    requests = _sum(metrics, _REQUESTS)
    moved, local = _sum(metrics, _GLOBAL), _sum(metrics, _LOCAL)
    return Usage(
        blocks=int(blocks) if blocks else None,
        sms=int(sms) if sms else None,
        sms_busy=_share(metrics.plain(_ACTIVE), metrics.plain(_ELAPSED)),
        occupancy=None if occupancy is None else occupancy / 100,
        occupancy_limit=_occupancy_limit(metrics),
        lanes=metrics.plain(_LANES),
        busy=busy,
        sectors=metrics.plain(_SECTORS),
        sectors_used=metrics.plain(_SECTORS + _IDEAL),
        passes=metrics.plain(_PASSES),
        passes_needed=metrics.plain(_PASSES + _IDEAL),
        local=_share(local, None if local is None or moved is None else local + moved),
        spills=bool(metrics.plain(_SPILLS)),
        atomics=_share(_sum(metrics, _ATOMICS), metrics.plain(_L2_SECTORS)),
        bytes_a_request=SECTOR * moved / requests if requests and moved else None,
    )


def _occupancy_limit(metrics: Metrics) -> str:
    """What allows fewer blocks on an SM than its warps do."""
    allowed = {word: blocks for word, name in OCCUPANCY_LIMITS.items() if (blocks := metrics.plain(name)) is not None}
    least = min(allowed, key=allowed.__getitem__, default="")
    return "" if not least or allowed[least] == allowed.get("warps") else least


def _sum(metrics: Metrics, names: tuple[str, ...]) -> float | None:
    return sum_of_known(map(metrics.plain, names))


def _share(part: float | None, whole: float | None) -> float | None:
    return min(part / whole, 1.0) if part is not None and whole else None
