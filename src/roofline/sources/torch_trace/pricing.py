"""The price of each execution, from the arguments of its op and the kernels it launched.

The innermost op is priced, once, however many kernels it launched; ops around it only give context. If it has no price, the nearest op
around it that has one is priced instead, together with everything launched inside it.
"""

import re
from collections.abc import Sequence
from itertools import islice, pairwise
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from ...dtypes import DType
from ...formulas.network import Network
from ...torch_prices import Call, Kernel, Priced, Tensor, has_price, has_users_price, price
from ...torch_prices.inductor import COMPILED_KERNELS
from ...workload import Block
from .executions import Execution, Executions
from .host import Host, Launches
from .linking import Work
from .read.arrays import Integers
from .read.columns import KERNEL, MEMCPY, MEMSET, NONE, OP, Columns, Numbered
from .read.op_arguments import arguments, extra_fields
from .surroundings import Surroundings

LONGEST_SIZE = 20  # digits of a side of a grid
_KINDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}
_COPIES = {
    "1": "HtoD",
    "2": "DtoH",
    "3": "DtoD",
    "hipMemcpyHostToDevice": "HtoD",
    "hipMemcpyDeviceToHost": "DtoH",
    "hipMemcpyDeviceToDevice": "DtoD",
}
COMPILED_CALL = re.compile(r"## Call CompiledFxGraph (\w{1,6}).*")  # the annotation around a compiled graph, with its hash
_OPTIMIZERS = ("aten::_foreach", "aten::_fused", "aten::_amp")
UNKNOWN = Priced(cost=None)


class PricedOp(Struct, frozen=True):
    """A call with its price: the op's name, its arguments, and the price of one call."""

    name: str
    args: tuple[Any, ...]
    priced: Priced


