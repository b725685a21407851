"""Limits: named lower ceilings for whole families of chips, from ``limits.toml``."""

import tomllib
from functools import cache
from pathlib import Path

from msgspec import Struct

from ..machine import Limit, Machine
from ..resource import Resource
from .table import Table

LIMITS = Path(__file__).with_name("limits.toml")


class Rule(Struct, frozen=True):
    """A limit as written, and the machines it applies to: those that match each of its non-empty lists."""

    table: Table

    def holds(self, machine: Machine) -> bool:
        vendors, kinds, architectures = (self.table.texts(key) for key in ("vendor", "kind", "arch"))
        words = machine.arch.split()
        return (
            (not vendors or machine.vendor in vendors)
            and (not kinds or machine.kind in kinds)
            and (not architectures or any(word in words for word in architectures))
        )

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limit of each resource."""
        fraction = self.table.fraction("fraction")
        assert fraction is not None
        name, citation, note = self.table.text("name"), self.table.citation(), self.table.text("note")
        return tuple(
            Limit(name=name, resource=Resource(resource), fraction=fraction, citation=citation, note=note)
            for resource in self.table.texts("resources")
        )


@cache
def rules() -> tuple[Rule, ...]:
    """Every limit in ``limits.toml``."""
    document = Table(LIMITS.name, "", tomllib.loads(LIMITS.read_text("utf-8")))
    return tuple(Rule(table) for table in document.tables("limit"))


def limits_for(machine: Machine) -> tuple[Limit, ...]:
    """The limits that apply to a machine, for resources with a rate; the first of each name."""
    found: dict[tuple[str, Resource], Limit] = {}
    for rule in rules():
        for limit in rule.limits if rule.holds(machine) else ():
            if machine.ceiling(limit.resource):
                found.setdefault((limit.name, limit.resource), limit)
    return tuple(found.values())
