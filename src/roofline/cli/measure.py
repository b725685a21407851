"""`roofline measure`: measure this computer's CPU."""

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..machines.catalogue import read_card
from ..machines.cpu import this_cpu
from ..machines.cpu_measured import FULL_S, QUICK_S, measure_cpu
from ..machines.local import FOLDER_VARIABLE, local_file
from ..machines.writing import keep
from ..render.machines import card_text
from ..units import show
from .chips import ceiling_rows, listing
from .options import Parser, output_options
from .output import emit, talk
from .progress import progress

SUFFIX = ".toml"


def parser() -> Parser:
    made = Parser(
        "measure",
        "Measure this computer's CPU: vector rates and matrix products in fp32 and fp64 on one core and all cores,\n"
        "and the bandwidth of its caches and main memory. The best of many tries counts; measure while nothing else runs.\n"
        "The result becomes this computer's machine: --chip local, and the default for CPU profiles.",
        "roofline measure --quick\n  roofline measure -o workstation.toml\n  roofline chips local",
    )
    made.add_argument("--quick", action="store_true", help=f"measure for {show(QUICK_S, 's')} at most, not for {show(FULL_S, 's')}")
    made.add_argument("-o", "--output", metavar="FILE.toml", type=_machine_file, help="write a machine file instead of keeping the result")
    output_options(made, figure=False)
    made.epilog = f"{made.epilog}\n\nThe result is kept in ${FOLDER_VARIABLE}, else in the user's data folder."
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    cpu = this_cpu()
    with progress("measuring this computer") as tell:
        card = measure_cpu(cpu, quick=args.quick, tell=tell)
    path = Path(args.output) if args.output else local_file(cpu)
    keep(card, path)
    written = read_card(path)
    machines = (written.machine,)
    emit(args, lambda page: card_text(written, page), listing(machines), lambda: ceiling_rows(machines))
    talk(f"wrote {path}" if args.output else f"kept as this computer's machine (--chip local): {path}")
    return 0


def _machine_file(name: str) -> str:
    """Refuse a name that could not be written or read back, before anything is measured."""
    if not name.endswith(SUFFIX):
        raise UsageError(f"{name}: a machine file's name ends in {SUFFIX}")
    if not Path(name).absolute().parent.is_dir():
        raise UsageError(f"{name}: cannot write: no such folder")
    return name
