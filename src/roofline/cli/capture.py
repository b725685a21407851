"""`roofline capture`: run a JAX program under the profiler, then hold what was recorded against the machine."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..capture.session import Profiled, Window, checked, profile
from ..units import parse, show
from .options import Parser, at_least, chosen_machine, machine_options, output_options
from .output import emit, talk, write
from .terminal import chart_options, charted

DATA = ("json", "csv", "parquet")


def parser() -> Parser:
    made = Parser(
        "capture",
        "Run a JAX program, unchanged, under JAX's profiler and analyse it when it ends; on TPU, GPU and CPU.\n"
        "The program keeps its input, output, exit status and signals. Whatever starts Python will do: a script, python -m, a console\n"
        "script; processes that it starts are recorded too. Steps marked with jax.profiler.StepTraceAnnotation are analysed one by one.\n"
        "The folder then holds plugins/profile/NAME/HOST.xplane.pb (TensorBoard reads it too), report.json and report.html.",
        "roofline capture -o run --skip 2 --steps 5 -- python train.py --batch 64",
    )
    made.usage = "roofline capture [options] -- PROGRAM [arguments]"
    made.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments, as you would run it")
    made.add_argument("-o", "--output", default="run", metavar="FOLDER", help="where profile and report go (default: run)")
    made.add_argument("--name", metavar="NAME", help="the run's name (default: the time); captures that share it are hosts of one run")
    made.add_argument("--top", type=at_least(0), default=20, metavar="N", help="ops to show in the table (default 20)")
    window = made.add_argument_group("what to record (default: everything from the first program on)")
    window.add_argument("--delay", metavar="TIME", default="0 s", help="begin this long after the first compilation: 20s")
    window.add_argument("--duration", metavar="TIME", help="record this long, and write the profile then, while the program runs on")
    window.add_argument("--skip", type=at_least(0), default=0, metavar="N", help="begin after this many annotated steps")
    window.add_argument("--steps", type=int, metavar="N", help="record this many annotated steps")
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
    )
    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    chosen_machine(args)  # a chip that nobody knows is better refused before the program runs than after
    data_to_stdout = any(getattr(args, option) == "-" for option in DATA)
    sys.stdout.flush()
    taken = profile(command, Path(args.output), window=window, name=args.name, stdout=sys.stderr.fileno() if data_to_stdout else None)
    if taken.status:
        return _after_failure(args, taken)
    _analyse(args, checked(taken))
    return 0


def _after_failure(args: argparse.Namespace, taken: Profiled) -> int:
    """What was recorded until a program failed is analysed too; the exit status stays the program's."""
    if taken.missing:
        talk(taken.missing)
    else:
        talk(f"the program ended with exit status {taken.status}; this is what it did until then")
        _analyse(args, taken)
    return taken.status


def _analyse(args: argparse.Namespace, taken: Profiled) -> None:
    from ..analysis import analyze
    from ..render.export import op_rows, to_json
    from ..render.page.report_page import report_page
    from ..render.text import report_text
    from ..sources import read

    for note in taken.notes:
        talk(note)
    for file in taken.files:
        talk(f"wrote {file} ({show(file.stat().st_size, 'B')})")
    recording = read(taken.folder)
    report = analyze(recording, chosen_machine(args, recording.devices))
    write(str(Path(args.output) / "report.json"), to_json(report))
    html = Path(args.output) / "report.html"
    write(str(html), report_page(report).encode())
    talk(f"wrote {html}")
    emit(args, charted(args, report, lambda page: report_text(report, page, args.top)), report, lambda: op_rows(report.ops))
