"""The output of `roofline analyze`: the report, with the selected ops filtered and grouped."""

import argparse
from collections.abc import Sequence

from ..analysis import Opened
from ..analysis.counters import Comparison, model_against_counters
from ..analysis.findings.stragglers import spreads
from ..analysis.without_feeds import without_feeds
from ..dtypes import DTYPES
from ..grouping import PLACES, Group, GroupTable, group, group_parts, group_table, parts_table
from ..grouping.folding import TableRows, by_loss, table_rows
from ..grouping.op_filter import check_values, filtered
from ..machine import LATENCY
from ..render.export import Row, group_rows, op_rows
from ..render.op_table import column
from ..render.screen import ROWS, report_text
from ..render.tables import Paper
from ..report import OpInfo, Report
from ..resource import COMPUTE_UNITS, CROSS_LANE_UNITS, LINK_UNITS, MEMORY_UNITS
from ..selection import narrow
from ..workload import Workload
from .options import chosen_corrections
from .output import emit_report, shared
from .terminal import chart

UNITS = (*COMPUTE_UNITS, *CROSS_LANE_UNITS, *MEMORY_UNITS, *LINK_UNITS)
FORMATS = frozenset(number_format.rate for number_format in DTYPES.values())
EACH_OP = "op"  # no grouping
SPREAD = ("op", "name", "category", "exchange", "places", "fastest", "fastest_s", "median_s", "slowest", "slowest_s", "spread", "waiting_s")


def columns(args: argparse.Namespace) -> list[str]:
    """The names of the requested columns; an unknown one is an error."""
    names = [word.strip() for word in args.columns.split(",")] if args.columns else []
    for name in names:
        column(name)
    return names


def emit_opened(args: argparse.Namespace, opened: Opened) -> None:
    """Write the report on an input."""
    report, recording = opened.report, opened.recording
    shown = report if args.infeed else without_feeds(report, recording, opened.machine, chosen_corrections(args))
    _emit(args, recording.workload if recording else Workload(()), report, shown, columns(args))


def _emit(args: argparse.Namespace, workload: Workload, report: Report, shown: Report, names: Sequence[str]) -> None:
    """Write the report in every requested format: text, Markdown and figures of the part that is ``shown``, tables of its selected ops."""
    report, shown = shared(args, report, shown)
    part = narrow(shown, step=args.step, device=args.device, host=args.host)
    ops = _selected(args, part)
    unfold = args.by is not None or bool({"step", "steps", "device", "devices"} & {*names})
    rows = by_loss(table_rows(shown, ops, folded=not unfold, step=args.step, device=args.device, host=args.host))
    top = ROWS if args.top is None else args.top
    groups = _groups(args, shown, ops)
    spread = spreads(ops, report.by_device, report.input.devices, args.stragglers) if args.stragglers else ()
    grouped = _grouped(args, shown, ops, rows) if groups is not None else None

    def text(page: Paper) -> str:
        extra = _counters_comparison(args, workload, ops, page)
        if args.stragglers:
            from ..render.stragglers import stragglers_text

            extra.append(stragglers_text(spread, args.stragglers, page, top))
        if args.details and report.collectives:
            from ..render.collectives import collectives_text

            extra.append(collectives_text(shown, page, top))
        if args.timeline:
            from ..render.timeline import timeline_text

            when = timeline_text(report, page, _devices(args, report))
            extra += [when] if when else []
        drawn = chart(args, shown, rows, page)
        return report_text(shown, page, args.top, rows, grouped, columns=names, chart=drawn, extra=extra, details=args.details)

    def data() -> Sequence[Row]:
        if args.stragglers:
            return [{name: getattr(one, name) for name in SPREAD} for one in spread]
        return group_rows(groups) if groups is not None else op_rows(ops, report)

    def markdown() -> str:
        from ..render.markdown import to_markdown  # imported on demand

        return to_markdown(shown, top, rows, grouped, columns=names)

    emit_report(args, report, text, data, markdown, drawn=shown)


def filter_text(args: argparse.Namespace) -> str:
    """The filter of ops: all of those that are given."""
    return args.filter[0] if len(args.filter) == 1 else " ".join(f"({text})" for text in args.filter)


def _selected(args: argparse.Namespace, ops: Sequence[OpInfo]) -> Sequence[OpInfo]:
    """The ops that pass the filters; a value that no op has is an error."""
    if not args.filter:
        return ops
    text = filter_text(args)
    check_values(text, ops, {"bound": (*UNITS, LATENCY), "unit": COMPUTE_UNITS, "dtype": FORMATS, "category": (), "program": ()})
    return filtered(ops, text)


def _devices(args: argparse.Namespace, report: Report) -> list[int] | None:
    """The selected devices; empty if all are."""
    if not args.device and not args.host:
        return None
    mine = [one for one in report.input.devices if not args.host or one.host in args.host]
    return [one.id for one in mine if not args.device or one.id in args.device]


def _grouped(args: argparse.Namespace, report: Report, shown: Sequence[OpInfo], rows: TableRows) -> GroupTable:
    """The groups of a table, per step if its rows are; groups by step, device or host contain the parts that ran there."""
    key, depth = args.by
    if key in PLACES:
        return parts_table(report, shown, key, step=args.step, device=args.device, host=args.host)
    return group_table(key, group(rows.rows, key, depth=depth), rows.whole_s, per=rows.per, devices=rows.devices)


def _groups(args: argparse.Namespace, report: Report, shown: Sequence[OpInfo]) -> tuple[Group, ...] | None:
    if args.by is None or args.by.key == EACH_OP:
        return None
    if args.by.key in PLACES:
        return group_parts(report, shown, args.by.key, step=args.step, device=args.device, host=args.host)
    return group(shown, args.by.key, depth=args.by.depth)


def _counters_comparison(args: argparse.Namespace, workload: Workload, shown: Sequence[OpInfo], page: Paper) -> list[str]:
    """The comparison of the model with the counters, if counters were given."""
    if not args.counters or args.anonymize:  # the comparison contains kernel names
        return []
    from ..render.counters import counters_text

    rows: dict[int, list[Comparison]] = {}
    for row in model_against_counters(workload):
        rows.setdefault(row.op_index, []).append(row)
    return [counters_text([row for op in shown for row in rows.get(op.id, ())], page, ROWS if args.top is None else args.top)]
