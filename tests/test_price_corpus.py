"""The corpus of JAX functions compiled for CPUs: every instruction against XLA's own cost analysis.

Dots and convolutions agree exactly. Elsewhere the figures agree, or a convention that has a name in docs/hlo.md makes the difference:
then XLA's own figure is worked out here from that convention, so that nothing is left unexplained.
"""

import re
from math import ceil, floor, log2, prod
from pathlib import Path

import numpy as np
import pytest

from every import every
from priced import Frozen, corpus
from roofline.cost import Cost
from roofline.hlo.ir.module import HloModule
from roofline.hlo.ir.opcodes import ARITHMETIC, BITS, COMPARISONS, CONVERSIONS, ELEMENTWISE, OPCODES, SIGNS, TRANSCENDENTALS
from roofline.hlo.price.collectives import COLLECTIVES, Network
from roofline.hlo.price.demand import result_dims
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.price.types import Site
from roofline.resource import TRANSCENDENTAL

Counts = tuple[float, float, frozenset[str]]  # FLOP, transcendentals, and the conventions behind a difference
NONE: frozenset[str] = frozenset()
# Why our count of an opcode differs from XLA's, which is 1 per element: the name of the convention in docs/hlo.md.
CONVENTIONS: dict[str, str] = {
    **dict.fromkeys(COMPARISONS, "comparisons"),
    **dict.fromkeys(SIGNS, "signs"),
    **dict.fromkeys(CONVERSIONS, "conversions"),
    "logistic": "logistic",
}
PREDICATES = "predicates"  # logic between booleans, by opcodes that are arithmetic on integers
COMPLEX = "complex"  # a complex operation is several real ones
PAGE = (Path(__file__).parent.parent / "docs" / "hlo.md").read_text()
DOCUMENTED = frozenset(re.findall(r"^\| \*\*([a-z ]+)\*\* \|", PAGE, re.MULTILINE))


def pricer(module: HloModule) -> Pricer:
    return Pricer(module, "cpu", Network("dcn"))


def single(value: object) -> float:
    """A figure as XLA keeps it: in 32 bits."""
    return float(np.float32(float(value)))  # type: ignore[arg-type]


def xla_counts(site: Site, own: Cost) -> Counts:
    """What XLA counts for an instruction of which this project counts ``own``, and the conventions that make the difference."""
    instruction, opcode = site.instruction, site.instruction.opcode
    flops, roots = float(own.flops or 0), float(own.known(TRANSCENDENTAL))
    operands = [operand.shape.dims for operand in site.operands]
    result = result_dims(instruction.shape)
    if opcode in ELEMENTWISE:
        return _elementwise(site)
    if opcode in ("dot", "scaled-dot"):
        is_complex = site.operands[0].shape.dtype in ("c64", "c128")
        return (flops / 4, 0, frozenset((COMPLEX,))) if is_complex else (flops, 0, NONE)
    if opcode == "ragged-dot":
        # XLA drops the rows of the result with the groups.
        return flops / result[0], 0, frozenset(("ragged matmuls",))
    if opcode == "reduce":
        return _applied(site, prod(operands[0]) - prod(result))
    if opcode == "map":
        return _applied(site, prod(result))
    if opcode == "scatter":
        return _applied(site, prod(operands[-1]))
    if opcode == "reduce-window":
        return _windows(site, prod(side.size for side in instruction.window), operands[0], result)
    if opcode == "select-and-scatter":
        taps = prod(side.size for side in instruction.window)
        chosen, added = (
            _applied(site, times, role) for role, times in (("select", prod(operands[1]) * (taps - 1)), ("scatter", prod(operands[1])))
        )
        return chosen[0] + added[0], chosen[1] + added[1], chosen[2] | added[2] | {"windows"}
    if opcode == "sort":
        elements = prod(operands[0])
        return elements * (ceil(log2(elements)) if elements > 1 else 0), 0, frozenset(("comparisons",))
    if opcode == "fft":
        lengths = instruction.integers("fft_length")
        return 8 * prod(floor(log2(length)) for length in lengths) * prod(operands[0]), 0, frozenset(("transforms",))
    if opcode == "cholesky":
        return prod(operands[0]) * operands[0][-1] // 3, 0, frozenset(("factorisations",))
    if opcode == "triangular-solve":
        return 2 * prod(operands[1]) * operands[0][-1], 0, frozenset(("factorisations",))
    if opcode in ("rng", "rng-bit-generator"):
        return 0, sum(leaf.elements for leaf in instruction.shape.leaves), frozenset(("random numbers",))
    if opcode.startswith("batch-norm"):
        return 0, 0, frozenset(("normalisations",))
    if opcode == "all-reduce":
        return prod(result), 0, frozenset(("collectives",))
    return flops, roots, NONE


