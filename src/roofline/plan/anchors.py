"""Anchors: a measured step of the same model, chips and software, whose error corrects every plan.

    plan' = plan · measured / predicted of the anchor

What the software and the chip do differently from the calibration is common to all plans and cancels; the error of the mesh remains.
"""

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UnitError, UsageError
from ..units import parse, percent, show
from .mesh import asked_mesh, complete
from .question import Question, microbatch_of, sequences
from .run import Run
from .step import step_of
from .times import Times, training_calibration
from .words import FORMATS, recompute_of, word

FIELDS = ("mbs", "batch", "format", "recompute")


class Anchor(Struct, frozen=True):
    """A run with its measured and its predicted seconds."""

    run: Run
    measured_s: float
    predicted_s: float

    @property
    def factor(self) -> float:
        return self.measured_s / self.predicted_s

    def __str__(self) -> str:
        times = f"{show(self.measured_s, 's', 3)} measured, {show(self.predicted_s, 's', 3)} predicted"
        return f"{self.run.mesh}, microbatch {self.run.microbatch:g}: {times}; every plan takes {percent(self.factor)} of its prediction"


def asked_anchor(question: Question, text: str) -> Anchor:
    """The anchor in words such as ``pp=8 tp=4 data=rest mbs=1: 20.1 s``; what is not said is as the question has it."""
    words, colon, time = text.rpartition(":")
    if not colon:
        raise UsageError(f"--anchor {text}: write the run and its time, such as 'pp=8 tp=4 data=rest mbs=1: 20.1 s'")
    given, axes = {}, []
    for part in words.replace(",", " ").split():
        name, _, value = part.partition("=")
        if name in FIELDS:
            given[name] = value
        else:
            axes.append(part)
    try:
        seconds = parse(time.strip(), "s")
    except UnitError as error:
        raise UsageError(f"--anchor {text}: {error}") from None
    if not seconds > 0:
        raise UsageError(f"--anchor {text}: the time of a step is positive")
    asked = asked_mesh(" ".join(axes))
    if not asked.rest and "data" not in asked.sizes and "fsdp" not in asked.sizes:
        asked = replace(asked, rest="data")
    run = Run(
        mesh=complete(asked, question.chips.devices),
        batch=sequences(given["batch"], question.length) if "batch" in given else question.batch,
        microbatch=microbatch_of(given["mbs"]) if "mbs" in given else question.microbatches[0],
        length=question.length,
        format=word("--anchor format", given["format"], FORMATS) if "format" in given else question.formats[0],
        recompute=recompute_of(given["recompute"], question.model.depth) if "recompute" in given else question.policies[0],
        stack=question.stack,
    )
    run = replace(run, **question.settings) if question.settings else run
    times = Times(question.chips, run.format, run.stack.former_attention, training_calibration().values)
    return Anchor(run, seconds, step_of(question.model, run, times).time_s)
