"""The reasons for idle time of a trace's devices, from what the host's threads did in the gaps (`roofline.sources.idle`)."""

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ...workload import GRAPH_BREAK
from ..host_activity import ANOMALY, BLOCKING, MASK, MEMORY, NOTHING, OPERATOR, SENT, TRIALS, WAITS, Activity, Frame, activity, loads_data
from ..idle import LARGE_COPY, Gap, Idle, explained, gaps_between, unexplained
from ..parts import DevicePart
from .compilations import compiles
from .context import BACKWARD, MODULE, users_line
from .host import Host, Launches
from .host_reads import blocking_launches, mark_late_hosts, mark_lost_leads, mark_reads, pace_of, waiting_calls
from .linking import Work
from .read.arrays import Integers, distinct
from .read.columns import ANNOTATION, MEMCPY, NONE, OP, PYTHON
from .recording_cost import fit_recording, mark_recording, mark_recording_between
from .rows import PS
from .trials import trying_convolutions

_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_BUILTIN = re.compile(r"<built-in (?:method|function) (?P<function>\w+)")
_LOADER = re.compile(r"enumerate\(DataLoader\)|DataLoader|dataloader")
_LOADING = Frame("library", "", "enumerate(DataLoader)")
# Methods of PyTorch's objects; torch.relu shows as a method of a type.
_TENSORS = re.compile(r"<built-in \w+ \w+ of (?:Tensor|Parameter|type|torch\.[\w.]+|pybind11_builtins\.\w+) object")
# Ops that read a value back from the device, and the user's name for them.
_READ_BACK = {
    "aten::repeat_interleave": "repeat_interleave",
    "aten::item": "item",
    "aten::_local_scalar_dense": "item",
    "aten::is_nonzero": "bool",
    "aten::nonzero": "nonzero",
    "aten::equal": "equal",
    "aten::unique": "unique",
    "aten::_unique2": "unique",
    "aten::masked_select": "masked_select",
    "aten::index": MASK,
    "aten::index_put_": MASK,
    "aten::_index_put_impl_": MASK,
}
_COPIES = re.compile(r"aten::(?:_to_copy|to|copy_|_copy_from\w*|cpu|clone|contiguous)$")  # the host waits for what they copy
_DIRECTIONS = {"in": ("HtoD", "HostToDevice"), "out": ("DtoH", "DeviceToHost")}  # of copies, by their names
LOOK_BACK = 16  # events before an instant that are searched for the last one to end
BETWEEN_OPS_NS = 200_000  # the longest time between two ops that counts as launching
UNRECORDED_NS = 500_000  # the same if Python calls were not recorded, such as those of hooks, of backward() and of optimizers
_PLANNED = re.compile(r"aten::_?(?:cudnn|miopen)_|aten::_\w+_(?:cudnn|miopen)_")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")  # torch.compile's name for the rest of a function after a graph break
_ALLOCATION = re.compile(r"(?:cuda|hip)(?:Malloc|Free)(?!Async|Host)|cuMem(?:Alloc|Free|Create|Map|Unmap|Release|SetAccess)(?!Async|Host)")
_COMPUTED = re.compile(r"aten::(?!(?:new_)?empty|resize|set_|detach|record_stream)")  # the excluded ops wait for memory if they take long
_KEEPS_STACK = re.compile(r"torch/fx/traceback\.py\(\d+\): format_stack")  # anomaly detection keeps the stack of each op
_CHECK = "aten::isnan"
CHECKED = 0.5  # the share of backward nodes that check for NaN under anomaly detection; a program's own checks are of a few gradients
COMPUTE_NS = 200_000  # an op that launches nothing and takes longer computes on the host; other ops take microseconds
PLAN_CALLS = 64  # an op with more runtime calls takes its time for those (a recurrent network makes thousands), not for a plan
PLAN_NS = 2_000_000  # an op of cuDNN or MIOpen that takes longer builds a plan; with a cached plan it takes microseconds


