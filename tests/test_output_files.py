"""Files are written whole or not at all, whatever ends the writing; an output never replaces an input."""

import errno
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import roofline as rl
from roofline.checking.baselines import baseline_of
from roofline.cli import main
from roofline.errors import OutputError
from roofline.files.output_files import write_file
from roofline.machines.catalogue import card
from roofline.machines.writing import write_machine_file
from roofline.sources.baseline_json import write_baseline

pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, where another test imported it, warns of any fork

OLD, NEW = b"old " * 1000, b"new " * 5000
TABLE = "name,time,hbm,matrix/bf16\ncopy,14,100,5\n"


def write_with(option: str) -> Callable[[Path], object]:
    return lambda target: main(["analyze", "ops.csv", "--chip", "h100", option, str(target)])


WRITERS: dict[str, Callable[[Path], object]] = {
    **{f"report.{suffix}": write_with("--output") for suffix in ("html", "svg", "md")},  # all figures are written alike
    **{f"report.{suffix}": write_with(f"--{suffix}") for suffix in ("json", "csv", "parquet")},
    "machine.toml": lambda target: write_machine_file(card("h100"), target),
    "baseline.json": lambda target: write_baseline(target, baseline_of(rl.analyze("ops.csv", "h100"))),
}


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupt"])
def test_a_full_disk_or_an_interrupt_leaves_the_old_file_and_nothing_else(
    table: Path, monkeypatch: pytest.MonkeyPatch, call: str, fault: BaseException
) -> None:
    def fail(*_: object) -> int:
        raise fault

    for name, write in WRITERS.items():
        target = table.parent / name
        target.write_bytes(OLD)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            try:
                assert write(target) in (1, 130), name
            except (OutputError, KeyboardInterrupt):
                assert name in ("machine.toml", "baseline.json")
        assert target.read_bytes() == OLD, name
        assert write(target) in (0, None)
        assert target.read_bytes() not in (OLD, b""), name
        target.unlink()
        assert list(table.parent.iterdir()) == [table]


def test_a_kill_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(OLD)
    for call in ("fsync", "replace"):
        child = os.fork()
        if not child:
            setattr(os, call, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            write_file(target, NEW)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert target.read_bytes() == OLD
    write_file(target, NEW)
    assert target.read_bytes() == NEW


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "report.json", tmp_path / "latest.json"
    target.write_bytes(OLD)
    target.chmod(0o640)
    link.symlink_to(target)
    write_file(link, NEW)
    assert link.is_symlink()
    assert target.read_bytes() == NEW
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    write_file(os.devnull, NEW)
    assert not Path(os.devnull).is_file()
    with pytest.raises(OutputError, match="Is a directory"):
        write_file(tmp_path, NEW)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.csv").write_text(TABLE)
    return tmp_path / "ops.csv"


def test_an_output_that_is_also_an_input_is_refused(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (table.parent / "same.csv").symlink_to(table)
    os.link(table, table.parent / "hard.csv")
    for option in ("--json", "--csv", "--parquet"):
        for name in ("ops.csv", "./ops.csv", "same.csv", "hard.csv"):
            assert main(["analyze", "ops.csv", option, name]) == 2
            assert capsys.readouterr().err == f"roofline: {option} {name}: also an input; write to another file\n"
        assert main(["compare", "ops.csv", "hard.csv", option, "ops.csv"]) == 2
        capsys.readouterr()
    assert table.read_text() == TABLE


def test_a_profile_in_the_folder_that_is_read_is_an_input_and_an_old_report_there_is_not(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = table.parent / "run"
    run.mkdir()
    (run / "step.hlo").write_text("HloModule m\nENTRY e {\n  ROOT p = f32[2]{0} parameter(0)\n}\n")
    assert main(["analyze", "run", "--json", "run/step.hlo"]) == 2
    assert "also an input" in capsys.readouterr().err
    for _ in range(2):
        assert main(["analyze", "run", "--chip", "h100", "--csv", "run/answer.csv"]) == 0
