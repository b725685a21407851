"""`roofline cache`: show or clear the profile cache."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ..render.tables import facts
from ..sources.cache import Cache, cache_folder
from ..units import show
from .options import Parser, output_options
from .output import emit, talk

SCHEMA = "roofline.cache/1"


class Answer(Struct, frozen=True, kw_only=True):
    """The cache as JSON."""

    schema: str = SCHEMA
    folder: str
    entries: int
    bytes: int
    most_bytes: int


def parser() -> Parser:
    made = Parser(
        "cache",
        "Show or clear the profile cache: its folder, entries and size.\n"
        "An entry is not used once its file, the options or the version of roofline changed.",
        "roofline cache --clear",
    )
    made.add_argument("--cache", metavar="FOLDER", help="cache folder (default: $ROOFLINE_CACHE, else the user's cache folder)")
    made.add_argument("--clear", action="store_true", help="delete every entry")
    output_options(made, figure=False)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    cache = Cache(Path(args.cache) if args.cache else cache_folder())
    if args.clear:
        gone = cache.clear()
        talk(f"{gone:,} {'entry' if gone == 1 else 'entries'} removed")
    sizes = [size for _, size, _ in cache.entries()]
    answer = Answer(folder=str(cache.folder), entries=len(sizes), bytes=sum(sizes), most_bytes=cache.most_bytes)
    room = f"{show(answer.bytes, 'B')} of at most {show(answer.most_bytes, 'B')}"
    emit(
        args,
        lambda page: facts([("folder", answer.folder), ("entries", f"{answer.entries:,}"), ("size", room)], page),
        answer,
        lambda: [{"folder": answer.folder, "entries": answer.entries, "bytes": answer.bytes, "most_bytes": answer.most_bytes}],
    )
    return 0
