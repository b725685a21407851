"""Collectives that the TPU compiler hides under products: several fusions have a copy of one, and its bytes are counted once."""

import gzip
from pathlib import Path

import pytest

from every import every
from evidence import reviewed_program
from hlo_programs import SHARED
from priced import DATA, amounts
from program_texts import program_text
from roofline.hlo.ir.module import HloModule
from roofline.hlo.price.program import executed, program
from roofline.hlo.read import parse

LAYERS = DATA / "tpu" / "gathered_layers_v5e.hlo.txt.gz"  # 8 layers of two weights of 4096 x 4096, each over 16 chips
WEIGHT = 4096 * 4096 * 2
STATE = "s32[2]{0:S(4)}, u32[]{:S(2)}"


def read(path: Path) -> HloModule:
    return parse(gzip.decompress(path.read_bytes()), path.name)


@every("form", ["txt", "pb"])
def test_a_gather_hidden_under_a_product_is_counted_where_it_starts(form: str) -> None:
    module = read(LAYERS.with_name(f"gathered_layers_v5e.hlo.{form}.gz"))
    ops = {one.op.name: one for one in executed(module, "tpu")}
    gathering = {name: one.price.cost["ici"] for name, one in ops.items() if one.price.cost["ici"]}
    # 15/16 of a weight comes in over both directions of a ring. The first weight is gathered alone, the second under the product with it.
    assert gathering == {"all-gather.22": WEIGHT * 15 // 32, "async-collective-start": WEIGHT * 15 // 32}
    assert (ops["async-collective-start"].price.category, ops["async-collective-start"].runs) == ("all-gather", 8)
    assert "async-collective-done" not in ops
    # Its links are busy while the products run.
    assert [name for name, one in ops.items() if one.op.compiled.beside and one.price.cost["ici"]] == ["async-collective-start"]
    assert not program(module, "tpu").cost.unknown


def test_a_product_that_carries_a_step_of_a_gather_keeps_its_own_work_and_bytes() -> None:
    cost = next(one.price.cost for one in executed(read(LAYERS), "tpu") if one.op.name == "fusion.25")
    assert cost["matrix/bf16"] == 2 * 2048 * 4096 * 4096
    assert "ici" not in amounts(cost)
    # Activations and weights are in VMEM: 2,048 rows in and out, and a weight.
    rows = 2048 * 4096 * 2
    assert (cost["vmem.read"], cost["vmem.write"], cost["hbm"]) == (rows + WEIGHT, rows, 0)


def test_a_fusion_that_starts_a_gather_is_named_after_it() -> None:
    labels = {op.name: str(op.label) for op in reviewed_program(read(LAYERS), "tpu").ops}
    assert labels["async-collective-start"].endswith("all-gather bf16[1,4096,4096]")


HAND = program_text("price_fused_collectives/hand.hlo", STATE=STATE)


def test_a_step_beside_elementwise_work_reads_and_writes_only_that_work() -> None:
    found = {one.op.name: amounts(one.price.cost) for one in executed(parse(HAND), "tpu")}
    assert found["s"]["ici"] == 1024 * 4 * 3 // 8  # three quarters of the result over two directions
    assert found["m"] == {"hbm": 2 * 512 * 4, "vector/fp32": 512}
    assert "d" not in found


def test_another_kind_of_collective_may_have_the_same_channel() -> None:
    # The compiler numbers channels of all-reduces and all-gathers apart: the reduce-scatter of channel 7 is not a step of the gather.
    found = {one.op.name: one.price for one in executed(parse(HAND), "tpu")}
    assert (found["r"].category, found["r"].cost["ici"]) == ("reduce-scatter", 1024 * 4 * 3 // 8)


# Of 32 layers with four weights of 4096 x 8192 and three of 4096 x 28672, over a ring of 256: both passes gather them, which is half of
# them through a link, and their gradients are all-reduced, which is all of them. So are the embedding's and the head's, gathered once.
LAYER, EMBEDDING = 2 * (4 * 4096 * 8192 + 3 * 4096 * 28672), 2 * 32000 * 4096
MT16 = 255 / 256 * (32 * 2 * LAYER + 2 * 1.5 * EMBEDDING)


@pytest.mark.skipif(not (SHARED / "tpu" / "more").exists(), reason="the shared TPU programs are not here")
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("train_mt16_v5e", MT16),
        ("train_s_v5e", 1.161e9),  # its head of 131 MB is gathered under a loop over four layers: once, not once a layer
        ("train_l7_v6e_plain", 35.98e9),  # windowed products permute, and nothing is hidden
    ],
)
def test_training_steps_count_each_channel_once(name: str, total: float) -> None:
    module = read(SHARED / "tpu" / "more" / f"{name}.pb.gz")
    assert float(program(module, "tpu").cost["ici"]) == pytest.approx(total, rel=1e-3)  # type: ignore[arg-type]
