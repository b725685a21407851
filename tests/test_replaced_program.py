"""What if a function took the place of the program that was measured."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import roofline as rl
from evidence import reviewed_program
from program_texts import program_text
from roofline.analysis.changes.modelled_program import modelled
from roofline.analysis.changes.replaced_program import replaced
from roofline.analysis.expected_times import predict_op
from roofline.hlo.read import parse
from roofline.jax import record
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.workload import Coverage, IdleReason, Recording, Share, Step, Workload

jax = pytest.importorskip("jax")
H200 = load("h200-sxm")


def layer(x, up, down):
    with jax.named_scope("mlp"):
        return jax.nn.gelu(x @ up) @ down


def arguments(rows: int):
    number = jax.numpy.bfloat16
    return tuple(jax.ShapeDtypeStruct(shape, number) for shape in ((rows, 4096), (4096, 16384), (16384, 4096)))


def measured(rows: int, factor: float, idle: tuple[IdleReason, ...] = ()) -> Recording:
    """One call of the layer, every op of which takes so many times its expected time."""
    found = record(layer, H200)(*arguments(rows))
    calibration = calibration_for(H200).for_kernels()
    ops = []
    for op in found.workload:
        prediction = predict_op(op, H200, calibration)
        assert prediction is not None
        ops.append(replace(op, time_s=factor * prediction.time_s))
    busy = sum(op.time_s or 0.0 for op in ops)
    wall = busy + sum(one.time_s for one in idle)
    return replace(found, workload=Workload(tuple(ops)), coverage=Coverage(wall_s=wall, run_s=wall, busy_s=busy), idle=idle)


def total(report: rl.Report):
    return next(point for point in report.points if point.scope == "total" and point.infeed_outfeed)


def test_the_same_program_takes_its_measured_time() -> None:
    before = measured(8192, 1.3)
    report = replaced(before, record(layer, H200)(*arguments(8192)), H200, "layer")
    assert total(report).time_s == pytest.approx(before.coverage.busy_s)
    assert total(report).before_s == pytest.approx(before.coverage.busy_s)
    assert [op.before_s for op in report.ops] == pytest.approx([op.time_s for op in report.ops])
    assert report.changes == ("program", "layer")


def test_a_larger_one_is_anchored_on_the_measured_times() -> None:
    before = measured(8192, 1.3)
    double = record(layer, H200)(*arguments(16384))
    expected = sum(found.time_s for op in double.workload if (found := predict_op(op, H200, calibration_for(H200).for_kernels())))
    seconds = total(replaced(before, double, H200, "layer")).time_s
    assert seconds == pytest.approx(expected * 1.3**0.85, rel=0.03)  # an anchor of products counts 0.85 a doubling


def test_idle_time_of_dispatch_shrinks_as_the_work_grows_and_other_idle_time_stays() -> None:
    idle = (
        IdleReason(kind="dispatch", activity="launches", time_s=1e-4, gaps=9),
        IdleReason(kind="input", activity="load", time_s=2e-3, gaps=1),
    )
    report = replaced(measured(8192, 1.0, idle), record(layer, H200)(*arguments(16384)), H200, "layer")
    point = total(report)
    assert point.time_s == pytest.approx(sum(op.time_s or 0.0 for op in report.ops) + 2e-3)


def test_ops_of_a_new_scope_are_anchored_on_their_kind() -> None:
    def other(x, up, down):
        with jax.named_scope("experts"):
            return jax.nn.gelu(x @ up) @ down

    before = measured(8192, 1.3)
    report = replaced(before, record(other, H200)(*arguments(8192)), H200, "other")
    assert total(report).time_s == pytest.approx(before.coverage.busy_s, rel=0.02)
    assert {op.before_s for op in report.ops} == {0.0}


def test_the_door_takes_a_program_file_and_a_function(tmp_path: Path) -> None:
    text = jax.jit(layer).lower(*arguments(256)).as_text()
    (tmp_path / "layer.mlir").write_text(text, encoding="utf-8")
    report = rl.what_if(tmp_path / "layer.mlir", machine="h200-sxm", program=layer, args=arguments(256))
    assert total(report).time_s == pytest.approx(total(report).before_s, rel=0.05)
    assert "layer instead: " in report.summary


def test_changes_and_a_program_together_are_refused() -> None:
    with pytest.raises(rl.UsageError, match="changes or a program"):
        rl.what_if("run.xplane.pb", "graph", program=layer)


MLP = Path(__file__).parent / "data" / "h200" / "pairs" / "mlp_bf16.xplane.pb.gz"


def narrow(right: int):
    """Four blocks of products of 8-bit floats, whose weights lie with the contracted dimension first (0) or last (1)."""
    wide, byte = jax.numpy.bfloat16, jax.numpy.float8_e4m3fn

    def dot(x, w):
        return jax.lax.dot_general(x.astype(byte), w, (((1,), (right,)), ((), ())), preferred_element_type=wide)

    def blocks(x, weights):
        for up, down in weights:
            x = x + dot(jax.nn.gelu(dot(x, up)), down)
        return x

    shapes = ((4096, 16384), (16384, 4096))
    each = tuple(jax.ShapeDtypeStruct(shape[::-1] if right else shape, byte) for shape in shapes)
    return blocks, (jax.ShapeDtypeStruct((8192, 4096), wide), [each] * 4)


def test_operands_of_8_bit_products_are_copied_where_the_contracted_dimension_is_not_last() -> None:
    copies = []
    for right in (0, 1):
        blocks, args = narrow(right)
        ops = record(blocks, H200, copies=True)(*args).workload
        copies.append([op.operation for op in ops if getattr(op.operation, "kind", "") == "byte transpose"])
    assert [one.elements for one in copies[0]] == [4096 * 16384] * 8
    assert copies[1] == []


def test_weights_that_are_only_transposed_in_the_program_are_not_copied() -> None:
    byte = jax.numpy.float8_e4m3fn

    def f(x, w):
        return jax.lax.dot(x, w.T, preferred_element_type=jax.numpy.bfloat16)

    ops = record(f, H200, copies=True)(*(jax.ShapeDtypeStruct(shape, byte) for shape in ((256, 512), (1024, 512)))).workload
    assert [type(op.operation).__name__ for op in ops] == ["Product"]


def test_a_function_with_8_bit_products_comes_true() -> None:
    blocks, args = narrow(0)
    point = total(rl.what_if(MLP, program=blocks, args=args))
    assert point.time_s == pytest.approx(10.13e-3, rel=0.12)
    assert point.expected.low_s <= 10.13e-3 <= point.expected.high_s


def test_products_widen_weights_of_8_bits_on_the_way() -> None:
    wide = jax.numpy.bfloat16

    def f(x, w):
        return x @ (w.astype(wide) * wide(0.01))

    args = jax.ShapeDtypeStruct((4, 4096), wide), jax.ShapeDtypeStruct((4096, 16384), jax.numpy.int8)
    (op,) = record(f, H200, copies=True)(*args).workload
    assert op.cost["hbm"] == 4096 * 16384 + 2 * 4 * (4096 + 16384) + 2  # and the scale
    assert len(record(f, H200)(*args).workload.ops) == 2  # by itself a library reads what another kernel has widened


def test_the_bounds_of_a_function_know_that_the_host_may_be_late() -> None:
    before = measured(
        8192, 1.0, (IdleReason(kind="dispatch", activity="f", time_s=4e-3, gaps=1, by_step=(Share(key=0, count=1, time_s=4e-3),)),)
    )
    busy = before.coverage.busy_s
    late = replace(before, steps=(Step(step=0, time_s=busy + 4e-3, busy_s=busy),))
    quick = total(replaced(late, record(layer, H200)(*arguments(4096)), H200, "layer"))
    assert quick.expected.low_s < quick.time_s - 4e-3 < quick.time_s + 4e-3 < quick.expected.high_s


TWO_KERNELS = program_text("replaced_program/two_kernels.hlo")


def test_what_a_compiler_stores_beyond_the_model_goes_over_to_the_function() -> None:
    def softened(x):
        y = jax.numpy.tanh(x)
        return y + y

    module = parse(TWO_KERNELS.encode(), "two")
    ops = tuple(replace(op, time_s=1e-4) for op in reviewed_program(module, "gpu").ops)
    before = Recording(format="xspace", workload=Workload(ops), coverage=Coverage(wall_s=2e-4, run_s=2e-4, busy_s=2e-4))
    function = record(softened, H200)(jax.ShapeDtypeStruct((8192, 4096), jax.numpy.float32))
    assert len(function.workload.ops) == 1  # the model makes one kernel of what the compiler made two
    report = replaced(before, function, H200, "softened", {module.name: module})
    assert total(report).time_s == pytest.approx(2e-4)
    assert total(replaced(before, function, H200, "softened")).time_s == pytest.approx(1e-4)


def test_what_a_compiled_program_computes_twice_stays_twice() -> None:
    text = TWO_KERNELS.replace("add(%q, %q)", "tanh(%q)").replace("fusion(%stored)", "fusion(%x)")
    again = text.replace("ROOT %made", "%made").replace("\n}\n", "\n  ROOT %both = f32[8192,4096]{1,0} add(%stored, %made)\n}\n")
    module = parse((text[: text.index("ENTRY")] + again[again.index("ENTRY") :]).encode(), "twice")
    ops = tuple(replace(op, time_s=1e-4) for op in reviewed_program(module, "gpu").ops)
    before = Recording(format="xspace", workload=Workload(ops))
    functions = [float(op.cost.known("vector/transcendental")) * runs for op, runs in modelled(before, {module.name: module}, (), "gpu")]
    assert sum(functions) == 2 * 8192 * 4096
