"""What of a program's work could be avoided, where only compiled programs show it: library calls with activations, attention, updates."""

import pytest

from every import every
from evidence import reviewed_program
from hlo_programs import BIASED
from program_texts import program_text
from roofline.hlo.ir import equality
from roofline.hlo.read import parse
from roofline.operation import Streamed
from roofline.resource import HBM, matrix
from roofline.rules.words import observed
from roofline.workload import Avoidable

GEMM = (
    '{"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    '"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"epilogue":"EPILOGUE"}}'
)


def found(program: str) -> list[Avoidable]:
    return [one for op in reviewed_program(parse(program), "gpu") for one in op.avoidable]


@every(("epilogue", "told"), [("DEFAULT", True), ("RELU", False), ("BIAS_GELU", False)])
def test_products_with_an_activation_between_them_have_no_other_order(epilogue: str, told: bool) -> None:
    call = f'custom_call_target="__cublas$lt$matmul", backend_config={GEMM.replace("EPILOGUE", epilogue)}'
    program = program_text("unneeded_compiled/products_with_an_activation_between_them_have_no_other_order.hlo", call=call)
    assert bool([one for one in found(program) if one.kind == "product-order"]) == told


@every(("data", "told"), [(64, True), (120, False)])
def test_attention_with_heads_that_were_padded(data: int, told: bool) -> None:
    config = '{"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"dimensions":["8","16","4096","4096"]},"mask_type":"NO_MASK"}}'
    call = f'custom_call_target="__cudnn$fmhaSoftmax", backend_config={config}'
    filled = "\n".join(
        f"  %{name} = bf16[8,4096,16,128]{{3,2,1,0}} pad(%x, %zero), padding=0_0x0_0x0_0x0_{128 - data}" for name in ("q", "k", "v")
    )
    program = program_text("unneeded_compiled/attention_with_heads_that_were_padded.hlo", data=data, filled=filled, call=call)
    factors = [one.factor for one in found(program) if one.kind == "padding" and one.factor]
    assert factors == ([2] if told else [])


@every(("start", "rows", "factor"), [(0, 1000, 2), (0, 1500, 4 / 3), (0, 2000, None), (500, 1000, 4 / 3), (1000, 1000, None)])
def test_what_is_added_to_padded_rows_by_an_update_leaves_them_padded(start: int, rows: int, factor: float | None) -> None:
    # XLA adds padded rows to others as an update of those others. What is written behind the data fills the rows up.
    program = program_text("unneeded_compiled/what_is_added_to_padded_rows_by_an_update_leaves_them_padded.hlo", rows=rows, start=start)
    factors = [one.factor for one in found(program) if one.kind == "padding" and one.factor]
    assert factors == ([pytest.approx(factor)] if factor else [])


@every(("given_back", "less"), [("bf16[16,4096]", 4096 * 4096 * 2), ("f32[4096,4096]", None)])
def test_weights_that_a_product_narrows_as_it_reads_them(given_back: str, less: int | None) -> None:
    """A Triton kernel casts them itself and reads twice the bytes; weights that the program changes are no fault."""
    program = f"""HloModule decode
%product (w: f32[4096,4096], x: bf16[16,4096]) -> bf16[16,4096] {{
  %w = f32[4096,4096]{{1,0}} parameter(0)
  %x = bf16[16,4096]{{1,0}} parameter(1)
  %narrow = bf16[4096,4096]{{1,0}} convert(%w)
  ROOT %made = bf16[16,4096]{{1,0}} dot(%x, %narrow), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
ENTRY %main (x: bf16[16,4096], w: f32[4096,4096], old: f32[4096,4096]) -> (bf16[16,4096], {given_back}) {{
  %x = bf16[16,4096]{{1,0}} parameter(0)
  %w = f32[4096,4096]{{1,0}} parameter(1)
  %old = f32[4096,4096]{{1,0}} parameter(2)
  %scaled = bf16[16,4096]{{1,0}} tanh(%x)
  %new = f32[4096,4096]{{1,0}} tanh(%old)
  %made = bf16[16,4096]{{1,0}} fusion(%w, %scaled), kind=kCustom, calls=%product
  ROOT %both = (bf16[16,4096]{{1,0}}, {given_back}{{1,0}}) tuple(%made, {"%new" if less is None else "%scaled"})
}}
"""
    ops = [(op, one) for op in reviewed_program(parse(program), "gpu") for one in op.avoidable if one.group == "arguments"]
    assert [float(op.cost.known(HBM)) - float(one.instead.known(HBM)) for op, one in ops] == ([less] if less else [])


def transformed(length: int, then: str) -> list[Avoidable]:
    """What could be avoided in a transform of real numbers as complex ones, a product with a real filter, and the transform back."""
    return found(program_text("unneeded_compiled/transformed.hlo", length=length, then=then))


