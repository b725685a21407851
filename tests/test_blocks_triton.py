"""The model of Triton kernels: their IR, machine code, addresses, traffic and times, on kernels that were compiled before."""

import math
from importlib import import_module

import msgspec
import numpy as np
import pytest

from every import every
from frozen_kernels import frozen, one_of
from roofline.blocks.occupancy import occupancy
from roofline.blocks.results import with_shares
from roofline.blocks.triton.addresses import Descriptor, corners, evaluate, whole
from roofline.blocks.triton.chips import chip_for
from roofline.blocks.triton.ir import read_ir, type_of
from roofline.blocks.triton.layouts import layouts_of, touched_lines
from roofline.blocks.triton.loops import dot_flops, trip_counts
from roofline.blocks.triton.predicting import configuration_of, grid_of
from roofline.blocks.triton.sass import read_sass
from roofline.blocks.triton.times import MOST_BLOCKS, Demand, combined, estimate, spread_over, timed
from roofline.blocks.triton.traffic import tile_bytes, traffic_of
from roofline.blocks.triton.work import work_of
from roofline.errors import UsageError
from roofline.machines.cores import core_of, cores

MATMUL = {"BM": 128, "BN": 256, "BK": 64, "num_warps": 8}
HOPPER = core_of("9.0")


def test_types_of_the_ir_have_shape_element_and_pointer() -> None:
    assert (type_of("tensor<128x64x!tt.ptr<bf16>>").shape, type_of("!tt.ptr<f32>").is_pointer) == ((128, 64), True)
    assert [type_of(text).bytes for text in ("bf16", "f8E4M3FN", "i1", "tensor<4xf32>")] == [2, 1, 1, 4]


def test_the_ir_of_a_product_has_its_loop_and_its_product() -> None:
    kernel = read_ir(one_of("matmul", **MATMUL).lowered.ir)
    names = [operation.name for operation in kernel.everything()]
    assert (names.count("scf.for"), names.count("tt.dot"), names.count("tt.load"), names.count("tt.store")) == (1, 1, 2, 1)
    product = next(operation for operation in kernel.everything() if operation.name == "tt.dot")
    assert dot_flops(product) == 2 * 128 * 256 * 64


def test_blocks_of_a_group_share_the_columns_of_the_second_operand() -> None:
    case = one_of("matmul", **MATMUL)
    found = evaluate(read_ir(case.lowered.ir), dict(case.lowered.scalars), case.grid, range(16))
    rows, columns, _ = found.accesses
    # GROUP is 8: blocks 0 to 7 are below one another, 8 to 15 the next column of blocks.
    assert len(set(rows.addresses[:, 0, 0].tolist())) == 8
    assert np.ptp(columns.addresses[:8, 0, 0]) == 0
    assert columns.addresses[8, 0, 0] - columns.addresses[0, 0, 0] == 256 * 2  # a block is 256 columns of 2 bytes wide
    # 8192 / 64 iterations; the first operand moves by 64 columns, the second by 64 rows of 8192.
    assert [float(each) for each in (rows.trips[0][0], rows.moves[0][0], columns.moves[0][0])] == [128, 64 * 2, 64 * 8192 * 2]


def test_a_causal_loop_runs_longer_in_later_blocks() -> None:
    case = one_of("attention", num_warps=4)
    found = evaluate(read_ir(case.lowered.ir), dict(case.lowered.scalars), case.grid, range(64))
    # Keys in tiles of 64 up to the block's own 64 rows: 1 tile for the first block, 64 for the last.
    assert found.loops[0].trips.tolist() == list(range(1, 65))


def test_tiles_count_their_sectors() -> None:
    case = one_of("matmul", **MATMUL)
    rows, columns, stored = evaluate(read_ir(case.lowered.ir), dict(case.lowered.scalars), case.grid, [0], whole).accesses
    assert [tile_bytes(each) for each in (rows, columns, stored)] == [128 * 64 * 2, 64 * 256 * 2, 128 * 256 * 2]


def test_masked_elements_move_no_bytes() -> None:
    case = one_of("layer_norm", BLOCK=1024)
    kernel = read_ir(case.lowered.ir)
    access = evaluate(kernel, {"D": 100}, case.grid, [0], whole).accesses[0]
    assert tile_bytes(access) == math.ceil(100 * 2 / 32) * 32


