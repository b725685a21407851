"""All of PyTorch's attention operators: flash, memory-efficient, cuDNN, and the wrapper, forward and backward.

Forward: two products. Backward: five, one of which computes the scores again; the model needs four. A causal mask counts half the
square. Heads of q count for FLOP, heads of k and v for bytes. PyTorch's FlopCounterMode counts the full square and five products.
"""

from collections.abc import Sequence

from msgspec import Struct

from ..cost import Cost
from ..dtypes import dtype
from ..errors import FormulaError
from ..formulas.fused_attention import Attention
from ..operation import Attention as Measured
from ..resource import matrix
from .call import Argument, Call, Priced, Tensor
from .op_table import op
from .product_formats import product_format
from .traffic import result, traffic

ATTENTION = "attention"
VARLEN = "sequence lengths are in a tensor, which recordings do not hold"
RECOMPUTED = "counted: the scores again, which flash attention computes a second time"


class Variant(Struct, frozen=True, kw_only=True):
    """The arguments of one operator: 0-based positions in its schema.

    ``layout`` is the order of batch, heads and sequence. ``causal`` is a boolean, or with ``mask_types`` a number: 0 no mask, 1 aligned
    with the first key, 2 with the last. ``lengths`` is the cumulative sequence lengths of a packed batch, None otherwise; ``window`` is how
    many keys before its own a query sees; ``stores`` is whether the logsumexp is written.
    """

    layout: str = "BHSD"
    causal: int
    bias: int | None = None
    dropout: int | None = None
    lengths: int | None = None
    window: int | None = None
    stores: int | None = None
    mask_types: bool = False
    bottom_right: bool = False


_SDPA = "aten::_scaled_dot_product_"
_WRAPPER = Variant(causal=5, bias=3, dropout=4)
_FLASH = Variant(causal=4, dropout=3)
_FLASH_LEAF = Variant(layout="BSHD", causal=8, dropout=7, lengths=3, window=11, bottom_right=True)
FORWARD: dict[str, Variant] = {
    "aten::scaled_dot_product_attention": _WRAPPER,
    f"{_SDPA}attention_math": _WRAPPER,
    f"{_SDPA}attention_math_for_mps": _WRAPPER,
    f"{_SDPA}fused_attention_overrideable": _WRAPPER,
    f"{_SDPA}flash_attention": _FLASH,
    f"{_SDPA}flash_attention_for_cpu": Variant(causal=4, dropout=3, bias=5),
    f"{_SDPA}efficient_attention": Variant(causal=6, bias=3, dropout=5, stores=4),
    f"{_SDPA}cudnn_attention": Variant(causal=6, bias=3, dropout=5, stores=4),
    "aten::_flash_attention_forward": _FLASH_LEAF,
    "aten::_efficient_attention_forward": Variant(layout="BSHD", causal=9, bias=3, dropout=8, lengths=4, stores=10, mask_types=True),
    "aten::_cudnn_attention_forward": Variant(causal=10, bias=3, dropout=9, lengths=4, stores=8),
    "flash_attn::_flash_attn_forward": Variant(layout="BSHD", causal=5, dropout=3, window=6, bottom_right=True),
}
BACKWARD: dict[str, Variant] = {
    f"{_SDPA}flash_attention_backward": Variant(causal=11, dropout=10),
    f"{_SDPA}flash_attention_for_cpu_backward": Variant(causal=7, dropout=6, bias=8),
    f"{_SDPA}efficient_attention_backward": Variant(causal=11, bias=4, dropout=9),
    f"{_SDPA}cudnn_attention_backward": Variant(causal=14, bias=8, dropout=13),
    f"{_SDPA}fused_attention_overrideable_backward": Variant(causal=13, bias=4, dropout=12),
    "aten::_flash_attention_backward": Variant(layout="BSHD", causal=11, dropout=10, window=15, bottom_right=True),
    "aten::_efficient_attention_backward": Variant(layout="BSHD", causal=14, bias=4, dropout=11, lengths=6, mask_types=True),
    "aten::_cudnn_attention_backward": Variant(causal=14, bias=8, dropout=13),
    "flash_attn::_flash_attn_backward": Variant(layout="BSHD", causal=11, dropout=9, window=12, bottom_right=True),
}
# The quantized overloads have scales of q, k and v before their options; in traces only the number of arguments shows the overload.
QUANTIZED: dict[str, tuple[int, Variant]] = {
    f"{_SDPA}flash_attention": (10, Variant(causal=7, dropout=6)),
    "aten::_flash_attention_forward": (18, Variant(layout="BSHD", causal=8, dropout=7, lengths=3, window=14, bottom_right=True)),
}


def _forward_variant(call: Call) -> Variant:
    """The variant of a call: that of the quantized overload if it is one."""
    arguments, quantized = QUANTIZED.get(call.op, (0, _WRAPPER))
    is_quantized = len(call.args) == arguments if call.overload is None else call.overload == "quantized"
    return quantized if is_quantized else FORWARD[call.op]


def mask_of(name: str, args: Sequence[Argument]) -> Tensor | None:
    """The mask that a call of attention takes as a tensor, if it does."""
    variant = FORWARD.get(name) or BACKWARD.get(name)
    if variant is None or variant.bias is None or variant.bias >= len(args):
        return None
    found = args[variant.bias]
    return found if isinstance(found, Tensor) and len(found.shape) > 1 else None


