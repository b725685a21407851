"""The catalogue of findings: what each kind says, in a TOML file. That of a kind that rules make stands beside them
(``rules/KIND/words.toml``), that of any other kind is here (``KIND.toml``).

A file has the words of its kind; ``[groups.GROUP]`` has those of a group, which take nothing over from the kind. Tables ``[on.NAME]``, of
the kind or of a group, replace single words on a platform (``gpu``, ``tpu``, ``cpu``) or a framework (``jax``, ``pytorch``), or for how
PyTorch runs (``compiled``, ``replayed``, ``host``); the later of these has precedence. ``[cases]`` are the levers for ops of one category,
or what helps in one more case. A file is read when a finding needs it.

Sentences and observations are written with the facts of the evidence in braces, followed by how to write each: ``{bytes:B}`` with a prefix,
``{spent:3s}`` in seconds, with three digits and a prefix, ``{share:%}`` as a percentage, ``{times:3}`` with three significant digits,
``{times:~2}`` with two, rounded, ``{sorts:,}`` in groups of digits, ``{rows:row}`` as a number of rows, ``{count:is|are}`` as a word for
one or several, and ``{gaps:if}`` not at all. A part in ``[square brackets]`` is left out if one of its facts is not known.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ...units import approximate, number_of, percent, plain, rounded, show
from ...workload import Avoidable

FOLDER, FILE, NOTES = Path(__file__).parent.parent, "words.toml", "notes"
NEEDS = Path(__file__).with_name("needs.toml")  # what levers need of a program
UNITS = ("s", "B", "B/s", "FLOP", "FLOP/B")


class FactWriter(Formatter):
    """Writes facts into sentences."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key))  # unknown, if another version of the rule wrote the evidence

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return "–"
        if format_spec in UNITS:
            return show(value, format_spec)
        if "|" in format_spec:
            singular, several = format_spec.split("|")
            return singular if value == 1 else several
        if format_spec == "if":
            return ""
        if format_spec == "%":
            return percent(value)
        if format_spec.startswith("~"):
            return approximate(value, int(format_spec[1:]))
        if format_spec.isdigit():
            return plain(value, int(format_spec))
        if format_spec[:1].isdigit():
            return show(rounded(value, int(format_spec[0])), format_spec[1:])
        return number_of(value, format_spec) if format_spec.isalpha() else format(value, format_spec)

    def written(self, sentence: str, facts: Mapping[str, Any]) -> str:
        """A sentence with its facts, without the parts whose facts are not known."""
        parts = re.split(_OPTIONAL, sentence)  # every second one is optional
        known = (part for place, part in enumerate(parts) if place % 2 == 0 or all(map(_is_known, map(facts.get, self._facts_of(part)))))
        return self.vformat("".join(known), (), facts)

    def _facts_of(self, part: str) -> Iterator[str]:
        return (name for _, name, _, _ in self.parse(part) if name)


def _is_known(fact: Any) -> bool:
    return fact is not None and fact is not False and fact != ""


