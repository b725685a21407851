"""Anchors: a measured step of the same model, chips and software, whose error corrects every plan.

    plan' = plan · measured / predicted of the anchor

What the software and the chip do differently from the calibration is common to all plans and cancels; the error of the mesh remains.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UnitError, UsageError
from ..units import parse, parse_count, percent, show
from .chips import Chips, chips_of
from .mesh import asked_mesh, complete
from .question import Question, microbatch_of, sequences
from .run import Run
from .step import step_of
from .times import Times, training_calibration
from .words import FORMATS, recompute_of, word

FIELDS = ("mbs", "batch", "seq", "chips", "format", "recompute")


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
    """The anchor in words such as ``pp=8 tp=4 data=rest mbs=1: 20.1 s``; what is not said is as the question has it.

    The time may be a published rate instead, in tokens per second and chip: ``fsdp=64 chips=64 batch=256: 1155 tokens/s``.
    """
    words, colon, time = text.rpartition(":")
    if not colon:
        raise UsageError(f"--anchor {text}: write the run and its time, such as 'pp=8 tp=4 data=rest mbs=1: 20.1 s'")
    given, axes = {}, []
    for part in re.sub(r"\s*=\s*", "=", words).replace(",", " ").split():
        name, _, value = part.partition("=")
        if name in FIELDS:
            given[name] = value
        else:
            axes.append(part)
    length = _whole("seq", given["seq"]) if "seq" in given else question.length
    chips = _chips(question, _whole("chips", given["chips"].removeprefix("x"))) if "chips" in given else question.chips
    batch = sequences(given["batch"], length) if "batch" in given else question.batch
    seconds = _seconds(text, time.strip(), batch * length / chips.count)
    asked = asked_mesh(" ".join(axes)) if axes else question.mesh
    if not asked.rest and "data" not in asked.sizes and "fsdp" not in asked.sizes:
        asked = replace(asked, rest="data")
    run = Run(
        mesh=complete(asked, chips.devices),
        batch=batch,
        microbatch=microbatch_of(given["mbs"]) if "mbs" in given else question.microbatches[0],
        length=length,
        format=word("--anchor format", given["format"], FORMATS) if "format" in given else question.formats[0],
        recompute=recompute_of(given["recompute"], question.model) if "recompute" in given else question.policies[0],
        stack=question.stack,
    )
    run = replace(run, **question.settings) if question.settings else run
    times = Times(chips, run.format, run.stack.former_attention, training_calibration().values)
    return Anchor(run, seconds, step_of(question.model, run, times).time_s)


def _whole(field: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"--anchor {field}={text}: a positive whole number")
    return int(text)


def _chips(question: Question, count: int) -> Chips:
    """Another number of the question's chips."""
    chips = question.chips
    return chips_of(chips.machine.chip_name, count) if chips.is_tpu else replace(chips, count=count)


def _seconds(text: str, time: str, tokens: float) -> float:
    """The seconds of a step, or of so many tokens a chip at a rate in tokens per second."""
    rate = re.fullmatch(r"([\d.,]+k?)\s*tokens/s(/chip| per chip)?", time)
    try:
        seconds = tokens / parse_count(rate[1].replace(",", "")) if rate else parse(time, "s")
    except UnitError as error:
        raise UsageError(f"--anchor {text}: {error}") from None
    if not seconds > 0:
        raise UsageError(f"--anchor {text}: the time of a step is positive")
    return seconds
