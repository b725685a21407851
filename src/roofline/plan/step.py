"""The time of one training step: the slowest rank's microbatches, the pipeline's bubble, what exchanges show, host and optimizer.

step = microbatches · stage + bubble + exchanges of gradients + optimizer
"""

from collections import defaultdict
from math import ceil

from msgspec import Struct

from ..prediction.terms import joined
from .exchanges import data_exchange, fsdp_exchange, slice_exchange, stage_exchange
from .layers import Parts, layer_parts
from .memory import Memory, Share, memory_of, shares
from .run import Run
from .times import Times
from .transformer import Experts, Layer, Model

LOGIT_TRAFFIC = 16.0  # bytes of main memory per logit: scores, their softmax in fp32, and gradients
OPTIMIZER_TRAFFIC = 30.0  # bytes per owned parameter: gradient, master copy and two moments read and written
OPTIMIZER_FLOOR_S = 2e-3
HOST_POWER = 4.0  # of host and device times that overlap: nearly the longer of both


class Step(Struct, frozen=True, kw_only=True):
    """Seconds of a step by part, which add up to its time, and the memory of the fullest device."""

    time_s: float
    parts: dict[str, float]
    memory: Memory
    share: Share

    @property
    def exposed(self) -> dict[str, float]:
        """Seconds of exchanges that nothing hides, by kind."""
        return {part.removesuffix(" exchange"): seconds for part, seconds in self.parts.items() if part.endswith(" exchange")}

    @property
    def bubble_s(self) -> float:
        return self.parts.get("bubble", 0.0) + self.parts.get("imbalance", 0.0)


def equal_layers(layer: Layer, model: Model, run: Run, times: Times) -> tuple[Parts, Parts]:
    """The parts of a layer, computed once for all runs that differ in other layers, stages or ranks alone (a search makes thousands)."""
    mesh = run.mesh
    key: tuple[object, ...] = (
        layer,
        model.hidden,
        run.tokens,
        run.length,
        mesh.tensor,
        mesh.context,
        mesh.experts,
        run.recompute,
        run.stack,
        run.format,
    )
    key += (run.pipelined, run.expert_overlap, run.routing)
    if key not in times.layers:
        times.layers[key] = layer_parts(layer, model, run, times)
    forward, backward = times.layers[key]
    return dict(forward), dict(backward)


def head_time(model: Model, run: Run, times: Times) -> float:
    """Seconds of the head on a microbatch, forward and backward: three products in bf16, and the traffic of the logits."""
    columns = model.vocabulary / run.mesh.tensor
    heads = 1 + model.predictors
    return heads * (3 * times.product(run.tokens, model.hidden, columns, low=False) + times.stream(LOGIT_TRAFFIC * run.tokens * columns))


def slowest_stage(model: Model, run: Run, even: float, layer: float, head: float) -> float:
    """Seconds of a microbatch on the slowest stage.

    Embedding and head count as layers where that divides evenly, so the last stage has one less; it waits in part inside the schedule.
    """
    stages = run.mesh.pipeline
    if stages == 1:
        return even
    spare = (model.depth + 2) % (stages * run.mesh.virtual) == 0
    most = ceil((model.depth + 2) / stages) if spare else ceil(model.depth / stages)
    last = (most - 1 if spare else model.depth / stages) * layer + head
    return max(even, most * layer, (most * layer + last) / 2)


def host_time(model: Model, run: Run, times: Times) -> float:
    """Seconds that the host takes to launch a microbatch through the layers of a stage, forward and backward."""
    if times.chips.is_tpu:
        return 0.0
    routed = sum(layer.count for layer in model.layers if isinstance(layer.feed, Experts))
    values = times.values
    whole = routed * values["host.experts_s"] + (model.depth - routed) * values["host.dense_s"]
    return run.host_share * whole / run.mesh.pipeline


def host_wait(device: float, host: float) -> float:
    """Seconds that a stage waits for launches: the host runs ahead of the device where it can."""
    return joined(HOST_POWER, device, host) - device


def optimizer_time(owned: float, times: Times) -> float:
    return times.stream(OPTIMIZER_TRAFFIC * owned) + OPTIMIZER_FLOOR_S


def bubble(stage: float, run: Run) -> float:
    """Seconds that a rank waits while the pipeline fills and drains (1F1B; interleaved, the stages of a rank divide it)."""
    return stage * (run.mesh.pipeline - 1) / run.mesh.virtual


def step_of(model: Model, run: Run, times: Times) -> Step:
    """The step of a run, in parts."""
    mesh, count = run.mesh, run.microbatches
    parts: Parts = defaultdict(float)
    layers = 0.0
    for layer in model.layers_and_predictors:
        forward, backward = equal_layers(layer, model, run, times)
        if mesh.shards_weights:
            forward["fsdp exchange"], backward["fsdp exchange"] = fsdp_exchange(
                layer, model, run, times, sum(forward.values()), sum(backward.values())
            )
        for part in {**forward, **backward}:
            parts[part] += layer.count * (forward.get(part, 0.0) + backward.get(part, 0.0)) / mesh.pipeline * count
        layers += layer.count * (sum(forward.values()) + sum(backward.values()))
    head = head_time(model, run, times)
    even = (layers + head) / mesh.pipeline
    stage = slowest_stage(model, run, even, layers / (model.depth + model.predictors), head)
    wait = host_wait(stage, host_time(model, run, times))
    parts |= {"head": head / mesh.pipeline * count, "imbalance": (stage - even) * count, "host": wait * count}
    stage += wait
    share = shares(model, run, times.chips.is_tpu)
    parts["bubble"] = bubble(stage, run)
    parts["pipeline exchange"] = stage_exchange(model, run, times)
    parts["optimizer"] = optimizer_time(share.owned, times)
    if mesh.shards_weights or times.chips.is_tpu:
        parts["data exchange"] = slice_exchange(share.owned, run, times, stage)
    else:
        parts["data exchange"] = data_exchange(share.dense + share.embedding, share.experts, run, times, stage)
    taken = {part: seconds for part, seconds in parts.items() if seconds}
    return Step(time_s=sum(taken.values()), parts=taken, memory=memory_of(model, run, times, share), share=share)
