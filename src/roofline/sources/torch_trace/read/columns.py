"""The events of a trace as columns of numbers; names, shapes and threads are numbers into lists.

There are three tables: the host's events (ops, annotations, Python functions), the launches (calls of the CUDA or HIP runtime and driver)
and the devices' events. Times are whole nanoseconds since the first event.
"""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from struct import pack
from typing import TYPE_CHECKING, Any

from .events import ABSENT, EXTRA, Args, Event, ExactEvent

if TYPE_CHECKING:
    from .arrays import Integers  # imports numpy, which reading events does not need

OP, ANNOTATION, PYTHON = 0, 1, 2  # kinds of the host's events
KERNEL, MEMCPY, MEMSET = 0, 1, 2  # kinds of the devices' events
NONE = -1

HOST = {"cpu_op": OP, "Operator": OP, "user_annotation": ANNOTATION, "python_function": PYTHON}
LAUNCHES = frozenset(
    ("cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime", "privateuse1_runtime", "xpu_runtime", "xpu_driver")
)
OTHER_DEVICES = ("mtia_", "hpu_", "glow_")  # beginnings of the categories of accelerators whose events are not read
DEVICE = {"kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET}
MEMORY = "[memory]"  # the name of an allocation event
HOST_MEMORY = 0  # c10::DeviceType of the CPU
_FAR_NS = 2**62  # time stamps beyond this are invalid
_FAR_US = _FAR_NS // 1000
_MOST_FUNCTIONS = 200_000  # ops of the first steps
_MOST_IDS = 2**31  # larger external ids are not kept
_NO_ARGS = Args()
# Type codes of columns: 32 bits are enough for the others.
_CODES = {"start": "d", "length": "d", "sequence": "q", "correlation": "q", "device": "q", "kind": "b"}
_JOIN = b"\0".join


class Numbered(dict[Any, int]):
    """Numbers distinct values in the order in which they are first looked up."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


class Table:
    """Growing columns, which are read as arrays when they are complete.

    Times are stored as recorded, in fractional microseconds, and converted when they are read or when whole nanoseconds are added.
    """

    def __init__(self, *names: str) -> None:
        self._columns = {name: array(_CODES.get(name, "i")) for name in names}

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
        """Appends another table. For columns that are numbers into lists, ``numbers`` maps the other table's numbers to this one's."""
        for name in self._columns:
            self.extend(**{name: numbers[name][other.take(name)] if name in numbers else other._columns.pop(name)})

    def __len__(self) -> int:
        return max(map(len, self._columns.values()), default=0)

    def array(self, name: str) -> "Integers":
        """A column as an array. While the array is used, the table cannot grow."""
        return _numbers(name, self._columns[name])

    def take(self, name: str) -> "Integers":
        """Removes a column and returns it as an array; this saves memory, as callers make sorted copies."""
        return _numbers(name, self._columns.pop(name))


def _numbers(name: str, column: "array[Any]") -> "Integers":
    """The numbers of a column, times in whole nanoseconds; an invalid time becomes 0."""
    import numpy as np

    if column.typecode != "d":
        return np.frombuffer(column, column.typecode)
    with np.errstate(over="ignore"):  # a time that overflows is invalid
        times = np.frombuffer(column, float) * 1000
    times[~(np.abs(times) < _FAR_NS)] = 0
    if name == "length":
        times[times < 0] = 0
    whole: Integers = np.rint(times).astype(np.int64)
    return whole


HOST_COLUMNS = ("thread", "start", "length", "name", "kind", "arguments", "sequence", "extra", "external")
LAUNCH_COLUMNS = ("thread", "start", "length", "name", "correlation", "extra")


class Columns:
    """All columns of a trace."""

    def __init__(self) -> None:
        self.names, self.threads, self.grids = Numbered(), Numbered(), Numbered()
        self.arguments, self.extras, self.queues, self.kernels = Numbered(), Numbered(), Numbered(), Numbered()
        self.captured: set[int] = set()  # threads of other recordings
        self.functions: dict[int, int] = {}  # by external id of the first ops, the number that an ExecutionTraceObserver gave them
        self.unread: set[str] = set()  # categories of events of other devices
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

    def merge_peaks(self, other: "Columns") -> None:
        """Raises the memory peaks to those of another recording, if they are higher."""
        self.allocated, self.reserved = max(self.allocated, other.allocated), max(self.reserved, other.reserved)

    def add(self, events: Sequence[Event]) -> None:
        """Adds events to the columns; events of other kinds are ignored."""
        groups: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
            elif event.name == MEMORY and event.args is not None:
                self._add_memory(event.args)
        for category, members in groups.items():
            if category in HOST:
                kind = HOST[category]
                self.host.extend(**self._thread_fields(members), kind=array("b", [kind]) * len(members), **self._op_fields(members, kind))
            elif category in LAUNCHES:
                self._add_launches(members)
            elif category in DEVICE:
                self._add_device(members, DEVICE[category])
            elif category and category.startswith(OTHER_DEVICES):
                self.unread.add(category)

    def _add_memory(self, args: Args) -> None:
        """Adds an event of an allocation or its end, which has the bytes that its device has allocated and reserved after it."""
        for field, bytes in (("allocated", args.allocated), ("reserved", args.reserved)):
            if args.device_type != HOST_MEMORY and isinstance(bytes, int) and getattr(self, field) < bytes < _FAR_NS:
                setattr(self, field, bytes)

    def _thread_fields(self, events: list[Event]) -> dict[str, Any]:
        """Threads, times and names of events."""
        names = self.names
        starts, lengths = _times(events)
        return {"thread": self._threads(events), "start": starts, "length": lengths, "name": [names[event.name] for event in events]}

    def _threads(self, events: list[Event]) -> list[int]:
        """The thread of each event. Most events are on the same thread as the one before, so few are looked up."""
        pid, tid = events[0].pid, events[0].tid
        thread = self.threads[pid, tid]
        events_of = []
        for event in events:
            if event.tid != tid or event.pid != pid:
                pid, tid = event.pid, event.tid
                thread = self.threads[pid, tid]
            events_of.append(thread)
        return events_of

    def _op_fields(self, events: list[Event], kind: int) -> dict[str, list[int]]:
        """Arguments, sequence numbers, extra fields and external ids of ops."""
        if kind == PYTHON:
            return dict.fromkeys(("arguments", "sequence", "extra", "external"), [NONE] * len(events))
        numbered, none = self.arguments, ABSENT
        arguments = [event.args or _NO_ARGS for event in events]
        if arguments[-1].function and len(self.functions) < _MOST_FUNCTIONS:
            self.functions.update((args.external, args.function) for args in arguments if args.function and args.external is not None)
        return {
            "arguments": [
                NONE if args.types is none else numbered[_JOIN((args.dims, args.types, args.strides, args.concrete))] for args in arguments
            ],
            "external": [NONE if (number := args.external) is None or not 0 <= number < _MOST_IDS else number for args in arguments],
            "sequence": [NONE if (number := args.sequence) is None else number for args in arguments],
            "extra": [
                NONE if args.collective is none and args.kernel_hash is none and args.kernel_file is none else self._extra(args)
                for args in arguments
            ],
        }

    def _extra(self, args: Args) -> int:
        """The number of an event's extra fields, those other than its arguments."""
        return self.extras[tuple((name, bytes(value)) for field, name in EXTRA.items() if (value := getattr(args, field)) is not ABSENT)]

    def _add_launches(self, events: list[Event]) -> None:
        arguments = [event.args or _NO_ARGS for event in events]
        self.launches.extend(
            **self._thread_fields(events),
            correlation=[NONE if (number := args.correlation) is None else number for args in arguments],
            extra=[
                NONE if args.kernel is None and args.kind is None and args.bytes is None and args.size is None else self._launch_extra(args)
                for args in arguments
            ],
        )

    def _launch_extra(self, args: Args) -> int:
        """The number of the kernel, direction and bytes that HIP records at a launch."""
        return self.extras["launch", str(args.kernel or ""), str(args.kind or ""), _integer(args.bytes, args.size)]

    def _add_device(self, events: list[Event], kind: int) -> None:
        names, grids, numbered, queues, none = self.names, self.grids, self.kernels, self.queues, ABSENT
        arguments = [event.args or _NO_ARGS for event in events]
        devices = [event.pid if args.device is None else args.device for event, args in zip(events, arguments, strict=True)]
        starts, lengths = _times(events)
        self.device.extend(
            device=[device if isinstance(device, int) and abs(device) < _FAR_NS else 0 for device in devices],
            queue=[queues[event.tid if args.stream is None else args.stream] for event, args in zip(events, arguments, strict=True)],
            start=starts,
            length=lengths,
            kernel=[
                numbered[
                    names[event.name],
                    kind,
                    NONE if args.grid is none else grids[_JOIN((args.grid, args.block, args.registers, args.shared))],
                    NONE if kind == KERNEL else _integer(args.bytes, args.size),
                ]
                for event, args in zip(events, arguments, strict=True)
            ],
            correlation=[NONE if (number := args.correlation) is None else number for args in arguments],
            extra=[NONE if args.collective is none else self._extra(args) for args in arguments],
        )


def _integer(*values: int | str | None) -> int:
    """The first value that is a number, or text of digits; `NONE` if there is none."""
    for value in values:
        if isinstance(value, int) and 0 <= value < _FAR_NS:
            return value
        if isinstance(value, str) and value.isdecimal() and len(value) < 18:
            return int(value)
    return NONE


def _times(events: Sequence[Event]) -> "tuple[array[Any], array[Any]]":
    """Begins and lengths: as recorded; for events with exact times in whole nanoseconds, an invalid time as 0."""
    if isinstance(events[0], ExactEvent):  # Decimals
        begins = [int(event.ts * 1000) if abs(event.ts) < _FAR_US else 0 for event in events]
        return array("q", begins), array("q", [int(event.dur * 1000) if 0 <= event.dur < _FAR_US else 0 for event in events])
    return _packed("d", [event.ts for event in events]), _packed("d", [event.dur for event in events])


def _packed(typecode: str, values: Sequence[float]) -> "array[Any]":
    """An array of numbers. `struct.pack` is three times as fast as making it from the list."""
    return array(typecode, pack(f"{len(values)}{typecode}", *values))