class Prices:
    """Prices of executions. Calls that are equal in everything recorded are priced once, and share one index of ``ops``."""

    def __init__(self, columns: Columns, host: Host, launches: Launches, work: Work, network: Network | None, world: int | None) -> None:
        self._host, self._work, self._network, self.world = host, work, network, world
        self.names: Sequence[Any] = list(columns.names)
        self._texts, self._extras = list(columns.arguments), list(columns.extras)
        self._grids = [*map(_launch, columns.grids), (None, None)]  # the last is for `NONE`, which is -1
        self._args: dict[int, tuple[Any, ...]] = {NONE: ()}
        self._calls = Numbered()
        self.ops: list[PricedOp] = []
        self._kernel_of = work.kernel.data  # a memoryview: fast for single items
        self._table = [tuple(row) for row in work.kernels.tolist()]
        # One number for each event: its kernel, and for copies the extra fields of the launch, where HIP records direction and bytes.
        copies = np.flatnonzero((work.kind == MEMCPY) & (work.launch != NONE))
        self._launched = work.kernel.astype(np.int64) * (len(self._extras) + 1)
        self._launched[copies] += launches.extra[work.launch[copies]] + 1
        self._optimizers = [number for number, name in enumerate(self.names) if str(name).startswith(_OPTIMIZERS)]
        self.accumulated: dict[int, tuple[int, ...]] = {}
        self.gradients: list[tuple[int, int, tuple[int, ...]]] = []  # step, op and shape of each accumulated gradient
        self._sizes, self._formats = Numbered(), Numbered()
        self._surroundings = Surroundings(host, self.names, self.arguments)
        self._gradient_formats: set[DType | None] = set()

    def accumulate(self, marks: Sequence[int], places: Integers) -> None:
        """Stores the sizes of the gradients that these ops accumulated in each step: optimizers update as many elements."""
        by_size: dict[int, list[int]] = {}
        numbers = self._host.arguments[places].tolist()
        tensors = {
            number: next((argument for argument in self.arguments(number) if isinstance(argument, Tensor)), None) for number in set(numbers)
        }
        self._gradient_formats |= {tensor.dtype for tensor in tensors.values() if tensor is not None}
        sizes_of = {number: (tensor.shape, tensor.elements) for number, tensor in tensors.items() if tensor is not None}
        for mark, place, number in zip(marks, places.tolist(), numbers, strict=True):
            if number in sizes_of:
                shape, elements = sizes_of[number]
                by_size.setdefault(mark, []).append(elements)
                self.gradients.append((mark, place, shape))
        self.accumulated = {mark: tuple(sizes) for mark, sizes in by_size.items()}

    def arguments(self, number: int) -> tuple[Any, ...]:
        """The arguments of an op by their number."""
        if number not in self._args:
            self._args[number] = arguments(self._texts[number])
        return self._args[number]

    def of(self, executions: Executions) -> Integers:
        """The number of the price of each execution."""
        op, columns = executions.op, (self._host.name, self._host.arguments, self._host.extra)
        name, args, extra = (np.where(op == NONE, NONE, column[op]) if len(column) else op for column in columns)
        extra = np.where(extra == NONE, self._extra_of_events(executions), extra)
        launched = self._launched[executions.events].tobytes()
        ends = executions.bounds * self._launched.itemsize
        kernels = (launched[begin:end] for begin, end in pairwise(ends.data))
        updated, same = self._updated(name, executions.mark), self._surroundings.takes_one_twice(op)
        formats = self._list_formats(op, name, executions.events[executions.bounds[:-1]])
        calls = zip(name.data, args.data, extra.data, updated.data, same.data, formats.data, kernels, strict=True)
        numbers = np.fromiter(map(self._calls.__getitem__, calls), np.int64, len(executions))
        self._price_new()
        return numbers

    def of_op(self, op: int, events: Sequence[int], mark: int) -> int:
        """The number of the price of an op that launched these events."""
        name, args, extra = (int(column[op]) for column in (self._host.name, self._host.arguments, self._host.extra))
        if extra == NONE:
            extra = next((number for number in self._work.extra[events].tolist() if number != NONE), NONE)
        updated = self._updated(np.array([name]), np.array([mark])).item()
        same = self._surroundings.takes_one_twice(np.array([op])).item()
        number = self._list_formats(np.array([op]), np.array([name]), np.array(events[:1])).item()
        number_of = self._calls[name, args, extra, updated, same, number, self._launched[events].tobytes()]
        self._price_new()
        return number_of

    def _extra_of_events(self, executions: Executions) -> Integers:
        """The extra fields of executions from their device events (of collectives), by number: those of the first event that has some."""
        prices = np.full(len(executions), NONE)
        extra = self._work.extra[executions.events]
        present = np.flatnonzero(extra != NONE)[::-1]
        prices[np.searchsorted(executions.bounds, present, side="right") - 1] = extra[present]
        return prices

    def _updated(self, name: Integers, marks: Integers) -> Integers:
        """For optimizer ops, the number of the gradient sizes of their step; `NONE` for other ops."""
        prices = np.full(len(name), NONE)
        updates = np.flatnonzero(np.isin(name, self._optimizers))
        first = next(iter(self.accumulated.values()), ())
        prices[updates] = [self._sizes[self.accumulated.get(mark, first)] for mark in marks[updates].tolist()]
        return prices

    def _list_formats(self, op: Integers, name: Integers, event: Integers) -> Integers:
        """The number of the number format of each op's lists, where other ops tell it, else `NONE`; ``event`` is its first event."""
        prices = np.full(len(op), NONE)
        if self._gradient_formats and len(self._gradient_formats) == 1:  # weights and state have the format of their gradients
            prices[np.isin(name, self._optimizers)] = self._formats[next(iter(self._gradient_formats))]
        on_host = self._work.kernels[self._work.kernel[event], 0] == name
        for place, number in self._surroundings.list_formats(op, on_host).items():
            prices[place] = self._formats[number]
        return prices

    def _price_new(self) -> None:
        """Prices the calls that were numbered since the last time."""
        for name, args, number, updated, same, listed, launched in islice(self._calls, len(self.ops), None):
            keys, extra = np.frombuffer(launched, self._launched.dtype).tolist(), self._extra(number)
            if updated != NONE and (sizes := list(self._sizes)[updated]):
                extra["accumulated"] = sizes
            if same:
                extra["same operands"] = True
            if listed != NONE:
                extra["list format"] = list(self._formats)[listed]
            if name != NONE:
                own = str(self.names[name])
                if self._kernel(keys[0]).name == own:  # on the CPU an op is its own kernel
                    own = COMPILED_CALL.sub(rf"{COMPILED_KERNELS}\1", own)
                self.ops.append(self._priced(own, self.arguments(args), keys, extra))
                continue
            kernel = self._kernel(keys[0])  # no op launched it; the events of copies, memsets and collectives have their sizes
            own = kernel.name if has_users_price(kernel.name) else ""
            op = "record_param_comms" if number != NONE else {"memcpy": "aten::copy_", "memset": "aten::zero_"}.get(kernel.kind, own)
            self.ops.append(PricedOp(kernel.name, (), self._priced(op, (), keys, extra).priced if op else UNKNOWN))

    def _priced(self, name: str, args: tuple[Any, ...], keys: Sequence[int], extra: dict[str, Any]) -> PricedOp:
        launch_extras = [self._extras[place - 1] for key in keys if (place := key % (len(self._extras) + 1))]
        if copied := next((word for extra in launch_extras if (word := _COPIES.get(extra[2], ""))), ""):
            extra["memcpy_kind"] = copied
        if self.world:
            extra["World size"] = self.world
        launched = tuple(self._kernel(key) for key in keys)
        return PricedOp(name, args, price(Call(name, args=args, kernels=launched, extra=extra, network=self._network)))

    def _extra(self, number: int) -> dict[str, Any]:
        return extra_fields(self._extras[number]) if number != NONE and self._extras[number][0] != "launch" else {}

    def _kernel(self, key: int) -> Kernel:
        """A kernel or copy by its key, which combines its number with that of its launch's extra fields."""
        number, extra = divmod(key, len(self._extras) + 1)
        name, kind, grid, moved = self._table[number]
        if moved == NONE and extra:
            moved = self._extras[extra - 1][3]
        return Kernel(str(self.names[name]), self.grid(grid)[0], None if moved == NONE else moved, _KINDS[kind])

    def kernel(self, event: int) -> tuple[int, ...]:
        """Name, kind, grid and bytes of an event, by their numbers."""
        return self._table[self._kernel_of[event]]

    def grid(self, number: int) -> tuple[tuple[int, ...] | None, Block | None]:
        """A grid and what its blocks take, by its number."""
        return self._grids[number]


