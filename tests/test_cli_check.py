"""`roofline check`: exit status, one line for each broken condition, baselines, functions."""

import json
from pathlib import Path

import pytest

from every import every
from roofline.cli import main

MODULE = """
import jax
import jax.numpy as jnp

def product(x, w):
    with jax.named_scope("mlp"):
        return x @ w

def twice(x, w):
    with jax.named_scope("mlp"):
        return x @ w + (x[::-1] @ w)

class Layer:
    product = staticmethod(product)
"""
SHAPES = ["--args", "64x128", "128x256", "--chip", "h100"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOFLINE_CHIP", raising=False)


@pytest.fixture
def layer(tmp_path: Path) -> str:
    """The module of some JAX functions, under a name that no other test has imported."""
    pytest.importorskip("jax")
    name = f"layer_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def table(name: str = "ops.csv", hbm: int = 1000) -> str:
    Path(name).write_text(f"name,flops,hbm,time,scope\nmatmul,2e9,{hbm},10 us,layer0/attn\nnorm,1e6,500,5 us,layer0/mlp\n")
    return name


@every(("condition", "status"), [("time < 16 us", 0), ("time < 15 us", 3), ("peak memory < 1 GB", 2)])
def test_the_exit_status_says_whether_it_holds(condition: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", table(), "--chip", "h100", "--require", condition]) == status
    printed = capsys.readouterr()
    assert printed.out.startswith({0: "holds: ", 3: "broken: ", 2: ""}[status] + f"{condition}: ")
    assert len(printed.out.splitlines()) == 1


def test_each_broken_condition_is_a_line_with_allowed_found_and_ops(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", table(), "--chip", "h100", "--require", "hbm of layer*/attn < 500 B and time < 1 s", "--require", "ops = 3"]
    assert main(words) == 3
    assert capsys.readouterr().out.splitlines() == [
        "broken: hbm of layer*/attn < 500 B: found 1 kB, allowed less than 500 B; ops: layer0/attn  matmul (1 kB)",
        "broken: ops = 3: found 2, allowed exactly 3; ops: layer0/attn  matmul, layer0/mlp  norm",
    ]


def test_a_budget_file_and_its_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    Path("limits.toml").write_text('require = ["hbm <= 1.1x baseline", "flops == baseline"]')
    words = ["check", table(), "--chip", "h100", "--budget", "limits.toml"]
    assert main(words) == 2
    assert "'hbm <= 1.1x baseline' needs the baseline limits.baseline.json, which does not exist; write it with --update" in (
        capsys.readouterr().err
    )
    assert main([*words, "--update"]) == 0
    assert Path("limits.baseline.json").exists()
    assert main(words) == 0
    table(hbm=2000)
    capsys.readouterr()
    assert main([*words, "--json", "found.json"]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert "found 2.5 kB, allowed at most 1.65 kB (baseline 1.5 kB, limits.baseline.json)" in line
    assert "layer0/attn: matmul (+1 kB)" in line
    assert [one["holds"] for one in json.loads(Path("found.json").read_text())["checks"]] == [False, True]


def test_a_report_is_checked_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", table(), "--chip", "v5e", "--json", "report.json"]) == 0
    assert main(["check", "report.json", "--require", "time = 15 us", "--csv", "-"]) == 0
    assert "time = 15 us,True,1.5" in capsys.readouterr().out


@every(
    ("budget", "said"),
    [
        ("require = 3", "require is a list of conditions"),
        ("requires = []", "unknown key 'requires'; did you mean 'require'?"),
        ("baseline = 3", "baseline is the name of a file"),
        ("require = [", "not TOML"),
        ("", "no conditions"),
        ('require = ["stp < 3 ms"]', "at 'stp' (character 1): no such quantity; did you mean 'step'?"),
    ],
)
def test_a_wrong_budget_is_one_line(budget: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.toml").write_text(budget)
    assert main(["check", table(), "--budget", "b.toml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@every("file", ["ops.csv", "b.toml"])
def test_a_baseline_never_replaces_an_input(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.toml").write_text("require = []")
    kept = Path(table()).read_text()
    assert main(["check", "ops.csv", "--budget", "b.toml", "--baseline", file, "--update"]) == 2
    assert "also an input" in capsys.readouterr().err
    assert (Path("ops.csv").read_text(), Path("b.toml").read_text()) == (kept, "require = []")


@pytest.mark.jax
def test_a_function_is_checked_by_the_shapes_of_its_arguments(layer: str, capsys: pytest.CaptureFixture[str]) -> None:
    # 2 · 64 · 128 · 256 FLOP
    assert main(["check", f"{layer}:product", *SHAPES, "--require", "flops = 4194304 FLOP", "--baseline", "b.json", "--update"]) == 0
    assert main(["check", f"{layer}.py:Layer.product", *SHAPES, "--require", "flops == baseline", "--baseline", "b.json"]) == 0
    assert main(["check", f"{layer}:twice", *SHAPES, "--require", "hbm of mlp* == baseline", "--baseline", "b.json"]) == 2
    assert "the baseline b.json has no 'hbm of mlp*'; write it again with --update" in capsys.readouterr().err
    assert main(["check", f"{layer}:twice", *SHAPES, "--require", "matrix/bf16 <= 1.2x baseline", "--baseline", "b.json"]) == 3
    assert "more matrix work: dot 64×128×256 bf16 runs 2 times, 1 in the baseline" in capsys.readouterr().out


@pytest.mark.jax
def test_wrong_functions_and_arguments_are_one_line(layer: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in [
        ([f"{layer}:prodct"], "no 'prodct' in layer"),
        ([f"{layer}:Layer.prodct"], "no 'prodct' in Layer; did you mean 'product'?"),
        ([f"{layer}.py:prodct"], "no 'prodct' in layer"),
        (["nowhere.py:product"], "there is no file nowhere.py"),
        (["nowhere:product"], "cannot be loaded: No module named 'nowhere'"),
        ([f"{layer}:product", "--args", "64x128"], "missing 1 required positional argument"),
        ([f"{layer}:product", "--args", "64x128", "3x5"], "dot_general"),
        ([f"{layer}:product", "--args", "64y"], "not a shape"),
        ([f"{layer}:product", "--args", "q7[64]"], "no number format"),
        ([table(), "--args", "64"], "give MODULE:FUNCTION"),
    ]:
        assert main(["check", *words, "--chip", "h100", "--require", "flops < 1 GFLOP"]) == 2, words
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


@pytest.mark.torch
def test_a_pytorch_module_or_function_is_told_by_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    name = f"module_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(
        "from torch import bfloat16\nfrom torch.nn import Linear\nfrom torch.nn.functional import gelu\n\n"
        "linear = Linear(128, 256, bias=False, device='meta', dtype=bfloat16)\n\n"
        "def block(x):\n    return gelu(linear(x))\n"
    )
    for function, launches in (("linear", 1), ("block", 2)):
        words = ["check", f"{name}:{function}", "--args", "64x128", "--chip", "h100"]
        # 2 · 64 · 128 · 256 FLOP of the product
        assert main([*words, "--require", f"matrix/bf16 = 4194304 FLOP, launches = {launches}, peak memory < 1 MB"]) == 0, function
    assert main([*words, "--require", "flops = 0 FLOP"]) == 3
    assert "mm 64x128, 128x256 bf16" in capsys.readouterr().out
