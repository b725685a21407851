"""The command line: every command answers, data and talk go apart, and bad input gets one line and the right exit."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.cli import main
from roofline.cli.commands import COMMANDS, FORMER
from roofline.formulas import all_formulas
from roofline.machines import names

SAMPLE = str(Path(rl.__file__).parent / "samples" / "gpt_training_h200.csv")

Capture = pytest.CaptureFixture[str]


def out_of(capsys: Capture, *words: str) -> str:
    """Standard output of a command that must succeed."""
    status = main(list(words))
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def json_of(capsys: Capture, *words: str) -> dict:
    return json.loads(out_of(capsys, *words, "--json", "-"))


def test_help_names_every_command(capsys: Capture) -> None:
    text = out_of(capsys, "--help")
    assert all(name in text for name in COMMANDS)


@every("former", FORMER)
def test_a_former_name_of_a_command_still_works_says_what_to_type_and_is_not_listed(capsys: Capture, former: str) -> None:
    assert f"  {former} " not in out_of(capsys, "--help")
    assert main([former, "--help"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("usage: roofline ")
    assert said.err == f"roofline: {former!r} will go; type: roofline {FORMER[former]}\n"


@every(
    ("former", "words"),
    [
        ("place --flops 2e12 --bytes 3e9 --time 5ms", "op --flops 2e12 --bytes 3e9 --time 5ms"),
        ("cross matmul --free m --k 8192 --n 8192", "op matmul --free m --k 8192 --n 8192"),
        ("fuse layernorm gelu --shape 8x128", "op chain layernorm gelu --shape 8x128"),
        ("fusion-report tests/data/hlo/attention.hlo.gz", "analyze --fusion tests/data/hlo/attention.hlo.gz"),
        ("chips --lint h100", "chips lint h100"),
        ("completion fish", "--completion fish"),
    ],
)
def test_former_and_present_words_give_the_same(capsys: Capture, former: str, words: str) -> None:
    for data in ([], ["--json", "-"]) if "completion" not in words else ([],):
        chip = ["--chip", "h100"] if words.split()[0] in ("op", "analyze") else []
        answers = []
        for line in (former, words):
            status = main([*line.split(), *chip, *data])
            answers.append((status, capsys.readouterr().out))
        assert answers[0] == answers[1]


def test_the_version_is_the_packages(capsys: Capture) -> None:
    from importlib.metadata import version

    assert out_of(capsys, "--version") == f"roofline {version('roofline')}\n"


@every("command", ["analyze", "whatif", "compare", "chips", "explain"])
def test_every_command_has_help_with_an_example(capsys: Capture, command: str) -> None:
    assert main([command, "--help"]) == 0
    assert "example:\n  roofline" in capsys.readouterr().out


@every("formula", all_formulas())
def test_every_formula_is_a_command(capsys: Capture, formula: rl.formulas.Formula) -> None:
    sizes = [str(size) for size in formula.example]
    report = json_of(capsys, "op", formula.name, *sizes, "--chip", "tpu-v5p")
    assert report["ops"][0]["floor_s"] > 0
    assert main(["op", formula.name, "--help"]) == 0
    assert f"roofline op {formula.name}" in capsys.readouterr().out


def test_op_prices_a_product_and_says_what_binds(capsys: Capture) -> None:
    text = out_of(capsys, "op", "matmul", "8192", "8192", "8192", "--chip", "v5e", "--dtype", "bf16", "--weights", "int8")
    # 2·8192³ FLOP at 197 TFLOP/s is 5.581 ms; weights are one byte an element.
    for said in (
        "minimum time   5.581 ms",
        "bound          compute-bound (matrix)",
        "67,108,864",
        "1,099,511,627,776",
        "GB free",
        "What to do next",
    ):
        assert said in text


def test_the_attainable_part_of_a_peak_is_that_of_the_work_on_its_unit(capsys: Capture) -> None:
    # Attention also computes a softmax on the vector unit, so all FLOP together are more than the matrix unit's peak.
    assert main(["op", "attention", "2", "8", "2048", "2048", "64", "--chip", "mi300x"]) == 0
    assert "1.328 PFLOP/s on all units, 100% of the matrix/bf16 peak" in capsys.readouterr().out


def test_sizes_may_be_written_as_people_do(capsys: Capture) -> None:
    plain = json_of(capsys, "op", "matmul", "8192", "8192", "8192", "--chip", "v5e")
    words = json_of(capsys, "op", "matmul", "8Ki", "8_192", "8,192", "--chip", "v5e")
    assert plain["ops"][0]["flops"] == words["ops"][0]["flops"]


def test_place_takes_any_resource(capsys: Capture) -> None:
    report = json_of(capsys, "op", "--flops", "2e12", "--bytes", "3e9", "--use", "nvlink=1 GB", "--time", "5ms", "--chip", "h100")
    op = report["ops"][0]
    # 1 GB over 18 links at 20.6 GB/s each is 2.7 ms.
    assert (op["bound"], op["bytes"]["nvlink"]) == ("nvlink", pytest.approx(1e9 / 18))
    assert op["floor_s"] == pytest.approx(1e9 / 18 / 20.6e9, rel=0.01)
    assert op["notes"] == ["uses all 18 nvlink links of the chip (switched)"]


def test_corrections_are_asked_for_by_name(capsys: Capture) -> None:
    words = ("op", "--flops", "989.4 TFLOP", "--chip", "h100")
    floors = [
        json_of(capsys, *words, *more)["ops"][0]["floor_s"]
        for more in ((), ("--correct", "sustained=50%"), ("--correct", "communication=0.75"))
    ]
    assert floors == pytest.approx([1, 2, 4])
    late = json_of(capsys, *words, "--bytes", "3.35 TB", "--correct", "overlap=0")["ops"][0]
    assert late["expected_s"] == pytest.approx(2)
    launched = json_of(capsys, "op", "--bytes", "1", "--correct", "launches=1000", "--chip", "h100")
    assert launched["ops"][0]["expected_s"] == pytest.approx(2e-3)
    vector = ("op", "--flops", "67 TFLOP", "--unit", "vector", "--dtype", "fp32", "--chip", "h100")
    assert json_of(capsys, *vector, "--correct", "limit=no FMA")["ops"][0]["floor_s"] == pytest.approx(2)


def test_collectives_take_the_chips_own_links(capsys: Capture) -> None:
    # A switch joins the 18 links of an H100; 1 GB over 8 of them: 2·7/8 of it, an 18th on each link.
    report = json_of(capsys, "op", "all_reduce", "5e8", "--over", "8", "--chip", "h100")
    assert report["ops"][0]["bytes"]["nvlink"] == pytest.approx(1e9 * 1.75 / 18)
    assert "18 nvlink links" in " ".join(report["ops"][0]["notes"])
    assert "ici" in json_of(capsys, "op", "all_reduce", "5e8", "--over", "8", "--chip", "v5e")["ops"][0]["bytes"]


@every(
    ("chip", "over", "links"),
    [("mi300x", 2, 1), ("mi300x", 4, 3), ("mi300x", 8, 7), ("gaudi2", 2, 3), ("gaudi2", 8, 21)],
)
def test_chips_without_a_switch_use_the_links_to_the_others_of_the_group(chip: str, over: int, links: int, capsys: Capture) -> None:
    # Each of eight MI300X has one link to each of the others; a Gaudi 2 has three, and three of its 24 leave the node.
    (op,) = json_of(capsys, "op", "all_gather", "1e9", "--dtype", "uint8", "--over", str(over), "--chip", chip)["ops"]
    (name,) = op["bytes"]
    assert op["bytes"][name] == pytest.approx(1e9 * (over - 1) / over / links)
    assert ("uses all 7 " if links == 7 else f"uses {links} of ") in " ".join(op["notes"])
    (sent,) = json_of(capsys, "op", "permute", "1e9", "--dtype", "uint8", "--chip", chip)["ops"]
    assert sent["bytes"][name] == pytest.approx(1e9 / (3 if chip == "gaudi2" else 1))


def test_cross_finds_the_size(capsys: Capture) -> None:
    words = ("op", "matmul", "--free", "m", "--k", "inf", "--n", "inf", "--chip", "v5e", "--set", "hbm=820 GB/s")
    answer = json_of(capsys, *words)
    assert (round(answer["real"], 2), answer["integer"]) == (240.24, 241)
    assert "compute-bound (matrix) for m ≥ 241" in out_of(capsys, *words)
    square = json_of(capsys, "op", "matmul", "--free", "m,k,n", "--chip", "v5p", "--set", "hbm=2.76 TB/s")
    assert round(square["real"], 1) == 498.9
    link = json_of(capsys, "op", "sharded_matmul", "--free", "k", "--m", "8", "--n", "8", "--against", "ici", "--chip", "v5e")
    assert link["integer"] == 8756
    shares = ("op", "sharded_matmul", "--free", "over", "--m", "512", "--k", "32768", "--n", "4096", "--against", "ici", "--chip", "v5e")
    assert "last size  8" in out_of(capsys, *shares)


@pytest.mark.parametrize(("wrong", "said"), [(("--dtype", "nonsense"), "no number format named 'nonsense'"), (("--n", "-3"), "n is -3")])
def test_cross_refuses_a_wrong_value_before_it_tries_sizes(
    wrong: tuple[str, str], said: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roofline.cli.forms.cross.cross", lambda *_, **__: pytest.fail("sizes were tried"))
    assert main(["op", "matmul", "--free", "m", "--k", "inf", "--n", "inf", "--chip", "v5e", *wrong]) == 2
    assert said in capsys.readouterr().err


def test_fuse_lists_groupings_and_names_the_best(capsys: Capture) -> None:
    words = ("op", "chain", "layernorm", "gelu", "dropout", "add", "--shape", "32x2048x4096", "--chip", "v7x")
    answer = json_of(capsys, *words, "--no-second-operands")
    assert len(answer["groupings"]) == 8
    (best,) = [one for one in answer["groupings"] if one["best"]]
    # Four kernels move 4.29 GB at 7.38 TB/s; the one does 20 FLOP an element at 4 x 2048 lanes x 2.2 GHz x 2 cores, 36.0 TFLOP/s of bf16.
    speedup = (4 * 4 * 2**28 / 7.38e12) / (20 * 2**28 / (4 * 2048 * 2.2e9 * 2))
    assert (best["kernels"], round(best["bytes"] / 1e9, 2), round(best["speedup"], 3)) == (1, 1.07, round(speedup, 3))
    slower = json_of(capsys, *words, "--no-second-operands", "--set", "hbm=7.2 TB/s")["groupings"]
    assert [round(one["speedup"], 6) for one in slower if one["best"]] == [4]  # bound by memory throughout
    residual = json_of(capsys, *words, "--groups", "2,2")["groupings"]
    assert [round(one["bytes"] / 1e9, 2) for one in residual] == [2.68]
    kept = json_of(capsys, *words, "--keep", "gelu", "--groups", "4")["groupings"][0]
    assert kept["bytes"] > json_of(capsys, *words, "--groups", "4")["groupings"][0]["bytes"]  # written although fused
    tight = json_of(capsys, *words, "--on-chip", "4 KB")["groupings"]  # a row of 4096 bf16 does not fit
    assert not all(one["legal"] for one in tight)
    header, row = out_of(capsys, *words, "--groups", "layernorm+gelu,dropout+add", "--csv", "-").splitlines()
    assert header.startswith("kernels,groups,legal,best,bytes")
    assert row.startswith('2,"layernorm+gelu,dropout+add",True,False,')


def test_compare_two_reports(capsys: Capture, tmp_path: Path) -> None:
    before, after = tmp_path / "a.csv", tmp_path / "b.csv"
    before.write_text("name,time,flops,hbm\nx,2 ms,1 GFLOP,1 GB\ny,1 ms,1 GFLOP,1 GB\n")
    after.write_text("name,time,flops,hbm\nx,1 ms,1 GFLOP,1 GB\nz,1 ms,1 GFLOP,1 GB\n")
    main(["analyze", str(before), "--chip", "h100", "--json", str(tmp_path / "a.json")])
    capsys.readouterr()
    answer = json_of(capsys, "compare", str(tmp_path / "a.json"), str(after), "--chip", "h100")
    assert answer["change_s"] == pytest.approx(-1e-3)
    assert {delta["name"]: delta["matched"] for delta in answer["deltas"]} == {"x": "module and name", "y": "vanished", "z": "new"}
    assert "1.5x as fast" in out_of(capsys, "compare", str(before), str(after), "--chip", "h100")


def test_chips_are_listed_shown_compared_and_checked(capsys: Capture, tmp_path: Path) -> None:
    assert len(json_of(capsys, "chips")["machines"]) == len(names())
    text = out_of(capsys, "chips", "h200")
    assert "4.8 TB/s" in text
    assert "quoted" in text
    assert "the vendor's own document was not read for them" in " ".join(text.split())
    assert "other source" in text
    assert "ridge matrix/bf16" in out_of(capsys, "chips", "--compare", "v5p,v6e,h100")
    assert main(["chips", "--lint-all"]) == 0
    said = capsys.readouterr()
    assert "no problems" in said.out
    assert said.err == "roofline: --lint-all will go; type: roofline chips lint\n"
    bad = tmp_path / "mine.toml"
    bad.write_text(
        'name = "mine"\ntitle = "AMD Instinct MI300X"\nkind = "gpu"\nvendor = "AMD"\naliases = ["MI300X"]\n'
        '[[memory]]\nlevel = "hbm"\nrate = "2479.55 GiB/s"\nsource = ["my notes"]\n'
    )
    assert main(["chips", "--lint", str(bad)]) == 3
    assert "hbm" in capsys.readouterr().out


def test_data_goes_to_standard_output_and_talk_to_standard_error(capsys: Capture, tmp_path: Path) -> None:
    assert main(["analyze", SAMPLE, "--chip", "h200", "--csv", "-", "-o", str(tmp_path / "chart.svg")]) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert len(rows) == 44
    assert "wrote" in captured.err
    assert (tmp_path / "chart.svg").read_text().startswith("<?xml")


def test_an_exported_table_reads_back(capsys: Capture, tmp_path: Path) -> None:
    for option, name in (("--csv", "ops.csv"), ("--parquet", "ops.parquet")):
        path = tmp_path / name
        assert main(["analyze", SAMPLE, "--chip", "h200", option, str(path)]) == 0
        again = rl.read(path).workload
        assert again.cost == rl.read(SAMPLE).workload.cost
        assert again.time_s == pytest.approx(rl.read(SAMPLE).workload.time_s)


def test_the_table_is_filtered_and_grouped_but_the_json_is_whole(capsys: Capture) -> None:
    text = out_of(capsys, "analyze", SAMPLE, "--chip", "h200", "--by", "category")
    assert "matmul" in text
    assert "elementwise" in text
    rows = list(csv.DictReader(io.StringIO(out_of(capsys, "analyze", SAMPLE, "--chip", "h200", "--filter", "bound=matrix", "--csv", "-"))))
    assert {row["bound"] for row in rows} == {"matrix"}
    assert len(json_of(capsys, "analyze", SAMPLE, "--chip", "h200", "--filter", "name:/nvjet/")["ops"]) == 44


def test_colour_is_for_terminals_alone(capsys: Capture) -> None:
    assert "\x1b[" not in out_of(capsys, "analyze", SAMPLE, "--chip", "h200")


@pytest.mark.parametrize("figure", ["anatomy", "hierarchy", "communication", "ceilings"])
def test_figures_of_a_chip_are_drawn(capsys: Capture, tmp_path: Path, figure: str) -> None:
    compute = ["--compute", "vector/fp32"] if figure == "ceilings" else []
    out_of(capsys, "plot", figure, "--chip", "h100", *compute, "-o", str(tmp_path / "figure.svg"))
    assert "</svg>" in (tmp_path / "figure.svg").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["chips", "--chips", "v7x:fp8,v7x,v6e", "--op", "matmul 600 600 600", "--point", "mine,50"],
        ["sizes", "matmul", "--free", "m,k,n", "--chips", "v7x,v5p"],
        ["sizes", "matmul", "--free", "m", "--k", "8192", "--n", "8192", "--weights", "int8", "--chips", "v5e"],
        ["measurements", "--chip", "v7x", "--point", "softmax,2,92%", "--point", "mm,2000,1800 TFLOP/s"],
        ["distance", "--chip", "v7x", "--point", "add,5,92%", "--point", "mm,500,25%", "--dark"],
        ["hierarchy", "--chip", "v7x", "--set", "vmem=150 TB/s", "--levels", "hbm,vmem", "--point", "tiled,50,1260 TFLOP/s"],
        ["times", "--chip", "v5e", "--op", "matmul 240 8192 8192", "--op", "sharded_matmul 512 8192 4096"],
        ["fusion", "layernorm", "gelu", "--shape", "4096x4096", "--chip", "v7x"],
    ],
    ids=lambda words: words[0],
)
def test_figures_of_work_are_drawn(capsys: Capture, tmp_path: Path, words: list[str]) -> None:
    out_of(capsys, "plot", *words, "-o", str(tmp_path / "figure.png"))
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words",
    [
        ["op", "matmul", "--free", "m", "--k", "inf", "--n", "8192", "--chip", "v5e"],
        ["op", "dot", "--free", "n", "--chip", "v5e"],
        ["chips", "h200"],
        ["chips", "--compare", "v5p,v6e,h100"],
        ["chips"],
    ],
    ids=" ".join,
)
def test_every_table_has_its_figure(capsys: Capture, tmp_path: Path, words: list[str]) -> None:
    out_of(capsys, *words, "-o", str(tmp_path / "figure.png"))
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_comparison_has_its_figure(capsys: Capture, tmp_path: Path) -> None:
    for name, time in (("a.csv", "2 ms"), ("b.csv", "1 ms")):
        (tmp_path / name).write_text(f"name,time,flops,hbm\nx,{time},1 GFLOP,1 GB\n{name},1 ms,1 GFLOP,1 GB\n")
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    out_of(capsys, "compare", *files, "--chip", "h100", "-o", str(tmp_path / "change.svg"))
    assert "</svg>" in (tmp_path / "change.svg").read_text()


BAD = [
    # words, exit status, what the one line says
    (["op", "matmul", "-3", "4", "5"], 2, "m is -3; a dimension is a positive number"),
    (["op", "matmul", "0", "4", "5"], 2, "m is 0; a dimension is a positive number"),
    (["op", "matmul", "3", "4"], 2, "the following arguments are required: N"),
    (["op", "matmul", "a", "4", "5"], 2, "m: 'a' is not a number"),
    (["op", "matmul", "inf", "4", "5"], 2, "m cannot be infinite here"),
    (["op", "matmull", "3", "4", "5"], 2, "no formula named 'matmull'; did you mean 'matmul'"),
    (["op", "matmul", "3", "4", "5", "--chip", "h10"], 2, "no machine named 'h10'; did you mean 'h100-sxm'"),
    (["op", "matmul", "3", "4", "5", "--dtype", "bf61"], 2, "no number format named 'bf61'; did you mean"),
    (["op", "matmul", "3", "4", "5", "--set", "hbm=3 GHz"], 2, "'3 GHz' is in Hz, not in B/s"),
    (["op", "matmul", "3", "4", "5", "--set", "hbm"], 2, "hbm"),
    (["op", "matmul", "3", "4", "5", "--correct", "overlap=2"], 2, "not between 0 and 1"),
    (["op", "matmul", "3", "4", "5", "--correct", "limit=x"], 2, "has no limit named 'x'"),
    (["op", "matmul", "3", "4", "5", "--wieghts", "int8"], 2, "unrecognized arguments: --wieghts int8; did you mean --weights?"),
    (["op", "attention", "--free", "kv_len", "--q_len=1"], 2, "unrecognized arguments: --q_len=1; did you mean --q-len?"),
    (["analyze", "run", "--zzz"], 2, "unrecognized arguments: --zzz; see: roofline analyze --help"),
    (["plot", "times", "--op", "matmul 8 8", "-o", "times.svg"], 2, "see: roofline op matmul --help"),
    (["op", "matmul", "64", "4096", "4096", "--quantize", "--chip", "h100"], 2, "--quantize: activations become 8 bits wide"),
    (["op", "matmul", "64", "4096", "4096", "--dtype", "fp4", "--quantize", "--chip", "b200"], 2, "add --dtype fp8"),
    (["op", "all_reduce", "1e6", "--chip", "h100-pcie"], 1, "h100-pcie has no known rate for nvlink"),
    (["op", "all_reduce", "1e6", "--chip", "mi350x"], 1, "mi350x has no known rate for xgmi"),
    (["op", "all_reduce", "1e6", "--chip", "xeon-8480plus"], 1, "add one with --set dcn=…"),
    (["op", "--flops", "1e12", "--dtype", "fp8", "--chip", "a100"], 1, "a100-sxm4-80 has no known rate for matrix/fp8"),
    (["op", "--flops", "ten"], 2, "--flops: 'ten' is not a quantity"),
    (["op", "--flops", "2Ti"], 2, "--flops: '2Ti': unknown unit 'Ti'; write it like '2.2 TFLOP'"),
    (["op", "--bytes", "1.5X"], 2, "--bytes: '1.5X': unknown unit 'X'; write it like '12 GB'"),
    (["op", "--flops", "1", "--time=-5ms"], 2, "negative"),
    (["op", "matmul", "--free", "m", "--chip", "v5e"], 2, "missing --k, --n"),
    (["op", "matmul", "--free", "q", "--k", "1", "--n", "1", "--m", "1"], 2, "--free q: matmul has no such dimension"),
    (["op", "copy", "--free", "elements"], 2, "has no work"),
    (["op", "chain", "layernormm", "--shape", "4x4"], 2, "no op named 'layernormm'; did you mean 'layernorm'"),
    (["op", "chain", "gelu", "--shape", "4xfour"], 2, "--shape"),
    (["op", "chain", "gelu", "relu", "--shape", "4x4", "--groups", "3"], 2, "do not match the stages"),
    (["analyze", "nowhere.csv"], 1, "nowhere.csv: no such file"),
    (["analyze", SAMPLE, "--filter", "("], 2, "missing closing parenthesis"),
    (["analyze", SAMPLE, "--json", "-", "--csv", "-"], 2, "both go to standard output"),
    (["analyze", SAMPLE, "--json", "/nowhere/x.json"], 1, "cannot write"),
    (["analyze", SAMPLE, "-o", "chart.bmp"], 2, "chart.bmp"),
    (["chips", "h10"], 2, "did you mean"),
    (["chips", "--compare", "h100"], 2, "two or more"),
    (["chips", "--compare", "h100,v5e", "v6e"], 2, "no formula named 'v6e'"),
    (["chips", "missing.toml"], 1, "missing.toml"),
    (["plot", "anatomi", "-o", "x.svg"], 2, "no figure named 'anatomi'; did you mean 'anatomy'"),
    (["plot", "chips", "--chips", "v5e", "--op", "copy 100", "-o", "x.svg"], 2, "no arithmetic intensity to draw"),
    (["compare", "nowhere.json", "nowhere.json"], 1, "no such file"),
    (["analyse", "x"], 2, "no command named 'analyse'; did you mean 'analyze'"),
]


@every(("words", "status", "says"), BAD)
def test_bad_input_gets_one_line_and_no_traceback(capsys: Capture, words: list[str], status: int, says: str) -> None:
    assert main(words) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("roofline: ")
    assert captured.err.count("\n") == 1, captured.err
    assert says in captured.err


def test_a_machine_file_with_a_wrong_unit_says_where(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[[compute]]\nresource = "matrix/bf16"\nrate = "3 GHz"\nsource = ["me"]\n')
    assert main(["op", "matmul", "3", "4", "5", "--chip", str(path)]) == 1
    said = capsys.readouterr().err
    assert "mine.toml" in said
    assert "'3 GHz' is in Hz, not in FLOP/s" in said
    assert said.count("\n") == 1


def command(*words: str, **options: object) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own, which ends without taking itself apart."""
    return subprocess.run([sys.executable, "-m", "roofline", *words], stderr=subprocess.PIPE, text=True, **options)


def test_a_process_ends_with_its_status_and_all_it_wrote() -> None:
    listed = command("chips", "--json", "-", stdout=subprocess.PIPE)
    assert listed.returncode == 0
    assert len(json.loads(listed.stdout)["machines"]) >= 64, "the catalogue, to the last bracket"
    wrong = command("chips", "no-such-chip", stdout=subprocess.PIPE)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("roofline: no machine named")
