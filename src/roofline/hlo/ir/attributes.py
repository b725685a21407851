"""What attributes of instructions mean, whichever form of the program they were read from."""

import math
from collections.abc import Iterator
from itertools import chain, pairwise, product

from msgspec import Struct

from ...ops.convolution import WindowDimension as WindowDimension
from .malformed import Malformed, excerpt

MAX_DEVICES = 2**22  # replica groups are spelled out one device at a time; no machine is near this
MAX_AXES = 64


Window = tuple[WindowDimension, ...]


class ConvolutionDimensions(Struct, frozen=True, kw_only=True):
    """Which dimension of a convolution's input, kernel and output is what."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


class DotDimensions(Struct, frozen=True, kw_only=True):
    """Which dimensions of a dot's operands are contracted and which are batches; the others are free."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


class SliceRange(Struct, frozen=True):
    """The elements start, start + stride, … below limit of one dimension."""

    start: int
    limit: int
    stride: int = 1


class PadRange(Struct, frozen=True):
    """Elements added before, after and between those of one dimension; before and after may be negative."""

    low: int
    high: int
    interior: int = 0


class DeviceGrid(Struct, frozen=True):
    """Devices 0, 1, 2, … laid out as ``reshape``, transposed by ``order``, read in row-major order: ``<=[2,4]T(1,0)``."""

    reshape: tuple[int, ...]
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.reshape) > MAX_AXES or min(self.reshape, default=1) < 0 or math.prod(self.reshape) > MAX_DEVICES:
            raise Malformed(f"a grid of more than {MAX_DEVICES:,} devices: {excerpt(str(self.reshape))}")
        if self.order and sorted(self.order) != list(range(len(self.reshape))):
            raise Malformed(f"the devices are transposed by {excerpt(str(self.order))}, not an order of {len(self.reshape)} dimensions")

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices in reading order."""
        order = self.order or tuple(range(len(self.reshape)))
        strides = [math.prod(self.reshape[axis + 1 :]) for axis in range(len(self.reshape))]
        devices = [0]
        for axis in order:
            steps = [index * strides[axis] for index in range(self.reshape[axis])]
            devices = [base + step for base, step in product(devices, steps)]
        return tuple(devices)


class Mesh(Struct, frozen=True):
    """Named axes over devices, and the axes a collective runs along; an axis may be split into (before, size) parts."""

    axes: tuple[tuple[str, int], ...]
    along: tuple[tuple[str, int, int], ...]  # axis, product of the parts before this one within the axis, size of this part
    devices: tuple[int, ...] = ()  # in reading order of the axes; empty is 0, 1, 2, …


class ReplicaGroups(Struct, frozen=True):
    """The groups of devices of a collective: ``count`` groups of ``size``.

    Written as lists (``{{0,1},{2,3}}``), as a grid (``[2,4]<=[8]``) or as mesh axes. ``count`` is 0 when all devices form one group
    without being named (``{}``); ``size`` is the largest group's.
    """

    count: int
    size: int
    listed: tuple[tuple[int, ...], ...] = ()
    grid: DeviceGrid | None = None
    mesh: Mesh | None = None

    @staticmethod
    def of_lists(groups: tuple[tuple[int, ...], ...]) -> "ReplicaGroups":
        return ReplicaGroups(len(groups), max(map(len, groups), default=0), groups)

    @staticmethod
    def of_grid(count: int, size: int, grid: DeviceGrid) -> "ReplicaGroups":
        if count < 0 or size < 0 or count * size != math.prod(grid.reshape):
            raise Malformed(f"{count:,} replica groups of {size:,} do not cover the {math.prod(grid.reshape):,} devices of their grid")
        return ReplicaGroups(count, size, grid=grid)

    @staticmethod
    def of_mesh(mesh: Mesh) -> "ReplicaGroups":
        DeviceGrid(tuple(extent for _, extent in mesh.axes))  # refuses what no machine has
        size = math.prod(part for _, _, part in mesh.along)
        total = math.prod(extent for _, extent in mesh.axes)
        if size <= 0 or total <= 0 or total % size:
            raise Malformed(f"replica groups along {excerpt(str(mesh.along))} do not divide a mesh of {total:,} devices")
        _mesh_axes(mesh)
        return ReplicaGroups(total // size, size, mesh=mesh)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Every group's devices, spelled out."""
        if self.grid is not None:
            devices = self.grid.devices
            return tuple(devices[start : start + self.size] for start in range(0, len(devices), max(self.size, 1)))
        if self.mesh is not None:
            return _mesh_groups(self.mesh, self.size)
        return self.listed


