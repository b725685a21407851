"""Advice: what limits an op and what to do next, as small pure rules.

The drafts of `advice_rules` are merged and sorted by the seconds that they are about: those a change could save, or the time of suspect ops
(faster than the roofline allows: a count or a ceiling is wrong). Every kind of finding has its levers in `advice_kinds`. Ops that share a
kind share a finding: a draft's own sentence is used only where it is the only one of its kind.

    >>> from roofline.cost import Cost
    >>> from roofline.machine import Machine
    >>> from roofline.placement import place
    >>> toy = Machine.of("toy", {"matrix/bf16": 100, "hbm": 10})
    >>> found = explain(place(Cost.of({"matrix/bf16": 50, "hbm": 10}), toy, time_s=5.0), "copy")
    >>> found.kind, found.saving_s
    ('memory-far', 4.0)
    >>> found.message
    'copy is memory-bound (hbm) at 20% of its roofline: 5 s, minimum 1 s.'
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from ..cost import sum_of_known
from ..machine import Machine
from ..placement import Placement
from ..report import Finding
from ..workload import Op
from .advice_kinds import KINDS
from .advice_rules import (
    DOUBTS,
    EXTRA,
    LISTED,
    NOTABLE,
    PRIMARY,
    PROGRAM,
    Draft,
    Placed,
    Program,
    levers_on,
    listed,
    near_ridge,
    short_name,
)
from .kernel_findings import WORDS

SEPARATE = 5  # ops of one kind that get a line each; more are merged into one line
SUSPECT = "above-roof"  # the kind that is about the time of its ops
UNRATED, UNKNOWN = "unrated", "unknown"  # kinds that come last, unless they could change the answer (`doubt_order`)


def advise(placed: Iterable[Placed], machine: Machine) -> tuple[Finding, ...]:
    """Every finding about a program, the most seconds first. The order of the ops does not matter."""
    ops = sorted(placed, key=lambda one: one.id)
    program = Program(
        names={one.id: one.op.name for one in ops},
        times={one.id: one.placement.time_s for one in ops},
        unrated={one.id: one.placement.unrated for one in ops if one.placement.unrated},
        unpriced=[one.id for one in ops if not one.op.priced],
        machine=machine,
        count=len(ops),
        time_s=sum(one.placement.time_s or 0.0 for one in ops),
        notes={one.id: one.op.notes for one in ops if not one.op.priced},
    )
    by_id = {one.id: one for one in ops}
    kept = [draft for one in ops for draft in _about(one) if _matters(draft, program.time_s)]
    return in_order([*_merged(kept, by_id.__getitem__), *_about_all(program)], program.times)


def doubts(program: Program, too_fast: Mapping[int, str], placed: Callable[[int], Placed]) -> list[Finding]:
    """The findings about suspect figures of a program: times below the minimum, units without a rate, unknown costs.

    ``too_fast`` has the kind of doubt of each op that is faster than its roofline allows; ``placed`` gives an op by its id.
    """
    found = [Draft(kind, id) for id, kind in too_fast.items()]
    return [*_merged(found, placed), *_about_all(program)]


def doubt(one: Placed) -> str | None:
    """The kind of doubt about an op that is faster than its roofline allows."""
    return next((draft.kind for rule in DOUBTS if (draft := rule(one))), None)


def in_order(
    findings: Iterable[Finding], times: Mapping[int, float | None] | Sequence[float | None], floor_s: Sequence[float] = ()
) -> tuple[Finding, ...]:
    """Findings by seconds: those saved, or the time of suspect ops; missing rates and unknown costs last.

    ``times`` are those of the ops, by id, on the same clock as the savings. Suspect ops without any time come first. Findings without a
    saving come by the minimum times of their ops, ``floor_s``, where these are given; those about more than what binds come before.
    """

    def order(finding: Finding) -> tuple[bool, float, bool, float, str, tuple[int, ...]]:
        is_last = finding.kind in (UNRATED, UNKNOWN)
        if finding.kind == SUSPECT:
            known = [seconds for id in finding.ops if (seconds := times[id]) is not None]
            return is_last, -sum(known) if known else -inf, False, 0.0, finding.kind, finding.ops
        saved = finding.saving_s if finding.saving_per_step_s is None else finding.saving_per_step_s
        least_s = (sum([floor_s[id] for id in finding.ops]) if finding.kind in WORDS else inf) if floor_s else 0.0
        return is_last, -(saved or 0.0), True, -least_s, finding.kind, finding.ops

    return tuple(sorted(findings, key=order))


def explain(placement: Placement, name: str = "it") -> Finding | None:
    """The main finding about a single piece of work, measured or not: its bound and what to do about it."""
    one = Placed(0, Op(name=name, cost=placement.cost, time_s=placement.time_s), placement)
    rules = (near_ridge, *PRIMARY) if placement.time_s is None else PRIMARY
    found = next((draft for rule in rules if (draft := rule(one))), None)
    return replace(_alone(found, one), ops=()) if found else None


def _about(one: Placed) -> list[Draft]:
    """The drafts about one op. Where its cost is not fully known, the minimum is too low, and only a time below even that is reported."""
    found: list[Draft] = []
    for rule in PRIMARY if one.op.priced else DOUBTS:
        if draft := rule(one):
            found.append(draft)
            break
    if not one.op.priced or (found and found[0].kind in ("above-roof", "between-roofs")):
        return found
    for rule in EXTRA:
        if draft := rule(one):
            found.append(draft)
    return found


def _about_all(program: Program) -> list[Finding]:
    """The findings of the rules that look at all ops at once."""
    return [finding for rule in PROGRAM if (finding := rule(program))]


def _matters(draft: Draft, total: float) -> bool:
    """Whether to show a draft: ops at a middling efficiency only where they take a notable share of the time."""
    return not draft.kind.endswith("-middle") or (draft.saving_s or 0.0) >= NOTABLE * total


def _merged(drafts: Iterable[Draft], placed: Callable[[int], Placed]) -> list[Finding]:
    """One finding for each kind that many ops share, largest saving first; a few ops of a kind get a finding each."""
    kinds: dict[str, list[Draft]] = {}
    for draft in drafts:
        kinds.setdefault(draft.kind, []).append(draft)
    merged = []
    for kind, mine in kinds.items():
        if len(mine) <= SEPARATE:
            merged += [_alone(draft, placed(draft.id)) for draft in mine]
            continue
        mine.sort(key=lambda draft: (-(draft.saving_s or 0.0), draft.id))
        saving = sum_of_known(draft.saving_s for draft in mine)
        names = [short_name(placed(draft.id).op.name) for draft in mine[:LISTED]]
        message = f"{len(mine):,} ops {KINDS[kind].phrase}: {listed(names, len(mine))}."
        ops = tuple([draft.id for draft in mine])
        levers = levers_on(kind, placed(mine[0].id).placement.machine)
        merged.append(Finding(kind=kind, message=message, ops=ops, saving_s=saving, levers=levers))
    return merged


def _alone(draft: Draft, one: Placed) -> Finding:
    """The finding about one op."""
    write = draft.write or next(same.write for same in _about(one) if same.kind == draft.kind)
    assert write is not None
    message = f"{short_name(one.op.name)} {write()}"
    levers = levers_on(draft.kind, one.placement.machine)
    return Finding(kind=draft.kind, message=message, ops=(draft.id,), saving_s=draft.saving_s, levers=levers)
