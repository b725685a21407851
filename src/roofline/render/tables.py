"""Plain-text tables: aligned columns, numbers to the right, for terminals and pipes alike."""

import re
from collections.abc import Iterable, Sequence
from textwrap import wrap

from msgspec import Struct
from msgspec.structs import replace

from ..errors import clean

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}


_QUANTITY = re.compile(r"(?<=\d) (?=[kMGTPEmµnp]?(?:s|B|FLOP)\b)")
_JOINED = "\N{NO-BREAK SPACE}"
NARROWEST_PLACE = 12  # least columns of the scope in a shortened label


class Paper(Struct, frozen=True):
    """The output medium: its width, and whether it shows colour and block characters."""

    width: int = 160
    colour: bool = False
    blocks: bool = False

    def no_wider(self, width: int) -> "Paper":
        """The same with at most this width."""
        return replace(self, width=min(self.width, width))

    def paint(self, text: str, *styles: str) -> str:
        """The text in a style, if the output supports colour."""
        text = clean(text)
        codes = ";".join(_CODES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colour and codes and text.strip() else text

    def paragraph(self, text: str, first: str = "", rest: str = "") -> str:
        """Text wrapped to the width, each line indented; a number and its unit stay on one line."""
        joined = _QUANTITY.sub(_JOINED, clean(text))
        lines = wrap(joined, self.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [first.rstrip()]
        return "\n".join(lines).replace(_JOINED, " ")


PLAIN = Paper()


class Cell(Struct, frozen=True):
    """Text in a style."""

    text: str
    style: str = ""


def table(headers: Sequence[str], rows: Iterable[Sequence[str | Cell]], paper: Paper = PLAIN, *, left: int = 1, elastic: int = 0) -> str:
    """Aligned columns: the first ``left`` to the left, the others to the right.

    The ``elastic`` column is shortened in the middle, never below 12 characters, when the table is wider than the paper.
    """
    lines = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    widths = [max([len(header), *(len(line[column].text) for line in lines)]) for column, header in enumerate(headers)]
    surplus = sum(widths) + 2 * (len(widths) - 1) - paper.width
    if surplus > 0:
        widths[elastic] = max(12, widths[elastic] - surplus)

    def align(text: str, column: int) -> str:
        short = (shorten_label if column == elastic else shorten)(text, widths[column])
        return short.ljust(widths[column]) if column < left else short.rjust(widths[column])

    out = [paper.paint("  ".join(align(header, column) for column, header in enumerate(headers)).rstrip(), "bold")]
    for line in lines:
        painted = [paper.paint(align(cell.text, column), *filter(None, [cell.style])) for column, cell in enumerate(line)]
        out.append("  ".join(painted).rstrip())
    return "\n".join(out)


def side_by_side(headers: Sequence[str], rows: Iterable[Sequence[str | Cell]], paper: Paper = PLAIN, *, left: int = 1) -> str:
    """A table as several, one above the other, where its columns are too many for the width; nothing is shortened.

    Each has the first ``left`` columns and as many of the others as fit, and leaves out rows that have nothing in those.
    """
    lines = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    widths = [max([len(header), *(len(line[column].text) for line in lines)]) for column, header in enumerate(headers)]
    own = sum(widths[:left]) + 2 * (left - 1)
    parts: list[list[int]] = [[]]
    for column in range(left, len(headers)):
        if parts[-1] and own + sum(widths[one] + 2 for one in (*parts[-1], column)) > paper.width:
            parts.append([])
        parts[-1].append(column)
    whole = replace(paper, width=max(paper.width, own + 2 + max(widths[left:], default=0)))
    shown = []
    for part in parts:
        columns = [*range(left), *part]
        mine = [line for line in lines if len(parts) == 1 or any(line[column].text not in ("", "–") for column in part)]
        shown.append(
            table([headers[column] for column in columns], [[line[column] for column in columns] for line in mine], whole, left=left)
        )
    return "\n\n".join(shown)


def shorten(text: str, width: int) -> str:
    """Text that fits: its beginning and its end, which is where names differ.

    >>> shorten("void cutlass::Kernel<float, 128, 256>", 20)
    'void cutla…128, 256>'
    """
    clean = "".join(character if character.isprintable() else "·" for character in text)
    if len(clean) <= width:
        return clean
    head = (width + 1) // 2
    return f"{clean[:head]}…{clean[len(clean) - (width - head - 1) :]}"


def shorten_label(label: str, width: int) -> str:
    """A label shortened to a width: first the beginning of the scope, then the middle of the operation; the count stays.

    >>> shorten_label("transformer/decoder/layer*/mlp/up  dot 8192×2048×8192 bf16  ×4", 48)
    '…/layer*/mlp/up  dot 8192×2048×8192 bf16  ×4'
    """
    place, gap, what = label.partition("  ")
    room = width - len(gap) - len(what)
    if len(label) <= width or not gap:
        return shorten(label, width)
    if room >= NARROWEST_PLACE:
        return f"{_shorten_place(place, room)}{gap}{shorten(what, len(what))}"
    place = _shorten_place(place, min(NARROWEST_PLACE, width // 3))
    return f"{place}{gap}{shorten(what, max(width - len(place) - len(gap), 1))}"


def _shorten_place(place: str, width: int) -> str:
    """A scope shortened to as many of its last names as fit; any other location is shortened in the middle."""
    names = place.split("/")
    if len(place) <= width or len(names) == 1:
        return shorten(place, width)
    tails = ("/".join(["…", *names[first:]]) for first in range(1, len(names)))
    return next((tail for tail in tails if len(tail) <= width), shorten(place, width))


def facts(rows: Iterable[tuple[str, str]], paper: Paper = PLAIN, indent: str = "  ") -> str:
    """Labels with their texts, one per line, wrapped with a hanging indent."""
    pairs = [(label, text) for label, text in rows if text]
    widest = max((len(label) for label, _ in pairs), default=0)
    margin = indent + " " * (widest + 2)
    lines = []
    for label, text in pairs:
        body = paper.paragraph(text, margin, margin)[len(margin) :]
        lines.append(f"{indent}{paper.paint(label.ljust(widest), 'dim')}  {body}")
    return "\n".join(lines)
