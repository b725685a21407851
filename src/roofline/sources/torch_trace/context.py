"""The context of an op in the program: its modules and annotations, the user's line, forward or backward, and the compiled region.

Modules and lines come from the Python functions around the op (``with_stack=True``). A backward op gets those of its forward op: the last
op that started with the same sequence number.
"""

import re
import sys
from array import array
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from .host import Host
from .read.arrays import Integers, distinct
from .read.columns import ANNOTATION, NONE, OP, PYTHON, Numbered

BACKWARD = "autograd::engine::evaluate_function"
MODULE = "nn.Module: "
_CHECKPOINT = re.compile(r"(?:.*/)?torch/utils/checkpoint\.py\(|CheckpointFunctionBackward")
_CHECKPOINT_CALL = re.compile(r"(?:.*/)?torch/utils/checkpoint\.py\(\d+\): checkpoint(?:_sequential)?$")
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_REGION = re.compile(r"(Torch-Compiled Region: [^ ]+|CompiledFunction(?:Backward)?|## Call CompiledFxGraph .*)")
_NOT_SCOPES = re.compile(
    r"ProfilerStep|Optimizer\.zero_grad|nccl:|gloo:|record_param_comms|## Call|Torch-Compiled Region|PyTorch Profiler|TorchDynamo"
)
# Packages whose frames count as their caller's: of the standard library, and those that make or move arrays.
_LIBRARIES = re.compile(
    r"(?:asyncio|collections|concurrent|ctypes|email|encodings|http|importlib|json|logging|multiprocessing|re|tomllib|unittest|urllib|xml"
    r"|PIL|cv2|einops|fsspec|h5py|numpy|pandas|pyarrow|scipy|sklearn|tqdm|triton)/"
)
_GENERATED = re.compile(r"c[a-z2-7]{51}")  # Inductor's files are named by their hashes
_OPTIMIZER = re.compile(r"Optimizer\.step#(.*)")
_NORM = re.compile(r"aten::(?:native_)?(?:group|instance)_norm|NativeGroupNormBackward")  # their kernels support one layout only
_CONVOLUTION = re.compile(r"aten::(?:cudnn_|miopen_|_)?convolution")
_AUTOTUNING = re.compile(  # of Inductor, and Triton's own
    r"CachingAutotuner\.(?:benchmark|coordinate)|\w*Benchmarker\.benchmark|benchmark_fused_nodes"
    r"|(?:.*/)?(?:torch/_inductor/runtime/benchmarking|triton/testing)\.py\(|(?:.*/)?triton/runtime/autotuner\.py\(\d+\): _bench"
)


class Context(Struct, frozen=True):
    """The context of an op."""

    scope: tuple[str, ...] = ()
    location: str = ""
    region: str = ""
    backward: bool = False
    optimizer: bool = False
    recomputed: bool = False  # a forward op that a backward pass runs again
    again: str | None = None  # for an op in a pass that repeats another: the line that calls the pass
    fixed_layout: bool = False  # inside an op whose layout the program does not choose
    autotuned: bool = False  # a compiler or a library measures a candidate kernel


NOWHERE = Context()


