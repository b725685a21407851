"""The acceptance checks of a program as text."""

from ..analysis.validation.acceptance import AcceptanceCheck, Validation
from .tables import PLAIN, Paper
from .text import notes_text

RESULTS = {True: "pass", False: "FAIL", None: "not checked"}


def validation_text(found: Validation, paper: Paper = PLAIN) -> str:
    """Each check with the expected and the found values, its problems, and the result."""
    failed, open_ = len(found.failed), sum(one.holds is None for one in found.checks)
    passed = len(found.checks) - failed - open_
    verdict = f"{passed} passed, {failed} failed, {open_} not checked"
    parts = [f"{paper.paint(found.source, 'bold')} on {found.machine}: {verdict}"]
    parts += [_check_text(number, one, paper) for number, one in enumerate(found.checks, start=1)]
    return "\n\n".join(parts)


def _check_text(number: int, check: AcceptanceCheck, paper: Paper) -> str:
    style = {True: "green", False: "red", None: "dim"}[check.holds]
    lines = [f"{number}. {check.name}: {paper.paint(RESULTS[check.holds], style)}"]
    lines += [paper.paragraph(f"expected: {check.expected}", "   ", "             ")]
    lines += [paper.paragraph(f"found: {check.saw}", "   ", "          ")]
    lines += [paper.paragraph(f"wrong: {one.input}: {one.message}", "   ", "          ") for one in check.problems]
    notes = notes_text(list(check.notes), paper)
    return "\n".join([*lines, *(f"   {line}" for line in notes.splitlines())])
