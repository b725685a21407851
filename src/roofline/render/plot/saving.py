"""Writing figures to files, the same bytes every time."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from ...errors import UsageError, did_you_mean
from ...files.output_files import write_file

FORMATS = ("svg", "png", "pdf")
_DPI = 160
# Text is written as outlines, so that a figure looks the same where its font is not installed; the salt makes ids reproducible.
_SETTINGS: dict[Any, Any] = {"svg.fonttype": "path", "svg.hashsalt": "roofline", "pdf.fonttype": 42, "savefig.bbox": "standard"}
_METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "roofline"},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": "roofline", "Producer": None},
}


def save(drawing: Axes | Figure, path: str | Path, *, dpi: float = _DPI) -> Path:
    """Write a figure in the format of the file's extension: svg, png or pdf.

    No date is written, so the same figure gives the same bytes.
    """
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        close = did_you_mean(kind, FORMATS) or f"; write one of {', '.join('.' + known for known in FORMATS)}"
        raise UsageError(f"{target}: no figure format named {kind!r}{close}")
    figure = drawing.figure if isinstance(drawing, Axes) else drawing
    whole = figure.figure if isinstance(figure, SubFigure) else figure
    drawn = BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        whole.savefig(
            drawn, format=kind, dpi=dpi, facecolor=whole.get_facecolor(), edgecolor="none", transparent=False, metadata=_METADATA[kind]
        )
    write_file(target, drawn.getvalue())
    return target
