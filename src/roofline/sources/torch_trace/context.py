"""Where in the program an op stands: its modules and annotations, the user's line, forward or backward, and the compiled region.

Modules and lines are Python functions around the op (``with_stack=True``). A backward op has those of its forward op: the last op that
started with the same sequence number.
"""

import re
import sys
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from .columns import ANNOTATION, NONE, OP, PYTHON
from .host import Host

BACKWARD = "autograd::engine::evaluate_function"
MODULE = "nn.Module: "
_CHECKPOINT = re.compile(r"(?:.*/)?torch/utils/checkpoint\.py\(|CheckpointFunctionBackward")
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_REGION = re.compile(r"(Torch-Compiled Region: [^ ]+|CompiledFunction(?:Backward)?|## Call CompiledFxGraph .*)")
_NOT_SCOPES = re.compile(
    r"ProfilerStep|Optimizer\.zero_grad|nccl:|gloo:|record_param_comms|## Call|Torch-Compiled Region|PyTorch Profiler|TorchDynamo"
)
# Packages that work on the host for their caller: of the standard library, and those that make or move arrays.
_LIBRARIES = re.compile(
    r"(?:asyncio|collections|concurrent|ctypes|email|encodings|http|importlib|json|logging|multiprocessing|re|tomllib|unittest|urllib|xml"
    r"|PIL|cv2|einops|fsspec|h5py|numpy|pandas|pyarrow|scipy|sklearn|tqdm|triton)/"
)
_GENERATED = re.compile(r"c[a-z2-7]{51}")  # Inductor's files are called by their hashes
_OPTIMIZER = re.compile(r"Optimizer\.step#(.*)")


class Context(Struct, frozen=True):
    """Where an op stands."""

    scope: tuple[str, ...] = ()
    location: str = ""
    region: str = ""
    backward: bool = False
    optimizer: bool = False
    recomputed: bool = False  # a forward op that a backward pass runs again


NOWHERE = Context()


class Contexts:
    """The contexts of a trace's ops, worked out where they are asked for."""

    def __init__(self, host: Host, names: Sequence[str]) -> None:
        self._host, self._names = host, names
        self._parent, self._name, self._kind, self._sequence = host.parent.data, host.name.data, host.kind.data, host.sequence.data
        self._known: dict[int, Context] = {NONE: NOWHERE}
        started = [number for number, name in enumerate(names) if isinstance(name, str) and name.startswith(BACKWARD)]
        self.has_backward = bool(len(host.name)) and bool(np.isin(host.name, started).any())
        self._interned = {NOWHERE: NOWHERE}
        self._steps: dict[tuple[int, int, int, bool], Context] = {}

    def of(self, place: int) -> Context:
        """The context of an op; of a backward op with the scope and location of its forward op. Equal ones are one object."""
        own = self._at(place)
        if not own.backward or own.recomputed or not self._says_more:
            return own
        forward = self._forward_ops.get(self.sequence(place))
        if forward is None:
            return own
        theirs = self._at(forward)
        return self._one(Context(theirs.scope or own.scope, theirs.location or own.location, own.region or theirs.region, True))

    def sequence(self, place: int) -> int:
        """The number that an op has in common with its gradient, or `NONE`."""
        return next((number for outer in self._host.around(place) if (number := int(self._host.sequence[outer])) != NONE), NONE)

    def phase(self, context: Context) -> str:
        """Forward or backward, in a program that has both."""
        if not self.has_backward or context.optimizer:
            return ""
        return "backward" if context.backward else "forward"

    def _one(self, context: Context) -> Context:
        return self._interned.setdefault(context, context)

    def _at(self, place: int) -> Context:
        known, waiting = self._known, []
        while place not in known:
            waiting.append(place)
            place = self._parent[place]
        found = known[place]
        for inner in reversed(waiting):
            step = (id(found), self._name[inner], self._kind[inner], self._sequence[inner] != NONE)
            if step not in self._steps:
                self._steps[step] = self._one(self._inside(found, inner))
            found = known[inner] = self._steps[step]
        return found

    def _inside(self, outer: Context, place: int) -> Context:
        """The context inside of an event."""
        name, kind = str(self._names[self._host.name[place]]), self._host.kind[place]
        if outer.backward and not outer.recomputed and self._runs_again(place, name):
            outer = replace(outer, recomputed=True)
        if kind == PYTHON:
            return _in_frame(outer, name)
        region = name if _REGION.match(name) else outer.region
        if kind == ANNOTATION:
            optimizer = _OPTIMIZER.match(name)
            scope = () if _NOT_SCOPES.match(name) else (optimizer[1] if optimizer else name,)
            return replace(outer, scope=outer.scope + scope, region=region, optimizer=outer.optimizer or bool(optimizer))
        if name.startswith(BACKWARD):  # one in a checkpoint is a backward pass again
            return replace(outer, region=region, backward=True, recomputed=False)
        return replace(outer, region=region)

    def _runs_again(self, place: int, name: str) -> bool:
        """Whether an event in a backward pass is a forward pass: a checkpoint's, or an op that is recorded for gradients itself."""
        if _CHECKPOINT.match(name):
            return True
        return name.startswith("aten::") and self._host.sequence[place] != NONE

    @cached_property
    def _forward_ops(self) -> dict[int, int]:
        """The forward op of each sequence number: the last that started."""
        numbered = np.flatnonzero((self._host.sequence != NONE) & (self._host.kind == OP))
        ordered = numbered[np.argsort(self._host.start[numbered], kind="stable")].tolist()
        return {int(self._host.sequence[place]): place for place in ordered if not self._at(place).backward}

    @cached_property
    def _says_more(self) -> bool:
        """Whether anything on the host tells ops apart by their place: frames of Python, or annotations of the user."""
        kinds = self._host.kind
        if (kinds == PYTHON).any():
            return True
        return any(
            not _NOT_SCOPES.match(str(self._names[name])) and not _OPTIMIZER.match(str(self._names[name]))
            for name in np.unique(self._host.name[kinds == ANNOTATION]).tolist()
        )


def _in_frame(outer: Context, name: str) -> Context:
    if name.startswith(MODULE):
        return replace(outer, scope=(*outer.scope, name.removeprefix(MODULE)))
    location = users_line(name)
    if not location:
        return outer
    return replace(outer, location=location)


def users_line(name: str) -> str:
    """The place of a frame of Python, if it is neither PyTorch's, the standard library's, a library's that works on the host for its
    caller, nor that of `roofline capture`. Traces have installed files by their path below the folder of packages.

    >>> users_line("model/block.py(31): forward"), users_line("torch/nn/modules/linear.py(134): forward")
    ('model/block.py:31', '')
    >>> users_line("numpy/_core/_methods.py(148): _var"), users_line("email/feedparser.py(77): readline")
    ('', '')
    """
    found = _FRAME.fullmatch(name)
    if found is None:
        return ""
    file = found["file"].replace("\\", "/")
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
    return f"{file}:{found['line']}"