def _elementwise(site: Site) -> Counts:
    """One FLOP, or one transcendental, an element of whatever kind."""
    opcode, shape = site.instruction.opcode, site.instruction.shape
    why = CONVENTIONS.get(opcode)
    if shape.dtype == "pred" and opcode in ARITHMETIC | BITS:
        why = PREDICATES
    if any(one.shape.dtype in ("c64", "c128") for one in (site.instruction, *site.operands)) and opcode not in ("real", "imag", "complex"):
        why = COMPLEX
    elements = float(shape.elements)
    both = (0.0, elements) if opcode in TRANSCENDENTALS else (elements, 0.0)
    return *both, frozenset((why,) if why else ())


def _applied(site: Site, times: int, role: str = "to_apply") -> Counts:
    """So many applications of a computation on single elements."""
    called = site.module.computations[site.instruction.called(role)[0]]
    flops, roots, why = 0.0, 0.0, NONE
    for instruction in called:
        if instruction.opcode in ELEMENTWISE:
            one = _elementwise(Site(site.module, called, instruction, site.platform))
            flops, roots, why = flops + one[0], roots + one[1], why | one[2]
    return flops * times, roots * times, why


def _windows(site: Site, taps: int, source: tuple[int, ...], result: tuple[int, ...]) -> Counts:
    """XLA counts padding too, and a centred window that covers its dimension wherever it stands as a reduction."""
    times = (taps - 1) * prod(result)
    moving = [(axis, side) for axis, side in enumerate(site.instruction.window) if side.size != 1]
    padded = [side for side in site.instruction.window if side.low or side.high]
    if len(moving) == len(padded) == 1 and not site.instruction.shape.is_tuple:
        axis, side = moving[0]
        if side.low == side.high == result[axis] - 1 and side.size == 2 * side.low + 1:
            times = prod(result) // result[axis] + result[axis] - 1
    flops, roots, why = _applied(site, times)
    return flops, roots, why | {"windows"}


def each(one: Frozen) -> list[tuple[Site, Cost, tuple[float, float, float]]]:
    """The instructions of a program that are not fusions: where they stand, their cost, and XLA's figures."""
    prices, found = pricer(one.module), []
    for name, figures in one.xla.items():
        place = one.module.find(name)
        assert place is not None
        site = Site(one.module, *place, "cpu")
        found.append((site, prices.price(site).cost, figures))
    return found


def agree(one: Frozen) -> None:
    """Holds every instruction of a program to XLA's figures."""
    costs = {site.instruction.name: cost for site, cost, _ in each(one)}
    for site, own, (flops, roots, moved) in each(one):
        where = (one.name, one.form, site.instruction.name, site.instruction.opcode)
        if site.instruction.opcode == "custom-call":
            assert (flops, moved) == (-1, -1), where  # which is XLA's way to say that it does not know
        elif site.instruction.opcode == "fusion":
            _fusion_agrees(site, own, costs, one, where)
        else:
            said_flops, said_roots, why = xla_counts(site, own)
            assert (single(said_flops), single(said_roots)) == (flops, roots), where
            assert why or (single(own.flops), single(own.known(TRANSCENDENTAL))) == (flops, roots), where
            assert why <= DOCUMENTED, where
        _bytes_agree(site, own, moved, where)


def _fusion_agrees(site: Site, own: Cost, costs: dict[str, Cost], one: Frozen, where: object) -> None:
    """XLA adds up the body, and so does this project, unless a slice makes part of the body enough."""
    body = site.module.computations[site.instruction.calls[0].computation]
    inside = [instruction for instruction in body if instruction.name in one.xla]
    for figure in (0, 1):
        said = sum(one.xla[instruction.name][figure] for instruction in inside)
        assert one.xla[site.instruction.name][figure] == pytest.approx(said, rel=1e-6), where
    ours = sum((costs[instruction.name] for instruction in inside), Cost())
    for resource in own:
        if resource.is_compute:
            assert own.known(resource) <= ours.known(resource), where
            if SELECTIVE.isdisjoint(instruction.opcode for instruction in inside):
                assert own[resource] == ours[resource], where


