"""Peak memory of programs that the TPU compiler made: main memory and VMEM, compared with its own buffer assignments."""

import gzip
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from every import every
from program_texts import program_text
from protobufs import integer, message
from roofline.analysis import analyze
from roofline.hlo.memory.assignment import read_assignment
from roofline.hlo.memory.heap import ALIGNMENT, Piece, placed
from roofline.hlo.memory.peak import peak_memory
from roofline.hlo.price.program import program
from roofline.hlo.read import parse
from roofline.machine import Capacity, Machine
from roofline.peak_memory import MemorySpace, PeakMemory
from roofline.render.screen import report_text
from roofline.resource import HBM, Resource
from roofline.sources import read
from roofline.sources.hlo_dump import program_files, read_modules

FROZEN = Path(__file__).parent / "data" / "tpu" / "memory"  # libtpu 0.0.51, jax 0.10.2
TRUTH = json.loads((FROZEN / "truth.json").read_text())
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "tpu"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the programs in ../shared/data/tpu")
MATRIX = 4 * 1024 * 1024  # bytes of f32[1024,1024]
TUPLE = 32  # bytes of a tuple on v6e; the next is ALIGNMENT after it
HEAD = "HloModule m, is_scheduled=true\n"


def peak(text: str) -> PeakMemory:
    found = peak_memory(parse(text), "tpu")
    assert found is not None
    return found


def vmem(memory: PeakMemory) -> MemorySpace:
    return next(space for space in memory.spaces if space.space == "vmem")


@every("name", TRUTH)
def test_the_peak_is_that_of_the_compilers_buffer_assignment(name: str) -> None:
    # hbm: the allocations in the compiler's dump, gaps between arrays included; vmem: the most that is live, by the trace in the dump.
    memory = peak(gzip.decompress((FROZEN / f"{name}.hlo.gz").read_bytes()).decode())
    assert memory.needed_bytes == pytest.approx(TRUTH[name]["hbm"], rel=1e-4)
    assert vmem(memory).arrays_bytes == pytest.approx(TRUTH[name]["vmem"], rel=1e-4)


def _stated() -> list[tuple[Path, int, int]]:
    """The programs of the shared folder, with ``peak_memory_in_bytes`` and ``temp_size_in_bytes`` as the compiler states them."""
    small = json.loads((SHARED / "xla.json").read_text())
    programs = [(SHARED / f"{name}.hlo.gz", facts["xla"]["peak"], facts["xla"]["temp"]) for name, facts in small.items()]
    for file in sorted((SHARED / "more").glob("*.pb.gz")):
        facts = json.loads(file.with_name(file.name.replace(".pb.gz", ".json")).read_text())["memory"]
        programs.append((file, facts["peak_memory_in_bytes"], facts["temp_size_in_bytes"]))
    return programs


@shared
def test_the_peak_is_the_stated_one_less_arrays_in_vmem() -> None:
    for file, stated, temporaries in _stated():
        memory = peak_memory(parse(gzip.decompress(file.read_bytes())), "tpu")
        assert memory is not None, file
        # Two heaps differ by what a few scalars take, 16 KiB each.
        assert memory.temporaries == pytest.approx(temporaries, rel=1e-4, abs=4 * ALIGNMENT), file
        # The stated peak has no gaps between arrays, and of two heaps the larger: temporary arrays in main memory, or arrays in VMEM.
        live = memory.temporaries - (memory.needed_bytes - memory.peak_bytes)
        heap = max(live, *(space.arrays_bytes for space in memory.spaces), 0)
        assert memory.peak_bytes - live + heap == pytest.approx(stated, rel=0.006), file
        assert all(space.peak_bytes <= 128 * 2**20 for space in memory.spaces), file


def test_a_copy_to_another_layout_is_not_made_in_place() -> None:
    body = "tpu_memory/a_copy_to_another_layout_is_not_made_in_place.hlo"
    assert peak(HEAD + program_text(body, layout="1,0")).temporaries == MATRIX
    assert peak(HEAD + program_text(body, layout="0,1")).temporaries == 2 * MATRIX


