"""Checks of budgets as text: each condition on one line, and broken ones with a table of the ops that broke them, and why."""

from collections.abc import Iterable

from msgspec.structs import replace

from ..checking import MOST_CAUSES, Check, OpPart
from ..report import Number
from ..units import percent, plain, show
from .tables import table

_WORDS = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least", "==": "exactly", "!=": "anything but"}


def broken_text(checks: Iterable[Check]) -> str:
    """Broken conditions as text: the found and the allowed value, the ops, and the causes, each cause once."""
    return "\n\n".join(_one(check) for check in without_repeated_causes(checks))


def _one(check: Check) -> str:
    parts = [found_text(check)]
    if check.holds is False and check.ops:
        compared = any(part.before is not None for part in check.ops)
        headers = ["op", "baseline", "now", "change"] if compared else ["op", "now"]
        rows = [_row(part, check.ops_unit, compared) for part in check.ops]
        parts += [f"  {line}" for line in table(headers, rows).splitlines()]
    return "\n".join([*parts, *(f"  why: {cause}" for cause in check.causes)])


def _row(part: OpPart, unit: str, compared: bool) -> list[str]:
    now = amount_text(part.amount, unit)
    if not compared:
        return [f"{part.label} ({part.count:,} ops)" if part.count > 1 else part.label, now]
    before = part.before or 0
    return [part.label, amount_text(before, unit) if before else "new", now if part.amount else "gone", change_text(part, unit)]


def without_repeated_causes(checks: Iterable[Check]) -> list[Check]:
    """The same checks without causes that an earlier one already gives, for texts that list them one after the other."""
    earlier: set[str] = set()
    found = []
    for one in checks:
        new = tuple(cause for cause in one.causes if cause not in earlier)
        earlier.update(new)
        found.append(replace(one, causes=new or ("as above",)) if one.causes else one)
    return found


def checks_text(checks: Iterable[Check]) -> str:
    """A line for each condition that is broken or cannot be decided; if all hold, one for each of them. Each begins with the verdict.

    >>> checks_text([Check(condition="launches <= 3", holds=True, found=2, allowed=3, operator="<=")])
    'holds: launches <= 3: found 2, allowed at most 3'
    """
    all_of = tuple(checks)
    wrong = sorted((one for one in all_of if not one.holds), key=lambda one: one.holds is None)
    verdicts = {True: "holds: ", False: "broken: ", None: ""}  # the text of a condition that cannot be decided says so itself
    return "\n".join(verdicts[one.holds] + check_text(one) for one in without_repeated_causes(wrong or all_of))


def check_text(one: Check) -> str:
    """A condition on one line: the allowed and the found value, the ops, the causes, and the baseline.

    >>> check_text(Check(condition="launches <= 3", holds=False, found=4, allowed=3, operator="<="))
    'launches <= 3: found 4, allowed at most 3'
    """
    ops = "" if one.holds or not one.ops else "; ops: " + ", ".join(_part_text(part, one) for part in one.ops[:MOST_CAUSES])
    more = f" and {len(one.ops) - MOST_CAUSES:,} more" if ops and len(one.ops) > MOST_CAUSES else ""
    why = "" if one.holds or not one.causes else "; why: " + "; ".join(one.causes)
    return f"{found_text(one)}{ops}{more}{why}"


def found_text(one: Check) -> str:
    """The found and the allowed value, and the baseline."""
    if one.holds is None:
        return f"{one.condition}: not known: {one.why}"
    if not one.operator or (one.unit == "" and one.condition.lower().startswith("no")):
        text = f"{one.condition}: found {plain(one.found or 0)}" if not one.holds else f"{one.condition}: none found"
    else:
        found, allowed = _distinct_values(one)
        text = f"{one.condition}: found {found}, allowed {_WORDS[one.operator]} {allowed}"
    if one.baseline is not None:
        text += f" (baseline {amount_text(one.baseline, one.unit)}{f', {one.baseline_file}' if one.baseline_file else ''})"
    text += f", without unknown parts of {one.unknown:,} ops" if one.unknown else ""
    return f"{text}; {one.why}" if one.why else text


def _distinct_values(one: Check) -> tuple[str, str]:
    """The found and the allowed value; with all digits where rounding would show two equal numbers for a broken condition."""
    short = amount_text(one.found, one.unit), amount_text(one.allowed, one.unit)
    if one.holds is not False or short[0] != short[1] or one.found == one.allowed:
        return short
    unit = one.unit.replace("1", "")
    found, allowed = (f"{amount or 0:,.16g}{f' {unit}' if unit else ''}" for amount in (one.found, one.allowed))
    return found, allowed


def _part_text(part: OpPart, one: Check) -> str:
    if part.before is None:
        among = f"{part.count:,} ops" if part.count > 1 and (one.ops_unit or part.amount != part.count) else ""
        amount = "" if one.operator == "==" and one.unit == "" else amount_text(part.amount, one.ops_unit)
        detail = " in ".join(filter(None, (amount, among)))
        return f"{part.label} ({detail})" if detail else part.label
    word = "new, " if not part.before else "gone, " if not part.amount else ""
    return f"{part.label} ({word}{change_text(part, one.ops_unit)})"


def change_text(part: OpPart, unit: str) -> str:
    """The change of an op's amount since the baseline."""
    return f"{'+' if part.change > 0 else '−'}{amount_text(abs(part.change), unit)}"


def amount_text(amount: Number | None, unit: str) -> str:
    """An amount with its unit; unit ``1`` is a ratio, an empty one a plain number."""
    if amount is None:
        return "–"
    return percent(amount) if unit == "1" else plain(amount) if unit == "" else show(amount, unit)