def test_rows_that_are_read_twice_come_from_main_memory_once_if_caches_hold_them() -> None:
    case = one_of("layer_norm", BLOCK=1024)
    kernel, scalars = read_ir(case.lowered.ir), dict(case.lowered.scalars)
    wave = evaluate(kernel, scalars, case.grid, range(1000), corners)
    samples = evaluate(kernel, scalars, case.grid, [0], whole)
    row = 4096 * 2
    common = {"blocks": 1000, "per_core": 8}
    held = traffic_of(wave, samples, l1_bytes=1e9, l2_bytes=1e9, **common)
    # A row in and out of each block; the two vectors of weights once.
    assert (held.hbm, held.block_l1, held.block_l2) == (1000 * 2 * row + 2 * row, 5 * row, 4 * row)
    missed = traffic_of(wave, samples, l1_bytes=0.0, l2_bytes=held.hbm / 2, **common)
    assert missed.hbm == held.hbm + 1000 * row / 2  # L2 holds half of what is read again


def test_machine_code_has_the_schedule_of_the_compiler() -> None:
    text = """
//## File "k.py", line 3
/*0000*/ S2R R1, SR_TID.X ; /* 0x0000000000077919 */
/* 0x000ee20000002500 */
.L_x_0:
/*0010*/ @P0 FFMA R2, R1, R1, R2 ; /* 0x0000000000077919 */
/* 0x008fe40000000800 */
/*0020*/ @P0 BRA `(.L_x_0) ; /* 0x0000000000077919 */
/* 0x000fea0003800000 */
/*0030*/ EXIT ; /* 0x0000000000077919 */
/* 0x000fea0003800000 */
.L_x_1:
/*0040*/ BRA `(.L_x_1) ; /* 0x0000000000077919 */
/* 0x000fc00000000000 */
"""
    before, loop = read_sass(text)
    assert (before.instructions[0].opcode, before.instructions[0].line, before.instructions[0].sets_result) == ("S2R", 3, 3)
    multiply, branch = loop.loop[0].instructions
    # It waits for barrier 3, which the read of the special register sets, and its warp then for 2 cycles.
    assert (multiply.waits, multiply.stall, multiply.predicate, branch.stall) == (1 << 3, 2, "P0", 5)


def test_an_unrolled_loop_runs_less_often() -> None:
    case = one_of("layer_norm", BLOCK=256)
    kernel, parts = read_ir(case.lowered.ir), read_sass(case.binary.sass)
    loops = evaluate(kernel, dict(case.lowered.scalars), case.grid, [0]).loops
    trips = {id(loop.operation): float(loop.trips[0]) for loop in loops}
    assert list(trips.values()) == [16, 16]
    found = trip_counts(parts, loops, trips, case.binary.warps)
    assert [found[id(part)] for part in parts if part.loop] == [4, 4]  # four iterations in a pass


def test_what_a_block_needs_most_bounds_how_many_fit_a_core() -> None:
    # 204 registers a thread are 208 x 32 = 6,656 a warp: 2 of 16,384 for each scheduler, 8 warps.
    assert occupancy(HOPPER, warps=8, registers=204, shared=0).blocks == 1
    found = occupancy(HOPPER, warps=1, registers=32, shared=0)
    assert (found.blocks, found.limit) == (32, "blocks")
    assert occupancy(HOPPER, warps=4, registers=64, shared=100_000).limit == "shared memory"


def test_things_that_overlap_take_at_least_the_longest_and_at_most_the_sum() -> None:
    assert combined([3.0]) == 3.0
    assert combined([]) == 0.0
    assert 3.0 < combined([3.0, 2.0, 1.0]) < 6.0


def test_a_last_wave_with_few_blocks_takes_as_long_as_a_block_alone() -> None:
    chip, _ = chip_for("h200")
    demand = Demand(alone=1000.0, units={"matrix": 1.0}, blocks=chip.cores, resident=1, shared_s={})
    one, _ = timed(demand, chip)
    two, _ = timed(Demand(alone=1000.0, units={"matrix": 1.0}, blocks=chip.cores + 1, resident=1, shared_s={}), chip)
    assert (two - chip.launch_s) / (one - chip.launch_s) == pytest.approx(2)