class IdleDevice(Struct):
    """A device: its number, its busy intervals, and its part of the recording."""

    number: int
    busy: Integers
    part: DevicePart


def explain(
    devices: Sequence[IdleDevice],
    work: Work,
    host: Host,
    launches: Launches,
    names: Sequence[Any],
    captured: Collection[int] = (),
    *,
    unrecorded: tuple[float, float, int] | None = None,
    on_cpu: bool = False,
) -> list[Idle]:
    """The reasons for each device's idle time; ``captured`` are threads of another recording.

    ``unrecorded`` is the duration of steps before the recording (`recording_cost.fit_recording`).
    """
    gaps_by_device = [gaps_between((device.busy * PS).data, device.part.steps, len(devices)) for device in devices]
    if not len(launches.start) or not len(host.start):
        return [unexplained(gaps) for gaps in gaps_by_device]
    waits = [number for number in distinct(launches.name).tolist() if re.search(WAITS, str(names[number]))]
    reads, sends = waiting_calls(work, launches, names, captured, waits)
    blocking = np.empty(0, np.int64) if on_cpu else blocking_launches(work, launches)
    are_blocking, reads = bool(len(blocking)), distinct(np.concatenate((reads, blocking)))
    awaited = {*waits, *distinct(launches.name[blocking]).tolist()}
    for device, gaps in zip(devices, gaps_by_device, strict=True):
        _neighbours(device.number, gaps, work, launches, names)
        if on_cpu:
            mark_recording_between(gaps, host, names)
        else:
            mark_recording(gaps, host, launches, names, captured, awaited, are_blocking=are_blocking)
        if unrecorded is not None:
            fit_recording(gaps, sorted(step.begin_ps for step in device.part.steps.values()), unrecorded)
        if not on_cpu:
            mark_reads(gaps, work, launches, waits)
            if (pace := pace_of(device.part, host, launches, names, captured, reads, sends, are_blocking=are_blocking)) is not None:
                mark_lost_leads(gaps, pace, launches, waits, captured)
                mark_late_hosts(gaps, pace)
    threads = _Threads(host, launches, names, captured, on_cpu=on_cpu, sends=frozenset(sends.tolist()), are_blocking=are_blocking)
    return [explained(gaps, threads, several=len(devices) > 1) for gaps in gaps_by_device]


