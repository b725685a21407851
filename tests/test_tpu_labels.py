"""Labels of the products that the TPU compiler writes as convolutions, by the sizes of the dots they were."""

from pathlib import Path

import pytest

from every import every
from evidence import reviewed_program
from hlo_programs import SHARED
from program_texts import program_text
from roofline.hlo.ir.module import HloModule
from roofline.hlo.read import parse
from roofline.sources.hlo_dump import read_modules


def _label(program: str) -> str:
    """The label of the only op of a program, without its source line."""
    (op,) = reviewed_program(_module(program), "tpu")
    return op.label.what


def _module(program: str) -> HloModule:
    return parse(program.encode(), "program.hlo")


def _product(left: str, right: str, result: str, attributes: str) -> str:
    return f"""HloModule jit_f, is_scheduled=true

ENTRY %main (a: {left}, b: {right}) -> {result} {{
  %a = {left} parameter(0)
  %b = {right} parameter(1)
  ROOT %dot = {result} convolution(%a, %b), {attributes}, metadata={{op_name="jit(f)/dot_general"}}
}}
"""


@every(
    ("left", "right", "result", "attributes", "sizes"),
    [
        # x @ w of plain matrices
        ("bf16[64,32]", "bf16[32,16]", "bf16[64,16]", "dim_labels=bf_io->bf", "64×32×16"),
        # x[8, 1024, 32] @ w: a window of one element walks over an axis of the rows
        ("bf16[8,64,32]", "bf16[32,16,1]", "bf16[8,64,16]", "window={size=1}, dim_labels=0bf_io0->0bf", "512×32×16"),
        # the gradient of w: a window of the whole axis sums over it
        ("bf16[8,64,32]", "bf16[8,64,16]", "bf16[32,16,1]", "window={size=8}, dim_labels=0fb_0io->bf0", "32×512×16"),
        # q @ k of 8 batches: a window that moves along, in the two forms in which the compiler writes it
        (
            "bf16[8,64,32]",
            "bf16[8,48,32]",
            "bf16[8,64,48]",
            "window={size=8 stride=7 lhs_dilate=8}, dim_labels=0bf_0oi->0bf",
            "8×(64×32×48)",
        ),
        (
            "bf16[8,64,32]",
            "bf16[8,48,32]",
            "bf16[8,64,48]",
            "window={size=8 stride=8 pad=7_7 lhs_dilate=7 rhs_reversal=1}, dim_labels=0bf_0oi->0bf",
            "8×(64×32×48)",
        ),
        # x @ w of [heads, size]: padding all around one element of the input makes an axis of the columns
        (
            "bf16[64,32,1]",
            "bf16[4,16,32]",
            "bf16[64,4,16]",
            "window={size=4 pad=3_3 rhs_reversal=1}, dim_labels=bf0_0oi->b0f",
            "64×32×64",
        ),
        # the operands the other way round: the features of the result come first, so they are the rows of the dot
        ("bf16[16,32]", "bf16[64,32]", "bf16[64,16]", "dim_labels=bf_oi->fb", "64×32×16"),
        # one-hot rows are of one byte, but multiplied as bf16
        ("pred[64,32]", "bf16[32,16]", "bf16[64,16]", "dim_labels=bf_io->bf", "64×32×16"),
    ],
)
def test_a_product_written_as_a_convolution_is_labelled_by_the_sizes_of_the_dot(
    left: str, right: str, result: str, attributes: str, sizes: str
) -> None:
    assert _label(_product(left, right, result, attributes)) == f"dot {sizes} bf16"


def test_a_convolution_over_neighbours_is_no_product() -> None:
    program = _product(
        "bf16[8,56,56,64]", "bf16[3,3,64,64]", "bf16[8,56,56,64]", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    )
    assert _label(program.replace("dot_general", "conv_general_dilated")) == "convolution bf16[8,56,56,64]"


def test_a_convolution_of_the_author_keeps_its_name_where_it_is_a_product() -> None:
    # A 1x1 convolution of 8 images of 56 x 56 multiplies 8 * 56 * 56 = 25088 rows.
    program = _product("bf16[8,56,56,64]", "bf16[1,1,64,32]", "bf16[8,56,56,32]", "window={size=1x1}, dim_labels=b01f_01io->b01f")
    assert _label(program.replace("dot_general", "conv_general_dilated")) == "convolution 25088×64×32 bf16"


