"""The words of a plan's options: number formats, software stacks, CUDA graphs and recomputation, with what each means for a step."""

import re
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UsageError, did_you_mean
from .transformer import Model

_T = TypeVar("_T")


class Format(Struct, frozen=True):
    """How the operands of a layer's products are written: the rate they run at, and bytes of an element with its share of the scales."""

    name: str
    compute: str
    bytes: float
    what: str
    weight_gradient: str = ""

    @property
    def of_gradients(self) -> str:
        """The rate at which products of weights' gradients run, where it is another."""
        return self.weight_gradient or self.compute

    @property
    def is_narrow(self) -> bool:
        return self.bytes < 2


FORMATS = {
    format.name: format
    for format in (
        Format("bf16", "bf16", 2.0, "no scales"),
        Format("fp8", "fp8", 1.0, "a scale per tensor"),
        Format("fp8row", "fp8", 1.0, "a scale per row"),
        Format("fp8block", "fp8", 1.0, "a scale per block of 128"),
        Format("mxfp8", "fp8", 1.0 + 1 / 32, "a scale per 32 elements"),
        Format("nvfp4", "fp4", 0.5 + 1 / 16, "a scale per 16 elements"),
        Format("int8", "int8", 1.0, "a scale per tensor; gradients of weights in bf16", "bf16"),
    )
}


class Stack(Struct, frozen=True, kw_only=True):
    """A training framework: the bytes of a gradient as it is kept and exchanged, whether tensor exchanges run inside the products by
    default, whether its attention on Hopper is the kernel of Ampere (FlashAttention 2), and whether its schedule is the compiler's.
    """

    name: str
    gradient: float = 4.0
    pipelined: bool = False
    former_attention: bool = False
    compiled: bool = False


STACKS = {
    stack.name: stack
    for stack in (
        Stack(name="megatron", gradient=2.0, pipelined=True),
        Stack(name="torchtitan", former_attention=True),
        Stack(name="torchtitan-eager", former_attention=True),
        Stack(name="llm-foundry", gradient=2.0, former_attention=True),
        Stack(name="maxtext", gradient=2.0, pipelined=True, compiled=True),
        Stack(name="maxtext-gpu", gradient=2.0, pipelined=True),
        Stack(name="eager"),
    )
}
OTHER_STACKS = {"jax": "maxtext"}
# What of the host's launches CUDA graphs leave: those of parts of layers half, those of a whole step none. Not stated: in between.
GRAPHS: Mapping[str, float | None] = {"none": 1.0, "layers": 0.5, "step": 0.0, "unknown": None}
OTHER_GRAPHS = {
    "": "none",
    "full_iteration": "step",
    "full": "step",
    "transformer_engine": "layers",
    "parts": "layers",
    "unstated": "unknown",
}
UNKNOWN_GRAPHS = 0.7


def word(option: str, given: str, known: Mapping[str, _T], others: Mapping[str, str] | None = None) -> _T:
    """The value of an option's word; an error lists the words."""
    plain = given.strip().lower().replace("_", "-")
    plain = (others or {}).get(plain, (others or {}).get(plain.replace("-", "_"), plain))
    if plain not in known:
        raise UsageError(f"{option} {given}: unknown{did_you_mean(plain, known)}; one of {', '.join(known)}")
    return known[plain]


class Recompute(Struct, frozen=True, kw_only=True):
    """What of a layer's forward pass runs again before its backward pass: shares of products, attention and the rest, and matrices by
    name. ``kept`` is the share of activations that stays in memory, less the inputs and results of matrices in ``freed``.
    """

    text: str
    products: float = 0.0
    attention: float = 0.0
    rest: float = 0.0
    matrices: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    kept: float = 1.0

    @property
    def is_full(self) -> bool:
        return self.kept == 0.0


