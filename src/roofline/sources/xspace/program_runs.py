"""Steps without annotations: a run of the program that takes most of the device's time begins a step, which lasts until its next run.

Which program that is becomes known only once the devices are read. So every run of any program begins an interval of its own, by the
host's clock; launches are counted per interval, and intervals are then joined to steps.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from ..parts import Mark
from .steps import NO_MARK, Annotation, Launches, Run, launched_in

MOST_RUNS = 1_000  # of a program that stand for steps
MOST_STRETCHES = 20_000  # runs of all programs that are counted separately
TELLING = 3  # kernels of a program, from which on their number distinguishes it from another of its name
_ALIKE = 0.7  # of the kernels of a program that another of its name has at least, if it is the same function
Program = tuple[str, int]  # its name and id
_FOREVER = 2**63 - 1
_DEVICE = re.compile(r"\[(\d+)\]")  # the beginning of the name of a run on one of several devices


class Stretches(Struct, frozen=True):
    """The runs of programs, one after the other, as stretches of the host's time, and what was launched in each."""

    spans: tuple[Annotation, ...] = ()
    ids: Sequence[Sequence[int]] = ()

    def steps(self, devices: Sequence["Ran"]) -> "ProgramSteps":
        """The steps that runs of the longest program make.

        One function compiled for other shapes is the same program, and has about as many kernels; others that only share its name have not.
        Programs of a kernel or two that share a name, such as products timed one after the other, may be anything: they make no steps.
        """
        programs = [program_of(name.name, place, devices) for place, name in enumerate(self.spans)]
        times, kernels = dict[Program, int](), dict[Program, int]()
        for ran in devices:
            for program, (time_ps, count) in ran.programs.items():
                times[program] = times.get(program, 0) + time_ps
                kernels[program] = max(kernels.get(program, 0), count)
        main = max(sorted({one for one in programs if one in times}), key=lambda one: times[one], default=None)
        if main is None:
            return ProgramSteps()
        namesakes = [one for one in times if one[0] == main[0]]
        if len(namesakes) > 1 and kernels[main] < TELLING:
            return ProgramSteps()
        alike = {one for one in namesakes if have_alike(kernels[main], kernels[one])}
        begins = [place for place, one in enumerate(programs) if one in alike]
        if len(begins) < 2:
            return ProgramSteps()
        name = main[0]
        if len(begins) > MOST_RUNS:
            return ProgramSteps(note=f"no steps marked, and {name} ran {len(begins):,} times: its runs are not shown separately")
        marks, lasts = [NO_MARK] * begins[0], dict[Mark, int]()
        steps = []
        for mark, (begin, end) in enumerate(pairwise((*begins, len(self.spans)))):
            marks += [mark] * (end - begin)
            lasts[mark] = max((place for place in range(begin, end) if self.ids[place]), default=begin)
            first = self.spans[begin]
            steps.append(Annotation(name, mark, first.begin_ps, self.spans[end - 1].end_ps, first.line))
        return ProgramSteps(tuple(steps), tuple(marks), frozenset(lasts.values()), f"no steps marked: each run of {name} begins a step")


def have_alike(kernels: int, others: int) -> bool:
    """Whether two programs of one name have about as many kernels, as one function compiled for other shapes has."""
    return _ALIKE * kernels <= others <= kernels / _ALIKE


class Ran(Struct, frozen=True):
    """What ran on a device: of each program its time and number of kernels, and its time in each stretch."""

    programs: Mapping[Program, tuple[int, int]]
    stretches: Mapping[int, Mapping[Program, int]]


def program_of(name: str, place: int, devices: Sequence[Ran]) -> Program:
    """The program of this name that a stretch ran; without an id where none did."""
    times: dict[Program, int] = {}
    for ran in devices:
        for program, time_ps in ran.stretches.get(place, {}).items():
            if program[0] == name:
                times[program] = times.get(program, 0) + time_ps
    return max(sorted(times), key=lambda one: times[one], default=(name, 0))


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
