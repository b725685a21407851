"""`roofline analyze`: compare a profile, program or op table with a chip's limits."""

import argparse
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ..dtypes import dtype
from ..errors import SourceError, UsageError, did_you_mean
from ..grouping import KEYS, PLACES
from ..grouping.op_filter import parse_filter
from ..render.op_table import COLUMNS
from ..report import VariantInfo
from ..sources import PROGRAM, find
from ..sources.samples import is_sample
from .options import (
    BROKEN,
    Parser,
    anonymize_options,
    at_least,
    chosen_corrections,
    chosen_price,
    chosen_throughput,
    correction_options,
    is_corrected,
    is_page,
    machine_options,
    output_options,
    quantity,
    screen_options,
    throughput_options,
)
from .options.named_values import Value, former, named_values
from .options.program_options import NEEDS_PROGRAM, chosen_network, chosen_trips, names_program_option, program_options
from .options.slice_options import advise_changes, chips_and_meshes, function_job, functions_of, record_function, slice_options
from .reading import opened, read_options
from .reporting import EACH_OP, columns, emit_opened, filter_text
from .terminal import chart_options

GROUPS = tuple("program" if key == "module" else key for key in (*KEYS, *PLACES, EACH_OP))


def parser() -> Parser:
    command = Parser(
        "analyze",
        "Compare a profile, program or op table with a chip's limits: bounds, roofline efficiency, what to do next.\n"
        "Reads profiles (.xplane.pb files, run folders, TensorBoard log folders), PyTorch profiler traces (trace.json.gz, folders of\n"
        "ranks), XLA programs (HLO text or protobuf, StableHLO text or bytecode, --xla_dump_to folders), Nsight Compute CSVs, op tables\n"
        "(CSV, JSON, Parquet) and roofline's own JSON reports. MODULE.py:FUNCTION is compiled for a slice of TPUs, without one; exit\n"
        "status 3 if it does not fit.",
        "roofline analyze run/host.xplane.pb --json report.json -o roofline.svg",
    )
    command.add_argument("path", nargs="+", metavar="PATH", help="file, folder or URL (gs://…); the format is detected from the content")
    screen_options(command)
    command.add_argument("--fusion", action="store_true", help="what the compiler left unfused in a program, why, and what that costs")
    input_options(command)
    read_options(command, salvage=True)
    table_options(command)
    program_options(command)
    slice_options(command)
    machine_options(command)
    correction_options(command)
    output_options(command, page=True)
    anonymize_options(command)
    chart_options(command)
    return command


def input_options(made: argparse.ArgumentParser) -> None:
    """Options for counters, throughput and the timeline."""
    group = made.add_argument_group("input")
    group.add_argument(
        "--counters",
        action="append",
        default=[],
        metavar="CSV",
        help="compare the model with hardware counters of the same program (from ncu --set full --csv --page raw; may be gzipped); "
        "may be repeated",
    )
    throughput_options(group)
    group.add_argument(
        "--timeline",
        action="store_true",
        help="show a timeline of each device over a step, and what the host did while the device was idle; JSON has 1000 buckets of a step "
        "and of the run (.html always has them): --timeline --json run.json",
    )


def table_options(made: argparse.ArgumentParser) -> None:
    """Which ops the table shows, how they are grouped, and in which columns."""
    table = made.add_argument_group("table (--json always has everything)")
    table.add_argument(
        "--by",
        type=_grouping,
        metavar="GROUP",
        help=f"group ops by {', '.join(GROUPS)}; scope=2 is two levels of it, and by op equal layers are rows of their own",
    )
    former(table, "--depth", option="--by", becomes="scope={}", refines=True)
    table.add_argument(
        "--columns",
        metavar="NAMES",
        help=f"comma-separated columns: {', '.join(COLUMNS)}; for a resource: hbm, hbm/s, flop/hbm, counted:hbm",
    )
    former(table, "--unfold", option="--by", becomes="op")
    table.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="CONDITIONS",
        help="only ops that pass, in the syntax of the page and the words of --columns: 'bound=hbm time>1%%', 'layer*/attn -copy'",
    )
    named_values(made, "--only", "only a part of the run", PARTS, table)
    table.add_argument(
        "--stragglers", nargs="?", const="device", choices=("device", "host"), help="compare each op's time across devices or hosts"
    )
    for name in ("step", "device", "host"):
        former(table, f"--{name}", option="--only", becomes=f"{name}={{}}")
    former(table, "--no-infeed", option="--only", becomes="infeed=no")
    former(table, "--name", option="--filter", becomes=_expression)
    former(table, "--min-time", option="--filter", becomes=_least_time)
    for field, *names in (("category",), ("bound",), ("dtype",), ("unit",), ("program", "--module")):
        former(table, f"--{field}", *names, option="--filter", becomes=partial(_one_of, field))


