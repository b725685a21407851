"""Shardings from their protobuf, spelled as HLO text spells them: ``{devices=[2,4]<=[8]}``, ``{replicated}``."""

from ..ir.attributes import DeviceGrid
from ..ir.malformed import Malformed
from .wire import unpack

MAX_DEPTH = 100

# OpSharding: type = 1, tile_assignment_dimensions = 3, tile_assignment_devices = 4, tuple_shardings = 5, replicate_on_last_tile_dim = 6,
# last_tile_dims = 8, iota_reshape_dims = 9, iota_transpose_perm = 10, is_shard_group = 11, shard_group_id = 12, shard_group_type = 13,
# named_sharding = 14.
_PLAN = "1i 3i* 4i* 5b* 6i 8i* 9i* 10i* 11i 12i 13i 14b?"
# MeshProto: axes = 1 with name = 1 and size = 2, device_ids = 2, iota_transform = 3 with reshape_dims = 1 and transpose_perm = 2.
MESH = "1(1t 2i)* 2i* 3(1i* 2i*)?"
# AxisRefProto: the axis' number = 1, sub_axis_info = 2 with pre_size = 1, the size before the sub-axis, and size = 2.
AXIS = "1i 2(1i? 2i)"
# NamedShardingProto: mesh = 2, dim_shardings = 3 with axes = 1 and is_closed = 2, replicated_axes = 4, unreduced_axes = 5,
# manual_axes = 7, and how the unreduced are to be reduced = 8.
_NAMED = f"2({MESH}) 3(1({AXIS})* 2i)* 4({AXIS})* 5({AXIS})* 7({AXIS})* 8i"

Axis = tuple[int, tuple[int | None, int]]
Axes = tuple[tuple[str, int], ...]

# OpSharding.Type
_TYPES = {0: "replicated", 1: "maximal", 2: "tuple", 3: "other", 4: "manual", 5: "unknown", 6: "unreduced"}
_REDUCTIONS = {1: "max", 2: "min"}  # NamedShardingProto.ReductionOpProto; 0 is a sum, and not written


def _joined(numbers: tuple[int, ...], separator: str = ",") -> str:
    return separator.join(map(str, numbers))


def sharding_text(data: bytes, depth: int = 0) -> str:
    """An OpSharding message in the spelling of HLO text, without its metadata."""
    if depth > MAX_DEPTH:
        raise Malformed(f"shardings nested deeper than {MAX_DEPTH}")
    number, dims, listed, parts, replicate, last, reshape, order, is_group, group, like, named = unpack(_PLAN, data)
    if named is not None:
        return _named(named)
    kind = _TYPES.get(number, "unknown")
    if kind == "tuple":
        return "{" + ", ".join([sharding_text(part, depth + 1) for part in parts]) + "}"
    if kind == "maximal":
        return f"{{maximal device={_joined(listed[:1]) or 0}}}"
    if kind != "other":
        return f"{{{kind}}}"
    devices = f"<={grid_text(DeviceGrid(reshape, order))}" if reshape else _joined(listed)
    text = f"devices=[{_joined(dims)}]{devices}"
    if replicate:
        text += " last_tile_dim_replicate"
    if last:
        text += f" last_tile_dims={{{', '.join(_TYPES.get(number, 'unknown') for number in last)}}}"
    if is_group:
        text += f" {'shard_like' if like else 'shard_as'} {group}"
    return f"{{{text}}}"


def grid_text(grid: DeviceGrid) -> str:
    return f"[{_joined(grid.reshape)}]" + (f"T({_joined(grid.order)})" if len(grid.reshape) > 1 else "")


def part_of_axis(axis: Axis) -> tuple[int, int, int]:
    """The axis' number, the size before its sub-axis, and the sub-axis' size (0 for the whole axis)."""
    number, (before, size) = axis
    return number, 1 if before is None else before, size


def _named(data: bytes) -> str:
    """A NamedShardingProto: ``{mesh['x'=2,'y'=4], [{'x'}, {}]}``."""
    (axes, devices, iota), dims, replicated, unreduced, manual, reduction = unpack(_NAMED, data)
    mesh = "mesh[" + ",".join([f"'{name}'={size}" for name, size in axes]) + "]"
    grid = None if iota is None else DeviceGrid(*iota)
    if devices:
        mesh += f", device_ids=({_joined(devices)})"
    elif grid is not None and len(grid.reshape) > 1:
        mesh += f", device_ids=({grid_text(grid)})"
    written = [_axis_texts(along, axes, *(() if closed else ("?",))) for along, closed in dims]
    text = f"{mesh}, [{', '.join(written)}]"
    for name, along in (("replicated=", replicated), ("unreduced=" + _REDUCTIONS.get(reduction, ""), unreduced), ("manual=", manual)):
        if along:
            text += f", {name}{_axis_texts(along, axes)}"
    return f"{{{text}}}"


def _axis_texts(along: tuple[Axis, ...], axes: Axes, *more: str) -> str:
    return "{" + ", ".join([*[_axis_text(axis, axes) for axis in along], *more]) + "}"


def _axis_text(axis: Axis, axes: Axes) -> str:
    number, before, size = part_of_axis(axis)
    if not 0 <= number < len(axes):
        raise Malformed(f"the mesh has no axis {number}")
    return f"'{axes[number][0]}'" + (f":({before}){size}" if size else "")
