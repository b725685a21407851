"""The chart of a report as text, for a terminal: roofs in braille, the longest ops by the number of their row in the table.

The numbers are those of `chart` and `geometry`, which the figure draws too; a character cell has two by four braille dots. Where the
encoding has no braille, the same chart is drawn in ASCII. Ops without FLOP are in a strip at the left, at their share of bandwidth.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from unicodedata import combining, east_asian_width

from msgspec import Struct
from msgspec.structs import replace

from ..errors import RooflineError
from ..report import Report
from ..resource import HBM
from ..units import percent, plain, show
from ..workload import is_upper_bound
from .chart import Chart, Dot, StripDot, chart
from .geometry import Extent, Path, Tick, linear_ticks, log_ticks, rate_title, title
from .op_table import efficiency_text, label
from .tables import PLAIN, Cell, Paper, shorten, table

NARROWEST, WIDEST = 40, 200  # columns of a chart
LOWEST, HIGHEST = 10, 26  # rows of it
COLUMNS_PER_ROW = 4.5  # a cell is twice as high as wide, so a chart is a little more than twice as wide as high
NUMBERED = 12  # ops with a number of their own
MARKS = "123456789abcdefghijklmnopqrstuvwxyz"  # the row of the table: 1 to 9, then letters
STYLES = {"matrix": "cyan", "vector": "green", "hbm": "yellow", "latency": "red"}  # by bound
STRIP = 5  # columns for ops without FLOP
_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # the bit of each dot, row by row, on top of U+2800
_ACROSS, _DOWN = 2, 4  # dots of a braille cell
_SPOKEN = str.maketrans({"…": "~", "–": "-", "µ": "u", "·": ".", "→": ">"})


class Glyphs(Struct, frozen=True, kw_only=True):
    """The characters of a chart."""

    dot: str
    program: str
    axis: str
    tick: str
    corner: str
    floor: str
    mark: str
    braille: bool = True


BRAILLE = Glyphs(dot="●", program="◆", axis="│", tick="┤", corner="└", floor="─", mark="┴")
ASCII = Glyphs(dot="o", program="*", axis="|", tick="+", corner="+", floor="-", mark="+", braille=False)


class Canvas:
    """Character cells with a line drawing in the background; text is never overwritten."""

    def __init__(self, columns: int, rows: int, extent: Extent) -> None:
        self.columns, self.rows, self.extent = columns, rows, extent
        self.lines: dict[tuple[int, int], int | str] = {}
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """The row and column of a position on the chart, rows counted from the top."""
        across, along = self.extent.unit(x, y)
        return _step(1 - along, self.rows), _step(across, self.columns)

    def write(self, row: int, column: int, text: str, style: str = "") -> bool:
        """Write a text, unless something else is written there or it does not fit."""
        spots = [(row, column + offset) for offset in range(len(text))]
        if not (0 <= row < self.rows and column >= 0 and column + len(text) <= self.columns) or any(spot in self.cells for spot in spots):
            return False
        self.cells.update({spot: (character, style) for spot, character in zip(spots, text, strict=True)})
        return True

    def is_blank(self, row: int, column: int, length: int) -> bool:
        """Whether neither text nor line is there."""
        return all((row, at) not in self.cells and (row, at) not in self.lines for at in range(column, column + length))

    def draw(self, path: Path, glyphs: Glyphs) -> None:
        """Draw a line through these positions in braille dots; in ASCII, a stroke in every cell on the line."""
        columns, rows = self.columns * _ACROSS, self.rows * _DOWN
        for (x0, y0), (x1, y1) in pairwise(path):
            (across0, along0), (across1, along1) = self.extent.unit(x0, y0), self.extent.unit(x1, y1)
            steps = math.ceil(max(abs(across1 - across0) * columns, abs(along1 - along0) * rows, 1)) * 2
            for step in range(steps + 1):
                share = step / steps
                across, along = across0 + share * (across1 - across0), along0 + share * (along1 - along0)
                if not (0 <= across <= 1 and 0 <= along <= 1):
                    continue
                column, row = _step(across, columns), _step(1 - along, rows)
                spot = row // _DOWN, column // _ACROSS
                if glyphs.braille:
                    self.lines[spot] = int(self.lines.get(spot, 0)) | _BRAILLE[row % _DOWN][column % _ACROSS]
                else:
                    self.lines.setdefault(spot, "-" if y0 == y1 else "/")

    def row(self, number: int, paper: Paper) -> str:
        """One row as text, with adjacent cells of one style painted together."""
        styled = [self._shown(number, column) for column in range(self.columns)]
        return "".join(
            paper.paint("".join(character for character, _ in run), *filter(None, [style]))
            for style, run in groupby(styled, key=lambda one: one[1])
        )

    def _shown(self, row: int, column: int) -> tuple[str, str]:
        if (row, column) in self.cells:
            return self.cells[row, column]
        line = self.lines.get((row, column), "")
        return (line if isinstance(line, str) else chr(0x2800 + line), "dim") if line else (" ", "")


def glyphs_for(encoding: str | None, ascii: bool = False) -> Glyphs:
    """Braille if the output's encoding has it, else ASCII; also with ``ascii``."""
    try:
        "".join((chr(0x2800), BRAILLE.dot, BRAILLE.program, BRAILLE.tick)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return ASCII if ascii else BRAILLE


def chart_text(
    report: Report, paper: Paper = PLAIN, *, numbered: int = NUMBERED, glyphs: Glyphs = BRAILLE, whole_s: float | None = None
) -> str:
    """The chart of a report, as wide as the paper (40 to 200 columns), and the key to its numbers.

    ``whole_s`` is the time that shares are of, where the report has only some of the ops. If the machine has no roofline, the text says so
    instead.
    """
    width = min(max(paper.width, NARROWEST), WIDEST)
    sheet = Paper(width, paper.colour)
    try:
        found = chart(report)
        drawn = found if whole_s is None else replace(found, total=whole_s)
    except RooflineError as error:
        text = sheet.paragraph(f"no chart: {error}")
    else:
        text = "\n".join(_picture(drawn, report, sheet, min(numbered, len(MARKS)), glyphs))
    return text if glyphs.braille else text.translate(_SPOKEN).encode("ascii", "replace").decode()


def _picture(drawn: Chart, report: Report, paper: Paper, numbered: int, glyphs: Glyphs) -> Iterator[str]:
    rows = min(max(round(paper.width / COLUMNS_PER_ROW), LOWEST), HIGHEST)
    marks = dict(zip((op.id for op in report.ops[:numbered]), MARKS, strict=False))
    y_ticks = _by_row(log_ticks(drawn.extent.bottom, drawn.extent.top, "FLOP/s", most=max(rows // 2, 3)), drawn.extent, rows)
    strip, gutter = _strip(drawn.strip, marks, rows, glyphs, paper)
    margin = max([len("FLOP/s"), *map(len, y_ticks.values())])
    canvas = Canvas(paper.width - gutter - margin - 1, rows, drawn.extent)
    under = _draw_dots(canvas, drawn, marks, glyphs)
    unsaid = _draw_roofs(canvas, drawn, glyphs)
    yield paper.paint(shorten(f"{drawn.machine}, over {title(HBM.name)}", paper.width), "bold")
    yield " " * gutter + "FLOP/s".rjust(margin)
    for number in range(rows):
        axis = glyphs.tick if number in y_ticks else glyphs.axis
        yield f"{strip[number]}{y_ticks.get(number, '').rjust(margin)}{axis}{canvas.row(number, paper)}".rstrip()
    yield from _x_axis(canvas, gutter, margin, glyphs, "no FLOP" if drawn.strip else "", f"FLOP/B of {title(HBM.name)}")
    yield from _key(drawn, report, marks, under, paper, glyphs)
    sentences = [f"Rooflines: {', '.join(unsaid)}."] if unsaid else []
    if drawn.strip:
        sentences.append("Ops without FLOP are at the left, by the fraction of bandwidth they reach.")
    if under:
        hidden, front = next((marks[op], front) for op, front in under.items())
        sentences.append(f"{hidden}→{front}: {hidden} is behind {front}.")
    if caption := " ".join(part for part in (*sentences, drawn.caption) if part):
        yield paper.paragraph(_one_wide(caption))


def _step(share: float, count: int) -> int:
    """Which of ``count`` equal parts a share of 0 to 1 falls into; values outside are clamped."""
    return min(max(math.floor(share * count), 0), count - 1) if math.isfinite(share) else 0 if share < 0 else count - 1


def _by_row(ticks: Sequence[Tick], extent: Extent, rows: int) -> dict[int, str]:
    """The labelled ticks of the vertical axis, one per row."""
    found: dict[int, str] = {}
    for tick in ticks:
        _, along = extent.unit(extent.left, tick.at)
        if tick.label:
            found.setdefault(_step(1 - along, rows), tick.label)
    return found


def _strip(dots: Sequence[StripDot], marks: dict[int, str], rows: int, glyphs: Glyphs, paper: Paper) -> tuple[list[str], int]:
    """The rows of the strip of ops without FLOP, with its axis, and their width; empty without such ops."""
    if not dots:
        return [""] * rows, 0
    extent = Extent(left=0.0, right=1.0, bottom=-0.04, top=1.06 * max(1.0, *(dot.share for dot in dots)), x_log=False, y_log=False)
    ticks = {row: shorten(label, 6) for row, label in _by_row(linear_ticks(0.0, extent.top, "%"), extent, rows).items()}
    dots_by_row: dict[int, list[tuple[str, str]]] = {}
    for dot in sorted(dots, key=lambda dot: dot.op not in marks):  # numbered ones first, because a row has few cells
        row = _step(1 - extent.unit(0.0, dot.share)[1], rows)
        there = dots_by_row.setdefault(row, [])
        if len(there) < STRIP - 1:
            there.append((_mark(dot.op, marks) or glyphs.dot, STYLES.get(dot.bound or "", "bold")))
    margin = max(len(label) for label in ticks.values()) if ticks else 0
    lines = []
    for row in range(rows):
        shown = "".join(paper.paint(text, style) for text, style in dots_by_row.get(row, ()))
        room = " " * (STRIP - len(dots_by_row.get(row, ())))
        lines.append(f"{ticks.get(row, '').rjust(margin)}{glyphs.tick if row in ticks else glyphs.axis}{shown}{room}")
    return lines, margin + 1 + STRIP


def _mark(op: int | None, marks: dict[int, str]) -> str:
    return "" if op is None else marks.get(op, "")


def _draw_dots(canvas: Canvas, drawn: Chart, marks: dict[int, str], glyphs: Glyphs) -> dict[int, str]:
    """Draw every dot in its cell: numbered ones first, then the program, then by weight. Returns which op is hidden by which number."""
    under: dict[int, str] = {}
    numbered = [dot for dot in drawn.dots if dot.op in marks]
    others = [dot for dot in drawn.dots if dot.op not in marks]
    for dot in numbered:
        row, column = canvas.cell(dot.intensity, dot.rate)
        if not canvas.write(row, column, _mark(dot.op, marks), STYLES.get(dot.bound or "", "bold")) and dot.op is not None:
            under[dot.op] = canvas.cells[row, column][0]
    if drawn.program:
        canvas.write(*canvas.cell(drawn.program.intensity, drawn.program.rate), glyphs.program, "bold")
    for dot in others:
        canvas.write(*canvas.cell(dot.intensity, dot.rate), glyphs.dot, STYLES.get(dot.bound or "", ""))
    return under


def _draw_roofs(canvas: Canvas, drawn: Chart, glyphs: Glyphs) -> list[str]:
    """Draw the roofs, with their names where these cover nothing. Returns the other names."""
    for one in drawn.roofs:
        canvas.draw(one.polyline(canvas.extent), glyphs)
    unsaid = []
    for one in drawn.roofs:
        name = rate_title(one.compute, one.peak)
        row, _ = canvas.cell(canvas.extent.right, one.peak)
        if not any(_named(canvas, at, canvas.columns - len(name), name) for at in (row - 1, row + 1)):
            unsaid.append(name)
    widest = max(drawn.roofs, key=lambda one: one.peak)
    name, slant = rate_title(HBM.name, widest.bandwidth), widest.slant(canvas.extent)
    places = [canvas.cell(x, y) for x, y in _along(slant)] if slant else []
    if not any(_named(canvas, row, _right_of_slope(canvas, row, column), name) for row, column in places):
        unsaid.append(name)
    return unsaid


def _named(canvas: Canvas, row: int, column: int, name: str) -> bool:
    return column >= 0 and canvas.is_blank(row, column, len(name)) and canvas.write(row, column, name, "dim")


def _right_of_slope(canvas: Canvas, row: int, column: int) -> int:
    """The second free column to the right of a slope in this row."""
    while (row, column) in canvas.lines:
        column += 1
    return column + 1


def _along(slant: Path) -> Iterator[tuple[float, float]]:
    """Positions on a slope for its name, starting in its lower half."""
    (x0, y0), (x1, y1) = slant
    for step in (5, 4, 6, 3, 7, 2, 8, 1):
        share = step / 10
        yield x0 * (x1 / x0) ** share, y0 * (y1 / y0) ** share


def _x_axis(canvas: Canvas, gutter: int, margin: int, glyphs: Glyphs, strip: str, unit: str) -> Iterator[str]:
    """The horizontal axis: its line with ticks, their numbers where they fit, and its unit."""
    line, numbers = [glyphs.floor] * canvas.columns, [" "] * canvas.columns
    taken = -1
    for tick in log_ticks(canvas.extent.left, canvas.extent.right, "FLOP/B", most=max(canvas.columns // 9, 3)):
        _, column = canvas.cell(tick.at, canvas.extent.bottom)
        begin = min(max(column - len(tick.label) // 2, 0), canvas.columns - len(tick.label))
        if tick.label and begin > taken:
            line[column] = glyphs.mark
            numbers[begin : begin + len(tick.label)] = tick.label
            taken = begin + len(tick.label)
    yield f"{' ' * (gutter + margin)}{glyphs.corner}{''.join(line)}"
    yield f"{strip.ljust(gutter + margin + 1)}{''.join(numbers)}".rstrip()
    yield unit.rjust(gutter + margin + 1 + canvas.columns)


def _key(drawn: Chart, report: Report, marks: dict[int, str], under: dict[int, str], paper: Paper, glyphs: Glyphs) -> Iterator[str]:
    """The key: which op each number is, with an arrow to the number that hides it."""
    places = {mark.op: mark for mark in drawn.marks}
    rate = "achieved" if drawn.timed else "attainable"
    columns = ["share", "bound", "FLOP/B", rate, "efficiency"] if paper.width >= 72 else ["share", "bound", "efficiency"]
    columns = columns if paper.width >= 48 else ["share", "efficiency"]
    rows: list[list[str | Cell]] = []
    for op in report.ops:
        if op.id in marks and op.id in places:
            mark = marks[op.id] + (f"→{under[op.id]}" if op.id in under else "")
            share = percent(op.weight_s / drawn.total) if drawn.total else "–"
            efficiency = efficiency_text(op.efficiency, is_upper_bound(op.notes))
            rows.append([mark, _one_wide(label(op)), *_key_cells(places[op.id], share, efficiency, columns)])
    if drawn.program:
        rows.append([glyphs.program, drawn.program.name, *_key_cells(drawn.program, "", percent(drawn.program.efficiency), columns)])
    if rows:
        yield ""
        yield table(["", "op", *columns], rows, paper, left=2, elastic=1)


def _key_cells(place: Dot | StripDot, share: str, efficiency: str, columns: Sequence[str]) -> Iterator[Cell]:
    """The cells of the key for a dot, in these columns, each limited to its column's width."""
    cells = {
        "share": Cell(share),
        "bound": Cell(shorten(place.bound or "–", 10), STYLES.get(place.bound or "", "")),
        "FLOP/B": Cell(shorten(plain(place.intensity), 9) if isinstance(place, Dot) else "–"),
        "efficiency": Cell(shorten(efficiency, 7)),
    }
    rate = Cell(shorten(show(place.rate, "FLOP/s"), 14) if isinstance(place, Dot) else "–")
    return (cells.get(column, rate) for column in columns)


def _one_wide(text: str) -> str:
    """The text with wide characters replaced, so that columns line up."""
    return "".join("·" if combining(character) or east_asian_width(character) in "WF" else character for character in text)
