"""Lint: find figures in a machine file that are impossible or need a reason.

A file that names a chip of the catalogue is compared with that chip; any other with its peers. A file may declare an ``[[exception]]`` to a
check, with its reason; an unnecessary exception is a problem too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ...errors import RooflineError, did_you_mean
from ...machine import Machine
from ..catalogue import card as look_up
from ..catalogue import read_card
from ..chip_specs import Card
from .checks import CHECKS
from .problem import Problem


class LintReport(Struct, frozen=True, kw_only=True):
    """The problems that the linter found, as JSON."""

    schema: str = "roofline.lint/1"
    problems: tuple[Problem, ...]


def lint(target: str | Path | Machine | Card) -> tuple[Problem, ...]:
    """The problems of a machine file, a chip by name, a machine or a card, errors first; a file that cannot be read is one problem.

    >>> lint(Machine.of("AMD Instinct MI300X", {"hbm": "2479.55 GiB/s"}))[0].message
    "2.662 TB/s is half of the catalogue's 5.3 TB/s for mi300x"
    """
    try:
        card = _card(target)
    except RooflineError as error:
        message = str(error).removeprefix(f"{target}: ")  # the place says which file
        return (Problem(check="file", resource="", where=os.path.basename(str(target)), message=message),)
    found = [problem for check in CHECKS.values() for problem in check(card)]
    return tuple(sorted(_without_exempted(card, found, tuple(CHECKS)), key=lambda problem: problem.severity != "error"))


def _card(target: str | Path | Machine | Card) -> Card:
    if isinstance(target, Card):
        return target
    if isinstance(target, Machine):
        return Card(machine=target, where=target.name)
    return look_up(target) if isinstance(target, str) else read_card(target)


def _without_exempted(card: Card, found: list[Problem], checks: tuple[str, ...]) -> Iterator[Problem]:
    """The problems without an exception, and the exceptions without a problem."""
    exempted = {(exemption.check, exemption.resource) for exemption in card.exemptions}
    met = {(problem.check, problem.resource) for problem in found}
    yield from (problem for problem in found if (problem.check, problem.resource) not in exempted)
    for check, resource in sorted(exempted - met):
        where = f"{card.where}: exception"
        if check not in checks:
            hint = did_you_mean(check, checks) or f"; known: {', '.join(checks)}"
            yield Problem(check="exception", resource=resource, where=where, message=f"no check named {check!r}{hint}")
        else:
            message = f"the exception to {check!r} on {resource or 'the machine'} is not needed; remove it"
            yield Problem(check="exception", resource=resource, where=where, message=message)
