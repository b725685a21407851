"""Validation: whether counts, peaks and times agree, by five acceptance checks.

Each check reports what it expected, what it found, and which input is wrong where they differ: the bytes or FLOP of an op, the peak of
another unit or format, missing communication, a time of the wrong clock. A check that cannot be made says so and does not fail.
"""

from collections.abc import Sequence
from pathlib import Path

from ...machine import Machine
from ...machines import load
from ...machines.detection import machine_for
from ...report import Report
from ...workload import Recording
from .. import open_report
from .acceptance import LEVER, AcceptanceCheck, Validation, made_check
from .counts import classification
from .rates import distributed_flip, format_thresholds
from .times import time_bounds


def validate(
    source: Report | Recording | str | Path | Sequence[str | Path],
    machine: Machine | str | None = None,
    *,
    lever: AcceptanceCheck | None = None,
) -> Validation:
    """Run the acceptance checks on a report, a recording, or the path of either: ``validate("run/").holds``.

    Without a ``machine`` it is the report's, else the profile's own device. ``lever`` is the result of a lever test, as run by
    `roofline.jax.validate`.
    """
    if isinstance(source, Report):
        report = source
    else:
        target = load(machine) if isinstance(machine, str) else machine or machine_for
        report = open_report(source, target, again=machine is not None).report
    return validate_report(report, lever)


def validate_report(report: Report, lever: AcceptanceCheck | None = None) -> Validation:
    """The checks of a report."""
    return Validation(
        source=", ".join(report.input.files) or report.input.format,
        machine=report.machine.name,
        checks=(
            classification(report),
            time_bounds(report),
            lever or _no_lever(),
            format_thresholds(report),
            distributed_flip(report),
        ),
    )


def _no_lever() -> AcceptanceCheck:
    return made_check(
        LEVER,
        "the time to follow the bound when the batch is doubled",
        "nothing was run",
        notes=("a lever test needs a program to run: roofline validate MODULE:FUNCTION --args …, on the device in question",),
        checked=False,
    )
