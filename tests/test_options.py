"""Options: a wrong value of any of them is one line and exit status 2; nothing a file holds reaches the terminal raw."""

import csv
import io
import json
from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.cli import main
from roofline.errors import clean
from roofline.formulas import lookup

SAMPLE = str(Path(rl.__file__).parent / "samples" / "gpt_training_h200.csv")
HLO = str(Path(__file__).parent / "data" / "hlo" / "options.hlo")
OUTPUTS = {"--json": "out.json", "--csv": "out.csv", "--parquet": "out.parquet", "--markdown": "out.md"}

Capture = pytest.CaptureFixture[str]


@every(("option", "name"), OUTPUTS.items())
def test_a_file_that_cannot_be_written_is_one_line_and_status_1(capsys: Capture, option: str, name: str) -> None:
    command = ["compare", SAMPLE, SAMPLE] if option == "--markdown" else ["analyze", SAMPLE]
    assert main([*command, f"{option}=/nowhere/{name}"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@every(
    ("words", "says"),
    [
        (["--set", "hmb=3 TB/s"], "--set hmb: no such resource; did you mean 'hbm'?"),
        (["--set", "matrix/bf61=3 TFLOP/s"], "did you mean 'matrix/bf16'"),
        (["--correct", "sustained-mtrix=0.5"], "did you mean 'matrix'"),
        (["--correct", "sustained-ici=0.5"], "h100-sxm has no rate for it"),
        (["--filter", "bound=hmb"], "bound=hmb: no op has it; did you mean 'hbm'"),
        (["--filter", "category=matmull"], "category=matmull: no op has it"),
        (["--chip", ""], "chip is empty"),
    ],
)
def test_a_misspelt_key_is_refused_with_a_suggestion(capsys: Capture, words: list[str], says: str) -> None:
    assert main(["analyze", SAMPLE, "--chip", "h100", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_rate_that_the_machine_lacks_can_still_be_added(capsys: Capture) -> None:
    assert main(["op", "--use", "vmem.read=1 GB", "--chip", "h100", "--set", "vmem.read=1 TB/s"]) == 0
    assert "1 ms" in capsys.readouterr().out


@every(
    "words",
    [
        ["op", "matmul", "1e200", "1e200", "1e200"],
        ["op", "conv2d", *map(str, lookup("conv2d").example), "--padding", "1e200"],
        ["op", "--flops", "1e999"],
        ["plot", "sizes", "matmul", "--free", "q", "--chips", "v5e", "-o", "x.svg"],
        ["plot", "sizes", "matmul", "--free", "m", "--chips", "v5e", "-o", "x.svg"],
        ["plot", "sizes", "matmul", "--free", "m,m", "--m", "3", "--chips", "v5e", "-o", "x.svg"],
    ],
)
def test_numbers_no_float_holds_and_sizes_that_are_missing_are_refused(capsys: Capture, words: list[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


@every("command", ["analyze", "analyze --fusion"])
def test_what_a_program_does_not_say_is_an_option(capsys: Capture, command: str) -> None:
    words = [*command.split(), HLO, "--chip", "v5e"]
    assert main([*words, "--trips", "search=10", "--network", "link=dcn", "topology=4", "algorithm=ring"]) == 0
    assert "--trips" not in capsys.readouterr().out
    for wrong, says in (
        ("--trips=serch=3", "did you mean 'search'"),
        ("--network=link=nvlink", "it has: ici"),
        ("--network=topology=4y4", "4x4"),
    ):
        assert main([*words, wrong]) == 2
        assert says in capsys.readouterr().err


def test_a_comparison_takes_what_a_program_does_not_say(capsys: Capture, tmp_path: Path) -> None:
    # The loop has another name after the change: each trip count is for the program that has the loop.
    renamed = tmp_path / "renamed.hlo"
    renamed.write_text(Path(HLO).read_text().replace("search", "found"))
    words = ["compare", HLO, str(renamed), "--chip", "v5e"]
    assert main([*words, "--trips", "search=10", "--trips", "found=30", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after"]["flops"] == 3 * found["before"]["flops"]
    for wrong, says in (
        ("--trips=serch=3", "did you mean 'search'"),
        ("--network=link=nvlink", "it has: ici"),
        ("--network=topology=4y4", "4x4"),
    ):
        assert main([*words, wrong]) == 2
        assert says in capsys.readouterr().err
    assert main(["compare", SAMPLE, SAMPLE, "--network", "link=dcn"]) == 2
    assert "apply to programs" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "lost.hlo"), SAMPLE, "--network", "link=dcn"]) == 1
    assert "lost.hlo: no such file" in capsys.readouterr().err
    assert main(["analyze", "sample:train", "--trips", "while=3"]) == 2
    assert "apply to one program" in capsys.readouterr().err


def test_the_notes_of_ops_reach_the_terminal_and_sums_add_what_is_known(capsys: Capture) -> None:
    assert main(["analyze", HLO, "--chip", "v5e", "--details"]) == 0
    said = " ".join(capsys.readouterr().out.split())  # lines are 100 columns at most
    assert "give it with --trips search=N" in said
    assert "price it with roofline.register_call('my_kernel', function)" in said
    # One product of 256³ is known, its repetitions and the kernel are not.
    assert "33.55 MFLOP and 2 unknown" in said
    assert "≥ 33.55 MFLOP" in said


def test_a_minimum_that_nothing_known_gives_is_null_and_not_zero() -> None:
    ops = (rl.Op(name="known", cost=rl.Cost.of({"hbm": 1e9})), rl.Op(name="unknown", cost=rl.Cost.of({"compute": None})))
    report = rl.analyze(rl.Recording(workload=rl.Workload(ops), format="test"), "h100")
    assert [(op.name, op.floor_s is None, op.serial_s is None) for op in report.ops] == [("known", False, False), ("unknown", True, True)]


def test_op_cross_and_plot_use_the_same_links(capsys: Capture) -> None:
    from roofline.cli.formula import spelled

    machine = rl.chip("h200")
    main(["op", "all_gather", "1e9", "--over", "8", "--chip", "h200", "--json", "-"])
    amounts = json.loads(capsys.readouterr().out)["ops"][0]["bytes"]
    assert float(spelled("all_gather 1e9 --over 8", machine).cost["nvlink"] or 0) == amounts["nvlink"]
    assert main(["op", "all_gather", "8e8", "--over", "16", "--chip", "v5e", "--json", "-"]) == 0
    # 1.6 GB, 15/16 of it over two directions at 45 GB/s, and 8 hops of a microsecond
    assert json.loads(capsys.readouterr().out)["ops"][0]["floor_s"] == pytest.approx(1.6e9 * 15 / 16 / 2 / 45e9, rel=0.01)


EVIL = "a\x1b[2J\x07\u202eb\u2066c"


def test_control_characters_of_a_name_never_reach_the_terminal(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(f"name,category,time,flops,bytes,note{EVIL}\n{EVIL},x{EVIL},1 ms,1e9,1e6,\n{EVIL}2,y,2 s,1e9,1e6,\n")
    for words in (["analyze"], ["analyze", "--chart"], ["analyze", "--by", "category"], ["compare", str(path)]):
        main([*words, str(path)])
    main(["analyze", f"{EVIL}.csv"])
    main(["op", "--flops", "1", "--name", EVIL, "--chip", EVIL])
    captured = capsys.readouterr()
    for unsafe in "\x1b\x07\u202e\u2066":
        assert unsafe not in captured.out + captured.err
    assert "a·[2J··b·c" in captured.out


def test_the_colours_of_styled_text_stay() -> None:
    assert clean("\x1b[1mbold\x1b[0m \x1b[2J\x07", styled=True) == "\x1b[1mbold\x1b[0m ·[2J·"


def test_a_csv_cell_that_a_spreadsheet_would_run_is_quoted_and_read_back(capsys: Capture, tmp_path: Path) -> None:
    names = ["=1+1", "+a", "-b", "@c", "plain"]
    path, again = tmp_path / "ops.json", tmp_path / "again.csv"
    path.write_text("[" + ",".join(f'{{"name": "{name}", "time": 1, "flops": 1e9, "bytes": 1}}' for name in names) + "]")
    assert main(["analyze", str(path), "--csv", str(again)]) == 0
    cells = [row["name"] for row in csv.DictReader(io.StringIO(again.read_text()))]
    assert cells == ["'=1+1", "'+a", "'-b", "'@c", "plain"]
    assert [op.name for op in rl.read(again).workload] == names
