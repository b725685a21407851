"""Peak memory of a program, from the compiler's buffer assignment or else by liveness analysis."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ...peak_memory import ASSIGNED, IN_PROGRAM_ORDER, LiveBuffer, LiveOwner, LiveScope, PeakMemory
from ...resource import HBM
from ..ir.malformed import Malformed
from ..ir.module import HloModule
from ..ir.platforms import Platform
from ..price.live_values import Value
from ..price.memory_spaces import level_of_space
from ..price.traffic import part_of
from .assignment import Allocation, Instructions, read_assignment
from .buffers import buffer_of, largest_buffers
from .heap import Heap
from .liveness import Liveness
from .owners import ACTIVATIONS, OF_KIND, layers_of, owners_of
from .spaces import memory_spaces

SCHEDULED = "liveness over the schedule"


def peak_memory(module: HloModule, platform: Platform) -> PeakMemory | None:
    """The peak memory of a program on one device; ``None`` if a dimension has no bound."""
    if not all(instruction.shape.is_bounded for instruction in module.instructions):
        return None
    allocations = _allocations(module)
    main = [allocation for allocation in allocations if level_of_space(allocation.memory_space, platform, "write") == HBM]
    peak = _assigned(module, platform, main) if main else _by_liveness(module, platform)
    return replace(peak, spaces=memory_spaces(module, platform, allocations))


def live_bytes(module: HloModule, platform: Platform, peak: PeakMemory) -> dict[str, int]:
    """The bytes of main memory that are live while each instruction of a scheduled program runs, of which the highest are its peak."""
    temporary = Liveness(module, platform).over_program()
    throughout = peak.arguments + peak.outputs - peak.donated + peak.constants
    most = max(temporary.values(), default=0)
    share = (peak.peak_bytes - throughout) / most if most else 0.0  # of the compiler's own allocations, where they are known
    return {name: throughout + round(share * size) for name, size in temporary.items()}


def _allocations(module: HloModule) -> tuple[Allocation, ...]:
    """What the compiler allocated; nothing if the program has no buffer assignment, or a damaged one."""
    try:
        return read_assignment(module.buffer_assignment) if module.buffer_assignment else ()
    except Malformed:
        return ()


def _assigned(module: HloModule, platform: Platform, allocations: Sequence[Allocation]) -> PeakMemory:
    """The peak by the compiler's buffer assignment."""
    instructions, parameters = Instructions(module), module.entry_computation.parameters
    buffers: list[LiveBuffer] = []
    untraced = 0
    for allocation in allocations:
        if not allocation.is_traced:
            untraced += allocation.bytes
            continue
        kind = _kind(allocation)
        sizes = [min(array.bytes, allocation.bytes) if kind == "temporary" else allocation.bytes for array in allocation.arrays]
        for array, size in zip(allocation.arrays, sizes, strict=True):
            maker, path = instructions.find(array), array.path
            if allocation.is_argument and allocation.parameter[0] < len(parameters):
                maker, path = module.entry_computation[parameters[allocation.parameter[0]]], allocation.parameter[1]
            buffers.append(buffer_of(kind, maker, None if maker is None else part_of(maker.shape, path), size))
        buffers.append(LiveBuffer(kind="unused", bytes=allocation.bytes - sum(sizes)))
    if untraced:
        live = _temporaries(module, Liveness(module, platform))
        buffers += [*live, LiveBuffer(kind="unused", bytes=max(untraced - sum(buffer.bytes for buffer in live), 0))]
    gaps = sum(buffer.bytes for buffer in buffers if buffer.kind == "unused")
    peak = _memory(
        module,
        platform,
        ASSIGNED,
        buffers,
        arguments=sum(allocation.bytes for allocation in allocations if allocation.is_argument),
        outputs=sum(allocation.bytes for allocation in allocations if allocation.is_result),
        donated=sum(allocation.bytes for allocation in allocations if allocation.is_result and allocation.is_argument),
        constants=sum(allocation.bytes for allocation in allocations if allocation.is_constant),
        temporaries=sum(
            allocation.bytes for allocation in allocations if not (allocation.is_argument or allocation.is_result or allocation.is_constant)
        ),
    )
    return replace(peak, peak_bytes=peak.peak_bytes - gaps, allocated_bytes=peak.peak_bytes)


