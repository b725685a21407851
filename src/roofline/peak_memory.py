"""Peak memory: what a program needs on a device, by kind, scope, purpose and space."""

import re
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from .dtypes import dtype, is_dtype

RECORDED_ALLOCATIONS = "allocations in the profile"  # how the peak memory of a program that ran is found
ASSIGNED = "buffer assignment"  # the compiler's own, from which the peak memory of a program is known
IN_PROGRAM_ORDER = "liveness in program order"  # how the peak memory of a program that is not compiled is found
_SHAPE = re.compile(r"(?P<format>\w+)\[(?P<sizes>[\d,]*)\]")


class LiveBuffer(Struct, frozen=True, kw_only=True):
    """An array in memory: the instruction that makes it, that instruction's scope and source line, its shape and bytes.

    ``kind`` is ``argument``, ``output``, ``constant`` or ``temporary``; ``unused`` is memory between them that no array fits in.
    """

    kind: str
    bytes: int
    name: str = ""
    scope: str = ""
    shape: str = ""
    location: str = ""

    @property
    def padding(self) -> int:
        """The bytes that the layout adds to the elements; 0 where the shape is not known.

        >>> LiveBuffer(kind="temporary", bytes=2048, shape="f32[4,64]").padding
        1024
        """
        match = _SHAPE.fullmatch(self.shape)
        if match is None or not is_dtype(match["format"]):
            return 0
        return max(self.bytes - int(dtype(match["format"]).bytes(prod(int(side) for side in match["sizes"].split(",") if side))), 0)


class LiveScope(Struct, frozen=True, kw_only=True):
    """The arrays of one kind and scope that are live at the peak: their bytes and how many they are."""

    kind: str
    scope: str
    bytes: int
    buffers: int


class LiveLayer(Struct, frozen=True, kw_only=True):
    """The activations of a layer, by its scope, or of so many ``layers`` of a loop, which have as much each."""

    layer: str
    bytes: int
    layers: int = 1


class LiveOwner(Struct, frozen=True, kw_only=True):
    """The arrays live at the peak that are for one purpose: ``weights``, ``optimizer``, ``activations``, …; their bytes and how many.

    ``padding`` is what the layouts add to the arrays' elements; ``layers`` are the activations by layer.
    """

    owner: str
    bytes: int
    buffers: int
    padding: int = 0
    layers: tuple[LiveLayer, ...] = ()

    def divided(self, devices: int) -> "LiveOwner":
        """One device's share."""
        layers = tuple(replace(layer, bytes=layer.bytes // devices) for layer in self.layers)
        return replace(self, bytes=self.bytes // devices, padding=self.padding // devices, layers=layers)


class MemorySpace(Struct, frozen=True, kw_only=True):
    """The peak of one of a TPU's small memories: ``vmem``, or ``smem`` for scalars.

    ``peak_bytes`` is ``arrays_bytes``, of the arrays that live there, and ``scoped_bytes``: windows, scratch and spilled registers of the
    kernel ``at`` that runs then. ``largest`` are the largest arrays. Without the compiler's buffer assignment that is what is live at once:
    gaps between arrays come on top. With it ``arrays_bytes`` is the most that arrays ever take, where kernels use part of it between them.
    """

    space: str
    peak_bytes: int
    arrays_bytes: int
    scoped_bytes: int
    capacity_bytes: int | float | None = None
    at: str = ""
    largest: tuple[LiveBuffer, ...] = ()


class LiveMoment(Struct, frozen=True, kw_only=True):
    """The most main memory that is in use in one part of a step: when the part begins, its bytes, and the op that runs then."""

    begin_s: float
    bytes: int
    op: int


class PeakMemory(Struct, frozen=True, kw_only=True):
    """The peak memory of a program on one device, in bytes, and what it consists of.

    ``allocated_bytes`` is arguments + outputs − donated + constants + temporaries; ``donated`` are outputs in the memory of an argument.
    ``peak_bytes`` is that without the gaps between temporaries of a heap that is known, in which no array fits: what is live at once.
    ``method`` is ``buffer assignment`` (the compiler's own), ``liveness over the schedule``, or ``liveness in program order`` of a program
    without a schedule, where a compiler's order may need more or less. ``at_peak`` is what is live then by scope, ``owners`` by purpose,
    ``largest`` its largest arrays. For a profile it is ``allocations in the profile``: only the peak is known, and ``reserved`` is the most
    memory that the framework's allocator reserved. It is that of main memory; ``spaces`` are the peaks of a TPU's small memories.
    ``over_step`` is its course in equal parts of the step, of a program whose schedule was played.
    """

    program: str = ""
    peak_bytes: int
    allocated_bytes: int | None = None
    capacity_bytes: int | float | None = None
    method: str
    arguments: int = 0
    outputs: int = 0
    donated: int = 0
    constants: int = 0
    temporaries: int = 0
    at_peak: tuple[LiveScope, ...] = ()
    owners: tuple[LiveOwner, ...] = ()
    largest: tuple[LiveBuffer, ...] = ()
    reserved: int | None = None
    spaces: tuple[MemorySpace, ...] = ()
    over_step: tuple[LiveMoment, ...] = ()

    @property
    def is_estimate(self) -> bool:
        """Whether the program is not compiled yet, so that the compiler may still change what is live when."""
        return self.method == IN_PROGRAM_ORDER

    @property
    def is_assigned(self) -> bool:
        """Whether the compiler's own allocations are known."""
        return self.method == ASSIGNED

    @property
    def needed_bytes(self) -> int:
        """The memory that a device must have for the program."""
        return self.peak_bytes if self.allocated_bytes is None else self.allocated_bytes

    @property
    def fits(self) -> bool:
        """Whether it is known to fit, or nothing is known against it."""
        return self.capacity_bytes is None or self.needed_bytes <= self.capacity_bytes

    def divided(self, devices: int) -> "PeakMemory":
        """One device's share of a program that is spread evenly over several."""
        kinds = {name: getattr(self, name) // devices for name in ("arguments", "outputs", "donated", "constants", "temporaries")}
        return replace(
            self,
            peak_bytes=self.peak_bytes // devices,
            allocated_bytes=None if self.allocated_bytes is None else self.allocated_bytes // devices,
            at_peak=tuple(replace(live, bytes=live.bytes // devices) for live in self.at_peak),
            owners=tuple(live.divided(devices) for live in self.owners),
            largest=tuple(replace(live, bytes=live.bytes // devices) for live in self.largest),
            **kinds,
        )
