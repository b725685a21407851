"""Work that the TPU compiler hands to SparseCores: what runs there is what is counted."""

import gzip

import pytest

from every import every
from hlo_programs import SHARED
from priced import amounts
from program_texts import program_text
from roofline.hlo.price.program import executed, program
from roofline.hlo.read import parse

ROWS = program_text("sparse_cores/rows.hlo")


ROWS = ROWS.replace("GATHERED", "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}")


@every(
    "call",
    [
        "call(%t, %i), to_apply=%taken",
        'custom-call(%t, %i), custom_call_target="TODO(b/1)", called_computations={%taken}',  # as libtpu 0.0.42.1 writes it
    ],
)
def test_a_gather_on_a_sparse_core_is_a_gather(call: str) -> None:
    found = {one.op.name: one.price for one in executed(parse(ROWS.replace("CALL", call)), "tpu")}
    # Ten rows of 32 bytes, read and written, and their numbers.
    assert {name: (price.category, amounts(price.cost)) for name, price in found.items()} == {"s": ("gather", {"hbm": 2 * 320 + 40})}


def test_a_custom_call_whose_computation_is_applied_to_parts_is_not_a_call() -> None:
    call = 'custom-call(%t, %i), custom_call_target="sorted", called_computations={%less}'
    less = "%less {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  ROOT %c = pred[] compare(%a, %b), direction=LT\n}\n\nENTRY"
    cost = program(parse(ROWS.replace("CALL", call).replace("ENTRY", less)), "tpu").cost
    assert cost.unknown


@pytest.mark.skipif(not (SHARED / "tpu" / "more").exists(), reason="the shared TPU programs are not here")
def test_the_gather_of_an_embedding_on_a_sparse_core_reads_and_writes_its_rows() -> None:
    path = SHARED / "tpu" / "more" / "embedding_v6e.hlo.gz"
    ops = {one.op.name: one for one in executed(parse(gzip.decompress(path.read_bytes()), path.name), "tpu")}
    assert amounts(ops["gather_offload_async_start"].price.cost) == {"hbm": 2 * 65536 * 1024 * 2 + 65536 * 4}
    assert not any(one.price.cost.unknown for one in ops.values())
