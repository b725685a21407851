"""The planted faults of `benchmarks/faults`: each is named, with its cost and line, and healthy programs raise no alarm."""

import ast
import importlib.util
import json
import shlex
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

import roofline
from every import every
from roofline.report import Point, Report
from roofline.rules.words import kinds

FAULTS = Path(__file__).parent.parent / "benchmarks" / "faults"
_spec = importlib.util.spec_from_file_location("faults_score", FAULTS / "score.py")
assert _spec is not None
assert _spec.loader is not None
scorer = importlib.util.module_from_spec(_spec)
sys.modules["faults_score"] = scorer  # where dataclasses look for it
_spec.loader.exec_module(scorer)

PLANTED = [name for name, want in scorer.EXPECTED.items() if "kinds" in want]
HEALTHY = [name for name, want in scorer.EXPECTED.items() if "allowed" in want]


@cache
def report_of(name: str) -> Report:
    return roofline.analyze(scorer.CAPTURES / f"{name}.xplane.pb.gz")


def point_of(name: str, scope: str = "average") -> Point:
    return next(point for point in report_of(name).points if point.scope == scope and point.infeed_outfeed)


def scored(name: str) -> object:
    return scorer.score(name, msgspec.to_builtins(report_of(name).findings))


@every("name", PLANTED)
def test_the_first_finding_names_the_fault_its_cost_and_its_line(name: str) -> None:
    score = scored(name)
    assert score.right, score


@every("name", HEALTHY)
def test_healthy_programs_raise_no_alarm(name: str) -> None:
    score = scored(name)
    assert score.right, score


@every("name", scorer.EXPECTED)
def test_minimum_and_losses_add_up_to_the_time(name: str) -> None:
    points = [point for point in report_of(name).points if point.lost is not None and point.infeed_outfeed]
    assert {point.scope for point in points} >= {"total", "average", "step"}
    for point in points:
        assert point.at_roof_s + sum(msgspec.to_builtins(point.lost).values()) == pytest.approx(point.device_seconds, rel=1e-3), point.scope


@every("experts", [8, 64])
def test_dense_experts_do_so_many_times_the_needed_work(experts: int) -> None:
    # All experts for every token instead of each token's own: both products have their rows once for each expert.
    products = [op for op in report_of(f"dense_experts_{experts}").ops if op.category == "matmul" and "ragged" in op.label]
    assert len(products) == 2
    for op in products:
        assert op.work["matrix/bf16"] == experts * op.needed["matrix/bf16"]


def test_recomputed_work_is_the_forward_pass_that_the_backward_pass_needs() -> None:
    # Four blocks of width 2048 on 8 x 1024 tokens. Again come the products to q, k, v (three widths), out of attention (one) and up
    # (four), and causal attention; of the product down (four) nothing is needed again.
    layers, batch, length, width = 4, 8, 1024, 2048
    products = 2 * batch * length * width * (3 + 1 + 4) * width
    attention = 4 * batch * length * length * width / 2
    recomputed = point_of("recomputed").unneeded["recomputed"]
    assert recomputed == pytest.approx(layers * (products + attention), rel=0.02)
    # The same model without it, as the device ran it.
    ran, plain = (point_of(name).work["matrix/bf16"] for name in ("recomputed", "healthy_training"))
    assert recomputed == pytest.approx(ran - plain, rel=0.02)


def lines_of_functions(file: str) -> dict[str, range]:
    functions = [one for one in ast.parse((FAULTS / file).read_text()).body if isinstance(one, ast.FunctionDef)]
    return {one.name: range(one.lineno, (one.end_lineno or one.lineno) + 1) for one in functions}


def test_every_capture_is_described_and_every_line_lies_in_its_program() -> None:
    captures = sorted(FAULTS.glob("captures/*.xplane.pb.gz"))
    assert {path.name.removesuffix(".xplane.pb.gz") for path in captures} == set(scorer.EXPECTED)
    assert sum(path.stat().st_size for path in captures) < 6e6
    places = lines_of_functions("programs.py")
    places |= {f"everyday_{name}": lines for name, lines in lines_of_functions("held_out/everyday/programs.py").items()}
    for name, want in scorer.EXPECTED.items():
        assert set(want.get("kinds", ())) | set(want.get("allowed", ())) <= {*kinds()}, name
        for line in want.get("lines", ()):
            file, _, number = line.partition(":")
            if file == "programs.py":
                assert int(number) in places["_experts" if "experts" in name else name], line


RIGHT = {"kind": "one-hot-product", "message": "At programs.py:99 …", "saving_per_step_s": 0.003}


@every(
    ("findings", "right"),
    [
        ([RIGHT], True),
        ([RIGHT | {"kind": "unrated", "saving_per_step_s": None}, RIGHT], True),
        ([RIGHT | {"kind": "memory", "saving_per_step_s": 0.004}, RIGHT], False),
        ([RIGHT | {"saving_per_step_s": 0.0015}], False),  # the planted loss is 3.2 ms
        ([RIGHT | {"message": "At programs.py:999 …"}], False),
        ([], False),
    ],
)
def test_kind_saving_and_line_must_be_right(findings: list[dict[str, object]], right: bool) -> None:
    assert scorer.score("one_hot", findings).right is right


@every(
    ("kind", "share", "silent"),
    [("products", 0.09, True), ("products", 0.11, False), ("idle-input", 0.02, False), ("idle-input", 0.005, True)],
)
def test_a_healthy_program_is_told_nothing_large_and_nothing_wrong(kind: str, share: float, silent: bool) -> None:
    saving = share * scorer.EXPECTED["healthy_scan"]["step_s"]
    found = [RIGHT | {"kind": "memory", "saving_per_step_s": 1e-6}, RIGHT | {"kind": kind, "saving_per_step_s": saving}]
    assert scorer.score("healthy_scan", found).right is silent


def run_scorer(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["score.py", *words])
    return scorer.main()


def test_any_command_can_be_scored(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tool = shlex.join(
        [sys.executable, "-c", f"import sys; assert sys.argv[1].endswith('.gz'); print({json.dumps({'findings': [RIGHT]})!r})"]
    )
    words = ["one_hot", "slow_input", "--command", f"{tool} {{}}"]
    assert run_scorer(monkeypatch, *words, "--least", "1") == 0
    assert run_scorer(monkeypatch, *words, "--least", "2") == 1
    out = capsys.readouterr().out
    assert "one-hot-product" in out
    assert out.rstrip().endswith("1 of 2")


def test_a_command_that_fails_has_found_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tool = shlex.join([sys.executable, "-c", "import sys; sys.exit('no such thing')"])
    assert run_scorer(monkeypatch, "one_hot", "--command", tool, "--least", "1") == 1
    told = capsys.readouterr()
    assert "no such thing" in told.err
    assert told.out.rstrip().endswith("0 of 1")
