"""Shardings from their protobuf, spelled as HLO text spells them: ``{devices=[2,4]<=[8]}``, ``{replicated}``."""

from .malformed import Malformed
from .values import DeviceGrid
from .wire import Field, all_numbers, expect, fields, last_fields, number_of, numbers_of, text_of

MAX_DEPTH = 100

# OpSharding.Type
_TYPES = {0: "replicated", 1: "maximal", 2: "tuple", 3: "other", 4: "manual", 5: "unknown", 6: "unreduced"}
_REDUCTIONS = {1: "max", 2: "min"}  # NamedShardingProto.ReductionOpProto; 0 is a sum, and not written


def _joined(numbers: tuple[int, ...], separator: str = ",") -> str:
    return separator.join(map(str, numbers))


def sharding_text(data: bytes, start: int, end: int, depth: int = 0) -> str:
    """An OpSharding message in the spelling of HLO text, without its metadata."""
    if depth > MAX_DEPTH:
        raise Malformed(f"shardings nested deeper than {MAX_DEPTH}", start)
    single = last_fields(data, start, end)
    named = single.get(14)  # named_sharding
    if named is not None:
        return _named(data, named)
    kind = _TYPES.get(number_of(single[1]) if 1 in single else 0, "unknown")
    if kind == "tuple":
        # tuple_shardings = 5
        parts = [
            sharding_text(data, field[2], field[3], depth + 1) for field in fields(data, start, end) if field[0] == 5 and field[1] == 2
        ]
        return "{" + ", ".join(parts) + "}"
    # tile_assignment_dimensions = 3, tile_assignment_devices = 4, last_tile_dims = 8, iota_reshape_dims = 9, iota_transpose_perm = 10
    lists = all_numbers(data, start, end, 3, 4, 8, 9, 10)
    if kind == "maximal":
        return f"{{maximal device={_joined(lists[4][:1]) or 0}}}"
    if kind != "other":
        return f"{{{kind}}}"
    devices = _joined(lists[4]) if not lists[9] else f"<={grid_text(DeviceGrid(lists[9], lists[10]))}"
    text = f"devices=[{_joined(lists[3])}]{devices}"
    if 6 in single and number_of(single[6]):  # replicate_on_last_tile_dim
        text += " last_tile_dim_replicate"
    if lists[8]:
        text += f" last_tile_dims={{{', '.join(_TYPES.get(number, 'unknown') for number in lists[8])}}}"
    if 11 in single and number_of(single[11]):  # is_shard_group, with shard_group_id = 12 and shard_group_type = 13
        group = number_of(single[12]) if 12 in single else 0
        text += f" {'shard_like' if 13 in single and number_of(single[13]) else 'shard_as'} {group}"
    return f"{{{text}}}"


def grid_text(grid: DeviceGrid) -> str:
    return f"[{_joined(grid.reshape)}]" + (f"T({_joined(grid.order)})" if len(grid.reshape) > 1 else "")


def read_mesh(data: bytes, field: Field) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...], DeviceGrid | None]:
    """A MeshProto: its axes by name and size, its devices when they are listed, and when they are a grid."""
    expect(field, 2)
    axes = []
    devices: list[int] = []
    grid = None
    for part in fields(data, field[2], field[3]):
        if part[0] == 1:  # axes: name = 1, size = 2
            expect(part, 2)
            axis = last_fields(data, part[2], part[3])
            axes.append((text_of(data, axis[1]) if 1 in axis else "", number_of(axis[2]) if 2 in axis else 0))
        elif part[0] == 2:  # device_ids
            devices += numbers_of(data, part)
        elif part[0] == 3:  # iota_transform: reshape_dims = 1, transpose_perm = 2
            expect(part, 2)
            lists = all_numbers(data, part[2], part[3], 1, 2)
            grid = DeviceGrid(lists[1], lists[2])
    return tuple(axes), tuple(devices), grid


def read_axis(data: bytes, field: Field) -> tuple[int, int, int]:
    """An AxisRefProto: the axis' number, what lies before the part of it that is meant, the part's size (0 for all of it)."""
    expect(field, 2)
    single = last_fields(data, field[2], field[3])
    before, size = 1, 0
    if 2 in single:  # sub_axis_info: pre_size = 1, size = 2
        expect(single[2], 2)
        part = last_fields(data, single[2][2], single[2][3])
        before = number_of(part[1]) if 1 in part else 1
        size = number_of(part[2]) if 2 in part else 0
    return (number_of(single[1]) if 1 in single else 0), before, size


def _named(data: bytes, field: Field) -> str:
    """A NamedShardingProto: ``{mesh['x'=2,'y'=4], [{'x'}, {}]}``."""
    expect(field, 2)
    axes: tuple[tuple[str, int], ...] = ()
    dims: list[str] = []
    groups: dict[str, list[str]] = {"replicated": [], "unreduced": [], "manual": []}
    names = {4: "replicated", 5: "unreduced", 7: "manual"}  # replicated_axes, unreduced_axes, manual_axes
    mesh, reduction = "mesh[]", ""
    for part in fields(data, field[2], field[3]):
        if part[0] == 2:
            axes, devices, grid = read_mesh(data, part)
            named = [f"'{name}'={size}" for name, size in axes]
            mesh = f"mesh[{','.join(named)}]"
            if devices or (grid is not None and len(grid.reshape) > 1):
                mesh += f", device_ids=({_joined(devices) if devices else grid_text(grid or DeviceGrid(()))})"
        elif part[0] == 3:  # dim_shardings: axes = 1, is_closed = 2
            expect(part, 2)
            inner = list(fields(data, part[2], part[3]))
            written = [_axis_text(data, axis, axes) for axis in inner if axis[0] == 1]
            closed = any(axis[0] == 2 and axis[2] for axis in inner)
            dims.append("{" + ", ".join(written + ([] if closed else ["?"])) + "}")
        elif part[0] in names:
            groups[names[part[0]]].append(_axis_text(data, part, axes))
        elif part[0] == 8:
            reduction = _REDUCTIONS.get(number_of(part), "")
    text = f"{mesh}, [{', '.join(dims)}]"
    for name, members in groups.items():
        if members:
            text += f", {name}={reduction if name == 'unreduced' else ''}{{{', '.join(members)}}}"
    return f"{{{text}}}"


def _axis_text(data: bytes, field: Field, axes: tuple[tuple[str, int], ...]) -> str:
    number, before, size = read_axis(data, field)
    if not 0 <= number < len(axes):
        raise Malformed(f"the mesh has no axis {number}", field[2])
    return f"'{axes[number][0]}'" + (f":({before}){size}" if size else "")
