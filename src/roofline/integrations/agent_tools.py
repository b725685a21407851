"""The tools for agents: the functions of this package with compact answers, and pagination for the rest.

Every answer is a JSON value: amounts in base units with four digits, the summary and the findings first, ops by page.
"""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ..analysis import analyze as analyze_file
from ..analysis import describe, price
from ..analysis.budgets import check as check_report
from ..analysis.budgets import check_change, on_another_chip, read_conditions
from ..analysis.what_if import what_if as predict
from ..checking import Check
from ..checking.amounts import counted_ops
from ..comparison import compare
from ..comparison.values import Change, OpChange
from ..errors import UsageError, did_you_mean
from ..formulas import all_formulas, lookup
from ..grouping.op_filter import filtered
from ..machines import catalogue, load
from ..render.budgets import check_text
from ..render.change_comment import change_sentence
from ..render.comparison import promise_lines
from ..render.export import to_json
from ..report import Finding, Number, OpInfo, Point, Report
from ..sources.baseline_json import read_baseline
from ..sources.report_json import stored_report
from ..units import rounded
from .agent_folder import AgentFolder

DIGITS = 4
TOP, MOST = 10, 100  # rows of a page, by default and at most
FINDINGS = 6
KEPT = 8  # cached reports, for following pages
SECTIONS = ("ops", "points", "steps", "findings", "machine", "memory", "coverage", "input", "by_step", "by_device")
Answer = dict[str, Any]


