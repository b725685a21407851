"""`roofline op chain`: every way to fuse a chain of ops into kernels, and the fastest that is possible."""

import argparse
from collections.abc import Sequence

from msgspec.structs import asdict

from ...errors import UsageError, did_you_mean
from ...fusing import ENUMERABLE, ChainReport, Fusion, Grouping, best, chain_report, every_fusion, fuse
from ...fusing.op_chain import StageSpec, chain
from ...ops.elementwise import POINTWISE
from ...render.export import Row
from ...render.tables import Cell, Paper, table
from ...render.text import notes_text
from ...units import parse, plain, show
from ..options import Parser, chosen_corrections, chosen_machine, correction_options, machine_options, output_options
from ..output import draw, emit


def parser() -> Parser:
    command = Parser(
        "op chain",
        f"Compare every way to fuse a chain of ops into kernels, and find the fastest possible one.\nops: {', '.join(POINTWISE)}",
        "roofline op chain layernorm gelu dropout add --shape 32x2048x4096 --chip v7x",
    )
    command.add_argument("op", nargs="+", metavar="OP", help="the ops in order; NAME:FLOPS defines your own, with its FLOP per element")
    command.add_argument(
        "--shape", required=True, metavar="AxBxC", help="shape of the tensor between the ops; reductions run along the last axis"
    )
    command.add_argument("--dtype", default="bf16", metavar="FORMAT", help="number format of the tensor (default bf16)")
    command.add_argument(
        "--second-operands",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="binary ops such as a residual add read a second tensor of the same shape (default)",
    )
    command.add_argument(
        "--keep", action="append", default=[], metavar="OP", help="the result of this op is used elsewhere and always written"
    )
    command.add_argument(
        "--groups",
        action="append",
        default=[],
        metavar="N,N…|A+B,C",
        help="only this grouping, by size or name: 2,2 or layernorm+gelu,dropout+add",
    )
    command.add_argument("--on-chip", metavar="BYTES", help="on-chip memory for a reduced row (default: the chip's)")
    machine_options(command)
    correction_options(command)
    output_options(command)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    machine = chosen_machine(args)
    corrections = chosen_corrections(args)
    shape = _shape(args.shape)
    stages = [_stage(word, number, args.second_operands) for number, word in enumerate(args.op, start=1)]
    # A TPU with a bf16 vector unit computes bf16 on it (without one the rate is that of fp32); compilers for GPUs widen to fp32 first.
    worker = None if machine.kind == "tpu" else "vector/fp32"
    line = chain(shape, args.dtype, stages, compute=worker, keep=[f"{name}.out" for name in args.keep])
    on_chip = None if args.on_chip is None else parse(args.on_chip, "B")
    winner = best(line, machine, on_chip_bytes=on_chip, corrections=corrections)
    if args.groups:
        found = tuple(fuse(line, _groups(text), machine, on_chip_bytes=on_chip, corrections=corrections) for text in args.groups)
    elif len(line) <= ENUMERABLE:
        found = every_fusion(line, machine, on_chip_bytes=on_chip, corrections=corrections)
    else:
        found = (fuse(line, [1] * len(line), machine, on_chip_bytes=on_chip, corrections=corrections), winner)
    report = chain_report(shape, args.dtype, machine, found, winner)
    emit(args, lambda page: _text(report, page), report, lambda: [_row(one) for one in report.groupings])
    if args.output:
        from ...render.plot import fusion_path

        draw(args, fusion_path(machine, _scenarios(found, winner), theme=args.theme))
    return 0


def _stage(word: str, number: int, second_operands: bool) -> StageSpec:
    """A stage of the chain from an op's name, or from ``NAME:FLOPS`` for a user-defined one."""
    name, colon, flops = word.partition(":")
    if colon:
        return StageSpec(name, parse(flops, "1"))
    facts = POINTWISE.get(name)
    if facts is None:
        raise UsageError(f"fuse: no op named {name!r}{did_you_mean(name, POINTWISE) or '; write NAME:FLOPS to define your own'}")
    extras = tuple(f"{name}.{number}.operand{extra}" for extra in range(facts.inputs)) if second_operands else ()
    return StageSpec(name, facts.flops, facts.transcendentals, extra_inputs=extras, reduces=facts.reduces)


def _scenarios(found: tuple[Fusion, ...], winner: Fusion) -> list[Fusion]:
    """The groupings to draw: the best for each number of kernels, from unfused to the winner."""
    least: dict[int, Fusion] = {}
    for one in (*found, winner):
        fastest = least.get(len(one.kernels))
        if one.legal and (fastest is None or one.time_s < fastest.time_s):
            least[len(one.kernels)] = one
    return [least[count] for count in sorted(least, reverse=True) if least[count].time_s >= winner.time_s]


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.replace("×", "x").replace(",", "x").split("x"))
    except ValueError:
        raise UsageError(f"--shape {text}: not a shape; write it like 32x2048x4096") from None
    if not all(size > 0 for size in sizes):
        raise UsageError(f"--shape {text}: sizes must be positive whole numbers")
    return sizes


def _groups(text: str) -> list[int] | list[list[str]]:
    parts = [part.strip() for part in text.split(",")]
    if all(part.isdecimal() for part in parts):
        return [int(part) for part in parts]
    return [part.split("+") for part in parts]


def _row(one: Grouping) -> Row:
    return {**asdict(one), "groups": ",".join("+".join(group) for group in one.groups), "reasons": "; ".join(one.reasons)}


def _text(report: ChainReport, page: Paper) -> str:
    rows: list[list[str | Cell]] = []
    for one in report.groupings:
        verdict = Cell("best", "green") if one.best else Cell("" if one.legal else "not possible", "" if one.legal else "red")
        rows.append(
            [
                " | ".join("+".join(group) for group in one.groups),
                str(one.kernels),
                show(one.bytes, "B", 3),
                plain(one.intensity, 3) if one.intensity else "–",
                show(one.attainable, "FLOP/s", 3),
                one.bound or "–",
                show(one.time_s, "s", 3),
                f"{one.speedup:.2f}x",
                verdict,
            ]
        )
    head = f"{page.paint('fusion', 'bold')} of {'x'.join(map(str, report.shape))} {report.dtype} on {report.machine}"
    body = table(["kernels", "n", "traffic", "FLOP/B", "attainable", "bound", "minimum", "speed-up", ""], rows, page)
    reasons = [reason for one in report.groupings for reason in one.reasons]
    return "\n\n".join(part for part in (head, body, notes_text([*report.notes, *reasons], page)) if part)
