"""CUDA graphs: finds the instruction of each node of a graph, and how certain the match is.

Nodes are numbered when a graph is made: first its own, in the order of its commands, then, for each node that owns a graph, the nodes of
that graph in the same way. Branches and loops own graphs whose commands are known. Library calls, and slices that run as copies, own graphs
too, but how many nodes these have is not recorded: each has some memsets and at least one kernel, and runs between its neighbours.

Three things are checked: the number of commands that the host launched, the names of kernels, and the order in time. Where names
contradict the order of the schedule, names decide. Failed checks are reported in ``doubts``.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from .commands import ALIKE, LOOP_SETTER, POSSIBLE, SAME, WRONG, Command, Slot, commands, fit, is_memset, slots, stem
from .modules import Place, Program

_PREFIX = "command_buffer_"  # followed by the number of its first thunk, which rises along the program
_MOST_FITS = 300_000  # comparisons of a node with a slot
_IMPOSSIBLE = -(1 << 60)
_MOST_WINDOWS = 2_000  # first commands that are tried for a graph whose commands are unknown
_LAST_KERNELS = re.compile(r"splitKreduce|convert_dq")  # kernels that end a library call
_LIBRARIES = tuple(
    re.compile(names, re.IGNORECASE)
    for names in (r"cudnn|sdpa|fmha|flash", r"nvjet|cublas|gemm|cutlass|xmma", r"\Amemcpy\d")  # the driver's copies, last
)
_OUT_OF_ORDER = 0.05  # the share of library kernels that may run out of order without a doubt: work in a graph may overlap


class _Alignment(Struct, frozen=True):
    """An alignment of nodes with expected nodes: its score, and a linked list of the slots, the last first."""

    score: int
    slot: Slot | None = None
    before: "_Alignment | None" = None


class RanNode(Struct, frozen=True):
    """A node that ran: its kernel and its first start."""

    kernel: str
    first_ps: int


class Graph(Struct):
    """A graph that ran: its recorded nodes by index, how often it was launched, and its number of commands according to the host.

    ``label`` is its name in events, ``scope`` the number of the loop or conditional whose computation it runs.
    """

    id: int
    label: str
    scope: int | None
    nodes: dict[int, RanNode] = field(default_factory=dict)
    launches: int = 0
    commands: int | None = None

    @property
    def loops(self) -> bool:
        """Whether loops run inside of it."""
        return any(seen.kernel == LOOP_SETTER for seen in self.nodes.values())

    def add(self, index: int, seen: RanNode, launches: int) -> None:
        """Adds a node that ran; if its kernel changed, the earlier one is kept."""
        known = self.nodes.get(index)
        if known is None or seen.first_ps < known.first_ps:
            self.nodes[index] = seen
        self.launches = max(self.launches, launches)


class Resolved(Struct):
    """The instructions of a graph's nodes, as far as they were found. ``doubts`` says which checks failed."""

    places: dict[int, Place] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


