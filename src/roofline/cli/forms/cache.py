"""`roofline --cache`: show or clear the profile cache."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict

from ...render.tables import facts
from ...sources.cache import Cache, cache_folder
from ...units import show
from ..options import Parser, output_options
from ..output import emit, write_message


def parser() -> Parser:
    made = Parser(
        "--cache",
        "Show or clear the profile cache: its folder, entries and size.\n"
        "An entry is not used once its file, the options or the version of roofline changed.",
        "roofline --cache --clear",
    )
    made.add_argument("folder", nargs="?", metavar="FOLDER", help="cache folder (default: $ROOFLINE_CACHE, else the user's cache folder)")
    made.add_argument("--cache", metavar="FOLDER", help=argparse.SUPPRESS)
    made.add_argument("--clear", action="store_true", help="delete every entry")
    output_options(made, figure=False)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    folder = args.folder or args.cache
    cache = Cache(Path(folder) if folder else cache_folder())
    if args.clear:
        gone = cache.clear()
        write_message(f"{gone:,} {'entry' if gone == 1 else 'entries'} removed")
    listing = cache.listing()
    size = f"{show(listing.bytes, 'B')} of at most {show(listing.most_bytes, 'B')}"
    emit(
        args,
        lambda page: facts([("folder", listing.folder), ("entries", f"{listing.entries:,}"), ("size", size)], page),
        listing,
        lambda: [{name: cell for name, cell in asdict(listing).items() if name != "schema"}],
    )
    return 0
