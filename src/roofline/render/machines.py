"""Chips as text: a list, one in full with the source of each figure, several side by side."""

import math
from collections.abc import Sequence

from ..analysis.ops_on_chips import OpOnChip
from ..machine import Ceiling, Limit, Machine
from ..machines import Card
from ..machines.lint.problem import Problem
from ..resource import SCALE_UP
from ..units import number_of, percent, plain, show
from .tables import PLAIN, Cell, Paper, facts, side_by_side, table
from .text import notes_text

SWEPT = {"read": "read", "write": "write", "copy": "copy", "per_core": "read per core"}  # patterns of a sweep, as column titles
BAR = 30  # characters of the longest bar
LISTED = ("matrix/bf16", "matrix/fp8", "matrix/int8", "vector/fp32")


def chips_text(machines: Sequence[Machine], paper: Paper = PLAIN) -> str:
    """One line per machine."""
    rows = [
        [
            machine.name,
            machine.title,
            *(_rate(machine.ceiling(resource)) for resource in LISTED),
            show(machine.capacity(), "B", 3) if machine.capacity() else "–",
            _rate(machine.ceiling("hbm")),
            _ridge(machine),
            _scale_up(machine),
        ]
        for machine in machines
    ]
    headers = ["chip", "name", "bf16", "fp8", "int8", "fp32 vector", "memory", "hbm", "ridge", "links (one way)"]
    note = "dense rates per chip; ridge (FLOP/B) = bf16 (else fp16) matrix rate / hbm bandwidth; details: roofline chips NAME"
    return table(headers, rows, paper, left=2, elastic=1) + "\n\n" + notes_text([note], paper)


def _rate(ceiling: Ceiling | None) -> str:
    return show(ceiling.rate, ceiling.resource.per, 4) if ceiling else "–"


def _ridge(machine: Machine) -> str:
    best = next((found for name in ("matrix/bf16", "matrix/fp16") if (found := machine.ceiling(name))), None)
    return plain(machine.ridge(best.resource), 3) if best and machine.ceiling("hbm") else "–"


def _scale_up(machine: Machine) -> str:
    link = next((found for name in SCALE_UP if (found := machine.ceiling(name))), None)
    return f"{link.resource} {link.count} x {show(link.rate, 'B/s', 3)}" if link else "–"


def card_text(card: Card, paper: Paper = PLAIN) -> str:
    """One machine in full: every figure with its source, and figures of other sources."""
    machine = card.machine
    cores = f", {machine.cores} cores" if machine.cores > 1 else ""
    whole = f"{machine.devices} framework device{'s' if machine.devices > 1 else ''}{cores}"
    head = f"{paper.paint(machine.name, 'bold')}: {machine.title}"
    about = facts(
        [
            ("vendor", ", ".join(str(each) for each in (machine.vendor, machine.kind, machine.arch, machine.year) if each)),
            ("scope", f"figures are per {machine.scope}; one chip is {whole}"),
            ("names", "; ".join(f"{tool}: {', '.join(names)}" for tool, names in card.names.by_tool.items())),
            ("power", f"{show(card.power.watts, 'W')} {card.power.term}" if card.power else ""),
            ("launch", f"{show(machine.launch_latency_s, 's')} latency"),
            ("specs", "; ".join(f"{name} {spec.value}" for name, spec in card.specs.items())),
            ("measured", "; ".join(value if name == "date" else f"{name} {value}" for name, value in machine.conditions)),
        ],
        paper,
    )
    rows: list[list[str | Cell]] = []
    for ceiling in machine.ceilings:
        rows.append([ceiling.resource.name, _rate(ceiling), _other_figures(ceiling), ceiling.provenance, ceiling.citation])
        for other in ceiling.others:
            cells = ["", show(other.value, ceiling.resource.per), other.note, "other source", other.citation]
            rows.append([Cell(text, "dim") for text in cells])
    rates = table(["resource", "rate", "details", "provenance", "source"], rows, paper, left=5, elastic=4)
    sizes = [[each.level.name, show(each.bytes, "B"), each.provenance, each.citation] for each in machine.capacities]
    memories = table(["memory", "capacity", "provenance", "source"], sizes, paper, left=4, elastic=3) if sizes else ""
    roofs = [
        [limit.name, limit.resource.name, f"{limit.fraction:.3g}", _limited(machine, limit), limit.citation] for limit in machine.limits
    ]
    limits = table(["lower ceiling", "resource", "fraction", "rate", "source"], roofs, paper, left=5, elastic=4) if roofs else ""
    sweep = _sweep_table(card, paper) if card.sweep else ""
    differ = [f"sources differ on {each.about}: {each.note}" for each in card.disagreements]
    notes = notes_text([*machine.notes, *_quoted(machine), *differ], paper)
    return "\n\n".join(part for part in (head, about, rates, memories, limits, sweep, notes) if part)