OWN = "  a = f32[1024,1024]{1,0:T(8,128)} reverse(x), dimensions={0}"
PART = """  t = (f32[1024,1024]{1,0:T(8,128)}, f32[1]{0:T(128)}) custom-call(x), custom_call_target="k"
  a = f32[1024,1024]{1,0:T(8,128)} get-tuple-element(t), index=0"""


@every(("opcode", "operand", "arrays"), [("cosine", OWN, 1), ("cosine", PART, 1), ("all-reduce", OWN, 1), ("all-reduce", PART, 2)])
def test_a_result_is_written_over_the_operand_that_the_compiler_states(opcode: str, operand: str, arrays: int) -> None:
    # An all-reduce states that it may run in place, and does if its operand is all that another instruction makes.
    text = f"""{HEAD}
ENTRY main {{
  x = f32[1024,1024]{{1,0:T(8,128)}} parameter(0)
{operand}
  b = f32[1024,1024]{{1,0:T(8,128)}} {opcode}(a), backend_config={{"aliasing_operands":{{"lists":[{{"indices":["0","1"]}}]}}}}
  ROOT r = f32[1]{{0:T(128)}} custom-call(b), custom_call_target="k"
}}
"""
    assert peak(text).temporaries // MATRIX == arrays


def test_nothing_is_written_over_where_the_compiler_states_that_nothing_is() -> None:
    body = """
ENTRY main {{
  x = f32[1024,1024]{{1,0:T(8,128)}} parameter(0)
  a = f32[1024,1024]{{1,0:T(8,128)}} reverse(x), dimensions={{0}}
  b = f32[1024,1024]{{1,0:T(8,128)}} cosine(a){config}
  ROOT r = f32[1]{{0:T(128)}} custom-call(b), custom_call_target="k"
}}
"""
    assert peak(HEAD + body.format(config="")).temporaries // MATRIX == 1
    assert peak(HEAD + body.format(config=', backend_config={"aliasing_operands":{"lists":[]}}')).temporaries // MATRIX == 2


@every(("matrices", "heap"), [(1, 1), (2, 3)])
def test_the_memory_of_a_carried_array_is_free_between_its_last_use_and_its_next_value(matrices: int, heap: int) -> None:
    text = program_text(
        "tpu_memory/the_memory_of_a_carried_array_is_free_between_its_last_use_and_its_next_value.hlo", HEAD=HEAD, matrices=matrices
    )
    found = peak(text)
    # `y` is live where `x` is not any more, and `z` not yet: one matrix fits in the memory of `x`, two are placed behind it.
    assert found.temporaries // MATRIX == heap
    assert sum(row.bytes for row in found.at_peak if row.kind == "temporary") // MATRIX == matrices


def test_a_reshape_that_is_left_in_a_compiled_program_makes_an_array() -> None:
    # bf16[8192,8192] as [4096,2,8192]: rows of two are padded to tiles of 8 rows.
    text = f"""{HEAD}
ENTRY main {{
  x = f32[1024,1024]{{1,0:T(8,128)}} parameter(0)
  a = f32[1024,1024]{{1,0:T(8,128)}} reverse(x), dimensions={{0}}
  b = f32[512,2,1024]{{2,1,0:T(8,128)}} reshape(a)
  ROOT r = f32[1]{{0:T(128)}} custom-call(b), custom_call_target="k"
}}
"""
    assert peak(text).temporaries == MATRIX + 4 * MATRIX


def test_a_sparse_core_gets_its_operands_after_it_is_started() -> None:
    text = program_text("tpu_memory/a_sparse_core_gets_its_operands_after_it_is_started.hlo", HEAD=HEAD)
    # The operand, and the half of it that is gathered; besides, the tuples of the start (without the empty ones) and of the update.
    assert peak(text).temporaries == MATRIX + MATRIX // 2 + 4 * ALIGNMENT + TUPLE


WINDOWS = 'backend_config={"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"SIZE"}]}'
PREFETCHED = f"""{HEAD}
ENTRY main {{
  x = f32[1024,1024]{{1,0:T(8,128)}} parameter(0)
  w = f32[1024,1024]{{1,0:T(8,128)}} parameter(1)
  s = (f32[1024,1024]{{1,0:T(8,128)S(1)}}, f32[1024,1024]{{1,0:T(8,128)}}, u32[]{{:S(2)}}) copy-start(w)
  a = f32[1024,1024]{{1,0:T(8,128)}} reverse(x), dimensions={{0}}, {WINDOWS.replace("SIZE", "3000000")}
  d = f32[1024,1024]{{1,0:T(8,128)S(1)}} copy-done(s)
  ROOT y = f32[1024,1024]{{1,0:T(8,128)}} add(a, d), {WINDOWS.replace("SIZE", "2000000")}
}}
"""


