"""Which tensors ops used, and where these lie in memory: from ids that were recorded."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ...graph.array_memory import Position
from ...torch_prices import Tensor

NEVER_FREED = 2**62  # the program left it at the end
Operand = tuple[Tensor | None, Position | None]  # unknown sizes, or without memory


class Used(Struct, frozen=True):
    """The tensors of one op: those among its arguments, the places of those that it may write, and its results; when the op ended; and
    the place of the op that called it, or `NONE`.
    """

    end: int
    caller: int
    operands: Sequence[Operand]
    changed: Sequence[int]
    results: Sequence[Operand]


class UsedTensors(Struct, frozen=True):
    """The tensors of ops, by the place of the op among the host's events; and when an op began that was the last to take each memory, or
    `NEVER_FREED`.
    """

    ops: Mapping[int, Used]
    last: Mapping[int, int]
