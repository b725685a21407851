"""Serving plans as text: the best replica in one sentence, a row per batch with the objective drawn, the other splits; rows for CSV."""

from collections.abc import Sequence
from typing import Any

from ...plan.serving import Served
from ...plan.serving_plans import ServingPlans
from ...units import parse, percent, show
from ..tables import PLAIN, Paper, table

HOUR_S, MILLION = parse("3600 s", "s"), parse("1 MB", "B")
PARTS = ("products", "attention", "exchange", "kernels", "head", "host", "others' prefills")


def serving_text(plans: ServingPlans, paper: Paper = PLAIN, *, price: float | None = None) -> str:
    """The first screen."""
    best = plans.best
    lines = [
        paper.paint(
            f"{plans.model} {best.format} on {plans.chips} x {plans.chip}, prompts {plans.prompt}, answers {plans.answer} tokens", "bold"
        ),
        paper.paragraph(_sentence(plans, price)),
        "",
    ]
    lines.append(table(("batch", "tpot", "80%", "tok/s/chip", *PARTS, "KV"), _rows(plans), paper, left=0))
    if len(plans.plans) > 1:
        splits = [_split(plans, served) for served in plans.plans]
        lines += ["", table(("replicas", "format", "batch", "tpot", "tok/s/chip", "prefill", "fit", ""), splits, paper, left=2)]
    weights = (
        f"Weights {show(best.weights, 'B', 3)} a device; keys and values {show(best.kv / (plans.prompt + plans.answer), 'B', 3)} per token"
    )
    lines += [
        "",
        f"{weights} and device.",
        _apart(plans),
        paper.paragraph(f"Assumed: {'; '.join(plans.assumed)}. The interval held 13 of 16 public rows; queues are not in it.", rest="  "),
    ]
    return "\n".join(lines)


def _sentence(plans: ServingPlans, price: float | None) -> str:
    best = plans.best
    bounds = " and ".join(f"{name} < {show(limit, 's', 3)}" for name, limit in plans.objective.items())
    start = f"Batch {best.batch} on replicas of {best.mesh['tp']}"
    if bounds:
        start += f" meets {bounds}" if plans.meets(best) else f" misses {bounds}"
    interval = f"{show(best.low_s, 's', 3)} to {show(best.high_s, 's', 3)}"
    text = (
        f"{start}: {show(best.tpot_s, 's', 3)} per token ({interval}), first token {show(best.prefill_s, 's', 3)} + queue, "
        f"{best.tokens_per_s_per_chip:,.0f} tokens/s per chip; up to {best.most} sequences fit a replica."
    )
    if plans.rate is not None:
        text += f" {plans.rate:g} requests/s need {plans.chips_needed} chips."
    if price:
        text += f" {price / HOUR_S / best.tokens_per_s_per_chip * MILLION:.3g} per million output tokens at {price:g} a chip and hour."
    return text


def _apart(plans: ServingPlans) -> str:
    """What prefill and decode on replicas of their own are."""
    if plans.prefill_replicas is None:
        return f"With prefill apart (--split prefill,decode), {percent(plans.prefill_share)} of the replicas would prefill."
    decoding = plans.best.mesh["data"] - plans.prefill_replicas
    return f"{plans.prefill_replicas} replicas prefill and {decoding} decode: {plans.requests_per_s:.3g} requests/s."


def _split(plans: ServingPlans, served: Served) -> list[str]:
    speed = [str(served.batch), show(served.tpot_s, "s", 3), f"{served.tokens_per_s_per_chip:,.0f}", show(served.prefill_s, "s", 3)]
    missed = "" if plans.meets(served) else "misses the objective"
    return [f"tp{served.mesh['tp']} x {served.mesh['data']}", served.format, *speed, str(served.most), missed]


def _rows(plans: ServingPlans) -> list[list[str]]:
    """A row per batch; a line where the objective ends."""
    rows: list[list[str]] = []
    ended = False
    for served in plans.batches:
        if not plans.meets(served) and not ended and rows:
            rows.append(["----", *[""] * (4 + len(PARTS))])
            ended = True
        rows.append(_row(served))
    return rows


def _row(served: Served) -> list[str]:
    interval = f"{show(served.low_s, 's', 3).rpartition(' ')[0]} to {show(served.high_s, 's', 3)}"
    figures = [str(served.batch), show(served.tpot_s, "s", 3), interval, f"{served.tokens_per_s_per_chip:,.0f}"]
    return [*figures, *(show(served.parts.get(part, 0.0), "s", 3) for part in PARTS), show(served.kv * served.batch, "B", 3)]


def serving_rows(plans: ServingPlans) -> Sequence[dict[str, Any]]:
    """A row per batch of the best split, then per other split, for CSV and Parquet."""
    rows: list[dict[str, Any]] = []
    for served in (*plans.batches, *plans.plans[1:]):
        row: dict[str, Any] = {**served.mesh, "format": served.format, "batch": served.batch, "tpot_s": served.tpot_s}
        row |= {"low_s": served.low_s, "high_s": served.high_s, "prefill_s": served.prefill_s, "most": served.most}
        row |= {"tokens_per_s_per_chip": served.tokens_per_s_per_chip, "weights": served.weights, "kv": served.kv}
        rows.append(row | {f"{part.replace(' ', '_')}_s": served.parts.get(part, 0.0) for part in PARTS})
    return rows
