"""`roofline analyze FUNCTION` for several slices or meshes, or after changes: each is compiled and its step predicted, and all are ranked.

The best takes the fewest chip-seconds a step, so it makes the most of a chip's hour. Compiled programs are cached: an interrupted run
goes on where it stopped.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from ...analysis import analyze
from ...errors import RooflineError
from ...jax.tpu.compiling import end_all, free_bytes
from ...placement import IDEAL
from ...render.export import Row
from ...render.tables import Paper, table
from ...report import Report, VariantInfo
from ...sources.cores import cores
from ...units import approximate, parse, percent, rounded, show
from ...workload import Recording
from ..options import chosen_corrections, chosen_price, chosen_throughput
from ..options.slice_options import each_slice, function_job, record
from ..output import emit

if TYPE_CHECKING:
    from ...jax.tpu.compiling import Job

MOST_BYTES = parse("4 GiB", "B")  # of a compilation: training steps of up to 70B take 1.6 GB
SLICES = ("slice", "mesh", "step", "interval", "exposed", "peak memory", "per chip-hour", "chip-seconds")
CHANGES = ("change", "step", "interval", "exposed", "peak memory", "per chip-hour", "chip-seconds")


class Variant(Struct, frozen=True, kw_only=True):
    """A variant with its recording, and whether the compiler refused it because it does not fit."""

    info: VariantInfo
    recording: Recording | None = None
    is_refused: bool = False


def variants(args: argparse.Namespace) -> list[Variant]:
    """The function of these arguments on each slice with each mesh, the best first."""
    each = list(each_slice(args))

    def of_slice(own: argparse.Namespace) -> Variant:
        return variant(args, partial(function_job, own, args.path[0]), VariantInfo(chip=own.chip, mesh=",".join(own.mesh or ())))

    with ThreadPoolExecutor(len(each) if getattr(args, "cluster", None) else at_once()) as threads:
        try:
            return sorted(threads.map(of_slice, each), key=lambda variant: rank(variant.info))
        except BaseException:  # Ctrl-C, which only this thread is told
            end_all()
            raise


def at_once() -> int:
    """How many programs are compiled at the same time: two where memory and cores allow it, as one keeps two cores busy at times."""
    return 2 if cores() > 2 and free_bytes() > 2 * MOST_BYTES else 1


def variant(args: argparse.Namespace, job_of: "Callable[[], Job]", named: VariantInfo) -> Variant:
    """A compiled function, or why it is not compiled."""
    try:
        job = job_of()
        recording, is_refused = record(args, job)
        corrections = chosen_corrections(args) if "overlap" in args else IDEAL
        report = analyze(recording, job.slice.machine, corrections, per_step=chosen_throughput(args), price=chosen_price(args))
    except RooflineError as error:
        return Variant(info=_failed(named, error))
    return Variant(info=_described(report, named, is_refused), recording=recording, is_refused=is_refused)


def _failed(named: VariantInfo, error: RooflineError) -> VariantInfo:
    return VariantInfo(chip=named.chip, mesh=named.mesh, change=named.change, reason=str(error))


def _described(report: Report, named: VariantInfo, is_refused: bool) -> VariantInfo:
    memory, predicted = report.memory, report.predicted
    chips = max(predicted.devices / report.machine.devices_per_chip, 1.0) if predicted else 1.0
    runs = predicted is not None and not is_refused
    return VariantInfo(
        chip=report.machine.name,
        mesh=named.mesh,
        change=named.change,
        fits=not is_refused,
        step_s=predicted.time_s if predicted and runs else None,
        low_s=predicted.low_s if predicted and runs else None,
        high_s=predicted.high_s if predicted and runs else None,
        exposed_s=sum(op.exposed_s for op in report.ops) if runs else None,
        needed_bytes=memory.needed_bytes if memory else None,
        capacity_bytes=memory.capacity_bytes if memory else None,
        chip_seconds=predicted.time_s * chips if predicted and runs else None,
        per_chip_hour={word: rate.per_chip_hour for word, rate in report.main_point.throughput.items()}
        if report.main_point and runs
        else {},
    )


def rank(info: VariantInfo) -> list[float]:
    """What orders variants: the chip-seconds of a step, and where there is none, the memory that is needed."""
    return [float("inf") if amount is None else float(amount) for amount in (info.chip_seconds, info.needed_bytes)]


def variants_text(found: Sequence[VariantInfo], page: Paper) -> str:
    """The variants as a table, and why some were not compiled."""
    changes = any(info.change for info in found)
    columns = CHANGES if changes else SLICES
    rows = [
        [f"{info.change} {info.mesh}".rstrip(), *_figures(info)] if changes else [info.chip, info.mesh, *_figures(info)]
        for info in found
        if info.fits is not None
    ]
    reasons = [f"not compiled: {f'{info.change or info.chip} {info.mesh}'.rstrip()}: {info.reason}" for info in found if info.reason]
    known = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    rows = [[row[place] for place in known] for row in rows]
    left = sum(columns[place] in ("change", "slice", "mesh") for place in known)
    shown = [table([columns[place] for place in known], rows, page, left=left)] if rows else []
    return "\n".join([*shown, *map(page.paragraph, reasons)])


def _figures(info: VariantInfo) -> list[str]:
    needed = f"{show(info.needed_bytes, 'B')} of {show(info.capacity_bytes, 'B')}" if info.needed_bytes and info.capacity_bytes else ""
    if info.step_s is None or info.low_s is None or info.high_s is None:
        return ["" if info.fits else "does not fit", "", "", needed, "", ""]
    return [
        show(rounded(info.step_s, 3), "s"),
        f"{show(rounded(info.low_s, 2), 's')}-{show(rounded(info.high_s, 2), 's')}",
        percent((info.exposed_s or 0.0) / info.step_s),
        needed,
        ", ".join(f"{approximate(rate)} {word}" for word, rate in info.per_chip_hour.items()),
        f"{info.chip_seconds:.3g}",
    ]


def variant_rows(found: Sequence[VariantInfo]) -> list[Row]:
    """The variants as rows of a table."""
    words = dict.fromkeys(word for info in found for word in info.per_chip_hour)
    return [
        {
            **{name: value for name, value in asdict(info).items() if name != "per_chip_hour"},
            **{f"{word}_per_chip_hour": info.per_chip_hour.get(word) for word in words},
        }
        for info in found
    ]


def emit_variants(args: argparse.Namespace, found: Sequence[VariantInfo]) -> None:
    """Write variants above their report, and instead of its ops to tables; JSON has both."""
    if args.json != "-":
        own = argparse.Namespace(**{**vars(args), "json": None})
        emit(own, lambda page: variants_text(found, page) + "\n", found, lambda: variant_rows(found))
    args.csv = args.parquet = None
