"""PyTorch traces after changes, by the shapes of their ops: what grows with the batch, and attention in one kernel."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from every import every
from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.changes.traced_dimensions import Batch, SequenceLength
from roofline.analysis.what_if import measured_source
from roofline.cost import NOTHING, Cost
from roofline.errors import UsageError
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Attention, Operation, Product, Streamed
from roofline.sources import read
from roofline.workload import Op, Recording, Workload
from torch_writer import BACKWARD, Kernels, steps_of, training


def op(label: str, operation: Operation | None = None, phase: str = "forward", moved: float = 1e9) -> Op:
    cost = {"hbm": operation.bytes if isinstance(operation, Product) else moved}
    if isinstance(operation, Product):
        cost["matrix/bf16"] = operation.flops
    category, sizes = "" if phase else "optimizer", label.partition(" ")[2].removesuffix(" bf16").removesuffix(" fp32")
    shapes = tuple(tuple(map(int, one.split("x"))) for one in sizes.split(", ") if one)
    return Op(name=label, cost=Cost.of(cost), time_s=1e-3, operation=operation, phase=phase, category=category, shapes=shapes)


def product(m: int, k: int, n: int, batch: int = 1) -> Product:
    return Product(m=m, k=k, n=n, batch=batch, left="bf16", right="bf16", out="bf16", compute="bf16")


OPS = (
    op("gelu 8x768x5120 bf16", Streamed(kind="eager")),
    op("addmm 5120, 6144x1280, 1280x5120 bf16", product(6144, 1280, 5120)),
    op("mm 6144x5120, 5120x1280, 6144x1280 bf16", product(6144, 5120, 1280)),
    op("mm 1280x6144, 6144x5120 bf16", product(1280, 6144, 5120), "backward"),
    op("bmm 160x768x64, 160x64x768 bf16", product(768, 64, 768, batch=160)),
    op("_cudnn_attention_forward 8x20x768x64, 8x20x768x64 bf16", Attention(batch=8, heads=20, queries=768, keys=768, size=64)),
    op("copy_ 5120x1280, 5120x1280 fp32", Streamed(kind="eager"), "backward"),
    op("_fused_adamw_", None, ""),
    op("cat", None, "backward"),
)


def scaled(by: str, name: str = "batch", ops: tuple[Op, ...] = OPS) -> tuple[list[Op], list[str]]:
    machine = load("h200")
    recording = Recording(format="torch", workload=Workload(ops))
    state = State(recording, {}, machine, calibration_for(machine).for_kernels())
    change(state, [word for each in name.split() for word in ("scale", f"{each}={by}")])
    return state.ops, state.notes


def test_sizes_that_are_made_of_the_batch_are_known() -> None:
    batch = Batch(OPS)
    assert batch.size == 8
    shapes = ((8, 768, 5120), (6144, 1280), (1280, 6144), (160, 768, 64), (5120, 1280), (1280,))
    assert [batch.axes(shape) for shape in shapes] == [(0,), (0,), (1,), (0,), (), ()]


def test_rows_sums_and_batches_grow_and_weights_stay() -> None:
    ops, notes = scaled("x4")
    sizes = [(one.operation.batch, one.operation.m, one.operation.k, one.operation.n) for one in ops if isinstance(one.operation, Product)]
    assert sizes == [(1, 24576, 1280, 5120), (1, 24576, 5120, 1280), (1, 1280, 24576, 5120), (640, 768, 64, 768)]
    flops = [float(one.cost.flops) for one in ops if isinstance(one.operation, Product)]
    assert flops == [4 * float(one.cost.flops) for one in OPS if isinstance(one.operation, Product)]
    assert isinstance(ops[5].operation, Attention)
    assert ops[5].operation.batch == 32
    assert float(ops[0].cost.known("hbm")) == 4e9
    assert ops[6:] == list(OPS[6:])
    assert any("8 to 32" in note for note in notes)
    assert any("keep their times" in note for note in notes)


def test_weights_are_read_once_whatever_the_batch() -> None:
    (up, *_), was = scaled("x4")[0][1:], OPS[1]
    assert float(up.cost.known("hbm")) - float(was.cost.known("hbm")) == 3 * 2 * 6144 * (1280 + 5120)


def test_a_batch_that_is_no_whole_number_is_refused() -> None:
    with pytest.raises(UsageError, match="no whole number"):
        scaled("x1/16")
    assert scaled("x1/8")[0][1].operation == product(768, 1280, 5120)


FUSED = (*OPS[:4], *OPS[5:])
EAGER = (
    op("addmm 1920, 1024x640, 640x1920 bf16", product(1024, 640, 1920)),
    op("bmm 40x256x64, 40x64x256 bf16", product(256, 64, 256, batch=40)),
    op("_softmax 4x10x256x256 bf16"),
    op("bmm 40x256x256, 40x256x64 bf16", product(256, 256, 64, batch=40)),
    op("add 4x256x640, 256x640 bf16", Streamed(kind="eager")),
    op("nll_loss_forward 1020x5000, 1020 fp32"),
    op("clone 4x255x5000 fp32"),
    op("copy_ 640x1920 fp32"),
)


def growth(ops: list[Op], was: tuple[Op, ...], resource: str = "hbm") -> list[float]:
    return [round(float(one.cost.known(resource)) / float(old.cost.known(resource)), 2) for one, old in zip(ops, was, strict=True)]


@every(("ops", "size"), [(FUSED, 768), (EAGER, 256), (OPS[:4], 768), (OPS[1:4], 0)])
def test_the_length_of_sequences_is_found_in_attention_in_its_scores_or_in_data(ops: tuple[Op, ...], size: int) -> None:
    assert SequenceLength(ops).size == size


def test_fused_attention_grows_by_its_queries_and_keys_and_rows_of_tokens_once() -> None:
    ops, notes = scaled("x2", "sequence", FUSED)
    sizes = [(one.operation.m, one.operation.k, one.operation.n) for one in ops if isinstance(one.operation, Product)]
    assert sizes == [(12288, 1280, 5120), (12288, 5120, 1280), (1280, 12288, 5120)]
    assert ops[4].operation == Attention(batch=8, heads=20, queries=1536, keys=1536, size=64)
    assert float(ops[4].cost.known("hbm")) == 2e9
    assert ops[5:] == list(FUSED[5:])
    assert any("sequence: 768 to 1536" in note for note in notes)
    assert any("keep their times: cat" in note for note in notes)


def test_attention_over_a_cache_reads_more_keys_for_its_one_query() -> None:
    decode = op("_flash_attention_forward 8x20x1x64, 8x20x4096x64 bf16", Attention(batch=8, heads=20, queries=1, keys=4096, size=64))
    rows = op("addmm 5120, 8x1280, 1280x5120 bf16", product(8, 1280, 5120))
    ops, _ = scaled("x2", "sequence", (decode, rows))
    assert ops[0].operation == Attention(batch=8, heads=20, queries=1, keys=8192, size=64)
    assert ops[1] == rows


def test_stored_scores_grow_by_the_square() -> None:
    ops, _ = scaled("x2", "sequence", EAGER)
    sizes = [(one.operation.batch, one.operation.m, one.operation.k, one.operation.n) for one in ops if isinstance(one.operation, Product)]
    assert sizes == [(1, 2048, 640, 1920), (40, 512, 64, 512), (40, 512, 512, 64)]
    assert growth([ops[1], ops[3]], (EAGER[1], EAGER[3]), "matrix/bf16") == [4, 4]
    assert growth([ops[2], *ops[4:]], (EAGER[2], *EAGER[4:])) == [4, 2, 2, 2, 1]


def test_a_weight_as_wide_as_sequences_are_long_stays() -> None:
    ops = (
        op("_flash_attention_forward 4x8x512x64, 4x8x512x64 bf16", Attention(batch=4, heads=8, queries=512, keys=512, size=64)),
        op("mm 2048x512, 512x512 bf16", product(2048, 512, 512)),
        op("mm 2048x512, 512x2048 bf16", product(2048, 512, 2048)),
        op("add 4x512x512 bf16", Streamed(kind="eager")),
        op("copy_ 512x512, 512x512 fp32", Streamed(kind="eager")),
    )
    found, _ = scaled("x2", "sequence", ops)
    assert growth(found[3:], ops[3:]) == [2, 1]
    assert [one.operation for one in found[1:3]] == [product(4096, 512, 512), product(4096, 512, 2048)]


def test_batch_and_sequence_combine() -> None:
    ops, _ = scaled("x2", "batch sequence", FUSED)
    sizes = [(one.operation.m, one.operation.k, one.operation.n) for one in ops if isinstance(one.operation, Product)]
    assert sizes == [(24576, 1280, 5120), (24576, 5120, 1280), (1280, 24576, 5120)]
    assert ops[4].operation == Attention(batch=16, heads=20, queries=1536, keys=1536, size=64)


def test_rows_that_are_looked_up_grow_and_not_their_table() -> None:
    found = replace(op("gather 25600x1280, 6144x1280, 6144x1280 bf16"), category="gather")
    for name in ("batch", "sequence"):
        assert float(scaled("x2", name, (*FUSED, found))[0][-1].cost.known("hbm")) == 2e9


def test_a_dimension_that_no_shape_shows_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"no shapes were recorded.*record_shapes=True"):
        scaled("x2", "batch", [replace(one, shapes=()) for one in OPS])
    with pytest.raises(UsageError, match=r"no tensor of three dimensions or more shows it; give the changed function"):
        scaled("x2", "sequence", OPS[1:4])
    with pytest.raises(UsageError, match="only batch and sequence"):
        scaled("x2", "hidden")


def test_a_trace_has_the_shapes_of_each_ops_first_tensors(tmp_path: Path) -> None:
    found = {one.shapes for one in read(training(2).write(tmp_path / "trace.json")).workload if one.name == "aten::mm"}
    assert found == {((64, 32), (32, 16)), ((32, 64), (64, 16)), ((64, 16), (16, 32))}


def test_operands_of_sixteen_bits_may_lie_either_way() -> None:
    """Matrix units load wider ones along the contracted dimension alone: the gradient of a weight in tf32 takes both the other way."""
    turned = replace(product(1280, 6144, 5120), left="fp32", right="fp32", out="fp32", compute="tf32", turned=2)
    machine = load("h200")
    recording = Recording(format="torch", workload=Workload((replace(OPS[3], operation=turned),)))
    state = State(recording, {}, machine, calibration_for(machine).for_kernels())
    change(state, ["dtype", "bf16"])
    assert state.ops[0].operation == product(1280, 6144, 5120)


def test_flash_attention_of_a_trace_runs_once_a_layer_and_needs_no_copies_of_heads(tmp_path: Path) -> None:
    """Two of the four products of the backward pass have one shape, so that one row has both."""
    heads, tokens, size, layers = 160, 768, 64, 2
    scores, rows, turned, split = (heads, tokens, tokens), (heads, tokens, size), (heads, size, tokens), (8, tokens, 20, size)

    def step(kernels: Kernels) -> None:
        kernels.op("aten::copy_", [(5120, 1280), (5120, 1280)])
        for _ in range(layers):
            kernels.op("aten::copy_", [split, split])
            kernels.op("aten::bmm", [rows, turned])
            kernels.op("aten::_softmax", [scores], values=["-1", "False"])
            kernels.op("aten::bmm", [scores, rows])
        for _ in range(layers):
            for operands in ([scores, rows], [rows, turned], [scores, rows], [turned, scores]):
                kernels.node("BmmBackward0", 1)
                kernels.op("aten::bmm", operands, thread=BACKWARD)

    recording, chip = measured_source(steps_of(step).write(tmp_path / "trace.json"), "h200")
    state = State(recording, {}, chip, calibration_for(chip).for_kernels())
    change(state, ["kernel", "attention=flash"])
    steps = len(recording.steps)
    kernels = [(op.operation.backward, op.count) for op in state.ops if isinstance(op.operation, Attention)]
    assert sorted(kernels) == [(False, layers * steps), (True, layers * steps)]
    copies = {op.shapes[0]: op.cost == NOTHING for op in state.ops if "copy_" in op.name}
    assert copies == {split: True, (5120, 1280): False}