class AgentTools:
    """The tools over one folder."""

    def __init__(self, root: str | Path) -> None:
        self.folder = AgentFolder(root)
        self._kept = lru_cache(maxsize=KEPT)(_analyzed)

    def analyze(
        self, path: str, chip: str = "", section: str = "", filter: str = "", offset: int = 0, limit: int = TOP, per_step: bool = True
    ) -> Answer:
        """Compare a profile, trace, program, table or report with its chip's limits: the sentence, findings, and the ops that take longest.

        path: a file or folder below the served folder, or sample:train. chip: a name from chips, default the profile's own. filter: ops to
        keep, as on the page: "bound=hbm time>1%", "scope:attn -copy". section: a part of the report in full, by page: ops, points, steps,
        findings, machine, memory, coverage, input, by_step, by_device. offset and limit: the page. per_step: ops of one step on one device,
        else of the whole run.
        """
        report = self._report(path, chip)
        if section:
            return _section(report, section, filter, offset, limit)
        return _overview(report, filter, offset, limit, per_step)

    def what_if(self, path: str, changes: str, chip: str = "", offset: int = 0, limit: int = TOP) -> Answer:
        """Predict how a profile or program would run after changes, op by op, with bounds of the time.

        changes: words such as "scale batch=x4", "dtype fp8", "kernel attention=flash", "fuse all", "donate", "chip b200", which combine,
        or "best" for every change that helps.
        """
        words = self.folder.changes(changes.split())
        machine = load(name) if (name := self.folder.chip(chip)) else None
        report = predict(self.folder.path(path), words, machine)
        point = report.main_point
        expected = point.expected if point else None
        return {
            **_overview(report, "", offset, limit, True),
            "before_s": _number(point.before_s) if point else None,
            "after_s": _number(point.time_s) if point else None,
            "low_s": _number(expected.low_s) if expected else None,
            "high_s": _number(expected.high_s) if expected else None,
            "notes": list(report.input.notes)[:TOP],
        }

    def check(self, path: str, conditions: list[str], baseline: str = "", chip: str = "") -> Answer:
        """Check a profile, program or report against conditions that must all hold, each with what was found and allowed, ops and causes.

        conditions: such as "step < 30 ms", "mfu > 45%", "hbm of layer*/attn <= 1.1x baseline", "peak memory < 70 GB", "launches <= 120",
        "no above-roof", "expected step on h100 < 20 ms". baseline: a file that roofline check --update wrote.
        """
        read = self.folder.conditions(read_conditions(conditions))
        report = self._report(path, chip)
        kept = read_baseline(self.folder.path(baseline)) if baseline else None
        kept = replace(kept, file=baseline) if kept else None
        # A report refers to the file that it was made from, which may be outside the folder.
        own = () if stored_report(self.folder.path(path)) is not None else (self.folder.path(path),)
        named = replace(report, input=replace(report.input, files=own))
        found = check_report(report, read, baseline=kept, on_chip=lambda other: on_another_chip(named, other))
        return {"holds": found.holds, "conditions": [_condition(one) for one in found.checks]}

    def compare(self, before: str, after: str, limits: str = "", chip: str = "", offset: int = 0, limit: int = TOP) -> Answer:
        """Compare two reports, profiles or programs: what the findings of the first promised and what arrived, what got slower and
        why, what got faster, new ops and those gone. So a change is verified: analyze, make the change, run again, compare.

        limits: what may change, such as "time +5%, hbm +2%, mfu -1%"; the answer says which are broken.
        """
        sides = [self._report(name, chip) for name in (before, after)]
        compared = compare(sides[0], sides[1], (before, after))
        found = compared.changes
        words = read_conditions(limits, found.headline.quantity if found.headline else "time") if limits else ()
        checked = check_change(sides[:1], sides[1:], self.folder.conditions(words), before)
        changed = [one for one in found.ops if one.seconds.change or one.matched != "both"]
        return {
            "summary": change_sentence(found),
            "limits_hold": checked.holds if words else None,
            "limits": [_condition(one) for one in checked.checks],
            "promises": promise_lines(compared.promises) if compared.promises else [],
            "figures": [_change(one) for one in found.figures if one.change],
            **_page("ops", [_op_change(one) for one in changed], offset, limit),
        }

    def op(self, formula: str = "", sizes: list[int] | None = None, options: dict[str, Any] | None = None, chip: str = "h100") -> Answer:
        """Cost and minimum time of one operation from its sizes: FLOP, bytes, bound, attainable rate, expected time.

        formula: such as matmul with sizes [m, k, n]; without one, the list of formulas with their sizes and options. options: such as
        {"dtype": "fp8", "weights": "int8"}.
        """
        if not formula:
            return {"formulas": [{"use": one.usage, "what": one.summary} for one in all_formulas()]}
        found = lookup(formula)
        if not sizes:
            named = {one.name: one.kind for one in found.options}
            return {"use": found.usage, "options": named, "what": found.documentation, "example": list(found.example)}
        report = price([found(*sizes, **(options or {}))], load(self.folder.chip(chip) or "h100"))
        (row,) = report.ops
        return {"chip": report.machine.name, "summary": report.summary, **_row(row), "work": dict(row.work), "bytes": dict(row.bytes)}

    def chips(self, name: str = "") -> Answer:
        """The chips that are known, or one with its rates and capacities, each with where the figure comes from."""
        if not name:
            return {"chips": [one.name for one in catalogue()]}
        found = describe(load(self.folder.chip(name) or name))
        rates = [{"resource": one.resource, "rate": _number(one.rate), "per": one.per, "source": one.provenance} for one in found.ceilings]
        return {"name": found.name, "rates": rates, "notes": list(found.notes)}

    def tools(self) -> dict[str, Callable[..., Answer]]:
        """Every tool by its name."""
        return {one.__name__: one for one in (self.analyze, self.what_if, self.check, self.compare, self.op, self.chips)}

    def _report(self, path: str, chip: str) -> Report:
        file = self.folder.path(path)
        return self._kept(file, self.folder.chip(chip), _stamp(file))


def _analyzed(path: str, chip: str | None, stamp: object) -> Report:
    return analyze_file(path, chip)


def _stamp(path: str) -> tuple[tuple[str, int, int], ...]:
    """A value that changes when a file, or one in a folder, changes."""
    if not os.path.exists(path):
        return ()
    files = [path] if os.path.isfile(path) else [os.path.join(folder, one) for folder, _, files in os.walk(path) for one in files]
    return tuple((one, found.st_mtime_ns, found.st_size) for one in sorted(files) if (found := os.stat(one)))


