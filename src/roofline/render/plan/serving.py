"""Serving plans as text: the best replica in one sentence, a row per batch with the objective drawn, the other splits; rows for CSV."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...plan.serving import Served
from ...plan.serving_plans import ServingPlans
from ...units import parse, percent, show
from ..tables import PLAIN, Paper, table
from .training import WIDEST

HOUR_S, MILLION = parse("3600 s", "s"), parse("1 MB", "B")
# part of a step -> its formula, and the function of roofline.plan.serving that computes it
FORMULAS = {
    "products": ("rows of the batch through each sharded matrix, as predicted; of experts those that the tokens choose", "Server.product"),
    "attention": ("each sequence's keys and values read once, or its states", "Server.attention"),
    "exchange": ("an all-reduce of the tokens' vectors over the ranks after every block", "Server.all_reduce"),
    "kernels": ("{kernel} a small kernel, 8 a dense layer and 16 one with experts", "Server.pass_parts"),
    "head": ("the product of the batch's last tokens with the vocabulary", "Server.pass_parts"),
    "host": ("scheduling, sampling and detokenization between steps", "HOST_S"),
    "others' prefills": ("batch {batch} x prefill {prefill} / {answer} tokens of an answer", "Server.serve"),
}
PARTS = tuple(FORMULAS)


def serving_text(plans: ServingPlans, paper: Paper = PLAIN, *, price: float | None = None) -> str:
    """The first screen."""
    best = plans.best
    lines = [
        paper.paint(_subject(plans, best), "bold"),
        paper.paragraph(_sentence(plans, price)),
        "",
    ]
    lines.append(table(("batch", "tpot", "80%", "tok/s/chip", *PARTS, "KV"), _rows(plans), paper, left=0))
    if len(plans.plans) > 1:
        splits = [[str(number), *_split(plans, served)] for number, served in enumerate(plans.plans, 1)]
        lines += ["", table(("#", "replicas", "format", "batch", "tpot", "tok/s/chip", "prefill", "fit", ""), splits, paper, left=3)]
    weights = (
        f"Weights {show(best.weights, 'B', 3)} a device; keys and values {show(best.kv / (plans.prompt + plans.answer), 'B', 3)} per token"
    )
    lines += [
        "",
        f"{weights} and device. Every term: --explain 1.",
        _apart(plans),
        paper.paragraph(f"Assumed: {'; '.join(plans.assumed)}. Interval: {plans.engines.evidence}; queues are not in it.", rest="  "),
    ]
    return "\n".join(lines)


def _subject(plans: ServingPlans, served: Served) -> str:
    return f"{plans.model} {served.format} on {plans.chips} x {plans.chip}, prompts {plans.prompt}, answers {plans.answer} tokens"


def serving_explanation(plans: ServingPlans, number: int, paper: Paper = PLAIN, *, price: float | None = None) -> str:
    """Every term of a plan with its formula, and the ledger of its memory."""
    served = plans.rank(number)
    said = {
        "kernel": show(plans.engines.kernel_s, "s", 3),
        "batch": served.batch,
        "prefill": show(served.prefill_s, "s", 4),
        "answer": plans.answer,
    }
    terms = [
        [part, formula.format(**said), where, *(show(parts.get(part, 0.0), "s", 4) for parts in (served.parts, served.prefill_parts))]
        for part, (formula, where) in FORMULAS.items()
    ]
    terms.append(
        ["the sum", "time per output token; a prefill", "Server.serve", show(served.tpot_s, "s", 4), show(served.prefill_s, "s", 4)]
    )
    engines, room = plans.engines, plans.engines.room(plans.capacity, served.weights)
    length = plans.prompt + plans.answer
    ledger = [
        ["weights", "bytes of the format per parameter over the ranks; embedding and head in bf16", show(served.weights, "B", 4)],
        ["reserved", "activations, graphs and libraries", show(engines.reserved, "B", 4)],
        ["capacity", f"of a device, of which engines use {percent(engines.usable)}", show(plans.capacity, "B", 4)],
        ["KV of a sequence", f"keys, values and states of {length} tokens over the ranks", show(served.kv, "B", 4)],
        ["fit", "(usable capacity - weights - reserved) / KV of a sequence", f"{room / served.kv:,.1f}"],
    ]
    tpot, low, high = (show(seconds, "s", 4) for seconds in (served.tpot_s, served.low_s, served.high_s))
    chips = served.mesh["tp"] * plans.chips / plans.devices
    longer = "time per output token" if plans.prefill_replicas is None else "time per output token with the others' prefills"
    figures = [
        ["interval", f"{tpot} x {engines.interval[0]:g} to {engines.interval[1]:g}: {engines.evidence}", f"{low} to {high}"],
        ["tokens/s per chip", f"batch {served.batch} / {longer} / {chips:g} chips", f"{served.tokens_per_s_per_chip:,.1f}"],
    ]
    if served is plans.best:
        share = "prefill / (prefill + time of an answer's tokens / batch)"
        figures.append(["requests/s", "replicas x batch / (tokens of an answer x time per output token)", f"{plans.requests_per_s:.3g}"])
        figures.append(["prefill apart", share, percent(plans.prefill_share)])
    if served is plans.best and plans.chips_needed is not None:
        figures.append(["chips needed", f"whole replicas for {plans.rate:g} requests/s", str(plans.chips_needed)])
    if price:
        figures.append(["million tokens", f"{price:g} / 3,600 s / tokens/s per chip x 1,000,000", f"{_million(served, price):.3g}"])
    wide = replace(paper, width=WIDEST)
    return "\n".join(
        [
            _subject(plans, served),
            paper.paint(f"Plan {number}: {served.mesh['data']} replicas of {served.mesh['tp']}, batch {served.batch}", "bold"),
            "",
            table(("part", "formula", "in roofline.plan.serving", "step", "prefill"), terms, wide, left=3),
            "",
            table(("memory", "formula", "bytes"), ledger, wide, left=2),
            "",
            table(("figure", "formula", "value"), figures, wide, left=2),
            "",
            paper.paragraph(f"Assumed: {'; '.join(plans.assumed)}.", rest="  "),
        ]
    )


def _million(served: Served, price: float) -> float:
    """The price of a million output tokens."""
    return price / HOUR_S / served.tokens_per_s_per_chip * MILLION


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
        text += f" {_million(best, price):.3g} per million output tokens at {price:g} a chip and hour."
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
