"""Plans as values: what a run costs, its interval, whether it fits, and the list of them that is shown and written.

The interval is that of models which the calibration had not seen, by kind of model; wider for a chip or a format without published steps.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from ..errors import UsageError
from ..units import parse
from .anchors import Anchor
from .memory import TIGHT
from .question import Question
from .run import Run
from .step import Step
from .times import Band, training_calibration

Ranked = TypeVar("Ranked")
EQUAL = 0.05  # plans this close to the best are not told apart
UNSEEN = 1.15  # by which the interval widens for a chip, and for a format, without published steps (chips left out of the fit: -21 to +13%)
DAY_S = parse("86400 s", "s")
HOUR_S = parse("3600 s", "s")
BY_NAME = ("products", "attention", "experts", "cast", "clock", "rest")  # values of one architecture, chip, stack or format
ANCHORED = "anchored"  # the band of plans that an anchor corrects
Fits = Literal["yes", "tight", "needs offload"]


class Compiled(Struct, frozen=True, kw_only=True):
    """The step of a program that was compiled for a plan's mesh and played, with its interval and the seconds of each engine."""

    step_s: float
    low_s: float
    high_s: float
    terms: dict[str, float]


class Plan(Struct, frozen=True, kw_only=True):
    """One plan: what is run, its seconds with an interval, its memory in bytes, and what was assumed for it.

    ``mfu`` is of the dense peak of the plan's format. ``exposed`` is the seconds of exchanges that nothing hides, by kind; ``parts`` are
    all seconds, which add up to the step. ``unfamiliar`` is whether no published step has a mesh of this kind.
    """

    mesh: dict[str, int]
    microbatch: float
    recompute: str
    format: str
    step_s: float
    low_s: float
    high_s: float
    tokens_per_s_per_chip: float
    mfu: float
    memory: dict[str, float]
    fits: Fits
    exposed: dict[str, float]
    bubble_s: float
    parts: dict[str, float]
    unfamiliar: bool
    assumed: tuple[str, ...]
    compiled: Compiled | None = None

    @property
    def name(self) -> str:
        sizes = [f"{axis}{size}" for axis, size in self.mesh.items() if size > 1]
        return " ".join(sizes) or "one device"

    @property
    def exposed_s(self) -> float:
        return sum(self.exposed.values())


class Plans(Struct, frozen=True, kw_only=True):
    """The plans of a question, best first, with what was asked; ``devices`` are framework devices, of which a chip has one or two.

    ``constants`` are the calibrated values of the chip, stack and formats, by name.
    """

    schema: Literal["roofline.plan/1"] = "roofline.plan/1"
    model: str
    parameters: int
    active_parameters: int
    flops_per_token: float
    chip: str
    chips: int
    devices: int
    slices: int
    batch: int
    seq: int
    stack: str
    capacity: float
    tried: int
    too_large: int
    constants: dict[str, float]
    evidence: str
    anchor: str
    plans: tuple[Plan, ...]

    @staticmethod
    def of(question: Question, plans: list[Plan], anchor: Anchor | None, *, tried: int, too_large: int) -> "Plans":
        model, chips = question.model, question.chips
        calibration = training_calibration()
        band = calibration.band[ANCHORED if anchor else kind_of(question)]
        what = "pairs of published steps of one model, chip and software" if anchor else "published steps"
        return Plans(
            model=model.name,
            parameters=model.parameters,
            active_parameters=model.active_parameters,
            flops_per_token=model.flops_per_token(question.length),
            chip=chips.machine.chip_name,
            chips=chips.count,
            devices=chips.devices,
            slices=chips.slices,
            batch=question.batch,
            seq=question.length,
            stack=question.stack.name,
            capacity=question.usable,
            tried=tried,
            too_large=too_large,
            constants=constants_of(question),
            evidence=f"80% of {band.rows} {what} of {band.models} models left out; mean error {band.error:.1%}",
            anchor=str(anchor) if anchor else "",
            plans=tuple(plans),
        )

    @property
    def best(self) -> Plan:
        return self.plans[0]

    def equals_best(self, plan: Plan) -> bool:
        """Whether a plan cannot be told from the best one."""
        return plan.step_s <= self.best.step_s * (1 + EQUAL)

    def days(self, plan: Plan, tokens: float) -> float:
        """Days of a training run of so many tokens."""
        return tokens / (self.batch * self.seq) * plan.step_s / DAY_S

    def cost(self, plan: Plan, tokens: float, price: float) -> float:
        """The price of a training run at so much a chip and hour."""
        return self.days(plan, tokens) * DAY_S / HOUR_S * self.chips * price

    def rank(self, number: int) -> Plan:
        return ranked(self.plans, number)


