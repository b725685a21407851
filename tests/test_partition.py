"""Programs that are still to be partitioned: the shapes, FLOP, bytes and exchanges of one device, by hand arithmetic."""

from contextlib import suppress
from fractions import Fraction

from every import every
from program_texts import program_text
from roofline.cost import Cost
from roofline.errors import SourceError
from roofline.hlo.fusion.fusion_report import fusion_report
from roofline.hlo.ir.shardings import meshes_of, parse_sharding, parse_shardings
from roofline.hlo.partition.one_device import devices_of, partitioned
from roofline.hlo.price.program import program
from roofline.hlo.read import parse
from roofline.machines import load
from roofline.sources.programs import prepared

H100 = load("h100-sxm")
X, Y = ((4, 2),), ((2, 2), (1, 2))  # the axes of 8 devices as 2 x 4


def ready(text: str) -> tuple[Cost, dict[str, int], list[str]]:
    """The cost of one device, the bytes that each collective takes in, and the notes."""
    module, platform, notes = prepared(parse(text.encode(), "test"), H100)
    entered: dict[str, int] = {}
    for computation in module:
        for one in computation.instructions:
            if one.replica_groups is not None and one.opcode != "fusion":
                name = f"{one.opcode} {one.replica_groups.size}"
                entered[name] = entered.get(name, 0) + sum(computation[operand].shape.bytes for operand in one.operands)
    return sum((op.cost for op in program(module, platform)), Cost()), entered, notes


@every(
    ("text", "expected"),
    [
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", (X, ())),
        ("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", ((), Y)),
        ("{devices=[2,4]0,1,2,3,4,5,6,7}", (X, Y)),
        ("{devices=[4,2]<=[2,4]T(1,0)}", (Y, X)),
        ("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dims={manual}}", (Y, ())),
        ('#sdy.sharding<@mesh, [{"x"}, {"y", ?}]>', (X, Y)),
        ('#sdy.sharding<@mesh, [{"y":(1)2}, {}]>', (((2, 2),), ())),
        ("{mesh['x'=2,'y'=4], [{'x', 'y'}, {}]}", ((*X, *Y), ())),
        ("{replicated}", ((), ())),
        ("{maximal device=3}", ((), ())),
        ('<@nowhere, [{"x"}, {}]>', None),
    ],
)
def test_a_sharding_names_the_devices_alike_in_every_spelling(text: str, expected: object) -> None:
    assert parse_sharding(text, 2, meshes_of('{mesh = #sdy.mesh<["x"=2, "y"=4]>}')) == expected


def test_shardings_of_tuples_are_taken_apart() -> None:
    given = "{{devices=[2,1,4]<=[8] last_tile_dim_replicate}, /*index=1*/{replicated}}"
    assert parse_shardings(given, (2, 1), {}) == ((X, ()), ((),))


MLP = program_text("partition/mlp.hlo")


def test_a_tensor_parallel_mlp_splits_both_products_and_adds_up_the_second() -> None:
    cost, entered, notes = ready(MLP)
    # x[128,512] w1[512,512], then t[128,512] w2[512,512]; tanh of [128,512] between them.
    assert cost["matrix/bf16"] == 2 * 2 * 128 * 512 * 512
    assert cost["hbm"] == 2 * 2 * (128 * 512 + 512 * 512 + 128 * 512) + 2 * 2 * 128 * 512
    assert entered == {"all-reduce 4": 128 * 512 * 2}
    assert "one of 8 devices, split by its shardings (3 annotated, the others inferred)" in notes[1]
    assert notes[1].endswith("collectives estimated as XLA would add them: 1 all-reduce")


def test_the_number_of_devices_is_that_of_the_shardings_where_the_header_does_not_say() -> None:
    assert devices_of(parse(MLP.encode(), "test")) == 8
    assert devices_of(parse(MLP.replace("mlp\n", "mlp, num_partitions=8\n", 1).encode(), "test")) == 8
    assert devices_of(parse(b"HloModule m\nENTRY main {\n  ROOT x = f32[8] parameter(0), sharding={replicated}\n}\n", "test")) == 1


@every("sharding", ["devices=[DIGITS]<=[DIGITS]", "devices=[2]DIGITS,1", "mesh['x'=DIGITS], [{'x':(DIGITS)DIGITS}]"])
def test_numbers_that_no_sharding_has_are_no_crash(sharding: str) -> None:
    # Python refuses to make a number of more than 4,300 digits.
    text = f"HloModule m\nENTRY main {{\n  ROOT x = f32[8] parameter(0), sharding={{{sharding.replace('DIGITS', '9' * 5000)}}}\n}}\n"
    assert devices_of(parse(text.encode(), "test")) >= 1
    with suppress(SourceError):
        partitioned(parse(text.encode(), "test"))


