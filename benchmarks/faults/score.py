"""Hold a tool to the planted faults: does its first finding with a saving name the fault, its cost and its line?

    python score.py                                     what roofline says of every capture
    python score.py slow_input one_hot                  of these
    python score.py --command 'mytool --json {}'        another tool, run on each capture in place of {}
    python score.py --xprof xp/bin/python --markdown    XProf beside it (pip install xprof), as in README.md
    python score.py --least 25                          exit status 1 when fewer captures are right

A tool prints JSON: {"findings": [{"kind": "idle-input", "message": "...", "saving_per_step_s": 0.0059}, ...]}, the most important first,
with the kinds of expected.toml; `xprof_findings.py` shows how to adapt one that prints something else. A capture with a fault is right
when the first finding with a saving has one of the expected kinds, saves at least half of the planted loss, has one of the lines in its
message (where the profile has them) and gives the factor of unneeded work (where one is expected). A healthy one is right when no
finding raises a false alarm; expected.toml says what would be one.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CAPTURES = HERE / "captures"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((HERE / "expected.toml").read_text())
ROOFLINE = f"{shlex.quote(sys.executable)} -m roofline analyze {{}} --json -"
ENOUGH = 0.5  # of the planted loss
ALARM, FAIR = 0.01, 0.1  # of the step: what a healthy capture may be told at all, and of the kinds that are allowed there

Finding = dict[str, Any]


@dataclass(frozen=True)
class Score:
    """One capture: what was said first, and what of it is right; None where nothing was asked. A fault not named has no right part."""

    name: str
    said: Finding | None
    named: bool
    enough: bool | None = None
    located: bool | None = None
    factor: bool | None = None

    @property
    def right(self) -> bool:
        return self.named and False not in (self.enough, self.located, self.factor)


def first_with_saving(findings: Sequence[Finding]) -> Finding | None:
    """Else the first of all."""
    return next((one for one in findings if saving(one)), findings[0] if findings else None)


def saving(finding: Finding | None) -> float:
    return (finding or {}).get("saving_per_step_s") or 0.0


def score(name: str, findings: Sequence[Finding]) -> Score:
    want = EXPECTED[name]
    if "allowed" in want:
        alarm = next((one for one in findings if saving(one) > want["step_s"] * (FAIR if one["kind"] in want["allowed"] else ALARM)), None)
        return Score(name, alarm or first_with_saving(findings), named=alarm is None)
    said = first_with_saving(findings)
    message = said["message"] if said else ""
    named = bool(said) and said["kind"] in want["kinds"]
    return Score(
        name,
        said,
        named,
        enough=(named and saving(said) >= ENOUGH * loss(name)) if loss(name) else None,
        located=named and bool(set(re.findall(r"[\w.]+\.py:\d+", message)) & set(want["lines"])) if "lines" in want else None,
        factor=named and bool(re.search(rf"\b{want['times']} times", message)) if "times" in want else None,
    )


def loss(name: str) -> float:
    """Seconds a step that the fault costs, timed without the profiler; 0 where the program without it was not timed."""
    return EXPECTED[name]["step_s"] - EXPECTED[name].get("fixed_s", EXPECTED[name]["step_s"])


def findings_of(command: str, name: str) -> list[Finding]:
    """What a tool prints of a capture. One that fails has found nothing, and its last line is shown."""
    words = [word.replace("{}", str(CAPTURES / f"{name}.xplane.pb.gz")) for word in shlex.split(command)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{name}: {words[0]} ended with status {run.returncode}: {last}", file=sys.stderr)
        return []
    return json.loads(run.stdout)["findings"]


def cells(one: Score) -> list[str]:
    """What was said, and whether it is right: kind, named, saving of loss, line."""

    def word(holds: bool | None) -> str:
        return {True: "yes", False: "no", None: "-"}[holds]

    said = (one.said or {}).get("kind") or "nothing"
    if "allowed" in EXPECTED[one.name]:
        return [said, "silent" if one.named else "false alarm", milliseconds(saving(one.said)), "-"]
    share = f" ({saving(one.said) / loss(one.name):.0%})" if loss(one.name) else ""
    return [said, word(one.named and one.factor is not False), f"{milliseconds(saving(one.said))}{share}", word(one.located)]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def statement(finding: Finding | None) -> str:
    """XProf's sentence, shortened to what it claims."""
    text = (finding or {"message": "nothing"})["message"]
    text = re.sub(r"^Your program is ", "", text)
    return (
        re.sub(r" of the total step time sampled is (spent on|waiting for).*", r"", text)
        .replace(" because only ", ": ")
        .replace(" because ", ": ")
    )


def table(ours: Sequence[Score], theirs: Sequence[Score]) -> list[list[str]]:
    """One row a capture under a heading; with XProf's scores, its words beside."""
    heading = ["capture", "expected", "planted ms", "first finding", "named", "saving ms", "line"]
    rows = [heading + ["XProf says first", "named"] * bool(theirs)]
    for number, one in enumerate(ours):
        want = EXPECTED[one.name]
        planted = milliseconds(loss(one.name)) if "fixed_s" in want else "-"
        beside = [statement(theirs[number].said), cells(theirs[number])[1]] if theirs else []
        rows.append([one.name, ", ".join(want.get("kinds", ["nothing"])), planted, *cells(one), *beside])
    return rows


def summed(scores: Sequence[Score]) -> str:
    def count(what: str) -> str:
        asked = [getattr(one, what) for one in scores if getattr(one, what) is not None]
        return f"{sum(asked)} of {len(asked)}"

    parts = f"named or silent {count('named')}, saving {count('enough')}, line {count('located')}, factor {count('factor')}"
    return f"{parts}; all of it right: {sum(one.right for one in scores)} of {len(scores)}"


def shown(rows: Sequence[Sequence[str]], markdown: bool) -> str:
    if markdown:
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CAPTURE", help="captures to score (default: all)")
    parser.add_argument("--command", default=ROOFLINE, help="the tool, with {} for the capture (default: roofline analyze {} --json -)")
    parser.add_argument("--xprof", metavar="PYTHON", help="a Python that has XProf, to show its statements beside")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument("--least", type=int, default=0, metavar="N", help="exit with status 1 when fewer than N captures are right")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(EXPECTED):
        parser.error(f"no such capture: {', '.join(sorted(unknown))}; there are {', '.join(EXPECTED)}")
    names = chosen.names or list(EXPECTED)
    ours = [score(name, findings_of(chosen.command, name)) for name in names]
    adapter = f"{chosen.xprof} {shlex.quote(str(HERE / 'xprof_findings.py'))} {{}}"
    theirs = [score(name, findings_of(adapter, name)) for name in names] if chosen.xprof else []
    print(shown(table(ours, theirs), chosen.markdown), end="\n\n")
    if theirs:
        print(f"XProf: {summed(theirs)}", end="\n\n" if chosen.markdown else "\n")
    print(summed(ours))
    return int(sum(one.right for one in ours) < chosen.least)


if __name__ == "__main__":
    sys.exit(main())
