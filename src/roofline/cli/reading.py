"""How commands read their input: processes, cluster, cache and progress."""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..machine import Machine
from ..sources import PROFILE_SOURCE, PROFILES, SAMPLE, SCHEME, find, head_of, profiles_in, read
from ..workload import Recording
from .options import at_least
from .progress import progress

if TYPE_CHECKING:
    from ..report import Report
    from ..sources.cache import Cache

REPORTS = (".json", ".json.gz")


def host_options(parser: argparse.ArgumentParser) -> None:
    """How the files of a run are read and cached."""
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
    target: "Callable[[], Machine] | None" = None,
    *,
    salvage: bool = False,
) -> "Recording":
    """The recording in a file or folder, or in the files of several hosts, read as the options of `host_options` say."""
    several = len(paths) > 1
    if several and not all(path.endswith(PROFILES) for path in paths):
        raise UsageError("several files must be the .xplane.pb files of one run; to compare two inputs use: roofline compare A B")
    with progress(f"reading {len(paths)} files" if several else f"reading {paths[0]}") as tell:
        if not several and not _is_run(args, paths[0]):
            return read(paths[0], target, salvage=salvage, progress=tell)
        from ..sources.cluster import read_run

        return read_run(paths, salvage=salvage, jobs=args.jobs, cluster=args.cluster, cache=_cache(args), progress=tell)


def stored_report(name: str) -> "Report | None":
    """The report that a file is, here or at an address; ``None`` when it is something else."""
    from ..sources.report_json import read_report, sniff

    if SCHEME not in name:
        from ..sources.samples import sample_or_path

        path = sample_or_path(name)
        return read_report(path) if not path.is_dir() and sniff(head_of(path), path) else None
    if not name.endswith(REPORTS):
        return None
    from ..sources.remote import local_copy

    with local_copy(name) as copy:
        return read_report(copy) if sniff(head_of(copy), copy) else None


def _is_run(args: argparse.Namespace, path: str) -> bool:
    """Whether a path has several files, or one that is kept or read elsewhere. One local file is read at once, with nothing around it."""
    asked = bool(args.cluster or args.cache)
    if path.startswith(SAMPLE):
        profile = False
    elif SCHEME in path:
        from ..sources.remote import is_folder

        profile = path.endswith(PROFILES) or is_folder(path)
    elif os.path.isdir(path):
        from pathlib import Path

        files = len(profiles_in(Path(path)))
        profile = files > 1 or (asked and files > 0)
    else:
        profile = asked and find(path).__name__.endswith(PROFILE_SOURCE)
    if args.cluster and not profile:
        raise UsageError(f"{path}: not a profile; --cluster reads profiles only")
    return profile


def _cache(args: argparse.Namespace) -> "Cache | None":
    if args.no_cache:
        return None
    from ..sources.cache import Cache, cache_folder

    return Cache.at(args.cache) if args.cache else Cache(cache_folder())
