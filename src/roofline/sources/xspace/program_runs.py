"""Steps that nobody marked: a run of the program that takes most of the device's time begins a step, which lasts until its next run.

Which program that is, is known only once the devices are read. So every run of any program begins a stretch of its own, by the host's
clock; what was launched in each is counted apart, and stretches are then joined to steps.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from .attribute import Mark
from .steps import NO_MARK, Annotation, Launches, Run, launched_in

MOST_RUNS = 1_000  # of a program that stand for steps
MOST_STRETCHES = 20_000  # runs of all programs that are told apart
_FOREVER = 2**63 - 1
_DEVICE = re.compile(r"\[(\d+)\]")  # the beginning of the name of a run on one of several devices


class Stretches(Struct, frozen=True):
    """The runs of programs, one after the other, as stretches of the host's time, and what was launched in each."""

    spans: tuple[Annotation, ...] = ()
    ids: Sequence[Sequence[int]] = ()

    def steps(self, times: Mapping[str, int]) -> "ProgramSteps":
        """The steps that runs of the longest program make, by the time of each on the devices."""
        started = {span.name for span in self.spans}
        main = max(sorted(started), key=lambda name: times.get(name, 0), default="")
        begins = [place for place, span in enumerate(self.spans) if span.name == main]
        if len(begins) < 2 or not times.get(main):
            return ProgramSteps()
        if len(begins) > MOST_RUNS:
            return ProgramSteps(note=f"no steps marked, and {main} ran {len(begins):,} times: its runs are not shown separately")
        marks, lasts = [NO_MARK] * begins[0], dict[Mark, int]()
        steps = []
        for mark, (begin, end) in enumerate(pairwise((*begins, len(self.spans)))):
            marks += [mark] * (end - begin)
            lasts[mark] = max((place for place in range(begin, end) if self.ids[place]), default=begin)
            first = self.spans[begin]
            steps.append(Annotation(main, mark, first.begin_ps, self.spans[end - 1].end_ps, first.line))
        return ProgramSteps(tuple(steps), tuple(marks), frozenset(lasts.values()), f"no steps marked: each run of {main} begins a step")


class ProgramSteps(Struct, frozen=True):
    """Steps made of stretches: the steps, the mark of each stretch, the last stretch of each step in which something was launched."""

    annotations: tuple[Annotation, ...] = ()
    marks: tuple[Mark, ...] = ()
    lasts: frozenset[int] = frozenset()
    note: str = ""


def stretches(runs: Sequence[Run], launches: Sequence[Launches]) -> Stretches:
    """The stretches that runs make; none where there are none, or too many."""
    begins = _together(runs)
    if not begins or len(begins) > MOST_STRETCHES:
        return Stretches()
    ends = [*(run.begin_ps for run in begins[1:]), _FOREVER]
    spans = tuple(Annotation(run.module, None, run.begin_ps, end, run.line) for run, end in zip(begins, ends, strict=True))
    return Stretches(spans, launched_in(spans, launches))


def _together(runs: Sequence[Run]) -> list[Run]:
    """The runs in order; of one that several devices share, the first to begin."""
    devices: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.begin_ps):
        named = _DEVICE.match(run.event)
        devices.setdefault(named[1] if named else "", []).append(run)
    alike = {tuple(run.module for run in mine) for mine in devices.values()}
    if len(alike) > 1:  # programs of their own: those of one device begin the stretches of all
        return max(devices.values(), key=len)
    return [min(shared, key=lambda run: run.begin_ps) for shared in zip(*devices.values(), strict=True)]