class Contexts:
    """The contexts of a trace's ops, as indices of ``all``, which has each distinct context once."""

    def __init__(self, host: Host, names: Sequence[str]) -> None:
        self._host, self._names = host, names
        started = [number for number, name in enumerate(names) if isinstance(name, str) and name.startswith(BACKWARD)]
        self.has_backward = bool(len(host.name)) and bool(np.isin(host.name, started).any())
        self._numbers = Numbered({NOWHERE: 0})
        self.all = [NOWHERE]
        self.checkpoints: dict[str, None] = {}  # the user's lines that call torch.utils.checkpoint
        self._known = array("i", [NONE]) * len(host.name)  # the number of the context inside each event
        self._known.append(0)  # for no event: `NONE` is -1, the last place
        self._steps: dict[tuple[int, int, int, bool], int] = {}

    def of(self, places: Integers) -> Integers:
        """The numbers of the contexts of ops; backward ops have the scope and location of their forward op."""
        own = self._at(places)
        if not self._has_locations:
            return own
        gradients = np.array([context.backward and not context.recomputed for context in self.all], bool)
        later = np.flatnonzero(gradients[own])
        forward = self._forward_of(places[later])
        later, forward = later[forward != NONE], forward[forward != NONE]
        pairs = list(zip(own[later].tolist(), self._at(forward).tolist(), strict=True))
        joined = {pair: self._number(_joined(*(self.all[number] for number in pair))) for pair in dict.fromkeys(pairs)}
        own[later] = [joined[pair] for pair in pairs]
        return own

    def sequence(self, place: int) -> int:
        """The sequence number of an op, which its gradient shares, or `NONE`."""
        return next((number for outer in self._host.around(place) if (number := int(self._host.sequence[outer])) != NONE), NONE)

    def sequences(self, places: Integers) -> Integers:
        """The sequence numbers of many ops."""
        nodes, around = np.full(len(places), NONE), places.copy()
        while (missing := np.flatnonzero((nodes == NONE) & (around != NONE))).size:
            nodes[missing] = self._host.sequence[around[missing]]
            around[missing] = self._host.parent[around[missing]]
        return nodes

    def call_around(self, place: int) -> tuple[int, int, str]:
        """The range of events in the call of the outermost module around an op, and the user's line that called it."""
        call, caller = NONE, ""
        for outer in self._host.around(place):
            name = str(self._names[self._host.name[outer]]) if self._host.kind[outer] == PYTHON else ""
            if name.startswith(MODULE):
                call, caller = outer, ""
            elif name and not caller:
                caller = users_line(name)
        return (call, self._host.within(call), caller) if call != NONE else (place, place + 1, caller)

    def gradients_again(self, places: Integers, marks: Integers) -> tuple[Integers, Integers]:
        """The ops that belong to a node of a backward pass that already ran in the same step, and their nodes.

        A backward pass inside another (of a checkpoint) does not count, nor one whose gradients are differentiated again: both must run.
        """
        host = self._host
        node = self._backward_node(places)
        inside = np.flatnonzero((node != NONE) & (marks != NONE))
        nodes, first = np.unique(node[inside], return_index=True)
        step, number = marks[inside][first], host.sequence[nodes]
        graded = np.array([context.recomputed for context in self.all], bool)[self._at(places[inside])]
        is_graded = np.isin(nodes, node[inside][graded]) | (number == NONE) | (self._backward_node(host.parent[nodes]) != NONE)
        order = np.lexsort((host.start[nodes], host.name[nodes], number, step))
        same = [np.diff(column[order]) == 0 for column in (step, number, host.name[nodes])]
        again = np.zeros(len(nodes), bool)
        again[order[1:]] = np.logical_and.reduce(same) & ~is_graded[order[1:]] & ~is_graded[order[:-1]]
        recomputed = inside[np.isin(node[inside], nodes[again])]
        return recomputed, node[recomputed]

    def _backward_node(self, places: Integers) -> Integers:
        """The node of a backward pass around each op, or `NONE`."""
        started = np.array([isinstance(name, str) and name.startswith(BACKWARD) for name in self._names], bool)
        outer = places.copy()
        while (other := np.flatnonzero(outer != NONE)).size:
            other = other[~started[self._host.name[outer[other]]]]
            if not other.size:
                break
            outer[other] = self._host.parent[outer[other]]
        return outer

    def caller_at(self, place: int) -> str:
        """The user's line in a thread with Python frames at the begin of an event."""
        threads = distinct(self._host.thread[self._host.kind == PYTHON])
        inner = self._host.enclosing(threads, np.full(len(threads), self._host.start[place]))
        frames = (str(self._names[self._host.name[event]]) for start in inner.tolist() for event in self._host.around(start))
        return next(filter(None, map(users_line, frames)), "")

    def repeated(self, number: int, caller: str) -> int:
        """The number of the same context in a pass that repeats another and was called from this line."""
        return self._number(replace(self.all[number], again=caller))

    @property
    def autotuning(self) -> int:
        """The number of the context of trials of kernels."""
        return self._number(Context(autotuned=True))

    def phase(self, context: Context) -> str:
        """Forward or backward, in a program that has both."""
        if not self.has_backward or context.optimizer:
            return ""
        return "backward" if context.backward else "forward"

    def _number(self, context: Context) -> int:
        number = self._numbers[context]
        if number == len(self.all):
            self.all.append(context)
        return number

    def _at(self, places: Integers) -> Integers:
        """The numbers of the contexts of events, derived from those of the events around them."""
        known, steps = self._known, self._steps
        unknown = self._unknown(places)
        around, *rest = (column[unknown].data for column in (self._host.parent, self._host.name, self._host.kind, self._host.sequence))
        for place, outer, name, kind, sequence in zip(unknown.data, around, *rest, strict=True):
            step = (known[outer], name, kind, sequence != NONE)
            number = steps.get(step)
            if number is None:
                number = steps[step] = self._number(self._inside(self.all[step[0]], place))
            known[place] = number
        return np.frombuffer(known, np.int32)[places].astype(np.int64)

    def _unknown(self, places: Integers) -> Integers:
        """Of these events and those around them, the ones whose contexts are not known yet, outer ones first."""
        known = np.frombuffer(self._known, np.int32)
        unknown = np.zeros(len(known), bool)
        level = places
        while len(level):
            level = level[(known[level] == NONE) & ~unknown[level]]
            unknown[level] = True
            level = self._host.parent[level]
        return np.flatnonzero(unknown)

    def _inside(self, outer: Context, place: int) -> Context:
        """The context inside an event."""
        name, kind = str(self._names[self._host.name[place]]), self._host.kind[place]
        if outer.backward and not outer.recomputed and self._is_recomputed(place, name):
            outer = replace(outer, recomputed=True)
        if _AUTOTUNING.match(name):
            return replace(outer, autotuned=True)
        if kind == PYTHON:
            if outer.location and not outer.backward and _CHECKPOINT_CALL.match(name):
                self.checkpoints[outer.location] = None
            return _in_frame(outer, name)
        region = name if _REGION.match(name) else outer.region
        if kind == ANNOTATION:
            optimizer = _OPTIMIZER.match(name)
            scope = () if _NOT_SCOPES.match(name) else (optimizer[1] if optimizer else name,)
            return replace(outer, scope=outer.scope + scope, region=region, optimizer=outer.optimizer or bool(optimizer))
        if name.startswith(BACKWARD):  # inside a recomputed pass, this is a backward pass again
            return replace(outer, region=region, backward=True, recomputed=False)
        fixed = outer.fixed_layout or bool(_NORM.match(name) or (region and _CONVOLUTION.match(name)))  # a compiler chose the layouts
        return replace(outer, region=region, fixed_layout=fixed)

    def _is_recomputed(self, place: int, name: str) -> bool:
        """Whether an event in a backward pass runs the forward pass again: a checkpoint, or an op that is itself recorded for gradients."""
        if _CHECKPOINT.match(name):
            return True
        return name.startswith("aten::") and self._host.sequence[place] != NONE

    def _forward_of(self, places: Integers) -> Integers:
        """The forward op of each gradient: the last that started with the same sequence number; `NONE` if there is none."""
        numbers = self.sequences(places)
        known, ops = self._forward_ops
        if not len(known):
            return np.full(len(places), NONE)
        at = np.searchsorted(known, numbers, side="right") - 1
        return np.where((at >= 0) & (known[at] == numbers) & (numbers != NONE), ops[at], NONE)

    @cached_property
    def _forward_ops(self) -> tuple[Integers, Integers]:
        """Forward ops and their sequence numbers, sorted by number, then by start."""
        numbered = np.flatnonzero((self._host.sequence != NONE) & (self._host.kind == OP))
        contexts = self._at(numbered)
        forward = numbered[~np.array([context.backward for context in self.all], bool)[contexts]]
        ordered = forward[np.lexsort((self._host.start[forward], self._host.sequence[forward]))]
        return self._host.sequence[ordered], ordered

    @cached_property
    def _has_locations(self) -> bool:
        """Whether ops have scopes or locations: from Python frames, or annotations of the user."""
        kinds = self._host.kind
        if (kinds == PYTHON).any():
            return True
        return any(
            not _NOT_SCOPES.match(str(self._names[name])) and not _OPTIMIZER.match(str(self._names[name]))
            for name in distinct(self._host.name[kinds == ANNOTATION]).tolist()
        )