def _sweep_table(card: Card, paper: Paper) -> str:
    """The measured bandwidth by working set, two rows per doubling, with a bar for the first pattern."""
    patterns = [pattern for pattern in SWEPT if any(each.pattern == pattern for each in card.sweep)]
    rates = {(each.pattern, round(2 * math.log2(each.bytes))): each.rate for each in card.sweep}
    top = max(rate for (pattern, _), rate in rates.items() if pattern == patterns[0])
    rows: list[list[str]] = []
    for step in sorted({step for _, step in rates}):
        found = [rates.get((pattern, step)) for pattern in patterns]
        bar = "#" * round(BAR * found[0] / top) if found[0] else ""
        rows.append([show(2 ** (step / 2), "B", 3), *(show(rate, "B/s", 3) if rate else "" for rate in found), bar.ljust(BAR)])
    return table(["working set", *(SWEPT[pattern] for pattern in patterns), ""], rows, paper, left=0)


def _quoted(machine: Machine) -> list[str]:
    """The meaning of ``quoted``, if some of the figures are."""
    figures = [ceiling.provenance for ceiling in machine.ceilings] + [capacity.provenance for capacity in machine.capacities]
    quoted = figures.count("quoted")
    whose = "are the vendor's as other projects repeat them; the vendor's own document was not read for them"
    return [f"quoted figures ({quoted} of {len(figures)}) {whose}"] if quoted else []


def _limited(machine: Machine, limit: Limit) -> str:
    ceiling = machine.ceiling(limit.resource)
    return show(limit.fraction * ceiling.rate, limit.resource.per) if ceiling else ""


def _other_figures(ceiling: Ceiling) -> str:
    parts = []
    if ceiling.sparse:
        parts.append(f"{show(ceiling.sparse, ceiling.resource.per)} sparse")
    if ceiling.peak:
        parts.append(f"{show(ceiling.peak, ceiling.resource.per)} vendor peak")
    if ceiling.count > 1:
        parts.append(f"x {ceiling.count} links")
    if ceiling.spread:
        percentiles = zip(("p5", "p50", "p95"), (ceiling.spread.p5, ceiling.spread.p50, ceiling.spread.p95), strict=True)
        parts += [f"{name} {show(rate, ceiling.resource.per, 3)}" for name, rate in percentiles]
    return ", ".join(parts)


def comparison_text(machines: Sequence[Machine], paper: Paper = PLAIN) -> str:
    """Several chips side by side, one row per figure."""
    resources = dict.fromkeys(ceiling.resource for machine in machines for ceiling in machine.ceilings)
    rows = [[str(resource), *(_rate(machine.ceiling(resource)) for machine in machines)] for resource in resources]
    levels = dict.fromkeys(capacity.level for machine in machines for capacity in machine.capacities)
    rows += [[f"capacity {level}", *(show(machine.capacity(level), "B") for machine in machines)] for level in levels]
    rows.append(["links", *(_scale_up(machine) for machine in machines)])
    rows.append(["framework devices", *(str(machine.devices) for machine in machines)])
    rows.append(["power", *(show(machine.power_w, "W") for machine in machines)])
    rows += _ridge_rows(machines)
    notes = [note for machine in machines for note in machine.notes]
    shown = side_by_side(["", *(machine.name for machine in machines)], rows, paper)
    return shown + ("\n\n" + notes_text(notes, paper) if notes else "")


