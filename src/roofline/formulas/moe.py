"""Mixture of experts: routing, dispatch, the experts' feed-forward layers, and combining their outputs.

Experts are divided evenly over `over` chips, `tokens` are those of one chip, and all results are for one chip.
"""

from math import exp, log1p
from typing import Unpack

from ..errors import FormulaError
from ..ledger import Ledger, read, write
from .collective import Route, hop_work, route, sends
from .compute_units import number, vector_work
from .dense import matmul
from .normalisation import softmax
from .notation import Algorithm, Dim, Format, Link, Links, ratio
from .parts import part, same_tensors
from .registry import formula
from .transformer import FeedForwardOptions, feed_forward, ffn, together


def expected_experts(experts: Dim, top_k: Dim, tokens: Dim) -> float:
    """The expected number of distinct experts if each token chooses k evenly at random: E(1 − (1 − k/E)^T).

    >>> round(expected_experts(8, 2, 4), 2)
    5.47
    """
    if top_k >= experts:
        return float(experts)
    return float(experts) * (1 - exp(float(tokens) * log1p(-float(ratio(top_k, experts)))))


def _check(name: str, experts: Dim, top_k: Dim) -> None:
    if top_k > experts:
        raise FormulaError(f"{name}: top_k is {top_k}, but there are {experts} experts; a token visits each at most once")


def _exchange(tensor: str, tokens: Dim, width: Dim, top_k: Dim, one: str, way: Route, link: Link) -> Ledger:
    """The all-to-all that carries tokens to the chips of their experts, or back."""
    return Ledger(tensor, hop_work(link, way.hops), sends(tensor, (tokens, top_k, width), one, way.exchanged, link))


@formula("moe_router", group="moe", example=(4096, 4096, 64), aliases=("router",))
def moe_router(
    tokens: Dim, width: Dim, experts: Dim, *, top_k: Dim = 2, dtype: Format = "bf16", weights: Format = None, compute: Format = None
) -> Ledger:
    """A score for every expert and token, and the top k of them: a matmul, a softmax and a selection.

    2·tokens·width·experts FLOP; the comparisons of the top k are 0 FLOP. k indices and k fp32 weights per token are written.
    """
    _check("moe_router", experts, top_k)
    scores = matmul(tokens, width, experts, dtype=dtype, weights=weights, compute=compute)
    chosen = (
        read("probabilities", (tokens, experts), number(dtype)),
        write("indices", (tokens, top_k), "int32"),
        write("shares", (tokens, top_k), "fp32"),
    )
    parts = (part("scores", scores), part("softmax", softmax(tokens, experts, dtype=dtype)), Ledger("choice", rows=chosen))
    return same_tensors(together("moe_router", parts), {"softmax.x": "scores.out", "probabilities": "softmax.out"})


@formula("moe_dispatch", group="moe", example=(4096, 4096), aliases=("dispatch",))
def moe_dispatch(tokens: Dim, width: Dim, *, top_k: Dim = 2, over: Dim = 1, dtype: Format = "bf16", **links: Unpack[Links]) -> Ledger:
    """Every token copied to the rows of its k experts, and sent to their chips: no FLOP.

    bytes = tokens·width elements read, k times as many written; over p chips, an all-to-all of tokens·k·width elements.
    """
    number_format, way = number(dtype), route("moe_dispatch", over, 1, 1, links["algorithm"], links["links"])
    rows = (
        read("x", (tokens, width), number_format),
        read("indices", (tokens, top_k), "int32"),
        write("dispatched", (tokens, top_k, width), number_format),
    )
    sent = _exchange("dispatched", tokens, width, top_k, number_format.name, way, links["link"])
    return Ledger("moe_dispatch", sent.work, rows + sent.rows)


