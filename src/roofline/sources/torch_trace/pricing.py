"""The price of each execution: from its op's arguments and what it launched, or those of an op around it.

The innermost op is the one to price, once however many kernels it launched; ops around it only give context. If it has no price, the
nearest op around it that has one stands for everything launched inside of it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...formulas.network import Network
from ...torch_prices import Call, Kernel, Priced, has_price, price
from .calls import arguments, said_beside
from .columns import KERNEL, MEMCPY, MEMSET, NONE, OP, Columns
from .executions import Execution
from .host import Host, Launches
from .linking import Work

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
_OPTIMIZERS = ("aten::_foreach", "aten::_fused", "aten::_amp")
_ACCUMULATES = "torch::autograd::AccumulateGrad"
UNKNOWN = Priced(cost=None)
KernelKey = tuple[int, int]


class PricedOp(Struct, frozen=True):
    """A call with its price: the op's name, its arguments, and what it costs once."""

    name: str
    args: tuple[Any, ...]
    priced: Priced


class Prices:
    """Prices of executions; calls that are alike in everything that is recorded are priced once."""

    def __init__(self, columns: Columns, host: Host, launches: Launches, work: Work, network: Network | None, world: int | None) -> None:
        self._host, self._launches, self._work, self._network, self._world = host, launches, work, network, world
        self.names: Sequence[Any] = list(columns.names)
        self._texts, self._extras, self._grids = list(columns.arguments), list(columns.extras), list(columns.grids)
        self._name_of, self._arguments_of, self._said_of = host.name.data, host.arguments.data, host.extra.data  # views: fast one by one
        self._args: dict[int, tuple[Any, ...]] = {NONE: ()}
        self._calls: dict[tuple[Any, ...], PricedOp] = {}
        self._kernel_of: list[int] = work.kernel.tolist()
        exchanges = (work.extra != NONE).nonzero()[0]
        self._extra_of = dict(zip(exchanges.tolist(), work.extra[exchanges].tolist(), strict=True))
        self._plain = [(number, NONE) for number in range(len(work.kernels))]
        self._table = [tuple(row) for row in work.kernels.tolist()]
        self._kernels: dict[KernelKey, Kernel] = {}
        self.accumulated: dict[int, tuple[int, ...]] = {}

    def accumulate(self, marks: Sequence[int], places: Sequence[int]) -> None:
        """Remember the elements of the gradients that each step accumulated: optimizers work on as many."""
        wanted = [number for number, name in enumerate(self.names) if name == _ACCUMULATES]
        found: dict[int, list[int]] = {}
        for mark, place in zip(marks, places, strict=True):
            if self._name_of[place] in wanted:
                tensors = [one for one in self.arguments(place) if hasattr(one, "elements")]
                if tensors:
                    found.setdefault(mark, []).append(tensors[0].elements)
        self.accumulated = {mark: tuple(sizes) for mark, sizes in found.items()}

    def arguments(self, place: int) -> tuple[Any, ...]:
        """The arguments of an op."""
        number = self._arguments_of[place]
        if number not in self._args:
            self._args[number] = arguments(self._texts[number])
        return self._args[number]

    def of(self, op: int, events: Sequence[int], mark: int) -> PricedOp:
        """The price of what an op launched."""
        name = str(self.names[self._name_of[op]])
        kernels = tuple([self._kernel_key(event) for event in events])
        sizes = self._sizes(mark) if name.startswith(_OPTIMIZERS) else ()
        said = self._said_of[op]
        beside = said if said != NONE else self._beside(events)
        key = (name, self._arguments_of[op], beside, kernels, sizes)
        found = self._calls.get(key)
        if found is None:
            extra = self._said(beside)
            if sizes:
                extra["accumulated"] = sizes
            found = self._calls[key] = self._priced(name, self.arguments(op), kernels, extra)
        return found

    def alone(self, events: Sequence[int]) -> PricedOp:
        """The price of what no op launched: copies, memsets and collectives say enough of themselves."""
        kernels = tuple([self._kernel_key(event) for event in events])
        beside = self._beside(events)
        key = ("", NONE, beside, kernels, ())
        found = self._calls.get(key)
        if found is None:
            name = str(self.names[self.kernel(events[0])[0]])
            op = {MEMCPY: "aten::copy_", MEMSET: "aten::zero_"}.get(self.kernel(events[0])[1], "")
            op = "record_param_comms" if beside != NONE else op
            priced = self._priced(op, (), kernels, self._said(beside)).priced if op else UNKNOWN
            found = self._calls[key] = PricedOp(name, (), priced)
        return found

    def _priced(self, name: str, args: tuple[Any, ...], kernels: tuple[KernelKey, ...], extra: dict[str, Any]) -> PricedOp:
        launched = tuple(self._kernel(key) for key in kernels)
        copied = next((word for key in kernels if (word := self._copied(key[1]))), "")
        if copied:
            extra["memcpy_kind"] = copied
        if self._world and not extra.get("Group size"):
            extra["Group size"] = self._world
        return PricedOp(name, args, price(Call(name, args=args, kernels=launched, extra=extra, network=self._network)))

    def _beside(self, events: Sequence[int]) -> int:
        """What the events themselves say of a collective."""
        return next((self._extra_of[one] for one in events if one in self._extra_of), NONE) if self._extra_of else NONE

    def _sizes(self, mark: int) -> tuple[int, ...]:
        if mark in self.accumulated:
            return self.accumulated[mark]
        return next(iter(self.accumulated.values()), ())

    def _said(self, number: int) -> dict[str, Any]:
        return said_beside(self._extras[number]) if number != NONE and self._extras[number][0] != "launch" else {}

    def _kernel_key(self, event: int) -> KernelKey:
        """The kernel of an event, and where HIP says at its launch which way a copy goes and how far."""
        number = self._kernel_of[event]
        if self._table[number][1] != MEMCPY:
            return self._plain[number]
        launch = int(self._work.launch[event])
        return number, NONE if launch == NONE else int(self._launches.extra[launch])

    def _kernel(self, key: KernelKey) -> Kernel:
        if key not in self._kernels:
            name, kind, grid, moved = self._table[key[0]]
            if moved == NONE and key[1] != NONE:
                moved = self._extras[key[1]][3]
            self._kernels[key] = Kernel(str(self.names[name]), self.grid(grid), None if moved == NONE else moved, _KINDS[kind])
        return self._kernels[key]

    def kernel(self, event: int) -> tuple[int, ...]:
        """Name, kind, grid and bytes of an event, by their numbers."""
        return self._table[self._kernel_of[event]]

    def _copied(self, extra: int) -> str:
        """Which way a copy goes, by its launch."""
        return _COPIES.get(self._extras[extra][2], "") if extra != NONE else ""

    def grid(self, number: int) -> tuple[int, ...] | None:
        """A grid by its number."""
        if number == NONE:
            return None
        words = self._grids[number].strip(b"[] ").split(b",")
        plain = all(word.strip().isdigit() and len(word) < LONGEST_SIZE for word in words)
        return tuple(int(word) for word in words) if plain else None


