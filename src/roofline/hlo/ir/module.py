"""A compiled XLA program as one immutable value, whichever form it was read from: HLO text, HloProto or StableHLO.

Instructions keep the slice of text or protobuf they came from; attributes are parsed from it on first use, so that a large module
costs little more than its own bytes. Operands, roots and called computations are indices, not references.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

from msgspec import Struct, field

from ...errors import SourceError
from .attributes import (
    NO_FRAMES,
    NO_METADATA,
    Alias,
    ConvolutionDimensions,
    DotDimensions,
    Frame,
    Metadata,
    OperandAlias,
    PadRange,
    ReplicaGroups,
    SliceRange,
    StackFrames,
    Window,
)
from .malformed import Malformed, excerpt
from .shapes import Shape


class Dialect(Protocol):
    """How the attributes of one form of program are read from the slices its instructions keep."""

    @property
    def where(self) -> str:
        """The file."""

    def attribute(self, raw: object, name: str) -> object | None:
        """The value of an attribute, by its name in HLO text; ``None`` when it is absent."""

    def names(self, raw: object) -> tuple[str, ...]:
        """The attributes that are present."""

    def unread(self, raw: object) -> Hashable | None:
        """All attributes but the metadata, unparsed, to compare instructions quickly. ``None`` if this form has no such text."""

    def place(self, place: int) -> str:
        """An instruction's position in the file, for an error message."""


_RECORDER = re.compile(r"(^|[\\/])roofline_hook\w*\.py$")  # files of roofline capture, which are in the call stacks of recorded programs
_INTEGERS = frozenset((int, bool))


class Call(Struct, frozen=True):
    """A computation that an instruction calls, by its index in the module, and the role it plays."""

    role: str
    computation: int


class Instruction(Struct, frozen=True, gc=False):  # no instruction is part of a cycle, and a program has many
    """One HLO instruction. Its operands are indices of instructions in the same computation.

    ``place`` is its line or byte in the file. Accessors of attributes return HLO's default where the program does not give a value.
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[int, ...]
    calls: tuple[Call, ...]
    control: tuple[int, ...]
    place: int
    raw: object
    dialect: Dialect

    def __hash__(self) -> int:
        return hash((self.name, self.opcode, self.place))  # ``raw`` may be a dictionary

    def attribute(self, name: str) -> object | None:
        """Any attribute, by its name in HLO text; ``None`` when it is absent."""
        try:
            return self.dialect.attribute(self.raw, name)
        except Malformed as error:
            raise SourceError(f"{self._here}: {name}: {error}") from None

    @property
    def _here(self) -> str:
        return f"{self.dialect.where}: {self.dialect.place(self.place)}: {self.name}"

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes that are present."""
        try:
            names = self.dialect.names(self.raw)
        except Malformed as error:
            raise SourceError(f"{self._here}: {error}") from None
        return tuple(name for name in names if name not in ("literal", "table", "parameter_number"))

    def _expect(self, name: str, kind: type) -> object | None:
        value = self.attribute(name)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise self._misfit(name, value, kind)
        return value

    def _items(self, name: str) -> tuple[Any, ...]:
        """An attribute that is a list; absent is empty."""
        value = self._expect(name, tuple)
        return value if isinstance(value, tuple) else ()

    def _misfit(self, name: str, value: object, kind: type) -> SourceError:
        return SourceError(f"{self._here}: {name} is {excerpt(str(value))}, not a {kind.__name__}")

    def integer(self, name: str, default: int | None = None) -> int | None:
        """An attribute that is a whole number."""
        value = self._expect(name, int)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of whole numbers; absent is empty."""
        value = self.attribute(name)
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise self._misfit(name, value, tuple)
        if not _INTEGERS.issuperset(map(type, value)):
            raise SourceError(f"{self._here}: {name} is not a list of whole numbers")
        return value

    def word(self, name: str) -> str:
        """An attribute that is a word or a string; absent is empty."""
        value = self.attribute(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._misfit(name, value, str)
        return value

    def flag(self, name: str) -> bool:
        """An attribute that is true or false; absent is false."""
        return self.attribute(name) is True

    @property
    def metadata(self) -> Metadata:
        value = self.attribute("metadata")
        return value if isinstance(value, Metadata) else NO_METADATA

    @property
    def op_name(self) -> str:
        """The framework's name: ``jit(step)/layer0/attn/dot_general``."""
        return self.metadata.op_name

    @property
    def dot(self) -> DotDimensions:
        """Dimension numbers of a dot, a ragged or a scaled dot."""
        return DotDimensions(
            lhs_contracting=self.integers("lhs_contracting_dims"),
            rhs_contracting=self.integers("rhs_contracting_dims"),
            lhs_batch=self.integers("lhs_batch_dims"),
            rhs_batch=self.integers("rhs_batch_dims"),
        )

    @property
    def window(self) -> Window:
        return self._items("window")

    @property
    def convolution(self) -> ConvolutionDimensions | None:
        value = self.attribute("dim_labels")
        return value if isinstance(value, ConvolutionDimensions) else None

    @property
    def feature_group_count(self) -> int:
        return self.integer("feature_group_count") or 1

    @property
    def batch_group_count(self) -> int:
        return self.integer("batch_group_count") or 1

    @property
    def dimensions(self) -> tuple[int, ...]:
        return self.integers("dimensions")

    @property
    def slices(self) -> tuple[SliceRange, ...]:
        return self._items("slice")

    @property
    def padding(self) -> tuple[PadRange, ...]:
        return self._items("padding")

    @property
    def replica_groups(self) -> ReplicaGroups | None:
        value = self.attribute("replica_groups")
        return value if isinstance(value, ReplicaGroups) else None

    @property
    def source_target_pairs(self) -> tuple[tuple[int, int], ...]:
        return self._items("source_target_pairs")

    @property
    def operand_precision(self) -> tuple[str, ...]:
        """``default``, ``high`` or ``highest`` for each operand; empty when all are default."""
        return self._items("operand_precision")

    @property
    def operand_aliases(self) -> tuple[OperandAlias, ...]:
        """Outputs of a fusion or custom call that take over the memory of operands."""
        return self._items("output_to_operand_aliasing")

    @property
    def custom_call_target(self) -> str:
        return self.word("custom_call_target")

    @property
    def fusion_kind(self) -> str:
        """``kLoop``, ``kInput``, ``kOutput`` or ``kCustom``."""
        return self.word("kind") if self.opcode == "fusion" else ""

    @property
    def frontend_attributes(self) -> Mapping[str, str]:
        value = self.attribute("frontend_attributes")
        return value if isinstance(value, dict) else {}

    @property
    def backend_config_text(self) -> str:
        """The backend's own configuration as it was written."""
        return self.word("backend_config")

    @property
    def literal(self) -> tuple[bool | int | float | complex, ...] | None:
        """The elements of a small constant in row-major order; ``None`` when they were left out, or are many."""
        value = self.attribute("literal")
        return value if isinstance(value, tuple) else None

    @property
    def table(self) -> tuple[bool | int | float | complex, ...] | None:
        """The elements of a constant that may be larger than those that `literal` reads: a table that a kernel looks up."""
        value = self.attribute("table")
        return value if isinstance(value, tuple) else None

    def called(self, role: str) -> tuple[int, ...]:
        """The indices of the computations it calls in this role."""
        return tuple(call.computation for call in self.calls if call.role == role)