_WRITER, _OPTIONAL = FactWriter(), r"\[([^\]]*)\]"
OF_PROGRAM = "{program} {observed}[, {factor:3} times the needed work]: {spent:clock} in {ops}."
CLOSING = "{change}: {then}[, below the minimum of the program as written{below:if}].[ It may save less: {uncertain}.]"


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a finding says: ``title`` ends the sentence "start with …", ``change`` is what to do, in one clause, and ``levers`` are the ways
    to do it, or those of one of its ``cases``. ``observation`` is a clause that starts with a verb, ``causes`` those for some of the
    causes, ``together`` the one for several ops; ``sentence`` has the observation in it, and ``closing`` the change. ``whatif`` is
    the change of `roofline whatif` that makes it, ``needs`` the name of what the levers need of a program (``needs.toml``).
    """

    title: str = ""
    change: str = ""
    observation: str = ""
    together: str = ""
    sentence: str = ""
    closing: str = ""
    whatif: str | None = None
    needs: str = ""
    causes: Mapping[str, str] = {}
    levers: tuple[str, ...] = ()
    cases: Mapping[str, tuple[str, ...]] = {}

    def observed(self, evidence: Avoidable) -> str:
        """The observation, written with the facts of some evidence, or its own where it has no facts to write this one with."""
        observation = self.causes.get(evidence.cause, self.observation)
        if evidence.why and (not observation or (not evidence.facts and "{" in observation)):
            return evidence.why
        return _WRITER.written(observation, evidence.facts)

    def levers_for(self, cases: Iterable[str], facts: Mapping[str, Any]) -> tuple[str, ...]:
        """The levers for some cases, in order; an empty case stands for the ``levers`` themselves, which also do if no case has any."""
        levers, cases = list[str](), tuple(cases)
        for case in cases:
            levers += [_WRITER.vformat(lever, (), facts) for lever in self.cases.get(case, ())] if case else self.levers
        return tuple(levers) or (self.levers if cases else ())


class Replaced(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words that a framework or a platform replaces; its cases are all that there are."""

    title: str | None = None
    change: str | None = None
    observation: str | None = None
    causes: Mapping[str, str] | None = None
    whatif: str | None = None
    needs: str | None = None
    levers: tuple[str, ...] | None = None
    cases: Mapping[str, tuple[str, ...]] | None = None


class Section(Words, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words of a kind or a group, with those that replace them ``on`` a framework or platform."""

    on: Mapping[str, Replaced] = {}

    def in_terms(self, terms: Iterable[str]) -> Words:
        """The words on platforms and frameworks, of which later ones have precedence."""
        words = Words(**{name: getattr(self, name) for name in Words.__struct_fields__})
        for term in terms:
            if term in self.on:
                words = replace(words, **{name: text for name, text in asdict(self.on[term]).items() if text is not None})
        return words


class Page(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All words of a kind: what it means, how it is recognised, what it saves and what to bear in mind, in Markdown, an ``example`` of its
    message, what ``measured`` programs gained, and the words of its groups. ``chapter`` is where `docs/findings.md` has it.
    """

    rule: str = ""
    caveat: str = ""
    saving: str = ""
    means: str = ""
    chapter: str = "Work that is not needed"
    example: str = ""
    measured: tuple[str, ...] = ()
    groups: Mapping[str, Section] = {}


@cache
def rule_kinds() -> tuple[str, ...]:
    """The kinds of findings that rules make, by the names of their folders."""
    return tuple(sorted(path.parent.name.replace("_", "-") for path in FOLDER.glob(f"*/{FILE}")))


@cache
def kinds() -> tuple[str, ...]:
    """All kinds of findings."""
    others = {path.stem for path in Path(__file__).parent.glob("*.toml")} - {NOTES, NEEDS.stem}
    return tuple(sorted((*rule_kinds(), *others)))


@cache
def notes() -> Mapping[str, str]:
    """The sentences that findings of several kinds may have after their observation, by name."""
    return msgspec.toml.decode((Path(__file__).parent / f"{NOTES}.toml").read_bytes(), type=dict[str, str])


@cache
def page(kind: str) -> Page:
    """The words of a kind, with those of its groups."""
    path = FOLDER / kind.replace("-", "_") / FILE if kind in rule_kinds() else Path(__file__).parent / f"{kind}.toml"
    return msgspec.toml.decode(path.read_bytes(), type=Page)


def words_of(kind: str, group: str = "", terms: Iterable[str] = ()) -> Words:
    """The words of a kind and group in terms of platforms and frameworks; of a group without words of its own, those of the kind.

    Their sentence and their `roofline whatif` change are those of the kind, unless the group has its own.
    """
    whole = page(kind)
    words = whole.groups.get(group, whole).in_terms(terms)
    if whole.whatif and words.whatif is None:
        words = replace(words, whatif=whole.whatif)
    return words if words.sentence or not whole.sentence else replace(words, sentence=whole.sentence, closing=whole.closing)


def observed(evidence: Avoidable, terms: Iterable[str] = ()) -> str:
    """The observation of some evidence, in terms of platforms and frameworks."""
    return words_of(evidence.kind, evidence.group, terms).observed(evidence)
