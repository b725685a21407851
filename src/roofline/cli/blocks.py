"""`roofline blocks`: the block sizes of a Triton or Pallas kernel, ranked by predicted time."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ..blocks.results import Blocks
from ..errors import UsageError
from ..integrations.kernel_blocks import blocks as predict
from ..render.blocks.text import TOP, block_rows, blocks_text, explanation
from ..render.tables import Paper
from .functions import load_function
from .options import Parser, at_least, output_options
from .output import emit, write_page
from .plan import page_name
from .progress import progress

ARGUMENTS = ("kernel", "args", "grid", "space")
DEFAULT = "h200"


def parser() -> Parser:
    command = Parser(
        "blocks",
        "Which block sizes, warps and stages a Triton or Pallas kernel should have on a chip: each configuration is compiled here, "
        "without the device, and its time predicted from what the compiler says; ranked, with what limits each, or why it cannot run.",
        "roofline blocks kernels:matmul_case --chip h200",
    )
    command.add_argument(
        "case",
        metavar="MODULE:CASE",
        help="a function that returns the kernel, its arguments, the grid and the space: the arguments of rl.blocks",
    )
    command.add_argument("--chip", metavar="NAME", help=f"chip name (default: the case's, else {DEFAULT})")
    command.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="NAME=VALUE,…",
        help="values to try instead of the case's: --space BM=64,128 --space num_warps=4,8",
    )
    command.add_argument("--top", type=at_least(1), default=TOP, metavar="N", help=f"configurations to list (default {TOP})")
    command.add_argument(
        "--explain",
        type=at_least(1),
        nargs="?",
        const=1,
        metavar="RANK",
        help="where the cycles of a configuration go, line by line of the source (default: of the best)",
    )
    command.add_argument(
        "--measure", type=at_least(1), default=0, metavar="N", help="time the best N on the GPU of this machine, beside the predicted times"
    )
    output_options(command, figure=False)
    command.add_argument("-o", "--output", type=page_name, metavar="FILE.html", help="write a page: every configuration on the roofline")
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    case = case_of(args.case, load_function("blocks", args.case)())
    space = with_values(case.get("space"), space_of(args.space))
    chip = args.chip or case.get("chip", DEFAULT)
    named = {name: value for name, value in case.items() if name not in (*ARGUMENTS, "chip")}
    with progress("compiling configurations") as tell:
        blocks = predict(
            case["kernel"], case["args"], grid=case.get("grid"), chip=chip, space=space, measure=args.measure, progress=tell, **named
        )
    emit(args, lambda page: _text(args, blocks, page), blocks, lambda: block_rows(blocks))
    if args.output:
        from ..machines import load
        from ..render.blocks.page import blocks_page

        write_page(args, blocks_page(blocks, load(chip)))
    return 0


def _text(args: argparse.Namespace, blocks: Blocks, page: Paper) -> str:
    return explanation(blocks, args.explain, page) if args.explain else blocks_text(blocks, page, top=args.top)


def case_of(name: str, returned: Any) -> dict[str, Any]:
    """The arguments of `rl.blocks` that a case returned: by name, or kernel, args, grid and space in this order."""
    if isinstance(returned, Mapping) and "kernel" in returned:
        return {"args": (), **returned}
    if isinstance(returned, tuple) and 2 <= len(returned) <= len(ARGUMENTS):
        return dict(zip(ARGUMENTS, returned, strict=False))
    found = type(returned).__name__
    raise UsageError(f"{name}() returned a {found}; it returns a dict with kernel, args, grid and space, or these in a tuple")


def space_of(given: Sequence[str]) -> dict[str, list[Any]]:
    """The values of a space, given as NAME=VALUE,VALUE."""
    space: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        if not equals or not values.strip():
            raise UsageError(f"--space {text}: write NAME=VALUE,VALUE, such as BM=64,128")
        space[name.strip()] = [_value(value.strip()) for value in values.split(",")]
    return space


def with_values(space: Any, values: Mapping[str, list[Any]]) -> Any:
    """The space of a case with other values for some of its names; a list of configurations is replaced.

    >>> with_values({"BM": [64, 128], "BN": [64]}, {"BM": [32]})
    {'BM': [32], 'BN': [64]}
    """
    return {**space, **values} if isinstance(space, Mapping) else values or space


def _value(text: str) -> Any:
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    return int(text) if text.removeprefix("-").isdecimal() else text