SELECTIVE = {"slice", "dynamic-slice", "gather", "pad", "concatenate", "dynamic-update-slice"}


def _bytes_agree(site: Site, own: Cost, moved: float, where: object) -> None:
    """Within the compulsory rule: no more than operands and results, no less than the results, and never more than XLA says."""
    opcode, instruction = site.instruction.opcode, site.instruction
    bytes_ = single(own.bytes() or 0)
    if opcode in COLLECTIVES or opcode == "custom-call":
        return
    operands = sum(operand.shape.bytes for operand in site.operands)
    constants = 0
    if opcode == "fusion":
        body = site.module.computations[instruction.calls[0].computation]
        constants = sum(inside.shape.bytes for inside in body if inside.opcode == "constant" and inside.shape.elements > 1)
    assert bytes_ <= single(operands + instruction.shape.bytes + constants), where
    # XLA counts one of the indices where a slice starts, this project all of them.
    starts = 4 * sum(len(operand.shape.dims) == 0 for operand in site.operands) if opcode.startswith("dynamic-") else 0
    if opcode not in ("cholesky", "triangular-solve"):  # of a triangle XLA leaves the diagonal out, and half of a factor
        assert bytes_ <= moved + starts + constants, where
    if opcode not in ("reshape", "transpose", "opt-barrier", "scatter", "dynamic-update-slice", "fusion"):
        assert bytes_ >= single(instruction.shape.bytes), where


@every("one", corpus())
def test_every_instruction_agrees_with_xla_or_a_convention_says_why(one: Frozen) -> None:
    agree(one)


def test_dots_and_convolutions_are_equal_to_xlas_count() -> None:
    compared = 0
    for one in corpus():
        for site, own, (flops, _, _) in each(one):
            if site.instruction.opcode in ("dot", "convolution") and site.operands[0].shape.dtype not in ("c64", "c128"):
                assert single(own.flops) == flops, (one.name, site.instruction.name)
                compared += 1
    assert compared > 130


def test_nine_kernels_in_ten_move_what_xla_says() -> None:
    same, all_ = 0, 0
    for one in corpus():
        for site, own, (_, _, moved) in each(one):
            if site.instruction.opcode not in COLLECTIVES | {"custom-call", "reshape"}:
                all_ += 1
                same += single(own.bytes()) == moved
    assert same > 0.9 * all_


def test_the_corpus_is_large_and_covers_the_opcodes() -> None:
    names, compared = {one.name for one in corpus()}, sum(1 for one in corpus() for _ in each(one))
    assert f"The tests compare {round(compared, -2):,} instructions of {len(names)} programs" in PAGE
    seen = {instruction.opcode for one in corpus() for computation in one.module for instruction in computation}
    # What is missing is asynchronous, of many devices, deprecated, or not to be had from a CPU's compiler.
    assert len(seen & OPCODES) >= 100, sorted(OPCODES - seen)


def test_every_convention_is_met_in_the_corpus_or_by_hand() -> None:
    met = set()
    for one in corpus():
        for site, own, _ in each(one):
            met |= xla_counts(site, own)[2] if site.instruction.opcode not in ("fusion", "custom-call") else set()
    assert met == DOCUMENTED - {"demand", "loops", "branches", "reads"}


@pytest.mark.slow
@pytest.mark.jax
def test_the_corpus_compiled_anew_agrees_too() -> None:
    jax = pytest.importorskip("jax")
    from data.price.corpus import CASES, compiled
    from data.price.make import figures, stripped
    from roofline.hlo.read import parse

    for case in CASES:
        if case.devices <= jax.device_count():
            for form, text in zip(("before", "after"), map(stripped, compiled(case)), strict=True):
                kept = {name: tuple(said) for name, said in figures(text).items()}
                agree(Frozen(case.name, form, parse(text, case.name), kept))  # type: ignore[arg-type]
