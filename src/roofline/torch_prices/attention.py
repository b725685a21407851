"""All of PyTorch's attention operators: flash, memory-efficient, cuDNN, and the wrapper, forward and backward.

Forward: two products. Backward: five, one of which computes the scores again; the model needs four. A causal mask counts half the
square. Heads of q count for FLOP, heads of k and v for bytes. PyTorch's FlopCounterMode counts the full square and five products.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..cost import Amount, Cost
from ..dtypes import dtype
from ..errors import FormulaError
from ..operation import Attention as Measured
from ..ops.attention import Attention
from ..resource import matrix
from ..units import plain, show
from ..workload import LOWER_BOUND
from .call import Call, Priced, Tensor
from .op_table import op
from .packed_batches import Group, PackedBatch
from .product_formats import product_format
from .traffic import result, traffic

ATTENTION = "attention"
VARLEN = "sequence lengths are in a tensor, which recordings do not hold"
LEAST = f"{VARLEN}: counted as {{count}} equal ones, the least"
MOST = ", with at most {ratio} times as many FLOP"
TWICE = "counted: the scores and the gradient of the probabilities as FlexAttention computes them, once for q and once for k and v"
FLEX_MASK = "FlexAttention's mask is a function of the program, whose blocks recordings do not hold: FLOP unknown"
SCORE_MOD = f"{LOWER_BOUND}the operations of a score_mod are not recorded"
PAGED = "paged attention: the recording has the whole cache pool and no lengths"
RECOMPUTED = "counted: the scores again, which flash attention computes a second time"


class Variant(Struct, frozen=True, kw_only=True):
    """The arguments of one operator: 0-based positions in its schema.

    ``layout`` is the order of batch, heads and sequence. ``causal`` is a boolean, or with ``mask_types`` a number: 0 no mask, 1 aligned
    with the first key, 2 with the last. ``lengths`` is the first of four arguments of a packed batch: the cumulative lengths of queries and
    of keys, and the longest of each. ``pages`` is a table of the pages of a cache, ``window`` how many keys before its own a query sees,
    ``stores`` whether the logsumexp is written.
    """

    layout: str = "BHSD"
    causal: int
    bias: int | None = None
    dropout: int | None = None
    lengths: int | None = None
    pages: int | None = None
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
    "flash_attn::_flash_attn_varlen_forward": Variant(
        layout="BSHD", causal=9, dropout=7, lengths=3, window=10, pages=15, bottom_right=True
    ),
}
BACKWARD: dict[str, Variant] = {
    f"{_SDPA}flash_attention_backward": Variant(causal=11, dropout=10),
    f"{_SDPA}flash_attention_for_cpu_backward": Variant(causal=7, dropout=6, bias=8),
    f"{_SDPA}efficient_attention_backward": Variant(causal=11, bias=4, dropout=9),
    f"{_SDPA}cudnn_attention_backward": Variant(causal=14, bias=8, dropout=13),
    f"{_SDPA}fused_attention_overrideable_backward": Variant(causal=13, bias=4, dropout=12),
    "aten::_flash_attention_backward": Variant(layout="BSHD", causal=11, dropout=10, lengths=6, window=15, bottom_right=True),
    "aten::_efficient_attention_backward": Variant(layout="BSHD", causal=14, bias=4, dropout=11, lengths=6, mask_types=True),
    "aten::_cudnn_attention_backward": Variant(causal=14, bias=8, dropout=13, lengths=9),
    "flash_attn::_flash_attn_backward": Variant(layout="BSHD", causal=11, dropout=9, window=12, bottom_right=True),
    "flash_attn::_flash_attn_varlen_backward": Variant(layout="BSHD", causal=15, dropout=13, lengths=9, window=16, bottom_right=True),
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


def drops_out(call: Call) -> bool:
    """Whether a call is attention that drops some of its scores, at random."""
    variant = FORWARD.get(call.op) or BACKWARD.get(call.op)
    return variant is not None and variant.dropout is not None and bool(call.number(variant.dropout, 0))


def token_axis(name: str) -> int | None:
    """The axis of queries, keys and values that is their tokens, in an operator that takes four axes."""
    variant = FORWARD.get(name)
    return variant.layout.index("S") if variant is not None else None


def _sizes(call: Call, one: Tensor, layout: str) -> tuple[int, int, int, int]:
    """Batch, heads, sequence and width of a tensor."""
    if len(one.shape) != 4:
        raise FormulaError(f"{call.op}: {VARLEN}")
    batch, first, second, width = one.shape
    return (batch, first, second, width) if layout == "BHSD" else (batch, second, first, width)


def _packed(call: Call, variant: Variant, q: Tensor, k: Tensor) -> PackedBatch | None:
    """The packed batch of a call, if it has one."""
    lengths = call.tensor(variant.lengths) if variant.lengths is not None else None
    if variant.lengths is None or lengths is None or len(lengths.shape) != 1 or lengths.shape[0] < 2:
        return None
    if variant.pages is not None and call.tensor(variant.pages) is not None:
        raise FormulaError(f"{call.op}: {PAGED}")
    (queries, *_), (keys, *_) = _tokens(call, q), _tokens(call, k)
    longest = [int(call.number(variant.lengths + place, 0) or 0) for place in (2, 3)]
    return PackedBatch(sequences=lengths.shape[0] - 1, queries=queries, keys=keys, longest_queries=longest[0], longest_keys=longest[1])


def _tokens(call: Call, one: Tensor) -> tuple[int, int, int]:
    """All tokens, heads and width of a tensor of a packed batch."""
    shape = one.shape[1:] if len(one.shape) == 4 and one.shape[0] == 1 else one.shape
    if len(shape) != 3:
        raise FormulaError(f"{call.op}: {VARLEN}")
    return shape


def _in_groups(one: Attention, groups: Iterable[Group]) -> tuple[Attention, ...]:
    return tuple(replace(one, batch=count, queries=queries, keys=keys) for count, queries, keys in groups)


def _pairs(parts: Iterable[Attention]) -> Amount:
    return sum(part.pairs for part in parts)


def _unpacked(call: Call, one: Attention, batch: PackedBatch) -> tuple[tuple[Attention, ...], str]:
    """The attention of a packed batch in groups of equal sequences, the least that it can be, and a note if it can be more."""
    parts = _in_groups(one, batch.equal())
    same_queries, same_keys = batch.is_equal
    sees_all = not one.causal or (batch.longest_queries == 1 and one.bottom_right and not one.window)  # any length of keys, the same sum
    if (same_queries and same_keys) or (sees_all and (same_queries or (same_keys and not one.causal))):
        return parts, ""
    if not batch.attends_itself:
        raise FormulaError(f"{call.op}: {VARLEN}")
    more = ""
    if batch.longest_queries and (least := _pairs(parts)):
        more = MOST.format(ratio=plain(float(_pairs(_in_groups(one, batch.unequal())) / least), 2))
    return parts, LEAST.format(count=batch.sequences) + more


class Described(Struct, frozen=True):
    """The attention of a call: q, k and v, parts of equal sequences, notes, and whether the parts are exact."""

    tensors: tuple[Tensor, Tensor, Tensor]
    parts: tuple[Attention, ...]
    notes: tuple[str, ...]
    exact: bool

    @property
    def pairs(self) -> Amount:
        return _pairs(self.parts)

    @property
    def sums(self) -> Tensor:
        """The logsumexp, one per query and head, in fp32."""
        return Tensor((sum(one.batch * one.heads * one.queries for one in self.parts),), dtype("fp32"))

    def by_convention(self, width: int) -> dict[str, Amount]:
        """What PyTorch's counter says: products of this ``width`` and the full square, by the lengths, which it has."""
        square = sum(one.batch * one.heads * one.queries * one.keys for one in self.parts)
        return {"flop_counter": 2 * square * width} if self.exact else {}


