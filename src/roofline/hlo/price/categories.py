"""Categories: what kind of kernel it is, as shown to users (matmul, reduction, loop fusion)."""

from ...cost import Cost
from ...resource import PCIE
from .elementwise import ELEMENTWISE
from .types import Site

# Opcodes that decide a fused kernel's category, in order of precedence.
_DECISIVE = {
    "matmul": frozenset(("dot", "ragged-dot", "scaled-dot")),
    "convolution": frozenset(("convolution",)),
    "sort": frozenset(("sort", "topk")),
}
_WORDS = {
    **dict.fromkeys(ELEMENTWISE | {"map"}, "elementwise"),
    **dict.fromkeys(("reduce", "reduce-window", "scan", "select-and-scatter"), "reduction"),
    **dict.fromkeys(("sort", "topk"), "sort"),
    **dict.fromkeys(("rng", "rng-bit-generator", "rng-get-and-update-state"), "random numbers"),
    **dict.fromkeys(("cholesky", "triangular-solve"), "linear algebra"),
    **dict.fromkeys(("batch-norm-grad", "batch-norm-inference", "batch-norm-training"), "normalisation"),
    "fft": "fft",
    "gather": "gather",
    "scatter": "scatter",
}


def category(site: Site, opcodes: frozenset[str], cost: Cost) -> str:
    """The category of a kernel: by the products in it, by its kind of fusion, or by its opcode."""
    if cost.known(PCIE) and cost.flops == 0:
        return "host transfer"
    for word, decisive in _DECISIVE.items():
        if not decisive.isdisjoint(opcodes):
            return word
    if site.instruction.opcode == "fusion":
        kind = site.instruction.fusion_kind.removeprefix("k").lower()
        return f"{kind} fusion" if kind else "fusion"
    return _WORDS.get(site.instruction.opcode, "data movement")
