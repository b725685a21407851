"""Small profiles of made-up devices: a program in HLO, and the events its instructions leave.

    add = Instruction("add.1", "add", ("x",))
    program = hlo("jit_f", {"main": [Instruction("x", "parameter"), add]})
    data = space([gpu([kernel("add_1", 0, 10, hlo_op="add.1", program_id=7)]), programs({7: program})])

Every array is ``f32[1024]`` unless its instruction says otherwise, so an ``add`` is 1024 FLOP and 12,288 bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofline.sources import read
from roofline.workload import Op, Recording
from xspace_writer import Event, Line, Metadata, Plane, Value, bytes_field, number_field, space

ELEMENTS = 1024
ADD_FLOP, ADD_BYTES = ELEMENTS, 3 * 4 * ELEMENTS
TYPES = {"pred": 1, "s8": 2, "s32": 4, "f32": 11, "bf16": 16}
PS = 10**-12
MICROSECOND = 10**6  # in picoseconds


@dataclass(frozen=True)
class Instruction:
    """An instruction: operands by name, called computations by name."""

    name: str
    opcode: str
    operands: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    dims: tuple[int, ...] = (ELEMENTS,)
    dtype: str = "f32"
    target: str = ""
    config: str = ""
    op_name: str = ""


def hlo(name: str, computations: Mapping[str, Sequence[Instruction]], id: int = 1) -> bytes:
    """A program as HloProto. The last computation is the entry, an instruction's number is 100 times its computation's plus its own."""
    numbers = {computation: place + 1 for place, computation in enumerate(computations)}
    out = bytes_field(1, name.encode())
    for computation, instructions in computations.items():
        ids = {one.name: 100 * numbers[computation] + place for place, one in enumerate(instructions)}
        body = bytes_field(1, computation.encode())
        parameters = 0
        for one in instructions:
            body += bytes_field(2, _instruction(one, ids, numbers, parameters))
            parameters += one.opcode == "parameter"
        out += bytes_field(3, body + number_field(5, numbers[computation]) + number_field(6, ids[instructions[-1].name]))
    return bytes_field(1, out + number_field(5, id) + number_field(6, len(numbers)))


def _instruction(one: Instruction, ids: Mapping[str, int], numbers: Mapping[str, int], parameters: int) -> bytes:
    layout = bytes_field(1, b"".join(bytes([axis]) for axis in reversed(range(len(one.dims)))))
    dims = b"".join(number_field(3, size) for size in one.dims)
    out = bytes_field(1, one.name.encode()) + bytes_field(2, one.opcode.encode())
    out += bytes_field(3, number_field(2, TYPES[one.dtype]) + dims + bytes_field(5, layout))
    out += bytes_field(7, bytes_field(2, one.op_name.encode())) if one.op_name else b""
    out += number_field(9, parameters) if one.opcode == "parameter" else b""
    out += bytes_field(28, one.target.encode()) if one.target else b""
    out += bytes_field(43, one.config.encode()) if one.config else b""
    out += number_field(35, ids[one.name])
    out += b"".join(number_field(36, ids[operand]) for operand in one.operands)
    return out + b"".join(number_field(38, numbers[computation]) for computation in one.calls)


def programs(modules: Mapping[int, bytes], names: Mapping[int, str] | None = None) -> Plane:
    """The plane of metadata that carries programs by id."""
    known = names or {}
    return Plane(
        "/host:metadata",
        metadata=[
            Metadata(f"{known.get(id, 'jit_f')}({id})", stats={"Hlo Proto": data, "program_id": id}, id=place)
            for place, (id, data) in enumerate(modules.items(), start=1)
        ],
    )


def kernel(name: str, start: int, duration: int, **stats: Value) -> Event:
    """A device event."""
    return Event(name, start, duration, stats)


def gpu(*streams: Sequence[Event], number: int = 0, stats: Mapping[str, Value] | None = None) -> Plane:
    """A GPU with some streams."""
    lines = [Line(f"Stream #{place}(Compute)", events, id=place) for place, events in enumerate(streams, start=1)]
    return Plane(f"/device:GPU:{number}", lines, {"gpu_device_name": "NVIDIA H200", **(stats or {})})


def host(*threads: Sequence[Event]) -> Plane:
    """The host's threads."""
    return Plane("/host:CPU", [Line(f"thread {place}", events, id=place) for place, events in enumerate(threads, start=1)])


def annotation(number: int, start: int, duration: int, name: str = "train") -> Event:
    """A step as a program annotates it."""
    return Event(name, start, duration, {"_r": 1, "step_num": number})


def launch(id: int, start: int, duration: int = 1, name: str = "cuLaunchKernel", **stats: Value) -> Event:
    """A launch on the host."""
    return Event(name, start, duration, {"correlation_id": id, **stats})


def write(folder: Path, planes: Sequence[Plane], name: str = "host.xplane.pb", hostnames: Sequence[str] = ("host",)) -> Path:
    """A profile on disk."""
    path = folder / name
    path.write_bytes(space(planes, hostnames))
    return path


def recorded(folder: Path, *planes: Plane) -> Recording:
    """What is read from a profile of these planes."""
    return read(write(folder, planes))


def by_name(recording: Recording) -> dict[str, Op]:
    """The operations of a recording, each of which has a name of its own."""
    found = {op.name: op for op in recording.workload}
    assert len(found) == len(recording.workload)
    return found
