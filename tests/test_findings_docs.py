"""Each kind of finding has its section, with its rule, its caveat, its saving and every lever; each class of needless work has its row."""

import re
import sys
from pathlib import Path

import pytest

from roofline.analysis import advice_kinds
from roofline.analysis.finding_kinds import KINDS
from roofline.hlo.unneeded import RULES

PAGE = (Path(__file__).parent.parent / "docs" / "findings.md").read_text()
SUSPECT_FIGURES = ("out-of-memory", "above-roof", "between-roofs", "unrated", "unknown", "straggler")


def _section(kind: str) -> str:
    found = re.search(rf"^### {re.escape(kind)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/findings.md has no section {kind}"
    return " ".join(found[1].split())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_explained(kind: str) -> None:
    section = _section(kind)
    assert all(f"- {word}:" in section for word in ("Rule", "Caveat", "Saving", "Do"))
    assert [lever for lever in (*KINDS[kind].levers, *KINDS[kind].looped) if lever not in section] == []


@pytest.mark.parametrize("kind", SUSPECT_FIGURES)
def test_every_suspect_figure_is_explained(kind: str) -> None:
    section = _section(kind)
    assert all(f"- {word}:" in section for word in ("Rule", "Caveat", "Do"))
    assert [lever for lever in advice_kinds.KINDS[kind].levers if lever not in section] == []


def test_no_section_is_about_a_kind_that_is_gone() -> None:
    assert set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == {*KINDS, *SUSPECT_FIGURES}


def test_every_class_of_needless_work_is_in_the_table() -> None:
    modules = [sys.modules[rule.__module__] for rule in RULES]
    classes = {"masked", *(module.CLASS for module in modules if hasattr(module, "CLASS"))}
    assert len(classes) > 5
    assert [name for name in sorted(classes) if f"| `{name}` |" not in PAGE] == []