@formula("moe_experts", group="moe", example=(4096, 4096, 1536, 64), aliases=("grouped_gemm", "ragged_dot"))
def moe_experts(
    tokens: Dim,
    width: Dim,
    hidden: Dim,
    experts: Dim,
    *,
    top_k: Dim = 2,
    touched: Dim | None = None,
    over: Dim = 1,
    gated: bool = True,
    **options: Unpack[FeedForwardOptions],
) -> Ledger:
    """The feed-forward layers of the experts: tokens·k rows; only the weights of visited experts are read.

    6·tokens·k·width·hidden FLOP with a gate, 4· without. The touched experts default to the most there can be, min(experts,
    tokens·k); the number expected of even routing is E(1 − (1 − k/E)^tokens), in a note.
    """
    name = "moe_experts"
    _check(name, experts, top_k)
    here = ratio(experts, over)
    if touched is not None and touched > here:
        raise FormulaError(f"{name}: touched is {touched}, but a chip has {here} experts; give a smaller number")
    visited = min(here, tokens * top_k) if touched is None else touched
    layer = feed_forward(tokens * top_k, width, hidden, visited, options, gated=gated)
    expected = ratio(1, over) * expected_experts(experts, top_k, tokens * over)
    note = f"weights of {visited} of {here} experts are read; routing evenly at random would touch {expected:.4g}"
    return layer.named(name, note)


@formula("moe_combine", group="moe", example=(4096, 4096), aliases=("combine",))
def moe_combine(
    tokens: Dim, width: Dim, *, top_k: Dim = 2, over: Dim = 1, dtype: Format = "bf16", compute: Format = None, **links: Unpack[Links]
) -> Ledger:
    """The weighted sum of the outputs of a token's k experts: k multiplies and k − 1 adds per element.

    bytes = tokens·k·width elements and k weights per token read, tokens·width written; over p chips, the all-to-all back.
    """
    number_format, way = number(dtype), route("moe_combine", over, 1, 1, links["algorithm"], links["links"])
    rows = (
        read("made", (tokens, top_k, width), number_format),
        read("shares", (tokens, top_k), "fp32"),
        write("out", (tokens, width), number_format),
    )
    sent = _exchange("made", tokens, width, top_k, number_format.name, way, links["link"])
    return Ledger("moe_combine", vector_work((2 * top_k - 1) * tokens * width, 0, compute, number_format) + sent.work, rows + sent.rows)


@formula("moe", group="moe", example=(4096, 4096, 1536, 64), aliases=("mixture_of_experts",), zero=("shared",))
def moe(
    tokens: Dim,
    width: Dim,
    hidden: Dim,
    experts: Dim,
    *,
    top_k: Dim = 2,
    shared: Dim = 0,
    touched: Dim | None = None,
    over: Dim = 1,
    algorithm: Algorithm = "ring",
    links: int = 1,
    link: Link = "ici",
    gated: bool = True,
    **options: Unpack[FeedForwardOptions],
) -> Ledger:
    """A whole mixture-of-experts layer: router, dispatch, experts, combine, and shared experts if any.

    The sum of those parts; over p chips it has two all-to-alls of tokens·k·width elements.
    """
    dtype, vector = options["dtype"], options["vector"]
    group: Links = {"algorithm": algorithm, "links": links, "link": link}
    router = moe_router(tokens, width, experts, top_k=top_k, dtype=dtype, weights=options["weights"], compute=options["compute"])
    parts: tuple[Ledger, ...] = (
        part("router", router),
        part("dispatch", moe_dispatch(tokens, width, top_k=top_k, over=over, dtype=dtype, **group)),
        part("experts", moe_experts(tokens, width, hidden, experts, top_k=top_k, touched=touched, over=over, gated=gated, **options)),
        part("combine", moe_combine(tokens, width, top_k=top_k, over=over, dtype=dtype, compute=vector, **group)),
    )
    if shared:
        parts += (part("shared", ffn(tokens, width, shared * hidden, gated=gated, **options)),)
    names = {"dispatch.x": "router.scores.activations", "dispatch.indices": "router.indices", "combine.shares": "router.shares"}
    if shared:
        names["shared.up.activations"] = "router.scores.activations"
    if over == 1:  # otherwise they come from other chips
        names |= {"experts.up.activations": "dispatch.dispatched", "combine.made": "experts.down.out"}
    return same_tensors(together("moe", parts), names)
