"""The words of rules, which stand beside them in ``rules/KIND/words.toml``: what a finding says of them, by group, framework and platform.

A file has the words of its kind; ``[groups.GROUP]`` has those of a group, which take nothing over from the kind. Tables ``[on.NAME]``, of
the kind or of a group, replace single words on a framework (``jax``, ``pytorch``) or a platform (``gpu``, ``tpu``, ``cpu``). A file is read
when a finding needs it.

Observations are written with the facts of the evidence in braces, followed by how to write each: ``{bytes:B}`` with a prefix, ``{share:%}``
as a percentage, ``{times:3}`` with three significant digits, ``{sorts:,}`` in groups of digits, ``{rows:row}`` as a number of rows. A part
in ``[square brackets]`` is left out if one of its facts is not known.
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

from ..units import number_of, percent, plain, show
from ..workload import Avoidable, Fact

FOLDER, FILE = Path(__file__).parent, "words.toml"


class _Writer(Formatter):
    """Writes facts into an observation."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key))  # unknown, if another version of the rule wrote the evidence

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return "–"
        if format_spec == "B":
            return show(value, "B")
        if format_spec == "%":
            return percent(value)
        if format_spec.isdigit():
            return plain(value, int(format_spec))
        return number_of(value, format_spec) if format_spec.isalpha() else format(value, format_spec)

    def written(self, observation: str, facts: Mapping[str, Fact]) -> str:
        """An observation with its facts, without the parts whose facts are not known."""
        parts = re.split(_OPTIONAL, observation)  # every second one is optional
        known = (part for place, part in enumerate(parts) if place % 2 == 0 or all(facts.get(name) for name in self._facts_of(part)))
        return self.vformat("".join(known), (), facts)

    def _facts_of(self, part: str) -> Iterator[str]:
        return (name for _, name, _, _ in self.parse(part) if name)


_WRITER, _OPTIONAL = _Writer(), r"\[([^\]]*)\]"


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a finding says: ``title`` ends the sentence "start with …", ``change`` is what to do, in one clause, and ``levers`` are the ways
    to do it. ``observation`` is what the program does, a clause that starts with a verb, ``causes`` what it does for some of the causes.
    """

    title: str
    change: str
    observation: str = ""
    causes: Mapping[str, str] = {}
    levers: tuple[str, ...] = ()

    def observed(self, evidence: Avoidable) -> str:
        """The observation, written with the facts of some evidence, or its own where it has no facts to write this one with."""
        observation = self.causes.get(evidence.cause, self.observation)
        if evidence.why and (not observation or (not evidence.facts and "{" in observation)):
            return evidence.why
        return _WRITER.written(observation, evidence.facts)


class Replaced(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words that a framework or a platform replaces."""

    title: str | None = None
    change: str | None = None
    observation: str | None = None
    causes: Mapping[str, str] | None = None
    levers: tuple[str, ...] | None = None


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
    """All words of a kind: how its rules recognise it and what to bear in mind, in Markdown, and the words of its groups."""

    rule: str
    caveat: str
    groups: Mapping[str, Section] = {}


@cache
def rule_kinds() -> tuple[str, ...]:
    """The kinds of findings that rules make, by the names of their folders."""
    return tuple(sorted(path.parent.name.replace("_", "-") for path in FOLDER.glob(f"*/{FILE}")))


@cache
def page(kind: str) -> Page:
    """The words of a kind, with those of its groups."""
    return msgspec.toml.decode((FOLDER / kind.replace("-", "_") / FILE).read_bytes(), type=Page)


def words_of(kind: str, group: str = "", terms: Iterable[str] = ()) -> Words:
    """The words of a kind and group in terms of platforms and frameworks; of a group without words of its own, those of the kind."""
    whole = page(kind)
    return whole.groups.get(group, whole).in_terms(terms)


def observed(evidence: Avoidable, terms: Iterable[str] = ()) -> str:
    """The observation of some evidence, in terms of platforms and frameworks."""
    return words_of(evidence.kind, evidence.group, terms).observed(evidence)
