"""`roofline capture`: run a JAX or PyTorch program under the profiler and analyze the profile, or compile its step for a slice of TPUs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..analysis import open_report
from ..analysis.throughput import with_throughput, with_unprofiled
from ..capture.program import Profiled, Window, checked, profile
from ..errors import NoActivity
from ..grouping.folding import by_loss, table_rows
from ..render.export import op_rows, to_json
from ..render.page.report_page import report_page
from ..render.screen import report_text
from ..render.tables import Paper
from ..report import Report
from ..units import parse, show
from .options import (
    BROKEN,
    Parser,
    at_least,
    chosen_machine,
    chosen_price,
    chosen_throughput,
    machine_of,
    machine_options,
    output_options,
    screen_options,
    throughput_options,
)
from .options.slice_options import COMPILATION, STEP, compilation_options, refuse_compilation
from .output import emit, write, write_message
from .reading import read_options
from .terminal import chart, chart_options

DATA = ("json", "csv", "parquet")


def parser() -> Parser:
    made = Parser(
        "capture",
        "Run an unmodified JAX or PyTorch program under its profiler and analyze the profile when it ends; on TPU, GPU and CPU.\n"
        "Works with any command that starts Python (script, python -m, torchrun, console script), child processes and ranks included.\n"
        "Input, output, exit status and signals pass through. Steps are analyzed one by one: those marked with\n"
        "jax.profiler.StepTraceAnnotation; in PyTorch optimizer steps, else calls of the model.\n"
        "Writes plugins/profile/NAME/ with one profile per process (readable by TensorBoard), report.json and report.html.\n"
        "With --chip v6e:4x4, a slice of TPUs that is not here, a JAX program runs on the CPU up to its training step, which is compiled\n"
        "for the slice, not run: the report is predicted, and the compiled program is in program/. Exit status 3 if it does not fit.",
        "roofline capture -o run --skip 2 --steps 5 -- python train.py --batch 64\n"
        "  roofline capture -o run -- torchrun --nproc-per-node 8 train.py\n"
        "  roofline capture --chip v6e:4x4 -- python train.py",
    )
    made.usage = "roofline capture [options] -- PROGRAM [arguments]"
    made.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the command to run, with its arguments")
    made.add_argument("-o", "--output", default="run", metavar="FOLDER", help="output folder (default: run)")
    made.add_argument("--name", metavar="NAME", help="name of the run (default: the time); captures of the same name are hosts of one run")
    screen_options(made)
    window = made.add_argument_group("what to record (default: once a step ran without compiling)")
    window.add_argument("--from-start", action="store_true", help="record from the first program on, including its compilation")
    window.add_argument("--delay", metavar="TIME", default="0 s", help="start this long after the first program ran, such as 20s")
    window.add_argument("--duration", metavar="TIME", help="record this long, then write the profile while the program continues")
    window.add_argument("--skip", type=at_least(0), default=0, metavar="N", help="start after this many steps")
    window.add_argument("--steps", type=int, metavar="N", help="record this many steps (default: to the end; PyTorch: 10)")
    window.add_argument(
        "--python",
        action=argparse.BooleanOptionalAction,
        help="record Python calls too, to name modules and the line in idle time (slower, larger; default: PyTorch only)",
    )
    compilation_options(made, (STEP, *(value for value in COMPILATION if value.name != "save")))
    throughput_options(made)
    read_options(made, files=False)
    machine_options(made)
    output_options(made, figure=False)
    chart_options(made)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    window = Window(
        delay_s=parse(args.delay, "s"),
        duration_s=None if args.duration is None else parse(args.duration, "s"),
        skip=args.skip,
        steps=args.steps,
        from_start=args.from_start,
        python=args.python,
    )
    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    chosen_throughput(args), chosen_price(args)
    data_to_stdout = any(getattr(args, option) == "-" for option in DATA)
    sys.stdout.flush()
    stdout = sys.stderr.fileno() if data_to_stdout else None
    if args.chip and _is_slice_elsewhere(args.chip):
        from .forms.captured_step import compiled_step

        report, is_refused = compiled_step(args, command, stdout)
        _emit(args, report)
        return BROKEN if is_refused else 0
    refuse_compilation(args, "capture")
    chosen_machine(args)  # raises an error for an unknown chip before the program runs
    taken = profile(command, Path(args.output), window=window, name=args.name, stdout=stdout)
    if taken.status:
        return _after_failure(args, taken)
    _analyse(args, checked(taken))
    return 0


def _is_slice_elsewhere(chip: str) -> bool:
    """Whether a chip is a slice of TPUs, and this computer has no TPU."""
    from ..jax.tpu.slices import is_slice  # takes 50 ms to import, as what follows
    from ..machines.measuring.tpu_devices import tpu_here

    return is_slice(chip) and not tpu_here()


def _after_failure(args: argparse.Namespace, taken: Profiled) -> int:
    """Analyze what was recorded before the program failed; the exit status is the program's."""
    if taken.missing:
        write_message(taken.missing)
    else:
        write_message(f"the program failed with exit status {taken.status}; analyzing what was recorded before")
        _analyse(args, taken)
    return taken.status


def _analyse(args: argparse.Namespace, taken: Profiled) -> None:
    for note in taken.notes:
        write_message(note)
    for file in taken.files:
        write_message(f"wrote {file} ({show(file.stat().st_size, 'B')})")
    try:
        report = open_report(taken.folder, machine_of(args), timeline=True).report
    except NoActivity:
        if args.from_start:
            raise
        raise NoActivity(
            f"{taken.folder}: nothing ran on a device while the program was recorded; use --from-start to record everything"
        ) from None
    report = with_unprofiled(report, taken.unprofiled_s)
    _emit(args, with_throughput(report, chosen_throughput(args), chosen_price(args)))


def _emit(args: argparse.Namespace, report: Report) -> None:
    """Write a report to the folder and to the requested outputs."""
    write(str(Path(args.output) / "report.json"), to_json(report))
    html = Path(args.output) / "report.html"
    write(str(html), report_page(report).encode())
    write_message(f"wrote {html}")
    rows = by_loss(table_rows(report))

    def text(page: Paper) -> str:
        return report_text(report, page, args.top, rows, chart=chart(args, report, rows, page), details=args.details)

    emit(args, text, report, lambda: op_rows(report.ops))
