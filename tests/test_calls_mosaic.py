"""Pallas kernels that the TPU compiler compiled (data/pallas/make.py): what their code computes and moves, compared with arithmetic."""

import base64
import gzip
import itertools
import json
import operator
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

import roofline as rl
from call_sites import price_at, site
from every import every
from program_texts import program_text
from roofline.cost import Cost
from roofline.hlo.ir.amending import amended
from roofline.hlo.ir.module import HloModule, Instruction
from roofline.hlo.ir.platforms import Platform
from roofline.hlo.price.mosaic.ranges import implied
from roofline.hlo.price.types import Price, Site
from roofline.hlo.read import parse
from roofline.hlo.read.backend_config import backend_config
from roofline.workload import is_upper_bound

PROGRAMS = Path(__file__).parent / "data" / "pallas"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "tpu"
BF16, FP32 = 2, 4


@cache
def program(name: str) -> HloModule:
    return parse(gzip.decompress((PROGRAMS / f"{name}.pb.gz").read_bytes()), name)


def kernels(name: str) -> list[Site]:
    module = program(name)
    return [Site(module, computation, one, "tpu") for computation in module for one in computation if _is_kernel(one)]


def _is_kernel(instruction: Instruction) -> bool:
    return instruction.opcode == "custom-call" and instruction.custom_call_target == "tpu_custom_call"


def kernel(name: str) -> Price:
    (only,) = kernels(name)
    return price_at(only)


def products(name: str) -> list[int]:
    """The FLOP on the matrix unit of each kernel of a program, in its order."""
    return [matrix(price_at(one).cost) for one in kernels(name)]


def matrix(cost: Cost) -> int:
    return sum(int(amount) for resource, amount in cost.amounts if resource.unit == "matrix")


def moved(cost: Cost) -> int:
    """Bytes in all memories: where the compiler placed an array is not the kernel's doing."""
    return sum(int(amount) for resource, amount in cost.amounts if resource.is_memory)


def walked(grid: tuple[int, ...], block: tuple[int, ...], dims: tuple[int, ...], index: Callable[..., tuple[int, ...]]) -> int:
    """Elements that a window copies, step by step through the grid."""
    total, before = 0, None
    for step in itertools.product(*map(range, grid)):
        here = index(*step)
        if here != before:
            part = 1
            for place, size, whole in zip(here, block, dims, strict=True):
                part *= max(0, min(size, whole - place * size))
            total += part
        before = here
    return total


def test_tiles_of_a_product_are_read_again_for_each_block_of_the_result() -> None:
    priced = kernel("tiled")
    # 1024 x 2048 x 512 in blocks of 256, 512, 256: x is read for 2 blocks of columns, y for 4 of rows, the result written once.
    assert matrix(priced.cost) == 2 * 1024 * 2048 * 512
    assert priced.cost["hbm"] == BF16 * (2 * 1024 * 2048 + 4 * 2048 * 512 + 1024 * 512)
    # The accumulator is added to in each of 4 steps; the zeros in it are stored, not added.
    assert priced.cost["vector/fp32"] == 4 * 1024 * 512
    assert not priced.cost.unknown
    assert priced.least is None


def test_blocks_beyond_the_edge_are_computed_whole_and_copied_in_part() -> None:
    priced = kernel("ragged")
    # 9000 x 4096 x 4000 in blocks of 512, 1024, 512: 18 x 4 x 8 blocks of which each is computed whole.
    assert matrix(priced.cost) == 18 * 4 * 8 * 2 * 512 * 1024 * 512
    # Of x 9000 rows cross for each of 8 blocks of columns, of y 4000 columns for each of 18 blocks of rows.
    assert moved(priced.cost) == BF16 * (8 * 9000 * 4096 + 18 * 4096 * 4000 + 9000 * 4000)


def test_a_product_at_highest_precision_runs_in_six_passes_and_one_of_int8_on_the_int8_unit() -> None:
    flops = 2 * 1024 * 2048 * 512
    assert kernel("highest").cost["matrix/bf16x6"] == flops
    assert kernel("int8").cost["matrix/int8"] == flops


