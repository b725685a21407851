"""Kernels of programs that repeat a layer many times: one layer is priced and reviewed for all, and nothing is told differently."""

from collections.abc import Iterator

import pytest

from evidence import reviewed_program
from roofline.hlo.fusion.compiler_model import fuse
from roofline.hlo.ir.layers import KEPT
from roofline.hlo.ir.module import HloModule
from roofline.hlo.price import equal_layers
from roofline.hlo.read import parse
from roofline.rules.words import observed
from roofline.workload import Op

X = "f32[8,64,128]"
LAYERS = 3 * KEPT
SPECIAL = LAYERS // 2


def program(
    *, body: str = "tanh", twice: bool = False, said: str = "", name: str = "layer", fused: bool = True, layers: int = LAYERS
) -> HloModule:
    """Products and a fusion in each layer, whose body is its own; the layer in the middle has ``body``, ``said`` or ``name``.

    ``twice`` computes a product twice. Without ``fused`` no compiler has seen the program.
    """
    return parse("\n".join(_lines(body, twice, said, name, fused, layers)).encode())


def _lines(body: str, twice: bool, said: str, name: str, fused: bool, layers: int) -> Iterator[str]:
    yield f"HloModule layers{', is_scheduled=true' if fused else ''}\n"
    for n in range(layers) if fused else ():
        yield f"%body.{n} (p.{n}: {X}) -> {X} {{\n  %p.{n} = {X} parameter(0)"
        yield f"  ROOT %active.{n} = {X} {body if n == SPECIAL else 'tanh'}(%p.{n})\n}}\n"
    yield f"ENTRY %main (px: {X}, pw: f32[128,128]) -> {X} {{\n  %px = {X} parameter(0)\n  %pw = f32[128,128] parameter(1)"
    x = "px"
    for n in range(layers):
        scope = f"jit(step)/{name if n == SPECIAL else 'layer'}{n}"
        dims = f"lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}{said if n == SPECIAL else ''}"
        other = f'dot(%{x}, %pw), {dims}, metadata={{op_name="{scope}/other/dot_general"}}' if twice else f"copy(%{x})"
        yield f'  %mixed.{n} = {X} dot(%{x}, %pw), {dims}, metadata={{op_name="{scope}/dot_general"}}'
        yield f"  %again.{n} = {X} {other}"
        yield f"  %both.{n} = {X} add(%mixed.{n}, %again.{n})"
        for part in range(5):
            yield f"  %part.{part}.{n} = {X} exponential(%{'both' if not part else f'part.{part - 1}'}.{n})"
        yield f"  %fusion.{n} = {X} " + (f"fusion(%part.4.{n}), kind=kLoop, calls=%body.{n}" if fused else f"tanh(%part.4.{n})")
        yield f"  %x.{n} = {X} add(%{x}, %fusion.{n})"
        x = f"x.{n}"
    yield f"  ROOT %result = {X} negate(%{x})\n}}\n"


def reviewed(module: HloModule) -> tuple[Op, ...]:
    return tuple(reviewed_program(module, "gpu").ops)


def compared(module: HloModule, monkeypatch: pytest.MonkeyPatch) -> tuple[Op, ...]:
    """The ops of a program whose layers are looked for, which are those of one whose layers are not."""
    each = reviewed(module)
    monkeypatch.setattr(equal_layers, "MANY", 0)
    assert reviewed(module) == each
    return each


@pytest.mark.parametrize("twice", [False, True])
def test_one_layer_stands_for_the_others(twice: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = program(twice=twice)
    ops = {op.name: op for op in compared(module, monkeypatch)}
    assert str(ops["mixed.70"].label) == "layer70  dot 512×128×128 fp32"
    whys = [observed(one) for one in ops["again.70"].avoidable if one.kind == "duplicated-work"]
    assert whys == (["computes the same values as mixed.70"] if twice else [])
    layers = equal_layers.equal_layers(module)
    assert layers is not None
    assert (layers.period, layers.count) == (10, LAYERS - 1)  # without the first, which reads the parameter


def test_what_a_compiler_computes_again_to_save_memory_is_recomputation() -> None:
    # XLA's rematerialisation clones a fusion with its body, which may be of the backward pass: it is not the author's second computation
    backward = 'metadata={op_name="jit(step)/transpose(jvp(mlp))/dot_general"}'
    text = f"""HloModule m, is_scheduled=true
body {{
  a = f32[512,512] parameter(0)
  b = f32[512,512] parameter(1)
  ROOT dot = f32[512,512] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {backward}
}}
ENTRY main {{
  x = f32[512,512] parameter(0)
  y = f32[512,512] parameter(1)
  fusion.1 = f32[512,512] fusion(x, y), kind=kOutput, calls=body, {backward}
  used = f32[512,512] sine(fusion.1)
  again = f32[512,512] fusion(x, y), kind=kOutput, calls=body, {backward}
  ROOT both = f32[512,512] add(used, again)
}}"""
    for name, kind in (("again", "duplicated-work"), ("fusion.1.remat", "recomputation")):
        ops = {op.name: op for op in reviewed(parse(text.replace("again", name)))}
        assert {reason.kind for reason in ops[name].avoidable} == {kind, "wide-format"}


def test_kernels_that_the_model_fused_are_found_in_layers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fuse(program(twice=True, fused=False, layers=9 * KEPT), "gpu")  # a layer has two kernels
    compared(module, monkeypatch)
    assert "fusion" in module.opcodes
    assert equal_layers.equal_layers(module) is not None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"body": "sine"}, "the body of a fusion does something else"),
        ({"said": ", operand_precision={highest,highest}"}, "a product says something else"),
        ({"name": "rematted_computation/layer"}, "the framework computes a layer again"),
    ],
)
def test_a_layer_that_differs_ends_the_equal_ones(changed: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = program(**changed)
    compared(module, monkeypatch)
    assert equal_layers.equal_layers(module) is None, why  # those on either side of it are too few


def test_few_instructions_are_looked_at_one_by_one() -> None:
    assert equal_layers.equal_layers(program()) is None
