"""Progress: shown to a person who has waited two seconds at a terminal, to nobody else, and gone when the work is done."""

import gzip
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from roofline.cli import main
from roofline.cli.progress import progress


class Terminal(io.StringIO):
    """A terminal that remembers what was written, and says when a word is there."""

    def __init__(self, word: str = "") -> None:
        super().__init__()
        self.word, self.drawn = word, Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        if self.word in self.getvalue():
            self.drawn.set()


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def shown(screen: Terminal) -> list[str]:
    return screen.getvalue().split("\r")


def test_long_work_shows_how_far_it_is_and_leaves_nothing() -> None:
    screen = Terminal("25%")
    with progress("reading host.pb", screen, quiet_s=0) as tell:
        tell(30, 120)
        assert screen.drawn.wait(60)
    *_, drawn, blank, end = shown(screen)
    assert drawn.startswith("reading host.pb  [######------------------]  25%")
    assert set(blank) == {" "}
    assert len(blank) >= len(drawn.rstrip())
    assert end == ""  # the cursor is where it was


def test_work_that_fails_leaves_nothing_either() -> None:
    screen = Terminal(" s")

    def work() -> None:
        with progress("reading", screen, quiet_s=0):
            assert screen.drawn.wait(60)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert screen.getvalue().endswith("\r")


def test_short_work_shows_nothing() -> None:
    screen = Terminal()
    with progress("reading", screen, quiet_s=3600) as tell:
        tell(1, 2)
    assert screen.getvalue() == ""


def test_a_pipe_a_dumb_terminal_and_a_closed_one_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    with progress("reading", pipe, quiet_s=0) as tell:
        tell(1, 2)
    assert pipe.getvalue() == ""
    monkeypatch.setenv("TERM", "dumb")
    screen = Terminal()
    with progress("reading", screen, quiet_s=0) as tell:
        tell(1, 2)
    assert screen.getvalue() == ""
    monkeypatch.setenv("TERM", "xterm")
    screen.close()
    with progress("reading", screen, quiet_s=0) as tell:
        tell(1, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_real_terminal_sees_the_bar_and_then_a_clean_line() -> None:
    import pty

    code = (
        "import sys\nfrom roofline.cli.progress import progress\n"
        "with progress('reading host.pb', quiet_s=0) as tell:\n    tell(1, 2)\n    sys.stdin.read()\n"
        "sys.stderr.write('done')\n"
    )
    screen, side = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=side, env={**os.environ, "TERM": "xterm"})
    os.close(side)
    seen = b""
    try:
        while piece := os.read(screen, 4096):
            seen += piece
            if b"[" in seen and process.stdin is not None:
                process.stdin.close()  # the bar has been seen, so the work may end
    except OSError:  # how the end of a pseudo-terminal reads
        pass
    os.close(screen)
    assert process.wait() == 0
    lines = seen.decode().split("\r")
    assert any(line.startswith("reading host.pb  [") for line in lines)
    assert lines[-2].strip() == ""
    assert lines[-1] == "done"


@pytest.mark.parametrize("command", ["hlo", "fusion-report", "analyze", "several"])
def test_an_interrupt_ends_long_work_with_status_130_and_one_line_at_most(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"  %a{n} = f32[128]{{0}} add(%a{n - 1}, %a0)" for n in range(1, 40_000)]
    text = "\n".join(["HloModule big", "ENTRY %main (a0: f32[128]) -> f32[128] {", "  %a0 = f32[128]{0} parameter(0)", *lines])
    (tmp_path / "big.hlo").write_text(f"{text}\n  ROOT %r = f32[128]{{0}} add(%a0, %a{len(lines)})\n}}\n")
    profile = gzip.decompress((Path(__file__).parent / "data" / "h200" / "jax_train.xplane.pb.gz").read_bytes())
    names = [str(tmp_path / f"host{number}.xplane.pb") for number in range(8)]
    for name in names:
        Path(name).write_bytes(profile)
    words = ["analyze", "--read", "cache=no", "jobs=2", *names] if command == "several" else [command, str(tmp_path / "big.hlo")]
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert main(words) == 130
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) <= 1
