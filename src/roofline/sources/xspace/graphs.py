"""CUDA graphs: which instruction each node of a graph is, and how sure that is.

Nodes are numbered when a graph is made: its own first, in the order of its commands, then, for each node that owns a graph, that graph's
in the same way. Branches and loops own graphs with known commands. So do library calls and slices that run as copies, but their
number of nodes is not recorded: each has memsets and one kernel at least, and ran between its neighbours.

Three things are checked: the number of commands that the host launched, the names of kernels, and the order in time. Where names
contradict the order of the schedule, they decide. What fails is reported in ``doubts``.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from .commands import ALIKE, LOOP_SETTER, POSSIBLE, SAME, WRONG, Command, Slot, commands, fit, is_memset, slots, stem
from .modules import Place, Program

_PREFIX = "command_buffer_"  # and the number of the first thunk in it, which rises along the program
_MOST_FITS = 300_000  # comparisons of a node with a slot
_NEVER = -(1 << 60)
_MOST_WINDOWS = 2_000  # places where a run is searched for when its beginning is unknown
_TRAILS = re.compile(r"splitKreduce|convert_dq")  # kernels that end a library call
_LIBRARIES = (re.compile(r"cudnn|sdpa|fmha|flash", re.IGNORECASE), re.compile(r"nvjet|cublas|gemm|cutlass|xmma", re.IGNORECASE))
_OUT_OF_ORDER = 0.05  # of library kernels that may run outside their place: work in a graph may overlap


class _Way(Struct, frozen=True):
    """One way to tell which nodes are which slots: how well names agree, and the slots, the last with those before it."""

    score: int
    slot: Slot | None = None
    before: "_Way | None" = None


class Seen(Struct, frozen=True):
    """A node that ran: its kernel, and when it first began."""

    kernel: str
    first_ps: int


class Graph(Struct):
    """A graph that ran: the nodes seen of it by index, how often it was launched, and the number of commands the host says it has.

    ``label`` is what its events call it, ``scope`` the number of the loop or conditional whose computation it runs.
    """

    id: int
    label: str
    scope: int | None
    nodes: dict[int, Seen] = field(default_factory=dict)
    launches: int = 0
    commands: int | None = None

    @property
    def loops(self) -> bool:
        """Whether loops run inside of it."""
        return any(seen.kernel == LOOP_SETTER for seen in self.nodes.values())

    def add(self, index: int, seen: Seen, launches: int) -> None:
        """A node that ran. One whose kernel changed is known by the earlier."""
        known = self.nodes.get(index)
        if known is None or seen.first_ps < known.first_ps:
            self.nodes[index] = seen
        self.launches = max(self.launches, launches)


class Resolved(Struct):
    """A graph's nodes as instructions. Those without one could not be identified; ``doubts`` says which checks failed."""

    places: dict[int, Place] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


def resolve(program: Program, graphs: Sequence[Graph], outside: Mapping[Place, int]) -> dict[int, Resolved]:
    """The instructions of each graph's nodes, by the graph's id. ``outside`` says how often instructions ran in no graph."""
    found: dict[int, Resolved] = {}
    scopes: dict[int | None, list[Graph]] = {}
    for graph in graphs:
        scopes.setdefault(graph.scope, []).append(graph)
    stems = frozenset(map(stem, program.compiled))
    for scope, members in scopes.items():
        found.update(_Scope(program, scope, outside, stems).resolve(members))
    return found


