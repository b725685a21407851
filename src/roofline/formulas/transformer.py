"""Feed-forward layers and transformer blocks: sums of the formulas they are made of."""

from typing import Annotated, Unpack

from msgspec.structs import replace

from ..ledger import Ledger, Row, read, write
from .dense import ProductFormats, matmul
from .inference import attention
from .normalisation import rmsnorm
from .notation import Dim, Format, ParameterFormats, ratio
from .parts import part, same_tensors
from .pointwise import add, gelu, rope, swiglu
from .registry import formula


def _product(name: str, tokens: Dim, k: Dim, n: Dim, copies: Dim | None, formats: ProductFormats) -> Ledger:
    """A product whose weights exist in ``copies``, of which each token uses one; None is one for all tokens, as in a matmul."""
    shape = (k, n) if copies is None else (copies, k, n)
    rows = (read("activations", (tokens, k), formats.activations), read("weights", shape, formats.weights), *formats.written((tokens, n)))
    return part(name, Ledger(name, formats.work(tokens * k * n), rows, formats.notes))


class FeedForwardOptions(ParameterFormats, total=False):
    """The options of a feed-forward layer."""

    fused: Annotated[bool, False]


def feed_forward(tokens: Dim, width: Dim, hidden: Dim, copies: Dim | None, options: FeedForwardOptions, *, gated: bool) -> Ledger:
    """Up-projection, activation, down-projection; ``copies`` of the weights for experts."""
    formats = ProductFormats.of(options["dtype"], weights=options["weights"], compute=options["compute"])
    own = formats.activations.name
    up = _product("up", tokens, width, 2 * hidden if gated else hidden, copies, formats)
    middle = (swiglu if gated else gelu)(tokens * hidden, dtype=own, compute=options["vector"])
    if options["fused"]:
        # The activation is an epilogue of the first product: its FLOP count, its traffic does not; the product writes one hidden tensor.
        written: tuple[Row, ...] = (write("up.out", (tokens, hidden), formats.out),)
        kept = tuple(row for row in up.rows if row.access == "read")
        first = replace(up, work=up.work + middle.work, rows=kept + written)
    else:
        activation = part("activation", middle)
        first = up + activation
        first = same_tensors(first, {row.tensor: "up.out" for row in activation.rows if row.access == "read"})
    whole = first + _product("down", tokens, hidden, width, copies, formats)
    return same_tensors(whole, {"down.activations": "up.out" if options["fused"] else "activation.out0"})


@formula("ffn", group="transformer", example=(65536, 4096, 16384), aliases=("mlp", "feed_forward"))
def ffn(tokens: Dim, width: Dim, hidden: Dim, *, gated: bool = False, **options: Unpack[FeedForwardOptions]) -> Ledger:
    """Feed-forward layer, up to `hidden`, activation and down: 4·tokens·width·hidden FLOP with GELU, 6· with a SwiGLU gate.

    Three kernels, with the hidden activations written and read between them; `fused` runs the activation inside the first product.
    """
    return feed_forward(tokens, width, hidden, None, options, gated=gated).named("ffn")


@formula(
    "transformer_block", group="transformer", example=(8, 2048, 4096, 32, 14336), aliases=("block", "transformer_layer", "decoder_layer")
)
def transformer_block(
    batch: Dim,
    length: Dim,
    width: Dim,
    heads: Dim,
    hidden: Dim,
    *,
    kv_heads: Dim | None = None,
    head_dim: Dim | None = None,
    kv_len: Dim | None = None,
    causal: bool = True,
    gated: bool = True,
    cache: Format = None,
    **options: Unpack[FeedForwardOptions],
) -> Ledger:
    """One decoder layer: norm, QKV, rotary embedding, flash attention, projection, residual; norm, feed-forward, residual.

    Prefill has `length` new tokens per sequence; decode has length 1 and the cache's `kv_len`. Every part is a kernel of its own; keys and
    values are written to the cache directly.
    """
    dtype, weights, compute, vector = options["dtype"], options["weights"], options["compute"], options["vector"]
    tokens, kv = batch * length, heads if kv_heads is None else kv_heads
    wide = ratio(width, heads) if head_dim is None else head_dim
    norm = rmsnorm(tokens, width, dtype=dtype, compute=vector)
    residual = add(tokens * width, dtype=dtype, compute=vector)
    keys = length if kv_len is None else kv_len
    scores = attention(
        batch, heads, length, keys, wide, kv_heads=kv, causal=causal, dtype=dtype, cache=cache, compute=compute, vector=vector
    )
    parts = (
        part("norm1", norm),
        part("qkv", matmul(tokens, width, (heads + 2 * kv) * wide, dtype=dtype, weights=weights, compute=compute)),
        part("rope", rope(tokens * (heads + kv) * wide, dtype=dtype, compute=vector)),
        part("attention", scores),
        part("projection", matmul(tokens, heads * wide, width, dtype=dtype, weights=weights, compute=compute)),
        part("residual1", residual),
        part("norm2", norm),
        part("ffn", ffn(tokens, width, hidden, gated=gated, **options)),
        part("residual2", residual),
    )
    names = BLOCK_TENSORS if kv_len is None and cache is None else {one: same for one, same in BLOCK_TENSORS.items() if one not in CACHED}
    return same_tensors(together("transformer_block", parts), names)


# Tensors that one part of a block writes and another reads under another name.
BLOCK_TENSORS = {
    "qkv.activations": "norm1.out",
    "rope.in0": "qkv.out",
    "attention.q": "rope.out0",
    "attention.k": "rope.out0",
    "attention.v": "qkv.out",
    "projection.activations": "attention.out",
    "residual1.in0": "norm1.x",
    "residual1.in1": "projection.out",
    "norm2.x": "residual1.out0",
    "ffn.up.activations": "norm2.out",
    "residual2.in0": "residual1.out0",
    "residual2.in1": "ffn.down.out",
}
CACHED = ("attention.k", "attention.v")  # separate tensors if there is a cache


def together(name: str, parts: tuple[Ledger, ...]) -> Ledger:
    """The sum of parts, under one name."""
    return sum(parts[1:], parts[0]).named(name)
