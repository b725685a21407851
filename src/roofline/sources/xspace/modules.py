"""The HLO programs embedded in a profile, by program id. Only what ran is parsed and priced.

Programs are identified by id, not by name: several modules of a profile may be called ``jit_f``. Ids are compared as unsigned numbers,
since TPUs write them unsigned while metadata keys are signed.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b

from msgspec import Struct, field

from ...cost import NOTHING
from ...errors import SourceError
from ...hlo.ir.attributes import Metadata
from ...hlo.ir.module import HloModule, Instruction
from ...hlo.ir.platforms import Platform
from ...hlo.ir.scopes import direction, is_in_loop, scope
from ...hlo.price.collectives import Network
from ...hlo.price.pricing import Pricer
from ...hlo.price.types import Price, Site
from ...hlo.read.wire import unpack
from ...hlo.review import Review
from ..parts import UNKNOWN, PartGraph, Subject
from .scan import Plane, Slice, Space

Known = dict[tuple[Platform, Network, str, bytes], "Program"]  # programs that several hosts share, by everything they depend on

METADATA_PLANE = "/host:metadata"
CONTROL = ("while", "conditional", "call")  # opcodes that only run other instructions
_INDEXED = frozenset((*CONTROL, "async-start", "fusion", "sort"))
_UNSIGNED = 2**64
_HLO_STATS = ("Hlo Proto", "HLO Proto")
_IDENTITY = "35i?"  # the field HloInstructionProto.id
_DIGEST_BYTES = 8
_SIMILAR_SIZE = 10  # the largest ratio of the sizes of two programs that may share work


def identifier(name: str) -> str:
    """A function's name without characters that module names cannot have: ``lambda`` of ``<lambda>``, whose module is ``jit__lambda``."""
    return re.sub(r"\W+", "_", name).strip("_")


class Place(namedtuple("Place", ("computation", "position"))):
    """An instruction, by the index of its computation and its own there."""

    __slots__ = ()
    computation: int
    position: int