def _number(amount: float | None) -> float | None:
    return None if amount is None else rounded(amount, DIGITS)


def _page(name: str, rows: Sequence[Any], offset: int, limit: int) -> Answer:
    """Some rows, their total number, and the offset of the next page (``None`` at the end)."""
    if offset < 0 or limit < 1:
        raise UsageError(f"offset {offset}, limit {limit}: an offset is 0 or more, a limit 1 to {MOST}")
    end = offset + min(limit, MOST)
    return {name: list(rows[offset:end]), "total": len(rows), "next_offset": end if end < len(rows) else None}


def _overview(report: Report, filter: str, offset: int, limit: int, per_step: bool) -> Answer:
    ops = counted_ops(report) if per_step else report.ops
    shown = filtered(ops, filter) if filter else ops
    point = report.main_point
    return {
        "summary": report.summary or report.heading,
        "chip": report.machine.name,
        "time_s": _number(point.time_s) if point else None,
        "minimum_s": _number(point.floor_s if point.at_roof_s is None else point.at_roof_s) if point else None,  # as in the summary
        "mfu": _number(point.mfu) if point else None,
        "lost_s": {cause: _number(seconds) for cause, seconds in point.lost.items()} if point else {},
        "findings": [
            {"kind": one.kind, "message": one.message, "saving_s": _number(_saving(one, point))} for one in report.findings[:FINDINGS]
        ],
        "findings_total": len(report.findings),
        **_page("ops", [_row(op) for op in shown], offset, limit),
    }


def _saving(finding: Finding, point: Point | None) -> Number | None:
    """What a finding saves of the time that the answer gives, as predicted where it is: of a step, or of the run."""
    if (predicted := finding.predicted) is not None:
        return predicted.before_s - predicted.time_s
    found = finding.saving_per_step_s if point and point.scope == "average" else finding.saving_per_device_s
    return finding.saving_s if found is None else found


def _row(op: OpInfo) -> Answer:
    return {
        "id": op.id,
        "op": op.label or op.name,
        "time_s": _number(op.time_s),
        "minimum_s": _number(op.floor_s),
        "expected_s": _number(op.expected.time_s) if op.expected else None,
        "efficiency": _number(op.efficiency),
        "bound": op.bound,
        "flops": _number(op.flops),
        "hbm": _number(op.bytes.get("hbm")),
        "count": _number(op.count),
    }


def _section(report: Report, section: str, filter: str, offset: int, limit: int) -> Answer:
    """A section of the report, as in its JSON."""
    if section not in SECTIONS:
        raise UsageError(f"no section {section!r}{did_you_mean(section, SECTIONS) or '; sections: ' + ', '.join(SECTIONS)}")
    value = filtered(report.ops, filter) if section == "ops" and filter else getattr(report, section)
    if isinstance(value, tuple):
        page = _page(section, value, offset, limit)
        return {**page, section: _json(page[section])}
    return {section: _json(value)}


def _json(value: object) -> Any:
    """A value as in the report's JSON."""
    return msgspec.json.decode(to_json(value))


def _condition(one: Check) -> Answer:
    return {
        "condition": one.condition,
        "holds": one.holds,
        "found": _number(one.found),
        "allowed": _number(one.allowed),
        "unit": one.unit,
        "message": check_text(one),
    }


def _change(one: Change) -> Answer:
    return {
        "quantity": one.quantity,
        "unit": one.unit,
        "before": _number(one.before),
        "after": _number(one.after),
        "change": _number(one.ratio),
    }


def _op_change(one: OpChange) -> Answer:
    seconds = one.seconds
    return {
        "op": one.op,
        "matched": one.matched,
        "before_s": _number(seconds.before),
        "after_s": _number(seconds.after),
        "change_s": _number(seconds.change),
        "reasons": list(one.reasons),
    }
