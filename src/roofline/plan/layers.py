"""One layer on one device: products, attention, the rest, and the exchanges inside it, forward and backward.

products     the project's predictions of each matrix, sharded; backward two products with the sizes permuted
quantize     2 bytes read and 2 written per element that a narrow format's operands are made of
attention    a flash kernel in bf16; a window costs whole blocks
rest         norms, residuals, rotation and activations: reads and writes of the vectors between products, times what a stack fuses
again        what recomputation runs before the backward pass
"""

from collections import defaultdict

from .exchanges import context_exchange, expert_exchange, tensor_exchange
from .run import Run
from .times import Times
from .transformer import Attention, Experts, FeedForward, Layer, Matrix, Model, StateSpace

Parts = dict[str, float]
FORWARD_LAUNCHES = 0.4  # of the gaps between kernels of a layer: its backward pass has more kernels
BACKWARD_REST = 1.7  # reads and writes of the backward pass of the rest over its forward pass
VECTORS = 10  # vectors of the hidden size that a layer's norms and residuals read and write
CAST_FORWARD, CAST_BACKWARD = 0.5, 0.8  # of 4 bytes an element: forward operands once, backward in both orientations
WINDOW_BLOCK = {True: 512, False: 128}  # keys by which kernels widen a window, on TPUs and on GPUs


def sharded(matrix: Matrix, run: Run, tokens: float, experts: int) -> tuple[float, float, float, int]:
    """Rows, ``k``, ``n`` and copies of a matrix's product on one device; unsplit ones take a share of the tokens (sequence parallel)."""
    tensor = run.mesh.tensor
    rows, k, n = tokens * matrix.used, float(matrix.k), float(matrix.n)
    if matrix.split == "columns":
        return rows, k, n / tensor, 1
    if matrix.split == "rows":
        return rows, k / tensor, n, 1
    if matrix.split == "experts":
        return rows / tensor * run.routing, k, n, max(1, matrix.copies // experts)
    return rows / tensor, k, n, 1


def product_times(matrix: Matrix, run: Run, times: Times) -> tuple[float, float, float]:
    """Seconds of a matrix's product forward and backward, and the elements that a narrow format is made of."""
    rows, k, n, groups = sharded(matrix, run, run.tokens, run.mesh.experts)
    if groups > 1 and times.chips.is_tpu:  # experts are split over tensor ranks there
        rows, n = rows * run.mesh.tensor, n / run.mesh.tensor
    low = matrix.is_low
    forward = times.product(rows, k, n, low=low, groups=groups)
    gradient = times.product(rows, n, k, low=low, groups=groups)
    weights = times.product(k * groups, rows / groups, n, low=low and run.format.of_gradients == run.format.compute, groups=groups)
    return forward, gradient + weights, rows * (k + n) if low and run.format.is_narrow else 0.0


def attention_times(mixer: Attention | StateSpace, run: Run, times: Times) -> tuple[float, float]:
    """Seconds of the mixer's own work between its products, forward and backward."""
    tokens, tensor = run.tokens, run.mesh.tensor
    if isinstance(mixer, StateSpace):
        rate = times.chips.machine.rate("matrix/bf16") * times.of_scan
        forward = mixer.flops(run.length) * tokens / tensor / rate
        return forward, 2 * forward
    key, value = mixer.widths
    sequences = tokens / run.length
    heads, kv_heads = mixer.heads / tensor, max(1.0, mixer.kv_heads / tensor)
    whole = times.single.attention(sequences, heads, kv_heads, run.length, key, value)
    block = WINDOW_BLOCK[times.chips.is_tpu]
    seen = mixer.keys_seen(run.length, block) / (run.length / 2) / times.of_attention
    return whole[0] * seen, whole[1] * seen


def rest_bytes(layer: Layer, model: Model, run: Run) -> float:
    """Bytes that norms, residuals, rotation and activations of a layer read and write forward, as if each ran once, unfused."""
    mixer, feed = layer.mixer, layer.feed
    elements = VECTORS * model.hidden * layer.blocks / 2
    if isinstance(mixer, Attention):
        elements += 2 * (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim
    elif isinstance(mixer, StateSpace):
        elements += 12 * mixer.inner
    if isinstance(feed, FeedForward):
        elements += feed.inner * (3 if feed.gated else 2)
    elif isinstance(feed, Experts):
        elements += feed.chosen * feed.inner * (3 if feed.gated else 2) + 3 * feed.shared
    return 2.0 * run.tokens * elements / run.mesh.tensor


def permutation_bytes(feed: Experts, model: Model, run: Run) -> float:
    """Bytes of bringing tokens into the order of their experts, read and written."""
    return 2.0 * 2.0 * run.tokens / run.mesh.tensor * feed.chosen * (feed.latent or model.hidden)


def layer_parts(layer: Layer, model: Model, run: Run, times: Times) -> tuple[Parts, Parts]:
    """Seconds of one layer on one microbatch, forward and backward, by part."""
    forward: Parts = defaultdict(float)
    backward: Parts = defaultdict(float)
    values, mixer, feed = times.values, layer.mixer, layer.feed
    cast, repeated = 0.0, 0.0
    for matrix in model.matrices[layer]:
        ahead, behind, narrow = product_times(matrix, run, times)
        forward["products"] += ahead
        backward["products"] += behind
        cast += 4.0 * narrow
        if matrix.name in run.recompute.matrices:
            repeated += ahead
    if cast:
        forward["quantization"] = times.stream(CAST_FORWARD * cast) * values.get(f"cast.{run.format.name}", 1.0)
        backward["quantization"] = forward["quantization"] * CAST_BACKWARD / CAST_FORWARD
    if mixer:
        forward["attention"], backward["attention"] = attention_times(mixer, run, times)
    rest = times.stream(rest_bytes(layer, model, run)) * values[f"rest.{run.stack.name}"]
    forward["rest"], backward["rest"] = rest, BACKWARD_REST * rest
    launches = values["launch.dense_s"]
    if isinstance(feed, Experts):
        permuted = times.stream(permutation_bytes(feed, model, run)) * values["dispatch"]
        forward["rest"] += permuted
        backward["rest"] += permuted
        launches = values["launch.experts_s"]
        forward["expert exchange"] = backward["expert exchange"] = expert_exchange(feed, model, run, times)
    if not times.chips.is_tpu:
        forward["launches"], backward["launches"] = FORWARD_LAUNCHES * launches, (1 - FORWARD_LAUNCHES) * launches
    gather = tensor_exchange(layer, model, run, times)
    forward["tensor exchange"], backward["tensor exchange"] = 2 * gather, 3 * gather
    if isinstance(mixer, Attention):
        forward["context exchange"], backward["context exchange"] = context_exchange(
            mixer, run, times, forward["attention"], backward["attention"]
        )
    backward["recomputation"] = repeated + recomputed(forward, run)
    return forward, backward


def recomputed(forward: Parts, run: Run) -> float:
    """Seconds of the forward parts that run again."""
    again = run.recompute
    shares = dict.fromkeys(("products", "quantization", "tensor exchange", "expert exchange"), again.products)
    shares |= {"attention": again.attention, "rest": again.rest}
    return sum(share * forward.get(part, 0.0) for part, share in shares.items())
