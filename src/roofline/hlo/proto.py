"""HloProto and HloModuleProto bytes, decoded by hand: no protobuf library, no jaxlib. Field names are those of xla's hlo.proto.

Of an instruction only what ties it to others is decoded at once; it keeps its own bytes, and attributes are read from them when
somebody asks.
"""

from functools import lru_cache
from sys import intern

from ..errors import SourceError
from ..value import field, record, replace, value
from .fields import READERS, ZEROES, read_map
from .malformed import Malformed, excerpt, placed
from .module import Call, Computation, HloModule, Instruction, build
from .opcodes import CALLERS
from .protoshapes import read_shape
from .shapes import Shape
from .values import NO_FRAMES, Alias, StackFrames
from .wire import BYTES, Field, all_numbers, expect, fields, last_fields, number_of, numbers_of, text_of

MAX_WRAPPERS = 4  # HloSnapshot > HloProto > HloModuleProto is as deep as it gets


_DIMENSION_OF = {"iota_dimension": "iota", "inferred_dimension": "reshape"}


@value(kw_only=False)
class ProtoDialect:
    """Attributes of an HloInstructionProto: an instruction keeps its message. ``payloads`` are shared by the whole module."""

    where: str
    payloads: tuple[bytes, ...] = field(default=(), repr=False)

    def attribute(self, raw: object, name: str) -> object | None:
        assert isinstance(raw, bytes)
        if name == "backend_config":
            return self._config(raw)
        present = _present(raw)
        opcode = text_of(raw, present[2][-1]) if 2 in present else ""
        if name in _DIMENSION_OF or (name == "dimensions" and opcode in _DIMENSION_OF.values()):
            # dimensions = 14 serves two opcodes under names of their own in text.
            if _DIMENSION_OF.get(name) != opcode:
                return None
            return next((number for part in present.get(14, ()) for number in numbers_of(raw, part)), None)
        for number, read in READERS.get(name, ()):
            if number in present:
                value = read(raw, present[number])
                if value is not None:
                    return value
        return ZEROES.get((opcode, name))

    def _config(self, raw: bytes) -> str | None:
        """backend_config = 43, or backend_config_payload = 99: value = 1, or id = 2 into the module's payloads."""
        single = last_fields(raw)
        if 99 in single:
            expect(single[99], BYTES)
            payload = last_fields(raw, single[99][2], single[99][3])
            if 1 in payload:
                return text_of(raw, payload[1])
            number = number_of(payload[2]) if 2 in payload else 0
            if not 0 <= number < len(self.payloads):
                raise Malformed(f"there is no payload {number}; the module has {len(self.payloads)}")
            return self.payloads[number].decode("utf-8", "backslashreplace")
        return text_of(raw, single[43]) if 43 in single else None

    def names(self, raw: object) -> tuple[str, ...]:
        assert isinstance(raw, bytes)
        present = {part[0] for part in fields(raw)}
        named = [name for name, readers in READERS.items() if any(number in present for number, _ in readers)]
        return tuple(name for name in (*named, "backend_config") if self.attribute(raw, name) is not None)

    def place(self, place: int) -> str:
        return f"byte {place:,}"


@lru_cache(maxsize=256)
def _present(raw: bytes) -> dict[int, list[Field]]:
    """The fields of an instruction's message, by number; several attributes of one instruction are asked for in a row."""
    present: dict[int, list[Field]] = {}
    for part in fields(raw):
        present.setdefault(part[0], []).append(part)
    return present


def parse_proto(data: bytes, where: str = "HLO proto") -> HloModule:
    """The module that an HloModuleProto describes, bare or in an HloProto or snapshot; a `SourceError` names the byte."""
    try:
        return _Reader(data, where).read()
    except Malformed as error:
        raise placed(error, where, "byte", error.offset or 0) from None
    except RecursionError:
        raise SourceError(f"{where}: nested too deeply") from None


