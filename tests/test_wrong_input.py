"""Whatever a command is given, it answers, or says in one line what is wrong and ends with status 1 or 2: never a traceback."""

import argparse
import gzip
import os
import random
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import roofline as rl
from command_options import settings
from every import every
from roofline.cli import main
from roofline.cli.commands import COMMANDS
from roofline.cli.forms.completion import _parser
from roofline.cli.plot import FIGURES

DATA = Path(__file__).parent / "data"
TABLE = "name,step,device,time,hbm,matrix/bf16\ncopy,1,0,14,100,5\n"
PROGRAM = "HloModule m\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT x = f32[2]{0} add(p, p)\n}\n"
NUMBERS = ("-1", "nan", "1e400", "0", "99999999999999999999999", "")
SOME = ("0",)
# Commands that answer, the figures of which are then exchanged for wrong ones.
COMMAND_LINES = {
    "analyze": "analyze ops.csv",
    "capture": "capture -o . -- true",
    "op": "op matmul 8 8 8",
    "op elementwise": "op elementwise 8",
    "op collective": "op all_reduce 8",
    "op attention": "op attention 8 8 8 8 8",
    "op conv2d": "op conv2d 8 8 8 8 8",
    "place": "op --flops 1e12 --bytes 1e9",
    "cross": "op matmul --free m --k 64 --n 64",
    "fuse": "op chain exp add --shape 1024",
    "explain": "explain latency",
    "whatif": "whatif program.hlo no-idle",
    "fusion-report": "analyze --fusion program.hlo",
    "validate": "validate ops.csv",
    "compare": "compare ops.csv ops.csv",
    "check": "check ops.csv --chip h100 --require 'flops >= 1'",
    "jax-compare": "validate jax",
    "torch-compare": "validate torch",
    "plan": "plan llama3-8b h100 x8",
    "blocks": "blocks kernels:case",
    "chips": "chips",
    "measure": "chips measure --quick",
    "demo": "chips demo --no-open",
    "cache": "--cache",
    "mcp": "mcp",
    "serve": "serve missing-folder",
    "completion": "--completion bash",
    **{f"plot {name}": f"plot {name} {figure.example} -o figure.svg" for name, figure in FIGURES.items()},
}
# Valid ones run programs, measure, wait for a browser or need a measured machine: only what is refused at once is tried.
ACTING = ("capture", "serve", "jax-compare", "torch-compare", "measure", "demo", "mcp", "validate", "blocks", "plot sweep")
FREE = ("--anonymize-key",)  # any word, an empty one too
SIDE_EFFECTS = ("--help", "--clear", "--open", "--cache", "--output", "--json", "--csv", "--parquet", "--counters", "--lint", "--budget")
SIDE_EFFECTS += ("--read=cache",)
SLOW = ("plot", "cross")  # a figure or a search takes a while: fewer values are tried


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("ROOFLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "ops.csv").write_text(TABLE)
    (tmp_path / "program.hlo").write_text(PROGRAM)
    return tmp_path


def one_line(capsys: pytest.CaptureFixture[str], words: list[str], *, refused: bool = False) -> None:
    """Runs a command that must answer, or refuse in one line."""
    status = main(words)
    said = capsys.readouterr().err.splitlines()
    assert status in ((1, 2) if refused else (0, 1, 2, 3)), words
    if status in (1, 2):
        assert len([line for line in said if line.startswith("roofline: ")]) == 1, (words, said)
        assert "Traceback" not in "".join(said)


def numbers_of(words: list[str]) -> Iterator[tuple[str, argparse.Action]]:
    """The options of a command that take a value."""
    name, *rest = words
    for option, action in settings(_parser(name, rest)):
        if action.choices is None and option.removesuffix("=") not in (*SIDE_EFFECTS, *FREE):
            yield option, action


def test_every_command_is_tried() -> None:
    assert {words.split()[0] for words in COMMAND_LINES.values()} == {*COMMANDS, "--cache", "--completion"}


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for name, line in COMMAND_LINES.items() if name not in ACTING])
def test_wrong_numbers_for_every_option(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)
    assert main(words) == 0, capsys.readouterr().err
    capsys.readouterr()
    for option, action in numbers_of(words):
        for value in SOME if words[0] in SLOW else NUMBERS:
            one_line(capsys, [*words, f"{option}{value}"], refused=not value)
            if "=" in str(action.metavar) and option.count("=") == 1:
                one_line(capsys, [*words, f"{option}hbm={value}"])


