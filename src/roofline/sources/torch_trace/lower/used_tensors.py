"""Which tensors ops used, and where these lie in memory: from ids that were recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ....graph.array_memory import Position
from ....torch_prices import Tensor
from ..host import Host
from ..read.arrays import Integers
from ..read.columns import NONE, OP

NEVER_FREED = 2**62  # the program left it at the end
Operand = tuple[Tensor | None, Position | None]  # unknown sizes, or without memory


class Used(Struct, frozen=True):
    """The tensors of one op: those among its arguments, the places of those that it may write, and its results; when the op ended; and
    the place of the op that called it, or `NONE`. ``args`` are its arguments where they are recorded better than in the trace.
    """

    end: int
    caller: int
    operands: Sequence[Operand]
    changed: Sequence[int]
    results: Sequence[Operand]
    args: tuple[Any, ...] | None = None


class UsedTensors(Struct, frozen=True):
    """The tensors of ops, by the place of the op among the host's events; and when an op began that was the last to take each memory, or
    `NEVER_FREED`.
    """

    ops: Mapping[int, Used]
    last: Mapping[int, int]

    def has(self, op: int) -> bool:
        """Whether the memory of a tensor that an op took is known: a profiler that does not record memory knows none."""
        return op in self.ops and any(position is not None for _, position in self.ops[op].operands)


def places_of(externals: Sequence[int], host: Host) -> Integers:
    """The places of the ops with these external ids, or `NONE`."""
    ops = np.flatnonzero((host.kind == OP) & (host.external != NONE))
    if not len(ops):
        return np.full(len(externals), NONE)
    order = ops[np.argsort(host.external[ops], kind="stable")]
    at = np.minimum(np.searchsorted(host.external[order], externals), len(order) - 1)
    return np.where(host.external[order[at]] == np.array(externals, np.int64), order[at], NONE)


def callers_of(places: Integers, host: Host) -> Integers:
    """The place of the op around each op, or `NONE`."""
    known = places != NONE
    callers = np.full(len(places), NONE)
    callers[known] = host.nearest(host.parent[places[known]], OP)
    return callers
