"""Writing figures to files, the same bytes every time."""

from io import BytesIO
from pathlib import Path

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from ...errors import UsageError, did_you_mean
from ...files.output_files import write_file
from .style import DPI, LIGHT, settings

FORMATS = ("svg", "png", "pdf")
_METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "roofline"},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": "roofline", "Producer": None},
}


def save(drawing: Axes | Figure, path: str | Path, *, dpi: float = DPI) -> Path:
    """Write a figure in the format of the file's extension: svg, png or pdf.

    No date is written, so the same figure gives the same bytes. Text is written as outlines, so that a figure looks the same where its font
    is not installed.
    """
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        close = did_you_mean(kind, FORMATS) or f"; write one of {', '.join('.' + known for known in FORMATS)}"
        raise UsageError(f"{target}: no figure format named {kind!r}{close}")
    figure = drawing.figure if isinstance(drawing, Axes) else drawing
    whole = figure.figure if isinstance(figure, SubFigure) else figure
    drawn = BytesIO()
    with matplotlib.style.context(["default", settings(LIGHT)]):
        whole.savefig(
            drawn, format=kind, dpi=dpi, facecolor=whole.get_facecolor(), edgecolor="none", transparent=False, metadata=_METADATA[kind]
        )
    write_file(target, drawn.getvalue())
    return target
