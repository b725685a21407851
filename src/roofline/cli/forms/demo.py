"""`roofline chips demo`: a roofline of this computer, from a quick measurement and a small program."""

import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ...errors import MachineError, UsageError
from ...integrations.demo_programs import fused_and_unfused, run_jax, run_numpy
from ...machine import Machine
from ...machines.cpu import this_cpu
from ...machines.local import local_card
from ...machines.measuring.cpu_measured import measure_cpu
from ...render.export import op_rows
from ...render.screen import report_text
from ...render.views import save
from ...units import parse, show
from ..options import PAGES, Parser, output_options
from ..output import emit, write_message
from ..progress import progress

MEASURE_S = parse("8 s", "s")
PAGE = "roofline-demo.html"
TOP = 12


def parser() -> Parser:
    command = Parser(
        "chips demo",
        f"A roofline of this computer in under a minute: measures the CPU for about {show(MEASURE_S, 's')}, runs a small program (JAX if\n"
        "installed, else NumPy) with a matmul, attention, a normalisation and an elementwise chain, fused and unfused, and opens the\n"
        "page.",
        "roofline chips demo\n  roofline chips demo --no-open -o demo.html",
    )
    command.add_argument("-o", "--page", default=PAGE, type=_page, metavar="FILE.html", help=f"where the page is written (default {PAGE})")
    command.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    command.add_argument("--framework", choices=("jax", "numpy"), help="what runs the program (default: JAX if installed)")
    output_options(command, figure=False)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    machine = _measured()
    with progress("running a small program"):
        use_jax = args.framework == "jax" or (args.framework is None and find_spec("jax") is not None)
        report = run_jax(machine) if use_jax else run_numpy(machine)
    save(report, args.page)
    emit(args, lambda page: f"{report_text(report, page, TOP)}\n\n{fused_and_unfused(report)}", report, lambda: op_rows(report.ops, report))
    write_message(f"wrote {args.page}")
    if not args.no_open:
        webbrowser.open(Path(args.page).absolute().as_uri())
    return 0


def _page(name: str) -> str:
    """The output file; an error for a name without .html, before anything is measured."""
    if not name.endswith(PAGES):
        raise UsageError(f"{name}: the page needs a name that ends in .html")
    return name


def _measured() -> Machine:
    """This computer's CPU, measured now; the stored or estimated rates if it is too busy."""
    with progress("measuring this computer") as tell:
        try:
            return measure_cpu(this_cpu(), quick=True, budget_s=MEASURE_S, tell=tell).machine
        except MachineError as error:
            write_message(f"{error}; using the rates known or estimated before")
            return local_card().machine
