"""`roofline --cache`: show or clear the caches of profiles and of compiled programs."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict, replace

from ...jax.tpu.compiling import INNER, cached_programs
from ...render.tables import facts
from ...sources.cache import Cache, cache_folder
from ...units import show
from ..options import Parser, output_options
from ..output import emit, write_message


def parser() -> Parser:
    command = Parser(
        "--cache",
        "Show or clear the caches of parsed profiles and of programs compiled for slices of TPUs: folder, entries and size.\n"
        "An entry is not used once its file, the options or the version of roofline changed.",
        "roofline --cache --clear",
    )
    command.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="cache folder (default: $ROOFLINE_CACHE, else the user's cache folder)"
    )
    command.add_argument("--cache", metavar="FOLDER", help=argparse.SUPPRESS)
    command.add_argument("--clear", action="store_true", help="delete every entry")
    output_options(command, figure=False)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    folder = args.folder or args.cache
    cache = Cache(Path(folder) if folder else cache_folder())
    programs = cache.folder / INNER
    if args.clear:
        compiled = [path for path, _ in cached_programs(programs)]
        for path in compiled:
            shutil.rmtree(path, ignore_errors=True)
        gone = cache.clear() + len(compiled)
        write_message(f"{gone:,} {'entry' if gone == 1 else 'entries'} removed")
    sizes = [bytes for _, bytes in cached_programs(programs)]
    listing = replace(cache.listing(), programs=len(sizes), programs_bytes=sum(sizes))
    size = f"{show(listing.bytes, 'B')} of at most {show(listing.most_bytes, 'B')}"
    known = [("folder", listing.folder), ("entries", f"{listing.entries:,}"), ("size", size)]
    emit(
        args,
        lambda page: facts([*known, ("programs", f"{listing.programs:,} of {show(listing.programs_bytes, 'B')}")], page),
        listing,
        lambda: [{name: cell for name, cell in asdict(listing).items() if name != "schema"}],
    )
    return 0