class Program(Struct, eq=False):
    """A module that ran: its instructions by name and number, and their costs.

    ``compiled`` are the names of fusions and sorts, for which XLA compiles kernels; ``sorts`` is the first sort of each computation.
    ``has_others`` is whether the profile has other programs of similar size.
    """

    id: int
    module: HloModule
    platform: Platform
    pricer: Pricer
    identity: str
    compiled: list[str] = field(default_factory=list)
    sorts: dict[int, Instruction] = field(default_factory=dict)
    _numbers: dict[int, Place] = field(default_factory=dict)
    _starts: dict[int, Place] = field(default_factory=dict)
    _subjects: dict[Place, Subject] = field(default_factory=dict)
    _locations: dict[tuple[int, str, int], str] = field(default_factory=dict)
    _runs: dict[int, int | None] = field(default_factory=dict)
    has_others: bool = False
    _review: list[Review] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, computation in enumerate(self.module.computations):
            for index, instruction in enumerate(computation.instructions):
                if instruction.opcode in _INDEXED:
                    self._index(Place(number, index), instruction)

    def _index(self, place: Place, instruction: Instruction) -> None:
        """Indexes an instruction by number, or as an asynchronous start, a fusion or a sort."""
        if instruction.opcode in ("fusion", "sort"):
            self.compiled.append(instruction.name)
            if instruction.opcode == "sort":
                self.sorts.setdefault(place.computation, instruction)
        elif instruction.opcode == "async-start":
            self._starts.update((call.computation, place) for call in instruction.calls)
        elif isinstance(instruction.raw, bytes):
            (identity,) = unpack(_IDENTITY, instruction.raw)
            if identity is not None:
                self._numbers[identity % _UNSIGNED] = place

    @property
    def name(self) -> str:
        return self.module.name

    @property
    def review(self) -> Review:
        """The review of the program, made on first use."""
        if not self._review:
            self._review.append(Review(self.pricer))
        return self._review[0]

    def graph(self, subjects: Mapping[Place, Subject] | None = None) -> PartGraph | None:
        """The graph of the program, with these operations, or those that were asked for."""
        ran = self._subjects if subjects is None else subjects
        found, operations = self.review.graph(ran), list(ran.values())
        if found is None:
            return None
        return PartGraph(self.name, found.graph, tuple([tuple([operations[op] for op in ops]) for ops in found.ops]), self.identity)

    @property
    def failures(self) -> tuple[str, ...]:
        """Notes on rules that failed on the program."""
        return self._review[0].notes if self._review else ()

    def instruction(self, place: Place) -> Instruction:
        """The instruction at a place."""
        return self.module.computations[place.computation][place.position]

    def find(self, name: str) -> Place | None:
        """The instruction with this name; for one inside an asynchronous computation, the instruction that starts that."""
        place = self.module.place(name)
        return None if place is None else self._starts.get(place[0], Place(*place))

    def numbered(self, number: int) -> Place | None:
        """The loop, conditional or call with the compiler's own number."""
        return self._numbers.get(number % _UNSIGNED)

    def price(self, place: Place) -> Price:
        """The price of one execution of an instruction. Loops, conditionals and calls cost nothing beyond the instructions they run."""
        instruction = self.instruction(place)
        if instruction.opcode in CONTROL:
            return Price(NOTHING, instruction.opcode)
        site = Site(self.module, self.module.computations[place.computation], instruction, self.platform)
        try:
            return self.pricer.price(site)
        except SourceError as error:
            return Price(UNKNOWN, instruction.opcode, (str(error),))

    def subject(self, place: Place) -> Subject:
        """The operation of an instruction."""
        known = self._subjects.get(place)
        if known is None:
            try:
                known = self._subject(place)
            except SourceError as error:  # attributes are parsed on first use
                name = self.instruction(place).name
                known = Subject(name=name, module=self.name, program=self.identity, category="unknown", cost=UNKNOWN, notes=(str(error),))
            self._subjects[place] = known
        return known

    def _subject(self, place: Place) -> Subject:
        instruction, price = self.instruction(place), self.price(place)
        metadata = instruction.metadata
        where, location = scope(metadata.op_name), self._location(instruction, metadata)
        takes, gives = self.review.exchanged(*place)
        return Subject(
            name=instruction.name,
            label=self.review.label(*place, where, location),
            module=self.name,
            program=self.identity,
            category=price.category,
            scope=where,
            location=location,
            phase=direction(metadata.op_name),
            in_loop=is_in_loop(metadata.op_name),
            cost=price.cost,
            takes=takes,
            gives=gives,
            value=self.review.value(*place) if self.has_others else "",
            caller=self.module.caller if self.has_others else "",
            operation=self.review.operation(*place, price.cost),
            notes=price.notes,
        )

    def _location(self, instruction: Instruction, metadata: Metadata) -> str:
        """The source line of an instruction; many share one."""
        written = (metadata.stack_frame_id, metadata.source_file, metadata.source_line)
        known = self._locations.get(written)
        if known is None:
            known = self._locations[written] = self.module.location(instruction)
        return known

    def runs(self, computation: int) -> int | None:
        """How often a computation runs in one run of the program; ``None`` if that depends on data."""
        if computation not in self._runs:
            self._runs[computation] = None  # ends the recursion if a computation calls itself
            self._runs[computation] = 1 if computation == self.module.entry else self._called(computation)
        return self._runs[computation]

    def _called(self, computation: int) -> int | None:
        total = 0
        for number, caller in enumerate(self.module.computations):
            for instruction in caller.instructions:
                for call in instruction.calls:
                    if call.computation != computation:
                        continue
                    outer, times = self.runs(number), self._times(number, instruction)
                    if outer is None or times is None:
                        return None
                    total += outer * times
        return total

    def _times(self, number: int, instruction: Instruction) -> int | None:
        if instruction.opcode == "while":
            try:
                return self.pricer.trip_count(Site(self.module, self.module.computations[number], instruction, self.platform))
            except SourceError:
                return None
        return None if instruction.opcode == "conditional" else 1


