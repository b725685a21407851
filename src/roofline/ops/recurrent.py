"""Recurrent cells and networks of them: products of gates on the matrix unit, and functions of the state on the vector unit."""

from msgspec import Struct

from ..cost import Cost
from ..dtypes import DType
from ..resource import matrix
from .elementwise import summed


class Cell(Struct, frozen=True):
    """A kind of cell: its gates, its FLOP and transcendentals per element of the state, and how many states it has."""

    gates: int
    flops: int
    transcendentals: int
    states: int = 1


# Sigmoids are 2 FLOP and a transcendental; an LSTM adds c = f·c + i·g and h = o·tanh(c), a GRU n = tanh(x + r·h) and (1 - z)·n + z·h.
LSTM, GRU, PLAIN = Cell(4, 10, 5, states=2), Cell(3, 9, 3), Cell(1, 1, 1)


def multiplied(cell: Cell, inputs: int, width: int, layers: int, directions: int, projection: int = 0) -> int:
    """The weights of a network: every token is multiplied by all of them."""
    state = projection or width
    widths = inputs + (layers - 1) * state * directions + layers * state
    return directions * (cell.gates * width * widths + layers * width * projection)


def work(cell: Cell, tokens: int, weights: int, states: int, compute: DType, number: DType, passes: int = 1, times: int = 1) -> Cost:
    """2 FLOP per token and weight, ``passes`` times, and the functions of the elements of the state of each token, ``times``.

    The gradients of inputs and of weights are a pass each.
    """
    functions = summed(tokens * states * times, number, cell.flops, cell.transcendentals)
    return Cost.of({matrix(compute): 2 * tokens * weights * passes}) + functions
