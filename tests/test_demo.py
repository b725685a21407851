"""The demo: a measurement, a small program, and its page."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.cli import main
from roofline.cli.forms import demo
from roofline.errors import MachineError
from roofline.integrations import demo_programs
from roofline.machine import Machine
from roofline.machines.cpu import this_cpu
from roofline.machines.cpu_estimate import estimate


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("ROWS", 64), ("WIDTH", 64), ("WIDER", 128), ("HEADS", 2), ("STEPS", 2), ("REPEATS", 2)):
        monkeypatch.setattr(demo_programs, name, size)


@pytest.fixture
def cpu() -> Machine:
    return estimate(this_cpu())


def test_numpy_runs_every_kind_of_op_and_prices_it_by_its_formula(cpu: Machine) -> None:
    report = demo_programs.run_numpy(cpu)
    ops = {op.label: op for op in report.ops}
    assert ops["matmul"].flops == 2 * 2 * 64 * 64 * 128  # two executions of 2·m·k·n
    assert {op.scope.partition("/")[0] for op in report.ops} == {"mlp", "attention", "normalisation", "chain"}
    assert all(op.self_time_s for op in report.ops)
    unfused = [ops[name].bytes["hbm"] or 0 for name in ("scale", "bias", "relu")]
    assert sum(unfused) == 3 * (ops["scale, bias, relu in blocks"].bytes["hbm"] or 0)  # each reads an array and writes one
    assert ops["scale, bias, relu in blocks"].flops == sum(ops[name].flops or 0 for name in ("scale", "bias", "relu"))
    timed = replace(report, ops=tuple(replace(op, time_s=op.count * (0.01 if op.scope == "chain/fused" else 0.02)) for op in report.ops))
    assert demo_programs.fused_and_unfused(timed).endswith("few rows at a time): 10 ms, 6 times as fast")  # three ops of 20 ms


@pytest.mark.jax
def test_jax_runs_the_stages_one_by_one_and_as_one_program(cpu: Machine) -> None:
    pytest.importorskip("jax")
    report = demo_programs.run_jax(cpu)
    assert {step.name for step in report.steps} == {"unfused", "fused"}
    assert len(report.steps) == 4
    assert any("dot" in op.label for op in report.ops)
    timed = replace(report, steps=tuple(replace(step, span_s=0.03 if step.name == "unfused" else 0.02) for step in report.steps))
    words = "unfused (the program, stage by stage): 30 ms; fused (as one program): 20 ms, 1.5 times as fast"
    assert demo_programs.fused_and_unfused(timed) == words


def test_the_command_measures_runs_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    measured = estimate(this_cpu()).override({"hbm": "123 GB/s"}, provenance="measured")
    monkeypatch.setattr(demo, "measure_cpu", lambda cpu, **options: type("Card", (), {"machine": measured}))
    page = tmp_path / "mine.html"
    assert main(["chips", "demo", "--no-open", "--framework", "numpy", "-o", str(page)]) == 0
    said = capsys.readouterr().out
    assert "123 GB/s hbm" in said
    assert "unfused (the elementwise chain, op by op): " in said
    assert "scale, bias, relu in blocks" in page.read_text()
    assert opened == []
    assert main(["chips", "demo", "--framework", "numpy", "-o", str(page)]) == 0
    assert opened == [page.as_uri()]


def test_a_computer_too_busy_to_measure_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise MachineError("this computer is too busy to be measured")

    monkeypatch.setattr(demo, "measure_cpu", busy)
    assert main(["chips", "demo", "--no-open", "--framework", "numpy", "-o", str(tmp_path / "mine.html")]) == 0
    assert "too busy to be measured; using the rates known or estimated before" in capsys.readouterr().err


def test_a_name_that_is_no_pages_is_refused_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "demo", "-o", "demo.svg"]) == 2
    assert "ends in .html" in capsys.readouterr().err
