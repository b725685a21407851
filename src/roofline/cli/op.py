"""`roofline op`: cost and minimum time of one operation from its shapes."""

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from ..analysis import price
from ..dtypes import dtype
from ..errors import UsageError
from ..formulas import Formula, lookup
from ..ledger import Ledger
from ..machine import Machine
from ..operation import Attention, Product
from ..placement import fit
from ..render.text import op_text
from ..units import parse, show
from .formula import add_dimensions, add_options, chosen_ledger, listing, own_network
from .options import Parser, chosen_corrections, chosen_machine, correction_options, machine_options, output_options
from .output import emit_report

SUMMARY = "Cost, minimum and expected time of one operation from its shapes: FLOP, bytes, bound, attainable rate."
QUANTIZED = ("matmul", "batched_matmul")
ATTENTION = ("attention", "attention_decode")
USAGE = """\
usage: roofline op FORMULA DIMENSIONS [options]
       roofline op FORMULA --free NAME [--DIMENSION SIZE|inf …]   the size at which it becomes compute-bound
       roofline op --flops F --bytes B [--time T]                 given work on the roofline
       roofline op chain OP OP … --shape AxB                      every way to fuse a chain of ops"""
EXAMPLE = "roofline op matmul 8192 8192 8192 --chip v5e --dtype bf16 --weights int8"


def parser(formula: Formula) -> Parser:
    command = Parser(
        f"op {formula.name}", formula.documentation, f"roofline op {formula.name} {' '.join(map(str, formula.example))} --chip h100"
    )
    add_dimensions(command, formula)
    add_options(command, formula)
    command.add_argument("--time", metavar="TIME", help="measured time to compare with the minimum, such as 5ms")
    command.add_argument(
        "--floor",
        metavar="TIME",
        help="how long the smallest op takes on your machine, such as 3.1us; expected times start from it, from 3.5us on as of single "
        "launches with a cold L2 (default: that of the chip's calibration)",
    )
    if formula.name in QUANTIZED:
        command.add_argument(
            "--quantize",
            nargs="?",
            const="per-tensor",
            choices=("per-tensor", "per-token"),
            help="expected time includes quantizing the activations to 8 bits, with one scale (per-tensor, the default, as cuBLAS layers "
            "do) or one per row (per-token, as CUTLASS layers do)",
        )
    if formula.name in ATTENTION:
        command.add_argument(
            "--library",
            choices=("fa3", "cudnn"),
            default="fa3",
            help="kernel to predict: FlashAttention 3 in a serving framework, which also writes the cache (default), or cuDNN",
        )
    machine_options(command)
    correction_options(command)
    output_options(command, page=True)
    return command


def run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help", "--list"):
        sys.stdout.write(f"{SUMMARY}\n\n{USAGE}\n\n{listing()}\n\nexample:\n  {EXAMPLE}\n")
        return 0 if words else 2
    formula = lookup(words[0])
    args = parser(formula).parse_args(words[1:])
    machine = chosen_machine(args)
    note = own_network(args, formula, machine)
    ledger = chosen_ledger(args, formula)
    ledger = ledger.named(ledger.name, note) if note else ledger
    time_s = None if args.time is None else parse(args.time, "s")
    if getattr(args, "quantize", None):
        ledger = _quantized(ledger, args.quantize)
    if getattr(args, "library", "") == "cudnn" and isinstance(ledger.operation, Attention):
        ledger = replace(ledger, operation=replace(ledger.operation, library="cudnn"))
    floor_s = None if args.floor is None else parse(args.floor, "s")
    report = price([ledger], machine, time_s=time_s, corrections=chosen_corrections(args), launch_floor_s=floor_s)
    room = _fits_line(float(ledger.footprint()), machine)
    emit_report(args, report, lambda page: op_text(report, page, room))
    return 0


def _quantized(ledger: Ledger, how: str) -> Ledger:
    """A product whose activations are quantized to 8 bits first."""
    product = ledger.operation
    if not isinstance(product, Product) or dtype(product.compute).bits != 8:
        raise UsageError("--quantize: activations become 8 bits wide for arithmetic in 8 bits; add --dtype fp8 or --dtype int8")
    return replace(ledger, operation=replace(product, quantize=how))


def _fits_line(needed: float, machine: Machine) -> str:
    """A line on whether the tensors fit in main memory."""
    memory = fit(needed, machine)
    if memory is None or not needed:
        return ""
    there = f"{show(memory.capacity, 'B')} on {machine.name}"
    if memory.fits:
        return f"memory: {show(needed, 'B')} of {there}, {show(memory.spare, 'B')} free"
    return f"memory: {show(needed, 'B')} does not fit in {there}; {show(-memory.spare, 'B')} too much"
