"""The output of `roofline analyze`: the report, and the ops that were asked for, filtered and grouped."""

import argparse
from collections.abc import Sequence

from msgspec.structs import replace

from ..analysis import analyze
from ..analysis.counters import Comparison, model_against_counters, with_counters
from ..analysis.stragglers import spreads
from ..errors import UsageError
from ..render.export import Row, group_rows, op_rows
from ..render.measured import counters_text, stragglers_text
from ..render.op_table import column
from ..render.tables import Paper
from ..render.text import report_text
from ..report import OpInfo, Report
from ..selection import PLACES, Group, group, group_parts, narrow, select
from ..units import parse
from ..workload import Recording
from .options import chosen_corrections, chosen_machine
from .output import emit_report
from .terminal import charted

SPREAD = ("op", "name", "category", "exchange", "places", "fastest", "fastest_s", "median_s", "slowest", "slowest_s", "spread", "waiting_s")


def columns(args: argparse.Namespace) -> list[str]:
    """The names of the columns that were asked for; a wrong one is an error."""
    names = [word.strip() for word in args.columns.split(",")] if args.columns else []
    for name in names:
        column(name)
    return names


def answer(args: argparse.Namespace, recording: Recording) -> None:
    """Analyse a recording on its chip and write the result."""
    if args.counters:
        recording = with_counters(recording, args.counters)
    report = analyze(recording, chosen_machine(args, recording.devices), chosen_corrections(args))
    _emit(args, recording, report, columns(args))


def _emit(args: argparse.Namespace, recording: Recording, report: Report, names: Sequence[str]) -> None:
    """The report in every format asked for; the table shows the selected ops."""
    part = narrow(report, step=args.step, device=args.device, host=args.host)
    shown = select(
        part,
        category=args.category,
        bound=args.bound,
        dtype=args.dtype,
        unit=args.unit,
        module=args.module,
        name=args.name,
        min_time_s=None if args.min_time is None else parse(args.min_time, "s"),
        feeds=not args.no_infeed,
    )
    groups = _groups(args, report, shown)
    spread = spreads(shown, report.by_device, report.input.devices, args.stragglers) if args.stragglers else ()

    def text(page: Paper) -> str:
        extra = _against(args, recording, shown, page)
        if args.stragglers:
            extra.append(stragglers_text(spread, args.stragglers, page, args.top))
        return report_text(
            report,
            page,
            args.top,
            shown,
            (args.by, groups) if groups is not None else None,
            columns=names,
            whole_s=sum(op.weight_s for op in select(part, feeds=not args.no_infeed)),
            feeds=not args.no_infeed,
            extra=extra,
        )

    def rows() -> Sequence[Row]:
        if args.stragglers:
            return [{name: getattr(one, name) for name in SPREAD} for one in spread]
        return group_rows(groups) if groups is not None else op_rows(shown, report)

    emit_report(args, report, charted(args, replace(report, ops=shown), text), rows)


def _groups(args: argparse.Namespace, report: Report, shown: Sequence[OpInfo]) -> tuple[Group, ...] | None:
    if args.by in PLACES:
        return group_parts(report, shown, args.by, step=args.step, device=args.device, host=args.host)
    if args.depth is not None and not args.by:
        raise UsageError("--depth needs --by scope")
    return group(shown, args.by, depth=args.depth) if args.by else None


def _against(args: argparse.Namespace, recording: Recording, shown: Sequence[OpInfo], page: Paper) -> list[str]:
    """The model compared with the counters, where counters were given."""
    if not args.counters:
        return []
    rows: dict[int, list[Comparison]] = {}
    for row in model_against_counters(recording.workload):
        rows.setdefault(row.op_index, []).append(row)
    return [counters_text([row for op in shown for row in rows.get(op.id, ())], page, args.top)]
