"""Serving plans: splits of some chips into replicas, the largest batch of each under an objective, and what a rate of requests needs."""

import re
from itertools import product
from math import ceil
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UsageError
from ..units import parse
from .catalogue import load_model
from .chips import Chips
from .mesh import asked_mesh
from .question import asked_chips, split_list
from .serving import KV_BYTES, Replica, Served, Server
from .words import FORMATS, word

USUAL_PROMPT, USUAL_ANSWER = 1000, 1000
MOST_TENSOR = 16
MOST_BATCH = 4096
ALWAYS_ASSUMED = "no speculation, no shared prefixes, experts split over the tensor ranks"
OBJECTIVES = ("ttft", "tpot")


class ServingPlans(Struct, frozen=True, kw_only=True):
    """The replicas that chips can be split into, the best first, and for the best one a row per batch.

    ``objective`` bounds ``ttft`` (a prefill, without the queue) and ``tpot`` in seconds. With ``rate``, requests a second, ``chips_needed``
    are those of the best split, and ``prefill_share`` is how many of its replicas would prefill if prefill and decode were apart.
    """

    schema: Literal["roofline.plan/1"] = "roofline.plan/1"
    task: Literal["serve"] = "serve"
    model: str
    parameters: int
    chip: str
    chips: int
    devices: int
    prompt: int
    answer: int
    objective: dict[str, float]
    rate: float | None
    chips_needed: int | None
    prefill_share: float
    plans: tuple[Served, ...]
    batches: tuple[Served, ...]
    assumed: tuple[str, ...]

    @property
    def best(self) -> Served:
        return self.plans[0]

    def meets(self, served: Served) -> bool:
        return meets(served, self.objective)


def meets(served: Served, objective: dict[str, float]) -> bool:
    """Whether a replica is within the objective."""
    return served.tpot_s <= objective.get("tpot", served.tpot_s) and served.prefill_s <= objective.get("ttft", served.prefill_s)


def asked_objective(text: str) -> dict[str, float]:
    """The bounds in words such as ``ttft<1s tpot<30ms``."""
    bounds = {}
    for part in re.split(r"[\s,]+(?=[a-z])", text.strip()):
        if not part:
            continue
        name, smaller, limit = part.partition("<")
        if name.strip() not in OBJECTIVES or not smaller:
            raise UsageError(f"--slo {part}: write {' or '.join(OBJECTIVES)} < TIME, such as 'ttft<1s tpot<30ms'")
        bounds[name.strip()] = parse(limit.lstrip("="), "s")
    return bounds


def find_serving(
    model: str,
    chip: str,
    count: int | str | None = None,
    *,
    prompt: int | None = None,
    answer: int | None = None,
    slo: str = "",
    rate: float | None = None,
    batch: int | None = None,
    mesh: str = "",
    format: str = "",
    kv: str = "bf16",
    network: str | float | None = None,
    domain: int | None = None,
) -> ServingPlans:
    """The serving plans of a model on chips: every split into replicas, with its largest batch under the objective."""
    served_model = load_model(model)
    tokens_in, tokens_out = prompt or USUAL_PROMPT, answer or USUAL_ANSWER
    chips = asked_chips(chip, count, 1, domain, None if network is None else parse(network, "B/s"))
    if chips.is_tpu:
        raise UsageError(f"{chips.machine.chip_name}: serving is planned for GPUs; its steps were compared with no TPU")
    word("--kv", kv, KV_BYTES)
    server, objective = Server(served_model, chips), asked_objective(slo)
    formats = [word("--format", name, FORMATS) for name in split_list(format or "bf16")]
    splits = list(product(_tensors(mesh, chips), formats))
    plans, tables = [], {}
    for tensor, number in splits:
        replica = Replica(tensor=tensor, batch=batch or 1, prompt=tokens_in, answer=tokens_out, format=number, kv=kv)
        try:
            rows = _batches(server, replica, batch)
        except UsageError:
            if len(splits) == 1:
                raise
            continue
        within = [served for served in rows if meets(served, objective)]
        best = max(within or rows[:1], key=lambda served: served.tokens_per_s_per_chip)
        plans.append(_largest(server, replica, best, objective) if batch is None and within else best)
        tables[tensor, number.name] = rows
    if not plans:
        raise UsageError(
            f"{served_model.name} does not fit {chips.count} x {chips.machine.chip_name}: take more chips or a narrower --format"
        )
    plans.sort(key=lambda served: (not meets(served, objective), -served.tokens_per_s_per_chip))
    top = plans[0]
    decodes = tokens_out * (top.tpot_s - top.parts["others' prefills"]) / top.batch
    replicas = None if rate is None else ceil(rate * tokens_out * top.tpot_s / top.batch)
    taken = {
        f"prompts of {USUAL_PROMPT} tokens": prompt is None,
        f"answers of {USUAL_ANSWER} tokens": answer is None,
        "KV in bf16": kv == "bf16",
    }
    return ServingPlans(
        model=served_model.name,
        parameters=served_model.parameters,
        chip=chips.machine.chip_name,
        chips=chips.count,
        devices=chips.devices,
        prompt=tokens_in,
        answer=tokens_out,
        objective=objective,
        rate=rate,
        chips_needed=None if replicas is None else replicas * top.mesh["tp"],
        prefill_share=top.prefill_s / (top.prefill_s + decodes),
        plans=tuple(plans),
        batches=tuple(tables[top.mesh["tp"], top.format]),
        assumed=(*(what for what, is_so in taken.items() if is_so), *served_model.notes, ALWAYS_ASSUMED),
    )


def _tensors(mesh: str, chips: Chips) -> list[int]:
    """The devices of a replica to try: those given, or powers of two that divide the devices."""
    asked = asked_mesh(mesh).sizes
    sizes = [asked["tp"]] if "tp" in asked else [2**power for power in range(5) if 2**power <= min(MOST_TENSOR, chips.domain)]
    return [size for size in sizes if chips.devices % size == 0]


def _largest(server: Server, replica: Replica, best: Served, objective: dict[str, float]) -> Served:
    """The largest batch within the objective, between this one and the next power of two."""
    low, high = best.batch, min(2 * best.batch, best.most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        served = server.serve(replace(replica, batch=middle))
        if meets(served, objective):
            best, low = served, middle
        else:
            high = middle
    return best


def _batches(server: Server, replica: Replica, batch: int | None) -> list[Served]:
    """A replica with the given batch, or with every power of two that fits."""
    first = server.serve(replica)
    if batch is not None:
        if batch > first.most:
            raise UsageError(f"--batch {batch}: {first.most} sequences fit a replica of {replica.tensor} devices")
        return [first]
    sizes = [2**power for power in range(MOST_BATCH.bit_length()) if 1 < 2**power <= min(first.most, MOST_BATCH)]
    return [first, *(server.serve(replace(replica, batch=size)) for size in sizes)]