def test_predictions_order_kernels_as_the_device_did() -> None:
    chip, _ = chip_for("h200")
    for kernel in ("matmul", "layer_norm", "attention"):
        cases = [case for case in frozen() if case.kernel == kernel]
        predicted = [estimate(case.lowered, case.binary, case.grid, chip).time_s for case in cases]
        measured = [case.measured_s for case in cases]
        assert np.argsort(predicted).tolist() == np.argsort(measured).tolist(), kernel
        assert all(0.4 < one / other < 1.7 for one, other in zip(predicted, measured, strict=True)), kernel


def test_what_limits_is_named() -> None:
    chip, machine = chip_for("h200")
    found = [configuration_of(case.lowered, case.binary, case.grid, chip) for case in frozen()]
    limits = {(case.kernel, *case.config.values()): each.limit for case, each in zip(frozen(), found, strict=True)}
    assert limits["matmul", 128, 256, 64, 8, 4, 3] == "spills"
    assert limits["layer_norm", 1024, 4] == "memory"
    fastest = with_shares([found[0]], machine)[0]
    # 2 x 8192³ FLOP at 989.4 TFLOP/s are 1.111 ms.
    assert fastest.share == pytest.approx(2 * 8192**3 / 989.4e12 / (fastest.time_s or 0))


def test_a_configuration_that_needs_too_much_shared_memory_is_refused() -> None:
    chip, _ = chip_for("h200")
    case = one_of("matmul", **MATMUL)
    binary = type(case.binary)(refused="out of shared memory: a block needs 262,144 B, and a core gives one 232,448 B", shared=262144)
    found = configuration_of(case.lowered, binary, case.grid, chip)
    assert (found.time_s, found.memory) == (None, 262144)


