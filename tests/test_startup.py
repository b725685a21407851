"""What starting may cost: heavy libraries are imported where they are used, and not on the way to an answer from a profile."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"jax", "torch", "polars", "pyarrow", "matplotlib", "numpy", "starlette", "uvicorn", "fsspec", "distributed", "mcp"}
CAPTURES = Path(__file__).parent / "data"


def modules_of(*words: str) -> set[str]:
    """What a fresh interpreter has imported after this command."""
    program = (
        "import sys; from roofline.cli import main; status = main(sys.argv[1:]); print(*sys.modules, file=sys.stderr); sys.exit(status)"
    )
    run = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stderr.split())


def imported_by(*words: str) -> set[str]:
    """The heavy libraries among that."""
    return HEAVY & {name.partition(".")[0] for name in modules_of(*words)}


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["op", "matmul", "64", "64", "64", "--chip", "v5e"],
        ["analyze", str(CAPTURES / "h200" / "jax_train.hlo.txt.gz"), "--chip", "h200"],
    ],
    ids=" ".join,
)
def test_an_answer_needs_no_heavy_library(words: list[str]) -> None:
    assert imported_by(*words) == set()


def test_a_profile_is_answered_as_json_without_a_heavy_library(tmp_path: Path) -> None:
    assert imported_by("analyze", "sample:train", "--chart", "--json", str(tmp_path / "report.json")) == set()


def test_a_pytorch_trace_needs_neither_masked_arrays_nor_compiled_programs() -> None:
    found = modules_of("analyze", str(CAPTURES / "h200" / "torch_eager.json.gz"))
    assert "numpy" in found
    assert not {"numpy.ma", "roofline.hlo"} & found
