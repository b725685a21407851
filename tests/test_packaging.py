"""What a release contains."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "roofline"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILT = (".so", ".pyd", ".pyc", ".bin")


def test_a_wheel_takes_every_data_file_and_no_c() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["roofline"]
    taken = {path for pattern in patterns for path in SOURCE.glob(pattern) if path.is_file()}
    there = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (*BUILT, ".py", ".c", ".h")}
    assert taken == there
