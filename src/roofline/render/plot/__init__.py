"""Figures with matplotlib: one function per figure, which takes and returns ``ax``; nothing is shown, saved or set globally.

>>> from roofline.machine import Machine
>>> toy = Machine.of("toy", {"matrix/bf16": "100 TFLOP/s", "hbm": "2 TB/s"})
>>> anatomy(toy).get_title(loc="left")
'Roofline of toy'
"""

from ...errors import MissingExtra

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra("matplotlib") from None

from .bars import time_bars
from .comparison import change_bars
from .expected import expected_times
from .points import distance_to_roof, fusion_path, prediction_and_measurement
from .report import roofline_chart
from .roofs import anatomy, ceilings, communication, hierarchy, rooflines
from .saving import save
from .sizes import intensity_against_size
from .sweep import sweep_chart
from .trend import trend_chart

__all__ = [
    "anatomy",
    "ceilings",
    "change_bars",
    "communication",
    "distance_to_roof",
    "expected_times",
    "fusion_path",
    "hierarchy",
    "intensity_against_size",
    "prediction_and_measurement",
    "roofline_chart",
    "rooflines",
    "save",
    "sweep_chart",
    "time_bars",
    "trend_chart",
]
