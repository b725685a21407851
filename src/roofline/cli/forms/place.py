"""`roofline op --flops F --bytes B`: given FLOP, bytes and a time on a chip's roofline."""

from collections.abc import Sequence

from ...analysis import analyze
from ...cost import Amount, Cost
from ...dtypes import dtype
from ...errors import UsageError
from ...formulas.collective import wiring
from ...render.text import op_text
from ...resource import HBM, SCALE_UP, Resource, check_known
from ...workload import Op, Recording, Workload
from ..formula import links_note
from ..options import Parser, chosen_corrections, chosen_machine, correction_options, machine_options, output_options, quantity, rated
from ..output import emit_report


def parser() -> Parser:
    command = Parser(
        "op",
        "Place given FLOP, bytes and a measured time on a chip's roofline.",
        "roofline op --flops 2e12 --bytes 3e9 --time 5ms --chip h100",
    )
    command.add_argument("--flops", metavar="AMOUNT", help='FLOP: 2e12, 2T or "2 TFLOP"')
    command.add_argument("--bytes", metavar="AMOUNT", help='main-memory traffic: 3e9, 3G or "3 GB"')
    command.add_argument("--time", metavar="TIME", help="measured time: 5ms")
    command.add_argument("--dtype", default="bf16", metavar="FORMAT", help="number format of the arithmetic (default bf16)")
    command.add_argument("--unit", default="matrix", choices=("matrix", "vector"), help="unit that does the arithmetic (default matrix)")
    command.add_argument(
        "--use", action="append", default=[], metavar="RESOURCE=AMOUNT", help='amount on any other resource: --use nvlink="1 GB"'
    )
    command.add_argument("--name", default="work", metavar="NAME", help="name of the op in the output")
    machine_options(command)
    correction_options(command)
    output_options(command, page=True)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    machine = chosen_machine(args)
    amounts: dict[Resource, Amount] = {}
    notes: list[str] = []
    if args.flops is not None:
        amounts[Resource(f"{args.unit}/{dtype(args.dtype).rate}")] = quantity(args.flops, "FLOP", "--flops")
    if args.bytes is not None:
        amounts[HBM] = quantity(args.bytes, "B", "--bytes")
    for word in args.use:
        name, equals, amount = word.partition("=")
        if not equals:
            raise UsageError(f"--use {word}: write RESOURCE=AMOUNT, such as nvlink=1GB")
        resource = Resource(name.strip())
        check_known(resource, rated(machine), "--use")
        amounts[resource] = quantity(amount.strip(), resource.measure, f"--use {name.strip()}")
        own = machine.ceiling(resource) if resource.name in SCALE_UP else None
        if own and (links := wiring(own)[1]) > 1:  # as op does
            amounts[resource] = amounts[resource] / links
            notes.append(links_note(own, links))
    if not amounts:
        raise UsageError("op: nothing to place; give --flops, --bytes or --use")
    time_s = None if args.time is None else quantity(args.time, "s", "--time")
    op = Op(name=args.name, cost=Cost.of(amounts), time_s=time_s, notes=tuple(notes))
    report = analyze(Recording(workload=Workload((op,)), format="formula"), machine, chosen_corrections(args))
    emit_report(args, report, lambda page: op_text(report, page))
    return 0