# Values that no type, choice or grammar of an option takes.
WRONG = ("nonsense!", "--5", "=1", "\0")
# Options whose values are free: any name, and files that are written or read.
FREE = (
    "--read=cache",
    "--json",
    "--csv",
    "--parquet",
    "--output",
    "--markdown",
    "--name",  # of an op of given work
    "--filter",  # a word is one
    "--anonymize-key",
    "--read=cluster",
    "--counters",
    "--lint",
    "--budget",
    "--baseline",
    "--record",
    "--folder",
)
ONCE: set[tuple[str, str]] = set()


def options_with_rules() -> Iterator[tuple[str, str]]:
    """Each option of each command, once, with a command line that it can be added to."""
    for name, line in COMMAND_LINES.items():
        words = shlex.split("capture" if name == "capture" else line)
        for option, _ in settings(_parser(words[0], words[1:])):
            known = (words[0], option) if words[0] != "op" else (name, option)
            if option.removesuffix("=") not in FREE and known not in ONCE:
                ONCE.add(known)
                yield " ".join(words), option


@every(("line", "option"), list(options_with_rules()))
def test_a_wrong_value_of_any_option_is_a_usage_error_in_one_line(line: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for value in WRONG[:3] if line.split()[0] in SLOW else WRONG:
        words = shlex.split(line)
        given = [*words, f"{option}{value}", "--", "true"] if words == ["capture"] else [*words, f"{option}{value}"]
        status, said = main(given), capsys.readouterr().err
        assert (status, said.count("\n")) == (2, 1), (given, status, said)


@every("words", [["analyze", "missing.csv"], ["analyze", "ops.csv", "--counters", "missing.csv"], ["analyze", "missing.hlo"]])
def test_a_missing_file_is_an_error_and_no_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["op", "matmul", "8", "8", "8", "--chip", "./missing.toml"]) == 1


@every("line", [line for name, line in COMMAND_LINES.items() if name.split()[0] == "op"])
@every("value", NUMBERS)
def test_wrong_sizes(line: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)
    for place in range(2, len(words)):
        one_line(capsys, [*words[:place], value, *words[place + 1 :]])


@every(
    "line",
    [
        "plot sizes matmul --free nonsense --chips h100 -o figure.svg",
        "plot sizes matmul --free m,nonsense --k 8 --n 8 --chips h100 -o figure.svg",
        "plot sizes nonsense --free m --chips h100 -o figure.svg",
        "plot nonsense -o figure.svg",
        "op matmul 1e200 1 1 --dtype nonsense",
        "op elementwise 8 --inputs 1e200",
        "analyze a.xplane.pb b.xplane.pb --read cluster=nonsense",
        "compare ops.csv",
        "capture",
        "capture --steps 0 -- true",
        "capture --delay nonsense -- true",
        "capture -- no-such-program",
        "serve --port 99999999",
        "serve --workers 0",
        "validate jax no_such_module:f --args 8x8",
        "validate jax --size -1",
        "validate torch --dtype nonsense",
        "validate torch --args 8x8",
        "chips measure --quick -o machine.json",
        "chips measure --quick -o no-such-folder/machine.toml",
        "--completion nonsense",
        "nonsense",
    ],
)
def test_nonsense_is_refused_in_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    one_line(capsys, shlex.split(line), refused=True)