def _neighbours(device: int, gaps: Sequence[Gap], work: Work, launches: Launches, names: Sequence[Any]) -> None:
    """Finds the work on both sides of each gap: the launch of the work that ended it, and copies."""
    events = np.flatnonzero(work.device == device)
    starts, ends = work.start[events], work.end[events]
    by_end = np.argsort(ends, kind="stable")
    after_each = events[np.searchsorted(starts, [gap.end // PS for gap in gaps], side="left")]
    before_each = events[by_end[np.searchsorted(ends[by_end], [gap.begin // PS for gap in gaps], side="left")]]
    for gap, before, after in zip(gaps, before_each.tolist(), after_each.tolist(), strict=True):
        launch = int(work.launch[after])
        if launch != NONE:
            gap.launched, gap.line = int(launches.start[launch]) * PS, int(launches.thread[launch])
            if launch and launches.thread[launch - 1] == gap.line:
                gap.before = int(launches.start[launch - 1]) * PS
        copies = [_copy(work, names, event) for event in (before, after)]
        gap.copy = max(copies, key=lambda copy: copy[1], default=("", 0))
        gap.fetched = copies[0][0] == "out" and copies[0][1] >= LARGE_COPY


def _copy(work: Work, names: Sequence[Any], event: int) -> tuple[str, int]:
    number, kind, _, moved = work.kernels[work.kernel[event]].tolist()
    name = str(names[number]) if kind == MEMCPY else ""
    for towards, words in _DIRECTIONS.items():
        if any(word in name for word in words):
            return towards, max(moved, 0)
    return "", 0


class _Threads:
    """The activity of each host thread at an instant."""

    def __init__(
        self,
        host: Host,
        launches: Launches,
        names: Sequence[Any],
        captured: Collection[int],
        *,
        on_cpu: bool,
        sends: Collection[int],
        are_blocking: bool,
    ) -> None:
        """``sends`` are the places of calls that wait for a copy to the device; launches ``are_blocking`` if each waits for its kernel."""
        self._host, self._launches, self._names, self._captured, self._on_cpu = host, launches, names, captured, on_cpu
        self._sends, self._are_blocking = sends, are_blocking
        self.with_frames = "with_stack=True"
        self.changed: Callable[[str], str] = lambda function: ""  # traces do not record which shapes caused a compilation
        self._known: dict[tuple[tuple[int, int], ...], Activity] = {}
        self._words: dict[tuple[int, int], str | Frame] = {}
        self._bounds = [tuple(map(int, np.searchsorted(launches.thread, (number, number + 1)))) for number in range(len(host.bounds))]
        self.has_frames = bool((host.kind == PYTHON).any())
        without_frames = ANNOTATION if (host.kind == ANNOTATION).any() else OP
        of_driver = host.kind == (PYTHON if self.has_frames else without_frames)
        of_driver &= ~np.isin(host.thread, list(captured))
        counts = np.bincount(host.thread[of_driver], minlength=1)
        self.driver: int | None = int(np.argmax(counts))

    @cached_property
    def _launching(self) -> tuple[memoryview, memoryview]:
        """The begins and the ends of ops and annotations on threads that launch work, both sorted."""
        host, threads = self._host, np.setdiff1d(distinct(self._launches.thread), list(self._captured), assume_unique=True)
        seen = np.isin(host.kind, (OP, ANNOTATION)) & np.isin(host.thread, threads)
        return np.sort(host.start[seen]).data, np.sort(host.end[seen]).data

    def running_since(self, line: int | None, instant: int | None) -> int | None:
        """Always ``None``: launches in a trace do not belong to runs of a program."""
        return None

    def at(self, line: int | None, instant: int) -> Activity:
        """The activity of a thread at an instant."""
        if line is None:
            return NOTHING
        stack = self._stack(line, instant // PS)
        if stack not in self._known:
            self._known[stack] = self._activity(stack) if stack else NOTHING
        known = self._known[stack]
        if known.kind != "compile" and (tried := self._tried(line, instant // PS)):
            return Activity("compile", known.function, known.location, detail=f"{TRIALS} kernels for {tried}")
        if known.kind == "wait" and self._called_at(line, instant // PS) in self._sends:
            return Activity("wait", known.function, known.location, detail=SENT)
        if known.kind != "compile" and self._detects_anomalies(stack):
            return Activity("wait", known.function, known.location, detail=ANOMALY)
        if known.kind in ("", "launch", "copy", "python") and self._are_blocking:
            return Activity("wait", known.function, known.location, detail=BLOCKING)
        if known.kind in ("", "launch", "copy", "python") and self._allocates(stack):
            return Activity("wait", known.function, known.location, detail=MEMORY)
        if known.kind in ("launch", "copy") and (own := self._own_work(line, instant // PS)):
            kind, word = own
            callee, detail = (word, OPERATOR) if kind == "python" else ("", word)
            return Activity(kind, known.function, known.location, callee, detail)
        calls_nothing = known.kind == "python" and not known.callee and not loads_data(known.function)
        if (calls_nothing or (not known.kind and not self.has_frames)) and self._between_ops(line, instant // PS):
            return Activity("launch", known.function, known.location, caller=known.caller)
        return known

    @cached_property
    def _checks_gradients(self) -> bool:
        """Whether most nodes of backward passes check their results for NaN, as with anomaly detection."""
        numbers = [number for number, name in enumerate(self._names) if str(name).startswith(BACKWARD)]
        nodes = np.isin(self._host.name, numbers)
        checks = [number for number, name in enumerate(self._names) if str(name) == _CHECK]
        around = self._host.parent[np.isin(self._host.name, checks) & (self._host.parent != NONE)]
        return len(distinct(around[nodes[around]])) > CHECKED * int(nodes.sum())

    def _detects_anomalies(self, stack: tuple[tuple[int, int], ...]) -> bool:
        """Whether a thread checks a gradient for NaN, or stores the stack of an op, for anomaly detection."""
        for kind, number in stack:
            name = str(self._names[number])
            if kind == PYTHON and _KEEPS_STACK.search(name):
                return True
            if kind == OP and name.startswith(BACKWARD):
                return self._checks_gradients
        return False

    @cached_property
    def _trials(self) -> frozenset[int]:
        """The convolutions that try kernels."""
        return trying_convolutions(self._host, self._launches, self._names)

    def _tried(self, line: int, instant: int) -> str:
        """The convolution that tries kernels at an instant; empty if none does."""
        trial = next((event for event in self._open(line, instant) if event in self._trials), NONE) if self._trials else NONE
        return str(self._names[self._host.name[trial]]).removeprefix("aten::") if trial != NONE else ""

    def _allocates(self, stack: tuple[tuple[int, int], ...]) -> bool:
        """Whether a thread allocates or frees memory, which waits for the device."""
        kind, name = stack[-1] if stack else (PYTHON, NONE)
        return kind == NONE and bool(_ALLOCATION.match(str(self._names[name])))

    def _own_work(self, line: int, instant: int) -> tuple[str, str] | None:
        """The kind of activity and the words for a long op that works on the host itself; ``None`` if there is none.

        Such an op builds a plan of cuDNN or MIOpen for new shapes, or computes on the host and launches nothing. In traces of the CPU alone
        such ops are the work itself, not idle time.
        """
        if self._on_cpu:
            return None
        host = self._host
        inner = next((event for event in self._open(line, instant) if host.kind[event] == OP), NONE)
        if inner == NONE or host.end[inner] - host.start[inner] < COMPUTE_NS:
            return None
        name, begin, end = str(self._names[host.name[inner]]), int(host.start[inner]), int(host.end[inner])
        if _PLANNED.match(name):
            library = "MIOpen" if "miopen" in name else "cuDNN"
            plans = end - begin >= PLAN_NS and self._called(line, begin, end) <= PLAN_CALLS
            return ("compile", f"a plan of {library} for {name.removeprefix('aten::')}") if plans else None
        return ("python", name.removeprefix("aten::")) if _COMPUTED.match(name) and not self._called(line, begin, end) else None

    def _called(self, line: int, begin: int, end: int) -> int:
        """How many runtime calls a thread made between two instants."""
        starts, bounds = self._launches.start.data, self._bounds[line]  # a memoryview: numpy is slower for a single instant
        return bisect_left(starts, end, *bounds) - bisect_left(starts, begin, *bounds)

    def _between_ops(self, line: int, instant: int) -> bool:
        """Whether a thread is between two ops that follow each other closely, so that it runs Python code that launches.

        If Python calls were not recorded, ops of all launching threads count: this thread may wait for that of the backward pass.
        """
        if not self.has_frames:
            starts, ends = self._launching
            ended, begun = bisect_right(ends, instant), bisect_left(starts, instant)
            return ended > 0 and begun < len(starts) and starts[begun] - ends[ended - 1] < UNRECORDED_NS
        (first, last), starts, ends = self._host.bounds[line], self._host.start.data, self._host.end.data
        place = bisect_right(starts, instant, first, last)
        if place in (first, last):
            return False
        before = max(ends[other] for other in range(max(first, place - LOOK_BACK), place) if ends[other] <= instant or other == place - 1)
        return starts[place] - min(before, instant) < BETWEEN_OPS_NS

    def _open(self, line: int, instant: int) -> Iterator[int]:
        """The open events of a thread at an instant, the innermost first."""
        first, last = self._host.bounds[line]
        place = bisect_right(self._host.start.data, instant, first, last) - 1
        ends = self._host.end.data
        return (event for event in self._host.around(place if place >= first else NONE) if ends[event] > instant)

    def _stack(self, line: int, instant: int) -> tuple[tuple[int, int], ...]:
        """Kind and name of a thread's open events, the outermost first; a runtime call comes last."""
        kinds, names = self._host.kind.data, self._host.name.data
        opened = [(kinds[event], names[event]) for event in self._open(line, instant)]
        opened.reverse()
        if (called := self._called_at(line, instant)) != NONE:
            opened.append((NONE, int(self._launches.name[called])))
        return tuple(opened)

    def _called_at(self, line: int, instant: int) -> int:
        """The runtime call of a thread that is open at an instant."""
        first, last = self._bounds[line]
        called = bisect_right(self._launches.start.data, instant, first, last) - 1
        return called if called >= first and self._launches.end[called] > instant else NONE

    def _activity(self, stack: tuple[tuple[int, int], ...]) -> Activity:
        words = [self._word(*frame) for frame in stack]
        doing = activity(words)
        if caller := _caller(words, doing.location):
            doing = replace(doing, caller=caller)
        if doing.kind in ("launch", "copy") and _LOADING in words:  # ops on the host that assemble a batch
            return Activity("python", doing.function, doing.location, "" if loads_data(doing.function) else _LOADING.function)
        if doing.kind != "wait" or doing.detail:
            return doing
        names = [str(self._names[number]) for _, number in stack]
        called = next((name for name in names if name.startswith("aten::")), "")
        read = next((_READ_BACK[name] for name in names if name in _READ_BACK), "")
        if called and called not in _READ_BACK and not _COPIES.match(called) and read in ("", "item", "bool"):
            return replace(doing, callee=called.removeprefix("aten::"))  # an operator that waits, or reads a value back, by itself
        return replace(doing, detail=read)

    def _word(self, kind: int, number: int) -> str | Frame:
        key = (kind, number)
        if key not in self._words:
            self._words[key] = _word(kind, str(self._names[number]))
        return self._words[key]


def _caller(words: Sequence[str | Frame], location: str) -> str:
    """The user's function that called the outermost module; empty if that is the one at ``location``."""
    frames = [word for word in words if isinstance(word, Frame)]
    module = next((place for place, frame in enumerate(frames) if frame.function.startswith(MODULE)), 0)
    callers = [frame for frame in frames[:module] if frame.owner == "user"]
    if not callers or callers[-1].location == location:
        return ""
    named = next((frame for frame in reversed(callers) if not frame.function.startswith("<")), callers[-1])
    return f"{named.function} ({callers[-1].location.rpartition('/')[2]})"


def _word(kind: int, name: str) -> str | Frame:
    """An event in the form that `roofline.sources.host_activity` expects: a name or a frame.

    >>> _word(PYTHON, "train.py(31): load_batch").owner, _word(PYTHON, "torch/nn/modules/linear.py(134): forward").owner
    ('user', 'framework')
    """
    if kind == PYTHON:
        return _frame(name)
    if _LOADER.search(name):
        return _LOADING
    if compiles(kind, name):
        return "backend_compile"
    if name.startswith("Optimizer."):  # the optimizer's Python code counts as launching
        return f"aten::{name}"
    return f"aten::{name}" if kind == OP and not name.startswith(("aten::", "autograd::")) else name


def _frame(name: str) -> str | Frame:
    if compiles(PYTHON, name):
        return "backend_compile"
    if match := _BUILTIN.match(name):
        return Frame("framework" if _TENSORS.match(name) else "library", "", match["function"])
    match = _FRAME.fullmatch(name)
    if match is None:
        return Frame("framework", "", name)
    file = match["file"].replace("\\", "/")
    if line := users_line(name):
        resumed = _RESUMED.fullmatch(match["function"])
        return Frame("user", line, f"{resumed[1]} after a {GRAPH_BREAK}" if resumed else match["function"])
    short = file.rpartition("/")[2].removesuffix(".py")
    loads = "torch/utils/data" in file or short in sys.stdlib_module_names or file.startswith("<")
    return Frame("library" if loads else "framework", f"{file}:{match['line']}", match["function"])
