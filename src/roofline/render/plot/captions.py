"""The text around the axes of a figure: title, subtitle and legend above, caption and key below."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from msgspec import Struct

from ..geometry import Spot
from .frame import POINTS
from .style import LINE_SPACING, NORMAL, ROOF_WIDTH, SMALL, TITLE, Dash, Theme, cut, drawable, font, text_size, text_style, wrap

_ROW, _SAMPLE = 14.0, 15.0  # of a legend: the height of a line, and the length of a mark or line
_BELOW_AXIS = 40.0  # ticks, their numbers and the axis label


class Entry(Struct, frozen=True, kw_only=True):
    """A line of the legend: a mark or a line, and what it means."""

    text: str
    colour: str
    marker: str | None = None
    dash: Dash = None
    filled: bool = True


def write_head(ax: Axes, theme: Theme, width: float, title: str, subtitle: str, legend: Sequence[Entry]) -> float:
    """Legend, subtitle and title, from the axes upwards; returns their height in points."""
    at = 8.0
    if legend:
        at += _legend(ax, theme, width, legend, at) + 5
    lines = wrap(drawable(subtitle), width, NORMAL)
    if lines:
        _note(ax, theme, "\n".join(lines), (0, 1), at, NORMAL)
        at += NORMAL * LINE_SPACING * len(lines) + 4
    lines = wrap(drawable(title), width, TITLE, "bold")
    ax.set_title("\n".join(lines), loc="left", y=1.0, pad=at + 3, **text_style(theme.ink, TITLE, "bold"))
    return at + TITLE * LINE_SPACING * len(lines) + 3


def write_foot(ax: Axes, theme: Theme, width: float, caption: str, key: Sequence[str]) -> float:
    """Caption and key, from the axis label downwards; returns their height in points, with the axis."""
    at = _BELOW_AXIS
    lines = wrap(drawable(caption), width, SMALL)
    if lines:
        height = SMALL * LINE_SPACING * len(lines)
        _note(ax, theme, "\n".join(lines), (0, 0), -at - height, SMALL)
        at += height + 4
    if key:
        texts = [cut(drawable(text), width, SMALL) for text in key]
        column = max(text_size(text, SMALL)[0] for text in texts) + 14
        columns = max(1, int((width + 14) // column))
        rows = -(-len(texts) // columns)
        height = SMALL * LINE_SPACING * rows
        for index in range(0, len(texts), rows):
            shown = texts[index : index + rows]
            lower = -at - SMALL * LINE_SPACING * len(shown)
            _note(ax, theme, "\n".join(shown), (0, 0), lower, SMALL, right=index // rows * column)
        at += height
    return at


def _legend(ax: Axes, theme: Theme, width: float, entries: Sequence[Entry], above: float) -> float:
    """The legend in rows over the axes; returns its height."""
    # The sample of a line is long enough for one period of its dashes.
    sample = max([_SAMPLE, *(sum(entry.dash) * ROOF_WIDTH for entry in entries if entry.dash)])
    beside = sample - _SAMPLE
    texts = [cut(drawable(" ".join(entry.text.split())), width - 30 - beside, SMALL) for entry in entries]
    columns = _columns([text_size(text, SMALL)[0] + 36 + beside for text in texts], width)
    drawn = ax.legend(
        [_handle(entry, theme) for entry in entries],
        # An underscore at the start of a label would hide the entry.
        [f" {text}" if text.startswith("_") else text for text in texts],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        bbox_transform=ax.transAxes + ScaledTranslation(0, above / POINTS, ax.figure.dpi_scale_trans),
        ncols=columns,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=sample / SMALL,
        handleheight=0.7,
        handletextpad=0.6,
        columnspacing=1.4,
        labelspacing=0.5,
        labelcolor=theme.ink,
        prop=font(SMALL),
        numpoints=1,
        markerscale=1.0,
    )
    for text in drawn.get_texts():
        text.set(parse_math=False, usetex=False)
    return -(-len(texts) // columns) * _ROW


def _columns(widths: Sequence[float], width: float) -> int:
    """How many columns fit, reduced so that rows are evenly filled: four entries are 4 x 1 or 2 x 2, never 3 and 1."""
    for columns in range(len(widths), 1, -1):
        rows = -(-len(widths) // columns)
        table = sum(max(widths[start : start + rows]) for start in range(0, len(widths), rows))
        if table <= width:
            return -(-len(widths) // rows)
    return 1


def _handle(entry: Entry, theme: Theme) -> Line2D:
    return Line2D(
        [],
        [],
        color=entry.colour,
        linestyle="none" if entry.marker else "solid" if entry.dash is None else (0, entry.dash),
        linewidth=ROOF_WIDTH,
        solid_capstyle="butt",
        dash_capstyle="butt",
        marker=entry.marker or "none",
        markersize=7,
        markerfacecolor=entry.colour if entry.filled else theme.background,
        markeredgecolor=entry.colour,
        markeredgewidth=0 if entry.filled else 1.4,
    )


def _note(ax: Axes, theme: Theme, text: str, corner: Spot, up: float, size: float, *, right: float = 0.0) -> None:
    """Text outside the axes, its lower left corner at a distance in points from a corner of the axes."""
    ax.annotate(
        text,
        xy=corner,
        xycoords="axes fraction",
        xytext=(right, up),
        textcoords="offset points",
        annotation_clip=False,
        ha="left",
        va="bottom",
        **text_style(theme.muted, size),
    )
