"""Every rule in every form of a program: as it was traced, and as the TPU compiler made it. Needs neither JAX nor PyTorch."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import roofline as rl
from every import every
from roofline.analysis.evidence import with_evidence
from roofline.report import Report

FOLDER = Path(__file__).parent / "data" / "rules"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "expected.toml").read_text())
FORMS = sorted(FOLDER.glob("*.gz"))


def analyzed(path: Path) -> Report:
    return rl.analyze(path, path.name.split(".")[1].removeprefix("tpu-"))


def matrix_flop(report: Report) -> float:
    return sum(amount or 0 for resource, amount in report.points[0].work.items() if resource.startswith("matrix/"))


def test_every_program_is_there_in_both_forms() -> None:
    forms = {name: {path.name.split(".")[-2] for path in FORMS if path.name.startswith(f"{name}.")} for name in EXPECTED}
    assert set(map(frozenset, forms.values())) == {frozenset(("stablehlo", "hlo"))}
    assert len(FORMS) == 2 * len(EXPECTED)


@every("path", FORMS)
def test_the_fault_is_the_first_finding_that_saves_time(path: Path) -> None:
    expected = EXPECTED[path.name.partition(".")[0]]
    report = analyzed(path)
    saving = [finding for finding in report.findings if finding.saving_s]
    assert [finding.kind for finding in saving][:1] == [expected["kind"]]
    if "group" in expected:
        assert any(one.group == expected["group"] for op in with_evidence(rl.read(path, rl.chip("v5e"))).workload for one in op.avoidable)


@every("path", FORMS)
def test_products_are_counted_as_by_hand(path: Path) -> None:
    expected = EXPECTED[path.name.partition(".")[0]]
    assert matrix_flop(analyzed(path)) == pytest.approx(expected["flop"], rel=expected.get("within", 1e-4))


@every("name", EXPECTED)
def test_the_forms_of_a_program_promise_about_the_same(name: str) -> None:
    promised = [
        sum(finding.saving_s or 0 for finding in analyzed(path).findings if finding.kind == EXPECTED[name]["kind"])
        for path in FORMS
        if path.name.startswith(f"{name}.")
    ]
    assert max(promised) <= EXPECTED[name].get("apart", 1.25) * min(promised)