def test_copies_that_a_kernel_starts_itself_are_counted_in_its_loops() -> None:
    priced = kernel("copies")
    # 4 rows of blocks x 8 steps: 256 x 256 of x and 256 x 512 of y each; the first before the loop, the other 7 inside a condition.
    assert priced.cost["hbm"] == 4 * 8 * BF16 * (256 * 256 + 256 * 512) + FP32 * 1024 * 512
    assert matrix(priced.cost) == 2 * 1024 * 2048 * 512


def test_a_pipeline_inside_a_kernel_copies_a_block_when_its_index_changes() -> None:
    priced = kernel("pipeline")
    # The same blocks as in "tiled", with a result of fp32; the loop carries its indices and buffers.
    assert priced.cost["hbm"] == BF16 * (2 * 1024 * 2048 + 4 * 2048 * 512) + FP32 * 1024 * 512
    assert priced.least is None


def test_a_loop_runs_as_often_as_the_step_of_the_grid_says() -> None:
    # Row i of 8 multiplies i + 1 blocks: 36 products of 128 x 128 x 512.
    assert matrix(kernel("triangle").cost) == 36 * 2 * 128 * 128 * 512


def test_a_while_loop_with_a_counter_is_run_to_count_its_steps() -> None:
    # Five exponentials and five multiplications of each of 512 x 512 elements.
    assert kernel("counted").cost["vector/transcendental"] == kernel("counted").cost["vector/fp32"] == 5 * 512 * 512


def test_the_dearer_of_two_branches_counts_where_data_decides() -> None:
    priced, elements = kernel("either"), 1024 * 512
    assert priced.least is not None
    # exp(x), or exp(2x) + 1: the exponential in any case, the multiplication and the addition perhaps.
    assert priced.cost["vector/transcendental"] == priced.least["vector/transcendental"] == elements
    assert (priced.cost["vector/fp32"], priced.least["vector/fp32"]) == (2 * elements, 0)
    assert is_upper_bound(priced.notes)


BLOCK = 2 * 256 * 256 * 128  # a product of a block of queries with one of keys


def test_flash_attention_runs_the_blocks_under_the_diagonal() -> None:
    # 2 heads x 8 x 8 blocks, of which 36 are on or under the diagonal: 2 products forward, 3 for dq, 4 for dk and dv.
    assert products("flash_full") == [2 * 64 * 2 * BLOCK]
    assert products("flash_causal") == [2 * 36 * count * BLOCK for count in (2, 3, 4)]


def test_the_code_wins_over_an_estimate_of_the_full_square_and_both_are_told() -> None:
    forward = price_at(kernels("flash_causal")[0])
    (note,) = [note for note in forward.notes if "author's cost estimate" in note]
    assert "4.329 GFLOP" in note  # 2 heads x 2048² x (4 x 128 + 4), the author's
    assert "2.463 GFLOP" in note
    assert not is_upper_bound(forward.notes)


def test_an_estimate_of_each_array_once_is_told_where_blocks_are_read_again() -> None:
    (note,) = [note for note in kernel("flash_full").notes if "author's cost estimate" in note]
    # 2 heads x 2048 x 128 of bf16: queries and results once; the author counts keys and values once too, the code reads them for 8 blocks.
    assert "4.194 MB" in note
    assert "18.87 MB" in note  # (1 + 1 + 8 + 8) x 1.049 MB


def test_an_estimate_between_the_bounds_of_data_is_not_told() -> None:
    # The author counts each row of each group once, which is the least.
    assert not [note for note in kernel("groups").notes if "author's cost estimate" in note]


@every("name", ["lengths_for", "lengths_while"])
def test_a_loop_as_long_as_data_says_is_bounded_by_the_array_that_it_reads(name: str) -> None:
    priced = kernel(name)
    assert priced.least is not None
    # 8 sequences of at most 2048 rows: each is added once.
    assert (priced.cost["vector/fp32"], priced.least["vector/fp32"]) == (8 * 2048 * 128, 0)
    assert is_upper_bound(priced.notes)


def test_a_grid_as_long_as_data_says_is_bounded_by_its_blocks() -> None:
    priced = kernel("lengths_grid")
    assert priced.least is not None
    assert (priced.cost["vector/fp32"], priced.least["vector/fp32"]) == (4096 * 512, 0)
    assert (moved(priced.cost), moved(priced.least)) == (2 * 4096 * 512 * FP32, 0)


