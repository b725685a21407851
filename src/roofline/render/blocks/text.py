"""Configurations of a kernel as text: the best in a sentence, the ranked rows, where one spends its cycles, and rows for CSV."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...blocks.results import LIMITS, Blocks, Configuration
from ...errors import UsageError
from ...units import number_of, percent, show
from ..tables import PLAIN, Cell, Paper, side_by_side, table
from ..time_bar import WIDEST as SCREEN

TOP = 10
LEAST_LINE = 0.005
SETTINGS = {"num_warps": "warps", "num_stages": "stages", "num_ctas": "ctas"}  # shorter names of Triton's options
HEADERS = ("time", "interval", "roofline", "limit", "registers", "spills", "memory", "per core", "waves")


def blocks_text(blocks: Blocks, paper: Paper = PLAIN, *, top: int = TOP) -> str:
    """The first screen."""
    prose, best = paper.no_wider(SCREEN), best_sentence(blocks)
    can_run = [config for config in blocks.configs if config.time_s is not None]
    names = list(dict.fromkeys(name for config in blocks.configs for name in config.config))
    measured = any(config.measured_s is not None for config in can_run)
    headers = ("#", *(SETTINGS.get(name, name) for name in names), *(("measured",) if measured else ()), *HEADERS)
    rows = [_row(blocks, number, config, names, measured) for number, config in enumerate(can_run[:top], 1)]
    told = [column for column in range(len(headers)) if any(row[column] != "" for row in rows)]
    shown = side_by_side([headers[column] for column in told], [[row[column] for column in told] for row in rows], paper, left=1)
    lines = [paper.paint(subject(blocks), "bold"), prose.paragraph(best), "", shown]
    hidden = len(can_run) - top
    lines.append(f"{number_of(len(can_run), 'configuration')} can run" + (f"; {hidden:,} more with --top" if hidden > 0 else ""))
    for reason, count in refusals(blocks).items():
        lines.append(prose.paragraph(f"{count:,} refused: {reason}", rest="  "))
    lines += ["", prose.paragraph(f"Compiled by {blocks.compiler}, not run. Interval: {blocks.evidence}. Lines: --explain.", rest="  ")]
    return "\n".join(lines)


def subject(blocks: Blocks) -> str:
    return f"{blocks.kernel} on {blocks.chip}: {number_of(len(blocks.configs), 'configuration')}"


def best_sentence(blocks: Blocks) -> str:
    """The best configuration, its time with the interval, and what limits it."""
    best = blocks.best
    equal = sum(blocks.equals_best(config) for config in blocks.configs) - 1
    others = f" {number_of(equal, 'other')} within 5%." if equal else ""
    share = f", {percent(best.share)} of the roofline" if best.share is not None else ""
    return f"Best: {best.name}: {_time(best.time_s)} ({_interval(best)}){share}, limited by {LIMITS[best.limit]}.{others}"


def refusals(blocks: Blocks) -> dict[str, int]:
    """Reasons why configurations cannot run, without the numbers that differ, with how many have each; the most frequent first."""
    reasons = Counter(config.refused.partition(":")[0] for config in blocks.configs if config.refused)
    examples = {config.refused.partition(":")[0]: config.refused for config in blocks.configs if config.refused}
    return {examples[reason]: count for reason, count in reasons.most_common()}


def _time(seconds: float | None) -> str:
    return show(seconds, "s", 3) if seconds is not None else ""


def _interval(config: Configuration) -> str:
    return f"{_time(config.low_s)} to {_time(config.high_s)}"


def _row(blocks: Blocks, number: int, config: Configuration, names: Sequence[str], measured: bool) -> list[str | Cell]:
    equal = " =" if number > 1 and blocks.equals_best(config) else ""
    return [
        str(number),
        *(str(config.config.get(name, "")) for name in names),
        *([_time(config.measured_s)] if measured else []),
        _time(config.time_s) + equal,
        _interval(config),
        percent(config.share) if config.share is not None else "",
        Cell(LIMITS[config.limit], "yellow" if config.limit == "spills" else ""),
        "" if config.registers is None else str(config.registers),
        "" if config.spilled is None else str(config.spilled),
        "" if config.memory is None else show(config.memory, "B", 3),
        "" if config.per_core is None else str(config.per_core),
        "" if config.waves is None else f"{config.waves:.3g}",
    ]


def explanation(blocks: Blocks, number: int, paper: Paper = PLAIN) -> str:
    """Where a configuration spends its time: the parts that overlap, and the lines of its source."""
    can_run = [config for config in blocks.configs if config.time_s is not None]
    if not 1 <= number <= len(can_run):
        raise UsageError(f"--explain {number}: configurations 1 to {len(can_run)} can run")
    config = can_run[number - 1]
    parts = [
        [part, show(seconds, "s", 3), percent(seconds / (config.time_s or 1.0))]
        for part, seconds in sorted(config.parts.items(), key=lambda item: -item[1])
        if seconds > LEAST_LINE * (config.time_s or 0.0)
    ]
    lines = [
        [f"{line.file.rpartition('/')[2]}:{line.line}", percent(line.share), line.text] for line in config.lines if line.share > LEAST_LINE
    ]
    slots = [[slot, f"{count:.2f}"] for slot, count in config.slots.items()]
    return "\n".join(
        [
            paper.paint(f"{blocks.kernel} on {blocks.chip}, {config.name}: {_time(config.time_s)} ({_interval(config)})", "bold"),
            f"limited by {LIMITS[config.limit]}",
            "",
            table(("overlapping part", "time", "of the whole"), parts, paper),
            *(["", table(("line", "cycles", "source"), lines, paper, left=3, elastic=2)] if lines else []),
            *(["", table(("slot", "operations in a bundle"), slots, paper)] if slots else []),
        ]
    )


def block_rows(blocks: Blocks) -> Sequence[dict[str, Any]]:
    """A row per configuration, for CSV and Parquet."""
    fields = ("time_s", "low_s", "high_s", "share", "limit", "refused", "registers", "spilled", "memory", "per_core", "waves", "measured_s")
    return [
        {"rank": number, **config.config, **{field: getattr(config, field) for field in fields}}
        for number, config in enumerate(blocks.configs, 1)
    ]
