"""Kernels of programs that repeat a layer: found in a few of its layers, and the same as if each were looked at."""

from collections.abc import Iterator

import pytest

from every import every
from roofline.hlo.fusion import compiler_model
from roofline.hlo.fusion.compiler_model import fuse
from roofline.hlo.fusion.grouping import grouped
from roofline.hlo.fusion.groups import Group
from roofline.hlo.fusion.groups_by_layer import equal_layers, groups_in_layers, groups_of
from roofline.hlo.fusion.rules import RULES
from roofline.hlo.ir.layers import KEPT, LayerRun, lengthened, shortened
from roofline.hlo.ir.module import Computation, HloModule
from roofline.hlo.ir.platforms import Platform
from roofline.hlo.read import parse

X, ROWS = "f32[8,64,128]", "f32[8,64]"
LAYERS = 3 * KEPT


def program(*, mixing: str = "pw", result: str = "negate({last})", inside: str = "") -> Computation:
    """A residual stream through a normalisation and a product in each layer; ``mixing`` is the matrix of the product."""
    return module(mixing, result, inside).entry_computation


def module(mixing: str = "pw", result: str = "negate({last})", inside: str = "") -> HloModule:
    return parse("\n".join(_lines(mixing, result, inside)).encode())


def _lines(mixing: str, result: str, inside: str) -> Iterator[str]:
    yield "HloModule layers\n\n%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)"
    yield f"  ROOT %sum = f32[] add(%a, %b)\n}}\n\nENTRY %main (px: {X}, pw: f32[128,128]) -> {X} {{"
    yield f"  %px = {X} parameter(0)\n  %pw = f32[128,128] parameter(1)\n  %zero = f32[] constant(0)\n  %turned = f32[128,128] tanh(%pw)"
    x = "px"
    for n in range(LAYERS):
        yield f"  %square.{n} = {X} multiply(%{x}, %{x})"
        yield f"  %total.{n} = {ROWS} reduce(%square.{n}, %zero), dimensions={{2}}, to_apply=%add"
        yield f"  %scale.{n} = {ROWS} rsqrt(%total.{n})"
        yield f"  %wide.{n} = {X} broadcast(%scale.{n}), dimensions={{0,1}}"
        yield f"  %normal.{n} = {X} multiply(%{x}, %wide.{n}){inside if n == LAYERS // 2 else ''}"
        yield f"  %mixed.{n} = {X} dot(%normal.{n}, %{mixing}), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}"
        yield f"  %gate.{n} = {X} logistic(%mixed.{n})"
        yield f"  %active.{n} = {X} multiply(%mixed.{n}, %gate.{n})"
        yield f"  %x.{n} = {X} add(%{x}, %active.{n})"
        x = f"x.{n}"
    yield f"  ROOT %result = {X} {result.format(last='%' + x)}\n}}\n"


def facts(found: tuple[Group, ...]) -> list[tuple[object, ...]]:
    return [tuple(getattr(group, field) for field in group.__struct_fields__ if field != "copied") for group in found]


def test_the_layers_of_a_program_are_found() -> None:
    layers = equal_layers(program())
    assert layers == LayerRun(start=13, period=9, count=LAYERS - 1)  # without the first, which reads the parameter


@every("platform", RULES)
def test_kernels_found_in_a_few_layers_are_those_of_all(platform: Platform) -> None:
    computation, rules = program(), RULES[platform]
    layers = equal_layers(computation)
    assert layers is not None
    found = groups_in_layers(computation, rules, layers)
    assert found is not None
    assert facts(found) == facts(grouped(computation, rules).groups)


@pytest.mark.parametrize("platform", RULES)
def test_fusions_copied_from_layer_to_layer_are_those_made_one_by_one(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = fuse(module(), platform)
    monkeypatch.setattr(compiler_model, "groups_of", lambda computation, rules: grouped(computation, rules).groups)
    assert copied == fuse(module(), platform)
    assert "fusion" in copied.opcodes


@every(
    ("changed", "why"),
    [
        ({"mixing": "turned"}, "whether a computed value is stored depends on how many layers use it"),
        ({"result": "add({last}, %x.40)"}, "the value of a layer far back is used at the end"),
        ({"inside": ", control-predecessors={%total.3}"}, "an order is asked for"),
    ],
)
def test_a_program_whose_layers_are_not_alone_is_looked_at_whole(changed: dict[str, str], why: str) -> None:
    computation, rules = program(**changed), RULES["gpu"]
    assert equal_layers(computation) is None, why
    assert facts(groups_of(computation, rules)) == facts(grouped(computation, rules).groups)


def test_a_shortened_program_keeps_what_follows_the_layers() -> None:
    computation = program()
    layers = equal_layers(computation)
    assert layers is not None
    short = shortened(computation, layers)
    assert len(short) == len(computation) - (LAYERS - 1 - KEPT) * 9
    assert short.root_instruction.operands == (short.root - 1,)
    assert all(operand < index for index, one in enumerate(short) for operand in one.operands)


def test_what_is_found_for_the_middle_layer_stands_for_those_left_out() -> None:
    layers = LayerRun(start=0, period=10, count=KEPT + 2)
    every = lengthened(range(0, 10 * KEPT, 10), layers, layers.layer, layers.moved)
    assert sorted(every) == list(range(0, 10 * (KEPT + 2), 10))