def ops_on_chips_text(found: Sequence[OpOnChip], chips: Sequence[Machine], paper: Paper = PLAIN) -> str:
    """A table of operations by chips: the attainable rate, its share of the chip's peak, and what binds."""
    names = list(dict.fromkeys(one.operation for one in found))
    cells = {(one.operation, one.chip): one for one in found}
    columns = [_aligned([*(_on_chip(cells[name, chip.name]) for name in names), *_peak_and_ridge(chip)]) for chip in chips]
    first = [*((name, _intensities(found, name)) for name in names), ("peak", ""), ("ridge, FLOP/B", "")]
    rows = [[*words, *figures] for words, *figures in zip(first, *columns, strict=True)]
    unrated: dict[str, dict[str, None]] = {}
    for one in found:
        unrated.setdefault(one.chip, {}).update(dict.fromkeys(one.unrated))
    notes = ["of each chip: the attainable rate, its share of the matrix peak in the operation's number format, and the unit that binds"]
    notes += [f"{chip} has no known rate for {', '.join(work)}: its minimum excludes it" for chip, work in unrated.items() if work]
    headers = ["operation", "FLOP/B", *(chip.name for chip in chips)]
    return side_by_side(headers, rows, paper, left=2) + "\n\n" + notes_text(notes, paper)


def _aligned(cells: Sequence[tuple[str, str, str]]) -> list[str]:
    """The cells of a column of figures, shares and words, each below the others of its kind."""
    figure, share, words = (max(map(len, part)) for part in zip(*cells, strict=True))
    return [f"{one.rjust(figure)}  {part.rjust(share)}  {text.ljust(words)}" for one, part, text in cells]


def _peak_and_ridge(chip: Machine) -> list[tuple[str, str, str]]:
    """The matrix peak and the ridge point of a chip."""
    best = chip.best_matrix
    if best is None:
        return [("–", "", ""), ("–", "", "")]
    ridge = plain(chip.ridge(best.resource)) if chip.ceiling("hbm") else "–"
    return [(_rate(best), "", best.resource.kind), (ridge, "", "")]


def _intensities(found: Sequence[OpOnChip], name: str) -> str:
    """The arithmetic intensity of an operation, which is the same on all chips unless it exchanges data."""
    each = dict.fromkeys(plain(one.intensity) for one in found if one.operation == name and one.intensity)
    return " to ".join(each) if each else "–"


def _on_chip(one: OpOnChip) -> tuple[str, str, str]:
    """The rate, or the time of an operation without FLOP, the share of the peak, and the bound."""
    if one.minimum_s is None:
        return "no known bound", "", ""
    if not one.rate:
        return show(one.minimum_s, "s"), "", one.bound or ""
    return show(one.rate, "FLOP/s"), percent(one.peak_share), one.bound or ""


def _ridge_rows(machines: Sequence[Machine]) -> list[list[str]]:
    """The ridge of every compute resource over main memory."""
    compute = dict.fromkeys(ceiling.resource for machine in machines for ceiling in machine.compute)
    rows = []
    for resource in compute:
        cells = [plain(m.ridge(resource)) if m.ceiling(resource) and m.ceiling("hbm") else "–" for m in machines]
        rows.append([f"ridge {resource}, FLOP/B", *cells])
    return rows


def lint_text(targets: Sequence[str], problems: Sequence["Problem"], paper: Paper = PLAIN) -> str:
    """What the linter found, worst first."""
    if not problems:
        return f"{number_of(len(targets), 'machine file')} checked: no problems"
    ordered = sorted(problems, key=lambda problem: problem.severity != "error")
    lines = [paper.paragraph(f"{problem.severity}: {problem.where}: {problem.message}", "", "    ") for problem in ordered]
    errors = sum(problem.severity == "error" for problem in problems)
    found = f"{number_of(errors, 'error')}, {number_of(len(problems) - errors, 'warning')}"
    return "\n".join([*lines, f"{number_of(len(targets), 'machine file')} checked: {found}"])
