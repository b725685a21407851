"""Reading the input of commands: processes, cluster, cache, limits and progress."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..analysis import Opened, open_report
from ..errors import UsageError
from ..files.input_limits import DEFAULT
from ..machine import Machine
from ..placement import IDEAL, Corrections
from ..workload import Recording
from .options import at_least, chosen_price, chosen_throughput, machine_of, names_machine
from .options.named_values import Value, former, named_values
from .progress import progress

if TYPE_CHECKING:
    from ..hlo.price.collectives import Network

NO_CACHE = "no"
FILES = (
    Value("jobs=N", "processes that read the files of a run (default: one per core)", at_least(1)),
    Value("cluster=ADDRESS", "read the files on a Dask cluster: tcp://scheduler:8786"),
    Value(
        f"cache=FOLDER|{NO_CACHE}",
        "cache parsed profiles in FOLDER, or not at all (default: only remote files and runs of several files, in $ROOFLINE_CACHE or the "
        "user's cache folder)",
    ),
)
LIMITS = Value(
    "max-WHAT=N",
    f"limits on the input, by default max-size={DEFAULT.size} (bytes, unpacked), max-values={DEFAULT.values} (of JSON or a table), "
    f"max-rows={DEFAULT.rows} (of a table), max-instructions={DEFAULT.instructions} (of a program), max-messages={DEFAULT.messages} (of a "
    "profile); such as max-rows=1M max-size=4GB",
    several=True,
)
SALVAGE = Value("salvage", "read a damaged profile as far as possible and report where it is damaged")


def read_options(parser: argparse.ArgumentParser, *, files: bool = True, limits: bool = True, salvage: bool = False) -> None:
    """How to read an input: the ``files`` of a run, the ``limits`` on its size, and damaged profiles."""
    values = (*(FILES if files else ()), *((LIMITS,) if limits else ()), *((SALVAGE,) if salvage else ()))
    named_values(parser, "--read", "how to read the input", values)
    if files:
        former(parser, "--jobs", option="--read", becomes="jobs={}")
        former(parser, "--cluster", option="--read", becomes="cluster={}")
        former(parser, "--cache", option="--read", becomes="cache={}")
        former(parser, "--no-cache", option="--read", becomes=f"cache={NO_CACHE}")
    if limits:
        former(parser, "--max", option="--read", becomes="max-{}")
    if salvage:
        former(parser, "--salvage", option="--read", becomes="salvage")


def opened(
    args: argparse.Namespace,
    source: Recording | Sequence[str],
    corrections: Corrections = IDEAL,
    *,
    usual: Machine | None = None,
    timeline: bool = False,
    network: Callable[[Machine], "Network | None"] | None = None,
    trips: Mapping[str, int] | None = None,
) -> Opened:
    """An input with its report, by these options; ``usual`` is the machine of an input that names none."""
    cache = args.cache != NO_CACHE and (args.cache or True)
    if cache and args.cache and os.path.exists(args.cache) and not os.path.isdir(args.cache):
        raise UsageError(f"--read cache={args.cache}: not a folder")
    open_it = partial(
        open_report,
        source,
        machine_of(args, usual),
        corrections,
        again=names_machine(args) or getattr(args, "limit", None) is not None,
        counters=getattr(args, "counters", ()),
        per_step=chosen_throughput(args) if "per_step" in args else None,
        price=chosen_price(args) if "price" in args else None,
        network=network,
        trips=trips,
    )
    if isinstance(source, Recording):
        return open_it()
    with progress(f"reading {source[0]}" if len(source) == 1 else f"reading {len(source)} files") as tell:
        salvage = getattr(args, "salvage", False)
        return open_it(salvage=salvage, timeline=timeline, jobs=args.jobs, cluster=args.cluster, cache=cache, progress=tell)
