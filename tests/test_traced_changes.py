"""PyTorch traces after changes, by the shapes of their ops: what grows with the batch, and attention in one kernel."""

import pytest
from msgspec.structs import replace

from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.changes.traced_batch import Batch, shapes_of
from roofline.cost import NOTHING, Cost
from roofline.errors import UsageError
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Attention, Operation, Product, Streamed
from roofline.workload import Avoidable, Op, Recording, Workload


def op(label: str, operation: Operation | None = None, phase: str = "forward", moved: float = 1e9) -> Op:
    cost = {"hbm": operation.bytes if isinstance(operation, Product) else moved}
    if isinstance(operation, Product):
        cost["matrix/bf16"] = operation.flops
    category = "" if phase else "optimizer"
    return Op(name=label, label=label, cost=Cost.of(cost), time_s=1e-3, operation=operation, phase=phase, category=category)


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


def scaled(by: str) -> tuple[list[Op], list[str]]:
    machine = load("h200")
    recording = Recording(format="torch", workload=Workload(OPS))
    state = State(recording, {}, machine, calibration_for(machine).for_kernels())
    change(state, ["scale", f"batch={by}"])
    return state.ops, state.notes


def test_sizes_that_are_made_of_the_batch_are_known() -> None:
    batch = Batch(OPS)
    assert batch.size == 8
    shapes = ((8, 768, 5120), (6144, 1280), (1280, 6144), (160, 768, 64), (5120, 1280), (1280,))
    assert [batch.axis(shape) for shape in shapes] == [0, 0, 1, 0, None, None]


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


def test_shapes_are_read_from_labels_of_traces_only() -> None:
    assert shapes_of("blocks.0  mm 8x4, 4x2 fp32") == [(8, 4), (4, 2)]
    assert shapes_of("layer0/mlp  dot 4096×1024×2816 bf16") == []


def test_flash_attention_of_a_trace_runs_once_a_layer_and_needs_no_copies_of_heads() -> None:
    """Two of the four products of the backward pass have one shape, so that one row has both."""
    reason = Avoidable(kind="stored-attention", instead=NOTHING, why="")
    rows = (("160x768x768, 160x768x64", (768, 768, 64), 2), ("160x64x768, 160x768x768", (64, 768, 768), 1))
    rows += (("160x768x64, 160x64x768", (768, 64, 768), 1),)
    products = tuple(
        replace(op(f"bmm {shapes} bf16", product(*sizes, batch=160), "backward"), count=12 * times, avoidable=(reason,))
        for shapes, sizes, times in rows
    )
    copies = (op("copy_ 8x768x20x64, 8x768x20x64 bf16", None, "backward"), op("copy_ 5120x1280, 5120x1280 bf16", None, "backward"))
    machine = load("h200")
    recording = Recording(format="torch", workload=Workload((*products, *copies)))
    state = State(recording, {}, machine, calibration_for(machine).for_kernels())
    change(state, ["kernel", "attention=flash"])
    kernels = [one for one in state.ops if isinstance(one.operation, Attention)]
    assert [one.count for one in kernels] == [12]
    assert [one.cost == NOTHING for one in state.ops if "copy_" in one.name] == [True, False]
