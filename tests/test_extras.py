"""What `pip install roofline` leaves out is asked for in one line that names the extra."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from every import every

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
# library -> (extra, a command that needs it)
PROFILE = Path(__file__).parent / "data" / "cpu" / "jax_one.xplane.pb.gz"
TRACE = Path(__file__).parent / "data" / "h200" / "torch_eager.json.gz"
NEEDED = {
    "msgspec": ("", ["analyze", "run"]),
    "numpy": ("", ["analyze", str(TRACE)]),
    "matplotlib": ("", ["op", "matmul", "64", "64", "64", "--chip", "v5e", "-o", "roof.svg"]),
    "pyarrow": ("parquet", ["op", "matmul", "64", "64", "64", "--chip", "v5e", "--parquet", "ops.parquet"]),
    "starlette": ("serve", ["serve", "."]),
    "uvicorn": ("serve", ["serve", "."]),
    "fsspec": ("remote", ["analyze", "memory://bucket/ops.csv"]),
    "distributed": ("cluster", ["analyze", "run", "--read", "cluster=tcp://127.0.0.1:1"]),
    "jax": ("jax", ["validate", "jax", "json:dumps", "--args", "2x2"]),
    "mcp": ("mcp", ["mcp"]),
    "torch": ("torch", ["validate", "torch", "json:dumps", "--args", "2x2"]),
}


def without(library: str, code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A program in a Python that does not have the library."""
    program = f"import sys\nsys.modules[{library!r}] = None\n{code}"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("library", NEEDED)
def test_a_missing_library_is_one_line_that_names_its_extra(library: str, tmp_path: Path) -> None:
    extra, words = NEEDED[library]
    (tmp_path / "run").mkdir()
    shutil.copy(PROFILE, tmp_path / "run" / "host.xplane.pb.gz")
    run = without(library, f"from roofline.cli import main\nsys.exit(main({words}))", tmp_path)
    wanted = f"'roofline[{extra}]'" if extra else library
    assert run.stderr == f"roofline: {library} is not installed; run: pip install {wanted}\n"
    assert run.returncode == 1


@every("library", [library for library, (extra, _) in NEEDED.items() if extra])
def test_every_extra_that_is_named_brings_its_library(library: str) -> None:
    assert library in names(PROJECT["optional-dependencies"][NEEDED[library][0]])


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}