def _sizes(call: Call, one: Tensor, layout: str) -> tuple[int, int, int, int]:
    """Batch, heads, sequence and width of a tensor."""
    if len(one.shape) != 4:
        raise FormulaError(f"{call.op}: {VARLEN}")
    batch, first, second, width = one.shape
    return (batch, first, second, width) if layout == "BHSD" else (batch, second, first, width)


def described(call: Call, variant: Variant, first: int) -> tuple[Attention, tuple[str, ...]]:
    """The attention of a call whose q, k and v start at argument ``first``, and notes."""
    q, k, v = (call.tensor(first + place) for place in range(3))
    if q is None or k is None or v is None:
        raise FormulaError(f"{call.op}: the recording lacks the shape of q, k or v")
    lengths = call.tensor(variant.lengths) if variant.lengths is not None else None
    if lengths is not None and len(lengths.shape) == 1 and lengths.shape[0] > 1:
        raise FormulaError(f"{call.op}: {VARLEN}")
    if len(q.shape) == 3 and variant is _WRAPPER:  # without heads
        q, k, v = (Tensor((one.shape[0], 1, *one.shape[1:]), one.dtype) for one in (q, k, v))
    (batch, heads, queries, width), (_, _, keys, _) = _sizes(call, q, variant.layout), _sizes(call, k, variant.layout)
    values = _sizes(call, v, variant.layout)[3]
    mask = call.arg(variant.causal)
    causal = bool(mask) if isinstance(mask, (bool, int)) else False
    window = call.number(variant.window, -1) if variant.window is not None else -1
    bias = call.tensor(variant.bias) if variant.bias is not None else None
    number, notes = product_format(call, q, k, v)
    found = Attention(
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        key_width=width,
        value_width=values,
        number=number,
        causal=causal,
        bottom_right=mask == 2 if variant.mask_types else variant.bottom_right,
        window=int(window) + 1 if window is not None and window >= 0 else 0,
        bias=bias is not None and bool(bias.shape),
        dropout=bool(call.number(variant.dropout, 0)) if variant.dropout is not None else False,
    )
    return found, (*notes, *found.notes)


def _square(found: Attention) -> int:
    return found.batch * found.heads * found.queries * found.keys


def _sums(found: Attention) -> Tensor:
    """The logsumexp, one per query and head, in fp32."""
    return Tensor((found.batch, found.heads, found.queries), dtype("fp32"))


@op(*FORWARD)
def forward(call: Call) -> Priced | None:
    if call.tensor(0) is None:
        return None
    variant = _forward_variant(call)
    found, notes = described(call, variant, 0)
    q, k, v = (call.tensor(place) for place in range(3))
    bias = call.tensor(variant.bias) if variant.bias is not None else None
    shape = (found.batch, found.heads, found.queries, found.value_width)
    out = result(call, shape, q.dtype if q else None)
    stored = call.flag(variant.stores, True) if variant.stores is not None else variant is not _WRAPPER
    moved = traffic((q, k, v, bias), (out, _sums(found) if stored else None))
    return Priced(
        cost=found.forward() + moved,
        category=ATTENTION,
        dtype=found.number.rate,
        by_convention={"flop_counter": 2 * _square(found) * (found.key_width + found.value_width)},
        notes=notes,
        operation=_by_sizes(call, found),
    )


def _by_sizes(call: Call, found: Attention, *, backward: bool = False) -> Measured | None:
    """The operation of attention by cuDNN, for which there are measurements; ``None`` for PyTorch's other kernels."""
    if "cudnn" not in call.op or found.window or found.bias or found.dropout:
        return None
    return Measured(
        batch=found.batch,
        heads=found.heads,
        queries=found.queries,
        keys=found.keys,
        size=found.key_width,
        causal=found.causal,
        backward=backward,
        dtype=found.number.name,
        library="cudnn",
    )


@op(*BACKWARD)
def backward(call: Call) -> Priced | None:
    """Reads the gradient of the result, q, k, v, the result and the logsumexp; writes the gradients of q, k and v."""
    dout = call.tensor(0)
    if dout is None:
        return None
    variant = BACKWARD[call.op]
    found, notes = described(call, variant, 1)
    q, k, v = (call.tensor(place) for place in range(1, 4))
    bias = call.tensor(variant.bias) if variant.bias is not None else None
    gradients = tuple(Tensor(one.shape, one.dtype) for one in (q, k, v) if one)
    out = Tensor(dout.shape, dout.dtype)
    moved = traffic((dout, q, k, v, out, _sums(found), bias), gradients)
    work = found.backward()
    again = 2 * found.pairs * found.key_width
    unit = matrix(found.number)
    needed = Cost.of({resource: amount - again if resource == unit else amount for resource, amount in work.amounts})
    return Priced(
        cost=work + moved,
        category=ATTENTION,
        dtype=found.number.rate,
        needed=needed + moved,
        by_convention={"flop_counter": 2 * _square(found) * (3 * found.key_width + 2 * found.value_width)},
        notes=(*notes, RECOMPUTED),
        operation=_by_sizes(call, found, backward=True),
    )


# FlexAttention as a higher-order operator: q, k, v; its mask is a function of the program.
@op("flex_attention", "flex_attention_backward", "triton_tem_fused_flex_attention*", "triton_tem_fused_flex_attention_backward*")
def flex(call: Call) -> Priced | None:
    return Priced(cost=None, category=ATTENTION, notes=("FlexAttention's mask is a function of the program: FLOP unknown",))
