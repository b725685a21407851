"""What is read of small recordings, approved by eye: `python tests/recordings.py [NAME ...]` writes the texts anew.

Each recording of `data/recordings` has a text beside it: first, after ``#``, what it is and by which arithmetic its figures come about,
then the coverage, devices, steps, operations, reasons to be idle and notes that `roofline.sources.read` finds in it. Of a program
(`NAME.PLATFORM.hlo.gz`) it has the operations, and what of their work could be avoided.
"""

import gzip
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evidence import reviewed_program
from roofline.cost import Cost
from roofline.hlo.read import parse
from roofline.rules.words import observed
from roofline.sources import read
from roofline.workload import Avoidable, Op, Recording, Share

FOLDER = Path(__file__).parent / "data" / "recordings"


def recordings() -> dict[str, Path]:
    """The recordings by their names."""
    return {path.name.partition(".")[0]: path for path in sorted(FOLDER.glob("*.gz"))}


def reasons(name: str) -> str:
    """The head of a text, which a person writes."""
    text = FOLDER / f"{name}.txt"
    return "".join(line for line in text.read_text().splitlines(keepends=True) if line.startswith("#")) if text.exists() else ""


def text_of(name: str) -> str:
    """What is read of a recording now, below the reasons."""
    return reasons(name) + "".join(f"{line}\n" for line in lines(recording_of(recordings()[name])))


def recording_of(path: Path) -> Recording:
    """What is read of a recording, or of a program on the platform in its name."""
    _, platform, *form = path.name.split(".")
    if form != ["hlo", "gz"]:
        return read(path)
    module = parse(gzip.decompress(path.read_bytes()), path.name)
    return Recording(workload=reviewed_program(module, platform), format="hlo")  # type: ignore[arg-type]


def lines(recording: Recording) -> Iterator[str]:
    """What a recording holds, a line each."""
    cover = recording.coverage
    if cover.wall_s is not None:
        yield times(wall=cover.wall_s, busy=cover.busy_s, attributed=cover.attributed_s, priced=cover.priced_s, stalled=cover.dma_stall_s)
    if cover.before_steps_s:
        yield times(before_steps=cover.before_steps_s)
    for device in recording.devices:
        hardware = device.hardware
        words = device.host, device.name, hardware.vendor, hardware.capability, amounts(device.rates)
        yield f"device {device.id} {' '.join(filter(None, words))}"
    for step in recording.steps:
        marks = {"cut short": not step.complete, "last": not step.followed, "warm-up": not step.steady, "compiled": step.compiled}
        words = times(time=step.time_s, span=step.span_s, busy=step.busy_s), *(mark for mark, holds in marks.items() if holds)
        yield f"step {step.name} {step.number}: {', '.join(words)}"
    for op in recording.workload:
        yield from op_lines(op)
    for reason in recording.idle:
        words = f"{seconds(reason.time_s)} in {reason.gaps} gaps", reason.activity, reason.location, reason.cause
        yield f"idle {reason.kind}: {', '.join(filter(None, words))}{shares_text('step', reason.by_step)}"
    for note in recording.notes:
        yield f"note {note.replace(f'{FOLDER}/', '')}"


def op_lines(op: Op) -> Iterator[str]:
    """An operation: what and where it is, its times, its cost, its shares, and what is doubtful about it."""
    where = " ".join(filter(None, (str(op.label), op.module, op.scope, op.location, op.phase)))
    yield f"op {op.name} [{op.category}] {where}".rstrip()
    if op.time_s is not None:
        yield f"  {op.count:g} times in {op.kernels or 0:g} kernels: {times(time=op.time_s, self=op.self_time_s, stalled=op.dma_stall_s)}"
    yield f"  {amounts(op.cost)}, by {op.work_provenance} and {op.bytes_provenance}"
    yield from map(reason_line, sorted(op.avoidable, key=lambda reason: (reason.kind, reason.group)))
    yield from filter(None, (shares_text("step", op.by_step), shares_text("device", op.by_device if len(op.by_device) > 1 else ())))
    for note in op.notes:
        yield f"  note {note}"


def shares_text(kind: str, shares: Sequence[Share]) -> str:
    """Parts of an operation or of a reason, by what they belong to."""
    parts = ", ".join(f"{share.key}: {share.count:g} in {seconds(share.time_s)}" for share in shares)
    return f"  by {kind} {parts}" if parts else ""


def reason_line(reason: Avoidable) -> str:
    """What of an operation's work could be avoided: why, how many times the needed work that is, and what would be left to do."""
    words = f"factor {reason.factor:.6g}" if reason.factor else "", f"left {amounts(reason.instead) or 'nothing'}"
    besides = f"besides {amounts(reason.besides)}" if reason.besides.amounts else ""
    why = f"{reason.kind}/{reason.group}".rstrip("/"), *filter(None, (*words, besides)), observed(reason)
    return f"  could be avoided: {'; '.join(why)}"


def amounts(work: Cost | Mapping[str, float]) -> str:
    """Amounts by resource, smaller names first."""
    named = {str(resource): work[resource] for resource in work}  # type: ignore[index]
    return ", ".join(f"{name} {'unknown' if amount is None else f'{amount:.10g}'}" for name, amount in sorted(named.items()))


def times(**values: float | None) -> str:
    return ", ".join(f"{name} {seconds(value)}" for name, value in values.items() if value is not None)


def seconds(value: float) -> str:
    return f"{value * 1e6:.7g} us"


if __name__ == "__main__":
    for name in sys.argv[1:] or recordings():
        (FOLDER / f"{name}.txt").write_text(text_of(name))
