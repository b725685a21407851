"""Kernels that do the same, as those of a program's layers, call one computation; what is reported of them stays their own."""

import gzip
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given

from every import every
from evidence import reviewed_program
from fusion_programs import module, programs
from program_texts import program_text
from roofline.hlo.fusion import compiler_model
from roofline.hlo.fusion.compiler_model import fuse
from roofline.hlo.ir.module import HloModule
from roofline.hlo.memory.peak import peak_memory
from roofline.hlo.read import parse
from roofline.peak_memory import PeakMemory
from roofline.workload import Op

DATA = Path(__file__).parent / "data"
SUM = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def layers(number: int) -> HloModule:
    """So many layers, each of a normalisation and a product, in scopes of their own."""
    lines = ["x0 = f32[64,32] parameter(0)", "w = f32[32,32] parameter(1)", "zero = f32[] constant(0)"]
    for layer in range(number):
        scope = f'metadata={{op_name="jit(f)/layer{layer}/mul"}}'
        lines += [
            f"square{layer} = f32[64,32] multiply(x{layer}, x{layer}), {scope}",
            f"sum{layer} = f32[64] reduce(square{layer}, zero), dimensions={{1}}, to_apply=add, {scope}",
            f"scale{layer} = f32[64] rsqrt(sum{layer}), {scope}",
            f"wide{layer} = f32[64,32] broadcast(scale{layer}), dimensions={{0}}, {scope}",
            f"y{layer} = f32[64,32] multiply(x{layer}, wide{layer}), {scope}",
            f"x{layer + 1} = f32[64,32] dot(y{layer}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {scope}",
        ]
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"HloModule m\n{SUM}ENTRY main {{\n{body}\n  ROOT r = f32[64,32] negate(x{number})\n}}\n")


def reported(program: HloModule) -> tuple[tuple[Op, ...], PeakMemory | None]:
    fused = fuse(program, "gpu")
    return reviewed_program(fused, "gpu").ops, peak_memory(fused, "gpu")


def each_its_own(patch: pytest.MonkeyPatch) -> None:
    """Makes no two instructions the same, so that every kernel has a computation of its own."""
    numbers = count()
    patch.setattr(compiler_model, "_form", lambda _: next(numbers))


def test_layers_share_the_bodies_of_their_kernels() -> None:
    assert len(fuse(layers(3), "gpu").computations) == len(fuse(layers(30), "gpu").computations)


def test_the_kernels_of_layers_keep_their_names_and_scopes() -> None:
    rows = [op for op in reported(layers(4))[0] if op.name.startswith("row_")]
    assert [op.scope for op in rows] == ["layer0", "layer1", "layer2", "layer3"]
    assert len({op.name for op in rows}) == 4


@every("change", ["lhs_contracting_dims={1}, rhs_contracting_dims={1}", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"])
def test_attributes_tell_kernels_apart(change: str) -> None:
    # Two products with a bias: of the same shapes, but the second may take the other side of its weights.
    text = program_text("equal_kernels/attributes_tell_kernels_apart.hlo", change=change)
    bodies = {one.calls for one in fuse(parse(text), "gpu").entry_computation if one.opcode == "fusion"}
    assert len(bodies) == (2 if change.endswith("{1}") else 1)


TRACED = [path for form in ("hlo/*.before.hlo.gz", "hlo/*.stablehlo.gz", "fusion/h200/*.stablehlo.gz") for path in sorted(DATA.glob(form))]
BOUNDED = [path for path in TRACED if "symbolic" not in path.name]  # programs without bounds have no report


@pytest.mark.parametrize("path", BOUNDED, ids=lambda path: path.name)
def test_shared_bodies_give_the_report_of_separate_ones(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = parse(gzip.decompress(path.read_bytes()), path.name)
    shared = reported(read)
    each_its_own(monkeypatch)
    assert reported(read) == shared


@given(programs())
def test_shared_bodies_give_the_report_of_separate_ones_for_any_program(body: str) -> None:
    shared = reported(module(body))
    with pytest.MonkeyPatch.context() as patch:
        each_its_own(patch)
        assert reported(module(body)) == shared