class _Reader:
    """One pass over the message of a module."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.dialect = ProtoDialect(where)
        self.shapes: dict[bytes, Shape] = {}
        self.words: dict[bytes, str] = {}
        self.schedule: dict[int, list[int]] = {}
        self.numbers: dict[int, int] = {}

    def read(self) -> HloModule:
        data = self.data
        start, end = unwrap(data)
        parts: dict[int, list[Field]] = {}
        for part in fields(data, start, end):
            parts.setdefault(part[0], []).append(part)
        single = {number: found[-1] for number, found in parts.items()}
        if 3 not in parts:
            raise Malformed("no computation; is the data cut off, or not an HLO module?", start)
        payloads = []
        for part in parts.get(22, ()):  # payloads
            expect(part, BYTES)
            payloads.append(data[part[2] : part[3]])
        self.dialect = replace(self.dialect, payloads=tuple(payloads))
        if 7 in single:
            self.schedule = self._schedule(single[7])
        # Ids first: a computation may call one that stands after it.
        bodies = []
        for number, part in enumerate(parts[3]):
            expect(part, BYTES)
            bodies.append(list(fields(data, part[2], part[3])))
            identity = next((number_of(inner) for inner in bodies[-1] if inner[0] == 5), 0)
            if identity in self.numbers:
                raise Malformed(f"a second computation with id {identity}", part[2])
            self.numbers[identity] = number
        computations = tuple([self._computation(part, body) for part, body in zip(parts[3], bodies, strict=True)])
        parameters, result = self._program_shape(single.get(4))
        replicas, partitions = self._devices(single.get(15))
        return HloModule(
            name=text_of(data, single[1]) if 1 in single else "",
            computations=computations,
            entry=self._entry(single, computations, start),
            form="hlo proto",
            id=number_of(single[5]) if 5 in single else None,
            is_scheduled=7 in single,
            replica_count=replicas,
            num_partitions=partitions,
            aliases=self._aliases(single.get(8)),
            parameter_shapes=parameters,
            result_shape=result,
            frontend_attributes=read_map(data, [single[19]]) if 19 in single else {},
            frames=self._frames(single[17]) if 17 in single else NO_FRAMES,
        )

    def _entry(self, single: dict[int, Field], computations: tuple[Computation, ...], start: int) -> int:
        """entry_computation_id = 6, entry_computation_name = 2"""
        identity = number_of(single[6]) if 6 in single else 0
        if 6 in single or 2 not in single:
            if identity not in self.numbers:
                raise Malformed(f"no computation has the entry's id {identity}", start)
            return self.numbers[identity]
        name = text_of(self.data, single[2])
        names = {computation.name: number for number, computation in enumerate(computations)}
        if name not in names:
            raise Malformed(f"no computation is named {excerpt(name)}, which is the entry's name", start)
        return names[name]

    def _schedule(self, part: Field) -> dict[int, list[int]]:
        """HloScheduleProto: sequences = 1, a map from computation id to InstructionSequence: instruction_ids = 1."""
        expect(part, BYTES)
        found: dict[int, list[int]] = {}
        for entry in fields(self.data, part[2], part[3]):
            if entry[0] != 1:
                continue
            expect(entry, BYTES)
            pair = last_fields(self.data, entry[2], entry[3])
            if 2 in pair:
                expect(pair[2], BYTES)
                found[number_of(pair[1]) if 1 in pair else 0] = list(all_numbers(self.data, pair[2][2], pair[2][3], 1)[1])
        return found

    def _computation(self, part: Field, body: list[Field]) -> Computation:
        """HloComputationProto: name = 1, instructions = 2, id = 5, root_id = 6, execution_thread = 8."""
        data = self.data
        name, thread, identity, root = "", "", 0, 0
        messages: list[Field] = []
        for inner in body:
            number = inner[0]
            if number == 2:
                messages.append(inner)
            elif number == 1:
                name = text_of(data, inner)
            elif number == 5:
                identity = number_of(inner)
            elif number == 6:
                root = number_of(inner)
            elif number == 8:
                thread = text_of(data, inner)
        if not messages:
            raise Malformed(f"the computation {excerpt(name)} is empty", part[2])
        drafts = [self._instruction(message) for message in messages]
        order = self._order(identity, [draft.identity for draft in drafts], part[2])
        index = {identity: position for position, identity in enumerate(order)}
        drafts.sort(key=lambda draft: index[draft.identity])
        if root not in index:
            raise Malformed(f"the computation {excerpt(name)} has no instruction with its root's id {root}", part[2])
        parameters = {draft.parameter: position for position, draft in enumerate(drafts) if draft.opcode == "parameter"}
        count = sum(draft.opcode == "parameter" for draft in drafts)
        if sorted(parameters) != list(range(count)):
            raise Malformed(f"the parameters of {excerpt(name)} are not numbered 0, 1, 2, …", part[2])
        return Computation(
            name=intern(name),
            instructions=tuple([self._finish(draft, index) for draft in drafts]),
            root=index[root],
            parameters=tuple(parameters[number] for number in range(count)),
            execution_thread=thread,
        )

    def _order(self, identity: int, ids: list[int], offset: int) -> list[int]:
        """The ids of a computation's instructions in the order of its schedule, or as they stand."""
        if len(set(ids)) != len(ids):
            raise Malformed("two instructions of a computation have one id", offset)
        order = self.schedule.get(identity)
        if order is None:
            return ids
        if sorted(order) != sorted(ids):
            raise Malformed("the schedule of a computation does not name each of its instructions once", offset)
        return order

    def _instruction(self, message: Field) -> "_Draft":
        """What ties an HloInstructionProto to others: name = 1, opcode = 2, shape = 3, id = 35, and lists of ids."""
        expect(message, BYTES)
        data, words = self.data, self.words
        name = opcode = ""
        shape: Shape | None = None
        parameter = identity = 0
        operands: list[int] = []
        control: list[int] = []
        called: list[int] = []
        for part in fields(data, message[2], message[3]):
            number = part[0]
            if number == 1:
                name = text_of(data, part)
            elif number == 2:
                expect(part, BYTES)
                key = data[part[2] : part[3]]
                opcode = words.get(key, "")
                if not opcode:
                    opcode = words[key] = intern(text_of(data, part))
            elif number == 3:
                shape = read_shape(data, part, self.shapes)
            elif number == 9:
                parameter = number_of(part)
            elif number == 35:
                identity = number_of(part)
            elif number == 36:
                operands += numbers_of(data, part)
            elif number == 37:
                control += numbers_of(data, part)
            elif number == 38:
                called += numbers_of(data, part)
        if not opcode or shape is None:
            raise Malformed(f"the instruction {excerpt(name)} has no {'shape' if opcode else 'opcode'}", message[2])
        return _Draft(name, opcode, shape, identity, parameter, operands, control, called, message[2], data[message[2] : message[3]])

    def _finish(self, draft: "_Draft", index: dict[int, int]) -> Instruction:
        try:
            operands = tuple([index[identity] for identity in draft.operands])
            control = tuple([index[identity] for identity in draft.control])
        except KeyError as error:
            raise Malformed(
                f"{excerpt(draft.name)} uses the instruction {error}, which its computation does not have", draft.offset
            ) from None
        calls = self._calls(draft) if draft.called else ()
        return build(draft.name, draft.opcode, draft.shape, operands, calls, control, draft.offset, draft.raw, self.dialect)

    def _calls(self, draft: "_Draft") -> tuple[Call, ...]:
        if draft.opcode in ("async-update", "async-done"):
            return ()  # they repeat what their async-start calls
        roles = CALLERS.get(draft.opcode, ("calls",))
        calls = []
        for position, identity in enumerate(draft.called):
            if identity not in self.numbers:
                raise Malformed(f"{excerpt(draft.name)} calls the computation {identity}, which the module does not have", draft.offset)
            calls.append(Call(roles[min(position, len(roles) - 1)], self.numbers[identity]))
        return tuple(reversed(calls)) if draft.opcode == "while" else tuple(calls)

    def _program_shape(self, part: Field | None) -> tuple[tuple[Shape, ...], Shape | None]:
        """ProgramShapeProto: parameters = 1, result = 2."""
        if part is None:
            return (), None
        expect(part, BYTES)
        parameters, result = [], None
        for inner in fields(self.data, part[2], part[3]):
            if inner[0] == 1:
                parameters.append(read_shape(self.data, inner, self.shapes))
            elif inner[0] == 2:
                result = read_shape(self.data, inner, self.shapes)
        return tuple(parameters), result

    def _devices(self, part: Field | None) -> tuple[int, int]:
        """DeviceAssignmentProto: replica_count = 1, computation_count = 2."""
        if part is None:
            return 1, 1
        expect(part, BYTES)
        single = last_fields(self.data, part[2], part[3])
        return (number_of(single[1]) if 1 in single else 1), (number_of(single[2]) if 2 in single else 1)

    def _aliases(self, part: Field | None) -> tuple[Alias, ...]:
        """HloInputOutputAliasProto: entries = 1, each output_shape_index, parameter_number, parameter_shape_index, kind (2 is must)."""
        if part is None:
            return ()
        expect(part, BYTES)
        found = []
        for entry in fields(self.data, part[2], part[3]):
            if entry[0] == 1:
                expect(entry, BYTES)
                lists = all_numbers(self.data, entry[2], entry[3], 1, 2, 3, 4)
                found.append(Alias(lists[1], (lists[2] or (0,))[-1], lists[3], lists[4][-1:] == (2,)))
        return tuple(found)

    def _frames(self, part: Field) -> StackFrames:
        """StackFrameIndexProto: file_names = 1, function_names = 2, file_locations = 3, stack_frames = 4."""
        expect(part, BYTES)
        data = self.data
        names: dict[int, list[str]] = {1: [], 2: []}
        rows: dict[int, list[tuple[int, ...]]] = {3: [], 4: []}
        # FileLocation: file_name_id, function_name_id, line, column; StackFrame: file_location_id, parent_frame_id.
        columns = {3: (1, 2, 3, 4), 4: (1, 2)}
        for inner in fields(data, part[2], part[3]):
            if inner[0] in names:
                names[inner[0]].append(text_of(data, inner))
            elif inner[0] in rows:
                expect(inner, BYTES)
                single = last_fields(data, inner[2], inner[3])
                rows[inner[0]].append(tuple(number_of(single[number]) if number in single else 0 for number in columns[inner[0]]))
        return StackFrames(
            files=tuple(names[1]),
            functions=tuple(names[2]),
            locations=tuple((file, function, line, column) for file, function, line, column in rows[3]),
            frames=tuple((location, parent) for location, parent in rows[4]),
        )


@record
class _Draft:
    """An instruction whose operands are still ids."""

    name: str
    opcode: str
    shape: Shape
    identity: int
    parameter: int
    operands: list[int]
    control: list[int]
    called: list[int]
    offset: int
    raw: bytes


def unwrap(data: bytes) -> tuple[int, int]:
    """Where the HloModuleProto is: the data itself, or field 1 of an HloProto (hlo_module) or snapshot (hlo).

    All of them begin with field 1; a module's is its name, a wrapper's a message, which begins with its own field 1.
    """
    start, end = 0, len(data)
    for _ in range(MAX_WRAPPERS):
        first = next(iter(fields(data, start, end)), None)
        if first is None:
            raise Malformed("the data is empty", start)
        if first[0] != 1 or first[1] != BYTES or data[first[2] : first[2] + 1] != b"\n":
            break
        start, end = first[2], first[3]
    return start, end
