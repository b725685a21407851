"""Reports that roofline itself wrote: read as a report to compare with, or as a recording to analyze for another machine."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..cost import Cost
from ..dtypes import DTYPES
from ..errors import SourceError
from ..files.input_limits import check_limit
from ..grouping.folding import fold_infos
from ..machine import Machine
from ..operation import UNSTATED
from ..report import SCHEMA, AvoidableInfo, OpInfo, Report
from ..rules.words import rule_kinds
from ..workload import Avoidable, Counters, Op, Recording, Saves, Share, StepsOnDevice, Usual, Workload
from .files import all_of, head_of, local_file
from .remote import is_remote

REPORTS = (".json", ".json.gz")
_SAVES, _USUAL = {saves.value: saves for saves in Saves}, {usual.value: usual for usual in Usual}


def sniff(head: bytes, path: Path) -> bool:
    """A JSON object with the report's schema near its beginning."""
    return head.lstrip()[:1] == b"{" and b'"schema"' in head and SCHEMA.partition("/")[0].encode() in head


def read_report(path: Path) -> Report:
    """The report as it was written."""
    data = all_of(path)
    check_limit("values", sum(map(data.count, (b",", b"[", b"{"))), str(path))
    try:
        report = msgspec.json.decode(data, type=Report)
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError) as error:
        raise SourceError(f"{path}: not a roofline report: {error}") from None
    if report.schema != SCHEMA:
        raise SourceError(f"{path}: schema {report.schema!r} is not supported; this version reads {SCHEMA!r}")
    if not any(op.does for op in report.ops):  # written before the parts of labels were
        report = replace(report, ops=tuple(map(with_label_in_parts, report.ops)))
    return report if report.folds else replace(report, folds=fold_infos(report.ops))


def with_label_in_parts(op: OpInfo) -> OpInfo:
    where, _, what = op.label.rpartition("  ")
    does, *words = what.split(" ")
    while words and not any(letter.isdigit() for letter in words[0]):
        does = f"{does} {words.pop(0)}"
    sizes = " ".join(words)
    first, bracket, rest = sizes.partition("[")
    if bracket and first in DTYPES:
        return replace(op, where=where, does=does, sizes=f"[{rest}", format=first)
    sized, _, last = sizes.rpartition(" ")
    return replace(op, where=where, does=does, **({"sizes": sized, "format": last} if last in DTYPES else {"sizes": sizes}))


def stored_report(name: str | Path) -> Report | None:
    """The report in a local or remote file; ``None`` if the file is not a report."""
    if is_remote(name) and not str(name).endswith(REPORTS):
        return None
    with local_file(str(name)) as file:
        return read_report(file) if not file.is_dir() and sniff(head_of(file), file) else None


def only_stored_report(source: str | Path | Sequence[str | Path]) -> Report | None:
    """The report, if the input is a single file with one; ``None`` otherwise."""
    names = [source] if isinstance(source, str | Path) else list(source)
    return stored_report(names[0]) if len(names) == 1 else None


def read(path: Path, target: Machine | None = None) -> Recording:
    """The report in a file as a recording, without its machine."""
    return as_recording(read_report(path), (str(path),))


def as_recording(report: Report, files: tuple[str, ...] = ()) -> Recording:
    """A report as a recording, without its machine."""
    steps, devices = _shares(report)
    both: dict[int, list[StepsOnDevice]] = {}
    for one in report.by_step_and_device:
        part = StepsOnDevice(device=one.device, steps=one.steps, counts=one.counts, times_s=one.times_s)
        both.setdefault(one.op, []).append(part)
    return Recording(
        workload=Workload(
            tuple(_op(op, tuple(steps.get(op.id, ())), tuple(devices.get(op.id, ())), tuple(both.get(op.id, ()))) for op in report.ops)
        ),
        format=report.input.format,
        files=files,
        hosts=report.input.hosts,
        devices=report.input.devices,
        steps=report.steps,
        coverage=report.coverage,
        memory=report.memory,
        notes=(*report.input.notes, f"read from a report on {report.machine.name}"),
    )


def _op(op: OpInfo, by_step: tuple[Share, ...], by_device: tuple[Share, ...], both: tuple[StepsOnDevice, ...]) -> Op:
    return Op(
        name=op.name,
        label=op.label_in_parts,
        cost=Cost.of({**op.work, **op.bytes, **op.hops}) + Cost.of(op.known),
        count=op.count,
        kernels=op.kernels,
        time_s=op.time_s,
        self_time_s=op.self_time_s,
        dma_stall_s=op.dma_stall_s,
        category=op.category,
        module=op.module,
        scope=op.scope,
        location=op.location,
        phase=op.phase,
        work_provenance=op.provenance.get("work", "user"),
        bytes_provenance=op.provenance.get("bytes", "user"),
        counters=Counters(cost=Cost.of({**op.counters.work, **op.counters.bytes}), time_s=op.counters.time_s) if op.counters else None,
        by_step=by_step,
        by_device=by_device,
        by_step_and_device=both,
        operation=op.operation,
        shapes=op.shapes,
        compiled=op.compiled or UNSTATED,
        avoidable=tuple([_avoidable(reason) for reason in op.avoidable]) if op.avoidable else (),
        notes=op.notes,
    )


def _avoidable(reason: AvoidableInfo) -> Avoidable:
    """Avoidable work as it was found; what another version calls otherwise gives no finding."""
    return Avoidable(
        kind=reason.kind if reason.kind in rule_kinds() else "",
        group=reason.group,
        cause=reason.cause,
        facts=reason.facts,
        why=reason.why,
        instead=Cost.of(reason.instead),
        besides=Cost.of(reason.besides),
        unneeded=reason.unneeded,
        factor=reason.factor,
        saves=_SAVES.get(reason.saves, Saves.IN_PROPORTION),
        usual=_USUAL.get(reason.usual, Usual.NO),
        extra=reason.extra,
        share=reason.share,
    )


def _shares(report: Report) -> tuple[dict[int, list[Share]], dict[int, list[Share]]]:
    steps: dict[int, list[Share]] = {}
    devices: dict[int, list[Share]] = {}
    for step in report.by_step:
        steps.setdefault(step.op, []).append(Share(key=step.step, count=step.count, time_s=step.time_s))
    for device in report.by_device:
        devices.setdefault(device.op, []).append(Share(key=device.device, count=device.count, time_s=device.time_s))
    return steps, devices