def _mesh_axes(mesh: Mesh) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The mesh with its split axes as separate ones: their sizes, and the numbers of those that a group runs along."""
    sizes: list[int] = []
    where: dict[tuple[str, int], int] = {}
    for name, extent in mesh.axes:
        parts = [(before, before * part) for axis, before, part in mesh.along if axis == name]
        for before, after in pairwise(sorted({1, extent, *chain.from_iterable(parts)})):
            if before <= 0 or after % before or after > extent:
                raise Malformed(f"axis {name!r} of size {extent} cannot be split at {before} and {after}")
            where[name, before] = len(sizes)
            sizes.append(after // before)
    chosen: list[int] = []
    for name, before, part in mesh.along:
        while part > 1:
            if (name, before) not in where or where[name, before] in chosen:
                raise Malformed(f"the mesh has no axis {name!r} with {before} before it, or it is used twice")
            axis = where[name, before]
            chosen.append(axis)
            before, part = before * sizes[axis], part // sizes[axis]
    return tuple(sizes), tuple(chosen)


def _mesh_groups(mesh: Mesh, size: int) -> tuple[tuple[int, ...], ...]:
    """Groups along some axes of a mesh: the other axes, in order, number the groups."""
    sizes, chosen = _mesh_axes(mesh)
    rest = tuple(axis for axis in range(len(sizes)) if axis not in chosen)
    places = DeviceGrid(sizes or (1,), (*rest, *chosen)).devices
    devices = tuple(mesh.devices[place] for place in places) if len(mesh.devices) == len(places) else places
    return tuple(devices[start : start + size] for start in range(0, len(devices), size))


class Metadata(Struct, frozen=True, kw_only=True):
    """Where an instruction came from: the framework's name for it, and a source line, directly or through a stack frame."""

    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    stack_frame_id: int = 0


NO_METADATA = Metadata()


class Alias(Struct, frozen=True):
    """An output of the program that takes over the memory of a parameter."""

    output: tuple[int, ...]
    parameter: int
    index: tuple[int, ...] = ()


class OperandAlias(Struct, frozen=True):
    """An output of an instruction that takes over the memory of one of its operands."""

    output: tuple[int, ...]
    operand: int
    index: tuple[int, ...] = ()


class Frame(Struct, frozen=True):
    """A place in the user's source."""

    file: str
    line: int
    function: str = ""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class StackFrames(Struct, frozen=True, kw_only=True):
    """Call stacks, shared: files and functions by number, locations in them, frames with their parents.

    Numbers count from 1 as they do in the program, 0 is none; StackFrameIndexProto, HloModuleProto field 17.
    """

    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    locations: tuple[tuple[int, int, int, int], ...] = ()  # file, function, line, column
    frames: tuple[tuple[int, int], ...] = ()  # location, parent frame

    def trace(self, frame_id: int) -> tuple[Frame, ...]:
        """The frames from the innermost out; a parent that leads back into the trace ends it."""
        return tuple(self._walk(frame_id))

    def _walk(self, frame_id: int) -> Iterator[Frame]:
        seen: set[int] = set()
        while 0 < frame_id <= len(self.frames) and frame_id not in seen:
            seen.add(frame_id)
            location, frame_id = self.frames[frame_id - 1]
            if 0 < location <= len(self.locations):
                file, function, line, column = self.locations[location - 1]
                yield Frame(_numbered(self.files, file), line, _numbered(self.functions, function), column)


NO_FRAMES = StackFrames()


def _numbered(names: tuple[str, ...], number: int) -> str:
    return names[number - 1] if 0 < number <= len(names) else ""
