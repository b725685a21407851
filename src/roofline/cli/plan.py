"""`roofline plan`: meshes, step times and memory of a model's training on some chips."""

import argparse
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence

from ..errors import UsageError
from ..plan.plans import Plan, Plans
from ..plan.question import question
from ..plan.search import find_plans
from ..plan.words import FORMATS, GRAPHS, STACKS
from ..render.plan.training import TOP, comparison, compiled_text, explanation, plan_rows, plans_text
from ..render.tables import Paper
from ..units import parse
from .functions import load_function
from .options import BROKEN, PRICE, Parser, amount, at_least, is_page, output_options
from .output import emit, write_message, write_page

TRAIN, SERVE = "train", "serve"  # words for what the chips do, after them; training where neither is said
# quantity of --require -> its dimension, and its value of a plan
REQUIRED: Mapping[str, tuple[str, Callable[[Plan], float]]] = {
    "step": ("s", lambda plan: plan.step_s),
    "high": ("s", lambda plan: plan.high_s),
    "memory": ("B", lambda plan: plan.memory["total"]),
    "mfu": ("", lambda plan: plan.mfu),
    "tokens_per_s_per_chip": ("", lambda plan: plan.tokens_per_s_per_chip),
    "bubble": ("s", lambda plan: plan.bubble_s),
    "exposed": ("s", lambda plan: plan.exposed_s),
}


def parser() -> Parser:
    command = Parser(
        "plan",
        "Which mesh, microbatch, recomputation and number format to train a model with on some chips: time of a step with an interval, "
        "memory in parts, ranked. What is not given is tried or assumed, and said. With the word serve after the chips: serving a model.",
        "roofline plan llama3-70b h100 x64 --batch 256 --seq 8192 --format fp8",
    )
    command.add_argument("model", metavar="MODEL", help="name of the catalogue, config.json, or a folder with one")
    command.add_argument("chip", metavar="CHIP", help="chip name, slice of a TPU (v5p:4x4x8), or several (2x v5p:4x4x8)")
    command.add_argument("count", nargs="?", metavar="xN", help="number of chips: x256")
    workload = command.add_argument_group("work")
    workload.add_argument("--batch", metavar="N|TOKENS", help="global batch: sequences (1536) or tokens ('4M tokens'; the default)")
    workload.add_argument("--seq", type=at_least(1), metavar="N", help="tokens of a sequence (default 8192)")
    workload.add_argument("--tokens", metavar="N", help="tokens of the whole run, for its days and chip-hours: 15T")
    workload.add_argument("--price", metavar="AMOUNT", help="price of a chip and hour, for the cost of the run: '2.5 USD/h'")
    free = command.add_argument_group("free unless given")
    free.add_argument(
        "--mesh",
        metavar="AXIS=SIZE,…",
        help="sizes of tp, pp, vp, cp, ep, fsdp, data; one may be 'rest'; those not named are free",
    )
    free.add_argument("--no", action="append", default=[], metavar="AXIS", help="do not use an axis: --no pp")
    free.add_argument(
        "--max", dest="most", action="append", default=[], metavar="AXIS=SIZE", help="the largest size of an axis: --max tp=8"
    )
    free.add_argument("--microbatch", metavar="N,…", help="sequences of a framework device at a time (default 1, 2, 4, 8, 16)")
    free.add_argument("--format", metavar="NAME,…", help=f"formats of the products: {', '.join(FORMATS)} (default bf16)")
    free.add_argument(
        "--recompute",
        metavar="POLICY,…",
        help="none, selective, full, 'N of L layers', a share, or names of modules (default: tries three)",
    )
    stated = command.add_argument_group("stated or assumed")
    stated.add_argument("--stack", metavar="NAME", help=f"software: {', '.join(STACKS)} (default megatron, on TPUs maxtext)")
    stated.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help=f"graphs={'|'.join(GRAPHS)}, exchange-overlap=yes|no (experts), async-tp=yes|no, offload=yes|no (activations), routing=FACTOR",
    )  # fmt: skip
    stated.add_argument("--slices", type=at_least(1), default=1, metavar="N", help="equal parts of the chips that a slower network joins")
    stated.add_argument(
        "--network", "--nic", metavar="RATE", help="bytes a second of a chip's network card: '50 GB/s' (default: the chip's machine file)"
    )
    stated.add_argument("--domain", type=at_least(1), metavar="N", help="chips that fast links join (default: the chip's machine file)")
    stated.add_argument("--reserve", default="0", metavar="SHARE", help="share of the memory to leave free: 10%%")
    stated.add_argument(
        "--anchor",
        metavar="'RUN: TIME'",
        help="a measured step of this model, chips and software, which corrects all plans: 'pp=8 tp=4 data=rest mbs=1: 20.1 s'; "
        "TIME may be a rate, '1155 tokens/s' a chip, or a profile; also seq=, chips=, batch=, format=, recompute=",
    )
    stated.add_argument(
        "--program",
        metavar="MODULE:FUNCTION",
        help="for a slice of TPUs: a function of the mesh, {axis: size}, that gives (step, arguments); the best plans are compiled",
    )
    stated.add_argument("--programs", type=at_least(1), default=2, metavar="N", help="meshes to compile with --program (default 2)")
    shown = command.add_argument_group("what to show")
    shown.add_argument("--top", type=at_least(1), default=TOP, metavar="N", help=f"plans to list (default {TOP})")
    shown.add_argument("--explain", type=at_least(1), metavar="RANK", help="every term of a plan, and its memory")
    shown.add_argument("--compare", nargs=2, type=at_least(1), metavar="RANK", help="two plans side by side")
    shown.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="'NAME < VALUE'",
        help=f"fail unless the best plan meets it: {', '.join(REQUIRED)}",
    )
    output_options(command, figure=False)
    shown.add_argument("-o", "--output", type=page_name, metavar="FILE.html", help="write a page: plans by time and memory, one step")
    return command


