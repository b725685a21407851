"""The writer of findings: evidence in the words of its kind, with where its ops are, what they are called, and how long they take."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ...report import Finding, Predicted
from ...rules.words import CLOSING, OF_PROGRAM, FactWriter, Words, notes, words_of
from ...workload import Fact, Op, source_line
from ..op_times import OpTimes
from .clock import Clock
from .evidence import Evidence
from .wall_clock import WallClock

LISTED = 3  # locations in a finding, and names
LOCATED = 10_000  # longest ops of a finding whose locations are considered
LONGEST_NAME = 60  # characters of a kernel's name: templates of C++ have thousands
TOGETHER = "{count:,} ops {together}: {names}."  # about several ops, each of which would have a sentence of its own
_GRAPH = r"## Call CompiledFxGraph (\w+) ##"


class Writer(FactWriter):
    """Writes findings in the terms of a platform and a framework (``terms``), of ops by their times, or by their ``names`` alone."""

    def __init__(
        self,
        terms: Sequence[str] = (),
        clock: Clock | None = None,
        op_times: OpTimes | None = None,
        names: Mapping[int, str] | Sequence[str] = (),
        wall: WallClock | None = None,
    ) -> None:
        self.terms, self._clock, self._op_times, self._names, self._wall = terms, clock, op_times, names, wall

    def words(self, kind: str, group: str = "") -> Words:
        """The words of a kind and group in these terms."""
        return words_of(kind, group, self.terms)

    def finding(self, evidence: Evidence, predicted: Predicted | None = None) -> Finding:
        """The finding, written."""
        words, clock, saved = self.words(evidence.kind, evidence.group), self._clock, evidence.saved
        facts = _Told(evidence, words, self)
        if predicted is not None and not predicted.after and clock is not None:  # one saving is told once
            facts.update(then=clock.then_takes(predicted.time_s), below=predicted.time_s < clock.least_s)
        sentences = [self.written(_sentence(words, evidence), facts)]
        sentences += [self.written(notes()[note.name], {**note.facts, "per": facts.get("per")}) for note in evidence.notes]
        saving_s, per_step, after_s = evidence.headroom_s, None, None
        if saved is not None and clock is not None:
            sentences.append(self.written(words.closing or CLOSING, facts))
            saving_s, after_s = saved.whole_s, max(clock.whole_s - saved.whole_s, 0.0)
            per_step = saved.steps_s / clock.parts if clock.per else None
        wall = self._wall if saving_s is not None else None
        return Finding(
            kind=evidence.kind,
            title=self.written(words.title, facts),
            message=" ".join(sentences),
            where=place_of(self._op_times.ops[evidence.ops[0]]) if self._op_times is not None and evidence.ops else "",
            ops=tuple(evidence.ops),
            saving_s=saving_s,
            saving_per_device_s=wall.per_device(saving_s or 0.0) if wall else None,
            saving_per_step_s=per_step if per_step is not None or wall is None else wall.per_step(saving_s or 0.0, evidence.ops),
            levers=(*evidence.ways, *evidence.missing.before(words.levers_for(evidence.levers, evidence.facts))),
            after_s=after_s,
            predicted=predicted,
        )

    def format_field(self, value: Any, format_spec: str) -> str:
        """As facts are written elsewhere; ``clock`` as seconds of those of the program, ``left`` as its seconds without these."""
        if format_spec in ("clock", "left") and value is not None and self._clock is not None:
            return self._clock.of(value) if format_spec == "clock" else self._clock.without(value)
        return super().format_field(value, format_spec)

    def fact(self, name: str, evidence: Evidence, words: Words) -> Fact | None:
        """What follows from the ops of some evidence, and from its saving."""
        if name in _OF_OPS and self._op_times is not None:
            return _OF_OPS[name](self._op_times, evidence)
        if name in _OF_TIME and self._clock is not None:
            return _OF_TIME[name](self._clock, evidence)
        if name in ("name", "names"):
            shown = [short_name(self._names[id]) for id in evidence.ops[:LISTED]]
            return shown[0] if name == "name" else listed(shown, len(evidence.ops))
        if name == "spent" and self._op_times is not None and self._clock is not None:
            return self._clock.spent(self._op_times, evidence.ops)
        return _OF_WORDS[name](words, evidence) if name in _OF_WORDS else None


class _Told(dict[str, Any]):
    """The facts of some evidence, with those that follow from them when a sentence has them."""

    def __init__(self, evidence: Evidence, words: Words, writer: Writer) -> None:
        super().__init__(evidence.facts)
        self._evidence, self._words, self._writer = evidence, words, writer

    def get(self, name: str, default: Any = None) -> Any:
        if name == "observed" and name not in self:
            self[name] = self._observed()
        if name not in self:
            self[name] = self._writer.fact(name, self._evidence, self._words)
        return self[name]

    def _observed(self) -> str:
        reason, words = self._evidence.avoidable, self._words
        if reason is not None:
            return words.observed(reason)
        return self._writer.written(words.causes.get(self._evidence.cause, words.observation), self)


def _sentence(words: Words, evidence: Evidence) -> str:
    if words.together and len(evidence.ops) > 1:
        return TOGETHER
    return words.sentence or OF_PROGRAM


def _program(op_times: OpTimes, evidence: Evidence) -> str:
    place = at_place(op_times, evidence.ops)
    return f"{place}the program" if place else "The program"


_OF_OPS: Mapping[str, Callable[[OpTimes, Evidence], Fact]] = {
    "program": _program,
    "place": lambda op_times, evidence: at_place(op_times, evidence.ops[: evidence.located]),
    "ops": lambda op_times, evidence: count_and_longest(op_times, evidence.ops),
    "op": lambda op_times, evidence: op_name(op_times.ops[evidence.ops[0]]),
    "subject": lambda op_times, evidence: subject(op_times, evidence.ops, evidence.advised),
}
_OF_TIME: Mapping[str, Callable[[Clock, Evidence], Fact]] = {
    "per": lambda clock, _: clock.per,
    "then": lambda clock, evidence: clock.then(evidence.saved.steps_s) if evidence.saved else "",
    "below": lambda clock, evidence: clock.is_below_minimum(evidence.saved.steps_s) if evidence.saved else False,
}
_OF_WORDS: Mapping[str, Callable[[Words, Evidence], Fact | None]] = {
    "count": lambda _, evidence: len(evidence.ops),
    "others": lambda _, evidence: len(evidence.ops) - 1 or None,
    "change": lambda words, _: words.change,
    "together": lambda words, _: words.together,
    "factor": lambda _, evidence: evidence.avoidable.factor if evidence.avoidable else None,
}


def count_and_longest(op_times: OpTimes, ids: Sequence[int]) -> str:
    """How many ops, and the longest of them by its label."""
    longest = op_name(op_times.ops[max(ids, key=op_times.spent_s.__getitem__)])
    return longest if len(ids) == 1 else f"{len(ids):,} ops, the longest {longest}"


def op_name(op: Op) -> str:
    label, name = op.label.what, op.name
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return f"{label} ({name})" if label and label != op.name else name


def subject(op_times: OpTimes, ids: Sequence[int], advised: Sequence[int] = ()) -> str:
    """The ops as the subject of a sentence, which names one of those that the advice is for, if that is not for all of them."""
    if len(ids) == 1:
        return count_and_longest(op_times, ids)
    longest = max(ids, key=op_times.spent_s.__getitem__)
    if not advised or longest in advised:
        return f"{count_and_longest(op_times, ids)},"
    named = max(sorted(advised), key=op_times.spent_s.__getitem__)
    return f"{len(ids):,} ops, most of the saving in ops like {op_name(op_times.ops[named])},"


def at_place(op_times: OpTimes, ids: Sequence[int]) -> str:
    """Where ops are in the source, as the beginning of a sentence; empty where that is unknown."""
    where = places(op_times, ids)
    locations = op_times.words("location")
    is_line = any(locations) and any(map(locations.__getitem__, ids))
    return f"{'At' if is_line else 'In'} {where}, " if where else ""


def places(op_times: OpTimes, ids: Sequence[int]) -> str:
    """The source locations of ops: scopes with ``*`` for numbers, lines, else programs.

    Empty if less than a third of the time has one.
    """
    scope, location, module = (op_times.words(name) for name in ("scope", "location", "module"))
    placed = ids if all(scope) else [id for id in ids if scope[id] or location[id]]
    if placed and len(placed) < len(ids):
        known_s, whole_s = (sum([op_times.spent_s[id] for id in some]) for some in (placed, ids))
        if 3 * known_s < whole_s:
            return ""
    shown = ", ".join(_first_few(map(scope.__getitem__, placed), _starred, LISTED))
    lines = _first_few(map(location.__getitem__, placed), source_line, LISTED + 1) if any(location) else []
    lines_text = ", ".join(lines[:LISTED]) + (" …" if len(lines) > LISTED else "")
    if shown and lines_text:
        return f"{shown} ({lines_text})"
    return shown or lines_text or ", ".join(_first_few(map(module.__getitem__, ids), _program_name, LISTED))


def place_of(op: Op) -> str:
    """The scope of an op with ``*`` for numbers, and its source line; where neither is known its program, or its own name."""
    return "  ".join(filter(None, [_starred(op.scope), source_line(op.location)])) or _program_name(op.module) or short_name(op.name)


def _starred(scope: str) -> str:
    return re.sub(r"\d+", "*", scope)


def _first_few(words: Iterable[str], format_word: Callable[[str], str], most: int) -> list[str]:
    """The first few distinct words, formatted by ``format_word``; of very many, only the first few thousand are considered."""
    seen, found = {""}, dict[str, None]()
    for word in islice(words, LOCATED):
        if word not in seen:
            seen.add(word)
            found[format_word(word)] = None
            if len(found) == most:
                break
    return list(found)


def _program_name(module: str) -> str:
    """A program's name for people.

    >>> _program_name("jit_step"), _program_name("## Call CompiledFxGraph fkak4ckkddaq2mwlccalurr53dukn3t67gdo6ryncfiwbkthxfjv ##")
    ('step', 'compiled graph fkak4c')
    """
    found = re.fullmatch(_GRAPH, module)
    return f"compiled graph {found[1][:6]}" if found else module.removeprefix("jit_")


def listed(names: Sequence[str], count: int) -> str:
    """The first three names, and how many more of ``count`` there are."""
    if count > LISTED:
        return f"{', '.join(names[:LISTED])} and {count - LISTED:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def short_name(name: str) -> str:
    """A name shortened for findings: names of C++ kernels can be very long."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
