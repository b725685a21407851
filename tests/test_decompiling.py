"""Programs compiled for a CPU, analyzed for an accelerator: the formats, bytes and exchanges of the source."""

from fractions import Fraction

import pytest

from every import every
from program_texts import program_text
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
WIDENED = program_text("decompiling/widened.hlo")


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
LOOP = program_text("decompiling/loop.hlo")


def test_what_a_loop_carries_is_narrow_again() -> None:
    products = [op for op in run(LOOP).ops if op.cost["matrix/bf16"]]
    assert [(op.count, op.cost) for op in products] == [(5, Cost.of({"matrix/bf16": 5 * PRODUCT, "hbm": 5 * 3 * SQUARE * 2}))]
    assert not [op for op in run(LOOP).ops if "convert" in op.name]


# A partial product, all-reduced in fp32 because the CPU's reductions have no bf16: XLA marks what it widened.
SHARED = program_text("decompiling/shared.hlo")


def test_a_widened_reduction_over_devices_crosses_links_in_the_sources_format() -> None:
    found = total(run(SHARED.replace("PROMOTED", "promoted"), "tpu"))
    assert found["matrix/bf16"] == PRODUCT // 8
    assert found["hbm"] == 2 * (2 * 256 * 32 + SQUARE)
    assert found["ici"] == 2 * 7 * SQUARE * 2 // 8 // 2  # half each way round the ring


def test_a_reduction_that_the_source_wants_in_fp32_stays_there() -> None:
    assert total(run(SHARED.replace("PROMOTED", "1"), "tpu"))["ici"] == 2 * 7 * SQUARE * 4 // 8 // 2


def test_a_gather_over_devices_of_widened_shards_moves_the_narrow_ones() -> None:
    text = program_text("decompiling/a_gather_over_devices_of_widened_shards_moves_the_narrow_ones.hlo")
    found = total(run(text, "tpu"))
    assert (found["ici"], found["hbm"]) == (7 * SQUARE * 2 // 8 // 2, SQUARE * (2 + 2 + 4))


def test_a_transpose_before_a_product_is_one_of_its_operands() -> None:
    text = program_text("decompiling/a_transpose_before_a_product_is_one_of_its_operands.hlo").replace(
        "DIMENSIONS", "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}"
    )
    found = run(text).ops
    assert len(found) == 1
    assert found[0].cost == Cost.of({"matrix/bf16": 2 * 4 * 8 * 64 * 64 * 32, "hbm": 2 * 2 * 4 * 64 * 8 * 32 + 4 * 4 * 8 * 64 * 64})


# One all-reduce of two values, as XLA's CPU compiler combines them: an fp32 sum of the source, and a widened product.
COMBINED = program_text("decompiling/combined.hlo")


def test_values_that_were_added_up_together_each_cross_links_in_their_own_format() -> None:
    found = total(run(COMBINED, "tpu"))
    assert found["ici"] == Fraction(2 * 7 * (SQUARE * 2 + 512 * 4), 8 * 2)
    assert found["hbm"] == 2 * (2 * 256 * 32 + SQUARE)


# A loop that all-reduces a product and keeps this device's columns; where they start was worked out before the loop.
SCATTERED = program_text("decompiling/scattered.hlo")


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
    text = program_text("decompiling/a_widened_scatter_adds_in_the_format_of_the_source.hlo")
    narrow = text.replace("  %t.1 = f32[4096,64]{1,0} convert(%t)\n  %u.1 = f32[32,64]{1,0} convert(%u)\n", "")
    narrow = narrow.replace("(%t.1, %i, %u.1)", "(%t, %i, %u)").replace("%s = f32", "ROOT %s = bf16").replace("is_scheduled=true", "")
    narrow = narrow[: narrow.index("  ROOT %out")] + "}\n"
    source = fuse(parse(narrow.replace("scattered, ", "scattered").encode(), "test"), "gpu")
    assert total(run(text))["hbm"] == total(program(source, "gpu"))["hbm"]
