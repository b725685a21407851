"""`roofline cache`: what is kept of the runs that were read."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict

from ..render.tables import facts
from ..sources.cache import Cache, cache_folder
from ..units import show
from .options import Parser, output_options
from .output import emit, talk


def parser() -> Parser:
    made = Parser(
        "cache",
        "What is kept of runs that were read: where, how many files of profiles, how many bytes.\n"
        "Nothing that is kept is ever wrong: a changed file, option or version of roofline is read anew.",
        "roofline cache --clear",
    )
    made.add_argument("--cache", metavar="FOLDER", help="a cache other than the one in $ROOFLINE_CACHE or the user's cache folder")
    made.add_argument("--clear", action="store_true", help="forget everything")
    output_options(made, figure=False)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    cache = Cache(Path(args.cache) if args.cache else cache_folder())
    if args.clear:
        gone = cache.clear()
        talk(f"{gone:,} {'entry' if gone == 1 else 'entries'} removed")
    held = cache.listing()
    room = f"{show(held.bytes, 'B')} of at most {show(held.most_bytes, 'B')}"
    emit(
        args,
        lambda page: facts([("folder", held.folder), ("entries", f"{held.entries:,}"), ("size", room)], page),
        held,
        lambda: [{name: cell for name, cell in asdict(held).items() if name != "schema"}],
    )
    return 0
