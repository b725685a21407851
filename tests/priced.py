"""Programs for the tests of prices: written by hand, or frozen in ``data``."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from roofline.cost import Cost
from roofline.hlo.ir.module import HloModule
from roofline.hlo.ir.platforms import Platform
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.price.types import Price, Site
from roofline.hlo.read import parse

DATA = Path(__file__).parent / "data"


class Frozen(NamedTuple):
    """A program of the corpus, and what XLA says of each instruction alone: FLOP, transcendentals and bytes."""

    name: str
    form: str
    module: HloModule
    xla: dict[str, tuple[float, float, float]]


@cache
def corpus() -> tuple[Frozen, ...]:
    """Every program of the frozen corpus, before and after XLA's optimisations for CPUs."""
    kept = json.loads(gzip.decompress((DATA / "price" / "corpus.json.gz").read_bytes()))
    return tuple(
        Frozen(name, form, parse(one["text"], name), {key: tuple(figures) for key, figures in one["xla"].items()})
        for name, forms in sorted(kept.items())
        for form, one in sorted(forms.items())
    )


def frozen(name: str, form: str = "after") -> HloModule:
    """One program of the corpus."""
    return next(one.module for one in corpus() if (one.name, one.form) == (name, form))


@cache
def capture(name: str) -> HloModule:
    """A program that ran on an H200."""
    return parse(gzip.decompress((DATA / "h200" / f"jax_{name}.hlo.txt.gz").read_bytes()).decode(), name)


def site(instruction: str, *operands: str, computations: str = "", platform: Platform = "gpu", header: str = "") -> Site:
    """An instruction after its ``=``, with its operands %0, %1, … as parameters of these shapes."""
    lines = [f"  %{number} = {shape} parameter({number})" for number, shape in enumerate(operands)]
    text = f"HloModule hand{header}\n\n{computations}\n\nENTRY %main {{\n" + "\n".join(lines) + f"\n  ROOT %r = {instruction}\n}}\n"
    module = parse(text, "hand")
    return Site(module, module.entry_computation, module.entry_computation.root_instruction, platform)


def price(site: Site, link: str | Network | None = None) -> Price:
    """The cost of one execution of an instruction, loops and called computations included."""
    return Pricer(site.module, site.platform, Network.of(link, site.platform)).price(site)


def priced(instruction: str, *operands: str, computations: str = "", platform: Platform = "gpu", header: str = "") -> Price:
    """The price of such an instruction."""
    return price(site(instruction, *operands, computations=computations, platform=platform, header=header))


def amounts(cost: Cost) -> dict[str, object]:
    """A cost as plain numbers; unknown is ``None``."""
    return {str(resource): cost[resource] for resource in cost}


def fused(body: str, result: str, *operands: str, kind: str = "kLoop", platform: Platform = "gpu") -> Price:
    """The price of a fusion with this body, whose parameters are %p0, %p1, …"""
    lines = [f"  %p{number} = {shape} parameter({number})" for number, shape in enumerate(operands)]
    computation = "%body {\n" + "\n".join(lines) + "\n" + body + "\n}"
    listed = ", ".join(f"%{number}" for number in range(len(operands)))
    return priced(f"{result} fusion({listed}), kind={kind}, calls=%body", *operands, computations=computation, platform=platform)


ADD = """%add {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}"""
MAX = ADD.replace("%add", "%max").replace("add(", "maximum(")
