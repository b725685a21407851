"""Reading the input of commands: processes, cluster, cache, limits and progress."""

import argparse
import os
from collections.abc import Sequence

from ..errors import UsageError
from ..files.input_limits import DEFAULT
from ..sources import read
from ..sources.target import Target
from ..workload import Recording
from .options import at_least
from .options.named_values import Value, former, named_values
from .progress import progress

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


def read_input(args: argparse.Namespace, paths: Sequence[str], target: Target | None = None, *, timeline: bool = False) -> Recording:
    """The recording in a file or folder, or in the files of several hosts, read with the options of `read_options`."""
    cache = args.cache != NO_CACHE and (args.cache or True)
    if cache and args.cache and os.path.exists(args.cache) and not os.path.isdir(args.cache):
        raise UsageError(f"--read cache={args.cache}: not a folder")
    salvage = getattr(args, "salvage", False)
    with progress(f"reading {paths[0]}" if len(paths) == 1 else f"reading {len(paths)} files") as tell:
        return read(paths, target, salvage=salvage, timeline=timeline, jobs=args.jobs, cluster=args.cluster, cache=cache, progress=tell)
