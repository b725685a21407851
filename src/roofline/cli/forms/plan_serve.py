"""`roofline plan MODEL CHIP xN serve`: time per output token, throughput and memory of a model that is served."""

import argparse
from collections.abc import Sequence

from ...plan.serving_plans import ServingPlans, find_serving
from ...plan.words import FORMATS
from ...render.plan.serving import serving_explanation, serving_rows, serving_text
from ...render.tables import Paper
from ..options import PRICE, Parser, amount, at_least, output_options
from ..output import emit


def parser() -> Parser:
    command = Parser(
        "plan",
        "Serving a model: prefill, time per output token, throughput and memory of replicas, and the largest batch under an objective. "
        "Steps are predicted, queues are not.",
        "roofline plan deepseek-r1 h200 x8 serve --prompt 1024 --answer 1024 --format fp8 --slo 'tpot<30ms'",
    )
    command.add_argument("model", metavar="MODEL", help="name of the catalogue, config.json, or a folder with one")
    command.add_argument("chip", metavar="CHIP", help="chip name")
    command.add_argument("count", nargs="?", metavar="xN", help="number of chips: x8")
    command.add_argument("--prompt", type=at_least(1), metavar="N", help="tokens of a prompt (default 1000)")
    command.add_argument("--answer", type=at_least(1), metavar="N", help="tokens of an answer (default 1000)")
    command.add_argument("--slo", metavar="'ttft<1s tpot<30ms'", help="objective: bounds of the first token and of the further ones")
    command.add_argument("--rate", metavar="N", help="requests a second, for the chips that they need: 12 or 12/s")
    command.add_argument("--batch", metavar="N", help="sequences of a replica at a time, or 1..256 (default: the most that --slo allows)")
    command.add_argument("--split", metavar="prefill,decode", help="replicas that prefill apart from those that decode")
    command.add_argument("--mesh", metavar="tp=N", help="devices of a replica (default: tries powers of two)")
    command.add_argument("--format", metavar="NAME,…", help=f"formats of the weights: {', '.join(FORMATS)} (default bf16)")
    command.add_argument("--kv", default="bf16", metavar="NAME", help="format of keys and values: bf16 or fp8 (default bf16)")
    command.add_argument("--price", metavar="AMOUNT", help="price of a chip and hour, for the cost of a million tokens")
    command.add_argument("--domain", type=at_least(1), metavar="N", help="chips that fast links join (default: the chip's machine file)")
    command.add_argument("--explain", type=at_least(1), metavar="RANK", help="every term of a plan, and its memory")
    output_options(command, figure=False)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    plans = find_serving(
        args.model,
        args.chip,
        args.count,
        prompt=args.prompt,
        answer=args.answer,
        slo=args.slo or "",
        rate=amount("--rate", args.rate, r"\s*/\s*s$"),
        batch=args.batch,
        split=args.split or "",
        mesh=args.mesh or "",
        format=args.format or "",
        kv=args.kv,
        domain=args.domain,
    )
    price = amount("--price", args.price, PRICE)
    emit(args, lambda page: _text(args, plans, page, price), plans, lambda: serving_rows(plans))
    return 0


def _text(args: argparse.Namespace, plans: ServingPlans, page: Paper, price: float | None) -> str:
    if args.explain:
        return serving_explanation(plans, args.explain, page, price=price)
    return serving_text(plans, page, price=price)