@every(("length", "said"), [(16384, ""), (2 * 3 * 5 * 7, ""), (16381, "which is a prime"), (11 * 128, "the prime factor 11")])
def test_lengths_of_transforms_with_a_large_prime_factor(length: int, said: str) -> None:
    told = [observed(one) for one in transformed(length, "real") if one.kind == "odd-sizes"]
    assert len(told) == (2 if said else 0)
    assert all(said in why for why in told)


def test_the_way_back_from_any_product_with_a_spectrum_may_be_complex() -> None:
    # The filter is an argument, which need not be symmetric: what it makes of a spectrum is not that of a real signal.
    halved = [one for one in transformed(16384, "real") if one.group == "complex"]
    assert [one.factor for one in halved] == [2, 2]  # the conversion and the transform of real numbers


CACHE = program_text("unneeded_compiled/cache.hlo")


@every(("rows", "kernels"), [(5, 3), (1024, 2)])
def test_a_cache_that_is_turned_for_a_matmul_and_back(rows: int, kernels: int) -> None:
    # The turn, a copy of what it made, and the turn back with the new rows, unless those are a large part of the cache.
    moved = [one for one in found(CACHE.replace("ROWS", str(rows))) if one.kind == "layout-copies"]
    assert len(moved) == kernels
    left = [int(one.instead.known(HBM)) for one in moved]
    assert left == [0, 0, 2 * 32 * 8 * 5 * 128 * 2 + 4][:kernels]  # the new rows are read and written, and their position is read


def test_rows_that_are_spread_over_experts_and_turned() -> None:
    program = program_text("unneeded_compiled/rows_that_are_spread_over_experts_and_turned.hlo")
    told = {op.name: op.avoidable[0].kind for op in reviewed_program(parse(program), "gpu") if op.avoidable}
    assert told == dict.fromkeys(("rows", "turned", "made"), "dense-experts")


@every(
    ("window", "made", "told"),
    [
        ("128x128", "256,4,4,256", True),
        ("15x15", "256,3,3,256", True),
        ("4x4", "16,128,128,256", False),
        ("31x31", "16,64,64,256", False),
        ("16x16 stride=16x16", "256,14,14,256", False),  # patches of a vision transformer
    ],
)
def test_gradients_of_weights_that_run_as_forward_convolutions(window: str, made: str, told: bool) -> None:
    size = window.partition(" ")[0]
    program = f"""HloModule upsampled
ENTRY %main (x: bf16[256,258,258,16], w: bf16[256,{size.replace("x", ",")},16]) -> bf16[{made}] {{
  %x = bf16[256,258,258,16]{{3,2,1,0}} parameter(0)
  %w = bf16[256,{size.replace("x", ",")},16]{{3,2,1,0}} parameter(1)
  %call = (bf16[{made}]{{3,2,1,0}}, u8[0]{{0}}) custom-call(%x, %w), window={{size={window} rhs_dilate=2x2}}, dim_labels=b01f_o01i->b01f,
      custom_call_target="__cudnn$convForward"
  ROOT %y = bf16[{made}]{{3,2,1,0}} get-tuple-element(%call), index=0
}}
"""
    said = [observed(one) for one in found(program) if one.group == "windows"]
    weights = "×".join(made.split(",")[1:3])
    why = f"computes the gradient of weights of {weights} as a convolution with a window of {size.replace('x', '×')}"
    assert said == ([why] if told else [])


@every(("stored", "told"), [("s8", True), ("f8e4m3fn", True), ("u8", False), ("bf16", False)])
def test_quantized_weights_that_are_stored_wide_before_they_are_multiplied(stored: str, told: bool) -> None:
    cast = "%wide = bf16[4096,8192]{1,0} convert(%w)" if stored != "bf16" else "%wide = bf16[4096,8192]{1,0} bitcast(%w)"
    program = program_text(
        "unneeded_compiled/quantized_weights_that_are_stored_wide_before_they_are_multiplied.hlo", stored=stored, cast=cast
    )
    found = {
        op.name: int(one.instead.known(HBM))
        for op in reviewed_program(parse(program), "gpu")
        for one in op.avoidable
        if one.group == "weights"
    }
    read_narrow = 16 * 4096 * 2 + 4096 * 8192 + 16 * 8192 * 2  # one byte a weight
    assert found == ({"made": read_narrow, "weights": 0} if told else {})


def test_a_scalar_of_8_bits_has_no_order_to_change() -> None:
    program = """HloModule scalar, is_scheduled=true

ENTRY %main (x: pred[]) -> pred[] {
  %x = pred[] parameter(0)
  ROOT %copied = pred[] copy(%x)
}
"""
    assert [op.name for op in reviewed_program(parse(program), "gpu")] == ["copied"]


