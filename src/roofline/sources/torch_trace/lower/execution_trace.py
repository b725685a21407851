"""Reads which tensors ops used from a file of PyTorch's `ExecutionTraceObserver` beside a trace: memories, offsets and results of each op.

Its numbers of memories may return after a memory was freed, so a memory gets a new number with the op whose result it is.
"""

import gzip
import re
from collections.abc import Collection, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ....errors import SourceError
from ....graph.array_memory import Position
from ....torch_prices import CPP_TYPES, Tensor
from ....units import parse
from ..host import Host
from ..read.columns import NONE
from .used_tensors import Operand, Used, UsedTensors, callers_of, places_of

MOST_BYTES = int(parse("512 MiB", "B"))
_GZIP = b"\x1f\x8b"
_TENSOR, _LIST = re.compile(r"Tensor\((.*)\)"), re.compile(r"GenericList\[([^\[\]]*)\]")  # no lists of lists
_LARGEST = 2**63 - 1


class Values(Struct):
    """Arguments or results: a tensor is the numbers of itself and of its memory, its offset, elements, bytes of an element and device."""

    values: list[Any] = []
    shapes: list[Any] = []
    types: list[Any] = []
    strides: list[Any] = []


class Attribute(Struct):
    """A further fact about an op."""

    name: str = ""
    value: Any = None


class Node(Struct):
    """An op; they are in the order in which they ended, so that an op comes after those that it called."""

    id: int = 0
    parent: int = msgspec.field(name="ctrl_deps", default=0)
    inputs: Values = msgspec.field(default_factory=Values)
    outputs: Values = msgspec.field(default_factory=Values)
    attrs: list[Attribute] = []


class ExecutionTrace(Struct):
    """A file of the observer: the process and its ops."""

    schema: str
    nodes: list[Node]
    pid: int = NONE


def read_execution_trace(file: Path) -> ExecutionTrace:
    """An execution trace."""
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            data = (gzip.GzipFile(fileobj=raw) if packed else raw).read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise SourceError(f"{file}: larger than {MOST_BYTES:,} bytes; the tensors in it are not read")
        return msgspec.json.decode(data, type=ExecutionTrace)
    except (OSError, EOFError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{file}: not a valid execution trace ({error}); the tensors in it are not read") from None


def tensors_by_execution_trace(trace: ExecutionTrace, functions: Mapping[int, int], host: Host) -> UsedTensors:
    """The tensors of the ops of a trace; ``functions`` has the number that the observer gave each op, by the op's external id."""
    places = places_of(list(functions), host)
    place_of = dict(zip(functions.values(), places.tolist(), strict=True))
    caller_of = dict(zip(places.tolist(), callers_of(places, host).tolist(), strict=True))
    memories, used, last = _Memories(), dict[int, Used](), dict[int, int]()
    for node in trace.nodes:
        attributes = {attribute.name: attribute.value for attribute in node.attrs}
        args, parts = _parsed(node.inputs)
        results = [result for part in _parsed(node.outputs)[1] for result in part]
        taken, given = memories.renumbered(node, [operand for part in parts for operand in part], results)
        number = attributes.get("rf_id")
        place = place_of.get(number, NONE) if isinstance(number, int) else NONE
        if place == NONE:
            continue
        last.update((position.memory, int(host.start[place])) for _, position in taken if position is not None)
        written = _written(attributes.get("op_schema"), len(parts))
        flags = [is_written for is_written, part in zip(written, parts, strict=True) for _ in part]
        changed = [index for index, is_written in enumerate(flags) if is_written]
        used[place] = Used(int(host.end[place]), caller_of[place], taken, changed, given, tuple(args))
    return UsedTensors(used, last)


class _Memories:
    """Numbers of memories, new ones for the results of each op that are not among its arguments."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._made: dict[int, set[int]] = {}  # by an op, the memories of results of those that it called
        self._count = 0

    def renumbered(self, node: Node, taken: Sequence[Operand], given: Sequence[Operand]) -> tuple[list[Operand], list[Operand]]:
        """The arguments of an op, and those of its results that are in other memory."""
        old = {position.memory for _, position in taken if position is not None}
        new = {position.memory for _, position in given if position is not None} - old
        within = self._made.pop(node.id, set())
        for memory in new - within:
            self._new(memory)
        self._made.setdefault(node.parent, set()).update(new)
        created = [operand for operand in given if operand[1] is not None and operand[1].memory in new]
        return [self._numbered(operand) for operand in taken], [self._numbered(operand) for operand in created]

    def _numbered(self, operand: Operand) -> Operand:
        tensor, position = operand
        if position is None:
            return operand
        if position.memory not in self._numbers:
            self._new(position.memory)
        return tensor, Position(self._numbers[position.memory], position.offset)

    def _new(self, memory: int) -> None:
        self._numbers[memory] = self._count
        self._count += 1


def _parsed(values: Values) -> tuple[list[Any], list[list[Operand]]]:
    """The arguments, and the tensors in each."""
    strides = values.strides or [None] * len(values.types)
    args, parts = list[Any](), list[list[Operand]]()
    for value, shape, kind, steps in zip(values.values, values.shapes, values.types, strides, strict=False):
        parts.append([])
        args.append(_argument(value, shape, kind, steps, parts[-1]))
    return args, parts


def _argument(value: Any, shape: Any, kind: Any, strides: Any, operands: list[Operand]) -> Any:
    """An argument as calls have it; the tensors in it are appended to ``operands``."""
    if not isinstance(kind, str) or kind == "None" or value == "<None>":
        return None
    if not isinstance(value, list):
        return value if isinstance(value, (bool, int, float, str)) else None
    if tensor := _TENSOR.fullmatch(kind):
        operands.append(_operand(value, shape, tensor[1], strides))
        return operands[-1][0]
    if list_of := _LIST.fullmatch(kind):
        count = len(value)
        shapes, steps = (values if isinstance(values, list) and len(values) == count else [None] * count for values in (shape, strides))
        parts = zip(value, shapes, list_of[1].split(","), steps, strict=False)
        return tuple(_argument(part, sizes, name, distances, operands) for part, sizes, name, distances in parts)
    return None


def _operand(value: list[Any], shape: Any, kind: str, strides: Any) -> Operand:
    if len(value) < 3 or not all(type(number) is int for number in value[1:3]):
        return None, None
    position = Position(value[1], value[2])
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape) or prod(shape) > _LARGEST:
        return None, position
    steps = tuple(strides) if isinstance(strides, list) and all(type(step) is int for step in strides) else None
    return Tensor(tuple(shape), CPP_TYPES.get(kind), steps if steps is not None and len(steps) == len(shape) else None), position


def _written(schema: Any, count: int) -> list[bool]:
    """Whether each argument is written to, by the op's schema; all may be where there is none.

    >>> _written("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", 3)
    [True, False, False]
    """
    arguments = str(schema or "").rpartition(" -> ")[0].partition("(")[2].removesuffix(")")
    parts = [part for part in re.split(r",\s*(?![^\[(]*[\])])", arguments) if part.strip() != "*"] if arguments else []
    return ["!" in part.partition(" ")[0] for part in parts] if len(parts) == count else [True] * count


def best_of(files: Sequence[Path], processes: Collection[Any]) -> tuple[ExecutionTrace | None, list[str]]:
    """The first execution trace of one of these processes, and notes on files that cannot be read."""
    notes = []
    for file in files:
        try:
            trace = read_execution_trace(file)
        except SourceError as error:
            notes.append(str(error))
            continue
        if trace.pid in processes:
            return trace, notes
    return None, notes
