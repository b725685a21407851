"""`roofline explain`: what a kind of finding means, and what to do about it."""

import re
from collections.abc import Sequence

from ..render.tables import Paper
from ..rules.words.explanation import chapters, explanation, title_of
from .options import Parser
from .output import paper, write

WIDEST = 100


def parser() -> Parser:
    parser = Parser(
        "explain",
        "What a kind of finding means, how it is recognised, what it saves and what to do about it; without a kind, all kinds.",
        "roofline explain stored-attention",
    )
    parser.add_argument("kind", nargs="?", metavar="KIND", help="the kind of a finding, as reports name it")
    return parser


def run(words: Sequence[str]) -> int:
    kind = parser().parse_args(words).kind
    page = paper().no_wider(WIDEST)
    text = _wrapped(f"{kind}\n\n{explanation(kind)}", page) if kind else _listed()
    write("-", f"{text}\n".encode())
    return 0


def _listed() -> str:
    """All kinds, by chapter."""
    lines = []
    for chapter, kinds in chapters():
        widest = max(map(len, kinds))
        lines += [chapter, *(f"  {kind.ljust(widest)}  {title_of(kind)}" for kind in kinds), ""]
    return "\n".join(lines[:-1])


def _wrapped(text: str, page: Paper) -> str:
    """Markdown as plain text, each line wrapped under its bullet."""
    lines = []
    for line in _joined(text):
        indent = re.match(r" *(- )?", line)
        margin = " " * len(indent[0]) if indent else ""
        lines.append(page.paragraph(line.strip(), margin.removesuffix("  ") if line.strip().startswith("- ") else margin, margin))
    return "\n".join(lines).replace("`", "")


def _joined(text: str) -> list[str]:
    """Lines of Markdown, with those that continue a bullet joined to it."""
    joined: list[str] = []
    for line in text.splitlines():
        if joined and line.startswith("  ") and not line.strip().startswith("- ") and joined[-1].strip():
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined
