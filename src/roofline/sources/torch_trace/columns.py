"""What is kept of a trace's events: columns of numbers, with names, shapes and threads as numbers into lists.

The host's events (ops, annotations, Python functions), the launches (calls of the CUDA or HIP runtime and driver) and the devices' events
are three tables. Times are whole nanoseconds since the first event.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .events import EXTRA, NOT_SAID, Args, Event, ExactEvent

Integers = NDArray[np.int64]
OP, ANNOTATION, PYTHON = 0, 1, 2  # kinds of the host's events
KERNEL, MEMCPY, MEMSET = 0, 1, 2  # kinds of the devices' events
NONE = -1

HOST = {"cpu_op": OP, "Operator": OP, "user_annotation": ANNOTATION, "python_function": PYTHON}
LAUNCHES = frozenset(
    ("cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime", "privateuse1_runtime", "xpu_runtime", "xpu_driver")
)
DEVICE = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
MEMORY = "[memory]"  # the name of an allocation, an instant
HOST_MEMORY = 0  # c10::DeviceType of the CPU
_WANTED = (*HOST, *LAUNCHES, *DEVICE)
_FAR_NS = 2**62  # beyond which a time stamp cannot be meant
_FAR_US = _FAR_NS // 1000
_NO_ARGS = Args()
_LONG = ("start", "length", "sequence", "correlation", "device")  # columns of 64 bits; numbers of things need no more than 32
_JOIN = b"\0".join


class Numbered(dict[Any, int]):
    """Gives each new thing the next number."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number


class Table:
    """Columns that grow, read as arrays when all is there."""

    def __init__(self, *names: str) -> None:
        self._columns = {name: array("q" if name in _LONG else "b" if name == "kind" else "i") for name in names}

    def extend(self, **columns: "list[int] | Integers") -> None:
        for name, values in columns.items():
            column = self._columns[name]
            if isinstance(values, np.ndarray):
                column.frombytes(values.astype(column.typecode).tobytes())
            else:
                column += array(column.typecode, values)

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return max(map(len, self._columns.values()), default=0)

    def array(self, name: str) -> Integers:
        """A column as it is now. While it is used, the table cannot grow."""
        return np.frombuffer(self._columns[name], self._columns[name].typecode)

    def take(self, name: str) -> Integers:
        """A column, which the table then no longer has: arrays that are sorted would be there twice."""
        column = self._columns.pop(name)
        return np.frombuffer(column, column.typecode)


_HOST = ("thread", "start", "length", "name", "kind", "arguments", "sequence", "extra")
_LAUNCHES = ("thread", "start", "length", "name", "correlation", "extra")


