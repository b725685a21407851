"""Serving plans: splits of some chips into replicas, the largest batch of each under an objective, and what a rate of requests needs."""

import re
from collections.abc import Mapping, Sequence
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
from .plans import ranked
from .question import asked_chips, split_list, written
from .serving import KV_BYTES, Engines, Replica, Served, Server
from .words import FORMATS, word

USUAL_PROMPT, USUAL_ANSWER = 1000, 1000
MOST_TENSOR = 16
MOST_BATCH = 4096
ALWAYS_ASSUMED = "no speculation, no shared prefixes, experts split over the tensor ranks"
OBJECTIVES = ("ttft", "tpot")


class ServingPlans(Struct, frozen=True, kw_only=True):
    """The replicas that chips can be split into, the best first, and for the best one a row per batch.

    ``objective`` bounds ``ttft`` (a prefill, without the queue) and ``tpot`` in seconds. ``requests_per_s`` is what all chips answer; with
    ``rate``, requests a second, ``chips_needed`` are those of the best split. ``prefill_share`` is how many of its replicas would
    prefill if prefill and decode were apart, ``prefill_replicas`` how many do where they are (``split``). ``capacity`` is that of a device;
    ``engines`` are the constants of the kind of chip.
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
    requests_per_s: float
    prefill_share: float
    prefill_replicas: int | None
    plans: tuple[Served, ...]
    batches: tuple[Served, ...]
    capacity: float
    engines: Engines
    assumed: tuple[str, ...]

    @property
    def best(self) -> Served:
        return self.plans[0]

    def rank(self, number: int) -> Served:
        return ranked(self.plans, number)

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
    batch: int | str | None = None,
    split: str = "",
    mesh: str | Mapping[str, int] = "",
    format: str | Sequence[str] = "",
    kv: str = "bf16",
    network: str | float | None = None,
    domain: int | None = None,
) -> ServingPlans:
    """The serving plans of a model on chips: every split into replicas, with its largest batch under the objective."""
    served_model = load_model(str(model))
    tokens_in, tokens_out = prompt or USUAL_PROMPT, answer or USUAL_ANSWER
    chips = asked_chips(chip, count, 1, domain, network)
    word("--kv", kv, KV_BYTES)
    server, objective, (least, most) = Server(served_model, chips), asked_objective(slo), asked_batch(batch)
    if split and sorted(split_list(split)) != ["decode", "prefill"]:
        raise UsageError(f"--split {split}: write prefill,decode for replicas that do one of them")
    formats = [word("--format", name, FORMATS) for name in split_list(written(format) or "bf16")]
    plans, tables, refused = [], {}, []
    for tensor, number in product(_tensors(written(mesh), chips, bool(split)), formats):
        replica = Replica(tensor=tensor, batch=least, prompt=tokens_in, answer=tokens_out, format=number, kv=kv, apart=bool(split))
        try:
            rows = _batches(server, replica, most)
        except UsageError as error:
            refused.append(error)
            continue
        within = [served for served in rows if meets(served, objective)]
        best = max(within or rows[:1], key=lambda served: served.tokens_per_s_per_chip)
        plans.append(_largest(server, replica, best, objective, most) if within else best)
        tables[tensor, number.name] = rows
    if not plans:
        raise refused[-1]
    plans.sort(key=lambda served: (not meets(served, objective), -served.tokens_per_s_per_chip))
    top = plans[0]
    decodes = tokens_out * (top.tpot_s - top.parts["others' prefills"]) / top.batch
    prefills, answered = _pools(top, tokens_out, bool(split))
    replicas = None if rate is None else ceil(rate * tokens_out * top.tpot_s / top.batch) + (ceil(rate * top.prefill_s) if split else 0)
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
        requests_per_s=answered,
        prefill_share=top.prefill_s / (top.prefill_s + decodes),
        prefill_replicas=prefills,
        plans=tuple(plans),
        batches=tuple(tables[top.mesh["tp"], top.format]),
        capacity=chips.capacity,
        engines=server.engines,
        assumed=(*(what for what, is_so in taken.items() if is_so), *served_model.notes, ALWAYS_ASSUMED),
    )


def asked_batch(batch: int | str | None) -> tuple[int, int]:
    """The least and most sequences of a replica in words such as ``16`` or ``1..256``."""
    least, _, most = str(batch or f"1..{MOST_BATCH}").partition("..")
    most = most or least
    if not (least.isdecimal() and most.isdecimal() and 0 < int(least) <= int(most)):
        raise UsageError(f"--batch {batch}: sequences of a replica, such as 16 or 1..256")
    return int(least), int(most)


def _pools(top: Served, answer: int, apart: bool) -> tuple[int | None, float]:
    """How many replicas prefill where others decode, and the requests a second of all of them."""
    replicas, decoded = top.mesh["data"], top.batch / (answer * top.tpot_s)
    if not apart:
        return None, replicas * decoded
    rates = {number: min(number / top.prefill_s, (replicas - number) * decoded) for number in range(1, replicas)}
    number = max(rates, key=lambda number: rates[number])
    return number, rates[number]


def _tensors(mesh: str, chips: Chips, apart: bool) -> list[int]:
    """The devices of a replica to try: those given, or powers of two that divide the devices."""
    asked = asked_mesh(mesh).sizes
    if other := [axis for axis, size in asked.items() if axis not in ("tp", "data") and size > 1]:
        raise UsageError(f"--mesh {other[0]}: replicas are split by tp alone, experts over the same ranks")
    given = asked.get("tp") or (chips.devices // asked["data"] if "data" in asked else 0)
    sizes = [given] if given else [2**power for power in range(5) if 2**power <= min(MOST_TENSOR, chips.domain)]
    fitting = [size for size in sizes if chips.devices % size == 0 and size * (2 if apart else 1) <= chips.devices]
    if not fitting:
        what = "two replicas" if apart else "whole replicas"
        raise UsageError(f"--mesh: {chips.devices} devices are not {what} of {sizes[0]}")
    return fitting


def _largest(server: Server, replica: Replica, best: Served, objective: dict[str, float], most: int) -> Served:
    """The largest batch within the objective, between this one and the next power of two."""
    low, high = best.batch, min(2 * best.batch, best.most + 1, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        served = server.serve(replace(replica, batch=middle))
        if meets(served, objective):
            best, low = served, middle
        else:
            high = middle
    return best


def _batches(server: Server, replica: Replica, most: int) -> list[Served]:
    """A replica with its batch, with every power of two that fits and with the most."""
    first = server.serve(replica)
    if replica.batch > first.most:
        raise UsageError(f"--batch {replica.batch}: {first.most} sequences fit a replica of {replica.tensor} devices")
    powers = [2**power for power in range(most.bit_length()) if replica.batch < 2**power <= min(first.most, most)]
    sizes = [*powers, *([most] if powers and powers[-1] < most <= first.most else [])]
    return [first, *(server.serve(replace(replica, batch=size)) for size in sizes)]
