"""The change of a program as a comment on a pull request, and the trend over several versions."""

from collections.abc import Iterable, Sequence

from ..checking import Check
from ..comparison.promises import Kept
from ..comparison.runs import Spread, Trend
from ..comparison.values import Change, OpChange, ReportChanges
from ..units import percent, plain, signed_percent
from .budgets import amount_text, check_text, without_repeated_causes
from .comparison import promises_markdown
from .markdown import markdown_table, with_escapes

TOP = 8  # ops of a list
SMALL = 1e-3  # of the time of both versions: ops with smaller changes are counted, not listed
_WORDS = {"step": "Step time", "run": "Run time", "time": "Time of all ops", "minimum time": "Minimum time"}
_TREND = ("step", "run", "time", "minimum time", "mfu", "flops", "hbm", "peak memory", "launches")


def change_comment(found: ReportChanges, checks: Sequence[Check] = (), notes: Iterable[str] = (), promises: Kept | None = None) -> str:
    """The change in one sentence, broken limits, promises, what got slower and why, what got faster, new and removed ops."""
    names = {one.quantity for one in found.figures}
    broken = [one for one in checks if one.holds is False]
    parts = [
        f"**{with_escapes(change_sentence(found))}**",
        _list("Limits broken", [f"❌ {with_escapes(check_text(one))}" for one in without_repeated_causes(broken)], top=len(broken)),
        "✅ All limits hold." if checks and not broken else "",
        markdown_table(["", "before", "after", "change"], [_cells(one) for one in found.figures]),
        promises_markdown(promises),
        _timed_list("Slower", found, found.slower, 1),
        _timed_list("Faster", found, found.faster, -1),
        _list("New ops", [_unmatched_line(one, one.seconds.after) for one in found.unmatched("new")]),
        _list("Ops gone", [_unmatched_line(one, one.seconds.before) for one in found.unmatched("gone")]),
        _list("Notes", [with_escapes(one) for one in notes], top=20),
        f"<sub>{with_escapes(' → '.join(found.files))}{'; per step on one device' if 'step' in names else ''}</sub>",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def change_sentence(found: ReportChanges) -> str:
    """The headline before and after, and whether that is more than noise.

    >>> one = Change(quantity="step", unit="s", before=0.02, after=0.021)
    >>> change_sentence(ReportChanges(files=("a", "b"), runs=(1, 1), headline=one, figures=(one,), ops=()))
    'Step time 20 ms → 21 ms: 5% slower.'
    """
    one = found.headline
    if one is None:
        return "No time, measured or minimum, in both reports."
    times = f"{_WORDS[one.quantity]} {amount_text(one.before, 's')} → {amount_text(one.after, 's')}"
    if not one.change:
        return f"{times}: the same."
    how = _how(one)
    if one.interval is None:
        return f"{times}: {how}."
    low, high = (signed_percent(end / one.before) if one.before else "" for end in one.interval)
    runs = f"{found.runs[0]} and {found.runs[1]} runs"
    return f"{times}: {how}, {'within the noise' if one.is_noise else 'beyond the noise'} of {runs} ({low} to {high})."


def _how(one: Change) -> str:
    """The change of a time: in percent, or as a factor from 2 on."""
    if not one.ratio:
        return "slower"
    if one.ratio >= 1:
        return f"{plain(1 + one.ratio, 3)} times as long"
    return f"{signed_percent(one.ratio)[1:]} {'slower' if one.change > 0 else 'faster'}"


def _cells(one: Change) -> list[str]:
    noise = " (noise)" if one.is_noise and one.change else ""
    ratio = f" ({signed_percent(one.ratio)})" if one.ratio and one.unit != "1" else ""
    sign = "−" if one.change < 0 else "+"
    amount = amount_text(abs(one.change), one.unit)
    amount = f"{amount.removesuffix('%')} points" if one.unit == "1" else amount
    change = f"{sign}{amount}{ratio}{noise}" if one.change else "same"
    return [one.quantity, amount_text(one.before, one.unit), amount_text(one.after, one.unit), change]


def _line(one: OpChange) -> str:
    seconds = one.seconds
    sign = "−" if seconds.change < 0 else "+"
    amounts = f"{amount_text(seconds.before, 's')} → {amount_text(seconds.after, 's')}"
    why = f": {', '.join(one.reasons)}" if one.reasons else ""
    return f"{_code(one.op)} {sign}{amount_text(abs(seconds.change), 's')} ({amounts}){with_escapes(why)}"


def _idle(one: Change) -> str:
    return f"idle time {'+' if one.change > 0 else '−'}{amount_text(abs(one.change), 's')} ({_arrow(one)})"


def _arrow(one: Change) -> str:
    return f"{amount_text(one.before, one.unit)} → {amount_text(one.after, one.unit)}"


def _unmatched_line(one: OpChange, seconds: float) -> str:
    count = one.launches.after or one.launches.before
    return f"{_code(one.op)} {amount_text(seconds, 's')}, {amount_text(count, '')} launch{'es' if count != 1 else ''}"


def _code(name: str) -> str:
    return with_escapes(name) if "`" in name else f"`{' '.join(name.split())}`"


def _timed_list(title: str, found: ReportChanges, ops: Sequence[OpChange], sign: int) -> str:
    """Ops (and idle time) that got slower or faster, the largest change first, and how many changed by less than `SMALL`."""
    lines = [(one.seconds.change, _line(one)) for one in ops]
    idle = next((one for one in found.figures if one.quantity == "idle"), None)
    if idle and sign * idle.change > 0 and not idle.is_noise:
        lines.append((idle.change, _idle(idle)))
    least = SMALL * max(found.headline.before, found.headline.after) if found.headline else 0
    listed = sorted((one for one in lines if abs(one[0]) >= least), key=lambda one: -abs(one[0]))
    more = [f"… and {len(listed) - TOP:,} more"] if len(listed) > TOP else []
    small = len(lines) - len(listed)
    more += [f"{small:,} op{'s' if small > 1 else ''} by less than {percent(SMALL)} of the time each"] if small else []
    return _list(title, [*(line for _, line in listed[:TOP]), *more], TOP + 2)


def _list(title: str, lines: Sequence[str], top: int = TOP) -> str:
    if not lines:
        return ""
    more = [f"- … and {len(lines) - top:,} more"] if len(lines) > top else []
    return "\n".join([f"### {title}", "", *(f"- {line}" for line in lines[:top]), *more])


def trend_markdown(found: Trend) -> str:
    """A Markdown table with one row per version and the common quantities."""
    headers, rows = trend_rows(found)
    return f"**{with_escapes(trend_sentence(found))}**\n\n{markdown_table(headers, rows)}\n"


def trend_rows(found: Trend) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a trend: one row per version."""
    names = [name for name in _TREND if name in found.values]
    rows = []
    for place, version in enumerate(found.versions):
        rows.append([version, *(_spread(found.values[name][place], found.units[name]) for name in names)])
    return ["version", *names], rows


def _spread(one: Spread | None, unit: str) -> str:
    if one is None:
        return "–"
    around = f" ± {amount_text((one.high - one.low) / 2, unit)}" if one.high > one.low else ""
    return f"{amount_text(one.mean, unit)}{around}"


def trend_sentence(found: Trend) -> str:
    """The headline of the first and the last version."""
    row = found.values.get(found.headline, ())
    if not row or row[0] is None or row[-1] is None:
        return f"{len(found.versions)} versions, with no quantity that all have."
    unit, first, last = found.units[found.headline], row[0].mean, row[-1].mean
    part = f" ({signed_percent((last - first) / first)})" if first and last != first else ""
    name = _WORDS.get(found.headline, found.headline)
    return f"{name} over {len(found.versions)} versions: {amount_text(first, unit)} → {amount_text(last, unit)}{part}."
