"""Write the section of each kind of finding in docs/findings.md from the catalogue. Run: python docs/findings.py"""

from pathlib import Path

from roofline.rules.words.explanation import chapters, explanation

PAGE = Path(__file__).parent / "findings.md"
ELSEWHERE = "Single operations"  # in docs/advice.md
START = "<!-- What follows is written by docs/findings.py. -->"


def text() -> str:
    """The whole page: what was written by hand, and the kinds of each chapter."""
    by_hand = PAGE.read_text().partition(START)[0]
    sections = [
        f"## {chapter}\n\n" + "\n\n".join(f"### {kind}\n\n{explanation(kind)}" for kind in kinds)
        for chapter, kinds in chapters()
        if chapter != ELSEWHERE
    ]
    return f"{by_hand}{START}\n\n" + "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
