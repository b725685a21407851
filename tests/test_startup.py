"""What starting may cost: heavy libraries are imported where they are used, and not on the way to an answer from a profile."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.cli import main

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


def test_analyze_starts_no_threads_for_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the command: who calls it from Python may compute some, and so may programs that other commands run."""
    variable = "OPENBLAS_NUM_THREADS"
    monkeypatch.delenv(variable, raising=False)
    assert main(["analyze", "--help"]) == 0
    monkeypatch.setattr(sys, "argv", ["roofline", "capture", "--help"])
    assert main() == 0
    assert variable not in os.environ
    monkeypatch.setattr(sys, "argv", ["roofline", "analyze", "--help"])
    assert main() == 0
    assert os.environ[variable] == "1"
    monkeypatch.setenv(variable, "4")
    assert main() == 0
    assert os.environ[variable] == "4"


def test_a_process_that_ends_is_not_searched_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that of the command: who calls it from Python goes on."""
    frozen = list[int]()
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.get_threshold()[0]))
    monkeypatch.setattr(sys, "argv", ["roofline", "--help"])
    assert main(["--help"]) == 0
    assert frozen == []
    assert main() == 0
    assert len(frozen) == 1
    assert frozen[0] > gc.get_threshold()[0]  # before the usual threshold is back, at which a search would begin