EXTENSIONS = (
    *("xplane.pb", "xplane.pb.gz", "csv", "json", "jsonl", "parquet", "hlo", "hlo.pb", "mlir", "toml", "trace.json.gz", "ncu-rep", "txt"),
)
CONTENTS = {
    "empty": b"",
    "garbage": random.Random(1).randbytes(3000),
    "gzip that breaks off": gzip.compress(b"x" * 10_000)[:20],
    "text that is not UTF-8": b"name,time\n\xff\xfe,\x00\n",
    "deep JSON": b'{"a":' + b"[" * 2000,
    "MLIR bytecode": b"ML\xefR" + bytes(100),
    "Parquet": b"PAR1" + bytes(100) + b"PAR1",
    "HLO with an unknown operand": b"HloModule x\n\nENTRY %m (p: f32[2]) -> f32[2] {\n  ROOT %r = f32[2] add(%p, %q)\n}\n",
}
READERS = {
    "analyze": "analyze {}",
    "salvage": "analyze {} --read salvage",
    "counters": "analyze ops.csv --chip h200 --counters {}",
    "fusion-report": "analyze --fusion {}",
    "compare": "compare {} {}",
    "lint": "chips lint {}",
    "chip": "op matmul 8 8 8 --chip {}",
}


@every("reader", READERS)
@every("content", CONTENTS)
def test_files_that_are_not_what_they_seem(reader: str, content: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Parquet is read in a process of its own, whatever it is called.
    for extension in ("parquet",) if content == "Parquet" else EXTENSIONS:
        path = folder / f"input.{extension}"
        path.write_bytes(CONTENTS[content])
        one_line(capsys, shlex.split(READERS[reader].format(path, path)))


@every("reader", READERS)
@every("path", ["/dev/null", "missing/ops.csv", ".", "ops\x1b.csv", "gs://nowhere/x.xplane.pb", "sample:nonsense"])
def test_paths_that_cannot_be_read(reader: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.format(path, path) for word in READERS[reader].split(" ")]
    one_line(capsys, words, refused=reader not in ("lint", "chip") and path != ".")


def test_a_folder_that_vanishes_while_it_is_read_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = folder / "runs" / "gone"
    gone.mkdir(parents=True)
    listed = os.scandir

    def scandir(path: str = ".") -> object:
        if str(path) == str(gone):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for command in ("analyze", "analyze --fusion"):
        one_line(capsys, [*command.split(), str(folder / "runs")], refused=True)


@every("line", [line for name, line in COMMAND_LINES.items() if name.split()[0] not in (*ACTING, "completion", "plot")])
@every("option", ["--json", "-o"])
def test_output_into_a_missing_folder(line: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)
    if any(option in action.option_strings for action in _parser(words[0], words[1:])._actions):
        one_line(capsys, [*words, option, "missing/answer.svg" if option == "-o" else "missing/answer"], refused=True)


def test_arguments_of_another_kind_are_refused_in_one_line_of_python() -> None:
    layer, report = rl.formulas.matmul(512, 512, 512), rl.analyze("sample:train")
    wrong: dict[str, Callable[[], object]] = {
        r"'h100' is not a Machine; make one with rl\.chip": lambda: rl.place(layer.cost, "h100"),  # type: ignore[arg-type]
        r"a Ledger is not a Cost; make one with": lambda: rl.place(layer, rl.chip("h100")),  # type: ignore[arg-type]
        r"'a\.json' is not a Report; make one with rl\.analyze": lambda: rl.compare("a.json", "b.json"),  # type: ignore[arg-type]
        r"'run' is not a Report; make one with rl\.analyze": lambda: rl.check("run", "mfu > 1%"),  # type: ignore[arg-type]
        r"a report is analyzed already": lambda: rl.analyze(report, "h100"),  # type: ignore[arg-type]
    }
    for says, call in wrong.items():
        with pytest.raises(rl.UsageError, match=says):
            call()


def test_a_formula_is_priced_on_a_chip_by_its_name() -> None:
    layer = rl.formulas.matmul(512, 512, 512)
    assert rl.price([layer], "h100").ops == rl.price([layer], rl.chip("h100")).ops