KEPT_OF_PRODUCTS = 0.5  # of a layer's activations, where all results of products are kept and the rest is computed again
NONE = Recompute(text="none")
FULL = Recompute(text="full", products=1.0, attention=1.0, rest=1.0, kept=0.0)
# Policies that save products and run the cheap rest again; some save every second product too, which makes about a third of the products.
SELECTIVE = Recompute(text="selective", products=0.35, rest=0.9, kept=0.5)
# Modules: what they free is the inputs ("in") and results ("out") of products that the backward pass would read.
_NAMED = {
    "layernorm": Recompute(text="layernorm", rest=0.3, freed=("in qkv", "in q", "in q_down", "in kv_down", "in up", "in shared_up")),
    "moe-act": Recompute(text="moe_act", rest=0.3, freed=("in experts_down", "in shared_down")),
    "mla-up-proj": Recompute(text="mla_up_proj", matrices=("q_up", "kv_up"), freed=("out q_up", "out kv_up")),
    "mlp": Recompute(text="mlp", rest=0.3, matrices=("up", "shared_up"), freed=("out up", "in down", "out shared_up", "in shared_down")),
    "moe": Recompute(
        text="moe",
        rest=0.4,
        matrices=("experts_up", "experts_down", "shared_up"),
        freed=("in experts_up", "out experts_up", "in experts_down", "out shared_up", "in shared_down"),
    ),
    "shared-experts": Recompute(text="shared_experts", matrices=("shared_up",), freed=("out shared_up", "in shared_down")),
    "core-attn": Recompute(text="core_attn", attention=1.0, freed=("in out",)),
    "no-products": Recompute(text="no products", rest=0.9, products=0.05, kept=0.5),
}
_WORDS = {"none": NONE, "no": NONE, "full": FULL, "selective": SELECTIVE, "half": SELECTIVE}


def recompute_of(given: str, model: Model) -> Recompute:
    """What an option's words say is run again: a policy, ``N of L layers``, a share of the products, or names of modules."""
    plain = " ".join(given.strip().lower().replace("_", "-").split())
    if plain in _WORDS:
        return _WORDS[plain]
    if layers := re.fullmatch(r"(\d+) of (\d+)( layers)?", plain):
        some, all_layers = int(layers[1]), int(layers[2])
        if not 0 <= some <= all_layers or all_layers not in (0, model.depth):
            raise UsageError(f"--recompute {given}: the model has {model.depth} layers")
        share = some / all_layers if all_layers else 0.0
        return Recompute(text=given, products=share, attention=share, rest=share, kept=1.0 - share)
    if re.fullmatch(r"\d*\.?\d+%?", plain):
        share = float(plain.rstrip("%")) / (100 if plain.endswith("%") else 1)
        if share > 1:
            raise UsageError(f"--recompute {given}: a share is at most 1")
        return replace(FULL, text=given) if share > 0.99 else of_share(share)
    chosen = [name for name in re.split(r"[+,; ]+", plain.replace("no products", "no-products")) if name]
    for name in chosen:
        word("--recompute", name, {**_NAMED, "none": NONE, "selective": NONE, "full": NONE, "N of L layers": NONE, "0.35": NONE})
    named = [_NAMED[name] for name in chosen]
    present = {f"{place} {matrix.name}" for matrices in model.matrices.values() for matrix in matrices for place in ("in", "out")}
    for module in named:
        if module.freed and not present.intersection(module.freed):
            raise UsageError(f"--recompute {module.text}: {model.name} has no such module")
    return Recompute(
        text=given,
        products=max(module.products for module in named),
        attention=max(module.attention for module in named),
        rest=min(1.0, sum(module.rest for module in named)),
        matrices=sum((module.matrices for module in named), ()),
        freed=sum((module.freed for module in named), ()),
        kept=min(module.kept for module in named),
    )


def recompute_policies(text: str) -> list[str]:
    """The alternatives in an option's words: policies apart by commas, names of modules together as one policy."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    modules = [part for part in parts if _plain(part) in _NAMED]
    policies = [part for part in parts if part not in modules]
    return [*policies, *(["+".join(modules)] if modules else [])]


def _plain(text: str) -> str:
    return "-".join(text.strip().lower().replace("_", "-").split())


def of_share(share: float) -> Recompute:
    """A share of the products again, with nearly all of the rest."""
    return Recompute(text=f"{share:g}", products=share, rest=0.9 if share else 0.0, kept=KEPT_OF_PRODUCTS * (1 - share) if share else 1.0)
