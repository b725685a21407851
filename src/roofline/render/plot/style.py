"""One style for every figure: two themes, a palette for colour-blind readers, one typeface that matplotlib ships.

Nothing here changes matplotlib's global settings: colours and fonts are passed to each artist. Text has a contrast of at
least 4.5 against its background and lines of at least 3 (WCAG 2.2); the series are Okabe and Ito's colours, darkened or
lightened until they reach that and stay apart under protanopia, deuteranopia and tritanopia.
"""

from functools import lru_cache
from typing import Any

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import text_to_path
from msgspec import Struct

from ...errors import UsageError, did_you_mean
from ...resource import Resource
from ..labels import Size

TITLE, NORMAL, SMALL = 12.0, 9.0, 8.0
LINE_SPACING = 1.25  # height of a line of text, in font sizes
LETTER_SPACING = 1.2  # the same in matplotlib's unit of line spacing
HINTING = 1.025  # how much wider a line of text may be on a screen, because of hinting
TYPEFACE = "DejaVu Sans"
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


@lru_cache(maxsize=64)
def font(points: float = NORMAL, weight: str = "normal") -> FontProperties:
    """The typeface of every figure: DejaVu Sans comes with matplotlib, and its digits all have one width."""
    return FontProperties(family=[TYPEFACE], size=points, weight=weight, style="normal", stretch="normal", variant="normal")


def text_style(colour: str, points: float = NORMAL, weight: str = "normal") -> dict[str, Any]:
    """Arguments of every text artist: no math mode, because names in programs may contain dollar signs."""
    return {"color": colour, "fontproperties": font(points, weight), "linespacing": LETTER_SPACING, "parse_math": False, "usetex": False}


@lru_cache(maxsize=4096)
def text_size(text: str, points: float = NORMAL, weight: str = "normal") -> Size:
    """A text's width and height in points, one line or several; wide enough for letters that screens round to whole pixels."""
    lines = text.split("\n")
    width: float = max(text_to_path.get_text_width_height_descent(line, font(points, weight), ismath=False)[0] for line in lines)
    return width * HINTING, points * LINE_SPACING * len(lines)


@lru_cache(maxsize=1)
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(font())).get_charmap())


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


def wrap(text: str, width: float, points: float, weight: str = "normal") -> list[str]:
    """Lines no wider than ``width`` points, broken at spaces; a wider word gets its own line."""
    lines: list[str] = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_size(joined, points, weight)[0] <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def cut(text: str, width: float, points: float) -> str:
    """A text no wider than ``width`` points, its end left out if it must be."""
    if text_size(text, points)[0] <= width:
        return text
    while len(text) > 1 and text_size(f"{text}…", points)[0] > width:
        text = text[:-1]
    return f"{text}…"
