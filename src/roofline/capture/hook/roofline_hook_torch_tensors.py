"""Which tensors each op of a profile used: the profiler knows them, but leaves them out of the traces that it writes.

Everything here is private to PyTorch (written for 2.13); where any of it is missing or different, nothing is written.
"""

import heapq
import json
import os
from importlib import import_module
from typing import Any

KEY = "roofline_tensors"  # in the trace, see `used_tensors`; read by sources/torch_trace
MOST = 100_000  # ops, about 4 MB
STEPS = 3  # whose ops are written: findings are made of the first steps
_STEP = "ProfilerStep#"
_NONE = -1


def add_tensors(profile: Any, path: str) -> None:
    """Adds the tensors of the ops of a profile that ended to its trace, as the last key."""
    try:
        tensors = used_tensors(profile.profiler.kineto_results)
        if tensors["ops"]:
            append_key(path, json.dumps(tensors, separators=(",", ":")).encode())
    except Exception:
        return


def append_key(path: str, text: bytes) -> None:
    """Adds the key with its value to a trace, before the brace that ends it."""
    with open(path, "r+b") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - 64)
        file.seek(begin)
        tail = file.read().rstrip()
        if tail.endswith(b"}") and not tail.endswith(b"{}"):
            file.seek(begin + len(tail) - 1)
            file.write(b',\n"%s":%s}\n' % (KEY.encode(), text))


def used_tensors(results: Any) -> "dict[str, Any]":
    """``ops`` has for each op, in order of time: its external id; for each tensor among its arguments the numbers of its memory and of
    itself, -1 if it has none; the places of those that it may write; and the number and bytes of each memory that it allocated and left.
    ``left`` are the memories that the program left at the end.

    The number of a memory is new whenever it is allocated, whatever its address is.
    """
    kinds = import_module("torch._C._profiler")._EventType
    arguments = _Arguments()
    waiting: list[Any] = [(event.start_time_ns, place, event, ()) for place, event in enumerate(results.experimental_event_tree())]
    heapq.heapify(waiting)  # threads one beside the other, in order of time
    pushed, steps, ops, numbers = len(waiting), 0, list[Any](), _Numbers()
    while waiting and len(ops) < MOST:
        _, _, event, around = heapq.heappop(waiting)
        if event.tag == kinds.TorchOp:
            steps += event.name.startswith(_STEP)
            if steps > STEPS:
                waiting.append(event)
                break
            tensors, changed = arguments.of(event.typed[1])
            op = [event.correlation_id, [number for tensor in tensors for number in numbers.of(tensor)], changed, []]
            ops.append(op)
            around = (*around, op)
        elif event.tag == kinds.Allocation:
            numbers.allocate(event.typed[1], around)
        for child in event.children:
            pushed += 1
            heapq.heappush(waiting, (child.start_time_ns, pushed, child, around))
    left = list(numbers.memories.values()) if not waiting else []
    return {"ops": [op for op in ops if op[1] or op[3]], "left": left}


class _Numbers:
    """Small numbers for memories and tensors."""

    def __init__(self) -> None:
        self.memories: dict[int, int] = {}  # by the profiler's number, which stays if the end of an earlier allocation was not recorded
        self.tensors: dict[int, int] = {}
        self.count = 0

    def of(self, tensor: Any) -> "tuple[int, int]":
        if not tensor.storage_data_ptr or tensor.allocation_id is None:
            return _NONE, _NONE
        if tensor.allocation_id not in self.memories:
            self._new(tensor.allocation_id)
        return self.memories[tensor.allocation_id], self.tensors.setdefault(tensor.impl_ptr, len(self.tensors))

    def allocate(self, event: Any, around: Any) -> None:
        """Notes an allocation, or the end of one, in the ops around it."""
        if event.alloc_size > 0:
            number = self._new(event.allocation_id)
            for op in around:
                op[3] += (number, event.alloc_size)
            return
        ended = self.memories.pop(event.allocation_id, _NONE)
        for op in around:
            if ended in op[3][::2]:
                place = 2 * op[3][::2].index(ended)
                del op[3][place : place + 2]

    def _new(self, identity: int) -> int:
        self.memories[identity] = self.count
        self.count += 1
        return self.count - 1


class _Arguments:
    """The tensors among the arguments of ops, and which of them the op may write, by its schemas."""

    def __init__(self) -> None:
        self.tensor = import_module("torch._C._profiler")._TensorMetadata
        self.schemas = import_module("torch.profiler._memory_profiler").SchemaMatcher
        self.written: dict[Any, Any] = {}

    def of(self, op: Any) -> "tuple[list[Any], list[int]]":
        inputs = op.inputs
        parts = [self._tensors(value) for value in inputs]
        if not any(parts):
            return [], []
        key = (op.name, *map(type, inputs))
        if key not in self.written:
            self.written[key] = self.schemas.inputs_are_mutable(op)
        flags = [written is not False for written, part in zip(self.written[key], parts) for _ in part]  # noqa: B905  for old Pythons
        return [tensor for part in parts for tensor in part], [place for place, is_written in enumerate(flags) if is_written]

    def _tensors(self, value: Any) -> "list[Any]":
        if isinstance(value, self.tensor):
            return [value]
        return [part for part in value if isinstance(part, self.tensor)] if isinstance(value, list) else []