def test_vmem_holds_prefetches_and_what_the_running_kernel_uses() -> None:
    found = peak(PREFETCHED)
    # Main memory: two arguments and the result, where `a` cannot be yet; VMEM: `w`, while `a` is made with 3 MB of windows.
    space = vmem(found)
    assert (found.arguments, found.outputs) == (2 * MATRIX, MATRIX)
    assert (space.peak_bytes, space.arrays_bytes, space.scoped_bytes, space.at) == (MATRIX + 3_000_000, MATRIX, 3_000_000, "a")
    assert [(buffer.name, buffer.shape) for buffer in space.largest] == [("s", "f32[1024,1024]")]


WINDOWS = '"window_config":{"estimated_cycles":"7"'  # of each op with windows


@every(("config", "arrays"), [("", 1), (f"{WINDOWS}}}", 0), (f'{WINDOWS},"buffering_level":"2"}}', 1)])
def test_temporary_arrays_are_where_results_will_be_in_programs_of_libtpu_0_0_42(config: str, arrays: int) -> None:
    # `a` is used last by `b`, before the result is made; 0.0.51 states a level of buffering and gives `a` memory of its own.
    text = f"""{HEAD}
ENTRY main {{
  x = f32[1024,1024]{{1,0:T(8,128)}} parameter(0)
  a = f32[1024,1024]{{1,0:T(8,128)}} reverse(x), dimensions={{0}}, backend_config={{{config}}}
  b = f32[1]{{0:T(128)}} custom-call(a), custom_call_target="k"
  ROOT r = f32[1024,1024]{{1,0:T(8,128)}} custom-call(b), custom_call_target="k"
}}
"""
    assert peak(text).temporaries // MATRIX == arrays


def test_arrays_in_the_cmem_of_a_v4_are_not_in_main_memory() -> None:
    text = f"""{HEAD}
ENTRY main {{
  x = f32[1024,1024]{{1,0:T(8,128)}} parameter(0)
  a = f32[1024,1024]{{1,0:T(8,128)S(3)}} negate(x)
  ROOT r = f32[1024,1024]{{1,0:T(8,128)}} negate(a)
}}
"""
    memory = peak(text)
    assert memory.peak_bytes == 2 * MATRIX  # the argument and the result
    assert [(space.space, space.peak_bytes) for space in memory.spaces] == [("cmem", MATRIX)]
    # Each op crosses main memory once: reading the argument, writing the result.
    assert [op.cost[HBM] for op in program(parse(text), "tpu").ops] == [MATRIX, MATRIX]


LONG = "9" * 5000  # digits, more than Python makes a number of


@every("config", ['[{"size":"many"}]', "[7]", '[{"memory_space":"1"}]', f'[{{"memory_space":"1","size":"{LONG}","indices":["{LONG}"]}}]'])
def test_a_damaged_configuration_states_nothing(config: str) -> None:
    text = PREFETCHED.replace('[{"memory_space":"1","offset":"0","size":"3000000"}]', config)
    assert (vmem(peak(text)).peak_bytes, vmem(peak(text)).scoped_bytes) == (MATRIX + 2_000_000, 2_000_000)
    aliases = '"aliasing_operands":{"lists":' + config + "}"
    # It is there, so nothing is written over: two arguments, `a` and the result; and the tuple of the copy.
    assert peak(text.replace('"used_scoped_memory_configs"', f'{aliases},"used_scoped_memory_configs"')).needed_bytes == 4 * MATRIX + TUPLE


def test_slices_that_are_joined_in_place_count_once_in_vmem() -> None:
    half = "f32[512,1024]{1,0:T(8,128)S(1)}"
    text = program_text("tpu_memory/slices_that_are_joined_in_place_count_once_in_vmem.hlo", HEAD=HEAD, half=half)
    assert vmem(peak(text)).arrays_bytes == MATRIX


def test_how_full_vmem_is_stands_beside_main_memory(tmp_path: Path) -> None:
    file = tmp_path / "prefetched.hlo"
    file.write_text(PREFETCHED)
    capacities = (
        Capacity(level=HBM, bytes=1e9, provenance="user"),
        Capacity(level=Resource("vmem"), bytes=2 * (MATRIX + 3_000_000), provenance="user"),
    )
    toy = replace(Machine.of("toy", {"vector/fp32": 100, "hbm": 10}, kind="tpu"), capacities=capacities)
    report = analyze(read(file, toy), toy)
    assert report.memory is not None
    assert vmem(report.memory).capacity_bytes == 2 * (MATRIX + 3_000_000)
    said = " ".join(report_text(report, details=True).split())
    assert "vmem peak at least 7.194 MB of 14.39 MB (50%): arrays 4.194 MB, scoped 3 MB; at a; largest s f32[1024,1024], 4.194 MB" in said


def test_programs_for_other_chips_have_no_vmem() -> None:
    found = peak_memory(parse(PREFETCHED), "gpu")
    assert found is not None
    assert found.spaces == ()


def _traced(events: list[bytes], allocation_index: int) -> bytes:
    """A buffer assignment of one heap with arrays 1 (300 B), 2 and 3 (100 B each), and a trace that names ``allocation_index``."""
    sizes = {1: 300, 2: 100, 3: 100}
    arrays = [message(1, integer(1, number), integer(2, size), message(3, integer(3, number))) for number, size in sizes.items()]
    assigned = [message(9, integer(1, number), integer(3, size)) for number, size in sizes.items()]
    heap = message(3, integer(1, 7), integer(2, 400), *assigned)
    return b"".join([*arrays, heap, message(4, *(message(1, event) for event in events), integer(3, allocation_index))])


def _event(kind: int, number: int, shares: int = 0) -> bytes:
    return integer(1, kind) + integer(2, number) + (integer(5, shares) if shares else b"")


def test_arrays_that_share_freed_memory_are_live_only_while_they_are() -> None:
    # 3 uses the memory of 2 after that was freed, and is freed. The peak is 1 alone, later.
    again = [_event(0, 2), _event(1, 2), _event(2, 3, 2), _event(1, 3), _event(0, 1), _event(1, 1)]
    (heap,) = read_assignment(_traced(again, 7))
    assert [array.bytes for array in heap.arrays] == [300]


def test_a_trace_belongs_to_the_allocation_that_holds_its_arrays() -> None:
    (heap,) = read_assignment(_traced([_event(0, 1), _event(0, 2), _event(1, 1), _event(1, 2)], 99))
    assert (heap.is_traced, sorted(array.bytes for array in heap.arrays)) == (True, [100, 300])


def test_a_dump_has_the_assignment_of_the_stage_before_code_generation(tmp_path: Path) -> None:
    # HloProto: hlo_module = 1, buffer_assignment = 3; the assignment has one allocation, of 5000 bytes.
    instruction = message(2, _text(1, "x"), _text(2, "parameter"), message(3, integer(2, 11), integer(3, 256)), integer(35, 1))
    program = message(
        1, _text(1, "m"), _text(2, "main"), message(3, _text(1, "main"), instruction, integer(5, 1), integer(6, 1)), integer(6, 1)
    )
    assignment = message(3, integer(1, 1), integer(2, 5000), integer(5, 1))
    (tmp_path / "module_0000.jit_f.cl_1.after_codegen.hlo.pb").write_bytes(program)
    (tmp_path / "module_0000.jit_f.cl_1.after_optimizations.hlo.pb").write_bytes(program + message(3, assignment))
    assert [file.name for file in program_files(tmp_path)] == ["module_0000.jit_f.cl_1.after_codegen.hlo.pb"]
    assert [module.buffer_assignment for module in read_modules(tmp_path)] == [assignment]


def _text(number: int, word: str) -> bytes:
    return message(number, word.encode())


SMALL, LARGE = "f32[1024,1024]{1,0:T(8,128)}", "f32[2,1024,1024]{2,1,0:T(8,128)}"