def _kind(allocation: Allocation) -> str:
    if allocation.is_argument:
        return "argument"
    if allocation.is_result:
        return "output"
    return "constant" if allocation.is_constant else "temporary"


def _by_liveness(module: HloModule, platform: Platform) -> PeakMemory:
    """The peak by liveness analysis."""
    liveness = Liveness(module, platform)
    values = liveness.values[module.entry]
    entry = module.entry_computation

    def buffer(kind: str, value: Value) -> LiveBuffer:
        return buffer_of(kind, entry[value.index], value.shape, value.bytes)

    arguments = [value for value in values.parameters if value is not None]
    donated = sum(value.bytes for leaf in liveness.values.donated if (value := values.parameters[leaf]) is not None)
    kept = liveness.kept_results()
    results = [value for value in values.root if value is not None]
    constants = [buffer_of("constant", constant, constant.shape, size) for constant, size in liveness.constants()]
    live = liveness.peak(module.entry).bytes
    heap = Heap(liveness).bytes if platform == "tpu" and module.is_scheduled else live
    peak = _memory(
        module,
        platform,
        SCHEDULED if module.is_scheduled else IN_PROGRAM_ORDER,
        [
            *(buffer("argument", value) for value in arguments),
            *(buffer("output", value) for value in kept),
            *constants,
            *_temporaries(module, liveness),
            LiveBuffer(kind="unused", bytes=heap - live),
        ],
        arguments=sum(value.bytes for value in arguments),
        outputs=sum(value.bytes for value in results),
        donated=donated,
        constants=sum(constant.bytes for constant in constants),
        temporaries=heap,
    )
    return replace(peak, peak_bytes=peak.peak_bytes - (heap - live), allocated_bytes=peak.peak_bytes)


def _temporaries(module: HloModule, liveness: Liveness) -> list[LiveBuffer]:
    """The temporary arrays that are live at the peak."""
    makers = [(module.computations[live.computation][live.value.index], live.value) for live in liveness.peak(module.entry).live]
    return [buffer_of("temporary", maker, value.shape, value.bytes) for maker, value in makers]


def _memory(
    module: HloModule,
    platform: Platform,
    method: str,
    buffers: Iterable[LiveBuffer],
    *,
    arguments: int,
    outputs: int,
    donated: int,
    constants: int,
    temporaries: int,
) -> PeakMemory:
    every = list(buffers)
    scopes: dict[tuple[str, str], list[int]] = {}
    for buffer in every:
        if buffer.bytes:
            scopes.setdefault((buffer.kind, buffer.scope), []).append(buffer.bytes)
    rows = [LiveScope(kind=kind, scope=where, bytes=sum(sizes), buffers=len(sizes)) for (kind, where), sizes in scopes.items()]
    return PeakMemory(
        program=module.name,
        method=method,
        peak_bytes=arguments + outputs - donated + constants + temporaries,
        arguments=arguments,
        outputs=outputs,
        donated=donated,
        constants=constants,
        temporaries=temporaries,
        at_peak=tuple(sorted(rows, key=lambda row: (-row.bytes, row.kind, row.scope))),
        owners=_by_owner(module, platform, every),
        largest=largest_buffers(module, every),
    )


def _by_owner(module: HloModule, platform: Platform, buffers: Iterable[LiveBuffer]) -> tuple[LiveOwner, ...]:
    """The arrays by what they are for, the most bytes first."""
    owners = owners_of(module, platform)
    holders: dict[str, list[LiveBuffer]] = {}
    for buffer in buffers:
        if buffer.bytes:
            holders.setdefault(owners.get(buffer.name, OF_KIND[buffer.kind]), []).append(buffer)
    rows = [
        LiveOwner(
            owner=owner,
            bytes=sum(buffer.bytes for buffer in own),
            buffers=len(own),
            padding=sum(buffer.padding for buffer in own),
            layers=layers_of(module, own) if owner == ACTIVATIONS else (),
        )
        for owner, own in holders.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))