class _Scope:
    """The graphs that are recorded from one computation, or from the branches of one conditional."""

    def __init__(self, program: Program, scope: int | None, outside: Mapping[Place, int], stems: frozenset[str]) -> None:
        self.program, self.outside, self.stems = program, outside, stems
        self.sequences = [commands(program, number) for number in _computations(program, scope)]

    def resolve(self, graphs: list[Graph]) -> dict[int, Resolved]:
        """Graphs in the order of their recording take runs of commands in the order of the schedule."""
        found: dict[int, Resolved] = {}
        launches = max(graph.launches for graph in graphs)
        loops = any(graph.loops for graph in graphs)
        runs = [run for sequence in self.sequences for run in self._runs(sequence, launches, loops)]
        begin = 0
        for label in sorted({graph.label for graph in graphs}, key=_order):
            # A graph that was made anew, or for another device, has another id.
            alike = [graph for graph in graphs if graph.label == label]
            fullest = max(alike, key=lambda graph: (len(graph.nodes), -graph.id))
            wide = [number for number in range(begin, len(runs)) if len(runs[number]) == fullest.commands]
            tries = [(self._layout(runs[number], fullest), number) for number in wide or range(begin, len(runs))]
            best = max(tries, key=lambda one: (one[0].score, -one[1]), default=None)
            if best is not None and best[0].score[0]:
                chosen, begin = best[0], best[1] + 1
            else:
                chosen = self._searched(fullest, loops) or (best[0] if best is not None else self._layout((), fullest))
            for graph in alike:
                found[graph.id] = self._best(chosen if graph is fullest else self._layout(chosen.run, graph)).resolved()
        return found

    def _runs(self, sequence: Sequence[Command], launches: int, loops: bool) -> list[tuple[Command, ...]]:
        """What lies between instructions that are in no graph: those that ran outside as often as graphs did, and loops."""
        runs: list[list[Command]] = [[]]
        for command in sequence:
            if self.outside.get(command.place, 0) >= launches or (command.opcode == "while" and not loops):
                runs.append([])
            else:
                runs[-1].append(command)
        return [tuple(run) for run in runs if run]

    def _layout(self, run: tuple[Command, ...], graph: Graph) -> "_Layout":
        return _Layout(self.program, run, graph, self.stems)

    def _best(self, layout: "_Layout") -> "_Layout":
        """A layout, or where names contradict it the one by names, if those contradict that less."""
        if not layout.wrong:
            return layout
        by_name = _Layout(self.program, layout.run, layout.graph, self.stems, by_name=True)
        return by_name if by_name.wrong < layout.wrong else layout

    def _searched(self, graph: Graph, loops: bool) -> "_Layout | None":
        """The run of as many commands that fits best, wherever it begins; for graphs whose neighbours do not determine it."""
        width = graph.commands
        if width is None:
            return None
        windows = []
        for sequence in self.sequences:
            for begin in range(max(0, len(sequence) - width + 1)):
                run = sequence[begin : begin + width]
                first = next((slot for slot in slots(self.program, run[:1])), None)
                seen = graph.nodes.get(0)
                if first is None or (seen is not None and fit(seen.kernel, first, self.stems) < ALIKE):
                    continue
                if loops or all(command.opcode != "while" for command in run):
                    windows.append(run)
        layouts = [self._layout(run, graph) for run in windows[:_MOST_WINDOWS]]
        best = max(layouts, key=lambda layout: layout.score, default=None)
        return best if best is not None and best.score[0] else None


def _order(label: str) -> int:
    """Graphs of a program in the order in which it records them."""
    number = label.removeprefix(_PREFIX).partition(" ")[0]
    return int(number) if number.isdecimal() else 0


def _computations(program: Program, scope: int | None) -> Iterable[int]:
    """The computations a graph may be recorded from: the entry, or those of the loop, conditional or call with this number."""
    place = program.numbered(scope) if scope is not None else None
    if place is None:
        return (program.module.entry,)
    return tuple(call.computation for call in program.instruction(place).calls)


def _bodies(level: Iterable[Slot]) -> list[tuple[Slot, ...]]:
    """Every graph inside of a graph that has known commands."""
    own = [slot.body for slot in level if slot.body is not None]
    return [*own, *(inner for body in own for inner in _bodies(body))]


def _lead(body: Sequence[Slot]) -> int:
    """How many nodes come before the first that shows itself."""
    return next((number for number, slot in enumerate(body) if not slot.is_call), 0)


