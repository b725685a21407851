"""Every rule in every form of a program: as it was traced, and as the TPU compiler made it. Needs neither JAX nor PyTorch."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import roofline as rl
from every import every
from roofline.analysis.evidence import with_evidence
from roofline.report import Report
from roofline.resource import HBM

FOLDER = Path(__file__).parent / "data" / "rules"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "expected.toml").read_text())
FORMS = sorted(FOLDER.glob("*.gz"))


@cache
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
    """Of minimum times: those of a schedule that was played are other times, which only the compiled form has."""
    promised = []
    for path in FORMS:
        if path.name.startswith(f"{name}."):
            chip = rl.chip(path.name.split(".")[1].removeprefix("tpu-"))
            report = rl.analyze(replace(rl.read(path, chip), schedules=()), chip)
            promised.append(sum(finding.saving_s or 0 for finding in report.findings if finding.kind == EXPECTED[name]["kind"]))
    assert max(promised) <= EXPECTED[name].get("apart", 1.25) * min(promised)


SMALL: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "small.toml").read_text())


def told(path: Path) -> dict[str, dict[str, float]]:
    """What the rules tell of a program on an H200: kinds with their groups, the ops that have them, and what is left to do for these."""
    found: dict[str, dict[str, float]] = {}
    for op in with_evidence(rl.read(path, rl.chip("h200"))).workload:
        for reason in op.avoidable:
            kind = found.setdefault(f"{reason.kind}/{reason.group}".rstrip("/"), {"ops": 0, "factor": 1, "flop": 0, "bytes": 0})
            kind["ops"] += 1
            kind["factor"] = reason.factor or kind["factor"]
            kind["flop"] += float(reason.instead.flops or 0) * op.count
            kind["bytes"] += float(reason.instead.known(HBM)) * op.count
    return found


def agrees(name: str, path: Path) -> None:
    expected = {key: value if isinstance(value, dict) else {"ops": value} for key, value in SMALL[name].items() if key != "first"}
    found = told(path)
    assert {kind: {key: found[kind][key] for key in amounts} for kind, amounts in expected.items() if kind in found} == {
        kind: pytest.approx(amounts, rel=1e-4) for kind, amounts in expected.items()
    }
    assert found.keys() == expected.keys(), "and no other"


@every("name", SMALL)
def test_a_small_program_is_told_its_faults_and_no_other(name: str) -> None:
    agrees(name, FOLDER / "small" / f"{name}.stablehlo.gz")


@every("name", [name for name, expected in SMALL.items() if "first" in expected])
def test_the_first_finding_of_a_small_program_names_its_fault(name: str) -> None:
    kind, words = SMALL[name]["first"]
    first = next(finding for finding in rl.analyze(FOLDER / "small" / f"{name}.stablehlo.gz", "h200").findings if finding.saving_s)
    assert first.kind == kind
    assert words in first.message


def test_every_small_program_is_kept() -> None:
    assert {path.name.partition(".")[0] for path in (FOLDER / "small").iterdir()} == SMALL.keys()


@pytest.mark.slow
@pytest.mark.jax
def test_small_programs_that_are_lowered_anew_are_told_the_same(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from data.rules.small import PROGRAMS, lowered

    assert PROGRAMS.keys() == SMALL.keys()
    for name in PROGRAMS:
        path = tmp_path / f"{name}.stablehlo"
        path.write_text(lowered(name))
        agrees(name, path)
