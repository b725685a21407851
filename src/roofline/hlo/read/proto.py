"""HloProto and HloModuleProto bytes, read without a protobuf library or jaxlib. Field names are those of xla's hlo.proto.

Only the fields that connect instructions are decoded at once; an instruction keeps its bytes, and attributes are parsed from them on first
use.
"""

from collections.abc import Sequence
from sys import intern

from msgspec import Struct
from msgspec.structs import replace

from ...errors import SourceError
from ...files.input_limits import excess, limits
from ..ir.attributes import Alias, StackFrames
from ..ir.consistency import consistent
from ..ir.malformed import Malformed, excerpt, placed
from ..ir.module import Call, Computation, HloModule, Instruction
from ..ir.opcodes import CALLERS
from ..ir.shapes import Shape
from .proto_attributes import MADE, PLAIN, ZEROES
from .proto_shapes import read_shape
from .proto_sharding import sharding_text
from .wire import BYTES, Field, fields, set_most, unpack

ENTRIES_AN_INSTRUCTION = 8  # the limit on the length of any list in a program, such as its stack frames, per instruction allowed
MAX_WRAPPERS = 4  # HloSnapshot > HloProto > HloModuleProto is the deepest nesting known

# HloModuleProto: name = 1, entry_computation_name = 2, computations = 3, id = 5, entry_computation_id = 6, payloads = 22, and messages:
_MODULE = " ".join(
    (
        "1t 2t 3m* 5i? 6i? 22b*",
        "7(1(1i 2(1i*)?)*)?",  # HloScheduleProto: sequences = 1, a map from computation id to InstructionSequence: instruction_ids = 1
        "8(1(1i* 2i 3i*)*)",  # HloInputOutputAliasProto: entries = 1: output_shape_index, parameter_number, parameter_shape_index
        "12b?",  # spmd_output_sharding: OpSharding
        "15(1i? 2i?)",  # DeviceAssignmentProto: replica_count = 1, computation_count = 2
        # StackFrameIndexProto: file_names = 1, function_names = 2, file_locations = 3 (file_name_id, function_name_id, line, column),
        # stack_frames = 4 (file_location_id, parent_frame_id)
        "17(1t* 2t* 3(1i 2i 3i 4i)* 4(1i 2i)*)",
        "19(1(1t 2t)*)",  # FrontendAttributes: a map from string to string
    )
)
# HloInstructionProto: name, opcode, shape, parameter_number, id, operand_ids, control_predecessor_ids, called_computation_ids; and itself
_INSTRUCTION = "1t 2t 3b? 9i 35i 36i* 37i* 38i* 0m 0b"
_COMPUTATION = f"1t 2({_INSTRUCTION})* 5i 6i"  # HloComputationProto: name, instructions, id, root_id
_ASSIGNMENT = 3

# dimensions = 14 has other names in text for two opcodes.
_DIMENSION_OF = {"iota_dimension": "iota", "inferred_dimension": "reshape"}


class ProtoDialect(Struct, frozen=True):
    """The dialect of instructions from protobuf, whose ``raw`` is the HloInstructionProto message. The module's ``payloads`` are shared."""

    where: str
    payloads: tuple[bytes, ...] = ()

    def attribute(self, raw: object, name: str) -> object | None:
        assert isinstance(raw, bytes)
        value = self._written(raw, name)
        if value is None and name in ZEROES:
            return ZEROES[name].get(unpack("2t", raw)[0])
        return value

    def _written(self, raw: bytes, name: str) -> object | None:
        if name == "dimensions" or name in _DIMENSION_OF:
            return _dimensions(raw, name)
        if name in PLAIN:
            return unpack(PLAIN[name], raw)[0]  # type: ignore[no-any-return]
        for plan, make in MADE.get(name, ()):
            (field,) = unpack(plan, raw)
            if field is not None and (value := make(field)) is not None:
                return value
        return self._config(raw) if name == "backend_config" else None

    def _config(self, raw: bytes) -> str | None:
        """backend_config = 43, or backend_config_payload = 99: value = 1, or id = 2 into the module's payloads."""
        text, payload = unpack("43t? 99(1t? 2i)?", raw)
        if payload is not None:
            text, number = payload
            if text is None:
                return self._payload(number)
        return text  # type: ignore[no-any-return]

    def _payload(self, number: int) -> str:
        if not 0 <= number < len(self.payloads):
            raise Malformed(f"there is no payload {number}; the program has {len(self.payloads)}")
        return self.payloads[number].decode("utf-8", "backslashreplace")

    def names(self, raw: object) -> tuple[str, ...]:
        assert isinstance(raw, bytes)
        return tuple([name for name in (*PLAIN, *MADE, "backend_config") if self._written(raw, name) is not None])

    def unread(self, raw: object) -> None:
        return None

    def place(self, place: int) -> str:
        return f"byte {place:,}"