@pytest.mark.parametrize(("alias", "group"), [("", "arguments"), (", input_output_alias={ {1}: (1, {}, must-alias) }", "")])
def test_an_argument_that_is_turned_for_matmuls_could_be_stored_so(alias: str, group: str) -> None:
    # What the program replaces in every call has to be turned in every call.
    program = program_text("unneeded_compiled/an_argument_that_is_turned_for_matmuls_could_be_stored_so.hlo", alias=alias)
    (copied,) = [one for one in found(program) if one.kind == "layout-copies"]
    assert copied.group == group
    assert ("weights" in observed(copied)) == bool(group)


def test_the_parts_of_a_large_result_are_not_all_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # An optimizer over a thousand arrays takes its arguments out of one tuple. Two of the parts are taken twice.
    parts = 1_000
    taken = [*range(parts), 3, 7]
    lines = "\n".join(f"  g.{place} = f32[8]{{0}} get-tuple-element(t), index={part}" for place, part in enumerate(taken))
    shape = ", ".join(["f32[8]{0}"] * parts)
    program = f"HloModule adam\n\nENTRY main {{\n  t = ({shape}) parameter(0)\n{lines}\n  ROOT sum = f32[8]{{0}} add(g.0, g.1)\n}}\n"
    module = parse(program)
    calls: list[int] = []
    compare = equality.is_equal
    monkeypatch.setattr(equality, "is_equal", lambda *args: (calls.append(1), compare(*args))[1])
    alike = equality.EqualInstructions(module, module.entry_computation)
    found = [alike.first(index, "same key") for index in range(1, 1 + len(taken))]
    assert found == [1 + part for part in taken]
    assert len(calls) < 3 * len(taken)


@every(("rows", "uses", "told"), [(20_000, "", True), (200_000, "", False), (20_000, "%norm = f32[1000000,64] negate(%before)", False)])
def test_gradients_of_a_few_rows_summed_by_a_loop_update_the_whole_table(rows: int, uses: str, told: bool) -> None:
    # Four trips of 20,000 rows are 8% of 1,000,000; as compiled, each trip scatters into the sum.
    table, state = "f32[1000000,64]{1,0}", f"(s32[], f32[1000000,64]{{1,0}}, s32[{rows},1]{{1,0}}, f32[{rows},64]{{1,0}})"
    rows_of = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    program = program_text(
        "unneeded_compiled/gradients_of_a_few_rows_summed_by_a_loop_update_the_whole_table.hlo",
        state=state,
        table=table,
        rows=rows,
        uses=uses,
        rows_of=rows_of,
    )
    mine = [one for one in found(program) if one.kind == "dense-gradient"]
    assert len(mine) == (2 if told else 0)  # the update, and the zeros
    assert all("at most 8% have a gradient" in observed(one) for one in mine)


@every(("stride", "told"), [(2, True), (1, False)])
def test_the_gradient_of_maxima_over_windows_could_be_elementwise(stride: int, told: bool) -> None:
    # On a GPU select-and-scatter is a search for the position of each maximum, an array of zeros, and a scatter.
    maxima = 128 // stride - (stride == 1)
    count = 4096 * maxima
    program = program_text(
        "unneeded_compiled/the_gradient_of_maxima_over_windows_could_be_elementwise.hlo", maxima=maxima, stride=stride, count=count
    )
    ops = {op.name: op.avoidable for op in reviewed_program(parse(program), "gpu")}
    told_of = {name: one.instead.known(HBM) for name, reasons in ops.items() for one in reasons if one.group == "windows"}
    # The gradient is written once and that of the maxima read; the search reads what it compares; zeros are not needed.
    full, pooled = 4 * 4096 * 128, 4 * count
    assert told_of == ({"made": full + pooled, "search": full, "zeros": 0} if told else {})


def test_weights_that_vmap_repeats_for_every_row_could_be_multiplied_in_a_matmul() -> None:
    # A cond under vmap batches the weights of its branches too: 4096 rows of 512, each with weights of 512 x 2048 of its own.
    program = program_text("unneeded_compiled/weights_that_vmap_repeats_for_every_row_could_be_multiplied_in_a_matmul.hlo")
    (told,) = [one for one in found(program) if one.kind == "repeated-operand"]
    assert told.facts["times"] == 2048, "the rows, the larger array"
    assert told.instead.known(matrix("bf16")) == 2 * 4096 * 2048 * 512


