"""Whole programs: the figures that are known exactly, one op for each instruction that runs, names, scopes and places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from priced import amounts, capture, corpus, frozen, price
from roofline.cost import NOTHING
from roofline.errors import RooflineError, SourceError
from roofline.hlo.ir.module import HloModule
from roofline.hlo.ir.platforms import detect_platform
from roofline.hlo.ir.scopes import direction, scope
from roofline.hlo.price.program import executed, program
from roofline.hlo.price.types import Site
from roofline.hlo.read import parse


def test_the_training_step_does_13_94_tflop_on_the_matrix_unit() -> None:
    # Three times the forward pass of a 4-layer GPT; all of it in bf16, though most of it is library calls.
    workload = program(capture("train"))
    assert workload.cost["matrix/bf16"] == 13_941_463_842_816
    assert len(workload) == 231  # the number of commands in the CUDA graph that ran it


def test_the_scanned_forward_pass_counts_its_eight_layers() -> None:
    workload = program(capture("scan"))
    assert workload.cost["matrix/bf16"] == 3_573_412_790_272
    assert {op.count for op in workload if op.category == "matmul"} == {8}


def test_causal_attention_is_half_the_square() -> None:
    assert program(capture("custom")).cost["matrix/bf16"] == 274_877_906_944


@every("form", ["before", "after"])
def test_a_scanned_llama_is_counted_layer_by_layer(form: str) -> None:
    layers, width, hidden, vocabulary, length = 32, 4096, 11008, 32000, 2048
    weights = layers * (4 * width * width + 3 * width * hidden) + width * vocabulary
    attention = layers * 4 * length * length * width
    products = sum(amount for resource, amount in program(frozen("llama_2_7b", form)).cost.amounts if resource.unit == "matrix")
    assert products == 2 * weights * length + attention == 29_261_612_187_648


def test_the_ops_of_a_program_sum_to_the_prices_of_its_entry() -> None:
    # A loop's price is the sum over its steps, and so are its ops together.
    for one in corpus():
        sites = [Site(one.module, one.module.entry_computation, instruction, "cpu") for instruction in one.module.entry_computation]
        entry = sum((price(site).cost for site in sites), NOTHING)
        assert program(one.module, "cpu").cost == entry, (one.name, one.form)


def test_ops_carry_scope_source_line_and_category() -> None:
    ops = {op.name: op for op in program(capture("scan"))}
    attention = ops["custom-call.3"]
    assert (attention.scope, attention.category, attention.module) == ("attn", "matmul", "jit_step")
    assert attention.location.endswith("jax_programs.py:24")
    assert (attention.work_provenance, attention.bytes_provenance) == ("compiler", "compiler")


def test_a_fusion_around_a_sort_is_a_sort() -> None:
    text = """HloModule m, is_scheduled=true

%less (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %lt = pred[] compare(%a, %b), direction=LT
}

%sorted (p: f32[8,4096]) -> f32[8,4096] {
  %p = f32[8,4096]{1,0} parameter(0)
  ROOT %sort = f32[8,4096]{1,0} sort(%p), dimensions={1}, to_apply=%less
}

ENTRY %main (x: f32[8,4096]) -> f32[8,4096] {
  %x = f32[8,4096]{1,0} parameter(0)
  ROOT %fusion = f32[8,4096]{1,0} fusion(%x), kind=kCustom, calls=%sorted
}
"""
    assert [op.category for op in program(parse(text), "gpu")] == ["sort"]


def test_an_asynchronous_operation_is_one_op_where_it_starts() -> None:
    names = {op.name for op in program(capture("scan"))}
    assert "fusion-start.4" in names
    assert "fusion-done.4" not in names


def test_forward_and_gradient_are_told_apart() -> None:
    found: dict[str, float] = {"forward": 0, "backward": 0, "": 0}
    for one in executed(capture("train")):
        found[one.op.phase] += float(one.op.cost["matrix/bf16"] or 0)
    # The gradient of a product is two products.
    assert found["backward"] == 2 * found["forward"]
    assert found[""] == 0


@every(
    ("name", "where", "pass_"),
    [
        ("jit(train_step)/jvp(layer0)/attn/dot_general", "layer0/attn", "forward"),
        ("jit(train_step)/transpose(jvp(layer0))/mlp/mul", "layer0/mlp", "backward"),
        ("jit(step)/while/body/closed_call/attn/bhqd,bhkd->bhqk/dot_general", "attn", ""),
        ("jit(f)/vmap(transpose(jvp(block/inner)))/rematted_computation/add", "block/inner", "backward"),
        ("jit(f)/jit(main)/Model/layers_3/Dense_0/dot_general", "Model/layers_3/Dense_0", ""),
        ("jit(f)/cond/branch_1_fun/decode/sin", "decode", ""),
        ("jit(train_step)/jvp()/slice", "", "forward"),
        ("params['w']", "", ""),
        ("(//)/x", "(/)", ""),
        ("", "", ""),
    ],
)
def test_scopes_are_what_the_author_named(name: str, where: str, pass_: str) -> None:
    assert (scope(name), direction(name)) == (where, pass_)


@given(st.text(alphabet="ab()/_>-", max_size=40))
def test_any_name_has_a_scope(name: str) -> None:
    assert "//" not in scope(name)


def test_platforms_are_read_from_the_program() -> None:
    assert {detect_platform(capture(name)) for name in ("train", "scan", "custom")} == {"gpu"}
    assert {detect_platform(one.module) for one in corpus() if one.form == "after"} == {"cpu"}
    tiled = "HloModule t, is_scheduled=true\n\nENTRY %e {\n  ROOT %p = f32[8,128]{1,0:T(8,128)} parameter(0)\n}\n"
    assert detect_platform(parse(tiled)) == "tpu"


def test_a_computation_called_twice_is_one_op_with_two_runs() -> None:
    text = """HloModule calls

