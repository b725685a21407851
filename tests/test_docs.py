"""The pages say what the program does, and nothing is without a page."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from roofline.cli.commands import COMMANDS, module_of
from roofline.formulas import FORMULAS
from roofline.machines import names
from roofline.rules.words import kinds
from roofline.sources import SOURCES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The pages that are written from the code, as they would be written now."""
    code = "import json, reference; print(json.dumps({name: write() for name, write in reference.PAGES.items()}))"
    return json.loads(subprocess.run([sys.executable, "-c", code], cwd=DOCS, capture_output=True, text=True, check=True).stdout)


def test_the_reference_is_what_the_code_says(reference: dict[str, str]) -> None:
    for name, written in reference.items():
        if name == "commands.md" and sys.version_info[:2] != (3, 11):
            continue  # argparse lays out its help differently from version to version
        assert (DOCS / name).read_text() == written, f"{name}: write it again: python docs/reference.py"


def test_every_command_kind_and_formula_has_its_section(reference: dict[str, str]) -> None:
    assert [name for name in COMMANDS if f"\n## roofline {name}\n" not in reference["commands.md"]] == []
    assert [kind for kind in kinds() if f"\n### {kind}\n" not in reference["findings.md"]] == []
    assert [
        name
        for name in FORMULAS
        if f"\n### `{name}`\n" not in reference["formulas.md"] and f"\n| `{name}` |" not in reference["formulas.md"]
    ] == []
    assert [name for name in names() if f"\n| `{name}` |" not in reference["chips.md"]] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_one_word_finds_a_commands_module_test_and_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    page = import_module("commands").PAGES[name]
    assert callable(module_of(name).run)
    assert re.search(rf"roofline {name}\b", (DOCS / page).read_text()), f"{page} does not mention roofline {name}"
    assert any(f'"{name}"' in test.read_text() for test in Path(__file__).parent.glob("test_*.py")), f"no test runs {name}"


def test_every_source_has_a_page() -> None:
    pages = {
        "table": "tables.md",
        "report": "tables.md",
        "program": "hlo.md",
        "ncu": "counters.md",
        "xspace": "profiles.md",
        "torch": "torch_trace.md",
    }
    for source in SOURCES:
        assert (DOCS / pages[source.name]).exists(), f"{source.name} has no page"


def test_chips_and_formulas_are_counted_right() -> None:
    readme, changes = (ROOT / "README.md").read_text(), (ROOT / "CHANGELOG.md").read_text()
    assert f"has {len(names())} chips" in readme
    assert f"catalogue has {len(names())} chips" in (DOCS / "machines.md").read_text()
    assert f"catalogue of {len(names())} chips" in changes
    assert all(f"{len(FORMULAS)} formulas" in text for text in (readme, changes, (DOCS / "api.md").read_text()))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} points to {target}, which is not there"
            assert not anchor or anchor in anchors(there), f"{page.name} points to {target}#{anchor}, which is not there"


def test_snippets_use_the_public_names_alone() -> None:
    inner = re.compile(r"^(?:>>>|\.\.\.) +(?:from roofline\b|import roofline\.(?!jax\b|torch\b)).*", re.MULTILINE)
    for page in [*DOCS.glob("*.md"), ROOT / "README.md"]:
        assert inner.findall(page.read_text()) == [], page.name
