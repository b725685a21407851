"""Reports and comparisons of very many ops as a browser can show them within seconds: the longest ops, and a note that says so."""

from collections.abc import Container

from msgspec.structs import replace

from ...comparison.values import Comparison
from ...report import LaneInfo, Report
from ...units import percent

MOST_OPS = 20_000  # 36 MB, which a browser opens and sorts within seconds; ten times as many take a minute


def left_out(report: Report) -> str:
    """What a page leaves out of a report; nothing of most."""
    count = len(report.ops)
    if count <= MOST_OPS:
        return ""
    whole_s, shown_s = (sum(op.weight_s for op in ops) for ops in (report.ops, report.ops[:MOST_OPS]))
    share = f", {percent(shown_s / whole_s)} of the time of all" if whole_s else ""
    return f"the page has the longest {MOST_OPS:,} of {count:,} ops{share}; --json, --csv and --parquet have every op"


def shortened(report: Report) -> Report:
    """The report that a page shows: the same one, or one without its shortest ops, which only the program's totals include."""
    note = left_out(report)
    if not note:
        return report
    kept = report.ops[:MOST_OPS]
    ids = {op.id for op in kept}
    return replace(
        report,
        input=replace(report.input, notes=(*report.input.notes, note)),
        ops=kept,
        by_step=tuple([share for share in report.by_step if share.op in ids]),
        by_device=tuple([share for share in report.by_device if share.op in ids]),
        by_step_and_device=tuple([share for share in report.by_step_and_device if share.op in ids]),
        findings=tuple([replace(one, ops=tuple([op for op in one.ops if op in ids])) for one in report.findings]),
        timeline=tuple([_lane(lane, ids) for lane in report.timeline]),
        folds=tuple([fold for fold in report.folds if ids.issuperset(fold.ops)]),
    )


def shortened_comparison(comparison: Comparison) -> Comparison:
    """The comparison that a page shows: the same one, or one without its smallest changes, which only the totals include."""
    count = len(comparison.deltas)
    if count <= MOST_OPS:
        return comparison
    note = f"the page has the largest {MOST_OPS:,} of {count:,} changes; --json and --csv have every one"
    changes = replace(comparison.changes, ops=comparison.changes.ops[:MOST_OPS])
    return replace(comparison, deltas=comparison.deltas[:MOST_OPS], notes=(*comparison.notes, note), changes=changes)


def _lane(lane: LaneInfo, ids: Container[int]) -> LaneInfo:
    """What a device did, with some ops alone."""
    buckets = [
        [(op, seconds) for op, seconds in zip(ops, times, strict=True) if op in ids]
        for ops, times in zip(lane.ops, lane.ops_s, strict=True)
    ]
    ops, times = (tuple([tuple([one[place] for one in bucket]) for bucket in buckets]) for place in (0, 1))
    return replace(lane, ops=ops, ops_s=times)