def resolve(program: Program, graphs: Sequence[Graph], outside: Mapping[Place, int]) -> dict[int, Resolved]:
    """The instructions of each graph's nodes, by the graph's id. ``outside`` has how often instructions ran outside of graphs."""
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
        """Assigns runs of consecutive commands, in the order of the schedule, to graphs, in the order of their recording."""
        found: dict[int, Resolved] = {}
        launches = max(graph.launches for graph in graphs)
        loops = any(graph.loops for graph in graphs)
        runs = [run for sequence in self.sequences for run in self._runs(sequence, launches, loops)]
        begin = 0
        for label in sorted({graph.label for graph in graphs}, key=_recording_order):
            # The same graph has another id if it was made again, or for another device.
            alike = [graph for graph in graphs if graph.label == label]
            fullest = max(alike, key=lambda graph: (len(graph.nodes), -graph.id))
            wide = [number for number in range(begin, len(runs)) if len(runs[number]) == fullest.commands]
            tries = [(self._layout(runs[number], fullest), number) for number in wide or range(begin, len(runs))]
            best = max(tries, key=lambda one: (one[0].score, -one[1]), default=None)
            if best is not None and best[0].score[0]:
                chosen, begin = best[0], best[1] + 1
            else:
                chosen = self._search_everywhere(fullest, loops) or (best[0] if best is not None else self._layout((), fullest))
            for graph in alike:
                found[graph.id] = self._better(chosen if graph is fullest else self._layout(chosen.run, graph)).resolved()
        return found

    def _runs(self, sequence: Sequence[Command], launches: int, loops: bool) -> list[tuple[Command, ...]]:
        """Runs of commands between instructions that are in no graph: loops, and those that ran outside at least as often as graphs ran."""
        runs: list[list[Command]] = [[]]
        for command in sequence:
            if self.outside.get(command.place, 0) >= launches or (command.opcode == "while" and not loops):
                runs.append([])
            else:
                runs[-1].append(command)
        return [tuple(run) for run in runs if run]

    def _layout(self, run: tuple[Command, ...], graph: Graph) -> "_Layout":
        return _Layout(self.program, run, graph, self.stems)

    def _better(self, layout: "_Layout") -> "_Layout":
        """The layout, or, if names contradict it, the layout by names, if fewer names contradict that."""
        if not layout.wrong:
            return layout
        by_name = _Layout(self.program, layout.run, layout.graph, self.stems, by_name=True)
        return by_name if by_name.wrong < layout.wrong else layout

    def _search_everywhere(self, graph: Graph, loops: bool) -> "_Layout | None":
        """The best layout over all runs of ``graph.commands`` commands, wherever they begin; ``None`` if none agrees."""
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


def _recording_order(label: str) -> int:
    """A sort key: the order in which a program records its graphs."""
    number = label.removeprefix(_PREFIX).partition(" ")[0]
    return int(number) if number.isdecimal() else 0


def _computations(program: Program, scope: int | None) -> Iterable[int]:
    """The computations that a graph may be recorded from: the entry, or those of the loop, conditional or call with this number."""
    place = program.numbered(scope) if scope is not None else None
    if place is None:
        return (program.module.entry,)
    return tuple(call.computation for call in program.instruction(place).calls)


def _bodies(level: Iterable[Slot]) -> list[tuple[Slot, ...]]:
    """All graphs inside a graph, at any depth, whose commands are known."""
    own = [slot.body for slot in level if slot.body is not None]
    return [*own, *(inner for body in own for inner in _bodies(body))]


def _nodes_before_first_visible(body: Sequence[Slot]) -> int:
    """How many nodes come before the first that is recorded itself: a library call shows only in its own graph."""
    return next((number for number, slot in enumerate(body) if not slot.is_call), 0)


class _Call(Struct, frozen=True):
    """A library call: its slot, and the first starts of the nodes before and after it in its graph, between which it ran."""

    slot: Slot
    after_ps: int | None
    before_ps: int | None

    def may_own(self, began_ps: int) -> bool:
        """Whether a kernel that began then may belong to this call."""
        return (self.after_ps is None or self.after_ps <= began_ps) and (self.before_ps is None or began_ps <= self.before_ps)


