"""`roofline capture --chip v6e:4x4 -- python train.py`: the step, compiled for a slice of TPUs that is not here instead of run."""

import argparse
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ...analysis import open_report
from ...capture.step import Step, step_of
from ...errors import UsageError
from ...jax.tpu import portable
from ...jax.tpu.compiling import Job, why_not_here
from ...report import Report
from ..options import chosen_price, chosen_throughput, machine_of
from ..options.slice_options import advise_changes, record, slice_job
from ..output import write_message
from .make_it_fit import attempts
from .slice_variants import emit_variants


def compiled_step(args: argparse.Namespace, command: Sequence[str], stdout: int | None) -> tuple[Report, bool]:
    """The report on the step of a program, and whether it does not fit; the program is kept in the output folder."""
    if reason := why_not_here():
        raise UsageError(reason)
    asked = slice_job(args, "capture")
    step = _traced(args, command, asked, stdout)
    write_message(f"compiling instead of running {step.title}; another function: --compile step=NAME")
    for assumed in step.assumed:
        write_message(assumed)
    if step.zeros_of:
        write_message(f"too large to run here, with zeros as results: {', '.join(step.zeros_of)}")
    args.save = str(Path(args.output) / "program")
    recording, is_refused = record(args, _job(asked, step))
    write_message(f"wrote {args.save}")
    args.save, args.chip = None, asked.slice.machine.name
    report = open_report(recording, machine_of(args), per_step=chosen_throughput(args), price=chosen_price(args)).report
    if is_refused and args.make_it_fit:

        def job_of(changes: tuple[str, ...] = (), mesh: Mapping[str, int] | None = None) -> Job:
            changed = replace(asked, changes=changes, mesh=mesh or asked.mesh)
            return _job(changed, _traced(args, command, changed, subprocess.DEVNULL))

        tried = attempts(args, job_of, recording)
        emit_variants(args, tried)
        report = replace(report, variants=tuple(tried))
    elif is_refused:
        advise_changes(recording)
    return report, is_refused


def _traced(args: argparse.Namespace, command: Sequence[str], job: Job, stdout: int | None) -> Step:
    return step_of(
        command,
        job.slice.devices,
        named=args.step or "",
        mesh=job.mesh,
        batch=job.batch_args,
        shard=job.shard,
        changes=job.changes,
        folder=Path(args.output),
        stdout=stdout,
    )


def _job(asked: Job, step: Step) -> Job:
    program = portable(asked, step.portable, step.name, step.axes, step.assumed, step.whole)
    return replace(program, python=step.python if step.has_compiler else "")