NESTED = program_text("tpu_labels/nested.hlo")


def test_a_fusion_is_labelled_by_the_product_in_it_however_deep() -> None:
    assert _label(NESTED) == "dot 64×32×16 bf16"


def test_a_fusion_of_a_convolution_and_a_smaller_product_is_labelled_by_the_convolution() -> None:
    # 3x3 taps do nine times the work of the 1x1 convolution after them, which is a product.
    program = """HloModule both, is_scheduled=true

%fused (a: bf16[8,56,56,64], w: bf16[3,3,64,64], v: bf16[1,1,64,64]) -> bf16[8,56,56,64] {
  %a = bf16[8,56,56,64]{3,2,1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[3,3,64,64]{3,2,1,0:T(8,128)(2,1)} parameter(1)
  %v = bf16[1,1,64,64]{3,2,1,0:T(8,128)(2,1)} parameter(2)
  %wide = bf16[8,56,56,64]{3,2,1,0:T(8,128)(2,1)} convolution(%a, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  ROOT %one = bf16[8,56,56,64]{3,2,1,0:T(8,128)(2,1)} convolution(%wide, %v), window={size=1x1}, dim_labels=b01f_01io->b01f
}

ENTRY %main (a: bf16[8,56,56,64], w: bf16[3,3,64,64], v: bf16[1,1,64,64]) -> bf16[8,56,56,64] {
  %a = bf16[8,56,56,64]{3,2,1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[3,3,64,64]{3,2,1,0:T(8,128)(2,1)} parameter(1)
  %v = bf16[1,1,64,64]{3,2,1,0:T(8,128)(2,1)} parameter(2)
  ROOT %both = bf16[8,56,56,64]{3,2,1,0:T(8,128)(2,1)} fusion(%a, %w, %v), kind=kOutput, calls=%fused, \
metadata={op_name="jit(f)/conv_general_dilated"}
}
"""
    assert _label(program) == "convolution bf16[8,56,56,64]"
    assert _label(program.replace("3x3 pad=1_1x1_1", "1x1").replace("[3,3,64,64]", "[1,1,64,64]")) == "convolution 25088×64×64 bf16"


@pytest.mark.parametrize(
    "name", ["layer_v5e.hlo.gz", "sharded_v5p_2x2x2.hlo.gz", "more/train_l7_v6e_plain.pb.gz", "more/train_s_v5e.pb.gz"]
)
def test_labels_of_compiled_programs_have_the_sizes_that_were_priced(name: str) -> None:
    path = Path(SHARED / "tpu" / name)
    if not path.is_file():
        pytest.skip("the shared programs are not here")
    checked = 0
    for module in read_modules(path):
        for op in reviewed_program(module, "tpu"):
            flop = sum(float(amount) for resource, amount in op.cost.amounts if resource.unit == "matrix")
            if flop and op.category != "custom call":
                assert "dot" in op.label.does
                batch, _, sizes = op.label.what.split()[-2].rpartition("×(")
                rows, depth, columns = map(int, sizes.rstrip(")").split("×"))
                # What else a fusion does, in passes over the result, is not on the matrix unit; a loop repeats the product.
                assert flop == op.count * 2 * int(batch or 1) * rows * depth * columns
                checked += 1
    assert checked >= 4


EXCHANGED = program_text("tpu_labels/exchanged.hlo")


def test_a_fusion_around_a_collective_is_labelled_by_it() -> None:
    assert _label(EXCHANGED) == "reduce-scatter bf16[1032,1536]"
    whole = EXCHANGED.replace(
        "ROOT %own = bf16[1032,1536] dynamic-slice(%all-reduce, %first, %first), dynamic_slice_sizes",
        "ROOT %own = bf16[1032,1536] slice(%all-reduce), slice",
    )
    assert _label(whole.replace("slice={1032,1536}", "slice={[0:1032], [0:1536]}")) == "all-reduce bf16[1032,1536]"
    # with other work beside the collective, the fusion is that work
    assert _label(
        EXCHANGED.replace("bf16[2064,1536] pad(%input, %zero), padding=0_16x0_0", "bf16[2064,1536] exponential(%input)")
    ) != _label(EXCHANGED)
