"""Files are written whole or not at all, whatever ends the writing; an output never replaces an input."""

import errno
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.checking.baselines import baseline_of
from roofline.cli import main
from roofline.errors import OutputError
from roofline.files import output_files
from roofline.files.abandoned_files import mark_in_use
from roofline.files.output_files import write_file
from roofline.files.staging import staging_folder
from roofline.machines.catalogue import card
from roofline.machines.writing import write_machine_file
from roofline.sources.baseline_json import write_baseline

pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, where another test imported it, warns of any fork

CALLS = ("open", "write", "fsync", "link", "replace", "close", "fchmod", "unlink", "listdir")
OLD, NEW = b"old " * 1000, b"new " * 5000
TABLE = "name,time,hbm,matrix/bf16\ncopy,14,100,5\n"


def calls_until(end: Callable[[], object], at: int) -> None:
    """From the ``at``-th system call of the writer on, every one ends as ``end`` does."""
    made = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **more: object) -> object:
            nonlocal made
            made += 1
            if made == at:
                end()
            return real(*words, **more)

        return call

    for name in CALLS:
        setattr(output_files.os, name, counted(getattr(os, name)))


@pytest.mark.parametrize("unnamed", [True, False], ids=["without a name", "with a name"])
@pytest.mark.parametrize("before", [OLD, None], ids=["over a file", "new"])
def test_a_kill_at_any_call_leaves_the_old_file_or_the_new_one(tmp_path: Path, before: bytes | None, unnamed: bool) -> None:
    target = tmp_path / "report.json"
    for at in range(1, 30):
        for left in tmp_path.iterdir():
            left.unlink()
        if before is not None:
            target.write_bytes(before)
        child = os.fork()
        if not child:
            output_files._PIECE = 4096  # several write calls
            if not unnamed:
                del os.O_TMPFILE
            calls_until(lambda: os.kill(os.getpid(), signal.SIGKILL), at)
            write_file(target, NEW)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert (target.read_bytes() if target.exists() else None) in (before, NEW)
        if unnamed and before is None:  # a new file gets its own name at once
            assert {*tmp_path.iterdir()} <= {target}
        if not os.WIFSIGNALED(status):
            break
        write_file(target, OLD)
        assert list(tmp_path.iterdir()) == [target]  # whatever the killed writer left is gone
    assert at > 8  # of which some were writes
    assert target.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [target]


def test_a_draft_that_another_writer_works_on_stays(tmp_path: Path) -> None:
    target, draft = tmp_path / "report.json", tmp_path / f".report.json.1{output_files.UNFINISHED}"
    others = [tmp_path / f".other.json.1{output_files.UNFINISHED}", tmp_path / ".report.json.1.unfinished", tmp_path / ".report.json.bak"]
    for path in (target, draft, *others):
        path.write_bytes(OLD)
    with draft.open("r+b") as held:
        mark_in_use(held.fileno())
        write_file(target, NEW)
        assert draft.exists()
    write_file(target, NEW)
    assert {*tmp_path.iterdir()} == {target, *others}


def test_a_name_as_long_as_names_can_be_is_written_twice(tmp_path: Path) -> None:
    target = tmp_path / ("模" * 83 + ".json")  # 254 bytes
    for data in (OLD, NEW):
        write_file(target, data)
        assert target.read_bytes() == data
    assert list(tmp_path.iterdir()) == [target]


def test_a_staging_folder_goes_at_the_end_or_with_the_next_one(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        with staging_folder(tmp_path) as made:
            (made / "trace.json").write_text("{")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    with staging_folder(tmp_path) as first, staging_folder(tmp_path) as second:
        assert {*tmp_path.iterdir()} == {first, second}  # both in use, and the killed one's gone
    assert list(tmp_path.iterdir()) == []


def write_with(option: str) -> Callable[[Path], object]:
    return lambda target: main(["analyze", "ops.csv", "--chip", "h100", option, str(target)])


WRITERS: dict[str, Callable[[Path], object]] = {
    **{f"report.{suffix}": write_with("--output") for suffix in ("html", "svg", "png", "pdf", "md")},
    **{f"report.{suffix}": write_with(f"--{suffix}") for suffix in ("json", "csv", "parquet")},
    "machine.toml": lambda target: write_machine_file(card("h100"), target),
    "baseline.json": lambda target: write_baseline(target, baseline_of(rl.analyze("ops.csv", "h100"))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_output_is_old_or_new_at_every_call_of_its_writer(name: str, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed leaves what is on the disk at that moment, so it is looked at before and after each call."""
    target = table.parent / name
    target.write_bytes(OLD)
    contents, written = [], []

    def watched(call: str) -> Callable[..., object]:
        real = getattr(os, call)

        def watch(*words: object, **more: object) -> object:
            contents.append(target.read_bytes())
            answer = real(*words, **more)
            contents.append(target.read_bytes())
            written.append(call)
            return answer

        return watch

    with monkeypatch.context() as patch:
        patch.setattr(output_files, "_PIECE", 4096)
        for call in CALLS:
            patch.setattr(os, call, watched(call))
        WRITERS[name](target)
    new = target.read_bytes()
    assert new not in (OLD, b"")
    assert {*contents} == {OLD, new}
    assert {"write", "fsync", "replace"} <= {*written}  # else it was written some other way, which was not watched
    assert sorted(path.name for path in table.parent.iterdir()) == sorted([name, "ops.csv"])


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_leaves_the_old_file_and_nothing_else(tmp_path: Path, fault: BaseException) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(OLD)

    def fail(*_: object) -> int:
        raise fault

    for name in ("write", "fsync", "replace"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises((OutputError, KeyboardInterrupt)):
                write_file(target, NEW)
        assert target.read_bytes() == OLD
        assert list(tmp_path.iterdir()) == [target]


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
    with pytest.raises(OutputError, match="is a folder"):
        write_file(tmp_path, NEW)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.csv").write_text(TABLE)
    return tmp_path / "ops.csv"


@every("option", ["--json", "--csv", "--parquet"])
def test_an_output_that_is_also_an_input_is_refused(table: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    (table.parent / "same.csv").symlink_to(table)
    os.link(table, table.parent / "hard.csv")
    for name in ("ops.csv", "./ops.csv", "same.csv", "hard.csv"):
        assert main(["analyze", "ops.csv", option, name]) == 2
        assert capsys.readouterr().err == f"roofline: {option} {name}: also an input; write to another file\n"
    assert main(["compare", "ops.csv", "hard.csv", option, "ops.csv"]) == 2
    assert table.read_text() == TABLE


def test_a_profile_in_the_folder_that_is_read_is_an_input_and_an_old_report_there_is_not(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = table.parent / "run"
    run.mkdir()
    (run / "step.hlo").write_text("HloModule m\nENTRY e {\n  ROOT p = f32[2]{0} parameter(0)\n}\n")
    assert main(["hlo", "run", "--json", "run/step.hlo"]) == 2
    assert "also an input" in capsys.readouterr().err
    for _ in range(2):
        assert main(["hlo", "run", "--chip", "h100", "--csv", "run/answer.csv"]) == 0


def test_two_outputs_are_two_files(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "ops.csv", "--json", "x", "--csv", "./x"]) == 2
    assert "both write" in capsys.readouterr().err


def test_figures_and_reports_are_written_whole(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = rl.analyze(table, "h100")
    for name in ("report.svg", "report.json", "report.html"):
        target = table.parent / name
        target.write_bytes(OLD)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
            with pytest.raises(OutputError):
                rl.save(report, target)
        assert target.read_bytes() == OLD
