"""`roofline analyze FUNCTION` for several slices or meshes: each is compiled and its step predicted, and the best has the report.

The best takes the fewest chip-seconds a step, so it makes the most of a chip's hour. Compiled programs are cached: an interrupted run
goes on where it stopped.
"""

import argparse
import sys
from collections.abc import Sequence

from msgspec import Struct

from ...analysis import analyze
from ...errors import RooflineError, UsageError
from ...op_parts import exposed_s
from ...render.tables import Paper, table
from ...report import Report
from ...units import approximate, percent, rounded, show
from ...workload import Recording
from ..options import chosen_corrections, chosen_price, chosen_throughput
from ..options.slice_options import record_function
from ..output import paper

COLUMNS = ("slice", "mesh", "step", "interval", "exposed", "peak memory", "per chip-hour", "chip-seconds")


class Variant(Struct, frozen=True, kw_only=True):
    """A function on one slice and mesh: its recording and report, or why there is none."""

    chip: str
    mesh: str
    recording: Recording | None = None
    report: Report | None = None
    is_refused: bool = False
    reason: str = ""

    @property
    def chip_seconds(self) -> float:
        """The seconds of all chips that a step takes; without end where it does not run."""
        if self.report is None or self.report.predicted is None or self.is_refused:
            return float("inf")
        chips = self.report.predicted.devices / self.report.machine.devices_per_chip
        return self.report.predicted.time_s * max(chips, 1.0)


def variants(args: argparse.Namespace, chips: Sequence[str], meshes: Sequence[str]) -> list[Variant]:
    """The function of these arguments on each slice with each mesh, the best first."""
    made = []
    for chip in chips:
        made += [_variant(args, chip, mesh) for mesh in meshes]
    return sorted(made, key=lambda variant: variant.chip_seconds)


def _variant(args: argparse.Namespace, chip: str, mesh: str) -> Variant:
    own = argparse.Namespace(**{**vars(args), "chip": chip, "mesh": [mesh] if mesh else None})
    try:
        recording, is_refused, place = record_function(own, args.path[0])
        report = analyze(recording, place.machine, chosen_corrections(args), per_step=chosen_throughput(args), price=chosen_price(args))
    except UsageError as error:
        return Variant(chip=chip, mesh=mesh, reason=str(error))
    except RooflineError as error:
        return Variant(chip=chip, mesh=mesh, reason=str(error))
    return Variant(chip=place.machine.name, mesh=mesh, recording=recording, report=report, is_refused=is_refused)


def show_variants(found: Sequence[Variant]) -> None:
    """Write the table of variants to standard output."""
    sys.stdout.write(variants_text(found, paper()) + "\n\n")


def variants_text(found: Sequence[Variant], page: Paper) -> str:
    """The variants as a table, and why some did not run."""
    rows = [_row(variant) for variant in found]
    reasons = [f"{variant.chip} {variant.mesh}: {variant.reason}" for variant in found if variant.reason]
    return "\n".join([table(COLUMNS, rows, page, left=2), *map(page.paragraph, reasons)])


def _row(variant: Variant) -> list[str]:
    report = variant.report
    if report is None:
        return [variant.chip, variant.mesh, "not compiled", *[""] * 5]
    memory = report.memory
    needed = f"{show(memory.needed_bytes, 'B')} of {show(memory.capacity_bytes, 'B')}" if memory and memory.capacity_bytes else ""
    predicted = report.predicted
    if predicted is None or variant.is_refused:
        return [variant.chip, variant.mesh, "does not fit" if variant.is_refused else "", "", "", needed, "", ""]
    exposed = sum(exposed_s(op) for op in report.ops) / predicted.time_s
    rates = (
        [f"{approximate(rate.per_chip_hour)} {word}" for word, rate in report.main_point.throughput.items()] if report.main_point else []
    )
    return [
        variant.chip,
        variant.mesh,
        show(rounded(predicted.time_s, 3), "s"),
        f"{show(rounded(predicted.low_s, 2), 's')}-{show(rounded(predicted.high_s, 2), 's')}",
        percent(exposed),
        needed,
        ", ".join(rates),
        f"{variant.chip_seconds:.3g}",
    ]
