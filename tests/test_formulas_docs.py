"""The page of formulas: every formula has a section, and the table of counts is the one in the code."""

import re
from pathlib import Path

from every import every
from roofline.formulas import POINTWISE, Formula, all_formulas

PAGE = (Path(__file__).parent.parent / "docs" / "formulas.md").read_text()
TABLED = {name for name, facts in POINTWISE.items() if not facts.reduces and name != "dropout"}


@every("entry", all_formulas())
def test_every_formula_has_a_section_with_an_equation_and_an_example(entry: Formula) -> None:
    if entry.name in TABLED:
        facts = POINTWISE[entry.name]
        row = f"| `{entry.name}` | {facts.flops} | {facts.transcendentals} | {1 + facts.inputs} | {facts.why} |"
        assert row in PAGE
        return
    sections = [section for section in re.split(r"^##+ ", PAGE, flags=re.MULTILINE) if f"`{entry.name}`" in section.partition("\n")[0]]
    assert len(sections) == 1, f"docs/formulas.md needs one section headed `{entry.name}`"
    assert ">>> " in sections[0]
    assert re.search(rf"\b{entry.name}\(", sections[0]), f"the section of {entry.name} has no example of it"
