"""Reading the input of commands: processes, cluster, cache and progress."""

import argparse
import os
from collections.abc import Sequence

from ..errors import UsageError
from ..sources import read
from ..sources.target import Target
from ..workload import Recording
from .options import at_least
from .progress import progress


def host_options(parser: argparse.ArgumentParser) -> None:
    """Options for reading and caching the files of a run."""
    group = parser.add_argument_group("runs of many files")
    group.add_argument("--jobs", type=at_least(1), metavar="N", help="processes that read the files of a run (default: one per core)")
    group.add_argument("--cluster", metavar="ADDRESS", help="read the files on a Dask cluster: tcp://scheduler:8786")
    kept = group.add_mutually_exclusive_group()
    kept.add_argument(
        "--cache",
        metavar="FOLDER",
        help="cache parsed profiles in FOLDER (default: only remote files and runs of several files, "
        "in $ROOFLINE_CACHE or the user's cache folder)",
    )
    kept.add_argument("--no-cache", action="store_true", help="do not read or write the cache")


def read_input(
    args: argparse.Namespace,
    paths: Sequence[str],
    target: Target | None = None,
    *,
    salvage: bool = False,
    timeline: bool = False,
) -> Recording:
    """The recording in a file or folder, or in the files of several hosts, read with the options of `host_options`."""
    if args.cache and os.path.exists(args.cache) and not os.path.isdir(args.cache):
        raise UsageError(f"--cache {args.cache}: not a folder")
    with progress(f"reading {paths[0]}" if len(paths) == 1 else f"reading {len(paths)} files") as tell:
        cache = args.cache or not args.no_cache
        return read(paths, target, salvage=salvage, timeline=timeline, jobs=args.jobs, cluster=args.cluster, cache=cache, progress=tell)
