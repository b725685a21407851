"""Programs compiled for a CPU, analyzed for an accelerator: the formats, bytes and exchanges of the source."""

from fractions import Fraction

import pytest

from every import every
from roofline.cost import Cost
from roofline.hlo.fusion.compiler_model import fuse
from roofline.hlo.fusion.decompiling import decompiled
from roofline.hlo.fusion.reduce_scatters import with_reduce_scatters
from roofline.hlo.price.program import program
from roofline.hlo.read import parse
from roofline.machines import load
from roofline.sources.programs import prepared
from roofline.workload import Workload

N = 256
SQUARE = N * N
PRODUCT = 2 * N**3


def run(text: str, platform: str = "gpu") -> Workload:
    return program(fuse(decompiled(parse(text.encode(), "test")), platform), platform)  # type: ignore[arg-type]


def total(found: Workload) -> Cost:
    return sum((op.cost for op in found.ops), Cost())


# What XLA's CPU compiler makes of a product: operands widened by kernels of their own, the result narrowed by another.
WIDENED = """HloModule widened, is_scheduled=true
%product (a: f32[256,256], b: f32[256,256]) -> f32[256,256] {
  %a = f32[256,256]{1,0} parameter(0)
  %b = f32[256,256]{1,0} parameter(1)
  ROOT %dot = f32[256,256]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general"}
}
%widen (x: NARROW[256,256]) -> f32[256,256] {
  %x = NARROW[256,256]{1,0} parameter(0)
  ROOT %convert.1 = f32[256,256]{1,0} convert(%x)NAMED
}
%widen.1 (y: NARROW[256,256]) -> f32[256,256] {
  %y = NARROW[256,256]{1,0} parameter(0)
  ROOT %convert.2 = f32[256,256]{1,0} convert(%y)NAMED
}
%narrow (z: f32[256,256]) -> NARROW[256,256] {
  %z = f32[256,256]{1,0} parameter(0)
  ROOT %convert.3 = NARROW[256,256]{1,0} convert(%z)NAMED
}
ENTRY %main (p: NARROW[256,256], q: NARROW[256,256]) -> NARROW[256,256] {
  %p = NARROW[256,256]{1,0} parameter(0)
  %q = NARROW[256,256]{1,0} parameter(1)
  %left = f32[256,256]{1,0} fusion(%p), kind=kLoop, calls=%widen
  %right = f32[256,256]{1,0} fusion(%q), kind=kLoop, calls=%widen.1
  %wide = f32[256,256]{1,0} fusion(%left, %right), kind=kCustom, calls=%product
  ROOT %out = NARROW[256,256]{1,0} fusion(%wide), kind=kLoop, calls=%narrow
}
"""


def widened(narrow: str, named: str = "") -> str:
    return WIDENED.replace("NARROW", narrow).replace("NAMED", f', metadata={{op_name="{named}"}}' if named else "")


@every(("narrow", "rate", "size"), [("bf16", "bf16", 2), ("f16", "fp16", 2), ("f8e4m3fn", "fp8", 1)])
def test_a_widened_product_runs_in_the_format_of_the_source(narrow: str, rate: str, size: int) -> None:
    found = total(run(widened(narrow)))
    assert found == Cost.of({f"matrix/{rate}": PRODUCT, "hbm": 3 * SQUARE * size})


def test_a_conversion_that_the_source_asked_for_stays() -> None:
    assert total(run(widened("bf16", "jit(f)/convert_element_type")))["matrix/tf32"] == PRODUCT


def test_a_program_for_a_cpu_is_taken_for_the_chip_asked_for_and_a_note_says_so() -> None:
    module = parse(widened("bf16").encode(), "test")
    ready, platform, notes = prepared(module, load("h200"))
    assert total(program(ready, platform))["matrix/bf16"] == PRODUCT
    assert len(notes) == 1
    assert "compiled for a CPU: estimate for h200-sxm" in notes[0]
    # Without a chip, and for a CPU, it stays what its compiler made of it.
    assert prepared(module) == (module, "cpu", [])


