"""Findings of TPU programs: true, about what their authors can change, and doubts that cannot change the answer at the end."""

from pathlib import Path

import pytest

import roofline as rl
from every import every
from evidence import reviewed_program
from hlo_programs import SHARED
from program_texts import program_text
from roofline.hlo.read import parse

DATA = Path(__file__).parent / "data" / "tpu"
DOUBTS = {"unrated", "unknown"}


def _kinds(path: Path, chip: str | None = None) -> list[str]:
    return [finding.kind for finding in rl.analyze(path, chip).findings]


@every("chip", ["v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x"])
def test_the_first_finding_is_about_the_program(chip: str) -> None:
    # A missing rate of VMEM or of the vector unit cannot make a product of 2048^3 wait for it.
    assert _kinds(DATA / f"matmul_{chip}.hlo.gz")[0] not in DOUBTS


@pytest.mark.parametrize(
    ("name", "chip"),
    [("conv_v5e.hlo.gz", "v5e"), ("s_undonated.hlo.gz", "v5e"), ("more/attention_v6e.pb.gz", "v6e"), ("more/embedding_v5e.pb.gz", "v5e")],
)
def test_doubts_about_shared_programs_come_last(name: str, chip: str) -> None:
    if not (SHARED / "tpu" / name).is_file():
        pytest.skip("the shared programs are not here")
    kinds = _kinds(SHARED / "tpu" / name, chip)
    assert kinds[0] not in DOUBTS
    told = [kind for kind in kinds if kind not in DOUBTS]
    assert kinds[: len(told)] == told


def _avoidable(program: str) -> dict[str, set[str]]:
    """The kinds of avoidable work of each op that has any, by its name."""
    module = parse(program.encode(), "program.hlo")
    return {op.name: {one.kind for one in op.avoidable} for op in reviewed_program(module, "tpu") if op.avoidable}


REDUCE_SCATTER = program_text("tpu_findings/reduce_scatter.hlo")


def test_a_padded_reduce_scatter_needs_all_of_its_operand() -> None:
    # Each device keeps half of the sum, but gives all of its own part to it.
    assert _avoidable(REDUCE_SCATTER) == {}


PASSED_ON = program_text("tpu_findings/passed_on.hlo")


def test_operands_that_a_fusion_passes_on_in_place_are_no_results_of_it() -> None:
    # A step of an asynchronous collective in a product passes on its buffers; 3.1 M of 11.5 M elements are the product's.
    assert _avoidable(PASSED_ON.replace("ALIAS", ", output_to_operand_aliasing={{1}: (2, {})}")) == {}


PREFETCHED = program_text("tpu_findings/prefetched.hlo")


@every(("space", "kinds"), [("S(1)", {}), ("S(3)", {}), ("", {"second": {"duplicated-work"}})])
def test_an_array_that_is_prefetched_twice_is_no_work_done_twice(space: str, kinds: dict[str, set[str]]) -> None:
    # VMEM (1) and CMEM (3) hold an array for a while; a second copy in main memory could be the first.
    assert _avoidable(PREFETCHED.replace("SPACE", space)) == kinds


OFFLOADED = program_text("tpu_findings/offloaded.hlo")


def test_an_offloaded_stack_that_comes_back_to_change_its_layout_is_told_with_both_copies() -> None:
    told = {"layout-copies"}
    assert _avoidable(OFFLOADED) == {"copy-start": told, "copy": told, "copy-start.1": told}


def _copied(entry: str) -> str:
    return f"""HloModule jit_f, is_scheduled=true

ENTRY %main (a: bf16[64,512,256]) -> bf16[64,512,256] {{
  %a = bf16[64,512,256]{{2,1,0:T(8,128)(2,1)}} parameter(0)
{entry}
}}
"""


def test_copies_for_the_compilers_own_kernels_are_not_told() -> None:
    between = """  %one = bf16[64,512,256]{2,1,0:T(8,128)(2,1)} exponential(%a)
  %copy = bf16[64,512,256]{1,2,0:T(8,128)(2,1)} copy(%one)
  ROOT %two = bf16[64,512,256]{1,2,0:T(8,128)(2,1)} negate(%copy)"""
    assert _avoidable(_copied(between)) == {}
    tiles = "  ROOT %copy = bf16[64,512,256]{2,1,0:T(4,128)(2,1)} copy(%a)"
    assert _avoidable(_copied(tiles)) == {}


