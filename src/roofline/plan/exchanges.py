"""Exchanges between devices: their bytes, how long they take on the networks, and how much of that no computation hides.

tensor     2 gathers or scatters of the tokens per block forward, 3 backward; a share shows, less where they run inside the products
context    keys and values of the whole sequence over the context ranks, beside 0.8 of attention
experts    each token to its experts and back: (n-1)/n over the links of the domain, one copy to each other domain over the NICs
fsdp       a layer's weights before forward and before backward, its gradients after; beside the layer's work, a twentieth shows anyway
data       gradients scattered and weights gathered once a step, beside the last microbatches
slices     the gradients of a shard twice over the slow network
pipeline   a microbatch's tokens to the next stage; a tenth shows, and all of it while the pipeline fills
"""

from collections.abc import Mapping

from .run import Run
from .times import Times
from .transformer import Attention, Experts, Layer, Matrix, Model

BF16, FP32 = 2.0, 4.0
BESIDE_ATTENTION = 0.8
ALL_TO_ALL_FLOOR_S = 15e-6
NARROW_DISPATCH = 1.5  # bytes of an element that experts exchange in a narrow format: there in 8 bits, back in 16
LEAST_SHOWN = 0.05  # of FSDP's gathers: the first layer waits for its weights
GATHERED_BACKWARD = 2  # weights again, and the scatter of gradients
LAST_STAGES = 0.6  # of the last microbatches' time that the exchange of gradients can use
HOP_SHOWN = 0.1  # of the exchanges between stages while the pipeline is full


def tensor_exchange(layer: Layer, model: Model, run: Run, times: Times) -> float:
    """Seconds of one gather or scatter for each block of a layer that show."""
    tensor = run.mesh.tensor
    if tensor == 1:
        return 0.0
    blocks = layer.blocks * (0.5 if isinstance(layer.feed, Experts) else 1.0)  # experts take the tokens as they are split
    hidden = times.values["overlap.tensor_inside" if run.hides_tensor_exchange else "overlap.tensor"]
    return times.chips.gather(run.tokens * model.hidden * BF16, 1, tensor) * blocks * (1 - hidden)


def context_exchange(mixer: Attention, run: Run, times: Times, ahead: float, behind: float) -> tuple[float, float]:
    """Seconds that the exchange of keys and values shows, forward and backward, beside so many seconds of attention."""
    mesh = run.mesh
    if mesh.context == 1:
        return 0.0, 0.0
    kept = 2 * mixer.heads * sum(mixer.widths) / 2 if mixer.latent else 2 * mixer.kv_heads * mixer.head_dim
    size = run.tokens * mesh.context * kept / min(mesh.tensor, mixer.kv_heads) * BF16
    once = times.chips.gather(size, mesh.tensor, mesh.context)
    return max(once - BESIDE_ATTENTION * ahead, 0.0), max(2 * once - BESIDE_ATTENTION * behind, 0.0)


def expert_exchange(feed: Experts, model: Model, run: Run, times: Times) -> float:
    """Seconds of dispatch and combine of a layer that show, in one direction of the pass."""
    ranks, chips = run.mesh.experts, times.chips
    if ranks == 1:
        return 0.0
    token = run.tokens / run.mesh.tensor * (feed.latent or model.hidden) * (NARROW_DISPATCH if run.format.is_narrow else BF16)
    near = max(1, min(ranks, chips.domain))
    inside = token * feed.chosen * (near - 1) / near / chips.link
    outside = token * remote_copies(ranks // near, feed.chosen) / chips.between
    hidden = times.values["overlap.experts_beside" if run.expert_overlap else "overlap.experts"]
    return 2 * (max(inside, outside) + ALL_TO_ALL_FLOOR_S) * (1 - hidden) * run.routing


def remote_copies(nodes: int, chosen: int) -> float:
    """Copies of a token to other nodes when it chooses experts evenly among all: each node that holds one gets one copy."""
    if nodes <= 1:
        return 0.0
    return nodes * (1 - (1 - 1 / nodes) ** chosen) * (nodes - 1) / nodes


def rank_weights(matrix: Matrix, run: Run, is_tpu: bool) -> float:
    """Weights of a matrix on a rank before FSDP or the optimizer shard them."""
    if matrix.split == "experts" and not is_tpu:
        return matrix.weights / run.mesh.experts
    return matrix.weights / (1 if matrix.split == "none" else run.mesh.tensor)


def fsdp_exchange(layer: Layer, model: Model, run: Run, times: Times, ahead: float, behind: float) -> tuple[float, float]:
    """Seconds that the gathers of a layer's weights and the scatter of its gradients show beside its own time."""
    mesh = run.mesh
    weights = sum(rank_weights(matrix, run, times.chips.is_tpu) for matrix in model.matrices[layer])
    ranks = mesh.fsdp * mesh.context
    once = times.chips.gather(weights * BF16, mesh.tensor, min(ranks, times.chips.devices // times.chips.slices // mesh.tensor))
    hidden = times.values["overlap.fsdp"]
    twice = GATHERED_BACKWARD * once
    return max(once - hidden * ahead, LEAST_SHOWN * once), max(twice - hidden * behind, LEAST_SHOWN * twice)


def data_exchange(dense: float, experts: float, run: Run, times: Times, stage: float) -> float:
    """Seconds that gradients and weights show between ranks that share the optimizer; experts over the ranks that copy them."""
    mesh = run.mesh
    ranks = mesh.replicas * mesh.context
    size = run.stack.gradient + BF16
    copies = max(1, ranks * mesh.tensor // mesh.experts)
    whole = times.chips.gather(dense * size, mesh.tensor, ranks) + times.chips.gather(experts * size, mesh.experts, copies)
    return _beside_last(whole, run, times, stage)


def slice_exchange(owned: float, run: Run, times: Times, stage: float) -> float:
    """Seconds that the sum of a shard's gradients over copies of an FSDP group shows, on the slow network."""
    copies = max(run.mesh.data, times.chips.slices)
    if copies == 1:
        return 0.0
    whole = 2 * owned * FP32 * (copies - 1) / copies / times.chips.between
    return _beside_last(whole, run, times, stage)


def _beside_last(whole: float, run: Run, times: Times, stage: float) -> float:
    return gradients_shown(whole, stage * min(run.microbatches, run.mesh.pipeline), times.values)


def gradients_shown(whole: float, beside: float, values: Mapping[str, float]) -> float:
    """What an exchange of gradients shows beside the last microbatches."""
    return max(whole * (1 - values["overlap.data"]), whole - LAST_STAGES * beside)


def stage_exchange(model: Model, run: Run, times: Times) -> float:
    """Seconds of the exchanges between pipeline stages that show in a step."""
    mesh = run.mesh
    if mesh.pipeline == 1:
        return 0.0
    stride = mesh.devices // mesh.pipeline
    speed = times.chips.link if stride * mesh.pipeline <= times.chips.domain else times.chips.between
    hop = run.tokens / mesh.tensor * model.hidden * BF16 / speed
    return 2 * hop * mesh.virtual * (run.microbatches * HOP_SHOWN + mesh.pipeline)
