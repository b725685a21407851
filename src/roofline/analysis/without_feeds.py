"""A report without infeed and outfeed: its points, ops, findings and first sentence, as if the device had waited for neither."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..machine import Machine
from ..placement import IDEAL, Corrections
from ..report import Finding, Report
from ..units import number_of
from ..workload import Coverage, Op, Recording, Step, Workload, feeds
from . import assemble
from .evidence import with_evidence
from .program_points import less
from .summary import summary

LEFT_OUT = "left out: {} about infeed or outfeed together with other ops; analyze the profile itself for what it says without them"


def without_feeds(
    report: Report, recording: Recording | None = None, machine: Machine | None = None, corrections: Corrections = IDEAL
) -> Report:
    """A report without infeed and outfeed; the report itself where it has neither.

    Findings are those of the ``recording`` on its ``machine`` without them. A report alone, which was read back, has findings about all of
    its ops: those that are about infeed or outfeed are left out.
    """
    kept = tuple([op for op in report.ops if not feeds(op.category)])
    if len(kept) == len(report.ops):
        return report
    ids, notes = {op.id for op in kept}, report.input.notes
    if recording is not None and machine is not None:
        findings = _findings(recording, machine, corrections)
    else:
        findings = tuple([finding for finding in report.findings if ids.issuperset(finding.ops)])
        mixed = sum(bool(ids.intersection(finding.ops)) for finding in report.findings if not ids.issuperset(finding.ops))
        notes = (*notes, LEFT_OUT.format(number_of(mixed, "finding"))) if mixed else notes
    points = tuple(
        replace(point, infeed_outfeed=False)  # counters cannot tell infeed and outfeed apart
        for point in report.points
        if not point.infeed_outfeed or point.scope == "hardware"
    )
    return replace(
        report,
        input=replace(report.input, notes=notes),
        points=points,
        ops=kept,
        folds=tuple([fold for fold in report.folds if ids.issuperset(fold.ops)]),
        findings=findings,
        summary=summary(points, report.machine, report.input.devices, findings, report.predicted),
    )


def _findings(recording: Recording, machine: Machine, corrections: Corrections) -> tuple[Finding, ...]:
    """The findings of a recording without its infeed and outfeed, about ops by their ids in the whole recording."""
    recording = with_evidence(recording)
    kept = [id for id, op in enumerate(recording.workload.ops) if not feeds(op.category)]
    findings = assemble(_cut(recording, kept), machine, corrections).findings
    return tuple(
        replace(
            finding,
            ops=tuple([kept[id] for id in finding.ops]),
            predicted=found and replace(found, ops=tuple([replace(op, op=kept[op.op]) for op in found.ops])),
        )
        for finding in findings
        for found in (finding.predicted,)
    )


def _cut(recording: Recording, kept: Sequence[int]) -> Recording:
    """A recording with the ops of these ids alone; the self time of the others is taken from its times, as `program_points` does."""
    ops = recording.workload.ops
    places = {id: place for place, id in enumerate(kept)}
    fed = [op for id, op in enumerate(ops) if id not in places]
    return replace(
        recording,
        workload=Workload(tuple([ops[id] for id in kept])),
        steps=tuple([_cut_step(step, fed) for step in recording.steps]),
        coverage=_cut_coverage(recording.coverage, fed, max(len(recording.devices), 1)),
        kernels=tuple([replace(use, op_index=places[use.op_index]) for use in recording.kernels if use.op_index in places]),
        measured={},
        timeline=(),
        graphs=tuple([program.kept(places) for program in recording.graphs]),
    )


def _cut_coverage(cover: Coverage, fed: Sequence[Op], devices: int) -> Coverage:
    fed_s, priced_s = (sum(op.own_s for op in some) for some in (fed, [op for op in fed if op.priced]))
    return replace(
        cover,
        wall_s=less(cover.wall_s, fed_s),
        busy_s=less(cover.busy_s, fed_s),
        attributed_s=less(cover.attributed_s, fed_s),
        priced_s=less(cover.priced_s, priced_s),
        run_s=less(cover.run_s, fed_s / devices),
    )


def _cut_step(step: Step, fed: Sequence[Op]) -> Step:
    shares = [(op, share) for op in fed for share in op.by_step if share.key == step.step]
    fed_s = sum(op.own_s * share.time_s / op.time_s for op, share in shares if op.time_s)
    if not fed_s:
        return step
    devices = step.device_seconds / step.time_s if step.device_seconds and step.time_s else 1
    return replace(
        step,
        time_s=less(step.time_s, fed_s / devices),
        slowest_s=None,  # infeed and outfeed time per device is not known
        span_s=less(step.span_s, fed_s / devices),
        busy_s=less(step.busy_s, fed_s / devices),
        device_seconds=less(step.device_seconds, fed_s),
    )