def _dimensions(raw: bytes, name: str) -> object | None:
    opcode, numbers = unpack("2t 14i*?", raw)
    if opcode not in _DIMENSION_OF.values():
        return numbers if name == "dimensions" else None
    return numbers[0] if numbers and _DIMENSION_OF.get(name) == opcode else None


def parse_proto(data: bytes, where: str = "HLO proto") -> HloModule:
    """The module that an HloModuleProto describes, bare or in an HloProto or snapshot; a `SourceError` names the byte."""
    set_most(ENTRIES_AN_INSTRUCTION * limits().instructions, excess("instructions"))
    try:
        return _ModuleReader(data, where).read()
    except Malformed as error:
        raise placed(error, where, "byte", error.offset or 0) from None
    except RecursionError:
        raise SourceError(f"{where}: nested too deeply") from None
    finally:
        set_most(limits().values, excess("values"))  # the limit for a constant's elements, which are parsed later


class _ModuleReader:
    """Reads the message of a module in one pass."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.dialect = ProtoDialect(where)
        self.shapes: dict[bytes, Shape] = {}
        self.schedule: dict[int, tuple[int, ...]] = {}
        self.numbers: dict[int, int] = {}
        self.remaining = limits().instructions

    def read(self) -> HloModule:
        data = self.data
        start, end, assignment = unwrap(data)
        whole = unpack(_MODULE, data, start, end)
        name, entry_name, bodies, identity, entry, payloads, schedule, aliases, sharding, devices, frames, attributes = whole
        if not bodies:
            raise Malformed("no computation; is the data cut off, or not an HLO program?", start)
        self.dialect = replace(self.dialect, payloads=payloads)
        if schedule is not None:
            self.schedule = {computation: order[0] for computation, order in schedule[0] if order is not None}
        # Ids first: a computation may call a later one.
        for number, body in enumerate(bodies):
            (computation,) = unpack("5i", data, *body)
            if computation in self.numbers:
                raise Malformed(f"a second computation with id {computation}", body[0])
            self.numbers[computation] = number
        computations = []
        for body in bodies:
            computations.append(self._computation(*body))
            self.remaining -= len(computations[-1])
            if self.remaining < 0:
                raise Malformed(excess("instructions"), body[0])
        return HloModule(
            name=name,
            computations=consistent(computations),
            entry=self._entry(entry, entry_name, computations, start),
            id=identity,
            is_scheduled=schedule is not None,
            replica_count=1 if devices[0] is None else devices[0],
            num_partitions=1 if devices[1] is None else devices[1],
            aliases=tuple([Alias(output, number, index) for output, number, index in aliases[0]]),
            frontend_attributes=dict(attributes[0]),
            frames=StackFrames(files=frames[0], functions=frames[1], locations=frames[2], frames=frames[3]),
            buffer_assignment=assignment,
            result_sharding=sharding_text(sharding) if sharding else "",
        )

    def _entry(self, identity: int | None, name: str, computations: Sequence[Computation], start: int) -> int:
        if identity is not None or not name:
            if (identity or 0) not in self.numbers:
                raise Malformed(f"no computation has the entry's id {identity or 0}", start)
            return self.numbers[identity or 0]
        names = {computation.name: number for number, computation in enumerate(computations)}
        if name not in names:
            raise Malformed(f"no computation is named {excerpt(name)}, which is the entry's name", start)
        return names[name]

    def _computation(self, offset: int, end: int) -> Computation:
        name, rows, identity, root = unpack(_COMPUTATION, self.data, offset, end)
        if not rows:
            raise Malformed(f"the computation {excerpt(name)} is empty", offset)
        order = self._order(identity, [row[4] for row in rows], offset)
        index = dict(zip(order, range(len(order)), strict=True))
        if root not in index:
            raise Malformed(f"the computation {excerpt(name)} has no instruction with its root's id {root}", offset)
        data, shapes, dialect, position_of = self.data, self.shapes, self.dialect, index.__getitem__
        instructions: list[Instruction] = [None] * len(rows)  # type: ignore[list-item]
        parameters: list[tuple[int, int]] = []
        for label, opcode, key, parameter, number, used, awaited, called, (start, stop), raw in rows:
            if not opcode or key is None:
                raise Malformed(f"the instruction {excerpt(label)} has no {'shape' if opcode else 'opcode'}", start)
            shape = shapes.get(key)
            if shape is None:
                shape = read_shape(data, unpack("3m", data, start, stop)[0], shapes)
            position = index[number]
            if opcode == "parameter":
                parameters.append((parameter, position))
            try:
                operands = tuple(map(position_of, used))
                control = tuple(map(position_of, awaited)) if awaited else ()
            except KeyError as error:
                raise Malformed(f"{excerpt(label)} uses the instruction {error}, which its computation does not have", start) from None
            calls = self._calls(label, opcode, called, start) if called else ()
            instructions[position] = Instruction(label, intern(opcode), shape, operands, calls, control, start, raw, dialect)
        parameters.sort()
        if [number for number, _ in parameters] != list(range(len(parameters))):
            raise Malformed(f"the parameters of {excerpt(name)} are not numbered 0, 1, 2, …", offset)
        return Computation(
            name=intern(name),
            instructions=tuple(instructions),
            root=index[root],
            parameters=tuple([position for _, position in parameters]),
        )

    def _order(self, identity: int, ids: list[int], offset: int) -> Sequence[int]:
        """The ids of a computation's instructions in the order of its schedule, or of the file."""
        distinct = set(ids)
        if len(distinct) != len(ids):
            raise Malformed("two instructions of a computation have one id", offset)
        order = self.schedule.get(identity)
        if order is None:
            return ids
        if len(order) != len(ids) or distinct.symmetric_difference(order):
            raise Malformed("the schedule of a computation does not name each of its instructions once", offset)
        return order

    def _calls(self, name: str, opcode: str, called: tuple[int, ...], offset: int) -> tuple[Call, ...]:
        if opcode in ("async-update", "async-done"):
            return ()  # they repeat the calls of their async-start
        roles = CALLERS.get(opcode, ("calls",))
        calls = []
        for position, identity in enumerate(called):
            if identity not in self.numbers:
                raise Malformed(f"{excerpt(name)} calls the computation {identity}, which the program does not have", offset)
            calls.append(Call(roles[min(position, len(roles) - 1)], self.numbers[identity]))
        return tuple(reversed(calls)) if opcode == "while" else tuple(calls)


def unwrap(data: bytes) -> tuple[int, int, bytes]:
    """Where the HloModuleProto is: the data itself, or field 1 of an HloProto (hlo_module) or snapshot (hlo); and its buffer assignment.

    All of them begin with field 1; a module's is its name, a wrapper's a message, which begins with its own field 1.
    """
    start, end = 0, len(data)
    around: list[Field] = []
    for _ in range(MAX_WRAPPERS):
        inner = fields(data, start, end)
        if not inner:
            raise Malformed("the data is empty", start)
        first = inner[0]
        if first[0] != 1 or first[1] != BYTES or data[first[2] : first[2] + 1] != b"\n":
            break
        start, end, around = first[2], first[3], inner
    # buffer_assignment = 3 of the HloProto directly around the module
    assignment = next((data[begin:stop] for number, kind, begin, stop in around if number == _ASSIGNMENT and kind == BYTES), b"")
    return start, end, assignment