def test_copies_in_a_loop_as_long_as_data_says_are_bounded_by_their_array() -> None:
    priced = kernel("lengths_copies")
    assert priced.least is not None
    assert (moved(priced.cost), moved(priced.least)) == ((4096 + 256) * 512 * FP32, 256 * 512 * FP32)


def test_a_test_for_finite_numbers_costs_nothing() -> None:
    priced = kernel("logsumexp")
    assert not priced.cost.unknown
    # An exponential of each element, and a logarithm of each row.
    assert priced.cost["vector/transcendental"] == 512 * 512 + 512


def test_splash_attention_runs_the_blocks_of_its_table() -> None:
    assert products("splash_causal") == [2 * 36 * count * BLOCK for count in (2, 3, 4)]
    assert products("splash_fused") == [2 * 36 * count * BLOCK for count in (2, 5)]  # dq, dk and dv in one
    # A window of 512: one block in the first row, two in the second, three in the other six.
    assert products("splash_local") == [2 * (1 + 2 + 6 * 3) * 2 * BLOCK]
    # 32 x 32 blocks: a table of 1024 numbers, in the file though not in the text.
    assert products("splash_long") == [2 * (32 * 33 // 2) * 2 * BLOCK]


def test_splash_attention_copies_the_blocks_that_it_runs() -> None:
    priced = kernel("splash_long")
    # Keys and values: the next block that will run is fetched ahead, so a skipped step fetches nothing.
    order = [[column if column <= row else 0 for column in range(32)] for row in range(32)]
    keys = walked((2, 32, 32), (1, 256, 128), (2, 8192, 128), lambda head, row, column: (head, order[row][column], 0))
    queries = 2 * 8192 * 128
    tables, positions, scratch = 2 * 32 * 32, 2 * 32 * 256 * 128 * FP32, 3 * 256 * 128 * FP32
    assert moved(priced.cost) == BF16 * (2 * keys + 2 * queries) + tables + positions + scratch


def test_a_table_is_found_in_loops_that_carry_it_and_in_its_parts_on_each_device() -> None:
    assert products("splash_scan") == [2 * 36 * 2 * BLOCK]  # one layer; the loop runs it three times
    assert products("splash_sharded") == [2 * 36 * 2 * BLOCK]  # two of four heads


def test_paged_attention_is_bounded_by_its_pages() -> None:
    # 8 sequences of at most 32 pages of 32 positions, 8 key heads of 2 query heads each, 128 wide.
    positions = 8 * 8 * 32 * 32
    for name in ("paged_grid", "paged_loop"):
        priced = kernel(name)
        assert matrix(priced.cost) == positions * 2 * 2 * 2 * 128
        # Keys and values of all pages; at most one block of four pages of each is fetched twice.
        assert 0 <= moved(priced.cost) - positions * 2 * 128 * BF16 <= 2 * 4 * 32 * 128 * BF16 + 2**18
        assert is_upper_bound(priced.notes)
        assert priced.least is not None
        assert matrix(priced.least) == 0  # sequences may be empty


def test_ragged_paged_attention_is_bounded_by_the_sequences_and_pages_of_its_tables() -> None:
    # 2 blocks of 32 queries x 4 sequences x 4 blocks of 8 of their 30 pages of 16 positions, 2 key heads of 4 query heads each, 128 wide.
    # A step that stays with its sequence ends the loop over sequences.
    priced = kernel("paged_ragged")
    assert priced.least is not None
    assert (matrix(priced.least), matrix(priced.cost)) == (0, 2 * 4 * 4 * 2 * 2 * (2 * 32 * 4 * 8 * 16 * 128))
    assert is_upper_bound(priced.notes)
    pages = 8 * 16 * 2 * 2 * 128 * BF16  # one block of keys and values
    assert 0 < moved(priced.cost) - (2 * 4 * 4 + 1) * pages < 2**19  # and queries, results and tables


LOOP = program_text("calls_mosaic/loop.mlir")


def priced(text: str) -> Price:
    code = base64.b64encode(text.encode()).decode()
    config = json.dumps({"custom_call_config": {"body": code}})
    return price_at(site("f32[16,128]", "s32[8]", "tpu_custom_call", config, platform="tpu"))


def test_a_place_that_stays_only_in_the_last_step_bounds_a_loop() -> None:
    # The loop goes on where the size is less than 1, and then the place grows: at most 8 steps of 16 x 128 additions.
    assert priced(LOOP.replace("PREDICATE", "slt")).cost["vector/fp32"] == 8 * 16 * 128
    # It goes on where the size is not 1: above 1 it stays at its place, and may do so for ever.
    assert priced(LOOP.replace("PREDICATE", "ne")).cost.unknown


def test_a_comparison_implies_another_of_the_same_numbers_if_no_pair_of_numbers_says_otherwise() -> None:
    compare = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    for first, other, holds in itertools.product(range(6), range(6), (True, False)):
        answers = {compare[other](*pair) for pair in itertools.product(range(3), repeat=2) if compare[first](*pair) == holds}
        assert implied(first, holds, other) == (answers.pop() if len(answers) == 1 else None)


def steps_of_groups(sizes: list[int], tile: int) -> list[tuple[int, int]]:
    """The tile and the group of each step of a grouped product: a tile that groups share is visited for each of them."""
    ends = list(itertools.accumulate(sizes))
    spans = zip([0, *ends], ends, strict=False)
    return [(row, group) for group, (start, end) in enumerate(spans) if end > start for row in range(start // tile, -(-end // tile))]


def sizes_of_groups(count: int, rows: int) -> list[list[int]]:
    """Equal sizes, one group of all rows, and sizes by chance."""
    chance = random.Random(count)
    cuts = [sorted(chance.choices(range(rows + 1), k=count - 1)) for _ in range(10)]
    return [
        [rows // count] * count,
        [rows, *[0] * (count - 1)],
        *([end - start for start, end in zip([0, *cut], [*cut, rows], strict=True)] for cut in cuts),
    ]


# Rows, inner size and columns of the tiles of ragged_dot by the compiler, and of megablox, whose grid ends with the inner size.
@pytest.mark.parametrize(("name", "tile", "result"), [("experts", (128, 512, 1024), BF16), ("groups", (256, 256, 256), FP32)])
def test_a_grouped_product_needs_each_row_once_and_copies_what_its_tables_say(name: str, tile: tuple[int, int, int], result: int) -> None:
    priced = kernel_of_products(name)
    m, k, n, count = 2048, 512, 1024, 8
    assert matrix(priced.cost) == 2 * m * k * n
    assert is_upper_bound(priced.notes)
    counted = moved(priced.cost)
    (most,) = [note for note in priced.notes if "tiles that groups share" in note]
    assert f"{2 * (m // tile[0] + count - 1) * tile[0] * k * n / 1e9:.4g} GFLOP" in most
    traffic = []
    for sizes in sizes_of_groups(count, m):
        steps = steps_of_groups(sizes, tile[0])
        grid = (n // tile[2], len(steps), k // tile[1])
        x = walked(grid, tile[:2], (m, k), lambda _, step, inner, steps=steps: (steps[step][0], inner))
        w = walked(grid, (1, *tile[1:]), (count, k, n), lambda column, step, inner, steps=steps: (steps[step][1], inner, column))
        out = walked(grid, (tile[0], tile[2]), (m, n), lambda column, step, _, steps=steps: (steps[step][0], column))
        traffic.append(BF16 * (x + w) + result * out)
    tables = 4 * 64
    assert max(traffic) <= counted <= max(traffic) + tables


def kernel_of_products(name: str) -> Price:
    return next(price for price in map(price_at, kernels(name)) if matrix(price.cost))


def test_a_copy_to_another_device_crosses_a_link() -> None:
    assert kernel("neighbours").cost["ici"] == 1024 * 1024 * BF16


def test_the_compilers_own_kernel_is_read_from_its_text() -> None:
    priced = kernel("online_softmax")
    assert matrix(priced.cost) == 2 * 16 * 2048 * 2048 * 128  # scores times values; the scores are computed before
    assert priced.cost["vector/transcendental"] > 16 * 2048 * 2048


def test_transpositions_and_rolls_along_lanes_are_work_of_the_cross_lane_unit() -> None:
    # The roll along sublanes is none.
    assert kernel("lanes").cost["xlu"] == 2 * 256 * 512 * FP32


def test_a_transposition_that_keeps_the_lanes_is_free_in_text_too() -> None:
    turned = "%turned = vector.transpose %x, [ORDER] : vector<16x128xf32> to vector<16x128xf32>\n    %end"
    costs = [priced(LOOP.replace("PREDICATE", "slt").replace("%end", turned.replace("ORDER", order), 1)).cost for order in ("1, 0", "0, 1")]
    assert [cost["xlu"] for cost in costs] == [16 * 128 * FP32, 0]


def test_a_mixture_of_experts_runs_the_compilers_kernel_for_tables_of_tiles() -> None:
    tables, product = map(price_at, kernels("experts"))
    # 8 sizes of groups give 9 starts, the group and the tile of each of 23 steps, and their number; only the scalar core computes.
    assert (tables.cost.unknown, tables.cost.amounts) == (frozenset(), ((rl.Resource("hbm"), 4 * (8 + 9 + 23 + 23 + 1)),))
    assert not is_upper_bound(tables.notes)
    assert product.least is not None
    assert matrix(product.least) == matrix(product.cost)  # rows are in some group: only tiles may be shared


def test_a_matmul_of_4096_cubed_is_compute_bound_on_a_v5e() -> None:
    path = SHARED / "pallas_mm.hlo.gz"
    if not path.exists():
        pytest.skip("needs ../shared/data/tpu")
    (op,) = rl.analyze(path, "v5e").ops
    assert op.flops == pytest.approx(2 * 4096**3, rel=0.002)
    assert op.bytes["hbm"] == BF16 * (8 + 8 + 1) * 4096**2  # 8 blocks of columns and of rows
    assert (op.bound, op.floor_s) == ("matrix", pytest.approx(698e-6, rel=0.001))


def altered(name: str, change: Callable[[bytes], bytes], platform: Platform = "tpu") -> Price:
    """A kernel with other code."""
    one = kernels(name)[0]
    config = json.loads(json.dumps(backend_config(one.instruction)))
    code = change(base64.b64decode(config["custom_call_config"]["body"]))
    config["custom_call_config"]["body"] = base64.b64encode(code).decode()
    operands = "; ".join(str(operand.shape) for operand in one.operands)
    call = site(str(one.instruction.shape), operands, "tpu_custom_call", json.dumps(config), platform=platform)
    return price_at(call)


def test_without_the_programs_constants_a_splash_kernel_is_bounded_by_its_grid() -> None:
    priced = altered("splash_local", lambda code: code)
    # The tables are parameters here. The grid is as long as the longest row of blocks: 8 x 3.
    assert matrix(priced.cost) == 2 * 8 * 3 * 2 * BLOCK
    assert is_upper_bound(priced.notes)
    assert "depends on data" in priced.notes[-1]


def test_a_splash_kernel_in_text_without_its_tables_says_that_the_protobuf_has_them() -> None:
    (known,) = kernels("splash_local")
    rows = tuple(amended(row, table=None, literal=None) if row.opcode == "constant" else row for row in known.computation.instructions)
    priced = price_at(Site(known.module, replace(known.computation, instructions=rows), known.instruction, "tpu"))
    assert matrix(priced.cost) == 2 * 8 * 3 * 2 * BLOCK  # the grid, as above
    assert any("constants that this text leaves out, and that the program's protobuf has" in note for note in priced.notes)


def test_code_that_cannot_be_read_falls_back_to_the_estimate_and_then_to_unknown() -> None:
    half = altered("tiled", lambda code: code[: len(code) // 2])
    assert half.cost.flops is None
    assert half.cost["hbm"] == BF16 * (1024 * 2048 + 2048 * 512 + 1024 * 512)  # the arrays once
    assert "its author's cost estimate" in altered("groups", lambda code: b"").notes
    unknown = altered("tiled", lambda code: code.replace(b"arith.truncf\0", b"arith.wuncf0\0"))
    assert unknown.cost.flops is not None  # an operation of arith that is not arithmetic is a conversion
    unknown = altered("tiled", lambda code: code.replace(b"tpu.matmul\0", b"tpu.mutmal\0"))
    assert any("tpu.mutmal" in note for note in unknown.notes)


DAMAGED = ["tiled", "copies", "groups", "pipeline", "paged_grid", "paged_ragged", "splash_local", "online_softmax", "experts"]


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_code_never_raises(name: str) -> None:
    chance = random.Random(name)

    def damage(code: bytes) -> bytes:
        broken = bytearray(code)
        for _ in range(chance.choice((1, 2, 8))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        return bytes(broken)

    for _ in range(40):
        priced = altered(name, damage)
        assert all(amount >= 0 for _, amount in priced.cost.amounts)