def test_arrays_that_are_live_at_different_times_leave_gaps_where_the_next_does_not_fit() -> None:
    text = program_text(
        "tpu_memory/arrays_that_are_live_at_different_times_leave_gaps_where_the_next_does_not_fit.hlo", HEAD=HEAD, SMALL=SMALL, LARGE=LARGE
    )
    memory = peak(text)
    # `a` is gone when `c` is made, but `b` was placed behind it, so that the two matrices of `c` come after both.
    assert memory.temporaries == 4 * MATRIX
    assert {row.kind: row.bytes for row in memory.at_peak if row.bytes >= MATRIX} == {
        "argument": MATRIX,
        "temporary": 3 * MATRIX,
        "unused": MATRIX,
    }


def test_an_array_is_placed_in_the_smallest_gap_that_it_fits_in() -> None:
    text = program_text("tpu_memory/an_array_is_placed_in_the_smallest_gap_that_it_fits_in.hlo", HEAD=HEAD, SMALL=SMALL, LARGE=LARGE)
    # `e` comes last, since it is made while `a` and `c` are used; `f` then takes the place of `c`, and `g` that of `a`.
    assert peak(text).temporaries == 6 * MATRIX


@every(("small", "behind"), [(1, 8192), (2, 0)])
def test_free_memory_is_as_large_as_what_was_in_it_until_its_neighbour_is_free_too(small: int, behind: int) -> None:
    # Arrays of 512 bytes take 16 KiB each, but one of 8192 bytes fits only where two of them were.
    pieces = [*(Piece(512, (0, 1)) for _ in range(small)), Piece(MATRIX, (0, 9)), Piece(8192, (2, 9))]
    assert placed(pieces) == small * ALIGNMENT + MATRIX + behind


def test_a_gap_is_used_before_the_free_end() -> None:
    # The gap is of two matrices, the free end of one: that which fits better is kept, since the end can grow.
    pieces = [Piece(2 * MATRIX, (0, 1)), Piece(MATRIX, (0, 9)), Piece(MATRIX, (0, 1)), Piece(MATRIX, (2, 9)), Piece(2 * MATRIX, (3, 9))]
    assert placed(pieces) == 5 * MATRIX


def test_memory_that_a_loop_needs_again_is_lent_for_no_longer() -> None:
    # The first is not needed from 2 to 5: one that is made and used in between fits in it, but not one that is used at 6.
    lending = Piece(MATRIX, (0, 9), [(2, 5)])
    assert placed([lending, Piece(MATRIX, (3, 5))]) == MATRIX
    assert placed([lending, Piece(MATRIX, (3, 6))]) == 2 * MATRIX


def test_every_tuple_has_memory_for_the_whole_program() -> None:
    text = program_text("tpu_memory/every_tuple_has_memory_for_the_whole_program.hlo", HEAD=HEAD, SMALL=SMALL)
    # Those of `p`, of `q` and of the loop, which is one; the result's is not temporary. And what the condition returns.
    assert peak(text).temporaries == ALIGNMENT + 2 * ALIGNMENT + TUPLE


def test_a_program_of_calls_that_were_not_copied_is_followed_once() -> None:
    # Each computation calls the next one twice, 2^30 times the last one in all.
    calls = [f"f{level} {{ p = {SMALL} parameter(0)\n a = {SMALL} call(p), to_apply=f{level + 1}\n" for level in range(30)]
    bodies = "".join(f"{call} ROOT b = {SMALL} call(a), to_apply=f{level + 1} }}\n" for level, call in enumerate(calls))
    last = f"f30 {{ p = {SMALL} parameter(0)\n ROOT n = {SMALL} cosine(p) }}\n"
    text = f"{HEAD}{last}{bodies}ENTRY main {{ x = {SMALL} parameter(0)\n ROOT r = {SMALL} call(x), to_apply=f0 }}\n"
    assert peak(text).arguments == MATRIX


def test_the_scalars_of_a_program_are_in_smem_beside_its_vmem() -> None:
    report = analyze(Path(__file__).parent / "data" / "tpu" / "gathered_layers_v5e.hlo.pb.gz")
    assert report.memory is not None
    scalars = next(space for space in report.memory.spaces if space.space == "smem")
    assert (scalars.peak_bytes, scalars.arrays_bytes) == (512, 512)  # one tile of 128 words of 4 B
    assert {space.space for space in report.memory.spaces} == {"vmem", "smem"}