class Grouping(NamedTuple):
    """What ops are grouped by, and how many levels of it."""

    key: str
    depth: int | None = None


def _grouping(text: str) -> Grouping:
    key, equals, depth = text.partition("=")
    if key not in (*GROUPS, "module"):
        raise argparse.ArgumentTypeError(f"{text!r}: group by one of {', '.join(GROUPS)}{did_you_mean(key, GROUPS)}")
    if equals and key != "scope":
        raise argparse.ArgumentTypeError(f"{text!r}: only scopes have levels: scope=2")
    return Grouping(key, at_least(1)(depth) if equals else None)


def _expression(given: list[str]) -> list[str]:
    """The condition that the name or the label matches a regular expression."""
    escaped = re.sub(r"\\.|/", lambda found: found[0] if len(found[0]) > 1 else r"\/", given[-1])
    return [f"(name:/{escaped}/ or op:/{escaped}/)"]


def _least_time(given: list[str]) -> list[str]:
    quantity(given[-1], "s", "--min-time")
    return [f"time>={''.join(given[-1].split())}"]


def _one_of(field: str, given: list[str]) -> list[str]:
    """The condition that a field is one of some words."""
    words = [dtype(word).rate for word in given] if field == "dtype" else given
    if all(re.fullmatch(r'[^\s()",/][^\s()",]*', word) and word.lower() != "none" for word in words):
        return [f"{field}={','.join(words)}"]
    quoted = [re.sub(r'([\\"])', r"\\\1", word) for word in words]
    conditions = " or ".join(f'{field}="{word}"' for word in quoted)
    return [conditions if len(quoted) == 1 else f"({conditions})"]


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError("write yes or no")
    return text == "yes"


PARTS = (
    Value("step=STEP", "these steps, by number or name", several=True),
    Value("device=ID", "these devices: device=0,1", at_least(0), several=True),
    Value("host=NAME", "these hosts", several=True),
    Value("infeed=no", "without infeed and outfeed: ops, their time and findings about them", _yes, default=True),
)


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    _check(args)
    if functions_of(args, args.path[:1]):
        return _function(args)
    timeline = args.timeline or bool(args.output and is_page(args.output))
    emit_opened(args, opened(args, args.path, chosen_corrections(args), timeline=timeline, **_of_program(args)))
    return 0


def _function(args: argparse.Namespace) -> int:
    """Compiles a function for a slice, or for several, of which the best has the report."""
    if len(args.path) > 1:
        raise UsageError(f"{args.path[0]}: to compile a function name one function alone")
    chips, meshes = chips_and_meshes(args)
    found: Sequence[VariantInfo] = ()
    if len(chips) * len(meshes) == 1:
        recording, is_refused, place = record_function(args, args.path[0])
        args.chip = place.machine.name  # of several slices the name of one
        if is_refused and args.make_it_fit:
            from .forms.make_it_fit import attempts

            job = msgspec.structs.replace(function_job(args, args.path[0]), slice=place)
            found = attempts(
                args, lambda changes=(), mesh=None: msgspec.structs.replace(job, changes=changes, mesh=mesh or job.mesh), recording
            )
        elif is_refused:
            advise_changes(recording)
    else:
        from .forms.slice_variants import variants

        ranked = variants(args)
        found, best = [variant.info for variant in ranked], ranked[0]
        if best.recording is None:
            raise UsageError(f"{args.path[0]}: compiled for none of them: {best.info.reason}")
        recording, is_refused, args.chip = best.recording, best.is_refused, best.info.chip
    made = opened(args, recording, chosen_corrections(args))
    if found:
        from .forms.slice_variants import emit_variants

        made = made._replace(report=msgspec.structs.replace(made.report, variants=tuple(found)))
        emit_variants(args, found)
    emit_opened(args, made)
    return BROKEN if is_refused else 0


def _of_program(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say about a program."""
    if not names_program_option(args):
        return {}
    trips = chosen_trips(args)
    if len(args.path) > 1 or is_sample(args.path[0]) or find(args.path[0]) is not PROGRAM:
        raise UsageError(f"{NEEDS_PROGRAM} one program (HLO or StableHLO)")
    return {"network": partial(chosen_network, args), "trips": trips}


def _check(args: argparse.Namespace) -> None:
    """Report wrong options before anything is read."""
    chosen_throughput(args)
    chosen_price(args)
    if is_corrected(args):
        chosen_corrections(args)
    if args.columns:
        columns(args)
    parse_filter(filter_text(args))
    for name in args.counters:
        if not os.path.exists(name):
            raise SourceError(f"--counters {name}: no such file")
