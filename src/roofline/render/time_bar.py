"""Where the time of a step or run went, as one bar: the minimum time of the needed work, then the losses by cause.

In colour the parts are blocks; without colour each has its own character, so that the bar is legible in a pipe, a log or a code block.
"""

from collections.abc import Sequence

from msgspec import Struct

from ..causes import IDLE, NEEDED, PARTS, Cause
from ..report import Point
from ..units import parse, plain, rounded, show
from .tables import PLAIN, Paper

WIDEST = 100
SHOWN = 0.001  # of the time: smaller parts are not named
BLOCK = "█"


class Part(Struct, frozen=True):
    """A part of the time: its name, its seconds, and its share."""

    name: str
    seconds: float
    share: float


def time_parts(point: Point | None) -> list[Part]:
    """The parts of a point's time in the order of the bar; none without a measured time."""
    if point is None or not point.time_s or point.at_roof_s is None:
        return []
    seconds = {NEEDED: point.at_roof_s, **point.lost}
    known = [*(name for name in PARTS if name in seconds), *(name for name in seconds if name not in PARTS)]
    return [Part(name, seconds[name], seconds[name] / point.time_s) for name in known if seconds[name] > SHOWN * point.time_s]


def bar_text(parts: Sequence[Part], paper: Paper = PLAIN) -> str:
    """The bar and its legend, 100 columns wide at most."""
    if not parts:
        return ""
    width = min(paper.width, WIDEST)
    drawn = "".join(
        paper.paint(_mark(part, paper) * cells, _cause(part).style) for part, cells in zip(parts, _cells(parts, width - 2), strict=True)
    )
    return f"[{drawn}]\n{_legend(parts, width, paper)}"


def in_unit(seconds: float, whole_s: float, digits: int = 2) -> str:
    """Seconds as a number in the unit in which ``whole_s`` is shown.

    >>> in_unit(0.00045, 0.0282), in_unit(0.02053, 0.0282, 3), in_unit(0.128, 0.0282)
    ('0.45', '20.5', '130')
    """
    unit = show(whole_s, "s").rpartition(" ")[2]
    return plain(rounded(seconds / parse(f"1 {unit}", "s"), digits) or 0.0)


def _cause(part: Part) -> Cause:
    """What a part is; one that a later version wrote is called by its name."""
    name = part.name
    return PARTS.get(name) or Cause(mark=name[:1], style="bold", words=name, colour="muted", title=name, meaning="")


def _mark(part: Part, paper: Paper) -> str:
    return BLOCK if paper.colour and paper.blocks and part.name != IDLE else _cause(part).mark


def _cells(parts: Sequence[Part], width: int) -> list[int]:
    """How many of ``width`` cells each part gets: in proportion, at least one, and ``width`` in total."""
    whole = sum(part.share for part in parts)
    wanted = [part.share / whole * width for part in parts]
    cells = [max(int(part), 1) for part in wanted]
    while sum(cells) < width:
        worst = max(range(len(cells)), key=lambda place: wanted[place] - cells[place])
        cells[worst] += 1
    while sum(cells) > width and max(cells) > 1:
        cells[max(range(len(cells)), key=lambda place: (cells[place] > 1, cells[place] - wanted[place]))] -= 1
    return cells


def part_name(part: Part) -> str:
    """The name of a part."""
    return _cause(part).words


def _legend(parts: Sequence[Part], width: int, paper: Paper) -> str:
    """The legend, with as many entries per line as fit; the first amount has the unit of all."""
    lines: list[str] = []
    used = 0
    whole_s = sum(part.seconds for part in parts)
    unit = show(whole_s, "s").rpartition(" ")[2]
    for place, part in enumerate(parts):
        amount = f"{in_unit(part.seconds, whole_s, 3)} {unit}" if place == 0 else in_unit(part.seconds, whole_s)
        label = f" {part_name(part)} {amount}"
        painted = paper.paint(_mark(part, paper), _cause(part).style) + label
        if lines and used + 3 + 1 + len(label) <= width:
            lines[-1] += f"   {painted}"
            used += 3 + 1 + len(label)
        else:
            lines.append(painted)
            used = 1 + len(label)
    return "\n".join(lines)