@every(
    "entry",
    [
        # the order of an argument, of a result, and of the author's own transpose
        """  %copy = bf16[64,512,256]{1,2,0:T(8,128)(2,1)} copy(%a)
  ROOT %two = bf16[64,512,256]{1,2,0:T(8,128)(2,1)} negate(%copy)""",
        """  %one = bf16[64,512,256]{1,2,0:T(8,128)(2,1)} negate(%a)
  ROOT %copy = bf16[64,512,256]{2,1,0:T(8,128)(2,1)} copy(%one)""",
        """  %one = bf16[64,512,256]{2,1,0:T(8,128)(2,1)} exponential(%a)
  %copy = bf16[64,512,256]{1,2,0:T(8,128)(2,1)} copy(%one), metadata={op_name="jit(f)/transpose"}
  ROOT %two = bf16[64,512,256]{1,2,0:T(8,128)(2,1)} negate(%copy)""",
    ],
)
def test_copies_into_an_order_that_the_author_decides_on_are_told(entry: str) -> None:
    assert _avoidable(_copied(entry)) == {"copy": {"layout-copies"}}


@every(
    ("op_name", "is_told"),
    [
        ("jit(f)/dot_general", True),
        ("jit(qr)/dot_general", True),  # a function of the author's, of this name
        ("jit(f)/jit(fft)", False),
        ("jit(f)/jit(cholesky)/cholesky", False),
        ("jit(f)/jit(_solve_triangular)/triangular_solve", False),
        ("jit(f)/jit(qr)/householder_product", False),
    ],
)
def test_products_that_a_compiler_makes_of_transforms_and_factorisations_have_no_narrow_format(op_name: str, *, is_told: bool) -> None:
    program = f"""HloModule jit_f, is_scheduled=true

ENTRY %main (a: f32[2048,2048], b: f32[2048,2048]) -> f32[2048,2048] {{
  %a = f32[2048,2048]{{1,0:T(8,128)}} parameter(0)
  %b = f32[2048,2048]{{1,0:T(8,128)}} parameter(1)
  ROOT %c = f32[2048,2048]{{1,0:T(8,128)}} convolution(%a, %b), dim_labels=bf_io->bf, operand_precision={{highest,highest}}, \
metadata={{op_name="{op_name}"}}
}}
"""
    assert _avoidable(program) == ({"c": {"wide-format"}} if is_told else {})


def test_half_used_copies_of_the_compiler_are_a_matter_of_layout() -> None:
    # A table of 64 columns, which the compiler keeps by columns, is turned before its rows are looked up.
    program = """HloModule jit_f, is_scheduled=true

ENTRY %main (table: f32[65536,64]) -> f32[1024,64] {
  %table = f32[65536,64]{0,1:T(8,128)} parameter(0)
  %copy = f32[65536,64]{1,0:T(8,128)} copy(%table)
  ROOT %rows = f32[1024,64]{1,0:T(8,128)} slice(%copy), slice={[0:1024], [0:64]}
}
"""
    assert _avoidable(program)["copy"] == {"layout-copies"}


@every(
    ("array", "kinds"),
    [
        ("f32[4096,256,4]{2,1,0:T(8,128)}", {"exp": {"tile-padding"}}),  # 4 of 128 columns
        ("f32[8,16,2048]{2,1,0:T(8,128)}", {}),
        ("f32[8,16,2048]{1,2,0:T(8,128)}", {}),  # 16 of 128 columns, in an order that the compiler chose
        ("f32[8,16,1,2048]{3,2,1,0:T(8,128)}", {}),  # 1 of 8 rows, of a dimension that it added
        ("f32[100]{0:T(256)}", {}),
        ("s32[65536,2]{1,0:T(8,128)}", {}),  # indices
    ],
)
def test_padding_of_tiles_is_told_where_the_authors_dimensions_cause_it(array: str, kinds: dict[str, set[str]]) -> None:
    program = f"""HloModule jit_f, is_scheduled=true

ENTRY %main (a: {array.partition("{")[0]}) -> {array.partition("{")[0]} {{
  %a = {array} parameter(0)
  ROOT %exp = {array} negate(%a)
}}
"""
    assert _avoidable(program) == kinds


LOGITS = program_text("tpu_findings/logits.hlo")


def test_a_product_that_is_used_whole_in_one_form_and_in_part_in_another_is_needed() -> None:
    assert "unused-results" not in _avoidable(LOGITS.replace("USED", "4096")).get("both", set())
    # Of both forms only 8 of 4096 columns.
    assert "unused-results" in _avoidable(LOGITS.replace("USED", "8"))["both"]


def test_the_shared_sharded_step_has_no_unused_results() -> None:
    if not (SHARED / "tpu" / "sharded_v5p_2x2x2.hlo.gz").is_file():
        pytest.skip("the shared programs are not here")
    assert not {"unused-results", "duplicated-work"} & {*_kinds(SHARED / "tpu" / "sharded_v5p_2x2x2.hlo.gz", "v5p")}
