"""Steps of a trace: the host's annotations of steps, and everything launched during each, on any thread.

``torch.profiler`` annotates ``ProfilerStep#N``. Without it (in servers), the outermost annotation that recurs and covers most launches
begins a step, which lasts until the next one, as a program may annotate only its forward pass. Else a step ends with each step of the
optimizer, which PyTorch annotates itself; where two take turns, as those of a generator and a discriminator, with that of the last.
Annotations of the device (``gpu_user_annotation``) cover only some of a step's kernels, so they
are not used.
"""

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ..parts import Instance, numbered
from .host import Host
from .read.arrays import Integers
from .read.columns import ANNOTATION, NONE, OP

LEAST_SHARE = 0.5  # of all launches that annotations must cover to be steps
MOST_UPDATES = 6  # of a step: some train a discriminator five times for each time that they train its generator
LEAST_DIFFERENCE = 0.1  # of the launches or gradients of updates that are parts of one step, rather than a step each
_STEP = re.compile(r"ProfilerStep\*?#?\s*(\d+)?")
_OPTIMIZERS, _OPTIMIZER = "Optimizer.", "Optimizer.step#"
_GRADIENT = "torch::autograd::AccumulateGrad"
_FAMILY = re.compile(r"[^\d\[({#]*")


class Steps(Struct, frozen=True):
    """Steps in order of time, by the host's clock."""

    names: tuple[tuple[str, int | None], ...]
    begins: Integers
    ends: Integers

    @property
    def instances(self) -> tuple[Instance, ...]:
        return numbered(self.names)

    def at(self, instants: Integers) -> Integers:
        """The step of each instant of the host, or `NONE`."""
        if not len(self.begins):
            return np.full(len(instants), NONE)
        place = np.searchsorted(self.begins, instants, side="right") - 1
        return np.where((place >= 0) & (instants <= self.ends[place]), place, NONE)


def steps_of(host: Host, names: Sequence[str], launched: Integers) -> Steps:
    """The steps of a trace; ``launched`` are the times of launches."""
    own = [number for number, name in enumerate(names) if isinstance(name, str) and _STEP.fullmatch(name)]
    marked = np.flatnonzero(np.isin(host.name, own) & np.isin(host.kind, (OP, ANNOTATION)))
    if len(marked):
        return _steps(host, _without_overlaps(host, marked), names)
    steps = _steps(host, _recurring(host, names, launched), names)
    if len(steps.names):
        return Steps(steps.names, steps.begins, np.append(steps.begins[1:] - 1, steps.ends[-1:]))
    return _updates(host, names, launched)


def _updates(host: Host, names: Sequence[str], launched: Integers) -> Steps:
    """Steps from the end of one optimizer step to the end of the next; with several optimizers, of the one that runs least often.

    Optimizers of one class have the same name: there launches and accumulated gradients show whether they take turns.
    """
    numbers = [number for number, name in enumerate(names) if isinstance(name, str) and name.startswith(_OPTIMIZER)]
    by_name = [places for number in numbers if len(places := np.flatnonzero((host.name == number) & (host.kind == ANNOTATION)))]
    if not by_name:
        return _steps(host, np.array([], np.int64), names)
    ends = np.sort(host.end[_without_overlaps(host, min(by_name, key=len))])
    gradients = [number for number, name in enumerate(names) if name == _GRADIENT]
    events = (launched, host.start[np.isin(host.name, gradients)])
    between = [np.diff(np.searchsorted(np.sort(instants), ends)).tolist() for instants in events]
    ends = ends[:: -_period(list(zip(*between, strict=True)))][::-1]
    return Steps(tuple(("step", number) for number in range(1, len(ends))), ends[:-1] + 1, ends[1:])


def _period(counts: Sequence[tuple[int, int]]) -> int:
    """After how many updates their numbers of launches and gradients repeat; 1 unless they do so twice and clearly differ in between.

    >>> _period([(90, 6), (40, 6)] * 2), _period([(40, 6), (40, 6), (90, 14)] * 2), _period([(90, 6), (90, 14)] * 2)
    (2, 3, 2)
    >>> _period([(90, 6), (91, 6)] * 2), _period([(90, 6), (40, 6), (41, 6), (90, 6)])
    (1, 1)
    """
    for period in range(1, min(MOST_UPDATES, len(counts) // 2) + 1):
        if all(first == again for first, again in zip(counts, counts[period:], strict=False)):
            apart = any(max(members) - min(members) > LEAST_DIFFERENCE * max(members) for members in zip(*counts, strict=True))
            return period if apart else 1
    return 1


def _steps(host: Host, places: Integers, names: Sequence[str]) -> Steps:
    order = places[np.argsort(host.start[places], kind="stable")]
    return Steps(tuple(_label(names[host.name[place]]) for place in order), host.start[order], host.end[order])


def _label(name: str) -> tuple[str, int | None]:
    """A step's name without its number, and the number.

    >>> _label("ProfilerStep#12"), _label("execute_context_0(0)_generation_32(32)")
    (('ProfilerStep', 12), ('execute_context_0(0)_generation_32(32)', None))
    """
    match = _STEP.fullmatch(name)
    return ("ProfilerStep", int(match[1]) if match[1] else None) if match else (name, None)


def _without_overlaps(host: Host, places: Integers) -> Integers:
    """The events of the thread that has most of them, without overlaps: a step that two threads annotate is counted once."""
    threads, counts = np.unique(host.thread[places], return_counts=True)
    of_thread = places[host.thread[places] == threads[np.argmax(counts)]]
    of_thread = of_thread[np.argsort(host.start[of_thread], kind="stable")]
    kept: list[int] = []
    for place in of_thread.tolist():
        if not kept or host.start[place] >= host.end[kept[-1]]:
            kept.append(place)
    return np.array(kept, np.int64)


def _recurring(host: Host, names: Sequence[str], launched: Integers) -> Integers:
    """The outermost annotations of the family that covers most launches, if it occurs at least twice and covers enough of them."""
    annotations = np.flatnonzero(host.kind == ANNOTATION)
    families: dict[str, list[int]] = {}
    for place in annotations.tolist():
        is_outermost = all(host.kind[outer] != ANNOTATION for outer in host.around(int(host.parent[place])))
        if is_outermost and not str(names[host.name[place]]).startswith(_OPTIMIZERS):
            families.setdefault(_family(names[host.name[place]]), []).append(place)
    best, covered = np.array([], np.int64), LEAST_SHARE * max(len(launched), 1)
    for members in families.values():
        places = _without_overlaps(host, np.array(members, np.int64))
        if len(places) < 2:
            continue
        steps = _steps(host, places, names)
        count = int((steps.at(launched) != NONE).sum())
        if count > covered:
            best, covered = places, count
    return best


def _family(name: str) -> str:
    """The common part of the names of steps. Compiled graphs, of which a step may call several, keep their whole names.

    >>> _family("step[DECODE bs=32]"), _family("execute_context_1(128)_generation_0(0)"), _family("## Call CompiledFxGraph fzopnr ##")
    ('step', 'execute_context_', '## Call CompiledFxGraph fzopnr ##')
    """
    match = _FAMILY.match(str(name))
    if str(name).startswith("## "):
        return str(name)
    return match[0] if match else ""