def run(words: Sequence[str]) -> int:
    if SERVE in words[1:]:
        from .forms.plan_serve import run as run_serve

        return run_serve(_without(SERVE, words))
    args = parser().parse_args(_without(TRAIN, words))
    tokens = amount("--tokens", args.tokens)
    price = amount("--price", args.price, PRICE)
    wanted = [_condition(text) for text in args.require]
    asked = question(
        args.model,
        args.chip,
        args.count,
        batch=args.batch,
        seq=args.seq,
        mesh=args.mesh or "",
        no=args.no,
        most={name: _size(name, size) for name, size in _pairs("--max", args.most).items()},
        format=args.format or "",
        recompute=args.recompute or "",
        microbatch=args.microbatch,
        stack=args.stack or "",
        settings=_pairs("--set", args.set),
        slices=args.slices,
        network=args.network,
        domain=args.domain,
        reserve=args.reserve,
    )
    function = load_function("--program", args.program) if args.program else None
    plans = find_plans(asked, _anchor(args.anchor) if args.anchor else "")
    if function:
        from .forms.plan_compiled import with_programs

        plans = with_programs(plans, asked, function, args.programs)
    emit(args, lambda page: _text(args, plans, page, tokens, price), plans, lambda: plan_rows(plans))
    if args.output:
        from ..render.plan.page import plans_page

        write_page(args, plans_page(plans))
    broken = [text for text, holds in ((text, holds(plans.best)) for text, holds in wanted) if not holds]
    for text in broken:
        write_message(f"not met by the best plan: {text}")
    return BROKEN if broken else 0


def _text(args: argparse.Namespace, plans: Plans, page: Paper, tokens: float | None, price: float | None) -> str:
    if args.compare:
        return comparison(plans, args.compare[0], args.compare[1], page)
    if args.explain:
        return explanation(plans, args.explain, page, tokens=tokens, price=price)
    return plans_text(plans, page, top=args.top, tokens=tokens, price=price) + compiled_text(plans, page)


def page_name(text: str) -> str:
    """The name of a page's file, for argparse."""
    if not is_page(text):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .html")
    return text


def _anchor(text: str) -> str:
    """An anchor whose time is a profile, with the mean time of that profile's steps instead."""
    run, _, source = text.rpartition(":")
    if not os.path.exists(source.strip()):
        return text
    from ..analysis import analyze

    report = analyze(source.strip())
    steps = [point.time_s for point in report.points if point.scope == "average" and point.time_s]
    if not steps:
        raise UsageError(f"--anchor {text}: the profile has no steps")
    return f"{run}: {steps[0]} s"


def _without(task: str, words: Sequence[str]) -> list[str]:
    """The words but the one, after the model, that names the task."""
    return [text for place, text in enumerate(words) if not place or text != task]


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """The values of an option of the form NAME=VALUE, by name."""
    pairs = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UsageError(f"{option} {text}: write NAME=VALUE")
        if name in pairs:
            raise UsageError(f"{option} {text}: {name} is given twice")
        pairs[name] = value
    return pairs


def _size(axis: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"--max {axis}={text}: a whole number of devices")
    return int(text)


def _condition(text: str) -> tuple[str, Callable[[Plan], bool]]:
    """A requirement in words such as ``step < 20 s``."""
    parts = re.fullmatch(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*(.+?)\s*", text)
    if not parts or parts[1] not in REQUIRED:
        raise UsageError(f"--require {text!r}: write NAME < VALUE with a name of {', '.join(REQUIRED)}, such as 'step < 20 s'")
    dimension, value_of = REQUIRED[parts[1]]
    limit = parse(parts[3], dimension) if dimension else _plain_number(text, parts[3])
    holds = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[parts[2]]
    return text, lambda plan: holds(value_of(plan), limit)


def _plain_number(option: str, text: str) -> float:
    try:
        return float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--require {option!r}: {text!r} is not a number") from None
