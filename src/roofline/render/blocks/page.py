"""Configurations of a kernel as a page without script: a point for each on the chip's roofline, and a row for each."""

import html
import math

from ...blocks.results import LIMITS, Blocks, Configuration
from ...errors import clean
from ...machine import Machine
from ...units import percent, show
from ..export import to_json
from ..page.html import closed_policy, data_element, part, script_hash
from .text import best_sentence, subject

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 1060, 380, 70, 36, 12, 12
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6FB5", "#8C6D31", "#5B636D")
HEADERS = ("configuration", "time", "interval", "of the roofline", "limit", "registers", "spills", "memory", "per core", "waves")


def blocks_page(blocks: Blocks, machine: Machine) -> str:
    """The page of some configurations."""
    style = part("page.css") + part("plans.css")
    parts = {
        "title": html.escape(clean(subject(blocks))),
        "policy": closed_policy(f"'{script_hash('')}'", f"'{script_hash(style)}'"),
        "style": f"<style>{style}</style>",
        "best": html.escape(clean(best_sentence(blocks))),
        "chart": _chart(blocks, machine),
        "table": _table(blocks),
        "evidence": html.escape(clean(f"Compiled by {blocks.compiler}, not run. Interval: {blocks.evidence}.")),
        "blocks": data_element("blocks", to_json(blocks)),
    }
    page = part("blocks.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{{{name}}}-->", text)
    return page


def _point(config: Configuration) -> tuple[float, float, str] | None:
    """FLOP per byte and FLOP/s of a configuration, in the resource of which it has most."""
    work = {name: amount for name, amount in config.work.items() if "transcendental" not in name}
    if not work or config.time_s is None or not config.bytes.get("hbm"):
        return None
    name, amount = max(work.items(), key=lambda item: item[1])
    return amount / config.bytes["hbm"], amount / config.time_s, name


def _chart(blocks: Blocks, machine: Machine) -> str:
    """The roof of main memory and of the matrix or vector unit, and the configurations below it, on logarithmic axes."""
    points = [(number, config, found) for number, config in enumerate(blocks.configs, 1) if (found := _point(config))]
    if not points:
        return "<p>No configuration has arithmetic to place on a roofline.</p>"
    ceiling, memory = machine.resolve(points[0][2][2]), machine.rate("hbm")
    peak = ceiling.rate if ceiling else max(found[1] for _, _, found in points)
    across = [found[0] for _, _, found in points] + [peak / memory]
    low_x, high_x = min(across) / 2, max(across) * 2
    low_y, high_y = min(found[1] for _, _, found in points) / 2, peak * 1.5

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / low_x) / math.log(high_x / low_x)

    def y(value: float) -> float:
        share = math.log(max(value, low_y) / low_y) / math.log(high_y / low_y)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share

    roof = [(low_x, low_x * memory), (peak / memory, peak), (high_x, peak)]
    limits = list(dict.fromkeys(config.limit for _, config, _ in points))
    drawn = [f'<polyline class="axis" fill="none" points="{" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in roof)}"/>']
    for exponent in range(math.ceil(math.log10(low_y)), math.floor(math.log10(high_y)) + 1):
        drawn.append(f'<text x="{LEFT - 6}" y="{y(10.0**exponent) + 4:.1f}" text-anchor="end">{show(10.0**exponent, "FLOP/s", 3)}</text>')
    for exponent in range(math.ceil(math.log10(low_x)), math.floor(math.log10(high_x)) + 1):
        drawn.append(f'<text x="{x(10.0**exponent):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10.0**exponent:g} FLOP/B</text>')
    for number, config, (intensity, rate, _) in points:
        words = html.escape(f"{number}: {config.name}: {show(config.time_s or 0.0, 's', 3)}, {LIMITS[config.limit]}")
        colour = COLOURS[limits.index(config.limit) % len(COLOURS)]
        drawn.append(
            f'<circle class="dot" cx="{x(intensity):.1f}" cy="{y(rate):.1f}" r="5" fill="{colour}"><title>{words}</title></circle>'
        )
    for place, limit in enumerate(limits):
        left, colour = LEFT + place * 190, COLOURS[place % len(COLOURS)]
        drawn.append(
            f'<circle cx="{left}" cy="{HEIGHT + 12}" r="5" fill="{colour}"/><text x="{left + 9}" y="{HEIGHT + 16}">{LIMITS[limit]}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 24}" role="img" aria-label="Configurations on the roofline">{"".join(drawn)}</svg>'


def _table(blocks: Blocks) -> str:
    head = "".join(f'<th scope="col">{header}</th>' for header in HEADERS)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, blocks.configs))}</tbody></table>"


def _row(config: Configuration) -> str:
    if config.time_s is None:
        return f'<tr><td>{html.escape(config.name)}</td><td colspan="{len(HEADERS) - 1}">{html.escape(clean(config.refused))}</td></tr>'
    cells = (
        config.name,
        show(config.time_s, "s", 3),
        f"{show(config.low_s or 0.0, 's', 3)} to {show(config.high_s or 0.0, 's', 3)}",
        "" if config.share is None else percent(config.share),
        LIMITS[config.limit],
        *("" if value is None else str(value) for value in (config.registers, config.spilled)),
        "" if config.memory is None else show(config.memory, "B", 3),
        "" if config.per_core is None else str(config.per_core),
        "" if config.waves is None else f"{config.waves:.3g}",
    )
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