@every(("change", "function", "told"), [("add", "tanh", ["h"]), ("add", "negate", ["h", "y"]), ("multiply", "tanh", ["h", "y"])])
def test_xla_adds_a_bias_in_a_kernel_of_its_own_in_bf16(change: str, function: str, told: list[str]) -> None:
    # That kernel reads and writes 65536 × 256 elements of 2 bytes. tanh would move into the second product, which then gains little.
    program = parse(BIASED.replace("add(", f"{change}(").replace("tanh(", f"{function}("))
    wide = {op.name: one for op in reviewed_program(program, "gpu") for one in op.avoidable if one.kind == "wide-format"}
    added = {name: one.besides.known(HBM) for name, one in wide.items()}
    assert added == {name: 2 * 2 * 65536 * 256 if (name, change) == ("h", "add") else 0 for name in told}


@every(
    ("asked", "reads", "said"),
    [
        ("jit(f)/transpose", "jit(f)/bqhd,bkhd->bhqk/dot_general", " by a transpose, for einsum 'bqhd,bkhd->bhqk' at model.py:7"),
        ("jit(f)/bsd,dhe->bshe/dot_general", "jit(f)/dot_general", " from einsum 'bsd,dhe->bshe', for a matmul at model.py:7"),
        ("jit(f)/while", "jit(f)/dot_general", " for a loop that carries it, for a matmul at model.py:7"),
        ("", "", ", for a matmul at model.py:7"),
    ],
)
def test_a_copy_that_changes_a_layout_says_which_and_for_whom(asked: str, reads: str, said: str) -> None:
    program = program_text("unneeded_compiled/a_copy_that_changes_a_layout_says_which_and_for_whom.hlo", asked=asked, reads=reads)
    (copied,) = [one for one in found(program) if one.kind == "layout-copies"]
    assert observed(copied) == f"moves arrays only to change their layout, such as [8,512,16,64] to [8,16,64,512]{said}"


FP32_LAYERS = program_text("unneeded_compiled/fp32_layers.hlo")
PICKED = "scatter(%first, %ids, %some), update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, "
PICKED += "index_vector_dim=1, to_apply=%plus"
SUMMED = "scatter(%zeros, %ids, %first), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
SUMMED += "index_vector_dim=1, to_apply=%plus"


def test_kernels_between_matmuls_of_fp32_numbers_move_half_the_bytes_in_bf16() -> None:
    program = parse(FP32_LAYERS.replace("BETWEEN", "tanh(%first)"))
    ops = {op.name: (op, one) for op in reviewed_program(program, "gpu") for one in op.avoidable if one.group == "fp32"}
    array = 4 * 4096 * 1024
    spared = {name: op.cost.known(HBM) - one.instead.known(HBM) for name, (op, one) in ops.items() if "dot" not in op.category}
    # The argument and the result of the program stay fp32.
    assert {name: spared[name] for name in ("before", "between", "last")} == {"before": array / 2, "between": array, "last": array / 2}


@every(("between", "kept"), [(SUMMED, 4096 * 1024 * 4), (PICKED, 0)])
def test_rows_that_are_summed_by_index_between_matmuls_stay_in_fp32(between: str, kept: int) -> None:
    program = FP32_LAYERS.replace("BETWEEN", between).replace("s32[4096,1]", "s32[2048,2]" if between == PICKED else "s32[4096,1]")
    ops = {op.name: (op, one) for op in reviewed_program(parse(program), "gpu") for one in op.avoidable if one.group == "fp32 beside sums"}
    # The first matmul writes the rows and the second reads their sums; what else both move, and what the last kernel reads, is halved.
    for name in ("first", "second"):
        op, reason = ops[name]
        assert reason.instead.known(HBM) == (op.cost.known(HBM) - kept) // 2 + kept
    assert "last" in ops


def test_slices_that_a_product_concatenates_are_copied_out_of_stacked_weights() -> None:
    program = program_text("unneeded_compiled/slices_that_a_product_concatenates_are_copied_out_of_stacked_weights.hlo")
    assert [op.name for op in reviewed_program(parse(program), "gpu") for one in op.avoidable if one.group == "stacked"] == [
        "wrapped_slice",
        "wrapped_slice.1",
    ]


@every(("dtype", "change", "kind"), [("c64", "multiply", "complex"), ("f32", "multiply", "fusion"), ("c64", "copy", "fusion")])
def test_kernels_that_compute_with_complex_numbers_are_told_apart(dtype: str, change: str, kind: str) -> None:
    program = f"""HloModule spectra
ENTRY %main (x: {dtype}[512,512], y: {dtype}[512,512]) -> {dtype}[512,512] {{
  %x = {dtype}[512,512]{{1,0}} parameter(0)
  %y = {dtype}[512,512]{{1,0}} parameter(1)
  ROOT %made = {dtype}[512,512]{{1,0}} {change}({"%x, %y" if change == "multiply" else "%x"})
}}
"""
    assert [op.operation for op in reviewed_program(parse(program), "gpu")] == [Streamed(kind=kind)]
