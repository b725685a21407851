"""Limits: named lower roofs inside the roof, for whole families of chips, from ``limits.toml``."""

import tomllib
from functools import cache
from pathlib import Path

from msgspec import Struct

from ..machine import Limit, Machine
from ..resource import Resource
from .table import Table

LIMITS = Path(__file__).with_name("limits.toml")


class Rule(Struct, frozen=True, kw_only=True):
    """A limit, and the machines it holds for: those that match each non-empty list."""

    limits: tuple[Limit, ...]
    vendors: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()

    def holds(self, machine: Machine) -> bool:
        words = machine.arch.split()
        return (
            (not self.vendors or machine.vendor in self.vendors)
            and (not self.kinds or machine.kind in self.kinds)
            and (not self.architectures or any(word in words for word in self.architectures))
        )


@cache
def rules() -> tuple[Rule, ...]:
    """Every limit in ``limits.toml``."""
    document = Table(LIMITS.name, "", tomllib.loads(LIMITS.read_text("utf-8")))
    return tuple(_rule(table) for table in document.tables("limit"))


def _rule(table: Table) -> Rule:
    fraction = table.fraction("fraction")
    assert fraction is not None
    name, citation, note = table.text("name"), table.citation(), table.text("note")
    return Rule(
        limits=tuple(
            Limit(name=name, resource=Resource(resource), fraction=fraction, citation=citation, note=note)
            for resource in table.texts("resources")
        ),
        vendors=table.texts("vendor"),
        kinds=table.texts("kind"),
        architectures=table.texts("arch"),
    )


def limits_for(machine: Machine) -> tuple[Limit, ...]:
    """The limits that hold for a machine, on the resources it is rated for; the first of each name."""
    found: dict[tuple[str, Resource], Limit] = {}
    for rule in rules():
        for limit in rule.limits if rule.holds(machine) else ():
            if machine.ceiling(limit.resource):
                found.setdefault((limit.name, limit.resource), limit)
    return tuple(found.values())