def ranked(plans: Sequence[Ranked], number: int) -> Ranked:
    """The plan of a rank, from 1."""
    if not 1 <= number <= len(plans):
        raise UsageError(f"plan {number}: there are plans 1 to {len(plans)}")
    return plans[number - 1]


def kind_of(question: Question) -> str:
    return "experts" if question.model.has_experts else "dense"


def constants_of(question: Question) -> dict[str, float]:
    """The calibrated values of a training load that concern a question's chip, stack and formats."""
    chips, stack, values = question.chips, question.stack, training_calibration().values
    own = {chips.architecture, chips.machine.chip_name, stack.name, "bf16", "tpu" if chips.is_tpu else "gpu"}
    own |= {format.name for format in question.formats} | ({"fa2"} if stack.former_attention else set())
    named = [(name, set(name.split(".")[1:])) for name in values]
    others = {word for name, words in named if name.partition(".")[0] in BY_NAME for word in words} - own
    return {name: values[name] for name, words in named if not words & others}


def interval(question: Question, run: Run, anchored: bool) -> tuple[float, float]:
    """The low and high end of a measured step over its prediction."""
    calibration = training_calibration()
    if anchored:
        return calibration.band[ANCHORED].low, calibration.band[ANCHORED].high
    band: Band = calibration.band[kind_of(question)]
    architecture, chip = question.chips.architecture, question.chips.machine.chip_name
    unseen = (f"clock.{chip}" not in calibration.fitted) + (f"products.{architecture}.{run.format.name}" not in calibration.fitted)
    return band.low / UNSEEN**unseen, band.high * UNSEEN**unseen


def mesh_kind(mesh: dict[str, int], tpu: bool) -> str:
    """The kind of a mesh: the axes that it uses."""
    axes = " ".join(axis for axis in ("tp", "pp", "cp", "ep", "fsdp") if mesh[axis] > 1) or "data"
    return f"{'tpu' if tpu else 'gpu'} {axes}"


def _fewer(run: Run) -> str:
    return f"microbatches of {run.microbatch:g}: a rank has no more sequences of the batch"


def as_plan(question: Question, run: Run, step: Step, anchor: Anchor | None = None) -> Plan:
    """A run and its step as a plan, corrected by an anchor."""
    factor = anchor.factor if anchor else 1.0
    time_s = step.time_s * factor
    chips = question.chips
    low, high = interval(question, run, anchor is not None)
    tokens = run.batch * run.length
    peak = chips.machine.rate(f"matrix/{run.format.compute}") * chips.devices
    mesh = run.mesh.as_words()
    total = step.memory.total
    fits: Fits = "yes" if total <= question.usable else "tight"
    if total > TIGHT * question.usable:
        fits = "needs offload"
    memory = step.memory
    parts = {name: getattr(memory, name) for name in ("weights", "gradients", "optimizer", "activations", "logits", "other")}
    familiar = mesh_kind(mesh, chips.is_tpu) in training_calibration().meshes.get(kind_of(question), ())
    return Plan(
        mesh=mesh,
        microbatch=run.microbatch,
        recompute=run.recompute.text,
        format=run.format.name,
        step_s=time_s,
        low_s=low * time_s,
        high_s=high * time_s,
        tokens_per_s_per_chip=tokens / time_s / chips.count,
        mfu=tokens * question.model.flops_per_token(run.length) / time_s / peak,
        memory={**parts, "total": total, "low": memory.low, "high": memory.high},
        fits=fits,
        exposed={kind: factor * seconds for kind, seconds in step.exposed.items()},
        bubble_s=factor * step.bubble_s,
        parts={part: factor * seconds for part, seconds in step.parts.items()},
        unfamiliar=not familiar,
        assumed=question.assumed if run.microbatch in question.microbatches else (*question.assumed, _fewer(run)),
    )