class _Layout:
    """An assignment of a run of commands to the nodes of a graph."""

    def __init__(self, program: Program, run: tuple[Command, ...], graph: Graph, stems: frozenset[str], *, by_name: bool = False) -> None:
        self.run, self.graph, self.stems = run, graph, stems
        self.places: dict[int, Place] = {}
        self.checked = self.wrong = self.out_of_order = self.children = self.moved = 0
        self.ambiguous = self.alike = False
        self.missing = (graph.commands or len(run)) - len(run)  # commands that no instruction accounts for
        self._order = sorted(graph.nodes)
        self._next, self._sure, self._skipped = 0, True, False
        self._calls: list[_Call] = []
        top = self._aligned(slots(program, run))
        if by_name or self._swapped(top):
            top = self._by_names(top)
        self._bodies = _bodies(top)
        self._assign_level(top)
        self._assign_to_calls(self._order[-1] + 1 if self._order else 0)

    @property
    def score(self) -> tuple[bool, int, int]:
        """A sort key: whether nothing contradicts the layout, how many nodes have an instruction, and minus the number of wrong names."""
        return not self.missing and not self.wrong and self.checked > 0, len(self.places), -self.wrong

    def resolved(self) -> Resolved:
        """The nodes' instructions, and the checks that failed."""
        doubts, graph = [], self.graph
        if self.missing:
            doubts.append(f"the host launched {graph.commands:,} commands, the schedule has {len(self.run):,}")
        if self.wrong:
            doubts.append(f"{self.wrong:,} of {self.checked:,} kernels do not match their instruction's name")
        if self.moved:
            doubts.append(f"{self.moved:,} of {self.checked:,} kernels are not in schedule order and may be those of other instructions")
        if self.out_of_order > _OUT_OF_ORDER * self.children:
            doubts.append(f"{self.out_of_order:,} of {self.children:,} library kernels ran out of schedule order")
        if self.ambiguous:
            doubts.append("consecutive library calls have more kernels than calls")
        if self.alike:
            doubts.append("branches look alike, so the one that ran is unknown")
        if lost := len(graph.nodes) - len(self.places):
            doubts.append(f"{lost:,} of {len(graph.nodes):,} nodes match no instruction")
        return Resolved(self.places, doubts)

    def _aligned(self, planned: list[Slot]) -> list[Slot]:
        """The slots of the graph's own nodes. If there are more commands than instructions, some instructions have several (a sort copies,
        then sorts in passes); if there are fewer, some have none. Of all alignments, the one whose names agree best (by dynamic
        programming), as equal kernels have the same name and a node may look like its neighbour.
        """
        if not self.missing or len(planned) * (abs(self.missing) + 1) > _MOST_FITS:
            return planned
        more = self.missing > 0
        # The best alignment so far for each shift: the number of extra nodes, or of slots left out.
        best_by_shift = [_Alignment(0), *[_Alignment(_IMPOSSIBLE)] * abs(self.missing)]
        for number, slot in enumerate(planned):
            found = list[_Alignment]()
            for shifted, known in enumerate(best_by_shift):
                here = self._match_score(number + shifted if more else number - shifted, slot)
                best = _Alignment(known.score + here, slot, known)
                if shifted and more and found[-1].score >= known.score:  # an extra node, such as a copy, belongs to the next instruction
                    best = _Alignment(found[-1].score + here, slot, found[-1])
                elif shifted and not more and best_by_shift[shifted - 1].score > best.score:
                    best = best_by_shift[shifted - 1]
                found.append(best)
            best_by_shift = found
        shifted = max(range(len(best_by_shift)), key=lambda number: best_by_shift[number].score)
        self.missing -= shifted if more else -shifted
        aligned, last = list[Slot](), best_by_shift[shifted]
        while last.slot is not None and last.before is not None:
            aligned.append(last.slot)
            last = last.before
        return aligned[::-1]

    def _swapped(self, planned: list[Slot]) -> bool:
        """Whether a node's kernel is named after the instruction of another node, and that node has another kernel."""
        names = {slot.command.kernel: number for number, slot in enumerate(planned) if slot.command.kernel}
        kernels = [self.graph.nodes[index].kernel if index in self.graph.nodes else "" for index in range(len(planned))]
        others = [names.get(kernel, index) for index, kernel in enumerate(kernels)]
        return any(other != index and kernels[other] != kernels[index] for index, other in enumerate(others))

    def _by_names(self, planned: list[Slot]) -> list[Slot]:
        """The slots of the graph's own nodes, by names: each node gets the nearest instruction that its kernel is named after, else the
        nearest with the same stem, else the nearest that may have such a kernel. A node without any belongs to the instruction of the next
        node; only a sort may have several nodes.
        """
        if self.missing or len(planned) ** 2 > _MOST_FITS:
            return planned
        own = [self._fit(index, slot) for index, slot in enumerate(planned)]
        found, free = dict[int, int](), list(range(len(planned)))
        for wanted in (SAME, ALIKE, POSSIBLE):
            unmatched = [index for index in range(len(planned)) if index not in found]
            for index in sorted(unmatched, key=lambda index: own[index] != wanted):  # first the nodes that match in schedule order
                fitting = [number for number in free if self._fit(index, planned[number]) == wanted]
                if fitting:
                    found[index] = min(fitting, key=lambda number: abs(number - index))
                    free.remove(found[index])
                    self.moved += wanted != SAME and found[index] != index and len(fitting) > 1
        after = max(found.items(), default=(0, 0))[1]
        for index in reversed(range(len(planned))):
            if index not in found:
                found[index] = next((number for number, slot in enumerate(planned) if self._fit(index, slot) == SAME), after)
            after = found[index]
        return [planned[found[index]] for index in range(len(planned))]

    def _match_score(self, index: int, slot: Slot) -> int:
        """How well a node and a slot agree; a single wrong name outweighs all others."""
        fits = self._fit(index, slot) if index >= 0 else WRONG
        return fits if fits != WRONG else -_MOST_FITS

    def _fit(self, index: int, slot: Slot | None) -> int:
        seen = self.graph.nodes.get(index)
        return WRONG if slot is None else fit(None if seen is None else seen.kernel, slot, self.stems)

    def _assign_level(self, level: Sequence[Slot]) -> None:
        """Assigns a graph's own nodes, then those of the graphs they own; the nodes of library calls are assigned in `_assign_to_calls`."""
        begin, nodes = self._next, self.graph.nodes
        self._next = begin + len(level)
        present = [number for number in range(len(level)) if begin + number in nodes]
        # A graph with only library calls has no recorded nodes of its own, but is followed by those of its calls. The outermost graph ran.
        ran = bool(present) or begin == 0 or (all(slot.is_call for slot in level) and bool(self._call_nodes(self._next)[0]))
        for number in present:
            self.places[begin + number] = level[number].command.place
        for number, slot in enumerate(level):
            here = begin + number in nodes
            if ran and (slot.body is None or here):
                self.checked += 1
                self.wrong += self._fit(begin + number, slot) == WRONG
            if slot.body is not None:
                if self._find_body(slot.body):
                    self._assign_level(slot.body)
            elif ran and not here:
                later = bisect_left(present, number)
                before = nodes[begin + present[later - 1]].first_ps if later else None
                after = nodes[begin + present[later]].first_ps if later < len(present) else None
                self._calls.append(_Call(slot, before, after))
            elif not ran and slot.is_call:
                self._sure = False  # where the next graph begins is unknown, as this call's number of nodes is

    def _find_body(self, body: Sequence[Slot]) -> bool:
        """Moves to the first node of a branch or loop, after the nodes of the library calls before it. False if that is unknown."""
        expected = self._next
        for _ in self._calls:
            expected = self._call_nodes(expected)[1]
        later = self._order[bisect_left(self._order, self._next) :]
        never = not any(expected <= index < expected + len(body) for index in later)
        if self._sure and (never or self._fits(body, expected)):
            self._assign_to_calls(expected)
            return True
        lead = _nodes_before_first_visible(body)
        first = next((index for index in later if index - lead >= self._next and self._fits(body, index - lead)), None)
        if first is None:
            self._skipped = not self._sure
            return self._sure
        self.alike |= not self._sure and sum(self._fits(other, first - _nodes_before_first_visible(other)) for other in self._bodies) > 1
        self._assign_to_calls(first - lead)
        self._sure = True
        return True

    def _fits(self, body: Sequence[Slot], begin: int) -> bool:
        fits = [self._fit(begin + number, slot) for number, slot in enumerate(body)]
        return WRONG not in fits and max(fits, default=WRONG) >= ALIKE

    def _call_nodes(self, begin: int) -> tuple[list[int], int]:
        """The nodes of one library call from ``begin`` on (memsets, then a kernel), and the next index. A call may own a nested graph."""
        nodes, group = self.graph.nodes, list[int]()
        index = begin if begin in nodes or begin + 1 not in nodes else begin + 1
        while index in nodes:
            group.append(index)
            index += 1
            if not is_memset(nodes[index - 1].kernel):
                break
        return group, index

    def _assign_to_calls(self, end: int) -> None:
        """Assigns the nodes before ``end`` to the library calls seen so far: one group each, or by time if their numbers differ."""
        groups, nodes = list[list[int]](), self.graph.nodes
        for index in self._order[bisect_left(self._order, self._next) : bisect_left(self._order, end)]:
            if not groups or index > groups[-1][-1]:
                groups.append(self._call_nodes(index)[0])
        calls, self._calls, self._next = self._calls, [], max(self._next, end)
        self.ambiguous |= self._skipped and len(groups) != len(calls)
        for call, group in zip(calls, groups, strict=True) if len(groups) == len(calls) else self._by_time(calls, groups):
            for index in group:
                self.places[index] = call.slot.command.place
                self.children += 1
                self.out_of_order += not call.may_own(nodes[index].first_ps)

    def _by_time(self, calls: Sequence[_Call], groups: Sequence[list[int]]) -> Iterator[tuple[_Call, list[int]]]:
        """Assigns groups by time. Consecutive calls without a node between them share a time span, and get the groups that began in it."""
        gaps: list[list[_Call]] = []
        for call in calls:
            if gaps and (gaps[-1][-1].after_ps, gaps[-1][-1].before_ps) == (call.after_ps, call.before_ps):
                gaps[-1].append(call)
            else:
                gaps.append([call])
        unassigned = list(groups)
        for number, gap in enumerate(gaps):
            mine = []
            last = number + 1 == len(gaps)
            while unassigned and (last or gap[0].may_own(self.graph.nodes[unassigned[0][-1]].first_ps)):
                mine.append(unassigned.pop(0))
            yield from self._split(gap, mine)

    def _split(self, calls: Sequence[_Call], groups: Sequence[list[int]]) -> Iterator[tuple[_Call, list[int]]]:
        """Splits groups among consecutive calls, at the most likely begins of a call (`_begin_score`)."""
        begins = [self._begin_score(group[0]) for group in groups[1:]]
        likely = sorted(range(len(begins)), key=lambda number: (-begins[number], number))[: len(calls) - 1]
        chosen = [begins[number] for number in likely]
        others = [begin for number, begin in enumerate(begins) if number not in likely]
        self.ambiguous |= len(groups) < len(calls) or bool(chosen and others and min(chosen) <= max(others))
        owner = 0
        for number, group in enumerate(groups):
            owner += number > 0 and number - 1 in likely
            yield calls[owner], group

    def _begin_score(self, index: int) -> int:
        """How likely a library call begins with this node: after an omitted number (a graph in a graph), another library, or a memset."""
        kernel = self.graph.nodes[index].kernel
        if _LAST_KERNELS.search(kernel):
            return -1
        before = self.graph.nodes.get(index - 1)
        if before is None:
            return 2 + is_memset(kernel)
        libraries = {_library(before.kernel), _library(kernel)} - {None}
        return is_memset(kernel) + 2 * (len(libraries) == 2)


def _library(kernel: str) -> int | None:
    """The library of a kernel, by its name: an index of `_LIBRARIES`."""
    return next((number for number, names in enumerate(_LIBRARIES) if names.search(kernel)), None)
