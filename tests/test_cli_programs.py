"""Commands on compiled programs and JAX functions."""

import json
import sys
from pathlib import Path

import pytest

from every import every
from roofline.cli import main

DATA = Path(__file__).parent / "data"
SCAN = DATA / "h200" / "jax_scan.hlo.txt.gz"
TRAIN = DATA / "h200" / "jax_train.hlo.txt.gz"
CUSTOM = DATA / "h200" / "jax_custom.hlo.txt.gz"

Capture = pytest.CaptureFixture[str]


def out_of(capsys: Capture, *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def json_of(capsys: Capture, *words: str) -> dict:
    assert main([*words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def matrix(report: dict) -> float:
    return sum(amount or 0 for op in report["ops"] for name, amount in op["work"].items() if name.startswith("matrix/"))


@every(("program", "flops"), [(TRAIN, 13_941_463_842_816), (SCAN, 3_573_412_790_272), (CUSTOM, 274_877_906_944)])
def test_the_products_of_real_programs_are_exact(capsys: Capture, program: Path, flops: int) -> None:
    for command in ("analyze", "hlo"):
        report = json_of(capsys, command, str(program), "--chip", "h200")
        assert matrix(report) == flops
        assert report["input"]["format"] == "hlo"
        assert {op["provenance"]["work"] for op in report["ops"]} == {"compiler"}


def test_a_program_is_summed_by_scope_source_category_and_phase(capsys: Capture) -> None:
    for by, said in (("scope", "layer0/mlp"), ("source", ".py:"), ("category", "loop fusion"), ("phase", "backward")):
        assert main(["hlo", str(TRAIN), "--by", by, "--chip", "h200"]) == 0
        assert said in capsys.readouterr().out


def test_a_program_that_was_not_compiled_is_an_estimate(capsys: Capture, tmp_path: Path) -> None:
    program = tmp_path / "f.mlir"
    program.write_text(
        "module @jit_f {\n  func.func public @main(%arg0: tensor<64x128xbf16>, %arg1: tensor<128x32xbf16>) -> tensor<64x32xbf16> {\n"
        "    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : "
        "(tensor<64x128xbf16>, tensor<128x32xbf16>) -> tensor<64x32xbf16>\n"
        "    %1 = stablehlo.tanh %0 : tensor<64x32xbf16>\n    return %1 : tensor<64x32xbf16>\n  }\n}\n"
    )
    report = json_of(capsys, "analyze", str(program), "--chip", "v5e")
    assert matrix(report) == 2 * 64 * 128 * 32
    assert "estimate" in " ".join(report["input"]["notes"])


def test_what_a_program_did_not_fuse_is_ranked_with_its_reason(capsys: Capture, tmp_path: Path) -> None:
    words = ["analyze", "--fusion", str(SCAN), "--chip", "h200"]
    (report,) = json_of(capsys, *words)["reports"]
    first = report["boundaries"][0]
    # The scores of attention cross memory between a library product and the softmax: 4·16·1024² of bf16, written and read, 8 times.
    assert (first["count"], first["reason"]) == (8, "custom call")
    assert first["written_bytes"] + first["read_bytes"] == 8 * 2 * 2 * 4 * 16 * 1024**2
    assert [one["avoidable_bytes"] for one in report["boundaries"]] == sorted(
        (b["avoidable_bytes"] for b in report["boundaries"]), reverse=True
    )
    assert report["fragmentation"]["kernels"] == 202
    assert main([*words, "-o", str(tmp_path / "chart.svg")]) == 0
    assert "Kernels by avoidable traffic" in capsys.readouterr().out


def test_the_fusion_report_of_a_device_of_several_is_json(capsys: Capture) -> None:
    # The bytes of one of eight devices are a fraction of those of the program.
    (report,) = json_of(capsys, "analyze", "--fusion", str(DATA / "hlo" / "shard_map_collectives.stablehlo.gz"), "--chip", "h200")[
        "reports"
    ]
    assert [kernel["bytes"] for kernel in report["kernels"] if kernel["name"] == "row_add_fusion"] == [201]


def test_a_program_compiled_for_a_cpu_is_not_said_to_be_uncompiled(capsys: Capture, tmp_path: Path) -> None:
    program = tmp_path / "cpu.hlo"
    config = 'backend_config={"outer_dimension_partitions":["2"]}'
    program.write_text(f"""HloModule jit_f, is_scheduled=true
ENTRY %main (x: f32[512,512]) -> f32[512,512] {{
  %x = f32[512,512]{{1,0}} parameter(0)
  %dot = f32[512,512]{{1,0}} dot(%x, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {config}
  ROOT %y = f32[512,512]{{1,0}} tanh(%dot)
}}
""")
    assert main(["analyze", "--fusion", str(program), "--chip", "h200"]) == 0
    said = capsys.readouterr().out
    assert "was compiled for a CPU" in said
    assert "not compiled" not in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("HloModule x\nENTRY main {\n  ROOT y = f32[4] add(a, b)\n}\n", "line 3"),
        ("HloModule x\nENTRY main {\n", "x.hlo"),
    ],
)
def test_a_broken_program_is_one_line_with_its_place(capsys: Capture, tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "x.hlo"
    path.write_text(content)
    assert main(["analyze", str(path)]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.jax
def test_theory_stands_beside_what_the_compiler_says(capsys: Capture) -> None:
    pytest.importorskip("jax")
    answer = json_of(capsys, "validate", "jax")
    for one, moved, taxed in zip(answer["comparisons"], (25_165_824, 12_582_912), (41_943_040, 20_971_520), strict=True):
        counts = {count["way"]: (count["flops"], count["bytes"]) for count in one["counts"]}
        assert counts["by hand: operands and output"] == (17_179_869_184, moved)
        assert (17_179_869_184, taxed) in counts.values()
        assert counts[f"roofline, compiled for {one['backend']}"][0] == 17_179_869_184
        # What XLA says of the program is the sum of what it says of its instructions, and each difference is explained.
        whole = counts[f"cost_analysis() compiled for {one['backend']}"]
        assert sum(line["xla_flops"] or 0 for line in one["lines"]) == whole[0]
        assert sum(line["xla_bytes"] or 0 for line in one["lines"]) == whole[1]
        assert all(line["why"] for line in one["lines"] if (line["xla_flops"] or 0) != line["flops"])


@pytest.mark.jax
def test_a_function_of_ones_own_is_compared(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    (tmp_path / "my_layers.py").write_text("def layer(x, w):\n    return x @ w\n")
    monkeypatch.chdir(tmp_path)
    answer = json_of(capsys, "validate", "jax", "my_layers:layer", "--args", "32x64", "bf16[64,16]", "--dtype", "bf16")
    assert answer["comparisons"][0]["counts"][0]["flops"] == 2 * 32 * 64 * 16
    # Where each argument has its own format there are no others to try, and none stands above the figures.
    fixed = json_of(capsys, "validate", "jax", "my_layers:layer", "--args", "bf16[32,64]", "bf16[64,16]")
    assert [one["format"] for one in fixed["comparisons"]] == ["bf16"]


def test_without_torch_there_is_theory_alone(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["validate", "torch"]) == 0
    text = capsys.readouterr().out
    assert "6,979,321,856" in text
    assert "7,516,192,768" in text
    assert "hand counts only: torch is not installed" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["validate", "jax", "nowhere:f", "--args", "4x4"], "cannot be loaded"),
        (["validate", "jax", "math:pi", "--args", "4x4"], "is not a function"),
        (["validate", "jax", "math", "--args", "4x4"], "write MODULE:FUNCTION"),
        (["validate", "jax", "math:sqrt"], "give the shapes of the function's arguments"),
        (["validate", "jax", "--args", "4x4"], "give the function too"),
        (["validate", "jax", "--size", "0"], "is not a positive whole number"),
        (["validate", "jax", "math:sqrt", "--args", "four"], "write it like 512x4096"),
    ],
)
def test_bad_requests_say_what_to_write(capsys: Capture, words: list[str], says: str) -> None:
    pytest.importorskip("jax")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_two_programs_are_compared_directly(capsys: Capture, tmp_path: Path) -> None:
    text = "HloModule m, is_scheduled=true{alias}\nENTRY main {{\n  x = f32[1024] parameter(0)\n  ROOT y = f32[1024] {op}(x)\n}}\n"
    before, after = tmp_path / "before.hlo", tmp_path / "after.hlo"
    before.write_text(text.format(alias="", op="sine"))
    after.write_text(text.format(alias=", input_output_alias={ {}: (0, {}, may-alias) }", op="negate"))
    answer = json_of(capsys, "compare", str(before), str(after), "--chip", "h100")
    found = {one["quantity"]: (one["before"], one["after"]) for one in answer["figures"]}
    assert answer["basis"] == "minimum time"
    assert (found["peak memory"], found["hbm bytes"], found["launches"]) == ((8192, 4096), (8192, 8192), (1, 1))
    page, markdown, figure = tmp_path / "both.html", tmp_path / "both.md", tmp_path / "both.svg"
    for output in (page, figure):
        out = out_of(capsys, "compare", str(before), str(after), "--chip", "h100", "-o", str(output), "--markdown", str(markdown))
    assert "peak memory" in out
    assert "| peak memory | 8.192 kB | 4.096 kB | −4.096 kB (−50%) |" in markdown.read_text()
    assert '"basis":"minimum time"' in page.read_text()
    assert "minimum time" in figure.read_text()


def test_a_program_is_compared_with_a_report_on_the_machine_of_that_report(capsys: Capture, tmp_path: Path) -> None:
    file, kept = tmp_path / "p.hlo", tmp_path / "kept.json"
    file.write_text("HloModule m, is_scheduled=true\nENTRY main {\n  x = f32[1024] parameter(0)\n  ROOT y = f32[1024] sine(x)\n}\n")
    out_of(capsys, "analyze", str(file), "--chip", "v5p", "--json", str(kept))
    for pair in ((str(kept), str(file)), (str(file), str(kept))):
        answer = json_of(capsys, "compare", *pair)
        assert [note for note in answer["notes"] if "machine" in note or "before" in note] == []
        assert answer["floor_change_s"] == 0
