"""A user without a home folder, and a process without standard streams, can work; what needs them is refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from every import every
from roofline.cli import main

TABLE = "name,time,hbm,matrix/bf16\ncopy,14,100,5\n"


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "ROOFLINE_CACHE", "ROOFLINE_DATA", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_home(path: object) -> str:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(no_home))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.csv").write_text(TABLE)
    return tmp_path


def test_without_a_home_folder_inputs_are_read_and_the_cache_says_what_to_set(homeless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "ops.csv", "--chip", "local"]) == 0
    capsys.readouterr()
    assert main(["--cache"]) == 2
    assert capsys.readouterr().err == "roofline: this user has no home folder; set HOME, or ROOFLINE_CACHE to a folder\n"
    assert main(["--cache", str(homeless / "cache")]) == 0


CLOSED = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'roofline', *sys.argv[1:]])"


@every(("words", "status"), [(["op", "matmul", "8", "8", "8"], 0), (["chips", "h200", "--json", "-"], 1)])
def test_a_closed_standard_output_is_no_traceback(words: list[str], status: int) -> None:
    ended = subprocess.run([sys.executable, "-c", CLOSED, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == status
    assert ended.stderr == ("roofline: cannot write to standard output: it is closed\n" if status else "")


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe without a reader is another error there")
def test_a_reader_that_leaves_does_not_keep_the_files_from_being_written(tmp_path: Path) -> None:
    table, page = tmp_path / "ops.csv", tmp_path / "report.html"
    table.write_text("name,time,flops,bytes\n" + "".join(f"op {number} {'x' * 40},2 ms,1 GFLOP,10 MB\n" for number in range(2000)))
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = ["analyze", str(table), "--chip", "h200", "--top", "2000", "--by", "op", "-o", str(page)]
    try:
        ended = subprocess.run([sys.executable, "-m", "roofline", *words], stdout=write_end, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write_end)
    assert (ended.returncode, ended.stderr) == (0, f"roofline: wrote {page}\n")
    assert page.read_text().startswith("<!doctype html>")
