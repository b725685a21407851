"""Broken budgets as text: each condition with a table of the ops that broke it, and why."""

from collections.abc import Iterable

from ..checking import Check, OpPart, amount_text, change_text, found_text, without_repeated_causes
from .tables import PLAIN, Paper, table


def broken_text(checks: Iterable[Check], paper: Paper = PLAIN) -> str:
    """Conditions one after the other: what was found and allowed, the ops, the causes, each cause once."""
    return "\n\n".join(_one(check, paper) for check in without_repeated_causes(checks))


def _one(check: Check, paper: Paper) -> str:
    parts = [found_text(check)]
    if check.holds is False and check.ops:
        compared = any(part.before is not None for part in check.ops)
        headers = ["op", "baseline", "now", "change"] if compared else ["op", "now"]
        rows = [_row(part, check.ops_unit, compared) for part in check.ops]
        parts += [f"  {line}" for line in table(headers, rows, paper).splitlines()]
    return "\n".join([*parts, *(f"  why: {cause}" for cause in check.causes)])


def _row(part: OpPart, unit: str, compared: bool) -> list[str]:
    now = amount_text(part.amount, unit)
    if not compared:
        return [f"{part.label} ({part.count} ops)" if part.count > 1 else part.label, now]
    before = part.before or 0
    return [part.label, amount_text(before, unit) if before else "new", now if part.amount else "gone", change_text(part, unit)]
