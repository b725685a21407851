"""The words of rules, which stand beside them in ``rules/KIND/words.toml``: what a finding says of them, by group, framework and platform.

A file has the words of its kind; ``[groups.GROUP]`` has those of a group, which take nothing over from the kind. Tables ``[on.NAME]``, of
the kind or of a group, replace single words on a framework (``jax``, ``pytorch``) or a platform (``gpu``, ``tpu``, ``cpu``). A file is read
when a finding needs it.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

FOLDER, FILE = Path(__file__).parent, "words.toml"


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a finding says: ``title`` ends the sentence "start with …", ``change`` is what to do, in one clause, and ``levers`` are the ways
    to do it. ``observation`` is what the program does, a clause that starts with a verb.
    """

    title: str
    change: str
    observation: str = ""
    levers: tuple[str, ...] = ()


class Replaced(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words that a framework or a platform replaces."""

    title: str | None = None
    change: str | None = None
    observation: str | None = None
    levers: tuple[str, ...] | None = None


class Section(Words, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words of a kind or a group, with those that replace them ``on`` a framework or platform."""

    on: Mapping[str, Replaced] = {}

    def in_terms(self, terms: Iterable[str]) -> Words:
        """The words on platforms and frameworks, of which later ones have precedence."""
        words = Words(title=self.title, change=self.change, observation=self.observation, levers=self.levers)
        for term in terms:
            if term in self.on:
                words = replace(words, **{name: text for name, text in asdict(self.on[term]).items() if text is not None})
        return words


class Page(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All words of a kind."""

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