def test_what_is_replicated_runs_whole_on_every_device() -> None:
    replicated = "sharding={replicated}"
    text = MLP.replace("sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}", replicated)
    cost, entered, _ = ready(text)
    # All 256 rows on each of 2 groups of 4 devices.
    assert cost["matrix/bf16"] == 2 * 2 * 256 * 512 * 512
    assert entered == {"all-reduce 4": 256 * 512 * 2}


def test_weights_split_along_the_batchs_axis_are_gathered() -> None:
    text = """HloModule fsdp
    ENTRY main {
      x = bf16[1024,512] parameter(0), sharding={devices=[8,1]<=[8]}
      w = bf16[512,2048] parameter(1), sharding={devices=[8,1]<=[8]}
      ROOT y = bf16[1024,2048] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    cost, entered, _ = ready(text)
    assert cost["matrix/bf16"] == 2 * 128 * 512 * 2048
    assert entered == {"all-gather 8": 64 * 2048 * 2}


def test_a_sum_over_the_batch_becomes_a_reduce_scatter_where_the_result_is_split_too() -> None:
    text = """HloModule grad
    ENTRY main {
      x = bf16[1024,512] parameter(0), sharding={devices=[8,1]<=[8]}
      d = bf16[1024,2048] parameter(1), sharding={devices=[8,1]<=[8]}
      ROOT g = bf16[512,2048] dot(x, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}, sharding={devices=[8,1]<=[8]}
    }"""
    cost, entered, _ = ready(text)
    assert cost["matrix/bf16"] == 2 * 128 * 512 * 2048
    assert entered == {"reduce-scatter 8": 512 * 2048 * 2}
    _, entered, _ = ready(text.replace(", sharding={devices=[8,1]<=[8]}\n    }", "\n    }"))
    assert entered == {"all-reduce 8": 512 * 2048 * 2}


STABLE = """module @m attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func public @main(%a: tensor<64x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) -> (tensor<RESULTxf32> {GIVEN}) {
    BODY
  }
}
"""


def stable(body: str, result: str, given: str = 'jax.result_info = ""') -> str:
    return STABLE.replace("BODY", body).replace("RESULT", result).replace("GIVEN", given)


def test_a_result_that_is_annotated_is_exchanged_into_its_sharding() -> None:
    body = """%0 = stablehlo.negate %a : tensor<64x128xf32>
    return %0 : tensor<64x128xf32>"""
    whole = "#sdy.sharding<@mesh, [{}, {}]>"
    cost, entered, _ = ready(stable(body, "64x128", f"sdy.sharding = {whole}"))
    assert cost["hbm"] == 2 * 32 * 32 * 4
    assert entered == {"all-gather 8": 32 * 32 * 4}
    assert ready(stable(body, "64x128"))[1] == {}
    moved = '#sdy.sharding<@mesh, [{"y"}, {"x"}]>'
    assert ready(stable(body, "64x128", f"sdy.sharding = {moved}"))[1] == {"all-to-all 8": 32 * 32 * 4}


def test_reshapes_transposes_broadcasts_and_sums_are_followed() -> None:
    body = """%0 = stablehlo.reshape %a : (tensor<64x128xf32>) -> tensor<64x8x16xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0, 2] : (tensor<64x8x16xf32>) -> tensor<8x64x16xf32>
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [1]
      : (tensor<8x64x16xf32>, tensor<f32>) -> tensor<8x16xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<8x16xf32>) -> tensor<8x16x32xf32>
    return %3 : tensor<8x16x32xf32>"""
    module = parse(stable(body, "8x16x32").encode(), "test")
    found = partitioned(module)
    dims = {one.opcode: one.shape.dims for one in found.module.entry_computation}
    # 8 of y over 4; 64 of x over 2 until they are added up over x.
    assert (dims["reshape"], dims["transpose"], dims["reduce"], dims["broadcast"]) == ((32, 2, 16), (2, 32, 16), (2, 16), (2, 16, 32))
    assert (found.exchanges, found.assumed) == ({"all-reduce": 1}, {})


def test_a_loop_carries_its_state_in_parts() -> None:
    text = program_text("partition/a_loop_carries_its_state_in_parts.hlo")
    cost, entered, _ = ready(text)
    assert cost["matrix/bf16"] == 3 * 2 * 16 * 128 * 128
    assert entered == {}


def test_a_region_written_for_one_device_is_taken_as_it_is_written() -> None:
    body = program_text("partition/a_region_written_for_one_device_is_taken_as_it_is_written.mlir")
    cost, entered, _ = ready(stable(body, "64x32"))
    assert cost["vector/transcendental"] == 32 * 32
    assert cost["hbm"] == 2 * 2 * 32 * 32 * 4
    assert entered == {"all-reduce 4": 32 * 32 * 4}


def test_rows_of_a_table_split_by_rows_are_looked_up_everywhere_and_added_up() -> None:
    text = """HloModule lookup
    ENTRY main {
      table = bf16[1024,64] parameter(0), sharding={devices=[4,1]<=[4]}
      ids = s32[32,1] parameter(1), sharding={replicated}
      ROOT g = bf16[32,64] gather(table, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
        slice_sizes={1,64}
    }"""
    _, entered, _ = ready(text)
    assert entered == {"all-reduce 4": 32 * 64 * 2}


def test_an_op_that_cannot_be_split_is_an_even_share_and_a_note_counts_it() -> None:
    text = program_text("partition/an_op_that_cannot_be_split_is_an_even_share_and_a_note_counts_it.hlo")
    cost, entered, notes = ready(text)
    # The sort at 1/8; the split of the rows goes through it, that of the sorted dimension does not.
    assert cost["hbm"] == 2 * 256 * 512 * 4 // 8 + 2 * 128 * 512 * 4
    assert entered == {}
    assert "an even share is assumed for 1 sort, which roofline cannot split" in notes[1]
    # Along a dimension that is not split it is split like the rest.
    cost, _, notes = ready(text.replace("devices=[2,4]<=[8]", "devices=[8,1]<=[8]"))
    assert cost["hbm"] == 2 * 2 * 32 * 512 * 4
    assert "assumed" not in notes[1]


NO_SHARDINGS = """HloModule plain, num_partitions=8
ENTRY main {
  x = f32[1024,1024] parameter(0)
  e = f32[1024,1024] exponential(x)
  ROOT y = f32[1024,1024] dot(e, e), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_without_shardings_every_op_is_an_even_share_in_both_reports() -> None:
    cost, _, notes = ready(NO_SHARDINGS)
    assert cost["matrix/tf32"] == Fraction(2 * 1024**3, 8)
    assert "has no shardings: one of 8 devices, with 1/8 of every op" in notes[1]
    module, platform, _ = prepared(parse(NO_SHARDINGS.encode(), "test"), H100)
    whole, _, _ = prepared(parse(NO_SHARDINGS.replace(", num_partitions=8", "").encode(), "test"), H100)
    part, full = fusion_report(module, platform, H100), fusion_report(whole, platform, H100)
    assert part.bytes * 8 == full.bytes
    assert part.avoidable_bytes * 8 == full.avoidable_bytes > 0


def test_a_program_that_exchanges_data_itself_is_counted_as_it_is() -> None:
    text = program_text("partition/a_program_that_exchanges_data_itself_is_counted_as_it_is.hlo")
    cost, entered, notes = ready(text)
    assert cost["vector/transcendental"] == 1024
    assert entered == {"all-reduce 8": 4096}
    assert "written for one of its 8 devices" in notes[1]


def test_parts_that_do_not_divide_are_the_largest_ones() -> None:
    text = """HloModule uneven
    ENTRY main {
      x = f32[10,3] parameter(0), sharding={devices=[4,1]<=[4]}
      ROOT n = f32[10,3] negate(x)
    }"""
    assert ready(text)[0]["hbm"] == 2 * 3 * 3 * 4


@every("given", ["{devices=[2,2,2]<=[8]}", "{devices=[3,5]<=[8]}", "{devices=[]<=[8]}", "{devices=[2,4]0,1}"])
def test_a_sharding_that_cannot_be_followed_is_left_out(given: str) -> None:
    text = MLP.replace("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", given)
    assert ready(text)[0]["matrix/bf16"] in [2 * 2 * rows * 512 * 512 for rows in (128, 256)]


@every(
    "text",
    [
        "{devices=[999999999999999989,1]<=[999999999999999989]}",
        "{devices=[2,1]<=[999999999999999989,2]T(1,0)}",
        "{mesh['x'=999999999999999989], [{'x'}, {}]}",
        "{mesh['x'=0], [{'x'}, {}]}",
    ],
)
def test_a_mesh_larger_than_any_is_no_sharding_and_takes_no_time(text: str) -> None:
    assert parse_sharding(text, 2, {}) is None
