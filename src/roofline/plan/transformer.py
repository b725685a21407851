"""Transformers as layers: the weight matrices of each, what they multiply per token, and the parameters and FLOP of the whole.

A matrix is split over tensor ranks by its columns or its rows, over expert ranks by whole experts, or not at all.
"""

from functools import cached_property
from typing import Literal

from msgspec import Struct

Split = Literal["columns", "rows", "experts", "none"]
SCAN_CHUNK = 128  # tokens of a block of a state-space scan (Mamba-2, arXiv:2405.21060, section 6)
FORWARD_AND_BACKWARD = 3  # the work of both over that of the forward pass


class Matrix(Struct, frozen=True):
    """A weight matrix of ``k`` rows and ``n`` columns, of which a token multiplies ``used`` of ``copies`` (experts)."""

    name: str
    k: int
    n: int
    split: Split = "none"
    copies: int = 1
    used: float = 1.0

    @property
    def weights(self) -> int:
        return self.copies * self.k * self.n

    @property
    def flops(self) -> float:
        """FLOP of one token, forward."""
        return 2.0 * self.used * self.k * self.n

    @property
    def is_low(self) -> bool:
        """Whether its product runs in a narrow format where the plan has one: all but the router's."""
        return self.name != "router"


class Latent(Struct, frozen=True, kw_only=True):
    """Multi-head latent attention: ranks of the compressed queries (0: not compressed) and keys, and the widths of a head."""

    queries: int
    keys: int
    nope: int
    rope: int
    values: int


