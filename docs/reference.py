"""Write the reference pages from the code: commands, findings, formulas, chips, quantities, JSON, Python. Run: python docs/reference.py"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import commands

import roofline as rl
from roofline.causes import PARTS, REASONS
from roofline.formulas import POINTWISE, Formula, all_formulas
from roofline.formulas.registry import GROUPS
from roofline.quantities import OF_OPS, OF_REPORTS, OP
from roofline.render.op_table import COLUMNS
from roofline.render.page.terms import TERMS
from roofline.report import Report
from roofline.rules.words.explanation import chapters, explanation

DOCS = Path(__file__).parent
MARK = "<!-- What follows is written by docs/reference.py. -->"
TABLED = {name for name, facts in POINTWISE.items() if not facts.reduces and name != "dropout"}  # formulas that are a row of a table
TITLES = {
    "dense": "Dot products and matmuls",
    "convolution": "Convolutions",
    "pointwise": "Pointwise operations",
    "normalisation": "Normalisations and reductions",
    "movement": "Data movement",
    "inference": "Attention and the key-value cache",
    "transformer": "Transformer layers",
    "moe": "Mixtures of experts",
    "training": "Training",
    "collective": "Collectives",
}
KINDS = {"gpu": "GPUs", "tpu": "TPUs", "accelerator": "Other accelerators", "soc": "Systems on a chip", "cpu": "CPUs"}
API = {  # the public functions by task; the types of `rl` follow
    "Analyze": ("analyze", "read", "capture", "jax.analyze", "torch.analyze", "torch.handler"),
    "Use a report": ("save", "plot", "text", "to_json", "rows", "show"),
    "Compare, check, predict": ("compare", "check", "baseline", "validate", "what_if"),
    "Plan": ("plan", "plan_serving"),
    "Block sizes of kernels": ("blocks",),
    "Price operations by hand": ("place", "price", "explain", "fit", "cross", "chain", "fuse", "best_fusion"),
    "Machines": ("chip", "catalogue"),
    "Your own kernels and operators": ("register_call", "forget_call", "register_op", "forget_op"),
    "Units and formats": ("units.parse", "units.show", "units.percent", "dtype"),
}
UNITS = {"s": "time", "FLOP": "FLOP", "B": "bytes", "1": "ratio or %", "": "number", "hardware": "unit of the chip"}  # others as they are


def by_hand(page: str) -> str:
    """What a page has above the mark, which was written by hand."""
    return (DOCS / page).read_text().partition(MARK)[0] + MARK + "\n\n"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def findings() -> str:
    """Every kind of finding, as `roofline explain` has it."""
    parts = [f"## {chapter}\n\n" + "\n\n".join(f"### {kind}\n\n{explanation(kind)}" for kind in kinds) for chapter, kinds in chapters()]
    return by_hand("findings.md") + "\n\n".join(parts) + "\n"


def formulas() -> str:
    """Every formula: its mathematics from the docstring, and what its example costs."""
    parts = []
    for group in GROUPS:
        entries = [entry for entry in all_formulas() if entry.group == group]
        parts += [f"## {TITLES[group]}", *(formula(entry) for entry in entries if entry.name not in TABLED)]
        rows = [entry for entry in entries if entry.name in TABLED]
        if rows:
            parts += ["### Named elementwise operations", pointwise(rows)]
    return by_hand("formulas.md") + "\n\n".join(parts) + "\n"


def formula(entry: Formula) -> str:
    known = f" (also {code(entry.aliases)})" if entry.aliases else ""
    options = f"\n\nOptions: {code(option.name for option in entry.options)}." if entry.options else ""
    call = f"f.{entry.name}({', '.join(map(str, entry.example))})"
    amounts = [f">>> for resource, amount in {call}.cost.amounts:", "...     print(resource, amount)"]
    amounts += [f"{resource} {amount}" for resource, amount in entry(*entry.example).cost.amounts]
    snippet = "\n".join(["```python", *amounts, "", "```"])
    return f"### `{entry.name}`\n\n`{entry.usage}`{known}. {entry.documentation}{options}\n\n{snippet}"


def pointwise(entries: Iterable[Formula]) -> str:
    facts = [(entry.name, POINTWISE[entry.name]) for entry in entries]
    return table(
        ("operation", "FLOP", "transcendentals", "reads", "because"),
        ((f"`{name}`", str(known.flops), str(known.transcendentals), str(1 + known.inputs), known.why) for name, known in facts),
    )


def chips() -> str:
    """Every chip of the catalogue with its main figures."""
    parts = []
    for kind, title in KINDS.items():
        machines = [machine for machine in rl.catalogue() if machine.kind == kind]
        parts += [f"## {title}", table(("name", "chip", "bf16", "fp8", "fp32 vector", "main memory", "capacity"), map(chip, machines))]
    return by_hand("chips.md") + "\n\n".join(parts) + "\n"


def chip(machine: rl.Machine) -> tuple[str, ...]:
    def rate(resource: str) -> str:
        found = [ceiling for ceiling in machine.ceilings if str(ceiling.resource) == resource]
        return rl.units.show(found[0].rate, found[0].resource.per, 3) if found else "–"

    capacity = machine.capacity("hbm")
    figures = (rate(resource) for resource in ("matrix/bf16", "matrix/fp8", "vector/fp32", "hbm"))
    return (f"`{machine.name}`", machine.title, *figures, rl.units.show(capacity, "B", 3) if capacity else "–")


def quantities() -> str:
    """Terms, the quantities of ops and of reports, and the causes of lost time."""
    of_ops = ((code((one.name, *one.aliases)), code((one.key,)), UNITS.get(one.unit, one.unit), one.meaning) for one in OF_OPS)
    of_reports = (
        (code((one.name, *one.aliases)), UNITS.get(one.unit, one.unit), *map(yes, (one.measured, not one.whole, one.of_step)), one.meaning)
        for one in OF_REPORTS
    )
    views = [quantity.name for quantity in OF_OPS if quantity.name not in COLUMNS]
    parts = [
        "## Terms",
        "\n\n".join(f"**{word}**: {meaning}." for word, meaning in TERMS),
        "## Causes of lost time",
        "The parts of a time, in the order of the bar; `lost` in JSON has the second column.",
        table(
            ("mark", "cause", "words", "meaning"),
            ((f"`{cause.mark}`", f"`{name}`", cause.words, cause.meaning) for name, cause in PARTS.items()),
        ),
        "Idle time has a reason, whose mark stands above it in a timeline: "
        + ", ".join(f"`{reason.mark}` {reason.words} (`{name}`)" for name, reason in REASONS.items())
        + ".",
        "## Quantities of an op",
        "Columns of the terminal (`--columns`) and of the page, and fields of filters: numbers are compared with `<`, `<=`, `>`, `>=`, `=` "
        "and `!=`, text with `:` (contains) or `=` (is). The key is that of JSON, CSV and the page.",
        table(("quantity, also", "key", "in", "meaning"), of_ops),
        f"Only the page has {code(views)}. `--columns` also takes {code(name for name in COLUMNS if name not in OP)}, and of a resource "
        "such as `hbm` its amount, `hbm/s`, `flop/hbm` and `counted:hbm`.",
        "## Quantities of conditions",
        table(("quantity, also", "in", "needs a run", "of some ops", "share of the step", "meaning"), of_reports),
    ]
    return by_hand("quantities.md") + "\n\n".join(parts) + "\n"


def yes(is_so: bool) -> str:
    return "yes" if is_so else ""


def report_json() -> str:
    """Every object of a report with its keys."""
    schema = json.loads((Path(rl.__file__).parent / "report.schema.json").read_text())
    names = [Report.__name__, *(name for name in schema["$defs"] if name != Report.__name__)]
    return by_hand("report-json.md") + "\n\n".join(component(name, schema["$defs"][name]) for name in names) + "\n"


def component(name: str, described: dict) -> str:
    rows = [(f"`{key}`", kind(value), yes(key in described.get("required", ()))) for key, value in described.get("properties", {}).items()]
    text = prose(" ".join(described.get("description", "").split()))
    return f"## {name}\n\n{text}\n\n" + table(("key", "value", "always there"), rows)


def kind(value: dict) -> str:
    """The type of a value, in words."""
    return " or ".join(dict.fromkeys(alternatives(value))) or "anything"


def alternatives(value: dict) -> Iterator[str]:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        yield f"[{name}](#{name.lower()})"
    elif "anyOf" in value:
        for part in value["anyOf"]:
            yield from alternatives(part)
    elif "const" in value:
        yield f"`{value['const']}`"
    elif value.get("type") == "array":
        items = value.get("items") or {}
        yield f"list of {kind(items)}" if items else "list"
    elif value.get("type") == "object" and value.get("additionalProperties"):
        yield f"{kind(value['additionalProperties'])} by name"
    elif isinstance(value.get("type"), list):
        yield from value["type"]
    elif "type" in value:
        yield value["type"]


def api() -> str:
    """Every public name with its docstring."""
    parts = []
    for task, functions in API.items():
        parts += [f"## {task}", *map(function, functions)]
    known = {name.partition(".")[0] for functions in API.values() for name in functions}
    types = sorted(name for name in rl.__all__ if inspect.isclass(getattr(rl, name)))
    missing = set(rl.__all__) - known - set(types) - {"formulas"}
    if missing:
        raise AssertionError(f"no task in docs/reference.py for rl.{', rl.'.join(sorted(missing))}")
    parts += ["## Types", "\n".join(f"- `rl.{name}`: {prose(inspect.getdoc(getattr(rl, name)) or '', first=True)}" for name in types)]
    return by_hand("api.md") + "\n\n".join(parts) + "\n"


def function(name: str) -> str:
    module, _, last = name.rpartition(".")
    found = getattr(getattr(rl, module) if module else rl, last)
    taken, keyword_only = [], False
    for argument in inspect.signature(found).parameters.values():
        if argument.kind is argument.KEYWORD_ONLY and not keyword_only:
            taken, keyword_only = [*taken, "*"], True
        plain = argument.default is None or isinstance(argument.default, (bool, int, float, str))
        default = "" if argument.default is argument.empty else f"={argument.default!r}" if plain else "=…"
        taken.append(f"{'**' if argument.kind is argument.VAR_KEYWORD else ''}{argument.name}{default}")
    within = "roofline" if module in ("jax", "torch") else "rl"
    return f"### `{within}.{name}({', '.join(taken)})`\n\n{prose(inspect.getdoc(found) or '')}"


def prose(documentation: str, *, first: bool = False) -> str:
    """A docstring in Markdown without its examples, or its ``first`` paragraph."""
    text = re.sub(r"`{2}(.+?)`{2}", r"`\1`", documentation)
    parts = [part for part in text.split("\n\n") if not part.startswith(">>>")]
    return " ".join(parts[0].split()) if first else "\n\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "findings.md": findings,
    "formulas.md": formulas,
    "chips.md": chips,
    "quantities.md": quantities,
    "report-json.md": report_json,
    "api.md": api,
}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (DOCS / name).write_text(write())
