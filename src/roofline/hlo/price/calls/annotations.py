"""Custom calls that only annotate the program for the compiler, only move data, or call back into the host."""

from ....cost import NOTHING, Cost
from ....resource import PCIE, UNNAMED_WORK
from ..types import Price, Site
from .registry import call
from .traffic import priced, results, traffic

# Annotations of shardings, memory placement, layouts, regions of a program. No kernel runs for them. ConcatBitcast gives slices that were
# copied to one place, side by side, the name of the whole. AsyncCollective… and PrepareAsyncCall… mark where other work begins and ends.
_TARGETS = """
Sharding SPMDFullToShardShape SPMDShardToFullShape ShardBarrierFrom ShardBarrierTo InspectSharding CustomSPMDPartitioning
xla.sdy.* annotate_device_placement MoveToHost MoveToDevice PinToDevice PinToDeviceSram Pin Unpin LayoutConstraint SetBound
AllocateBuffer AsyncCollectiveDone AsyncCollectiveStart PrepareAsyncCallDone PrepareAsyncCallStart CreateBuffer ConcatBitcast
AssumeGatherIndicesInBound GatherScatterIndicesBitpacked GetRngSeed
__xla_internal_call_marker_before __xla_internal_call_marker_after xla.debug.Log shape_assertion stablehlo.dynamic_*
"""
ANNOTATIONS = tuple(_TARGETS.split())


@call(*ANNOTATIONS)
def annotation(site: Site) -> Price:
    """An annotation: no kernel runs."""
    return Price(NOTHING, "annotation")


@call("PadToStatic", "SliceToDynamic", "X64SplitLow", "X64SplitHigh", "X64Combine", "MemsetFromValue")
def movement(site: Site) -> Price:
    """A copy or a change of layout or format: every operand is read and every result written once."""
    return priced(site, NOTHING, "data movement")


@call("xla_python_cpu_callback", "xla_python_gpu_callback", "xla_ffi_python_*", "xla_ffi_partitioned_python_*", "xla_buffer_python_*")
def callback(site: Site) -> Price:
    """A call into Python on the host: operands and results cross PCIe; its arithmetic is unknown."""
    own = traffic(site, results(site))
    crossed = sum(shape.bytes for shape in (*(operand.shape for operand in site.operands), *results(site)))
    cost = own + Cost.of({UNNAMED_WORK: None})
    return Price(
        cost + Cost.of({PCIE: crossed}) if site.platform != "cpu" else cost, "host callback", ("the cost of the callback is unknown",)
    )
