"""Limits: named lower ceilings for whole families of chips, from ``limits.toml``."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from ..machine import Limit, Machine
from ..resource import Resource
from .machine_file import Cited, Fraction
from .toml_files import Texts, read_toml

LIMITS = Path(__file__).with_name("limits.toml")


class FamilyLimit(Cited, frozen=True, kw_only=True):
    """A limit as written, and the machines it applies to: those that match each of its non-empty lists."""

    name: str
    resources: tuple[Resource, ...]
    fraction: Fraction
    vendor: Texts = ()
    kind: Texts = ()
    arch: Texts = ()

    def holds(self, machine: Machine) -> bool:
        words = machine.arch.split()
        return (
            (not self.vendor or machine.vendor in self.vendor)
            and (not self.kind or machine.kind in self.kind)
            and (not self.arch or any(word in words for word in self.arch))
        )

    @property
    def limits(self) -> Iterator[Limit]:
        """The limit of each resource."""
        for resource in self.resources:
            yield Limit(name=self.name, resource=resource, fraction=self.fraction, citation=self.citation, note=self.note)


class FamilyLimits(Struct, frozen=True):
    """The whole file."""

    limit: tuple[FamilyLimit, ...]


@cache
def rules() -> tuple[FamilyLimit, ...]:
    """Every limit in ``limits.toml``."""
    return read_toml(LIMITS, FamilyLimits).limit


def limits_for(machine: Machine) -> tuple[Limit, ...]:
    """The limits that apply to a machine, for resources with a rate; the first of each name."""
    found: dict[tuple[str, Resource], Limit] = {}
    for rule in rules():
        for limit in rule.limits if rule.holds(machine) else ():
            if machine.ceiling(limit.resource):
                found.setdefault((limit.name, limit.resource), limit)
    return tuple(found.values())
