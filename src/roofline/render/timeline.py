"""The timeline as text: one line per device, a character per column for its main cause, and the host's activity above idle columns."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from ..causes import IDLE, NEEDED, PARTS, REASONS
from ..report import IdleInfo, LaneInfo, Report
from ..units import percent, show
from .tables import PLAIN, Paper

MOST_DEVICES = 8
WIDEST = 100


def timeline_text(report: Report, paper: Paper = PLAIN, devices: Sequence[int] | None = None) -> str:
    """The timeline of one step, or of the run where there are no steps, on some or all devices; empty without a timeline."""
    lanes = [lane for lane in report.timeline if devices is None or lane.device in devices]
    lanes = [lane for lane in lanes if lane.step is not None] or lanes
    if not lanes:
        return ""
    names = [f"device {lane.device}" for lane in lanes]
    margin = max(map(len, names)) + 2
    width = max(min(paper.width, WIDEST) - margin, 1)
    step = next((one for one in report.steps if one.step == lanes[0].step), None)
    which = f"step {step.title if step else lanes[0].step}" if lanes[0].step is not None else "the run"
    lines = [paper.paint(f"Timeline of {which}, {show(lanes[0].time_s, 's')}", "bold")]
    seen: dict[str, None] = {}
    waits: dict[int, float] = {}
    for lane, name in list(zip(lanes, names, strict=True))[:MOST_DEVICES]:
        columns = _columns(len(lane.at_roof_s), width)
        causes = [_cause(lane, column) for column in columns]
        hosts = [_host(lane, column, waits) if cause == IDLE else None for column, cause in zip(columns, causes, strict=True)]
        seen.update(dict.fromkeys(causes))
        if any(host is not None for host in hosts):
            marks = [" " if host is None else REASONS[report.idle[host].reason].mark for host in hosts]
            lines.append(f"{'host':<{margin}}{''.join(marks).rstrip()}")
        lines.append(f"{name:<{margin}}{_painted(causes, paper)}")
    if len(lanes) > MOST_DEVICES:
        lines.append(f"… and {len(lanes) - MOST_DEVICES:,} more; --only device=N shows one of them")
    lines += paper.paragraph(_legend(seen)).splitlines()
    whole = sum(lane.time_s for lane in lanes[:MOST_DEVICES])
    for place in sorted(waits, key=lambda place: -waits[place]):
        reason = report.idle[place]
        lines += paper.paragraph(f"{REASONS[reason.reason].mark} {reason_text(reason)}, {percent(waits[place] / whole)}").splitlines()
    return "\n".join(lines)


def reason_text(reason: IdleInfo) -> str:
    """Why a device was idle, what the host did then and where: ``host in Python: load_batch (data.py:17)``."""
    said = " ".join(filter(None, [reason.activity, f"({reason.location})" if reason.location else ""]))
    return ": ".join(filter(None, [REASONS[reason.reason].words if reason.reason in REASONS else reason.reason, said]))


def _columns(buckets: int, width: int) -> list[range]:
    """The buckets of each column."""
    count = min(buckets, width)
    return [range(column * buckets // count, (column + 1) * buckets // count) for column in range(count)]


def _cause(lane: LaneInfo, column: Iterable[int]) -> str:
    """The cause of most of a column's time."""
    parts = {NEEDED: lane.at_roof_s, **lane.causes}
    return max(parts, key=lambda part: sum(parts[part][bucket] for bucket in column))


def _host(lane: LaneInfo, column: Iterable[int], waits: dict[int, float]) -> int | None:
    """The index in the report of what the host did for most of an idle column; adds its time to the totals ``waits``."""
    mine: dict[int, float] = {}
    for bucket in column:
        place = lane.host[bucket] if lane.host else None
        if place is not None:
            mine[place] = mine.get(place, 0.0) + lane.causes[IDLE][bucket]
    for place, seconds in mine.items():
        waits[place] = waits.get(place, 0.0) + seconds
    return max(mine, key=lambda place: mine[place]) if mine else None


def _painted(causes: Sequence[str], paper: Paper) -> str:
    return "".join(paper.paint(PARTS[cause].mark * len(list(run)), PARTS[cause].style) for cause, run in groupby(causes))


def _legend(seen: Iterable[str]) -> str:
    shown = {*seen}
    return "most of each column: " + ", ".join(f"{part.mark} {part.words}" for cause, part in PARTS.items() if cause in shown)