def test_a_grid_is_sizes_or_a_function_of_a_configuration() -> None:
    assert grid_of(7, {}) == (7, 1, 1)
    assert grid_of(lambda values: (values["n"] // values["B"], 2), {"n": 64, "B": 8}) == (8, 2, 1)
    with pytest.raises(UsageError, match="one to three whole numbers"):
        grid_of((0, 1), {})


def test_chips_without_what_the_model_needs_are_refused() -> None:
    with pytest.raises(UsageError, match="NVIDIA GPUs"):
        chip_for("v5e")


def test_every_core_has_what_the_model_reads() -> None:
    for core in cores():
        assert {"l1", "l2", "hbm", "start", "read", "barrier", "matrix", "other"} <= set(core.latency)
        assert set(core.pipes) == set(core.cycles)
        assert core.bytes("shared_of_block") < core.bytes("shared") < core.bytes("l1") + 1
        assert core.interval[0] < 1 < core.interval[1]
    for chip in ("h100", "a100", "rtx-3090", "rtx-4090", "l4"):
        assert chip_for(chip)[0].cores > 50


def test_a_loop_with_redundant_warps_is_not_taken_for_an_unrolled_one() -> None:
    case = one_of("attention", num_warps=8)
    kernel, parts = read_ir(case.lowered.ir), read_sass(case.binary.sass)
    loops = evaluate(kernel, dict(case.lowered.scalars), case.grid, [63]).loops
    found = trip_counts(parts, loops, {id(loops[0].operation): 64.0}, case.binary.warps)
    # Both warp groups compute all scores of a block of 64 rows: 1.5 times the products of the IR in one iteration.
    assert [found[id(part)] for part in parts if part.loop] == [64]


@pytest.mark.torch
def test_nothing_is_compiled_where_no_device_is_to_be_measured_on(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    import roofline as rl
    from compiled_kernels import doubled

    def compiled(*given: object) -> None:
        raise AssertionError(f"compiled {given}")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(import_module("roofline.blocks.triton.predicting"), "lower", compiled)
    with pytest.raises(rl.UsageError, match="no GPU here"):
        rl.blocks(doubled, (1 << 20,), grid=1, space={"BLOCK": (256,)}, measure=1)


@pytest.mark.torch
def test_a_kernel_is_compiled_without_a_device() -> None:
    torch, triton = pytest.importorskip("torch"), pytest.importorskip("triton")
    import roofline as rl
    from compiled_kernels import doubled

    values = torch.empty(1 << 20, dtype=torch.bfloat16, device="meta")
    found = rl.blocks(
        doubled, (values, values, 1 << 20), grid=lambda config: triton.cdiv(1 << 20, config["BLOCK"]), space={"BLOCK": (256, 1024)}
    )
    assert {config.config["BLOCK"] for config in found.configs} == {256, 1024}
    assert found.best.limit


# Rows of a table by index, summed over as many blocks of 16 as `lens` says.
GATHERED = """
tt.func public @gathered(%ids: !tt.ptr<i32>, %table: !tt.ptr<bf16>, %lens: !tt.ptr<i32>, %out: !tt.ptr<f32>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %row = tt.get_program_id x : i32
  %at = tt.addptr %ids, %row : !tt.ptr<i32>, i32
  %id = tt.load %at : !tt.ptr<i32>
  %place = tt.addptr %lens, %row : !tt.ptr<i32>, i32
  %length = tt.load %place : !tt.ptr<i32>
  %start = arith.muli %id, %n : i32
  %range = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  scf.for %k = %c0 to %length step %c16  : i32 {
    %first = arith.addi %start, %k : i32
    %wide = tt.splat %first : i32 -> tensor<16xi32>
    %index = arith.addi %wide, %range : tensor<16xi32>
    %base = tt.splat %table : !tt.ptr<bf16> -> tensor<16x!tt.ptr<bf16>>
    %pointers = tt.addptr %base, %index : tensor<16x!tt.ptr<bf16>>, tensor<16xi32>
    %values = tt.load %pointers : tensor<16x!tt.ptr<bf16>>
    tt.store %pointers, %values : tensor<16x!tt.ptr<bf16>>
  } loc("k.py":7:0)
  tt.return
}
"""


def test_indices_from_memory_are_taken_as_different_and_ends_of_loops_as_unknown() -> None:
    kernel = read_ir(GATHERED)
    found = evaluate(kernel, {"n": 4096}, (8, 1, 1), range(8), whole)
    rows = found.accesses[2]
    assert len(np.unique(rows.addresses[:, 0])) == 8  # another row for each block
    assert tile_bytes(rows) == 16 * 2
    assert found.loops[0].trips is None


def test_ends_of_loops_come_from_tensors_that_have_values() -> None:
    lengths = np.arange(8, dtype=np.int32) * 16
    found = evaluate(read_ir(GATHERED), {"n": 4096, "lens": lengths}, (8, 1, 1), range(8))
    assert found.loops[0].trips.tolist() == list(range(8))


def test_what_is_changed_in_place_is_read_and_written() -> None:
    arguments = {"n": 4096, "lens": np.full(8, 16), "ids": np.arange(8)}
    kernel = read_ir(GATHERED)
    wave, samples = evaluate(kernel, arguments, (8, 1, 1), range(8)), evaluate(kernel, arguments, (8, 1, 1), range(8), whole)
    found = traffic_of(wave, samples, blocks=8, per_core=1, l1_bytes=1e9, l2_bytes=1e9)
    # 32 bytes in and out for each block; the indices and lengths of all blocks are in one sector each, asked for once by each block.
    assert found.hbm == 8 * (32 + 32) + 2 * 8 * 32


WINDOWS = """
tt.func public @windows(%x: !tt.ptr<f32>) {
  %c64 = arith.constant 64 : i32
  %cst = arith.constant dense<8> : tensor<64xi32>
  %block = tt.get_program_id x : i32
  %first = arith.muli %block, %c64 : i32
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %wide = tt.splat %first : i32 -> tensor<64xi32>
  %index = arith.addi %wide, %range : tensor<64xi32>
  %base = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %here = tt.addptr %base, %index : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  %a = tt.load %here : tensor<64x!tt.ptr<f32>>
  %next = tt.addptr %here, %cst : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  %b = tt.load %next : tensor<64x!tt.ptr<f32>>
  tt.return
}
"""


def test_windows_that_overlap_count_what_they_share_once() -> None:
    kernel = read_ir(WINDOWS)
    wave, samples = evaluate(kernel, {}, (4, 1, 1), range(4)), evaluate(kernel, {}, (4, 1, 1), range(4), whole)
    found = traffic_of(wave, samples, blocks=4, per_core=1, l1_bytes=1e9, l2_bytes=1e9)
    assert found.hbm == 4 * (64 + 8) * 4  # 64 values, and 8 more of the window behind


def test_blocks_that_are_looked_at_fulfil_conditions_as_often_as_all() -> None:
    chosen = spread_over(4 * MOST_BLOCKS)
    assert (chosen[0], chosen[-1]) == (0, 4 * MOST_BLOCKS - 1)
    assert np.bincount(chosen % 4) / len(chosen) == pytest.approx([0.25] * 4, abs=0.02)
    assert spread_over(7).tolist() == list(range(7))


RETURNS = """
tt.func public @returns(%x: !tt.ptr<f32>, %n: i32) {
  %c64 = arith.constant 64 : i32
  %c0 = arith.constant 0 : i32
  %block = tt.get_program_id x : i32
  %first = arith.muli %block, %c64 : i32
  %over = arith.cmpi sge, %first, %n : i32
  cf.cond_br %over, ^bb1, ^bb2(%first : i32)
^bb1:  // pred: ^bb0
  tt.return
^bb2(%at: i32):  // pred: ^bb0
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %wide = tt.splat %at : i32 -> tensor<64xi32>
  %index = arith.addi %wide, %range : tensor<64xi32>
  %base = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %here = tt.addptr %base, %index : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  scf.for %k = %c0 to %c64 step %c64  : i32 {
    %a = tt.load %here : tensor<64x!tt.ptr<f32>>
    %b = arith.addf %a, %a : tensor<64xf32>
    tt.store %here, %b : tensor<64x!tt.ptr<f32>>
  } loc("k.py":7:0)
  tt.return
}
"""


def test_blocks_that_return_early_do_nothing() -> None:
    kernel = read_ir(RETURNS)
    wave = evaluate(kernel, {"n": 128}, (8, 1, 1), range(8))
    # Blocks 0 and 1 of 8 begin below 128; the others compute a few scalars.
    assert wave.code[:2].tolist() == [1, 1]
    assert max(wave.code[2:]) < 0.02
    found = traffic_of(wave, evaluate(kernel, {"n": 128}, (8, 1, 1), range(8), whole), blocks=8, per_core=1, l1_bytes=1e9, l2_bytes=1e9)
    assert found.hbm == 2 * 2 * 64 * 4
    (loop,) = wave.loops
    assert (loop.mean, loop.runs.tolist()) == (1, [True, True] + [False] * 6)
    assert work_of(kernel, {id(loop.operation): loop.mean}, wave.sides) == {"vector/fp32": 2 / 8 * 64}


COLUMNS = """
#blocked = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], warpsPerCTA = [1, 4], order = [0, 1]}>
#blocked1 = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#loc9 = loc("k.py":9:0)
  %a = tt.load %x : tensor<64x64x!tt.ptr<bf16>, LAYOUT> loc(#loc9)
"""


@every("layout, lines", [("#blocked", 32), ("#blocked1", 4)])
def test_threads_along_a_column_touch_a_line_each(layout: str, lines: int) -> None:
    # Rows of 8 KiB: 32 threads in a column have one each; 4 rows of 8 threads with 16 bytes each fill four lines.
    text = """
tt.func public @columns(%p: !tt.ptr<bf16>) {
  %wide = arith.constant dense<4096> : tensor<64x1xi32>
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %rows = tt.expand_dims %range {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
  %columns = tt.expand_dims %range {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
  %far = arith.muli %rows, %wide : tensor<64x1xi32>
  %from = tt.broadcast %far : tensor<64x1xi32> -> tensor<64x64xi32>
  %on = tt.broadcast %columns : tensor<1x64xi32> -> tensor<64x64xi32>
  %at = arith.addi %from, %on : tensor<64x64xi32>
  %base = tt.splat %p : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>>
  %x = tt.addptr %base, %at : tensor<64x64x!tt.ptr<bf16>>, tensor<64x64xi32>
  %a = tt.load %x : tensor<64x64x!tt.ptr<bf16>> loc("k.py":9:0)
  tt.return
}
"""
    samples = evaluate(read_ir(text), {}, (1, 1, 1), [0], whole)
    assert touched_lines(layouts_of(COLUMNS.replace("LAYOUT", layout)), samples) == {("k.py", 9): lines}


DESCRIBED = """
tt.func public @described(%a: !tt.ptr<bf16>, %n: i32) {
  %c1 = arith.constant 1 : i64
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %block = tt.get_program_id x : i32
  %stride = arith.extsi %n : i32 to i64
  %rows = tt.make_tensor_descriptor %a, [%n, %n], [%stride, %c1] : <bf16>, <64x32xbf16>
  %at = arith.muli %block, %c64 : i32
  %tile = tt.descriptor_load %rows[%at, %c0] : !tt.tensordesc<64x32xbf16> -> tensor<64x32xbf16>
  tt.return
}
"""


def test_tiles_of_tensor_descriptors_have_addresses_and_end_with_the_tensor() -> None:
    found = evaluate(read_ir(DESCRIBED), {"n": 96}, (2, 1, 1), [0, 1], whole)
    (tile,) = found.accesses
    assert int(tile.addresses[1, 0, 0] - tile.addresses[0, 0, 0]) == 64 * 96 * 2
    assert tile_bytes(tile) == (64 + 32) / 2 * 32 * 2  # of the second tile 32 rows are inside


def test_a_descriptor_may_be_an_argument() -> None:
    text = DESCRIBED.replace("%a: !tt.ptr<bf16>", "%rows: !tt.tensordesc<64x32xbf16>")
    text = "\n".join(line for line in text.splitlines() if "make_tensor" not in line)
    found = evaluate(read_ir(text), {"n": 96, "rows": Descriptor((96, 96), (96, 1))}, (2, 1, 1), [0, 1], whole)
    assert tile_bytes(found.accesses[0]) == (64 + 32) / 2 * 32 * 2


def test_a_program_on_a_cluster_runs_on_all_its_blocks() -> None:
    chip, _ = chip_for("h200")
    case = one_of("matmul", **MATMUL)
    pair = type(case.lowered)(**{**msgspec.structs.asdict(case.lowered), "options": {**case.lowered.options, "num_ctas": 2}})
    alone = estimate(case.lowered, case.binary, case.grid, chip)
    # The same code for each of two blocks does twice the work in all, of the same program.
    assert estimate(pair, case.binary, case.grid, chip).waves == alone.waves * 2


def test_no_prediction_is_below_the_work_of_the_matrix_unit() -> None:
    chip, _ = chip_for("h200")
    for case in frozen():
        found = estimate(case.lowered, case.binary, case.grid, chip)
        products = sum(amount / chip.matrix_flops[name[7:]] for name, amount in found.work.items() if name.startswith("matrix/"))
        assert found.time_s > products / chip.cores / chip.clock


def test_products_of_fp32_run_where_their_precision_says() -> None:
    text = "%d = tt.dot %a, %b, %c, inputPrecision = {} : tensor<16x32x{}> * tensor<32x8x{}> -> tensor<16x8xf32>"
    for precision, element, resource, passes in (
        ("tf32", "f32", "matrix/tf32", 1), ("ieee", "f32", "vector/fp32", 1), ("tf32x3", "f32", "matrix/tf32", 3),
        ("tf32", "f64", "matrix/fp64", 1), ("tf32", "f8E4M3FN", "matrix/fp8", 1),
    ):  # fmt: skip
        kernel = read_ir(f"tt.func public @k() {{\n{text.format(precision, element, element)}\n}}")
        assert work_of(kernel, {}) == {resource: passes * 2 * 16 * 32 * 8}


def test_the_matrix_units_of_a_chip_are_no_faster_than_its_machine_file_says() -> None:
    for name in ("h200", "h100", "a100", "rtx-3090", "rtx-4090", "l4"):
        chip, machine = chip_for(name)
        for number, flops in chip.matrix_flops.items():
            assert flops * chip.cores * chip.clock <= machine.rate(f"matrix/{number}") * (1 + 1e-9), (name, number)