%f {
  %x = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} add(%x, %x)
}

ENTRY %main {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} call(%a), to_apply=%f
  ROOT %c = f32[8]{0} call(%b), to_apply=%f
}
"""
    (op,) = program(parse(text))
    assert (op.name, op.count, op.kernels, amounts(op.cost)) == ("y", 2, 2, {"vector/fp32": 16, "hbm": 2 * 64})


def chain(depth: int, closing: str) -> HloModule:
    """Computations that call each other, the last of which calls ``closing`` or nothing."""
    blocks = []
    for number in range(depth):
        called = f"c{number + 1}" if number + 1 < depth else closing
        made = f"call(%x{number}), to_apply=%{called}" if called else f"negate(%x{number})"
        blocks.append(f"%c{number} {{\n  %x{number} = f32[8]{{0}} parameter(0)\n  ROOT %y{number} = f32[8]{{0}} {made}\n}}\n")
    entry = "ENTRY %main {\n  %a = f32[8]{0} parameter(0)\n  ROOT %b = f32[8]{0} call(%a), to_apply=%c0\n}\n"
    return parse("HloModule bomb\n\n" + "\n".join(blocks) + "\n" + entry)


def test_calls_in_a_circle_or_too_deep_are_refused() -> None:
    with pytest.raises(SourceError, match="calls itself"):
        program(chain(3, "c0"))
    with pytest.raises(SourceError, match="nested deeper than 40"):
        program(chain(100, ""))
    assert len(program(chain(30, ""))) == 1


def test_calls_that_double_at_every_level_are_counted_once_each() -> None:
    blocks = []
    for number in range(35):
        called = f"to_apply=%c{number + 1}" if number < 34 else ""
        inner = f"call(%x), {called}" if called else "negate(%x)"
        again = f"call(%y), {called}" if called else "negate(%y)"
        blocks.append(f"%c{number} {{\n  %x = f32[8]{{0}} parameter(0)\n  %y = f32[8]{{0}} {inner}\n  ROOT %z = f32[8]{{0}} {again}\n}}\n")
    entry = "ENTRY %main {\n  %a = f32[8]{0} parameter(0)\n  ROOT %b = f32[8]{0} call(%a), to_apply=%c0\n}\n"
    workload = program(parse("HloModule bomb\n\n" + "\n".join(blocks) + "\n" + entry))
    assert [op.count for op in workload] == [2**34, 2**34]


def test_values_that_need_themselves_are_refused() -> None:
    text = "HloModule m\n\nENTRY %e {\n  %a = f32[8]{0} negate(%b)\n  %b = f32[8]{0} negate(%a)\n  ROOT %c = f32[8]{0} negate(%b)\n}\n"
    with pytest.raises(SourceError):
        program(parse(text))


@given(st.data())
def test_a_damaged_program_is_priced_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text) - 1))
        text = (
            text[:start]
            + data.draw(st.sampled_from(["", "0", "9", "-1", "{", "%", "99999999999"]))
            + text[start + data.draw(st.integers(0, 3)) :]
        )
    try:
        cost = program(parse(text)).cost
    except RooflineError:
        return
    assert all(amount >= 0 for _, amount in cost.amounts)


TEXTS = (
    """HloModule m

%add {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %e {
  %x = f32[2,8,8,3]{3,2,1,0} parameter(0)
  %k = f32[3,3,3,4]{3,2,1,0} parameter(1)
  %z = f32[] constant(0)
  %y = f32[2,8,8,4]{3,2,1,0} convolution(%x, %k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  %w = f32[2,4,4,4]{3,2,1,0} reduce-window(%y, %z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=%add
  %s = f32[2,4,4,2]{3,2,1,0} slice(%w), slice={[0:2], [0:4], [0:4], [1:3]}
  %p = f32[2,6,4,2]{3,2,1,0} pad(%s, %z), padding=0_0x1_1x0_0x0_0
  %t = f32[4,2,6,2]{3,2,1,0} transpose(%p), dimensions={2,0,1,3}
  %r = f32[8,12]{1,0} reshape(%t)
  %d = f32[8,8]{1,0} dot(%r, %r), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT %f = f32[8]{0} reduce(%d, %z), dimensions={1}, to_apply=%add
}
""",
)
