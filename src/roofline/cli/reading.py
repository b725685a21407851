"""How commands read what they are given: by how many processes or on which cluster, with what cache, and how far it is."""

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
    """Who reads the files of a run, and what of them is kept."""
    group = parser.add_argument_group("many hosts")
    group.add_argument("--jobs", type=at_least(1), metavar="N", help="processes that read the files of a run (default: one a processor)")
    group.add_argument("--cluster", metavar="ADDRESS", help="read them on a Dask cluster instead: tcp://scheduler:8786")
    kept = group.add_mutually_exclusive_group()
    kept.add_argument(
        "--cache",
        metavar="FOLDER",
        help="keep what was read there, whatever it is (default: of runs of several files and remote ones what is worth it, "
        "in $ROOFLINE_CACHE or the user's cache folder)",
    )
    kept.add_argument("--no-cache", action="store_true", help="read everything anew, and keep nothing")


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
        raise UsageError(
            "several files are the hosts of one run and end in .xplane.pb; hold two inputs against each other with: roofline compare A B"
        )
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
        raise UsageError(f"{path}: not a profile; --cluster is for the files of a run")
    return profile


def _cache(args: argparse.Namespace) -> "Cache | None":
    if args.no_cache:
        return None
    from ..sources.cache import Cache, cache_folder

    return Cache.at(args.cache) if args.cache else Cache(cache_folder())
