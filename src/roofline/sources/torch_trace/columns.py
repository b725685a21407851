"""What is kept of a trace's events: columns of numbers, with names, shapes and threads as numbers into lists.

The host's events (ops, annotations, Python functions), the launches (calls of the CUDA or HIP runtime and driver) and the devices' events
are three tables. Times are whole nanoseconds since the first event.
"""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from struct import pack
from typing import TYPE_CHECKING, Any

from .events import EXTRA, NOT_SAID, Args, Event, ExactEvent

if TYPE_CHECKING:
    from .arrays import Integers  # numpy, which those who only read events do without

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
_FAR_NS = 2**62  # beyond which a time stamp cannot be meant
_FAR_US = _FAR_NS // 1000
_NO_ARGS = Args()
_TIMES = ("start", "length")
_LONG = ("sequence", "correlation", "device")  # columns of 64 bits; numbers of things need no more than 32
_JOIN = b"\0".join


class Numbered(dict[Any, int]):
    """Gives each new thing the next number."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number


class Table:
    """Columns that grow, read as arrays when all is there.

    Times are kept as they were told, microseconds with decimals, until whole nanoseconds are added to them or they are read.
    """

    def __init__(self, *names: str) -> None:
        self._columns = {name: array("d" if name in _TIMES else "q" if name in _LONG else "b" if name == "kind" else "i") for name in names}

    def extend(self, **columns: "array[Any] | list[int] | Integers") -> None:
        for name, values in columns.items():
            column = self._columns[name]
            if isinstance(values, list):
                column += _packed(column.typecode, values)
            elif isinstance(values, array) and values.typecode == column.typecode:
                column += values
            else:
                if column.typecode == "d":
                    column = self._columns[name] = array("q", _numbers(name, column).tobytes())
                column.frombytes((_numbers(name, values) if isinstance(values, array) else values).astype(column.typecode).tobytes())

    def append(self, other: "Table", numbers: Mapping[str, "Integers"]) -> None:
        """Takes over another table; ``numbers`` has, for columns that are numbers of things, the number here of each of its things."""
        for name in self._columns:
            self.extend(**{name: numbers[name][other.take(name)] if name in numbers else other._columns.pop(name)})

    def __len__(self) -> int:
        return max(map(len, self._columns.values()), default=0)

    def array(self, name: str) -> "Integers":
        """A column as it is now. While it is used, the table cannot grow."""
        return _numbers(name, self._columns[name])

    def take(self, name: str) -> "Integers":
        """A column, which the table then no longer has: arrays that are sorted would be there twice."""
        return _numbers(name, self._columns.pop(name))


def _numbers(name: str, column: "array[Any]") -> "Integers":
    """The numbers of a column, times in whole nanoseconds; what cannot be a time becomes 0."""
    import numpy as np

    if column.typecode != "d":
        return np.frombuffer(column, column.typecode)
    with np.errstate(over="ignore"):  # what overflows cannot be a time either
        times = np.frombuffer(column, float) * 1000
    times[~(np.abs(times) < _FAR_NS)] = 0
    if name == "length":
        times[times < 0] = 0
    whole: Integers = np.rint(times).astype(np.int64)
    return whole


HOST_COLUMNS = ("thread", "start", "length", "name", "kind", "arguments", "sequence", "extra")
LAUNCH_COLUMNS = ("thread", "start", "length", "name", "correlation", "extra")


class Columns:
    """Everything that was kept of a trace."""

    def __init__(self) -> None:
        self.names, self.threads, self.grids = Numbered(), Numbered(), Numbered()
        self.arguments, self.extras, self.queues, self.kernels = Numbered(), Numbered(), Numbered(), Numbered()
        self.captured: set[int] = set()  # threads of other recordings
        self.allocated, self.reserved = 0, 0  # the most bytes at once on a device
        self.host = Table(*HOST_COLUMNS)
        self.launches = Table(*LAUNCH_COLUMNS)
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

    def take_memory(self, other: "Columns") -> None:
        """Remember the most bytes at once of another recording, if they are more."""
        self.allocated, self.reserved = max(self.allocated, other.allocated), max(self.reserved, other.reserved)

    def add(self, events: Sequence[Event]) -> None:
        """Keep what is needed of some events."""
        groups: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
            elif event.name == MEMORY and event.args is not None:
                self._add_memory(event.args)
        for category, mine in groups.items():
            if category in HOST:
                self._add_host(mine, HOST[category])
            elif category in LAUNCHES:
                self._add_launches(mine)
            elif category in DEVICE:
                self._add_device(mine, DEVICE[category])

    def _add_memory(self, args: Args) -> None:
        """An allocation or its end, with the bytes of its device that are allocated and reserved after it."""
        for field, bytes in (("allocated", args.allocated), ("reserved", args.reserved)):
            if args.device_type != HOST_MEMORY and isinstance(bytes, int) and getattr(self, field) < bytes < _FAR_NS:
                setattr(self, field, bytes)

    def _add_host(self, events: list[Event], kind: int) -> None:
        self.host.extend(**self._called(events), kind=array("b", [kind]) * len(events), **self._said(events, kind))

    def _called(self, events: list[Event]) -> dict[str, Any]:
        """When events of threads were, where, and what they are called."""
        names = self.names
        starts, lengths = _times(events)
        return {
            "thread": self._threads(events),
            "start": starts,
            "length": lengths,
            "name": [names[event.name] for event in events],
        }

    def _threads(self, events: list[Event]) -> list[int]:
        """The thread of each event. Those of one thread follow each other, so few are looked up."""
        pid, tid = events[0].pid, events[0].tid
        thread = self.threads[pid, tid]
        found = []
        for event in events:
            if event.tid != tid or event.pid != pid:
                pid, tid = event.pid, event.tid
                thread = self.threads[pid, tid]
            found.append(thread)
        return found

    def _said(self, events: list[Event], kind: int) -> dict[str, list[int]]:
        """The arguments of ops, their sequence numbers, and what else they say."""
        if kind == PYTHON:
            return dict.fromkeys(("arguments", "sequence", "extra"), [NONE] * len(events))
        numbered, none = self.arguments, NOT_SAID
        said = [event.args or _NO_ARGS for event in events]
        return {
            "arguments": [NONE if one.types is none else numbered[_JOIN((one.dims, one.types, one.strides, one.concrete))] for one in said],
            "sequence": [NONE if (number := one.sequence) is None else number for one in said],
            "extra": [
                NONE if one.collective is none and one.kernel_hash is none and one.kernel_file is none else self._extra(one) for one in said
            ],
        }

    def _extra(self, args: Args) -> int:
        """The number of what an event says beside its arguments."""
        return self.extras[tuple((name, bytes(said)) for field, name in EXTRA.items() if (said := getattr(args, field)) is not NOT_SAID)]

    def _add_launches(self, events: list[Event]) -> None:
        said = [event.args or _NO_ARGS for event in events]
        self.launches.extend(
            **self._called(events),
            correlation=[NONE if (number := one.correlation) is None else number for one in said],
            extra=[
                NONE if one.kernel is None and one.kind is None and one.bytes is None and one.size is None else self._launched(one)
                for one in said
            ],
        )

    def _launched(self, args: Args) -> int:
        """The number of what HIP says at a launch: what it launches and copies."""
        return self.extras["launch", str(args.kernel or ""), str(args.kind or ""), _whole(args.bytes, args.size)]

    def _add_device(self, events: list[Event], kind: int) -> None:
        names, grids, numbered, queues, none = self.names, self.grids, self.kernels, self.queues, NOT_SAID
        said = [event.args or _NO_ARGS for event in events]
        devices = [event.pid if args.device is None else args.device for event, args in zip(events, said, strict=True)]
        starts, lengths = _times(events)
        self.device.extend(
            device=[device if isinstance(device, int) and abs(device) < _FAR_NS else 0 for device in devices],
            queue=[queues[event.tid if args.stream is None else args.stream] for event, args in zip(events, said, strict=True)],
            start=starts,
            length=lengths,
            kernel=[
                numbered[
                    names[event.name],
                    kind,
                    NONE if args.grid is none else grids[bytes(args.grid)],
                    NONE if kind == KERNEL else _whole(args.bytes, args.size),
                ]
                for event, args in zip(events, said, strict=True)
            ],
            correlation=[NONE if (number := args.correlation) is None else number for args in said],
            extra=[NONE if args.collective is none else self._extra(args) for args in said],
        )


def _whole(*said: int | str | None) -> int:
    """The first number that is said, in digits or not; `NONE` if none is."""
    for one in said:
        if isinstance(one, int) and 0 <= one < _FAR_NS:
            return one
        if isinstance(one, str) and one.isdecimal() and len(one) < 18:
            return int(one)
    return NONE


def _times(events: Sequence[Event]) -> "tuple[array[Any], array[Any]]":
    """Begins and lengths: of events with exact times in whole nanoseconds (0 for what cannot be a time), else as they were told."""
    if isinstance(events[0], ExactEvent):  # Decimals
        begins = [int(event.ts * 1000) if abs(event.ts) < _FAR_US else 0 for event in events]
        return array("q", begins), array("q", [int(event.dur * 1000) if 0 <= event.dur < _FAR_US else 0 for event in events])
    return _packed("d", [event.ts for event in events]), _packed("d", [event.dur for event in events])


def _packed(typecode: str, values: Sequence[float]) -> "array[Any]":
    """The array of some numbers. Made from a list it would take three times as long: each number is an argument to be parsed then."""
    return array(typecode, pack(f"{len(values)}{typecode}", *values))
