"""Custom calls for tests: written by hand, or compiled for a GPU and kept in ``data/hlo_gpu``."""

import gzip
from functools import cache
from pathlib import Path

from roofline.hlo.ir.module import HloModule
from roofline.hlo.ir.platforms import Platform
from roofline.hlo.price.calls import price_call
from roofline.hlo.price.types import Price, Site
from roofline.hlo.read import parse

CAPTURES = Path(__file__).parent / "data" / "hlo_gpu"


def site(result: str, operands: str, target: str, config: str = "", attributes: str = "", platform: Platform = "gpu") -> Site:
    """A call to ``target`` that takes parameters of these shapes, separated by semicolons, and makes ``result``."""
    shapes = [shape.strip() for shape in operands.split(";") if shape.strip()]
    lines = [f"  p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes)]
    names = ", ".join(f"p{number}" for number in range(len(shapes)))
    rest = "".join(f", {part}" for part in (attributes, f"backend_config={config}" if config else "") if part)
    lines.append(f'  ROOT call = {result} custom-call({names}), custom_call_target="{target}"{rest}')
    return site_in("HloModule hand\n\nENTRY main {\n" + "\n".join(lines) + "\n}\n", platform)


def site_in(text: str, platform: Platform = "gpu", name: str = "call") -> Site:
    """The call named so in a program."""
    module = parse(text, "hand")
    found = module.find(name)
    assert found is not None
    return Site(module, *found, platform)


def price(*args: str, **options: str) -> Price:
    """What `site` costs."""
    return price_at(site(*args, **options))  # type: ignore[arg-type]


def price_at(place: Site) -> Price:
    """The price of a call that has one."""
    found = price_call(place)
    assert found is not None
    return found


@cache
def capture(name: str) -> HloModule:
    """A program that XLA compiled for an H200."""
    return parse(gzip.decompress((CAPTURES / f"{name}.txt.gz").read_bytes()).decode(), name)


def calls(name: str) -> dict[str, Price]:
    """Every custom call of a captured program, by the instruction's name, and its price."""
    module = capture(name)
    found = {}
    for computation in module:
        for instruction in computation:
            if instruction.opcode == "custom-call":
                priced = price_call(Site(module, computation, instruction))
                assert priced is not None, instruction.custom_call_target
                found[instruction.name] = priced
    return found
