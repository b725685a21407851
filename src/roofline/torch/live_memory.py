"""Peak memory of a function that runs on tensors without data: which storages it makes, and when each is freed."""

import weakref
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..peak_memory import LiveBuffer, LiveScope, PeakMemory

LARGEST = 16  # buffers that are listed
METHOD = "liveness in program order"


class LiveMemory:
    """Storages in the order in which they are made and freed. Arguments and weights are live from the beginning."""

    def __init__(self) -> None:
        self.arguments: list[LiveBuffer] = []
        self.known: dict[int, int] = {}  # a storage's address -> its number in `made`; -1 for arguments
        self._made: list[LiveBuffer] = []
        self._events: list[int] = []  # a storage's number when it is made, its complement when it is freed

    def hold_argument(self, tensor: Any) -> None:
        """Adds an argument, weight or constant, which is live from beginning to end."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.known[storage._cdata] = -1
            self.arguments.append(_buffer("argument", tensor, storage))
            self._forget_later(storage)

    def hold(self, tensor: Any, name: str, scope: str) -> None:
        """Adds a result; a view of known memory adds nothing."""
        storage = tensor.untyped_storage()
        if storage._cdata in self.known:
            return
        number = len(self._made)
        self.known[storage._cdata] = number
        self._made.append(_buffer("temporary", tensor, storage, name, scope))
        self._events.append(number)
        self._forget_later(storage, lambda: self._events.append(~number))

    def _forget_later(self, storage: Any, then: Callable[[], None] | None = None) -> None:
        address = storage._cdata

        def freed() -> None:
            self.known.pop(address, None)
            if then is not None:
                then()

        weakref.finalize(storage, freed).atexit = False

    def peak(self, program: str, outputs: set[int]) -> PeakMemory:
        """The peak memory, with the storages that are live then; ``outputs`` are the numbers of storages that are live at the end."""
        fixed = sum(buffer.bytes for buffer in self.arguments)
        now = most = 0
        at = -1
        for place, event in enumerate(self._events):
            now += self._made[event].bytes if event >= 0 else -self._made[~event].bytes
            if now > most:
                most, at = now, place
        live = set()
        for event in self._events[: at + 1]:
            if event >= 0:
                live.add(event)
            else:
                live.discard(~event)
        created = [replace(self._made[number], kind="output") if number in outputs else self._made[number] for number in sorted(live)]
        buffers = [buffer for buffer in (*self.arguments, *created) if buffer.bytes]
        kept = sum(buffer.bytes for buffer in buffers if buffer.kind == "output")
        return PeakMemory(
            program=program,
            peak_bytes=fixed + most,
            method=METHOD,
            arguments=fixed,
            outputs=kept,
            temporaries=most - kept,
            at_peak=_by_scope(buffers),
            largest=tuple(sorted(buffers, key=lambda buffer: -buffer.bytes)[:LARGEST]),
        )


def _buffer(kind: str, tensor: Any, storage: Any, name: str = "", scope: str = "") -> LiveBuffer:
    number = str(tensor.dtype).removeprefix("torch.")
    shape = f"{number}[{','.join(str(int(size)) for size in tensor.shape)}]"
    return LiveBuffer(kind=kind, name=name, scope=scope, shape=shape, bytes=int(storage.nbytes()))


def _by_scope(buffers: list[LiveBuffer]) -> tuple[LiveScope, ...]:
    totals: dict[tuple[str, str], list[int]] = {}
    for buffer in buffers:
        total = totals.setdefault((buffer.kind, buffer.scope), [0, 0])
        total[0] += buffer.bytes
        total[1] += 1
    scopes = [LiveScope(kind=kind, scope=scope, bytes=size, buffers=count) for (kind, scope), (size, count) in totals.items()]
    return tuple(sorted(scopes, key=lambda scope: -scope.bytes))