class _Call(Struct, frozen=True):
    """A node that owns a graph of a library's making: what ran before it in its own graph, and what after, by first begin."""

    slot: Slot
    after_ps: int | None
    before_ps: int | None

    def holds(self, began_ps: int) -> bool:
        """Whether something that began then may be its kernel."""
        return (self.after_ps is None or self.after_ps <= began_ps) and (self.before_ps is None or began_ps <= self.before_ps)


class _Layout:
    """A run of commands laid out as the nodes of a graph."""

    def __init__(self, program: Program, run: tuple[Command, ...], graph: Graph, stems: frozenset[str], *, by_name: bool = False) -> None:
        self.run, self.graph, self.stems = run, graph, stems
        self.places: dict[int, Place] = {}
        self.checked = self.wrong = self.late = self.children = self.moved = 0
        self.ambiguous = self.alike = False
        self.missing = (graph.commands or len(run)) - len(run)  # commands that no instruction accounts for
        self._order = sorted(graph.nodes)
        self._next, self._sure, self._skipped = 0, True, False
        self._calls: list[_Call] = []
        top = self._aligned(slots(program, run))
        if by_name or self._swapped(top):
            top = self._named(top)
        self._bodies = _bodies(top)
        self._level(top)
        self._hand_out(self._order[-1] + 1 if self._order else 0)

    @property
    def score(self) -> tuple[bool, int, int]:
        """Whether nothing contradicts it, how many nodes it explains, and how few of them have a wrong name."""
        return not self.missing and not self.wrong and self.checked > 0, len(self.places), -self.wrong

    def resolved(self) -> Resolved:
        """The nodes' instructions, and what did not agree."""
        doubts, graph = [], self.graph
        if self.missing:
            doubts.append(f"the host launched {graph.commands} commands, the schedule has {len(self.run)}")
        if self.wrong:
            doubts.append(f"{self.wrong} of {self.checked} kernels do not match their instruction's name")
        if self.moved:
            doubts.append(f"{self.moved} of {self.checked} kernels are not in schedule order and may be those of other instructions")
        if self.late > _OUT_OF_ORDER * self.children:
            doubts.append(f"{self.late} of {self.children} library kernels ran out of schedule order")
        if self.ambiguous:
            doubts.append("consecutive library calls have more kernels than calls")
        if self.alike:
            doubts.append("branches look alike, so the one that ran is unknown")
        if lost := len(graph.nodes) - len(self.places):
            doubts.append(f"{lost} of {len(graph.nodes)} nodes match no instruction")
        return Resolved(self.places, doubts)

    def _aligned(self, planned: list[Slot]) -> list[Slot]:
        """The top level. Where there are more commands than instructions, some have several (a sort copies, then sorts in passes); where
        there are fewer, some have none. Of all ways to tell which, the one whose names agree best: equal kernels have one name, so that
        a node may look like its neighbour's.
        """
        if not self.missing or len(planned) * (abs(self.missing) + 1) > _MOST_FITS:
            return planned
        more = self.missing > 0
        ways = [_Way(0), *[_Way(_NEVER)] * abs(self.missing)]  # by how many nodes are shared, or slots left out, so far
        for number, slot in enumerate(planned):
            found = list[_Way]()
            for shifted, way in enumerate(ways):
                here = self._agrees(number + shifted if more else number - shifted, slot)
                best = _Way(way.score + here, slot, way)
                if shifted and more and found[-1].score >= way.score:  # a copy belongs to what follows
                    best = _Way(found[-1].score + here, slot, found[-1])
                elif shifted and not more and ways[shifted - 1].score > best.score:
                    best = ways[shifted - 1]
                found.append(best)
            ways = found
        shifted = max(range(len(ways)), key=lambda number: ways[number].score)
        self.missing -= shifted if more else -shifted
        aligned, last = list[Slot](), ways[shifted]
        while last.slot is not None and last.before is not None:
            aligned.append(last.slot)
            last = last.before
        return aligned[::-1]

    def _swapped(self, planned: list[Slot]) -> bool:
        """Whether a node's kernel is named after the instruction of another node, whose kernel is named otherwise."""
        names = {slot.command.kernel: number for number, slot in enumerate(planned) if slot.command.kernel}
        kernels = [self.graph.nodes[index].kernel if index in self.graph.nodes else "" for index in range(len(planned))]
        others = [names.get(kernel, index) for index, kernel in enumerate(kernels)]
        return any(other != index and kernels[other] != kernels[index] for index, other in enumerate(others))

    def _named(self, planned: list[Slot]) -> list[Slot]:
        """The top level by names: a node is the instruction that its kernel is named after, else one of that kind, else one that may
        have such a kernel, the nearest each time. Of a sort there are several; what is none of these belongs to what follows.
        """
        if self.missing or len(planned) ** 2 > _MOST_FITS:
            return planned
        own = [self._fit(index, slot) for index, slot in enumerate(planned)]
        found, left = dict[int, int](), list(range(len(planned)))
        for wanted in (SAME, ALIKE, POSSIBLE):
            waiting = [index for index in range(len(planned)) if index not in found]
            for index in sorted(waiting, key=lambda index: own[index] != wanted):  # those in their place keep it
                fitting = [number for number in left if self._fit(index, planned[number]) == wanted]
                if fitting:
                    found[index] = min(fitting, key=lambda number: abs(number - index))
                    left.remove(found[index])
                    self.moved += wanted != SAME and found[index] != index and len(fitting) > 1
        after = max(found.items(), default=(0, 0))[1]
        for index in reversed(range(len(planned))):
            if index not in found:
                found[index] = next((number for number, slot in enumerate(planned) if self._fit(index, slot) == SAME), after)
            after = found[index]
        return [planned[found[index]] for index in range(len(planned))]

    def _agrees(self, index: int, slot: Slot) -> int:
        """How well a node and a slot agree; one wrong name counts more than many that could be better."""
        fits = self._fit(index, slot) if index >= 0 else WRONG
        return fits if fits != WRONG else -_MOST_FITS

    def _fit(self, index: int, slot: Slot | None) -> int:
        seen = self.graph.nodes.get(index)
        return WRONG if slot is None else fit(None if seen is None else seen.kernel, slot, self.stems)

    def _level(self, level: Sequence[Slot]) -> None:
        """A graph's own nodes, then the graphs they own. Those of library calls wait until it is clear where the next one begins."""
        begin, nodes = self._next, self.graph.nodes
        self._next = begin + len(level)
        present = [number for number in range(len(level)) if begin + number in nodes]
        # Calls alone show in the nodes that follow them. The graph itself has run, or it would not be in the profile.
        ran = bool(present) or begin == 0 or (all(slot.is_call for slot in level) and bool(self._group(self._next)[0]))
        for number in present:
            self.places[begin + number] = level[number].command.place
        for number, slot in enumerate(level):
            here = begin + number in nodes
            if ran and (slot.body is None or here):
                self.checked += 1
                self.wrong += self._fit(begin + number, slot) == WRONG
            if slot.body is not None:
                if self._seek(slot.body):
                    self._level(slot.body)
            elif ran and not here:
                later = bisect_left(present, number)
                before = nodes[begin + present[later - 1]].first_ps if later else None
                after = nodes[begin + present[later]].first_ps if later < len(present) else None
                self._calls.append(_Call(slot, before, after))
            elif not ran and slot.is_call:
                self._sure = False  # how many nodes it would have had is unknown

    def _seek(self, body: Sequence[Slot]) -> bool:
        """Where a branch or a loop begins: behind the nodes of the library calls before it. False where that is unknown."""
        expected = self._next
        for _ in self._calls:
            expected = self._group(expected)[1]
        later = self._order[bisect_left(self._order, self._next) :]
        never = not any(expected <= index < expected + len(body) for index in later)
        if self._sure and (never or self._fits(body, expected)):
            self._hand_out(expected)
            return True
        lead = _lead(body)
        first = next((index for index in later if index - lead >= self._next and self._fits(body, index - lead)), None)
        if first is None:
            self._skipped = not self._sure
            return self._sure
        self.alike |= not self._sure and sum(self._fits(other, first - _lead(other)) for other in self._bodies) > 1
        self._hand_out(first - lead)
        self._sure = True
        return True

    def _fits(self, body: Sequence[Slot], begin: int) -> bool:
        fits = [self._fit(begin + number, slot) for number, slot in enumerate(body)]
        return WRONG not in fits and max(fits, default=WRONG) >= ALIKE

    def _group(self, begin: int) -> tuple[list[int], int]:
        """The nodes of one library call from here on, memsets and a kernel, and what comes next. A call may own a graph in a graph."""
        nodes, group = self.graph.nodes, list[int]()
        index = begin if begin in nodes or begin + 1 not in nodes else begin + 1
        while index in nodes:
            group.append(index)
            index += 1
            if not is_memset(nodes[index - 1].kernel):
                break
        return group, index

    def _hand_out(self, end: int) -> None:
        """The nodes up to here go to the library calls that wait: a group each, or where that does not come out, by time."""
        groups, nodes = list[list[int]](), self.graph.nodes
        for index in self._order[bisect_left(self._order, self._next) : bisect_left(self._order, end)]:
            if not groups or index > groups[-1][-1]:
                groups.append(self._group(index)[0])
        calls, self._calls, self._next = self._calls, [], max(self._next, end)
        self.ambiguous |= self._skipped and len(groups) != len(calls)
        for call, group in zip(calls, groups, strict=True) if len(groups) == len(calls) else self._shared(calls, groups):
            for index in group:
                self.places[index] = call.slot.command.place
                self.children += 1
                self.late += not call.holds(nodes[index].first_ps)

    def _shared(self, calls: Sequence[_Call], groups: Sequence[list[int]]) -> Iterator[tuple[_Call, list[int]]]:
        """Calls with nothing of their own graph between them share a gap in time; the groups that began in it are theirs, in order."""
        gaps: list[list[_Call]] = []
        for call in calls:
            if gaps and (gaps[-1][-1].after_ps, gaps[-1][-1].before_ps) == (call.after_ps, call.before_ps):
                gaps[-1].append(call)
            else:
                gaps.append([call])
        waiting = list(groups)
        for number, gap in enumerate(gaps):
            mine = []
            last = number + 1 == len(gaps)
            while waiting and (last or gap[0].holds(self.graph.nodes[waiting[0][-1]].first_ps)):
                mine.append(waiting.pop(0))
            yield from self._split(gap, mine)

    def _split(self, calls: Sequence[_Call], groups: Sequence[list[int]]) -> Iterator[tuple[_Call, list[int]]]:
        """Several calls in a row. One begins where a number is left out, for a graph in a graph, with another library, or with a memset."""
        begins = [self._begins(group[0]) for group in groups[1:]]
        likely = sorted(range(len(begins)), key=lambda number: (-begins[number], number))[: len(calls) - 1]
        surest = [begins[number] for number in likely]
        others = [begin for number, begin in enumerate(begins) if number not in likely]
        self.ambiguous |= len(groups) < len(calls) or bool(surest and others and min(surest) <= max(others))
        owner = 0
        for number, group in enumerate(groups):
            owner += number > 0 and number - 1 in likely
            yield calls[owner], group

    def _begins(self, index: int) -> int:
        """How likely a library call begins with this node."""
        kernel = self.graph.nodes[index].kernel
        if _TRAILS.search(kernel):
            return -1
        before = self.graph.nodes.get(index - 1)
        if before is None:
            return 2 + is_memset(kernel)
        libraries = {_library(before.kernel), _library(kernel)} - {None}
        return is_memset(kernel) + 2 * (len(libraries) == 2)


def _library(kernel: str) -> int | None:
    """The library that a kernel is of, by its name."""
    return next((number for number, names in enumerate(_LIBRARIES) if names.search(kernel)), None)
