"""Write docs/commands.md from the help of every command. Run: python docs/commands.py"""

import contextlib
import io
import os
from pathlib import Path

from roofline.cli import main
from roofline.cli.commands import COMMANDS

PAGE = Path(__file__).parent / "commands.md"
SHOWN = {
    "": (["--help"], ["--completion", "--help"], ["--cache", "--help"]),
    "analyze": (["analyze", "--help"], ["analyze", "--fusion", "--help"]),
    "op": (
        ["op", "--help"],
        ["op", "matmul", "--help"],
        ["op", "matmul", "--free", "m", "--help"],
        ["op", "--flops", "1T", "--help"],
        ["op", "chain", "--help"],
    ),
    "chips": (["chips", "--help"], ["chips", "measure", "--help"], ["chips", "demo", "--help"]),
    "validate": (["validate", "--help"], ["validate", "jax", "--help"], ["validate", "torch", "--help"]),
    "plan": (["plan", "--help"], ["plan", "llama3-8b", "h100", "serve", "--help"]),
    "blocks": (["blocks", "--help"],),
    "plot": (["plot", "--help"],),
}

# The page that says more about a command.
PAGES = {
    "analyze": "profiles.md",
    "capture": "capture.md",
    "op": "formulas.md",
    "whatif": "whatif.md",
    "plan": "plan.md",
    "blocks": "blocks.md",
    "explain": "findings.md",
    "validate": "validate.md",
    "compare": "comparison.md",
    "check": "check.md",
    "chips": "machines.md",
    "plot": "figures.md",
    "mcp": "agents.md",
    "serve": "serve.md",
}


def said(words: list[str]) -> str:
    """The output of a command at a fixed width."""
    os.environ["COLUMNS"] = "120"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(words)
    return out.getvalue().rstrip()


def page() -> str:
    """The whole page."""
    parts = [
        "# Commands",
        "",
        "Commands that print a table take `--json FILE`, `--csv FILE` and `--parquet FILE` (`-` is standard output); commands with a",
        "figure take `-o FILE`. Data goes to standard output, messages to standard error. Exit status: 0 success, 1 error, 2 wrong usage,",
        "3 a failed check. Output is plain text in pipes and with `NO_COLOR`. `ROOFLINE_CHIP` is the default for `--chip`.",
        "",
        "A file is written whole or not at all: a full disk, Ctrl-C or a kill leaves the old one. A file that is also an input is never",
        "written. `-` as an input is standard input, and pipes (`roofline analyze <(zcat rows.jsonl.gz)`) are read whole.",
    ]
    for name, summary in {"": "the commands", **COMMANDS}.items():
        more = f" More: [{PAGES[name]}]({PAGES[name]})." if name else ""
        parts += ["", f"## roofline {name}".rstrip(), "", f"{summary[0].upper()}{summary[1:]}.{more}"]
        for words in SHOWN.get(name, ([name, "--help"],)):
            parts += ["", "```text", f"$ roofline {' '.join(words)}", said(words), "```"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
