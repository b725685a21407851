"""`roofline chips measure`: measure this computer's CPU, GPU or TPU."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ...errors import UsageError
from ...machines.catalogue import card as look_up
from ...machines.catalogue import read_card
from ...machines.cpu import this_cpu
from ...machines.local import FOLDER_VARIABLE, local_file, local_gpu_file
from ...machines.measuring.cpu_measured import FULL_S, QUICK_S, compare_cpu, measure_cpu
from ...machines.measuring.finished_experiments import finish
from ...machines.measuring.gpu_conditions import conditions
from ...machines.measuring.tpu_devices import tpu_here
from ...machines.writing import write_machine_file
from ...render.machines import card_text
from ...units import show
from ..chips import ceiling_rows, listing
from ..options import Parser, output_options
from ..output import emit, write_message
from ..progress import progress

SUFFIX = ".toml"
FRAMEWORKS = ("torch", "jax")
DEVICES = ("cpu", "gpu", "tpu")


def parser() -> Parser:
    made = Parser(
        "chips measure",
        "Measure this computer: its GPU or TPU where PyTorch or JAX can use one, else its CPU. Measure while nothing else runs.\n"
        "CPU: vector rates and matrix products in fp32 and fp64 on one core and all cores, caches and main memory.\n"
        "GPU: matrix products in every number format, in bursts and sustained for seconds, with random operands and zeros; vector and\n"
        "transcendental rates; the memory levels that a sweep over working sets shows; launches, synchronisation, copies to the host.\n"
        "TPU: through JAX (jax[tpu]) matrix products in bf16, int8 and fp8, vector and transcendental rates, streams larger than VMEM,\n"
        "programs dispatched, copies to the host; copies between devices and all-reduces over them where there are several.\n"
        "The result becomes this computer's machine: --chip local (CPU, the default for CPU profiles), local-gpu or local-tpu.\n"
        "An interrupted measurement resumes when the same command runs again.",
        "roofline chips measure --quick\n  roofline chips measure --device gpu -o h200.toml\n"
        "  roofline chips measure --device tpu\n  roofline chips local",
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help=f"measure a CPU for at most {show(QUICK_S, 's')} instead of {show(FULL_S, 's')}, a GPU or TPU for under 20 s",
    )
    made.add_argument("--device", choices=DEVICES, help="what to measure (default: the GPU or TPU, if PyTorch or JAX can use one)")
    made.add_argument("--framework", choices=FRAMEWORKS, default="", help="measure the GPU through this one (default: PyTorch, else JAX)")
    made.add_argument(
        "-o",
        "--output",
        metavar="FILE.toml",
        type=_machine_file,
        help="write a machine file instead of saving the result as this computer's machine",
    )
    output_options(made, figure=False)
    made.epilog = f"{made.epilog}\n\nThe result is kept in ${FOLDER_VARIABLE}, else in the user's data folder."
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    kind = args.device or _accelerator() or "cpu"
    if kind == "tpu" and args.framework == "torch":
        raise UsageError("--framework torch: a TPU is measured through JAX")
    path = Path(args.output) if args.output else local_file(this_cpu()) if kind == "cpu" else local_gpu_file()
    try:
        compared = _cpu(args, path) if kind == "cpu" else _accelerated(args, kind, path)
    except KeyboardInterrupt:
        write_message("interrupted; run the same command again to resume")
        raise
    written = read_card(path)
    machines = (written.machine,)
    emit(args, lambda page: "\n".join([card_text(written, page), *compared]), listing(machines), lambda: ceiling_rows(machines))
    name = "local" if kind == "cpu" else f"local-{kind}"
    write_message(f"wrote {path}" if args.output else f"saved as this computer's machine (--chip {name}): {path}")
    return 0


def _cpu(args: argparse.Namespace, path: Path) -> list[str]:
    """Measure the CPU. Returns a sentence that compares the result with the catalogue's chip."""
    with progress("measuring this computer") as tell:
        card = measure_cpu(this_cpu(), quick=args.quick, target=path, tell=tell)
    write_machine_file(card, path)
    finish(path)
    return ["", *compare_cpu(card, this_cpu())]


def _accelerated(args: argparse.Namespace, kind: str, path: Path) -> list[str]:
    """Measure the GPU or TPU. Returns a sentence that compares the result with the catalogue's chip."""
    from ...machines.measuring.gpu_measured import compare_with_catalogue, measure_gpu

    with progress(f"measuring this {kind.upper()}") as tell:
        card = measure_gpu(path, quick=args.quick, kind=kind, framework=args.framework, tell=tell)
    write_machine_file(card, path)
    finish(path)
    return ["", *compare_with_catalogue(card, look_up(card.extends))] if card.extends else []


def _accelerator() -> str:
    """The kind of accelerator that is here with a library to measure it; empty where there is none."""
    if conditions() and any(find_spec(name) for name in FRAMEWORKS):
        return "gpu"
    return "tpu" if tpu_here() and find_spec("jax") and find_spec("libtpu") else ""


def _machine_file(name: str) -> str:
    """The machine file; an error for a name that cannot be written or read back, before anything is measured."""
    if not name.endswith(SUFFIX):
        raise UsageError(f"{name}: a machine file's name ends in {SUFFIX}")
    if not Path(name).absolute().parent.is_dir():
        raise UsageError(f"{name}: cannot write: no such folder")
    return name
