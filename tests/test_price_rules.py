"""Every opcode has a rule, and the rules count what can be counted by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from priced import ADD, MAX, amounts, price, priced, site
from roofline.cost import NOTHING
from roofline.errors import SourceError
from roofline.hlo.ir.opcodes import CHLO, ELEMENTWISE, OPCODES, TRANSCENDENTALS
from roofline.hlo.price.pricing import RULES


def test_every_opcode_that_xla_documents_has_a_rule() -> None:
    assert set(RULES) - CHLO == OPCODES


def test_an_add_is_one_flop_an_element_in_its_own_format() -> None:
    # 5 x 7 elements; two arrays read and one written, 2 bytes an element.
    assert amounts(priced("bf16[5,7]{1,0} add(%0, %1)", "bf16[5,7]{1,0}", "bf16[5,7]{1,0}").cost) == {"vector/bf16": 35, "hbm": 3 * 70}


def test_whole_numbers_are_billed_to_the_integer_units() -> None:
    assert priced("s32[10]{0} multiply(%0, %1)", "s32[10]{0}", "s32[10]{0}").cost["vector/int32"] == 10
    assert priced("u32[10]{0} xor(%0, %1)", "u32[10]{0}", "u32[10]{0}").cost["vector/int32"] == 10


@every("opcode", sorted(TRANSCENDENTALS - {"logistic", "power", "atan2"}))
def test_transcendentals_stand_apart(opcode: str) -> None:
    assert amounts(priced(f"f32[10]{{0}} {opcode}(%0)", "f32[10]{0}").cost) == {"vector/transcendental": 10, "hbm": 80}


def test_a_logistic_is_an_exp_an_add_and_a_division() -> None:
    cost = priced("f32[10]{0} logistic(%0)", "f32[10]{0}").cost
    assert (cost["vector/fp32"], cost["vector/transcendental"]) == (20, 10)


@every("opcode", ["negate", "abs", "sign", "floor", "ceil", "round-nearest-even"])
def test_signs_and_roundings_are_free(opcode: str) -> None:
    assert priced(f"f32[10]{{0}} {opcode}(%0)", "f32[10]{0}").cost.flops == 0


def test_comparisons_selections_and_conversions_are_free() -> None:
    two = ("f32[10]{0}", "f32[10]{0}")
    assert priced("pred[10]{0} compare(%0, %1), direction=LT", *two).cost.flops == 0
    assert priced("f32[10]{0} maximum(%0, %1)", *two).cost.flops == 0
    assert priced("f32[10]{0} select(%0, %1, %2)", "pred[10]{0}", *two).cost.flops == 0
    assert priced("s32[10]{0} convert(%0)", "f32[10]{0}").cost.flops == 0
    assert priced("pred[10]{0} and(%0, %1)", "pred[10]{0}", "pred[10]{0}").cost.flops == 0


def test_complex_numbers_are_pairs_of_real_ones() -> None:
    # (a + bi)(c + di) is four multiplications and two additions.
    assert priced("c64[10]{0} multiply(%0, %1)", "c64[10]{0}", "c64[10]{0}").cost["vector/fp32"] == 60
    # |a + bi| squares twice, adds, and takes a root.
    modulus = priced("f32[10]{0} abs(%0)", "c64[10]{0}").cost
    assert (modulus["vector/fp32"], modulus["vector/transcendental"]) == (30, 10)


@given(
    batch=st.lists(st.integers(1, 4), max_size=2),
    left=st.lists(st.integers(1, 5), max_size=2),
    right=st.lists(st.integers(1, 5), max_size=2),
    contracted=st.lists(st.integers(1, 6), max_size=2),
    data=st.data(),
)
def test_a_dot_is_exact_for_any_dimension_numbers(
    batch: list[int], left: list[int], right: list[int], contracted: list[int], data: st.DataObject
) -> None:
    def arranged(free: list[int]) -> tuple[str, str, str]:
        kinds = data.draw(
            st.permutations(
                [*(("b", i) for i in range(len(batch))), *(("c", i) for i in range(len(contracted))), *(("f", i) for i in range(len(free)))]
            )
        )
        sizes = {"b": batch, "c": contracted, "f": free}
        dims = ",".join(str(sizes[kind][place]) for kind, place in kinds)
        where = {one: axis for axis, one in enumerate(kinds)}
        return dims, *(",".join(str(where[kind, place]) for place in range(len(sizes[kind]))) for kind in "bc")

    a, a_batch, a_depth = arranged(left)
    b, b_batch, b_depth = arranged(right)
    result = ",".join(map(str, [*batch, *left, *right]))
    cost = priced(
        f"bf16[{result}] dot(%0, %1), lhs_batch_dims={{{a_batch}}}, lhs_contracting_dims={{{a_depth}}}, "
        f"rhs_batch_dims={{{b_batch}}}, rhs_contracting_dims={{{b_depth}}}",
        f"bf16[{a}]",
        f"bf16[{b}]",
    ).cost
    size = 2
    for extent in (*batch, *left, *right, *contracted):
        size *= extent
    assert cost["matrix/bf16"] == size


DOT = "{0}[8,4]{{1,0}} dot(%0, %1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def unit(out: str, left: str, right: str, platform: str, extra: str = "") -> dict[str, object]:
    cost = priced(DOT.format(out) + extra, f"{left}[8,16]{{1,0}}", f"{right}[16,4]{{1,0}}", platform=platform).cost  # type: ignore[arg-type]
    return {name: amount for name, amount in amounts(cost).items() if name != "hbm"}


FLOPS = 2 * 8 * 16 * 4


@pytest.mark.parametrize(
    ("out", "left", "right", "platform", "extra", "where"),
    [
        ("f32", "f32", "f32", "gpu", "", "matrix/tf32"),
        ("f32", "f32", "f32", "gpu", ", operand_precision={high,default}", "matrix/tf32"),
        ("f32", "f32", "f32", "gpu", ", operand_precision={highest,highest}", "matrix/fp32"),
        ("f32", "f32", "f32", "gpu", ", algorithm=dot_tf32_tf32_f32", "matrix/tf32"),
        ("f32", "f32", "f32", "gpu", ", algorithm=dot_f32_f32_f32", "matrix/fp32"),
        ("f32", "f32", "f32", "gpu", ", algorithm=dot_bf16_bf16_f32_x6", "matrix/bf16x6"),
        ("f32", "bf16", "bf16", "gpu", "", "matrix/bf16"),
        ("f16", "f16", "f16", "gpu", "", "matrix/fp16"),
        ("f64", "f64", "f64", "gpu", "", "matrix/fp64"),
        ("f32", "f8e4m3fn", "f8e5m2", "gpu", "", "matrix/fp8"),
        ("f32", "f8e4m3fn", "f8e5m2", "gpu", ", algorithm=dot_any_f8_any_f8_f32_fast_accum", "matrix/fp8"),
        ("s32", "s8", "s8", "gpu", "", "matrix/int8"),
        ("bf16", "bf16", "s4", "gpu", "", "matrix/bf16"),
        ("s32", "s32", "s32", "gpu", "", "vector/int32"),
        ("f32", "f32", "f32", "tpu", "", "matrix/bf16"),
        ("s32", "s4", "s4", "tpu", "", "matrix/int4"),
        ("f32", "f32", "f32", "tpu", ", operand_precision={default,high}", "matrix/bf16x3"),
        ("f32", "f32", "f32", "tpu", ", algorithm=dot_f32_f32_f32", "matrix/bf16x6"),
        ("f32", "f32", "f32", "gpu", ", algorithm=dot_bf16_bf16_f32_x9", "matrix/bf16x9"),
        ("f32", "f32", "f32", "gpu", ", algorithm=dot_tf32_tf32_f32_x3", "matrix/tf32x3"),
        ("f32", "f32", "f32", "cpu", "", "matrix/fp32"),
        ("s32", "s8", "s8", "cpu", "", "vector/int8"),
    ],
)
def test_a_product_runs_on_the_unit_its_formats_and_precision_choose(
    out: str, left: str, right: str, platform: str, extra: str, where: str
) -> None:
    assert unit(out, left, right, platform, extra) == {where: FLOPS}


def test_passes_are_said_and_flop_counted_once() -> None:
    found = priced(DOT.format("f32") + ", operand_precision={highest,highest}", "f32[8,16]{1,0}", "f32[16,4]{1,0}", platform="tpu")
    assert found.cost["matrix/bf16x6"] == FLOPS
    assert found.notes == ("runs as 6 passes of bf16, at 1/6 of its rate; FLOP counted once",)


def test_a_complex_product_is_four_real_ones() -> None:
    assert unit("c64", "c64", "c64", "cpu") == {"matrix/fp32": 4 * FLOPS}


def test_each_row_of_a_ragged_dot_meets_one_group() -> None:
    found = priced(
        "f32[6,5]{1,0} ragged-dot(%0, %1, %2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
        "f32[6,4]{1,0}",
        "f32[3,4,5]{2,1,0}",
        "s64[3]{0}",
    )
    # 6 rows of 4 by a 4 x 5 matrix each, whichever of the three it is; all three are read.
    assert found.cost["matrix/tf32"] == 2 * 6 * 4 * 5
    assert found.cost["hbm"] == 4 * (24 + 60 + 30) + 24


def test_a_ragged_contraction_sums_each_element_once() -> None:
    found = priced(
        "f32[3,4,5]{2,1,0} ragged-dot(%0, %1, %2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}",
        "f32[4,60]{1,0}",
        "f32[60,5]{1,0}",
        "s64[3]{0}",
    )
    assert found.cost["matrix/tf32"] == 2 * 4 * 60 * 5


def test_few_rows_touch_few_groups() -> None:
    found = priced(
        "f32[2,5]{1,0} ragged-dot(%0, %1, %2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
        "f32[2,4]{1,0}",
        "f32[64,4,5]{2,1,0}",
        "s64[64]{0}",
    )
    # Two rows meet two of the 64 groups at most.
    assert found.cost["hbm"] == 4 * (8 + 2 * 20 + 10) + 64 * 8


def test_a_convolution_leaves_padding_out() -> None:
    # 5 inputs under 3 taps with one zero on either side: 3 taps for each of 5 outputs, less the two that meet the zeros.
    found = priced("f32[1,5,2]{2,1,0} convolution(%0, %1), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f", "f32[1,5,4]", "f32[3,4,2]")
    assert found.cost["matrix/tf32"] == 2 * 13 * 4 * 2
    assert found.category == "convolution"


def test_a_convolution_without_a_window_is_a_product() -> None:
    found = priced("bf16[8,4]{1,0} convolution(%0, %1), dim_labels=bf_io->bf", "bf16[8,16]", "bf16[16,4]", platform="tpu")
    assert found.cost["matrix/bf16"] == FLOPS


def test_a_sum_is_one_add_for_every_element_that_disappears() -> None:
    found = priced("f32[8]{0} reduce(%0, %1), dimensions={1}, to_apply=%add", "f32[8,16]{1,0}", "f32[]", computations=ADD)
    # 8 lines of 16 elements are 15 adds each; the starting value is read too.
    assert amounts(found.cost) == {"vector/fp32": 8 * 15, "hbm": 4 * (128 + 1 + 8)}


def test_a_maximum_moves_data_only() -> None:
    found = priced("f32[8]{0} reduce(%0, %1), dimensions={1}, to_apply=%max", "f32[8,16]{1,0}", "f32[]", computations=MAX)
    assert found.cost.flops == 0


def test_a_window_adds_only_what_is_there() -> None:
    found = priced("f32[5]{0} reduce-window(%0, %1), window={size=3 pad=1_1}, to_apply=%add", "f32[5]{0}", "f32[]", computations=ADD)
    # 13 taps in 5 windows (see the convolution above) are 13 − 5 adds.
    assert found.cost["vector/fp32"] == 8


@every("pad", ["9_0", "0_9"])
def test_a_running_total_is_one_add_an_element_but_the_first(pad: str) -> None:
    found = priced(
        f"f32[3,10]{{1,0}} reduce-window(%0, %1), window={{size=1x10 pad=0_0x{pad}}}, to_apply=%add",
        "f32[3,10]{1,0}",
        "f32[]",
        computations=ADD,
    )
    assert found.cost["vector/fp32"] == 3 * 9


def test_the_sum_of_a_row_kept_for_each_of_its_elements_is_added_once() -> None:
    # Every window reads all 10 elements of its row, as XLA for TPUs writes the sum of a softmax: 9 adds a row, not 9 for each element.
    found = priced(
        "f32[3,10]{1,0} reduce-window(%0, %1), window={size=1x19 pad=0_0x9_9}, to_apply=%add", "f32[3,10]{1,0}", "f32[]", computations=ADD
    )
    assert found.cost["vector/fp32"] == 3 * 9


def test_windows_that_read_the_whole_row_are_added_once_beside_those_that_do_not() -> None:
    # Outputs 0 to 3 read the first 3, 4, 4 and 4 of 4 inputs; the next two the last 3 and 2: distinct windows of 3, 4, 3 and 2 elements.
    found = priced("f32[6]{0} reduce-window(%0, %1), window={size=6 pad=3_2}, to_apply=%add", "f32[4]{0}", "f32[]", computations=ADD)
    assert found.cost["vector/fp32"] == sum(elements - 1 for elements in (3, 4, 3, 2))


def test_a_scan_applies_its_computation_to_every_slice() -> None:
    both = ADD.replace("ROOT %c = f32[] add(%a, %b)", "%c = f32[] add(%a, %b)\n  ROOT %t = (f32[], f32[]) tuple(%c, %c)")
    found = priced(
        "(f32[4]{0}, f32[]) scan(%0, %1), dimensions={0}, num_carries=1, is_associative=true, to_apply=%add",
        "f32[4]{0}",
        "f32[]",
        computations=both,
    )
    assert found.cost["vector/fp32"] == 4


def test_sorting_compares_and_does_not_compute() -> None:
    less = "%less {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  ROOT %c = pred[] compare(%a, %b), direction=LT\n}"
    found = priced("f32[4,1024]{1,0} sort(%0), dimensions={1}, to_apply=%less", "f32[4,1024]{1,0}", computations=less)
    assert amounts(found.cost) == {"hbm": 2 * 4 * 4096}
    assert found.notes == ("counted: no FLOP for about 40,960 comparisons",)  # 4 lines of 1,024 · log2 1,024


def test_the_largest_few_are_read_once_and_written_once() -> None:
    found = priced("(f32[8,3]{1,0}, s32[8,3]{1,0}) topk(%0), k=3, largest=true", "f32[8,100]{1,0}")
    assert amounts(found.cost) == {"hbm": 4 * 800 + 2 * 4 * 24}


@every(
    ("kind", "operand", "result", "flops"),
    [("FFT", "c64[3,64]", "c64[3,64]", 3 * 5 * 64 * 6), ("RFFT", "f32[3,64]", "c64[3,33]", 3 * 5 * 64 * 6 // 2)],
)
def test_a_transform_is_5_n_log2_n(kind: str, operand: str, result: str, flops: int) -> None:
    assert priced(f"{result} fft(%0), fft_type={kind}, fft_length={{64}}", operand).cost["vector/fp32"] == flops


def test_factorisations_count_what_lapack_does() -> None:
    # Order 2: two roots, one division and one square multiplied on one side, one subtraction: n(n + 1)(2n + 1)/6 = 5 in all.
    assert priced("f32[7,2,2] cholesky(%0), lower=true", "f32[7,2,2]").cost["matrix/fp32"] == 7 * 5
    solve = "f32[2,3]{{1,0}} triangular-solve(%0, %1), left_side=true, lower=true{0}, transpose_a=NO_TRANSPOSE"
    # Each of 3 columns: two divisions, one multiplication and one subtraction; no divisions when the diagonal is 1.
    assert priced(solve.format(""), "f32[2,2]", "f32[2,3]").cost["matrix/fp32"] == 3 * 4
    assert priced(solve.format(", unit_diagonal=true"), "f32[2,2]", "f32[2,3]").cost["matrix/fp32"] == 3 * 2


def test_random_bits_are_written_and_nothing_more() -> None:
    found = priced("(u64[2]{0}, u32[100]{0}) rng-bit-generator(%0), algorithm=rng_default", "u64[2]{0}")
    assert amounts(found.cost) == {"hbm": 16 + 16 + 400}


@every(
    "instruction",
    [
        "f32[8,4]{1,0} bitcast(%0)",
        "(f32[4,8]{1,0}) tuple(%0)",
        "f32[4,8]{1,0} opt-barrier(%0)",
        "f32[4,8]{1,0} copy-done(%0)",
        "f32[8,4]{1,0} reshape(%0)",
        "f32[8,4]{0,1} transpose(%0), dimensions={1,0}",
    ],
)
def test_values_that_are_only_renamed_cost_nothing(instruction: str) -> None:
    assert priced(instruction, "f32[4,8]{1,0}").cost == NOTHING


def test_a_transpose_that_moves_elements_is_read_and_written() -> None:
    assert amounts(priced("f32[8,4]{1,0} transpose(%0), dimensions={1,0}", "f32[4,8]{1,0}").cost) == {"hbm": 2 * 128}


def test_a_reshape_between_tiled_layouts_moves_elements() -> None:
    found = priced("f32[1024,8]{1,0:T(8,128)} reshape(%0)", "f32[8,1024]{1,0:T(8,128)}", platform="tpu")
    # Rows of 8 fill one lane of tiles each: 1024 x 128 elements are written.
    assert amounts(found.cost) == {"hbm": 4 * (8 * 1024 + 1024 * 128), "xlu": 4 * 8 * 1024}
    assert found.notes == ("491.5 kB of its bytes are padding of tiled layouts",)


@every(
    ("shape", "elements"),
    [
        ("bf16[100,200]{1,0:T(8,128)(2,1)}", 104 * 256),
        ("bf16[100,200]{0,1:T(8,128)(2,1)}", 128 * 200),
        ("f32[3,5,130]{2,1,0:T(8,128)}", 3 * 8 * 256),
        ("f32[1000]{0:T(1024)}", 1024),
        ("f32[1000]{0}", 1000),
    ],
)
def test_tiles_pad_the_minor_dimensions(shape: str, elements: int) -> None:
    size = 2 if shape.startswith("bf16") else 4
    assert priced(f"{shape} negate(%0)", shape, platform="tpu").cost["hbm"] == 2 * size * elements


def test_slices_gathers_and_updates_touch_what_they_take() -> None:
    big = "f32[1000,64]{1,0}"
    assert priced("f32[10,64]{1,0} slice(%0), slice={[5:15], [0:64]}", big).cost["hbm"] == 2 * 2560
    assert priced("f32[1,64]{1,0} dynamic-slice(%0, %1, %2), dynamic_slice_sizes={1,64}", big, "s32[]", "s32[]").cost["hbm"] == 2 * 256 + 8
    assert priced(f"{big} dynamic-update-slice(%0, %1, %2, %3)", big, "f32[1,64]{1,0}", "s32[]", "s32[]").cost["hbm"] == 2 * 256 + 8
    rows = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,64}"
    assert priced(f"f32[7,64]{{1,0}} gather(%0, %1), {rows}", big, "s32[7,1]{1,0}").cost["hbm"] == 2 * 7 * 256 + 28


SCATTER = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def test_a_scatter_that_adds_reads_what_it_adds_to() -> None:
    shapes = ("f32[1000,64]{1,0}", "s32[7,1]{1,0}", "f32[7,64]{1,0}")
    found = priced(f"{shapes[0]} scatter(%0, %1, %2), {SCATTER}, to_apply=%add", *shapes, computations=ADD)
    # 7 rows of updates read, 7 rows of the operand read and written, and 7 indices.
    assert amounts(found.cost) == {"vector/fp32": 7 * 64, "hbm": 3 * 7 * 256 + 28}


def test_a_scatter_that_replaces_does_not() -> None:
    shapes = ("f32[1000,64]{1,0}", "s32[7,1]{1,0}", "f32[7,64]{1,0}")
    second = "%second {\n  %a = f32[] parameter(0)\n  ROOT %b = f32[] parameter(1)\n}"
    found = priced(f"{shapes[0]} scatter(%0, %1, %2), {SCATTER}, to_apply=%second", *shapes, computations=second)
    assert amounts(found.cost) == {"hbm": 2 * 7 * 256 + 28}


def test_an_operand_that_comes_in_twice_is_read_once() -> None:
    assert priced("f32[8,8]{1,0} dot(%0, %0), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[8,8]{1,0}").cost["hbm"] == 2 * 256


def test_sub_byte_elements_are_packed() -> None:
    assert priced("bf16[64]{0} convert(%0)", "s4[64]{0}").cost["hbm"] == 32 + 128


def test_a_dimension_without_bound_leaves_the_cost_unknown() -> None:
    found = priced("f32[?,4] add(%0, %1)", "f32[?,4]", "f32[?,4]")
    assert found.cost["hbm"] is None
    assert found.cost.flops is None
    assert "without bound" in found.notes[0]


def test_a_dimension_that_varies_counts_at_its_upper_bound_and_says_so() -> None:
    found = priced("f32[<=10,4]{1,0} add(%0, %1)", "f32[<=10,4]{1,0}", "f32[<=10,4]{1,0}")
    assert found.cost["vector/fp32"] == 40
    assert found.notes == ("dynamic dimensions are counted at their upper bound",)


def test_a_custom_call_nobody_knows_keeps_its_bytes() -> None:
    found = priced('f32[8]{0} custom-call(%0), custom_call_target="somebodys_kernel"', "f32[8,4]{1,0}")
    assert (found.cost["hbm"], found.cost["compute"], found.cost.flops) == (128 + 32, None, None)


def test_an_opcode_nobody_knows_keeps_its_bytes() -> None:
    found = priced("f32[8]{0} frobnicate(%0)", "f32[8]{0}")
    assert (found.cost["hbm"], found.cost.flops) == (64, None)


@every(
    "instruction",
    [
        "f32[8]{0} dot(%0, %0), lhs_contracting_dims={7}, rhs_contracting_dims={0}",
        "f32[8]{0} convolution(%0, %0), window={size=3}, dim_labels=b0f_0io->b0f",
        "f32[8]{0} reduce-window(%0, %0), window={size=2x2}",
    ],
)
def test_attributes_that_do_not_fit_are_an_error_with_a_place(instruction: str) -> None:
    with pytest.raises(SourceError, match=r"hand: line \d+: r: its attributes do not fit"):
        price(site(instruction, "f32[8]{0}"))


def test_elementwise_opcodes_are_told_apart_once() -> None:
    assert len(ELEMENTWISE) == len(ELEMENTWISE & OPCODES) + len(CHLO)


def test_a_broadcast_to_sizes_known_when_it_runs_reads_those_too() -> None:
    # The operand's 4 elements and the 2 sizes, 4 bytes each, for 12 elements.
    cost = priced("f32[3,4]{1,0} broadcast(%0, %1), dimensions={1}", "f32[4]{0}", "s32[2]{0}").cost
    assert amounts(cost) == {"hbm": 4 * (4 + 2 + 12)}


@every(
    ("instruction", "operand", "moved"),
    [
        ("bf16[64,256]{0,1} copy(%0)", "bf16[64,256]{1,0}", 64 * 256 * 2),  # columns become lanes
        ("bf16[256,64]{1,0} transpose(%0), dimensions={1,0}", "bf16[64,256]{1,0}", 64 * 256 * 2),
        ("bf16[64,256]{1,0:T(8,128)(2,1)} copy(%0)", "bf16[64,256]{1,0:T(4,128)(2,1)}", 64 * 256 * 2),  # other tiles
        ("bf16[8,64,256]{2,0,1} copy(%0)", "bf16[8,64,256]{2,1,0}", 0),  # rows stay rows
        ("bf16[64,256]{1,0:S(1)} copy(%0)", "bf16[64,256]{1,0}", 0),  # to VMEM, as it is
    ],
)
def test_another_dimension_in_the_lanes_is_work_of_a_tpus_cross_lane_unit(instruction: str, operand: str, moved: int) -> None:
    assert priced(instruction, operand, platform="tpu").cost["xlu"] == moved
    assert "xlu" not in amounts(priced(instruction.replace(":S(1)", ""), operand, platform="gpu").cost)