def test_a_program_without_a_sign_of_its_compiler_keeps_its_kernels_and_runs_on_the_chips_units() -> None:
    text = """HloModule plain, is_scheduled=true
ENTRY %main (a: f32[256,256], b: f32[256,256]) -> f32[256,256] {
  %a = f32[256,256]{1,0} parameter(0)
  %b = f32[256,256]{1,0} parameter(1)
  ROOT %product = f32[256,256]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    module = parse(text.encode(), "test")
    assert prepared(module, load("h200")) == (module, "gpu", [])
    assert prepared(module, load("v5e")) == (module, "tpu", [])


# Conversions of what a loop does not change are moved out of it, so that it carries fp32.
LOOP = """HloModule loop, is_scheduled=true
%body (s: (s32[], bf16[256,256], f32[256,256])) -> (s32[], bf16[256,256], f32[256,256]) {
  %s = (s32[], bf16[256,256]{1,0}, f32[256,256]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %h = bf16[256,256]{1,0} get-tuple-element(%s), index=1
  %w = f32[256,256]{1,0} get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %wide = f32[256,256]{1,0} convert(%h)
  %dot = f32[256,256]{1,0} dot(%wide, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general"}
  %narrow = bf16[256,256]{1,0} convert(%dot)
  ROOT %t = (s32[], bf16[256,256]{1,0}, f32[256,256]{1,0}) tuple(%next, %narrow, %w)
}
%condition (s.1: (s32[], bf16[256,256], f32[256,256])) -> pred[] {
  %s.1 = (s32[], bf16[256,256]{1,0}, f32[256,256]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}
ENTRY %main (h.1: bf16[256,256], w.1: bf16[256,256]) -> bf16[256,256] {
  %h.1 = bf16[256,256]{1,0} parameter(0)
  %w.1 = bf16[256,256]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %wide.1 = f32[256,256]{1,0} convert(%w.1)
  %start = (s32[], bf16[256,256]{1,0}, f32[256,256]{1,0}) tuple(%zero, %h.1, %wide.1)
  %while = (s32[], bf16[256,256]{1,0}, f32[256,256]{1,0}) while(%start), condition=%condition, body=%body, metadata={op_name="jit(f)/while"}
  ROOT %result = bf16[256,256]{1,0} get-tuple-element(%while), index=1
}
"""


def test_what_a_loop_carries_is_narrow_again() -> None:
    products = [op for op in run(LOOP).ops if op.cost["matrix/bf16"]]
    assert [(op.count, op.cost) for op in products] == [(5, Cost.of({"matrix/bf16": 5 * PRODUCT, "hbm": 5 * 3 * SQUARE * 2}))]
    assert not [op for op in run(LOOP).ops if "convert" in op.name]


# A partial product, all-reduced in fp32 because the CPU's reductions have no bf16: XLA marks what it widened.
SHARED = """HloModule shared, is_scheduled=true, num_partitions=8
%sum.clone_PROMOTED (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
ENTRY %main (x: bf16[256,32], w: bf16[32,256]) -> bf16[256,256] {
  %x = bf16[256,32]{1,0} parameter(0)
  %w = bf16[32,256]{1,0} parameter(1)
  %x.1 = f32[256,32]{1,0} convert(%x)
  %w.1 = f32[32,256]{1,0} convert(%w)
  %dot = f32[256,256]{1,0} dot(%x.1, %w.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general"}
  %all = f32[256,256]{1,0} all-reduce(%dot), replica_groups=[1,8]<=[8], to_apply=%sum.clone_PROMOTED, metadata={op_name="jit(f)/psum"}
  ROOT %out = bf16[256,256]{1,0} convert(%all), metadata={op_name="jit(f)/psum"}
}
"""


def test_a_widened_reduction_over_devices_crosses_links_in_the_sources_format() -> None:
    found = total(run(SHARED.replace("PROMOTED", "promoted"), "tpu"))
    assert found["matrix/bf16"] == PRODUCT // 8
    assert found["hbm"] == 2 * (2 * 256 * 32 + SQUARE)
    assert found["ici"] == 2 * 7 * SQUARE * 2 // 8 // 2  # half each way round the ring


def test_a_reduction_that_the_source_wants_in_fp32_stays_there() -> None:
    assert total(run(SHARED.replace("PROMOTED", "1"), "tpu"))["ici"] == 2 * 7 * SQUARE * 4 // 8 // 2


def test_a_gather_over_devices_of_widened_shards_moves_the_narrow_ones() -> None:
    text = """HloModule gathered, is_scheduled=true, num_partitions=8
ENTRY %main (x: bf16[32,256], w: bf16[256,256]) -> f32[256,256] {
  %x = bf16[32,256]{1,0} parameter(0)
  %w = bf16[256,256]{1,0} parameter(1)
  %x.1 = f32[32,256]{1,0} convert(%x)
  %all = f32[256,256]{1,0} all-gather(%x.1), replica_groups=[1,8]<=[8], dimensions={0}, metadata={op_name="jit(f)/dot_general"}
  %w.1 = f32[256,256]{1,0} convert(%w)
  ROOT %dot = f32[256,256]{1,0} dot(%all, %w.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general"}
}
"""
    found = total(run(text, "tpu"))
    assert (found["ici"], found["hbm"]) == (7 * SQUARE * 2 // 8 // 2, SQUARE * (2 + 2 + 4))


def test_a_transpose_before_a_product_is_one_of_its_operands() -> None:
    text = """HloModule transposed, is_scheduled=true
ENTRY %main (q: bf16[4,64,8,32], k: bf16[4,8,32,64]) -> f32[4,8,64,64] {
  %q = bf16[4,64,8,32]{3,2,1,0} parameter(0)
  %k = bf16[4,8,32,64]{3,2,1,0} parameter(1)
  %turned = bf16[4,8,64,32]{3,1,2,0} transpose(%q), dimensions={0,2,1,3}
  %copy = bf16[4,8,64,32]{3,2,1,0} copy(%turned)
  ROOT %dot = f32[4,8,64,64]{3,2,1,0} dot(%copy, %k), DIMENSIONS
}
""".replace("DIMENSIONS", "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}")
    found = run(text).ops
    assert len(found) == 1
    assert found[0].cost == Cost.of({"matrix/bf16": 2 * 4 * 8 * 64 * 64 * 32, "hbm": 2 * 2 * 4 * 64 * 8 * 32 + 4 * 4 * 8 * 64 * 64})


# One all-reduce of two values, as XLA's CPU compiler combines them: an fp32 sum of the source, and a widened product.
COMBINED = """HloModule combined, is_scheduled=true, num_partitions=8
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
ENTRY %main (x: bf16[256,32], w: bf16[32,256], s: f32[512]) -> (bf16[256,256], f32[512]) {
  %x = bf16[256,32]{1,0} parameter(0)
  %w = bf16[32,256]{1,0} parameter(1)
  %s = f32[512]{0} parameter(2)
  %x.1 = f32[256,32]{1,0} convert(%x)
  %w.1 = f32[32,256]{1,0} convert(%w)
  %dot = f32[256,256]{1,0} dot(%x.1, %w.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general"}
  %both = (f32[512]{0}, f32[256,256]{1,0}) all-reduce(%s, %dot), replica_groups=[1,8]<=[8], to_apply=%sum
  %first = f32[512]{0} get-tuple-element(%both), index=0
  %second = f32[256,256]{1,0} get-tuple-element(%both), index=1
  %out = bf16[256,256]{1,0} convert(%second), metadata={op_name="jit(f)/dot_general"}
  ROOT %t = (bf16[256,256]{1,0}, f32[512]{0}) tuple(%out, %first)
}
"""


def test_values_that_were_added_up_together_each_cross_links_in_their_own_format() -> None:
    found = total(run(COMBINED, "tpu"))
    assert found["ici"] == Fraction(2 * 7 * (SQUARE * 2 + 512 * 4), 8 * 2)
    assert found["hbm"] == 2 * (2 * 256 * 32 + SQUARE)


# A loop that all-reduces a product and keeps this device's columns; where they start was worked out before the loop.
SCATTERED = """HloModule scattered, is_scheduled=true, num_partitions=8
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
%body (s: (s32[], f32[256,32], f32[32,256], s32[])) -> (s32[], f32[256,32], f32[32,256], s32[]) {
  %s = (s32[], f32[256,32]{1,0}, f32[32,256]{1,0}, s32[]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %h = f32[256,32]{1,0} get-tuple-element(%s), index=1
  %w = f32[32,256]{1,0} get-tuple-element(%s), index=2
  %from = s32[] get-tuple-element(%s), index=3
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %dot = f32[256,256]{1,0} dot(%h, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general"}
  %all = f32[256,256]{1,0} all-reduce(%dot), replica_groups=[1,8]<=[8], to_apply=%sum
  %own = f32[256,32]{1,0} dynamic-slice(%all, %zero, %from), dynamic_slice_sizes={256,32}
  ROOT %t = (s32[], f32[256,32]{1,0}, f32[32,256]{1,0}, s32[]) tuple(%next, %own, %w, %from)
}
%condition (s.1: (s32[], f32[256,32], f32[32,256], s32[])) -> pred[] {
  %s.1 = (s32[], f32[256,32]{1,0}, f32[32,256]{1,0}, s32[]) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}
ENTRY %main (h.1: f32[256,32], w.1: f32[32,256]) -> f32[256,32] {
  %h.1 = f32[256,32]{1,0} parameter(0)
  %w.1 = f32[32,256]{1,0} parameter(1)
  %zero.1 = s32[] constant(0)
  %me = u32[] WHO
  %me.1 = s32[] convert(%me)
  %width = s32[] constant(32)
  %from.1 = s32[] multiply(%me.1, %width)
  %start = (s32[], f32[256,32]{1,0}, f32[32,256]{1,0}, s32[]) tuple(%zero.1, %h.1, %w.1, %from.1)
  %while = (s32[], f32[256,32]{1,0}, f32[32,256]{1,0}, s32[]) while(%start), condition=%condition, body=%body
  ROOT %result = f32[256,32]{1,0} get-tuple-element(%while), index=1
}
"""


def test_an_all_reduce_of_which_each_device_keeps_its_part_is_a_reduce_scatter() -> None:
    own, count = with_reduce_scatters(decompiled(parse(SCATTERED.replace("WHO", "partition-id()").encode(), "test")))
    assert count == 1
    found = total(program(fuse(own, "tpu"), "tpu"))
    assert found["ici"] == Fraction(5 * 7 * SQUARE * 4, 8 * 2)
    # The product alone: what each device keeps is the exchange's own.
    assert found["hbm"] == pytest.approx(5 * 4 * (2 * 256 * 32 + SQUARE), rel=1e-3)  # and a few scalars


def test_an_all_reduce_of_which_all_devices_keep_the_same_part_stays() -> None:
    same, count = with_reduce_scatters(decompiled(parse(SCATTERED.replace("WHO", "constant(3)").encode(), "test")))
    assert count == 0
    assert total(program(fuse(same, "tpu"), "tpu"))["ici"] == Fraction(5 * 2 * 7 * SQUARE * 4, 8 * 2)


def test_a_widened_scatter_adds_in_the_format_of_the_source() -> None:
    text = """HloModule scattered, is_scheduled=true
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
ENTRY %main (t: bf16[4096,64], i: s32[32,1], u: bf16[32,64]) -> bf16[4096,64] {
  %t = bf16[4096,64]{1,0} parameter(0)
  %i = s32[32,1]{1,0} parameter(1)
  %u = bf16[32,64]{1,0} parameter(2)
  %t.1 = f32[4096,64]{1,0} convert(%t)
  %u.1 = f32[32,64]{1,0} convert(%u)
  %s = f32[4096,64]{1,0} scatter(%t.1, %i, %u.1), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=%sum, metadata={op_name="jit(f)/scatter-add"}
  ROOT %out = bf16[4096,64]{1,0} convert(%s), metadata={op_name="jit(f)/scatter-add"}
}
"""
    narrow = text.replace("  %t.1 = f32[4096,64]{1,0} convert(%t)\n  %u.1 = f32[32,64]{1,0} convert(%u)\n", "")
    narrow = narrow.replace("(%t.1, %i, %u.1)", "(%t, %i, %u)").replace("%s = f32", "ROOT %s = bf16").replace("is_scheduled=true", "")
    narrow = narrow[: narrow.index("  ROOT %out")] + "}\n"
    source = fuse(parse(narrow.replace("scattered, ", "scattered").encode(), "test"), "gpu")
    assert total(run(text))["hbm"] == total(program(source, "gpu"))["hbm"]