class Programs:
    """The programs in a profile, each parsed on first use. ``notes`` says which of them could not be read or reviewed.

    With ``digests`` programs are identified by content instead of id, so that hosts can share them; ``known`` has those of other hosts.
    """

    def __init__(
        self, space: Space, platform: Platform, network: Network | None = None, *, digests: bool = False, known: Known | None = None
    ) -> None:
        self._space, self._platform, self._network, self._digests = space, platform, network, digests
        self._known: Known = {} if known is None else known
        self._slices: dict[int, tuple[str, Slice]] = {}
        self._parsed: dict[int, Program | str] = {}  # the program, or an error message
        self._used: dict[int, Program] = {}
        self._notes: list[str] = []
        for plane in space.planes:
            if plane.name == METADATA_PLANE:
                self._slices.update(_embedded(plane))

    def get(self, id: int | None, name: str = "") -> Program | None:
        """The program with this id; if the profile has none, the one of that name, if there is only one."""
        key = None if id is None else id % _UNSIGNED
        if key is None or key not in self._slices:
            key = self._only_of_name(name)
        found = None if key is None else self._read(key)
        if isinstance(found, str):
            if found not in self._notes:
                self._notes.append(found)
            return None
        if found is not None and found.id not in self._used:
            self._used[found.id] = found
            self._add_constants(found)
        return found

    def graphs(self) -> tuple[PartGraph, ...]:
        """The graphs of the programs that were used."""
        return tuple([found for program in self._used.values() if (found := program.graph()) is not None])

    def readable(self, id: int) -> Program | None:
        """The program with this id, if it is in the profile and can be read. Adds no notes."""
        found = self._read(id % _UNSIGNED) if id % _UNSIGNED in self._slices else None
        return found if isinstance(found, Program) else None

    @property
    def notes(self) -> list[str]:
        """What could not be read or reviewed so far."""
        return [*self._notes, *(note for program in self._used.values() for note in program.failures)]

    def _add_constants(self, program: Program) -> None:
        """Adds a note on the large constants of a program."""
        from ...hlo.memory.large_constants import large_constants_note

        note = large_constants_note(program.module)
        if note and note not in self._notes:
            self._notes.append(note)

    def expect(self, names: Iterable[str]) -> Iterator[Program]:
        """The programs of these names that can be identified and read. Adds no notes, as these programs may not be needed."""
        for name in names:
            key = self._only_of_name(name)
            if key is not None and isinstance(found := self._read(key), Program):
                yield found

    def compiled_from(self, function: str, most: int) -> list[Program]:
        """The programs that a function was compiled to, the first ``most`` of them."""
        mine = [id for id, (module, _) in sorted(self._slices.items()) if identifier(module.removeprefix("jit_")) == identifier(function)]
        return [found for id in mine[:most] if isinstance(found := self._read(id), Program)]

    def modules(self, names: Collection[str], most: int) -> Iterator[tuple[str, HloModule]]:
        """The first ``most`` programs with these names (all names if empty), each with its identity."""
        mine = [id for id, (module, _) in sorted(self._slices.items()) if not names or module in names]
        for id in mine[:most]:
            if isinstance(found := self._read(id), Program):
                yield found.identity, found.module

    def _only_of_name(self, name: str) -> int | None:
        named = [known for known, (module, _) in self._slices.items() if name and module == name]
        return named[0] if len(named) == 1 else None

    def _has_similar(self, piece: Slice) -> bool:
        """Whether there are other programs, large enough to share work with this program."""
        return sum(_SIMILAR_SIZE * other.length >= piece.length for _, other in self._slices.values()) > 1

    def _read(self, id: int) -> Program | str:
        if id not in self._parsed:
            self._parsed[id] = self._parse(id)
        return self._parsed[id]

    def _parse(self, id: int) -> Program | str:
        # The modules that read and price programs are half of all imports: they are imported while events are read, and only with programs.
        from ...hlo.price.collectives import Network
        from ...hlo.price.pricing import Pricer
        from ...hlo.read.proto import parse_proto

        name, piece = self._slices[id]
        data = self._space.bytes_of(piece)
        network = Network.of(self._network, self._platform)
        key = (self._platform, network, name, data)
        if self._digests and key in self._known:
            return self._known[key]
        # Notes must be the same on every host: operations are merged only if they are equal, notes included.
        where = f"program {name}" if self._digests else f"{self._space.name}: program {name}({id})"
        try:
            module = parse_proto(data, where)
        except SourceError as error:
            return f"{f'{self._space.name}: ' if self._digests else ''}{error}; the cost of its ops is unknown"
        pricer = Pricer(module, self._platform, network)
        identity = _digest(module) if self._digests else str(id)
        program = Program(id, module, self._platform, pricer, identity, has_others=self._has_similar(piece))
        if self._digests:
            self._known[key] = program
        return program


def _embedded(plane: Plane) -> Iterator[tuple[int, tuple[str, Slice]]]:
    """Program id, name and bytes of each module. Old profiles and TPUs have no ``program_id``; there the metadata's id is used."""
    for id in plane.event_rows:
        metadata = plane.event(id)
        if metadata is None:
            continue
        piece = next((value for stat in _HLO_STATS if isinstance(value := metadata.stat(stat), Slice)), None)
        if piece is not None:
            program = metadata.stat("program_id")
            yield (program if isinstance(program, int) else id) % _UNSIGNED, (metadata.name.partition("(")[0], piece)


def _digest(module: HloModule) -> str:
    """A digest that is the same on every host that runs a program: of names, opcodes and shapes, but not of ids, which differ."""
    digest = blake2b(module.name.encode(), digest_size=_DIGEST_BYTES)
    for computation in module.computations:
        for instruction in computation.instructions:
            digest.update(f"{instruction.name} {instruction.opcode} {instruction.shape}\n".encode())
    return digest.hexdigest()