class Attention(Struct, frozen=True):
    """Causal attention; ``window`` is how many keys a token sees, 0 for all before it."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    latent: Latent | None = None

    @property
    def widths(self) -> tuple[int, int]:
        """Elements of a key and of a value of one head."""
        return (self.latent.nope + self.latent.rope, self.latent.values) if self.latent else (self.head_dim, self.head_dim)

    @property
    def kept(self) -> int:
        """Elements of the keys and values of one token, as a cache keeps them."""
        return self.latent.keys + self.latent.rope if self.latent else 2 * self.kv_heads * self.head_dim

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        if self.latent is None:
            projected, joined = (self.heads + 2 * self.kv_heads) * self.head_dim, self.heads * self.head_dim
            return Matrix("qkv", hidden, projected, "columns"), Matrix("out", joined, hidden, "rows")
        latent = self.latent
        queries: tuple[Matrix, ...] = (Matrix("q", hidden, self.heads * (latent.nope + latent.rope), "columns"),)
        if latent.queries:
            queries = (
                Matrix("q_down", hidden, latent.queries),
                Matrix("q_up", latent.queries, self.heads * (latent.nope + latent.rope), "columns"),
            )
        keys = (
            Matrix("kv_down", hidden, latent.keys + latent.rope),
            Matrix("kv_up", latent.keys, self.heads * (latent.nope + latent.values), "columns"),
        )
        return *queries, *keys, Matrix("out", self.heads * latent.values, hidden, "rows")

    def keys_seen(self, length: int, block: int = 0) -> float:
        """Keys that a token sees, averaged over a sequence; ``block`` more with a window, which kernels compute in blocks."""
        keys = min(length, self.window + block) if self.window else length
        return keys - keys * keys / (2.0 * length)

    def flops(self, length: int, block: int = 0) -> float:
        """FLOP of scores and values of one token, forward."""
        return 2.0 * self.keys_seen(length, block) * self.heads * sum(self.widths)


class StateSpace(Struct, frozen=True):
    """A state-space layer (Mamba-2): ``heads`` of ``head_dim`` channels with ``state`` states each, ``groups`` of shared projections."""

    heads: int
    head_dim: int
    state: int
    groups: int

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def states(self) -> int:
        """Elements of the state of one sequence."""
        return self.inner * self.state

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        projected = 2 * self.inner + 2 * self.groups * self.state + self.heads
        return Matrix("in", hidden, projected, "columns"), Matrix("out", self.inner, hidden, "rows")

    def flops(self, length: int, block: int = 0) -> float:
        """FLOP of the chunked scan of one token, forward: within a chunk as products, between chunks through the states."""
        chunk = min(length, SCAN_CHUNK)
        return 2.0 * chunk * (self.groups * self.state + self.inner) + 4.0 * self.inner * self.state


class FeedForward(Struct, frozen=True):
    """A dense feed-forward layer."""

    inner: int
    gated: bool = True

    def matrices(self, hidden: int, prefix: str = "") -> tuple[Matrix, ...]:
        return (
            Matrix(f"{prefix}up", hidden, self.inner * (2 if self.gated else 1), "columns"),
            Matrix(f"{prefix}down", self.inner, hidden, "rows"),
        )


class Experts(Struct, frozen=True, kw_only=True):
    """A mixture of experts: ``chosen`` of ``count`` per token, ``shared`` the width of the feed-forward layer that all tokens pass.

    With ``latent`` experts work on a projection of that width. ``capacity`` is the factor of rows computed over rows routed where each
    expert takes a fixed number of tokens; 1 where none is dropped.
    """

    count: int
    chosen: int
    inner: int
    shared: int = 0
    gated: bool = True
    latent: int = 0
    capacity: float = 1.0

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        width = self.latent or hidden
        used = self.chosen * self.capacity
        matrices = [
            Matrix("router", hidden, self.count),
            Matrix("experts_up", width, self.inner * (2 if self.gated else 1), "experts", self.count, used),
            Matrix("experts_down", self.inner, width, "experts", self.count, used),
        ]
        if self.latent:
            matrices += [Matrix("latent_down", hidden, width), Matrix("latent_up", width, hidden)]
        if self.shared:
            matrices += FeedForward(self.shared, self.gated).matrices(hidden, "shared_")
        return tuple(matrices)


Mixer = Attention | StateSpace


class Layer(Struct, frozen=True):
    """``count`` equal layers: a mixer of tokens, a feed-forward part, or both."""

    count: int
    mixer: Mixer | None = None
    feed: FeedForward | Experts | None = None

    @property
    def blocks(self) -> int:
        """Its residual blocks."""
        return (self.mixer is not None) + (self.feed is not None)

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        return tuple(matrix for part in (self.mixer, self.feed) if part is not None for matrix in part.matrices(hidden))

    def flops(self, hidden: int, length: int) -> float:
        """FLOP of one token through one of them, forward."""
        return sum(matrix.flops for matrix in self.matrices(hidden)) + (self.mixer.flops(length) if self.mixer else 0.0)


class Model(Struct, frozen=True, kw_only=True, dict=True):  # dict: for its cached properties
    """A decoder: its layers, vocabulary, and ``predictors`` of further tokens (MTP), each a last layer and a head. ``notes`` say what
    of its configuration was not understood.
    """

    name: str
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    tied: bool = False
    predictors: int = 0
    notes: tuple[str, ...] = ()

    @cached_property
    def depth(self) -> int:
        return sum(layer.count for layer in self.layers)

    @cached_property
    def has_experts(self) -> bool:
        return any(isinstance(layer.feed, Experts) for layer in self.layers)

    @cached_property
    def layers_and_predictors(self) -> tuple[Layer, ...]:
        last = self.layers[-1]
        return (*self.layers, Layer(self.predictors, last.mixer, last.feed)) if self.predictors else self.layers

    @cached_property
    def matrices(self) -> dict[Layer, tuple[Matrix, ...]]:
        """The weight matrices of each kind of layer."""
        return {layer: layer.matrices(self.hidden) for layer in self.layers_and_predictors}

    @property
    def embedding(self) -> int:
        return self.hidden * self.vocabulary

    @cached_property
    def parameters(self) -> int:
        """Weights of products, of norms (one per block and one at the end) and of the embedding; the predictors apart."""
        inside = sum(
            layer.count * (sum(m.weights for m in layer.matrices(self.hidden)) + layer.blocks * self.hidden) for layer in self.layers
        )
        return inside + self.hidden + self.embedding * (1 if self.tied else 2)

    @cached_property
    def active_parameters(self) -> int:
        """Weights that a token multiplies, those of the head included."""
        used = sum(layer.count * sum(m.flops for m in layer.matrices(self.hidden)) for layer in self.layers)
        return round(used / 2) + self.embedding

    def flops_per_token(self, length: int) -> float:
        """FLOP of a token in training, without recomputation: causal attention, the head, and predictors with their 2h x h projection."""
        forward = sum(layer.count * layer.flops(self.hidden, length) for layer in self.layers_and_predictors)
        forward += 2.0 * self.embedding * (1 + self.predictors) + 4.0 * self.predictors * self.hidden**2
        return FORWARD_AND_BACKWARD * forward
