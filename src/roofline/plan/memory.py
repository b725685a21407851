"""Memory of the fullest device, in parts, with what is certain as the low end and what frameworks add as the high end.

weights       2 bytes per parameter held; with FSDP the own share and two gathered layers (on TPUs one, and no copy of the share)
gradients     as the stack keeps them; with FSDP the own share in 4 bytes
optimizer     12 bytes per owned parameter: a master copy and two moments in fp32
activations   inputs of products and outputs kept for activations, of the microbatches in flight; recomputation keeps layer inputs
logits        the head's results and their gradient; on TPUs in blocks of the vocabulary, at most an eighth of the memory
other         libraries, exchange buffers, graphs
"""

from msgspec import Struct

from ..units import parse
from .exchanges import BF16, rank_weights
from .layers import sharded
from .run import Run
from .times import Times
from .transformer import Layer, Model

OPTIMIZER_BYTES = 12.0
LOGIT_BYTES = 6.0
GATHERED_LAYERS = {False: 2, True: 1}  # on GPUs, whose next layer is fetched ahead, and on TPUs
OFFLOADED_LAYERS = 2  # whose activations are on the device at once
OTHER = {False: parse("3 GB", "B"), True: parse("0.5 GB", "B")}  # on GPUs and on TPUs
FRAGMENTED = 1.1  # activations and logits with the allocator's rounding and temporaries, the high end
KEPT_OUTPUTS = ("up", "experts_up", "shared_up", "qkv", "kv_up", "q_up")  # products whose results a later gradient needs
MOST_LOGITS = 1 / 8  # of a TPU's memory: MaxText's num_vocab_tiling
TIGHT = 1.15  # of the capacity: plans above it need offload


class Memory(Struct, frozen=True, kw_only=True):
    """Bytes of the fullest device by part; ``low`` and ``high`` bound the total."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    other: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.other

    @property
    def low(self) -> float:
        return self.total - self.other / 2 - 0.1 * self.activations

    @property
    def high(self) -> float:
        return self.total + (FRAGMENTED - 1) * (self.activations + self.logits) + self.other


class Share(Struct, frozen=True, kw_only=True):
    """Parameters of the fullest device: of common matrices, of experts, of embedding and head, and those whose optimizer it owns."""

    dense: float
    experts: float
    embedding: float
    owned: float

    @property
    def parameters(self) -> float:
        return self.dense + self.experts + self.embedding


def shares(model: Model, run: Run, is_tpu: bool) -> Share:
    """The parameters of a device of the first pipeline stage."""
    mesh, dense, experts = run.mesh, 0.0, 0.0
    for layer in model.layers_and_predictors:
        for matrix in model.matrices[layer]:
            if matrix.split == "experts" and not is_tpu:
                experts += layer.count * rank_weights(matrix, run, is_tpu)
            else:
                dense += layer.count * rank_weights(matrix, run, is_tpu)
    dense, experts = dense / mesh.pipeline, experts / mesh.pipeline
    embedding = model.embedding / mesh.tensor * (1 if mesh.pipeline > 1 or model.tied else 2)
    ranks = mesh.replicas * mesh.context
    if mesh.shards_weights or is_tpu:
        shards = max(1, mesh.fsdp * mesh.context)
        owned = (dense + embedding + experts * mesh.experts / mesh.tensor) / shards
    else:
        owned = (dense + embedding) / ranks + experts / max(1, ranks * mesh.tensor // mesh.experts)
    return Share(dense=dense, experts=experts, embedding=embedding, owned=owned)


def kept_bytes(layer: Layer, model: Model, run: Run) -> float:
    """Bytes of activations of one token that a layer keeps on a device for its backward pass."""
    tensor, freed = run.mesh.tensor, run.recompute.freed
    element = min(BF16, max(1.0, run.format.bytes))
    kept = BF16 * layer.blocks * model.hidden / tensor
    for matrix in model.matrices[layer]:
        rows, k, n, _ = sharded(matrix, run, 1.0, run.mesh.experts)
        if not freed or f"in {matrix.name}" not in freed:
            kept += rows * k * element if matrix.split == "experts" else matrix.k / tensor * element
        if matrix.name in KEPT_OUTPUTS and (not freed or f"out {matrix.name}" not in freed):
            kept += (rows * n if matrix.split == "experts" else matrix.n / tensor) * BF16
    return kept


def activation_bytes(model: Model, run: Run) -> float:
    """Bytes of activations of all microbatches in flight on the first stage."""
    mesh, again = run.mesh, run.recompute
    kept = {layer: kept_bytes(layer, model, run) for layer in model.layers}
    whole = sum(layer.count * size for layer, size in kept.items())
    inputs = BF16 * model.hidden / mesh.tensor * model.depth
    per_token = whole * again.kept + (inputs if again.kept < 1 else 0.0)
    flying = float(min(run.microbatches, mesh.pipeline))
    if mesh.virtual > 1:
        flying += (mesh.pipeline - 1) / mesh.virtual
    part = min(1.0, OFFLOADED_LAYERS * mesh.pipeline / model.depth) if run.offload else 1.0
    once = max(kept.values()) * run.tokens if again.is_full else 0.0  # the layer that runs again
    return run.tokens * per_token / mesh.pipeline * flying * part + once


def memory_of(model: Model, run: Run, times: Times, share: Share) -> Memory:
    mesh, is_tpu = run.mesh, times.chips.is_tpu
    if mesh.shards_weights or is_tpu:
        largest = max(_gathered(layer, model, run, is_tpu) for layer in model.layers)
        weights = share.owned * (0.0 if is_tpu else BF16) + GATHERED_LAYERS[is_tpu] * largest * BF16
        gradients = share.owned * run.stack.gradient
    else:
        weights, gradients = share.parameters * BF16, share.parameters * run.stack.gradient
    head = model.vocabulary / mesh.tensor * LOGIT_BYTES * (1.0 if mesh.pipeline == 1 else 0.5)
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=share.owned * OPTIMIZER_BYTES,
        activations=activation_bytes(model, run),
        logits=min(run.tokens * head, times.chips.capacity * MOST_LOGITS) if is_tpu else run.tokens * head,
        other=OTHER[is_tpu],
    )


def _gathered(layer: Layer, model: Model, run: Run, is_tpu: bool) -> float:
    return sum(rank_weights(matrix, run, is_tpu) for matrix in model.matrices[layer])