def described(call: Call, variant: Variant, first: int) -> Described:
    """The attention of a call whose q, k and v start at argument ``first``."""
    q, k, v = (call.tensor(first + place) for place in range(3))
    if q is None or k is None or v is None:
        raise FormulaError(f"{call.op}: the recording lacks the shape of q, k or v")
    tensors, packed = (q, k, v), _packed(call, variant, q, k)
    if packed is not None:
        q, k, v = (Tensor((1, *_tokens(call, one)), one.dtype) for one in (q, k, v))
        variant = replace(variant, layout="BSHD")
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
    parts, caveat = _unpacked(call, found, packed) if packed is not None else ((found,), "")
    return Described(tensors, parts, (*notes, *found.notes, *filter(None, (caveat,))), not caveat)


@op(*FORWARD)
def forward(call: Call) -> Priced | None:
    if call.tensor(0) is None:
        return None
    variant = _forward_variant(call)
    found = described(call, variant, 0)
    (q, k, v), one = found.tensors, found.parts[0]
    bias = call.tensor(variant.bias) if variant.bias is not None else None
    out = result(call, (*q.shape[:-1], one.value_width), q.dtype)
    stored = call.flag(variant.stores, True) if variant.stores is not None else variant is not _WRAPPER
    moved = traffic((q, k, v, bias), (out, found.sums if stored else None))
    return Priced(
        cost=sum((part.forward() for part in found.parts), moved),
        category=ATTENTION,
        dtype=one.number.rate,
        by_convention=found.by_convention(one.key_width + one.value_width),
        notes=found.notes,
        operation=_by_sizes(call, found.parts),
    )


