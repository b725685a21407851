"""Recurrent networks: whole networks of cuDNN and MIOpen, layers of oneDNN, and the fused cells that PyTorch launches step by step.

2 · tokens · gates · width · inputs FLOP for each product of a layer and direction, the gates on the vector unit; backward the same for the
inputs and again for the weights. Every operand and result counts once, including those that training keeps for backward.
"""

from msgspec import Struct

from ..errors import FormulaError
from ..ops.recurrent import GRU, LSTM, PLAIN, multiplied, work
from .call import Call, Priced, Tensor, needed
from .op_table import op
from .product_formats import product_format
from .traffic import traffic

RECURRENT = "recurrent"


# The modes of cuDNN and MIOpen by number: a plain cell with ReLU, one with tanh, LSTM, GRU.
MODES = {0: PLAIN, 1: PLAIN, 2: LSTM, 3: GRU}


class Places(Struct, frozen=True, kw_only=True):
    """The positions of arguments in the schema of one operator; ``None`` for an argument that it does not have."""

    states: int
    mode: int
    layers: int
    train: int
    projection: int | None = None
    backward: bool = False


NETWORKS = {
    "aten::_cudnn_rnn": Places(states=4, mode=6, projection=8, layers=9, train=12),
    "aten::miopen_rnn": Places(states=3, mode=5, layers=7, train=10),
    "aten::_cudnn_rnn_backward": Places(states=4, mode=10, projection=12, layers=13, train=16, backward=True),
    "aten::miopen_rnn_backward": Places(states=4, mode=10, layers=12, train=15, backward=True),
}


@op(*NETWORKS)
def network(call: Call) -> Priced | None:
    """All layers, directions and steps in one call; tokens do not include the padding that a packed sequence omits."""
    places = NETWORKS[call.op]
    x, weights, state, cell = call.need(0), call.tensors(1), call.need(places.states), call.tensor(places.states + 1)
    mode, layers, width = needed(call.number(places.mode)), call.number(places.layers), call.number(places.mode + 1)
    if not layers or not width or not x.shape:
        return None
    if mode not in MODES:
        raise FormulaError(f"{call.op}: unknown kind of cell {mode}")
    kind, layers, width = MODES[int(mode)], int(layers), int(width)
    directions = 2 if call.flag(places.train + 1) else 1
    projection = int(call.number(places.projection) or 0) if places.projection is not None else 0
    out = (projection or width) * directions
    tokens = x.elements // x.shape[-1] if x.shape[-1] else 0
    products = multiplied(kind, x.shape[-1], width, layers, directions, projection)
    states = width * layers * directions
    # Traces have the sizes of a list's tensors without their formats, or drop the list.
    held = sum(one.elements for one in weights) if weights else products
    parameters = Tensor((held,), x.dtype)
    y, kept = Tensor((tokens * out,), x.dtype), Tensor((tokens * states * (kind.gates + kind.states - 1),), x.dtype)
    trains = call.flag(places.train) or places.backward
    read: list[Tensor | None] = [x, state, cell, parameters]
    if not places.backward:
        passes = 1
        written = [y, state, cell, kept if trains else None]
    else:
        # dx always needs the products; the gradients of the weights, the last entry of the mask, need as many again.
        mask = call.arg(places.train + 5)
        wanted = mask[-1] if isinstance(mask, tuple) and mask else True
        passes = 2 if wanted else 1
        read += [y, y, kept]
        written = [x, state, cell, parameters if wanted else None]
    number, notes = product_format(call, x, allow_tf32=True)
    arithmetic = work(kind, tokens, products, states, number, x.dtype or number, passes, 2 if places.backward else 1)
    return Priced(cost=arithmetic + traffic(read, written), category=RECURRENT, dtype=number.name, notes=notes)


@op("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward")
def layer(call: Call) -> Priced | None:
    """One layer in one direction on a CPU (oneDNN); the kind of cell follows from the number of gates in the shape of its weights."""
    x, of_input, of_state, state, cell = call.need(0), call.need(1), call.need(2), call.need(5), call.tensor(6)
    if len(of_state.shape) != 2 or not x.shape:
        return None
    rows, width = of_state.shape
    kind = next((one for one in (LSTM, GRU, PLAIN) if one.gates * width == rows), None)
    if kind is None:
        raise FormulaError(f"{call.op}: no known cell has weights of {rows} rows for a state of {width}")
    tokens = x.elements // x.shape[-1] if x.shape[-1] else 0
    y, backward = Tensor((tokens * width,), x.dtype), call.op.endswith("backward")
    weights = [of_input, of_state, call.tensor(3), call.tensor(4)]
    kept = Tensor((tokens * width * (kind.gates + kind.states - 1),), x.dtype)
    read, written = [x, state, cell, *weights], [y, state, cell, kept if call.flag(15) else None]
    if backward:
        read, written = [*read, y, y, call.tensor(22)], [x, state, cell, *weights]
    number, notes = product_format(call, x)
    times = 2 if backward else 1  # for the inputs and for the weights
    arithmetic = work(kind, tokens, of_input.elements + of_state.elements, width, number, x.dtype or number, times, times)
    return Priced(cost=arithmetic + traffic(read, written), category=RECURRENT, dtype=number.name, notes=notes)
