"""More rows for a product whose depth was split: fewer parts, and less to add up."""

from pathlib import Path

import pytest

from program_texts import program_text
from roofline.analysis.what_if import what_if
from roofline.report import Report

# 64 rows of 1,024 by a weight of 4,096 columns in 4 parts, which another kernel adds up.
SPLIT = program_text("what_if_split_depths/split.hlo")


@pytest.fixture(name="program")
def _program(tmp_path: Path) -> Path:
    path = tmp_path / "split.hlo"
    path.write_text(SPLIT)
    return path


def bytes_of(report: Report) -> dict[str, float]:
    return {op.name: float(op.bytes["hbm"] or 0) for op in report.ops}


def test_many_rows_are_multiplied_in_one_part(program: Path) -> None:
    rows, weight, columns = 64 * 64, 1024 * 4096, 4096
    found = bytes_of(what_if(program, "scale batch=x64", machine="h200"))
    assert found["parts"] == 2 * (rows * 1024 + weight + rows * columns)
    assert found["y"] == 2 * rows * columns * 2, "what is left of adding up reads and writes bf16"


def test_few_rows_stay_in_parts(program: Path) -> None:
    found = bytes_of(what_if(program, "scale batch=x1/4", machine="h200"))
    assert found["parts"] == 2 * (16 * 1024 + 1024 * 4096) + 4 * 4 * 16 * 4096
    assert found["y"] == 4 * 4 * 16 * 4096 + 2 * 16 * 4096