def priced_executions(executions: Sequence[Execution], prices: Prices, host: Host) -> list[tuple[Execution, PricedOp]]:
    """Executions with their prices; those that were launched before the recording began have that of their twins."""
    recorded = [one for one in executions if not one.twins]
    found = _recorded(recorded, prices, host)
    wanted = {event for one in executions for event in one.twins}
    of_event = {event: place for place, (one, _) in enumerate(found) if wanted for event in one.events if event in wanted}
    open_: dict[int, tuple[int, Execution]] = {}
    for one in executions:
        if not one.twins:
            continue
        target = of_event[one.twins[0]]
        theirs, priced = found[target]
        before = open_.get(one.device)
        if before is not None and before[0] == target and before[1].twins[-1] < one.twins[0]:
            before[1].events += one.events
            before[1].twins = [*before[1].twins, *one.twins]
        else:
            one.op, open_[one.device] = theirs.op, (target, one)
            found.append((one, priced))
        made = open_[one.device][1]
        made.whole = 2 * len(made.twins) >= len(theirs.events)
    return found


def _recorded(executions: Sequence[Execution], prices: Prices, host: Host) -> list[tuple[Execution, PricedOp]]:
    """Prices of what has a launch. Where an op has none, the nearest op around it that has takes all that was launched inside of it."""
    priced = [prices.of(one.op, one.events, one.mark) if one.op != NONE else prices.alone(one.events) for one in executions]
    owner: dict[int, int] = {}
    order, ops = list[int](), list[int]()  # executions in the order of their ops, made where they are needed
    for place, one in enumerate(executions):
        if one.op == NONE or priced[place].priced.is_priced or place in owner or one.replayed:
            continue
        for outer in host.around(int(host.parent[one.op])):
            if host.kind[outer] != OP or not has_price(str(prices.names[host.name[outer]])):
                continue
            if not ops:
                order = sorted((place for place, one in enumerate(executions) if one.op != NONE), key=lambda place: executions[place].op)
                ops = [executions[place].op for place in order]
            inside = [order[at] for at in range(bisect_left(ops, outer), bisect_left(ops, host.within(outer)))]
            mine = [other for other in inside if executions[other].device == one.device]
            events = sorted(event for other in mine for event in executions[other].events)
            if prices.of(outer, events, one.mark).priced.is_priced:
                owner.update(dict.fromkeys(mine, outer))
                break
    found = [(one, priced[place]) for place, one in enumerate(executions) if place not in owner]
    groups: dict[tuple[int, int], list[Execution]] = {}
    for place, outer in owner.items():
        groups.setdefault((outer, executions[place].device), []).append(executions[place])
    for (outer, device), parts in groups.items():
        events = sorted(event for part in parts for event in part.events)
        made = Execution(outer, parts[0].launch, device, parts[0].mark, events=events)
        found.append((made, prices.of(outer, events, made.mark)))
    return found