def _joined(own: Context, forward: Context) -> Context:
    """The context of a gradient, with scope and location of its forward op."""
    scope, location, region = forward.scope or own.scope, forward.location or own.location, own.region or forward.region
    return Context(scope, location, region, True, fixed_layout=own.fixed_layout)


def _in_frame(outer: Context, name: str) -> Context:
    if name.startswith(MODULE):
        return replace(outer, scope=(*outer.scope, name.removeprefix(MODULE)))
    location = users_line(name)
    if not location:
        return outer
    return replace(outer, location=location)


def users_line(name: str) -> str:
    """File and line of a Python frame if it is the user's; empty if it is of PyTorch, the standard library, another library that works for
    its caller, or `roofline capture`. Traces give the path of an installed file relative to the folder of packages.

    >>> users_line("model/block.py(31): forward"), users_line("torch/nn/modules/linear.py(134): forward")
    ('model/block.py:31', '')
    >>> users_line("numpy/_core/_methods.py(148): _var"), users_line("email/feedparser.py(77): readline")
    ('', '')
    """
    match = _FRAME.fullmatch(name)
    if match is None:
        return ""
    file = match["file"].replace("\\", "/")
    short = file.rpartition("/")[2].removesuffix(".py")
    if (
        file.startswith(("torch/", "<"))
        or "/torch/" in file
        or "/lib/python" in file
        or short.startswith("roofline_hook")
        or ("/" not in file and short in sys.stdlib_module_names)
        or _LIBRARIES.match(file)
        or _GENERATED.fullmatch(short)
    ):
        return ""
    return f"{file}:{match['line']}"