class Computation(Struct, frozen=True, kw_only=True):
    """Instructions in the order of the schedule, or of the text, each after its operands; the root's value is the result.

    ``parameters`` are indices of instructions, in the order of their numbers.
    """

    name: str
    instructions: tuple[Instruction, ...]
    root: int
    parameters: tuple[int, ...]

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __len__(self) -> int:
        return len(self.instructions)

    def __getitem__(self, index: int) -> Instruction:
        return self.instructions[index]

    @property
    def root_instruction(self) -> Instruction:
        return self.instructions[self.root]

    @property
    def callees(self) -> tuple[int, ...]:
        """The computations it calls, each once."""
        calls = chain.from_iterable([instruction.calls for instruction in self.instructions if instruction.calls])
        return tuple(dict.fromkeys([call.computation for call in calls]))

    def operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions whose values it takes."""
        return tuple(self.instructions[index] for index in instruction.operands)


MAX_NESTING = 40  # calls within calls: programs are walked by recursion, and compilers stay below ten


class HloModule(Struct, frozen=True, kw_only=True, dict=True):  # dict: for its cached properties
    """A whole program: its computations, its entry computation, and the contents of its header.

    ``id`` is the compiler's number of the module, when the form has it.
    ``buffer_assignment`` is the compiler's BufferAssignmentProto, if the file has it. ``marks_entry`` is false for a text with a header
    but without an ENTRY computation, such as one written by hand: the entry is then the last computation. ``result_sharding`` is that of
    the results of a partitioned program, if the form has it.
    """

    name: str
    computations: tuple[Computation, ...]
    entry: int
    marks_entry: bool = True
    id: int | None = None
    is_scheduled: bool = False
    replica_count: int = 1
    num_partitions: int = 1
    aliases: tuple[Alias, ...] = ()
    frontend_attributes: Mapping[str, str] = field(default_factory=dict)
    frames: StackFrames = NO_FRAMES
    buffer_assignment: bytes = b""
    result_sharding: str = ""

    def __post_init__(self) -> None:
        _ = self.callees_first

    @cached_property
    def callees_first(self) -> tuple[int, ...]:
        """All computations, each after those it calls, none of which calls itself, directly or not."""
        called_by = [computation.callees for computation in self.computations]
        depth: dict[int, int] = {}  # in the order in which they are done
        for root in range(len(self.computations)):
            path = [(root, iter(called_by[root]))] if root not in depth else []
            on_path = {root}
            while path:
                number, rest = path[-1]
                inner = next((inner for inner in rest if inner not in depth), None)
                if inner in on_path:
                    raise Malformed(f"the computation {excerpt(self.computations[inner].name)} calls itself")
                if inner is not None:
                    path.append((inner, iter(called_by[inner])))
                    on_path.add(inner)
                    continue
                depth[number] = 1 + max((depth[below] for below in called_by[number]), default=0)
                if depth[number] > MAX_NESTING:
                    raise Malformed(f"calls nested deeper than {MAX_NESTING} under {excerpt(self.computations[number].name)}")
                path.pop()
                on_path.discard(number)
        return tuple(depth)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {computation.name: number for number, computation in enumerate(self.computations)}

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions of all its computations."""
        return chain.from_iterable(self.computations)

    @cached_property
    def opcodes(self) -> frozenset[str]:
        """The opcodes of all its instructions."""
        return frozenset([instruction.opcode for instruction in self.instructions])

    @cached_property
    def callers(self) -> Mapping[int, Sequence[tuple[int, Instruction]]]:
        """For the index of a computation the instructions that call it, each with the index of its own computation."""
        callers: dict[int, list[tuple[int, Instruction]]] = {}
        for number, computation in enumerate(self.computations):
            for instruction in computation.instructions:
                for call in instruction.calls:
                    callers.setdefault(call.computation, []).append((number, instruction))
        return callers

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Where each instruction is; of equal names the first."""
        places: dict[str, tuple[int, int]] = {}
        for number, computation in enumerate(self.computations):
            for index, instruction in enumerate(computation.instructions):
                places.setdefault(instruction.name, (number, index))
        return places

    def __iter__(self) -> Iterator[Computation]:
        return iter(self.computations)

    @property
    def entry_computation(self) -> Computation:
        return self.computations[self.entry]

    def computation(self, name: str) -> Computation | None:
        """The computation with this name."""
        number = self._numbers.get(name)
        return None if number is None else self.computations[number]

    def find(self, name: str) -> tuple[Computation, Instruction] | None:
        """The instruction with this name and the computation it is in."""
        place = self.place(name)
        if place is None:
            return None
        computation = self.computations[place[0]]
        return computation, computation.instructions[place[1]]

    def place(self, name: str) -> tuple[int, int] | None:
        """The index of the computation of the instruction with this name, and its index there. Compilers keep names unique in a module."""
        return self._places.get(name)

    def trace(self, instruction: Instruction) -> tuple[Frame, ...]:
        """Where in the user's source an instruction comes from, innermost frame first; empty when the program has no source information."""
        return self._trace(instruction.metadata)

    def _trace(self, metadata: Metadata) -> tuple[Frame, ...]:
        frames = self.frames.trace(metadata.stack_frame_id)
        if not frames and metadata.source_file:
            return (Frame(metadata.source_file, metadata.source_line),)
        return frames

    def location(self, instruction: Instruction) -> str:
        """The innermost source line, ``model.py:42`` with its folder; empty when unknown."""
        return self.located(instruction.metadata)

    def located(self, metadata: Metadata) -> str:
        """The innermost source line of an instruction with this metadata."""
        key = (metadata.stack_frame_id, metadata.source_file, metadata.source_line)
        known = self._locations.get(key)
        if known is None:
            lines = (str(frame) for frame in self._trace(metadata) if frame.file and not _RECORDER.search(frame.file))
            known = self._locations[key] = next(lines, "")
        return known

    @cached_property
    def caller(self) -> str:
        """The source line that calls the jitted function of a program, by the call stacks of its instructions; empty when unknown."""
        wanted = self.name.removeprefix("jit_")
        for instruction in self.entry_computation:
            frames = self._trace(instruction.metadata)
            inside = [place for place, frame in enumerate(frames) if frame.function.rpartition(".")[2] == wanted]
            if inside and inside[-1] + 1 < len(frames):
                outside = (frame for frame in frames[inside[-1] + 1 :] if frame.file and not _RECORDER.search(frame.file))
                return next(map(str, outside), "")
        return ""

    @cached_property
    def _locations(self) -> dict[tuple[int, str, int], str]:
        """Source lines that were looked up: many instructions share one."""
        return {}


MOST_NAMED = 4  # programs that an error names


def only(modules: Sequence[HloModule], where: str) -> HloModule:
    """The only program of a file; several are an error."""
    if len(modules) > 1:
        names = ", ".join(module.name for module in modules[:MOST_NAMED]) + (", …" if len(modules) > MOST_NAMED else "")
        raise SourceError(f"{where}: {len(modules)} programs in one file ({names}); put the one you mean in a file of its own")
    return modules[0]