def _launch(text: bytes) -> tuple[tuple[int, ...] | None, Block | None]:
    """A grid and what its blocks take, from their texts in a trace; ``None`` if they are invalid or not there.

    >>> _launch(b"[16, 8, 1]\\0[128, 1, 1]\\0" b"40\\0" b"0")
    ((16, 8, 1), Block(threads=128, registers=40, shared=0))
    """
    grid, threads, *needs = map(_grid, text.split(b"\0"))
    known = [number for number in needs if number]
    return grid, Block(prod(threads), *(number[0] for number in known)) if threads and len(known) == 2 else None


def _grid(text: bytes) -> tuple[int, ...] | None:
    """A grid from the text in a trace; ``None`` if it is invalid.

    >>> _grid(b"[16, 8, 1]")
    (16, 8, 1)
    """
    words = text.strip(b"[] ").split(b",")
    plain = all(word.strip().isdigit() and len(word) < LONGEST_SIZE for word in words)
    return tuple(map(int, words)) if plain else None


def priced_executions(recorded: Executions, inherited: Sequence[Execution], prices: Prices, host: Host) -> tuple[Executions, Integers]:
    """All executions and the numbers of their prices. Those launched before the recording (``inherited``) have the price of their twins."""
    executions, numbers = _recorded(recorded, prices, host)
    if not inherited:
        return executions, numbers
    of_event = np.empty(int(executions.events.max()) + 1, np.int64)
    of_event[executions.events] = np.repeat(np.arange(len(executions)), executions.counts)
    open_: dict[int, tuple[int, Execution]] = {}
    inherited_executions, targets = list[Execution](), list[int]()
    for execution in inherited:
        target = int(of_event[execution.twins[0]])
        before = open_.get(execution.device)
        if before is not None and before[0] == target and before[1].twins[-1] < execution.twins[0]:
            before[1].events += execution.events
            before[1].twins += execution.twins
        else:
            execution.op, open_[execution.device] = int(executions.op[target]), (target, execution)
            inherited_executions.append(execution)
            targets.append(target)
        last = open_[execution.device][1]
        last.whole = 2 * len(last.twins) >= len(executions.events_of(target))
    return executions.with_more(inherited_executions), np.append(numbers, numbers[targets])


def _recorded(executions: Executions, prices: Prices, host: Host) -> tuple[Executions, Integers]:
    """Prices executions whose launch was recorded. If an op has no price, the nearest op around it that has one replaces it, and takes all
    executions inside it.
    """
    numbers = prices.of(executions)
    owner = _owners(executions, numbers, prices, host)
    if not owner:
        return executions, numbers
    groups: dict[tuple[int, int], list[Execution]] = {}
    for outer, part in zip(owner.values(), executions.take(np.array(list(owner))), strict=True):
        groups.setdefault((outer, part.device), []).append(part)
    pieces = [
        Execution(outer, parts[0].launch, device, parts[0].mark, events=sorted(event for part in parts for event in part.events))
        for (outer, device), parts in groups.items()
    ]
    kept = np.setdiff1d(np.arange(len(executions)), list(owner), assume_unique=True)
    return executions.take(kept).with_more(pieces), np.append(
        numbers[kept], [prices.of_op(part.op, part.events, part.mark) for part in pieces]
    )


def _owners(executions: Executions, numbers: Integers, prices: Prices, host: Host) -> dict[int, int]:
    """The op that replaces each execution inside an unpriced op's nearest priced outer op, by place of the execution."""
    owner: dict[int, int] = {}
    unpriced = ~np.array([op.priced.is_priced for op in prices.ops], bool)[numbers]
    order = np.argsort(executions.op, kind="stable")
    ops = executions.op[order]
    for place in np.flatnonzero(unpriced & (executions.op != NONE) & ~executions.replayed).tolist():
        device, mark = int(executions.device[place]), int(executions.mark[place])
        for outer in host.around(int(host.parent[executions.op[place]])) if place not in owner else ():
            if host.kind[outer] != OP or not has_price(str(prices.names[host.name[outer]])):
                continue
            inside = order[slice(*np.searchsorted(ops, (outer, host.within(outer))))]
            places = inside[executions.device[inside] == device].tolist()
            events = sorted(event for other in places for event in executions.events_of(other))
            if prices.ops[prices.of_op(outer, events, mark)].priced.is_priced:
                owner.update(dict.fromkeys(places, outer))
                break
    return owner
