"""The example programs, on whatever device is here."""

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def fusion() -> dict[str, Any]:
    pytest.importorskip("jax")
    return runpy.run_path(str(EXAMPLES / "fusion.py"))


def test_the_fusion_experiment_shows_predicted_and_measured_speed_ups(fusion: dict[str, Any]) -> None:
    text = fusion["measure"](64, 128)
    rows = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit() and line.endswith("x")]
    assert [row[0] for row in rows] == ["4", "2", "1"]
    assert [row[-3] for row in rows] == ["1.00x", "2.00x", "4.00x"]  # a kernel reads one array and writes one, however many stages it has
    assert all(float(row[-1].removesuffix("x")) > 0 for row in rows)


def test_the_gap_is_explained_by_bandwidth_and_by_the_stage_whose_arithmetic_remains(fusion: dict[str, Any]) -> None:
    cuts = [fusion["Cut"](4, 400e9, 0.2, 0.4), fusion["Cut"](1, 100e9, 0.05, 0.2)]
    # 1 TB/s before and 0.5 TB/s after: a quarter of the bytes at half the bandwidth is twice as fast.
    lines = list(fusion["explanation"](cuts, {"norm": 0.1, "dropout": 0.19}, {"norm": 0.8, "dropout": 0.3}))
    assert lines[0] == "- one kernel moves 4.00x fewer bytes at 0.50x the bandwidth (1 TB/s before, 500 GB/s after): 2.00x in all"
    assert lines[1].endswith("limited by memory")
    assert lines[2].endswith("limited by its arithmetic, not memory")
    assert "that of dropout stays, 190 ms alone" in lines[3]
