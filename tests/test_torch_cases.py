"""PyTorch traces with one decision each: what their findings save, of which ops and in which words, and why the device waits longest."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from every import every
from roofline.analysis import analyze
from roofline.report import Report
from savings import assert_savings_fit

FOLDER = Path(__file__).parent / "data" / "torch_traces"
ABOUT: dict[str, list[str]] = {}
CASES: dict[str, dict[str, Any]] = {}
for name, group in tomllib.loads((FOLDER / "cases.toml").read_text()).items():
    for number, case in enumerate(group["cases"]):
        file = f"{name}.{number}" if len(group["cases"]) > 1 else name
        CASES[file], ABOUT[file] = case, group["about"]


def test_every_trace_has_a_case() -> None:
    assert {path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.gz")} == CASES.keys()


def findings_agree(report: Report, about: list[str], told: list[dict[str, Any]], never: list[str]) -> None:
    findings = [finding for finding in report.findings if finding.kind in about]
    assert [finding.kind for finding in findings] == [expected["kind"] for expected in told]
    for finding, expected in zip(findings, told, strict=True):
        if "saves_us" in expected:
            assert finding.saving_per_step_s == pytest.approx(expected["saves_us"] * 1e-6, rel=0.02)
        else:
            assert finding.saving_per_step_s is None
        assert len(finding.ops) == expected.get("ops", 0)
        text = " ".join((finding.title, finding.message, *finding.levers))
        assert [words for words in expected.get("says", ()) if words not in text] == []
        assert [words for words in never if words in text] == []


@every("name", CASES)
def test_a_trace_is_told_what_its_case_says(name: str) -> None:
    case, report = CASES[name], analyze(FOLDER / f"{name}.json.gz")
    findings_agree(report, ABOUT[name], case.get("told", []), case.get("never", []))
    assert_savings_fit(report)
    if "idle" in case:
        assert " at ".join(filter(None, (report.idle[0].reason, report.idle[0].location))) == case["idle"]
