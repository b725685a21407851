"""Steps without annotations: each run of the program that takes most of the device's time begins a step, which lasts until its next run.

Which program that is becomes known only after the devices are read. So every run of any program begins an interval of the host's time;
launches are counted per interval, and intervals are then merged into steps.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from ..parts import Mark
from .steps import NO_MARK, Annotation, Launches, Run, launched_in

MOST_RUNS = 1_000  # of a program that are made steps
MOST_INTERVALS = 20_000  # runs of all programs that are counted separately
LEAST_KERNELS = 3  # with fewer kernels, programs of the same name cannot be distinguished by their number of kernels
_SIMILAR = 0.7  # the least ratio of the numbers of kernels of two programs of the same name that count as the same function
Program = tuple[str, int]  # its name and id
_FOREVER = 2**63 - 1
_DEVICE = re.compile(r"\[(\d+)\]")  # the beginning of the name of a run on one of several devices


class RunIntervals(Struct, frozen=True):
    """Intervals of the host's time, each from one run of a program to the next, and the ids launched in each."""

    spans: tuple[Annotation, ...] = ()
    ids: Sequence[Sequence[int]] = ()

    def steps(self, devices: Sequence["DeviceTimes"]) -> "ProgramSteps":
        """Steps that begin with each run of the program with the most time.

        Programs of the same name with about as many kernels count as the same function, compiled for other shapes. Programs of the same
        name with only one or two kernels, such as products timed one after the other, may be anything: they make no steps.
        """
        programs = [program_run_in(name.name, place, devices) for place, name in enumerate(self.spans)]
        times, kernels = dict[Program, int](), dict[Program, int]()
        for ran in devices:
            for program, (time_ps, count) in ran.programs.items():
                times[program] = times.get(program, 0) + time_ps
                kernels[program] = max(kernels.get(program, 0), count)
        main = max(sorted({one for one in programs if one in times}), key=lambda one: times[one], default=None)
        if main is None:
            return ProgramSteps()
        namesakes = [one for one in times if one[0] == main[0]]
        if len(namesakes) > 1 and kernels[main] < LEAST_KERNELS:
            return ProgramSteps()
        alike = {one for one in namesakes if similar_counts(kernels[main], kernels[one])}
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


def similar_counts(kernels: int, others: int) -> bool:
    """Whether two programs of the same name have about as many kernels, as a function compiled for other shapes has."""
    return _SIMILAR * kernels <= others <= kernels / _SIMILAR


class DeviceTimes(Struct, frozen=True):
    """Times on a device: the time and number of kernels of each program, and the time of each program in each interval."""

    programs: Mapping[Program, tuple[int, int]]
    intervals: Mapping[int, Mapping[Program, int]]


def program_run_in(name: str, place: int, devices: Sequence[DeviceTimes]) -> Program:
    """The program of this name that ran most in an interval; with id 0 if none did."""
    times: dict[Program, int] = {}
    for ran in devices:
        for program, time_ps in ran.intervals.get(place, {}).items():
            if program[0] == name:
                times[program] = times.get(program, 0) + time_ps
    return max(sorted(times), key=lambda one: times[one], default=(name, 0))


class ProgramSteps(Struct, frozen=True):
    """Steps made of intervals: the steps, the mark of each interval, and the last interval of each step in which something was launched."""

    annotations: tuple[Annotation, ...] = ()
    marks: tuple[Mark, ...] = ()
    lasts: frozenset[int] = frozenset()
    note: str = ""


def run_intervals(runs: Sequence[Run], launches: Sequence[Launches]) -> RunIntervals:
    """The intervals between runs; none if there are no runs, or too many."""
    begins = _from_their_calls(_merged_runs(runs))
    if not begins or len(begins) > MOST_INTERVALS:
        return RunIntervals()
    ends = [*(run.begin_ps for run in begins[1:]), _FOREVER]
    spans = tuple(Annotation(run.module, None, run.begin_ps, end, run.line) for run, end in zip(begins, ends, strict=True))
    return RunIntervals(spans, launched_in(spans, launches))


def _from_their_calls(runs: Sequence[Run]) -> list[Run]:
    """The runs, each from the call of its function on, which copies host arrays among the arguments, if nothing else ran since."""
    befores = (None, *(run.begin_ps for run in runs))
    return [
        run if run.called_ps is None or (before is not None and run.called_ps <= before) else replace(run, begin_ps=run.called_ps)
        for before, run in zip(befores, runs, strict=False)
    ]


def _merged_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs in order of start. If all devices run the same programs, a run on several devices is one, which begins with the first."""
    devices: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.begin_ps):
        named = _DEVICE.match(run.event)
        devices.setdefault(named[1] if named else "", []).append(run)
    alike = {tuple(run.module for run in mine) for mine in devices.values()}
    if len(alike) > 1:  # devices run different programs: use the runs of the device with the most
        return max(devices.values(), key=len)
    return [min(shared, key=lambda run: run.begin_ps) for shared in zip(*devices.values(), strict=True)]