class Columns:
    """Everything that was kept of a trace."""

    def __init__(self) -> None:
        self.names, self.threads, self.grids = Numbered(), Numbered(), Numbered()
        self.arguments, self.extras, self.queues, self.kernels = Numbered(), Numbered(), Numbered(), Numbered()
        self.captured: set[int] = set()  # threads of other recordings
        self.allocated, self.reserved = 0, 0  # the most bytes at once on a device
        self.host = Table(*_HOST)
        self.launches = Table(*_LAUNCHES)
        self.device = Table("device", "queue", "start", "length", "kernel", "correlation", "extra")

    def __len__(self) -> int:
        """How many events were kept."""
        return len(self.host) + len(self.launches) + len(self.device)

    def begin(self) -> int:
        """When the first event began."""
        begins = [int(table.array("start").min()) for table in (self.host, self.launches, self.device) if len(table)]
        return min(begins, default=0)

    def end(self) -> int:
        """When the last event of the host ended, or a little later."""
        tables = [table for table in (self.host, self.launches) if len(table)]
        return max((int(table.array("start").max() + table.array("length").max()) for table in tables), default=0)

    def absorb(self, other: "Columns") -> None:
        """Take over what another recording of the program launched without running it: the captures of graphs, with the ops around them.

        Its threads stay apart from those here, its time lies before. Its annotations are no steps of this recording.
        """
        names, arguments, extras = (
            np.array([*(mine[one] for one in theirs), NONE])
            for mine, theirs in ((self.names, other.names), (self.arguments, other.arguments), (self.extras, other.extras))
        )
        self._take_memory(other)  # a replay works in the memory that was allocated while its graph was captured
        threads = np.array([self.threads["captured", *thread] for thread in other.threads], np.int64)
        self.captured.update(threads.tolist())
        shift = self.begin() - other.end() - 1
        host = {name: other.host.take(name) for name in _HOST}
        kept = host["kind"] != ANNOTATION
        self.host.extend(
            thread=threads[host["thread"]][kept],
            start=host["start"][kept] + shift,
            length=host["length"][kept],
            name=names[host["name"]][kept],
            kind=host["kind"][kept],
            arguments=arguments[host["arguments"]][kept],
            sequence=np.full(int(kept.sum()), NONE),
            extra=extras[host["extra"]][kept],
        )
        calls = {name: other.launches.take(name) for name in _LAUNCHES}
        silent = ~np.isin(calls["correlation"], other.device.take("correlation"))
        self.launches.extend(
            thread=threads[calls["thread"]][silent],
            start=calls["start"][silent] + shift,
            length=calls["length"][silent],
            name=names[calls["name"]][silent],
            correlation=np.full(int(silent.sum()), NONE),
            extra=extras[calls["extra"]][silent],
        )

    def append(self, other: "Columns") -> None:
        """Take over everything of another section of the same trace."""
        names, threads, grids, arguments, extras, queues = (
            np.array([*(mine[one] for one in theirs), NONE])  # the last one for NONE itself
            for mine, theirs in (
                (self.names, other.names),
                (self.threads, other.threads),
                (self.grids, other.grids),
                (self.arguments, other.arguments),
                (self.extras, other.extras),
                (self.queues, other.queues),
            )
        )
        kernels = np.array(
            [*(self.kernels[int(names[name]), kind, int(grids[grid]), moved] for name, kind, grid, moved in other.kernels), NONE]
        )
        new = {"name": names, "thread": threads, "arguments": arguments, "extra": extras, "queue": queues, "kernel": kernels}
        self._take_memory(other)
        for mine, theirs in ((self.host, other.host), (self.launches, other.launches), (self.device, other.device)):
            for column in mine.names:
                values = theirs.take(column)
                mine.extend(**{column: new[column][values] if column in new else values})

    def _take_memory(self, other: "Columns") -> None:
        self.allocated, self.reserved = max(self.allocated, other.allocated), max(self.reserved, other.reserved)

    def add(self, events: Sequence[Event]) -> None:
        """Keep what is needed of some events."""
        groups: dict[str, list[Event]] = {category: [] for category in _WANTED}
        for event in events:
            group = groups.get(event.cat)  # type: ignore[arg-type]
            if group is None:
                if event.name == MEMORY and event.args is not None:
                    self._add_memory(event.args)
            elif event.ph == "X":
                group.append(event)
        for category, mine in groups.items():
            if mine and category in HOST:
                self._add_host(mine, HOST[category])
            elif mine and category in LAUNCHES:
                self._add_launches(mine)
            elif mine:
                self._add_device(mine, DEVICE[category])

    def _add_memory(self, args: Args) -> None:
        """An allocation or its end, with the bytes of its device that are allocated and reserved after it."""
        for field, bytes in (("allocated", args.allocated), ("reserved", args.reserved)):
            if args.device_type != HOST_MEMORY and isinstance(bytes, int) and getattr(self, field) < bytes < _FAR_NS:
                setattr(self, field, bytes)

    def _add_host(self, events: list[Event], kind: int) -> None:
        names, threads = self.names, self.threads
        nothing = np.full(len(events), NONE)
        said = {"arguments": nothing, "sequence": nothing, "extra": nothing} if kind == PYTHON else self._said(events)
        starts, lengths = _times(events)
        self.host.extend(
            thread=[threads[event.pid, event.tid] for event in events],
            start=starts,
            length=lengths,
            name=[names[event.name] for event in events],
            kind=np.full(len(events), kind),
            **said,
        )

    def _said(self, events: list[Event]) -> dict[str, list[int]]:
        """The arguments of ops, their sequence numbers, and what else they say."""
        arguments, sequences, extras = [], [], []
        numbered = self.arguments
        for event in events:
            args = event.args
            if args is None:
                args = _NO_ARGS
            sequence = args.sequence
            sequences.append(NONE if sequence is None else sequence)
            if args.types is NOT_SAID:
                arguments.append(NONE)
            else:
                arguments.append(numbered[_JOIN((args.dims, args.types, args.strides, args.concrete))])
            if args.collective is NOT_SAID and args.kernel_hash is NOT_SAID and args.kernel_file is NOT_SAID:
                extras.append(NONE)
            else:
                extras.append(self._extra(args))
        return {"arguments": arguments, "sequence": sequences, "extra": extras}

    def _extra(self, args: Args) -> int:
        """The number of what an event says beside its arguments."""
        return self.extras[tuple((name, bytes(said)) for field, name in EXTRA.items() if (said := getattr(args, field)) is not NOT_SAID)]

    def _add_launches(self, events: list[Event]) -> None:
        correlations, extras = [], []
        for event in events:
            args = event.args
            correlations.append(NONE if args is None or args.correlation is None else args.correlation)
            if args is None or (args.kernel is None and args.kind is None and args.bytes is None and args.size is None):
                extras.append(NONE)
            else:  # HIP says what it launches and copies here
                extras.append(self.extras["launch", str(args.kernel or ""), str(args.kind or ""), _whole(args.bytes, args.size)])
        starts, lengths = _times(events)
        self.launches.extend(
            thread=[self.threads[event.pid, event.tid] for event in events],
            start=starts,
            length=lengths,
            name=[self.names[event.name] for event in events],
            correlation=correlations,
            extra=extras,
        )

    def _add_device(self, events: list[Event], kind: int) -> None:
        devices, queues, kernels, correlations, extras = [], [], [], [], []
        names, grids, numbered = self.names, self.grids, self.kernels
        for event in events:
            args = event.args or _NO_ARGS
            device = event.pid if args.device is None else args.device
            devices.append(device if isinstance(device, int) and abs(device) < _FAR_NS else 0)
            queues.append(self.queues[event.tid if args.stream is None else args.stream])
            correlations.append(NONE if args.correlation is None else args.correlation)
            grid = NONE if args.grid is NOT_SAID else grids[bytes(args.grid)]
            moved = NONE if kind == KERNEL else _whole(args.bytes, args.size)
            kernels.append(numbered[names[event.name], kind, grid, moved])
            extras.append(NONE if args.collective is NOT_SAID else self._extra(args))
        starts, lengths = _times(events)
        self.device.extend(
            device=devices, queue=queues, start=starts, length=lengths, kernel=kernels, correlation=correlations, extra=extras
        )


def _whole(*said: int | str | None) -> int:
    """The first number that is said, in digits or not; `NONE` if none is."""
    for one in said:
        if isinstance(one, int) and 0 <= one < _FAR_NS:
            return one
        if isinstance(one, str) and one.isdecimal() and len(one) < 18:
            return int(one)
    return NONE


def _times(events: Sequence[Event]) -> tuple[Integers, Integers]:
    """Begins and lengths in nanoseconds; what cannot be a time becomes 0."""
    if isinstance(events[0], ExactEvent):
        begins = [int(event.ts * 1000) if abs(event.ts) < _FAR_US else 0 for event in events]  # a Decimal, exactly
        lengths = [int(event.dur * 1000) if 0 <= event.dur < _FAR_US else 0 for event in events]
        return np.array(begins, np.int64), np.array(lengths, np.int64)
    with np.errstate(over="ignore"):  # what overflows cannot be a time either
        begun = np.array([event.ts for event in events], float) * 1000
        lasted = np.array([event.dur for event in events], float) * 1000
    begun[~(np.abs(begun) < _FAR_NS)] = 0
    lasted[(lasted < 0) | (lasted >= _FAR_NS)] = 0
    return np.rint(begun).astype(np.int64), np.rint(lasted).astype(np.int64)
