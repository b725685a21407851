"""Sorting, selecting and scanning by libraries: comparisons, which are not FLOP, and for scans one addition per element."""

from ....cost import NOTHING
from ....ops.elementwise import summed
from ....ops.reduction import running
from ..types import Price, Site
from .registry import call
from .traffic import operand, priced

_PASSES = "each array is counted once; a radix sort passes over its keys several times"


@call("xla.gpu.ext.cub_sort_*", "__cub$DeviceRadixSort*")
def sort(site: Site) -> Price:
    """A radix sort of keys, with or without values."""
    return priced(site, NOTHING, "sort", _PASSES)


@call("TopK", "__gpu$TopK", "ApproxTopK", "PartialReduce", "xla.gpu.ext.raft_select_k*", "__gpu$RaftSelectK*")
def top_k(site: Site) -> Price:
    """The largest elements of each row and their indices: the whole input is read, the selection written."""
    return priced(site, NOTHING, "sort", "comparisons are not counted as FLOP")


@call("xla.gpu.ext.cub_scan", "xla.gpu.ext.cub_scan_unassigned_scratch_size")
def scan(site: Site) -> Price:
    """A cumulative sum: one addition for each element but the first of a row."""
    x = operand(site, 0)
    return priced(site, summed(running(x.elements, x.dims[-1] if x.rank else 1), x.number, 1), "reduction")
