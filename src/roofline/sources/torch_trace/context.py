"""Where in the program an op stands: its modules and annotations, the user's line, forward or backward, and the compiled region.

Modules and lines are Python functions around the op (``with_stack=True``). A backward op has those of its forward op: the last op that
started with the same sequence number.
"""

import re
import sys
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from .columns import ANNOTATION, NONE, OP, PYTHON
from .host import Host

BACKWARD = "autograd::engine::evaluate_function"
MODULE = "nn.Module: "
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_REGION = re.compile(r"(Torch-Compiled Region: [^ ]+|CompiledFunction(?:Backward)?|## Call CompiledFxGraph .*)")
_NOT_SCOPES = re.compile(
    r"ProfilerStep|Optimizer\.zero_grad|nccl:|gloo:|record_param_comms|## Call|Torch-Compiled Region|PyTorch Profiler|TorchDynamo"
)
_OPTIMIZER = re.compile(r"Optimizer\.step#(.*)")


class Context(Struct, frozen=True):
    """Where an op stands. ``sequence`` is the number that joins backward and forward."""

    scope: tuple[str, ...] = ()
    location: str = ""
    region: str = ""
    backward: bool = False
    optimizer: bool = False
    sequence: int = NONE


NOWHERE = Context()


class Contexts:
    """The contexts of a trace's ops, worked out where they are asked for."""

    def __init__(self, host: Host, names: Sequence[str]) -> None:
        self._host, self._names = host, names
        self._known: dict[int, Context] = {NONE: NOWHERE}
        started = [number for number, name in enumerate(names) if isinstance(name, str) and name.startswith(BACKWARD)]
        self.has_backward = bool(len(host.name)) and bool(np.isin(host.name, started).any())
        self._forward: dict[int, int] | None = None

    def of(self, place: int) -> Context:
        """The context of an op; of a backward op with the scope and location of its forward op."""
        own = self._at(place)
        if not own.backward or own.sequence == NONE:
            return own
        forward = self._forward_ops().get(own.sequence)
        if forward is None:
            return own
        theirs = self._at(forward)
        return Context(theirs.scope or own.scope, theirs.location or own.location, own.region or theirs.region, True, False, own.sequence)

    def phase(self, context: Context) -> str:
        """Forward or backward, in a program that has both."""
        if not self.has_backward or context.optimizer:
            return ""
        return "backward" if context.backward else "forward"

    def _at(self, place: int) -> Context:
        waiting = []
        while place not in self._known:
            waiting.append(place)
            place = int(self._host.parent[place])
        found = self._known[place]
        for inner in reversed(waiting):
            found = self._known[inner] = self._inside(found, inner)
        return found

    def _inside(self, outer: Context, place: int) -> Context:
        """The context inside of an event."""
        host, name = self._host, str(self._names[self._host.name[place]])
        kind, sequence = host.kind[place], int(host.sequence[place])
        if kind == PYTHON:
            return _in_frame(outer, name)
        region = name if _REGION.match(name) else ""
        if kind == ANNOTATION:
            optimizer = _OPTIMIZER.match(name)
            scope = () if _NOT_SCOPES.match(name) else (optimizer[1] if optimizer else name,)
            return Context(
                outer.scope + scope,
                outer.location,
                region or outer.region,
                outer.backward,
                outer.optimizer or bool(optimizer),
                outer.sequence,
            )
        backward = outer.backward or name.startswith(BACKWARD)
        if not region and backward == outer.backward and sequence == NONE:
            return outer
        joined = sequence if sequence != NONE else outer.sequence
        return Context(outer.scope, outer.location, region or outer.region, backward, outer.optimizer, joined)

    def _forward_ops(self) -> dict[int, int]:
        """The forward op of each sequence number: the last that started."""
        if self._forward is None:
            self._forward = {}
            if self._says_more():
                numbered = np.flatnonzero((self._host.sequence != NONE) & (self._host.kind == OP))
                for place in numbered[np.argsort(self._host.start[numbered], kind="stable")].tolist():
                    if not self._at(place).backward:
                        self._forward[int(self._host.sequence[place])] = place
        return self._forward

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
        return Context(
            (*outer.scope, name.removeprefix(MODULE)), outer.location, outer.region, outer.backward, outer.optimizer, outer.sequence
        )
    location = users_line(name)
    if not location:
        return outer
    return Context(outer.scope, location, outer.region, outer.backward, outer.optimizer, outer.sequence)


def users_line(name: str) -> str:
    """The place of a frame of Python, if it is neither PyTorch's nor the standard library's.

    >>> users_line("model/block.py(31): forward"), users_line("torch/nn/modules/linear.py(134): forward")
    ('model/block.py:31', '')
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
        or ("/" not in file and short in sys.stdlib_module_names)
    ):
        return ""
    return f"{file}:{found['line']}"
