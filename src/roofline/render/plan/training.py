"""Plans as text: the best in one sentence, the ranked rows, every term of one plan, two plans side by side, and rows for CSV."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...plan.plans import Plan, Plans
from ...units import percent, show
from ..tables import PLAIN, Cell, Paper, side_by_side, table
from ..time_bar import WIDEST as SCREEN

TOP = 8
MOST_PARTS = 6
LEAST_PART = 0.01
WIDEST = 200  # of a table whose formulas are not shortened
HEADERS = ("#", "mesh", "mbs", "format", "again", "step", "tok/s/chip", "MFU", "memory", "exposed", "bubble", "why slower")
UNFAMILIAR = " *"
TOLD_ONCE = ("mbs", "format", "again")  # by the sentence on the best plan, where all rows have the same


def plans_text(plans: Plans, paper: Paper = PLAIN, *, top: int = TOP, tokens: float | None = None, price: float | None = None) -> str:
    """The first screen."""
    best, prose = plans.best, paper.no_wider(SCREEN)
    lines = [paper.paint(subject(plans), "bold"), prose.paragraph(best_sentence(plans, tokens, price)), ""]
    rows = [_row(plans, number, plan) for number, plan in enumerate(plans.plans[:top], 1)]
    kept = [place for place, name in enumerate(HEADERS) if name not in TOLD_ONCE or len({row[place] for row in rows}) > 1]
    lines.append(side_by_side([HEADERS[place] for place in kept], [[row[place] for place in kept] for row in rows], paper, left=2))
    hidden = len(plans.plans) - top
    dropped = f"; {plans.too_large:,} do not fit" if plans.too_large else ""
    lines.append(f"{plans.tried:,} plans{dropped}" + (f"; {hidden:,} more with --top" if hidden > 0 else ""))
    if any(plan.unfamiliar for plan in plans.plans[:top]):
        lines.append(f"{UNFAMILIAR.strip()} no published step has a mesh of this kind")
    lines.append("")
    lines.append(prose.paragraph(f"Step of plan 1: {parts_sentence(best)}. Every term: --explain 1.", rest="  "))
    if plans.anchor:
        lines.append(prose.paragraph(f"Anchor: {plans.anchor}.", rest="  "))
    if best.assumed:
        lines.append(prose.paragraph(f"Assumed: {'; '.join(best.assumed)}. Change with the options, --set NAME=VALUE.", rest="  "))
    lines.append(prose.paragraph(f"Interval: {plans.evidence}.", rest="  "))
    return "\n".join(lines)


def compiled_text(plans: Plans, paper: Paper = PLAIN) -> str:
    """Plans beside their compiled programs, and what explains a difference that both intervals leave out."""
    rows, notes = [], []
    for number, plan in enumerate(plans.plans, 1):
        program = plan.compiled
        if program is None:
            continue
        planned = [show(plan.step_s, "s", 3), f"{show(plan.low_s, 's', 3)} to {show(plan.high_s, 's', 3)}"]
        played = [show(program.step_s, "s", 3), f"{show(program.low_s, 's', 3)} to {show(program.high_s, 's', 3)}"]
        rows.append([str(number), plan.name, *planned, *played])
        if program.low_s > plan.high_s or program.high_s < plan.low_s:
            notes.append(paper.paragraph(f"{number}: {difference(plan)}", rest="  "))
    return "\n".join(["", "", table(("#", "mesh", "planned", "80%", "compiled", "interval"), rows, paper, left=2), *notes]) if rows else ""


def difference(plan: Plan) -> str:
    """What explains that a compiled program takes another time than its plan: the largest term of each."""
    assert plan.compiled
    part, seconds = max(plan.parts.items(), key=lambda item: item[1])
    engine, busy = max(plan.compiled.terms.items(), key=lambda item: item[1], default=("core", plan.compiled.step_s))
    largest = f"{engine} ({show(busy, 's', 3)}), the plan's {part} ({show(seconds, 's', 3)})"
    return f"the intervals do not meet. The program's largest term is {largest}: its work or its exchanges are not those of the plan"


def subject(plans: Plans) -> str:
    """What is planned."""
    active = f", {_billions(plans.active_parameters)} active" if plans.active_parameters < 0.7 * plans.parameters else ""
    devices = f" ({plans.devices} devices)" if plans.devices != plans.chips else ""
    slices = f" in {plans.slices} slices" if plans.slices > 1 else ""
    return (
        f"{plans.model} ({_billions(plans.parameters)} parameters{active}, {show(plans.flops_per_token, 'FLOP', 3)} per token) "
        f"on {plans.chips} x {plans.chip}{devices}{slices}, batch {plans.batch} x {plans.seq}"
    )


def _billions(number: float) -> str:
    return show(number, "FLOP", 4).removesuffix("FLOP").strip()


def best_sentence(plans: Plans, tokens: float | None = None, price: float | None = None) -> str:
    """The best plan, its step with the interval, and what it takes of the memory."""
    best = plans.best
    room = f"{show(best.memory['total'], 'B', 3)} of {show(plans.capacity, 'B', 3)} ({_fits(plans, best)})"
    interval = f"{show(best.low_s, 's', 3)} to {show(best.high_s, 's', 3)}"
    text = (
        f"Best plan: {best.name}, microbatch {best.microbatch:g}, {best.format}, recomputation {best.recompute}: "
        f"{show(best.step_s, 's', 3)} per step ({interval}), {best.tokens_per_s_per_chip:,.0f} tokens/s per chip, "
        f"MFU {percent(best.mfu)} of the {best.format} peak, {room}."
    )
    if best.unfamiliar:
        text += " No published step has a mesh of this kind."
    return f"{text} {run_sentence(plans, best, tokens, price)}" if tokens else text


def run_sentence(plans: Plans, plan: Plan, tokens: float, price: float | None) -> str:
    """The days, chip-hours and cost of a whole run."""
    days = plans.days(plan, tokens)
    text = f"{show(tokens, 'FLOP', 3).removesuffix('FLOP').strip()} tokens: {days:,.3g} days, {days * 24 * plans.chips:,.0f} chip-hours"
    return text + (f", {plans.cost(plan, tokens, price):,.0f} at {price:g} a chip and hour." if price else ".")


def _fits(plans: Plans, plan: Plan) -> str:
    if plan.fits != "needs offload":
        return "fits" if plan.fits == "yes" else "tight"
    return f"does not fit without offload of {show(plan.memory['total'] - plans.capacity, 'B', 3)} of activations or optimizer"


def _row(plans: Plans, number: int, plan: Plan) -> list[str | Cell]:
    equal = " =" if number > 1 and plans.equals_best(plan) else ""
    notes = [reason(plans.best, plan) if number > 1 else "", plan.fits if plan.fits != "yes" else ""]
    style = "yellow" if plan.fits != "yes" else ""
    return [
        str(number),
        plan.name + (UNFAMILIAR if plan.unfamiliar else ""),
        f"{plan.microbatch:g}",
        plan.format,
        plan.recompute,
        show(plan.step_s, "s", 3) + equal,
        f"{plan.tokens_per_s_per_chip:,.0f}",
        percent(plan.mfu),
        Cell(show(plan.memory["total"], "B", 3), style),
        _exposed(plan),
        percent(plan.bubble_s / plan.step_s),
        ", ".join(filter(None, notes)),
    ]


def reason(best: Plan, plan: Plan) -> str:
    """Why a plan is slower than the best: the part that takes most time more."""
    longer = {part: seconds - best.parts.get(part, 0.0) for part, seconds in plan.parts.items()}
    part, seconds = max(longer.items(), key=lambda item: item[1])
    return f"{part.removesuffix(' exchange')} +{show(seconds, 's', 2)}" if seconds > 0 else ""


def _exposed(plan: Plan) -> str:
    """The share of the step that exchanges take, and which takes most of it."""
    if not plan.exposed:
        return "0%"
    kind, seconds = max(plan.exposed.items(), key=lambda item: item[1])
    whole, largest = percent(plan.exposed_s / plan.step_s), percent(seconds / plan.step_s)
    return f"{kind} {whole}" if whole == largest else f"{whole}, {kind} {largest}"


def parts_sentence(plan: Plan) -> str:
    """The largest parts of a step, in shares."""
    largest = sorted(plan.parts.items(), key=lambda item: -item[1])
    shown = [f"{part} {percent(seconds / plan.step_s)}" for part, seconds in largest if seconds > LEAST_PART * plan.step_s][:MOST_PARTS]
    return ", ".join(shown)


# part of a step -> its formula, and the function of roofline.plan that computes it
FORMULAS = {
    "products": ("2·m·k·n FLOP of each sharded matrix, as predicted, over what training sustains; backward twice", "layers.product_times"),
    "quantization": ("4 bytes per element of a narrow format's operands, half of it forward, 0.8 backward", "layers.layer_parts"),
    "attention": ("2·keys·heads·(d_qk + d_v) FLOP per token in bf16; backward 2.5 times", "layers.attention_times"),
    "rest": ("bytes of norms, residuals, rotation, activations, times what the stack fuses; backward 1.7 times", "layers.rest_bytes"),
    "recomputation": ("shares of the forward parts that run again", "layers.recomputed"),
    "launches": ("gaps between the kernels of a layer", "layers.layer_parts"),
    "head": ("three products with the vocabulary in bf16 and 16 bytes per logit", "step.head_time"),
    "imbalance": ("the slowest stage less the mean", "step.slowest_stage"),
    "host": ("(device⁴ + host⁴)^¼ less the device: launches that CUDA graphs leave", "step.host_wait"),
    "bubble": ("stage · (pp - 1) / vp", "step.bubble"),
    "optimizer": ("30 bytes per owned parameter", "step.optimizer_time"),
    "tensor exchange": ("2 gathers or scatters of the tokens per block forward, 3 backward; what shows", "exchanges.tensor_exchange"),
    "context exchange": ("keys and values of the sequence, less 0.8 of attention", "exchanges.context_exchange"),
    "expert exchange": ("dispatch and combine, inside a domain and between; what shows", "exchanges.expert_exchange"),
    "fsdp exchange": ("weights gathered twice, gradients scattered, less 0.8 of the layer, at least 5%", "exchanges.fsdp_exchange"),
    "data exchange": ("gradients and weights once a step, less what the last microbatches hide", "exchanges.data_exchange"),
    "pipeline exchange": ("tokens to the next stage: a tenth, and all while the pipeline fills", "exchanges.stage_exchange"),
}


def explanation(plans: Plans, number: int, paper: Paper = PLAIN, *, tokens: float | None = None, price: float | None = None) -> str:
    """Every term of a plan with its formula, and the ledger of its memory."""
    plan = plans.rank(number)
    heading = f"Plan {number}: {plan.name}, microbatch {plan.microbatch:g}, {plan.format}, recomputation {plan.recompute}"
    terms = [
        [part, *FORMULAS[part], show(seconds, "s", 4), percent(seconds / plan.step_s)]
        for part, seconds in sorted(plan.parts.items(), key=lambda item: -item[1])
    ]
    terms.append(["step", "the sum", "step.step_of", show(plan.step_s, "s", 4), "100%"])
    ledger = [[part, MEMORY[part], show(amount, "B", 3)] for part, amount in plan.memory.items()]
    ledger.append(["capacity", _fits(plans, plan), show(plans.capacity, "B", 3)])
    ledger[-1][1] = f"{_fits(plans, plan)}; of the chip, less --reserve"
    wide = replace(paper, width=WIDEST)
    return "\n".join(
        [
            subject(plans),
            paper.paint(heading, "bold"),
            "",
            table(("part", "formula", "in roofline.plan", "time", "share"), terms, wide, left=3),
            "",
            table(("memory", "formula", "bytes"), ledger, wide, left=2),
            "",
            table(("figure", "formula", "value"), _figures(plans, plan, tokens, price), wide, left=2),
            "",
            paper.paragraph(f"Constants: {', '.join(f'{name} {value:.3g}' for name, value in plans.constants.items())}.", rest="  "),
            *([paper.paragraph(f"Anchor: {plans.anchor}.", rest="  ")] if plans.anchor else []),
            *([paper.paragraph(f"Assumed: {'; '.join(plan.assumed)}.", rest="  ")] if plan.assumed else []),
        ]
    )


def _figures(plans: Plans, plan: Plan, tokens: float | None, price: float | None) -> list[list[str]]:
    """The other figures of the first screen, with their formulas."""
    step, per_step = show(plan.step_s, "s", 4), f"{plans.batch} x {plans.seq}"
    flops = show(plans.flops_per_token, "FLOP", 4)
    attention = "2·keys·heads·(d_qk + d_v)), keys half the sequence, or the window"
    spread = f"{step} x {plan.low_s / plan.step_s:.3g} to {plan.high_s / plan.step_s:.3g}: {plans.evidence}"
    rows = [
        ["parameters", "k·n of every matrix and expert, norms, embedding, and the head where it is another", _billions(plans.parameters)],
        ["active", "k·n of the matrices that a token multiplies, and of the head", _billions(plans.active_parameters)],
        ["FLOP per token", f"3·(2 per active parameter + {attention}; predictors a layer and a head each", flops],
        ["interval", spread, f"{show(plan.low_s, 's', 3)} to {show(plan.high_s, 's', 3)}"],
        ["tokens/s per chip", f"{per_step} / {step} / {plans.chips} chips", f"{plan.tokens_per_s_per_chip:,.1f}"],
        ["MFU", f"{flops} x {per_step} / {step} / {plans.devices} devices / {plan.format} peak", percent(plan.mfu)],
        ["exposed", "exchanges above / step", percent(plan.exposed_s / plan.step_s)],
        ["bubble", "(bubble + imbalance) / step", percent(plan.bubble_s / plan.step_s)],
    ]
    if tokens:
        days = plans.days(plan, tokens)
        rows.append(["days", f"tokens / ({per_step}) x {step} / 86,400 s", f"{days:,.3g}"])
        rows.append(["chip-hours", f"days x 24 x {plans.chips} chips", f"{days * 24 * plans.chips:,.0f}"])
        if price:
            rows.append(["cost", f"chip-hours x {price:g}", f"{plans.cost(plan, tokens, price):,.0f}"])
    return rows


MEMORY = {
    "weights": "2 bytes per parameter held; with FSDP the own share and gathered layers",
    "gradients": "as the stack keeps them, per parameter held or, with FSDP, owned",
    "optimizer": "12 bytes per owned parameter",
    "activations": "what layers keep for the backward pass, of the microbatches in flight",
    "logits": "6 bytes per logit of a microbatch",
    "other": "libraries, exchange buffers, graphs",
    "total": "the sum",
    "low": "less half of other and a tenth of the activations",
    "high": "with fragmentation: a tenth of activations and logits, and as much again as other",
}


def comparison(plans: Plans, number: int, other: int, paper: Paper = PLAIN) -> str:
    """Two plans side by side: their parts, and which parts make the difference."""
    first, second = plans.rank(number), plans.rank(other)
    names = sorted({*first.parts, *second.parts}, key=lambda part: -abs(first.parts.get(part, 0.0) - second.parts.get(part, 0.0)))
    rows = []
    for part in names:
        here, there = first.parts.get(part, 0.0), second.parts.get(part, 0.0)
        rows.append([part, show(here, "s", 3), show(there, "s", 3), _difference(there - here, "s")])
    rows.append(["step", show(first.step_s, "s", 3), show(second.step_s, "s", 3), _difference(second.step_s - first.step_s, "s")])
    bytes_here, bytes_there = first.memory["total"], second.memory["total"]
    rows.append(["memory", show(bytes_here, "B", 3), show(bytes_there, "B", 3), _difference(bytes_there - bytes_here, "B")])
    verdict = f"Plan {other} takes {percent(second.step_s / first.step_s)} of the time of plan {number}"
    if abs(second.step_s / first.step_s - 1) < 0.05:
        verdict += ": too close to tell apart"
    titles = [f"{rank}: {plan.name}{_apart(plan, against)}" for rank, plan, against in ((number, first, second), (other, second, first))]
    return "\n".join([subject(plans), "", table(("", *titles, "difference"), rows, paper), "", f"{verdict}."])


def _apart(plan: Plan, other: Plan) -> str:
    """What tells a plan from another one beside its mesh."""
    parts = [
        f"microbatch {plan.microbatch:g}" if plan.microbatch != other.microbatch else "",
        plan.format if plan.format != other.format else "",
        f"recompute {plan.recompute}" if plan.recompute != other.recompute else "",
    ]
    return "".join(f", {part}" for part in parts if part)


def _difference(amount: float, dimension: str) -> str:
    return f"{'-' if amount < 0 else '+'}{show(abs(amount), dimension, 3)}"


def plan_rows(plans: Plans) -> Sequence[dict[str, Any]]:
    """A row per plan, for CSV and Parquet."""
    rows = []
    for number, plan in enumerate(plans.plans, 1):
        row: dict[str, Any] = {
            "rank": number,
            **plan.mesh,
            "microbatch": plan.microbatch,
            "recompute": plan.recompute,
            "format": plan.format,
        }
        row |= {
            "step_s": plan.step_s,
            "low_s": plan.low_s,
            "high_s": plan.high_s,
            "mfu": plan.mfu,
            "fits": plan.fits,
            "bubble_s": plan.bubble_s,
        }
        row["tokens_per_s_per_chip"] = plan.tokens_per_s_per_chip
        row |= {f"memory_{part}": amount for part, amount in plan.memory.items()}
        row |= {f"{part.replace(' ', '_')}_s": plan.parts.get(part, 0.0) for part in FORMULAS}
        rows.append(row)
    return rows
