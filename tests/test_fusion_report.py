"""The fusion report: boundaries and reasons on programs one can add up by hand, and the laws that tie its sums together."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given

from every import every
from fusion_programs import module, programs
from program_texts import program_text
from roofline.hlo.fusion.compiler_model import fuse
from roofline.hlo.fusion.fusion_report import Boundary, fusion_report
from roofline.hlo.price.program import program
from roofline.hlo.read import parse
from roofline.machine import Machine
from roofline.resource import HBM

DATA = Path(__file__).parent / "data"
LESS = "less {\n p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT r = pred[] compare(p, q), direction=LT\n}"


def chip() -> Machine:
    """1 kB/s of memory and 1 kFLOP/s on the vector unit; a launch takes half a second."""
    return Machine.of("toy", {"hbm": 1000, "vector/fp32": 1000}, launch_latency_s=0.5)


def boundaries(body: str, before: str = "") -> dict[str, Boundary]:
    return {one.value: one for one in fusion_report(module(body, before), "gpu").boundaries}


def test_a_value_between_two_kernels_costs_its_write_and_its_read() -> None:
    report = fusion_report(
        module("""
        x = f32[1000] parameter(0)
        a = f32[1000] exponential(x)
        ROOT b = bf16[1000] convert(a)
        """),
        "gpu",
        chip(),
    )
    (one,) = report.boundaries
    assert (one.producer, one.consumers, one.reason) == ("a", ("b",), "none seen")
    assert (one.written_bytes, one.read_bytes, one.avoidable_bytes) == (4000, 4000, 8000)
    # Apart: a moves 8000 B in 8 s, b 6000 B in 6 s. Together 4000 + 2000 B in 6 s.
    assert one.gain_s == pytest.approx(8 + 6 - 6)
    assert [(kernel.name, kernel.avoidable_bytes, kernel.bytes) for kernel in report.kernels] == [("a", 4000, 8000), ("b", 4000, 6000)]
    assert report.avoidable_bytes == 8000
    assert report.bytes == 14000
    assert report.reasons == (("none seen", 8000),)
    assert "not compiled" in report.notes[0]


def test_the_gain_is_what_the_floors_say_when_arithmetic_binds() -> None:
    # 1000 transcendentals, on a vector unit of 100 a second, take 10 s whether the 8 kB of its own kernel move or not.
    slow = Machine.of("slow", {"hbm": 1000, "vector/fp32": 100})
    report = fusion_report(module("x = f32[1000] parameter(0)\na = f32[1000] exponential(x)\nROOT b = f32[1000] negate(a)"), "gpu", slow)
    # Apart 10 + 8 s; together 10 s of arithmetic over 8 s of memory.
    assert report.boundaries[0].gain_s == pytest.approx(18 - 10)


def test_a_value_that_is_a_result_too_must_be_written_anyhow() -> None:
    found = boundaries("""
        x = f32[1000] parameter(0)
        a = f32[1000] exponential(x)
        b = f32[1000] negate(a)
        ROOT t = (f32[1000], f32[1000]) tuple(a, b)
        """)
    assert found["a"].avoidable_bytes == 4000  # b's read
    assert found["a"].reason == "explicit materialisation"


def test_several_users_are_one_boundary() -> None:
    found = boundaries("""
        x = f32[1000] parameter(0)
        a = f32[1000] exponential(x)
        b = f32[1000] negate(a)
        c = f32[1000] tanh(a)
        ROOT t = (f32[1000], f32[1000]) tuple(b, c)
        """)
    assert found["a"].consumers == ("b", "c")
    assert found["a"].avoidable_bytes == 3 * 4000
    assert (found["a"].reason, found["a"].detail) == ("multiple users", "2 kernels read it")


def test_a_value_that_waits_for_a_later_kernel_is_saved() -> None:
    # The last kernel reads what the first made, and waits for a sort that does too: one kernel of both would wait for itself.
    found = boundaries(
        """
        x = f32[1000] parameter(0)
        a = f32[1000] exponential(x)
        s = f32[1000] sort(a), dimensions={0}, to_apply=less
        ROOT e = f32[1000] multiply(a, s)
        """,
        LESS,
    )
    assert found["a"].reason == "indexing pattern"  # the sort is the stronger reason
    saved = boundaries(
        program_text("fusion_report/a_value_that_waits_for_a_later_kernel_is_saved.hlo"),
        LESS
        + "\ntwo {\n v = f32[1000] parameter(0)\n m = f32[1000] negate(v)\n n = f32[1000] exponential(v)\n"
        + " ROOT k = (f32[1000], f32[1000]) tuple(m, n)\n}",
    )
    assert saved["f.0"].reason == "explicit materialisation"
    assert "stored for later" in saved["f.0"].detail


@every(
    ("middle", "reason"),
    [
        ('custom-call(a), custom_call_target="mine"', "custom call"),
        ("copy(a)", "explicit materialisation"),
        ("all-reduce(a), replica_groups={{0,1}}, to_apply=add_f32", "collective"),
        ("sort(a), dimensions={0}, to_apply=less", "indexing pattern"),
    ],
)
def test_the_kernel_on_the_other_side_is_the_reason(middle: str, reason: str) -> None:
    body = f"x = f32[1000] parameter(0)\na = f32[1000] exponential(x)\nb = f32[1000] {middle}\nROOT c = f32[1000] negate(b)"
    found = boundaries(body, LESS)
    assert found["a"].reason == found["b"].reason == reason


def test_a_collective_moves_link_bytes_and_its_neighbours_their_own() -> None:
    body = """
        x = f32[9] parameter(0)
        a = f32[9] sine(x)
        b = f32[9] all-reduce(a), replica_groups={{0,1}}, to_apply=add_f32
        ROOT c = f32[9] negate(b)
        """
    found = boundaries(body)
    assert (found["a"].written_bytes, found["a"].read_bytes) == (36, 0)
    assert (found["b"].written_bytes, found["b"].read_bytes) == (0, 36)


def test_a_barrier_between_kernels_is_explicit() -> None:
    found = boundaries("x = f32[9] parameter(0)\na = f32[9] sine(x)\nb = f32[9] opt-barrier(a)\nROOT c = f32[9] negate(b)")
    assert (found["a"].reason, found["a"].detail) == ("explicit materialisation", "an optimization barrier separates them")


def test_a_copy_into_another_order_is_a_layout_change() -> None:
    found = boundaries("""
        x = f32[30,50]{1,0} parameter(0)
        a = f32[30,50]{1,0} exponential(x)
        b = f32[30,50]{0,1} copy(a)
        c = f32[50,30]{1,0} transpose(a), dimensions={1,0}
        ROOT t = (f32[30,50]{0,1}, f32[50,30]{1,0}) tuple(b, c)
        """)
    assert found["a"].reason == "layout change"


def test_a_scatter_that_adds_is_atomic_and_one_that_sets_is_an_index() -> None:
    scatter = """
        zeros = f32[100,8] parameter(0)
        i = s32[10,1] parameter(1)
        u = f32[10,8] parameter(2)
        s = f32[100,8] scatter(zeros, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}},
          index_vector_dim=1, to_apply={combine}
        ROOT n = f32[100,8] negate(s)
        """.replace("\n          ", " ")
    second = "second {\n p = f32[] parameter(0)\n ROOT q = f32[] parameter(1)\n}"
    assert boundaries(scatter.format(combine="add_f32"))["s"].reason == "atomics"
    found = boundaries(scatter.format(combine="second"), second)["s"]
    assert found.reason == "indexing pattern"
    # The update writes its 80 elements, and negate reads all 800.
    assert (found.written_bytes, found.read_bytes) == (4 * 80, 4 * 800)


def test_a_reduction_split_in_two_leaves_partial_results() -> None:
    found = boundaries("""
        x = f32[64,1000] parameter(0)
        z = f32[] constant(0)
        r = f32[64] reduce(x, z), dimensions={1}, to_apply=add_f32
        ROOT s = f32[] reduce(r, z), dimensions={0}, to_apply=add_f32
        """)
    assert found["r"].reason == "atomics"
    assert "in two kernels" in found["r"].detail


def test_a_reduction_whose_operand_is_read_again_needs_the_whole_row_first() -> None:
    found = boundaries(
        """
        x = f32[64,1000] parameter(0)
        z = f32[] constant(0)
        r = f32[64] reduce(x, z), dimensions={1}, to_apply=add_f32
        ROOT y = f32[64,1000] fusion(x, r), kind=kLoop, calls=divides
        """,
        "divides {\n v = f32[64,1000] parameter(0)\n w = f32[64] parameter(1)\n b = f32[64,1000] broadcast(w), dimensions={0}\n"
        " ROOT d = f32[64,1000] divide(v, b)\n}",
    )
    assert found["r"].reason == "reduction before use"
    assert found["r"].detail == "r must read a whole row before y reads the same operand again"
    assert found["r"].avoidable_bytes == 2 * 4 * 64


def test_a_product_takes_little_in_on_either_side() -> None:
    found = boundaries("""
        x = bf16[64,32] parameter(0)
        w = bf16[32,16] parameter(1)
        e = bf16[64,32] exponential(x)
        d = bf16[64,16] dot(e, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ROOT y = bf16[64,16] tanh(d)
        """)
    assert found["e"].reason == found["d"].reason == "matrix product"
    assert "operand" in found["e"].detail
    assert "result" in found["d"].detail


def test_a_dynamic_shape_is_known_only_when_it_runs() -> None:
    found = boundaries("x = f32[<=100] parameter(0)\na = f32[<=100] exponential(x)\nROOT b = f32[<=100] negate(a)")
    assert found["a"].reason == "dynamic shape"


def test_an_index_is_no_obstacle_and_a_slice_is() -> None:
    found = boundaries("""
        x = f32[100,64] parameter(0)
        i = s32[] parameter(1)
        zero = s32[] constant(0)
        a = f32[100,64] exponential(x)
        s = f32[1,64] dynamic-slice(a, i, zero), dynamic_slice_sizes={1,64}
        ROOT n = f32[1,64] negate(s)
        """)
    assert found["a"].reason == "indexing pattern"
    assert found["a"].read_bytes == 4 * 64  # only the slice is read of it


LOOP = program_text("fusion_report/loop.hlo")
LOOPED = """
x = f32[100] parameter(0)
zero = s32[] constant(0)
start = (s32[], f32[100]) tuple(zero, x)
w = (s32[], f32[100]) while(start), condition=condition, body=body
ROOT y = f32[100] get-tuple-element(w), index=1
"""


def test_a_loop_counts_its_trips() -> None:
    report = fusion_report(module(LOOPED, LOOP), "gpu", chip())
    (one,) = report.boundaries
    assert (one.value, one.count, one.avoidable_bytes) == ("e", 7, 7 * 800)
    assert report.fragmentation.kernels == 4 * 7  # compare, add, exponential and negate
    assert report.fragmentation.distinct == 4


def test_the_fragmentation_counts_kernels_below_the_latency_of_a_launch() -> None:
    report = fusion_report(module(LOOPED, LOOP), "gpu", chip())
    pieces = report.fragmentation
    # A compare reads two numbers and writes a truth value, 9 B, an add moves 12 B: milliseconds. An exponential and a negation move 800 B
    # in 0.8 s, above half a second.
    assert pieces.small_kernels == 14
    assert pieces.small_bytes_share == pytest.approx((9 + 12) / (9 + 12 + 800 + 800))
    assert pieces.small_floor_share == pytest.approx((0.009 + 0.012) / (0.009 + 0.012 + 0.8 + 0.8))
    assert pieces.median_bytes == 12  # of 9, 12, 800 and 800 the lower middle
    assert pieces.launch_latency_s == 0.5


def test_scopes_are_counted() -> None:
    report = fusion_report(
        module("""
        x = f32[9] parameter(0)
        a = f32[9] exponential(x), metadata={op_name="jit(f)/layer0/mlp/exp"}
        ROOT b = f32[9] negate(a), metadata={op_name="jit(f)/layer0/mlp/neg"}
        """),
        "gpu",
    )
    assert report.fragmentation.scopes == (("layer0/mlp", 2),)
    assert report.boundaries[0].scope == "layer0/mlp"


def test_without_a_machine_there_is_no_time() -> None:
    report = fusion_report(module(LOOPED, LOOP), "gpu")
    assert report.machine is None
    assert report.boundaries[0].gain_s is None
    assert report.fragmentation.median_floor_s is None
    assert report.fragmentation.small_kernels is None


def test_vmem_is_no_boundary() -> None:
    tiled = "{0:T(1024)S(1)}"
    body = f"x = f32[4096]{{0:T(1024)}} parameter(0)\na = f32[4096]{tiled} sine(x)\nROOT b = f32[4096]{{0:T(1024)}} negate(a)"
    assert fusion_report(module(body), "tpu").boundaries == ()


def test_the_softmax_of_a_compiled_program_lies_between_two_library_calls() -> None:
    compiled = parse(gzip.decompress((DATA / "hlo" / "h200_scan.hlo.gz").read_bytes()))
    report = fusion_report(compiled, "gpu")
    scores = 2 * 64 * 1024 * 1024  # bf16[64,1024,1024], in each of 8 layers
    found = {one.value: one for one in report.boundaries}
    softmax = next(one for one in report.boundaries if one.shape.startswith("bf16[4,16,1024,1024]"))
    assert (softmax.avoidable_bytes, softmax.count, softmax.reason) == (8 * 2 * scores, 8, "custom call")
    assert softmax.scope == "attn"
    moved = [one for one in found.values() if one.reason == "layout change"]
    assert sum(one.avoidable_bytes for one in moved) == 2_147_483_648
    assert report.notes == ()


@given(programs(moving=True))
def test_sums_agree_and_fusing_leaves_less(body: str) -> None:
    before = module(body)
    report = fusion_report(before, "gpu", chip())
    assert report.bytes == program(before, "gpu").cost.known(HBM)
    assert sum(kernel.avoidable_bytes for kernel in report.kernels) == report.avoidable_bytes
    assert all(kernel.avoidable_bytes <= kernel.bytes for kernel in report.kernels)
    assert all(one.gain_s is not None and one.gain_s >= 0 for one in report.boundaries)
    assert [one.avoidable_bytes for one in report.boundaries] == sorted((one.avoidable_bytes for one in report.boundaries), reverse=True)
    after = fusion_report(fuse(before, "gpu"), "gpu")
    assert after.avoidable_bytes <= report.avoidable_bytes
    assert after.fragmentation.kernels <= report.fragmentation.kernels