def _by_sizes(call: Call, parts: Sequence[Attention], *, backward: bool = False) -> Measured | None:
    """The operation of attention by cuDNN, for which there are measurements; ``None`` for PyTorch's other kernels."""
    found = parts[0]
    if "cudnn" not in call.op or found.window or found.bias or found.dropout or len(parts) > 1:
        return None
    return found.by_cudnn(backward=backward)


@op(*BACKWARD)
def backward(call: Call) -> Priced | None:
    """Reads the gradient of the result, q, k, v, the result and the logsumexp; writes the gradients of q, k and v."""
    dout = call.need(0)
    variant = BACKWARD[call.op]
    found = described(call, variant, 1)
    one = found.parts[0]
    bias = call.tensor(variant.bias) if variant.bias is not None else None
    gradients = tuple(Tensor(each.shape, each.dtype) for each in found.tensors)
    out = Tensor(dout.shape, dout.dtype)
    moved = traffic((dout, *found.tensors, out, found.sums, bias), gradients)
    work = sum((part.backward() for part in found.parts), Cost())
    return Priced(
        cost=work + moved,
        category=ATTENTION,
        dtype=one.number.rate,
        needed=_without_scores(work, found.parts) + moved,
        by_convention=found.by_convention(3 * one.key_width + 2 * one.value_width),
        notes=(*found.notes, RECOMPUTED),
        operation=_by_sizes(call, found.parts, backward=True),
    )


def _without_scores(work: Cost, parts: Sequence[Attention]) -> Cost:
    """The work of a backward pass without the scores, which the forward pass has computed."""
    again, unit = 2 * _pairs(parts) * parts[0].key_width, matrix(parts[0].number)
    return Cost.of({resource: amount - again if resource == unit else amount for resource, amount in work.amounts})


# FlexAttention as a higher-order operator, and the kernels that Inductor makes of it: q, k and v, then the mask's blocks, among others.
@op("flex_attention", "flex_attention_backward", "triton_tem_fused_flex_attention*", "triton_tem_fused_flex_attention_backward*")
def flex(call: Call) -> Priced | None:
    """Without a mask all pairs; with one only the program knows which. The operations of a score_mod are not recorded, and not counted.

    Its backward kernel computes seven products: three for the gradient of q and four for those of k and v, each with the scores and the
    gradient of the probabilities.
    """
    q = call.tensor(0)
    sizes = _flex_sizes(call, q) if q is not None else None
    if q is None or sizes is None:
        return Priced(cost=None, category=ATTENTION, notes=(FLEX_MASK,))
    batch, heads, queries, width, keys, values = sizes
    number, notes = product_format(call, q)
    one = Attention(batch=batch, heads=heads, queries=queries, keys=keys, key_width=width, value_width=values, number=number)
    is_backward = "backward" in call.op
    again = Cost.of({matrix(number): 2 * one.pairs * (width + values)})
    work = one.backward() + again if is_backward else one.forward()
    blocks = [each for each in call.all_tensors if each.dtype is not None and each.dtype.name.startswith("int")]
    if not blocks or max(each.elements for each in blocks) > 1:
        return Priced(cost=None, category=ATTENTION, notes=(f"{FLEX_MASK}, {show(float(work.flops or 0), 'FLOP')} without a mask",))
    moved = traffic([each for each in call.all_tensors if each not in blocks])
    needed = _without_scores(one.backward(), (one,)) + moved if is_backward else None
    notes = (*notes, SCORE_MOD, TWICE) if is_backward else (*notes, SCORE_MOD)
    return Priced(cost=work + moved, category=ATTENTION, dtype=number.rate, needed=needed, notes=notes)


def _flex_sizes(call: Call, q: Tensor) -> tuple[int, int, int, int, int, int] | None:
    """The batch, heads, queries, width, keys and width of values of FlexAttention.

    Inductor may hand over the result of a projection in place of the parts of it: then the kernel's result, its last argument, has the
    sizes of q, and q, k and v of the same tokens fill the projection.
    """
    k, v = call.tensor(1), call.tensor(2)
    out = next((one for one in reversed(call.all_tensors) if len(one.shape) == 4 and one.dtype == q.dtype), None)
    if k is None or out is None:
        return None
    if len(q.shape) == len(k.shape) == 4:
        values = v.shape[3] if v is not None and len(v.shape) == 4 else out.shape[3]
        batch, heads, queries, width = q.shape
        return batch, heads, queries, width, k.shape[2], values
    batch, heads, queries, width = out.shape
    shared, rest = divmod(q.elements - out.elements, 2 * batch * queries * width or 1)  # heads of k and v
    return (batch, heads, queries, width, queries, width) if not rest and shared > 0 and heads % shared == 0 else None
