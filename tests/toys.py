"""Machines one can check by hand."""

from typing import Any

from msgspec.structs import asdict

from roofline.machine import Machine
from roofline.operation import Label
from roofline.report import OpInfo
from roofline.resource import HBM, matrix, vector
from roofline.sources.report_json import with_label_in_parts

BF16 = matrix("bf16")
FP8 = matrix("fp8")
FP32 = vector("fp32")
__all__ = ["BF16", "FP8", "FP32", "HBM", "label_of", "parts_of_label", "toy"]


def toy() -> Machine:
    """100 FLOP/s on the matrix unit (200 in fp8), 20 on the vector unit, 10 B/s of memory: the bf16 ridge is at 10 FLOP/B."""
    return Machine.of("toy", {"matrix/bf16": 100, "matrix/fp8": 200, "vector/fp32": 20, "hbm": 10, "ici": 1, "ici/hop": 4})


def label_of(text: str) -> Label:
    """A label as tests write it: ``where  does sizes``."""
    op = with_label_in_parts(OpInfo(id=0, rank=1, name="", label=text))
    return op.label_in_parts


def parts_of_label(text: str) -> dict[str, Any]:
    """A label and its parts, as an op of a report has them."""
    label = label_of(text)
    return {"label": text, **asdict(label)}
