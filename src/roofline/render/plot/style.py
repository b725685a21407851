"""One style for every figure: two themes, a palette for colour-blind readers, one typeface that matplotlib ships.

A figure is drawn in matplotlib's own settings, in place of which the user's stand again afterwards. Text has a contrast of at
least 4.5 against its background and lines of at least 3 (WCAG 2.2); the series are Okabe and Ito's colours, darkened or
lightened until they reach that and stay apart under protanopia, deuteranopia and tritanopia.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.font_manager import findfont, get_font
from msgspec import Struct

from ...errors import UsageError, did_you_mean
from ...resource import Resource

TITLE, NORMAL, SMALL = 12.0, 9.0, 8.0
LINE = 1.4  # height of a line of text, in font sizes
TYPEFACE = "DejaVu Sans"  # comes with matplotlib, and its digits all have one width
DPI = 160
Dash = tuple[float, ...] | None
ROOF_WIDTH, THIN_WIDTH, HAIR_WIDTH = 1.8, 1.2, 0.7
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Dash, ...] = (None, (5, 2), (2, 1.6), (7, 2, 1.5, 2))


class Theme(Struct, frozen=True, kw_only=True):
    """Colours of one mode: paper, ink, and the series in the order they are used."""

    name: str
    background: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    shade: float

    @property
    def memory(self) -> str:
        return self.series[0]

    @property
    def compute(self) -> str:
        return self.series[1]

    @property
    def good(self) -> str:
        return self.series[2]

    def lettering(self, colour: str) -> str:
        """A variant of a colour for text that is legible on an area shaded in it."""
        paper = mixed(self.background, colour, self.shade)
        return next(shade for step in range(11) if contrast(shade := mixed(colour, self.ink, step / 10), paper) >= 4.5)

    def of_series(self, index: int) -> str:
        return self.series[index % len(self.series)]

    def of_unit(self, unit: str | None) -> str:
        """The colour of work bound by a unit of hardware, the same in every figure."""
        if unit is None or unit == "latency":
            return self.muted
        if unit in ("matrix", "compute"):
            return self.compute
        if unit == "vector":
            return self.series[3]
        if unit == "hbm":
            return self.memory
        return self.good if Resource(unit).is_link else self.series[4]


LIGHT = Theme(
    name="light",
    background="#FFFFFF",
    ink="#1B1F24",
    muted="#5B636D",
    grid="#E7EAEE",
    series=("#0072B2", "#D55E00", "#009E73", "#B0508C", "#2B2470", "#7A1F3D"),
    shade=0.10,
)
DARK = Theme(
    name="dark",
    background="#14171B",
    ink="#ECEFF3",
    muted="#A3ABB5",
    grid="#2A3038",
    series=("#56B4E9", "#E8702A", "#009E73", "#D98CB8", "#F0E442", "#3C7DD9"),
    shade=0.16,
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def mixed(one: str, other: str, share: float) -> str:
    """A colour mixed with this share of another, like a translucent shade over the background."""
    parts = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(mine * (1 - share) + yours * share):02X}" for mine, yours in parts)


def theme_named(name: str) -> Theme:
    """The theme with this name."""
    if name not in THEMES:
        raise UsageError(f"no theme named {name!r}{did_you_mean(name, THEMES) or '; known: ' + ', '.join(THEMES)}")
    return THEMES[name]


def contrast(one: str, other: str) -> float:
    """The WCAG contrast of two colours ``#rrggbb``: 1 for the same, 21 for black on white."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    """An sRGB channel without its gamma."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


P = ParamSpec("P")


def styled(draw: Callable[P, Axes]) -> Callable[P, Axes]:
    """A figure function that draws in the style of its ``theme``, whatever the user's settings are."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Axes:
        with matplotlib.style.context(["default", settings(theme_named(str(kwargs.get("theme", LIGHT.name))))]):
            return draw(*args, **kwargs)

    return drawn


def settings(theme: Theme) -> dict[str, Any]:
    """Matplotlib's settings for a theme; texts have no math mode, because names in programs may contain dollar signs."""
    return {
        "font.family": TYPEFACE, "font.size": NORMAL, "text.color": theme.ink, "text.parse_math": False,
        "figure.constrained_layout.use": True, "figure.constrained_layout.w_pad": 0.12, "figure.constrained_layout.h_pad": 0.12,
        "figure.facecolor": theme.background, "axes.facecolor": theme.background, "axes.edgecolor": theme.muted,
        "axes.labelcolor": theme.ink, "axes.labelsize": NORMAL, "axes.titlesize": TITLE, "axes.titleweight": "bold",
        "xtick.color": theme.muted, "xtick.labelsize": SMALL, "ytick.color": theme.muted, "ytick.labelsize": SMALL,
        "grid.color": theme.grid, "grid.linewidth": 0.6, "scatter.edgecolors": theme.background, "lines.solid_capstyle": "butt",
        "legend.frameon": False, "legend.borderpad": 0.1, "legend.fontsize": SMALL, "legend.handlelength": 3, "legend.columnspacing": 1.6,
        "svg.fonttype": "path", "svg.hashsalt": "roofline", "pdf.fonttype": 42,
    }  # fmt: skip


@lru_cache(maxsize=1)
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(TYPEFACE)).get_charmap())


def drawable(text: str) -> str:
    """A text with a question mark for each character that the typeface lacks, which names in programs may contain."""
    known = _drawable()
    return "".join(letter if letter == "\n" or ord(letter) in known else "?" for letter in text)


def short_name(name: str, most: int = 30) -> str:
    """An operation's name in few letters: C++ kernels without types, arguments and namespaces; the middle left out if still long.

    >>> short_name("void at::native::vectorized_kernel<4, at::native::AddFunctor<float>>(int, float*)")
    'vectorized_kernel'
    """
    name = " ".join(name.split())
    if len(name) <= most:
        return name
    if "<" in name or "::" in name:
        bare = _without_brackets(name).removeprefix("void ").strip()
        name = bare.rsplit("::", 1)[-1].strip() or name
    if len(name) <= most:
        return name
    tail = (most - 1) // 3
    return f"{name[: most - 1 - tail]}…{name[-tail:]}"


def _without_brackets(name: str) -> str:
    """The text outside all angle brackets and parentheses."""
    depth, kept = 0, []
    for letter in name:
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(letter)
    return "".join(kept)
