"""TPU operations: by the device's clock, nested, asynchronous pairs joined, each FLOP and byte on the unit or link it needs."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from every import every
from roofline.analysis.evidence import with_evidence
from roofline.cost import Cost
from roofline.hlo.price.collectives import Network, collective
from roofline.hlo.price.types import Site
from roofline.hlo.read import parse
from roofline.hlo.review import Review
from roofline.machine import Machine
from roofline.machines import load
from roofline.placement import place
from roofline.sources import read
from roofline.sources.xspace import scan
from roofline.sources.xspace.tpu_links import collective_cost
from roofline.workload import Recording
from xspace_profiles import ELEMENTS, MICROSECOND, Instruction, annotation, by_name, hlo, host, programs, recorded, write
from xspace_writer import Event, Line, Metadata, Plane, Value, bytes_field, number_field

SHARED = Path(__file__).parents[2] / "shared" / "data" / "third_party"
PSUM = SHARED / "tpu_v6e_psum.xplane.pb"
with_psum = pytest.mark.skipif(not PSUM.exists(), reason="the TPU capture is not here")
US = MICROSECOND
PROGRAM = 7
PEAKS = {
    "device_type_string": "TPU v6 Lite",
    "peak_teraflops_per_second": 918.0,
    "peak_hbm_bw_gigabytes_per_second": 1638.0,
    "peak_vmem_rd_bw_gigabytes_per_second": 23296.0,
    "peak_vmem_wr_bw_gigabytes_per_second": 16128.0,
    "peak_cmem_rd_bw_gigabytes_per_second": 0.0,
}


def breakdown(*accesses: tuple[int, int, int]) -> bytes:
    """A MemoryAccessBreakdown of (1 for a read, else 2; memory space; bytes)."""
    return b"".join(bytes_field(1, b"".join(number_field(place + 1, value) for place, value in enumerate(access))) for access in accesses)


def op(
    name: str, category: str, text: str = "", flops: int | None = 0, moved: int | None = 0, access: bytes | None = None, **more: Value
) -> Metadata:
    """What libtpu says of an instruction."""
    stats: dict[str, Value] = {"hlo_category": category, "program_id": PROGRAM, "symbol_id": 1, **more}
    stats |= {key: value for key, value in (("flops", flops), ("bytes_accessed", moved)) if value is not None}
    stats |= {"memory_access_breakdown": access} if access is not None else {}
    return Metadata(text or f"%{name} = f32[{ELEMENTS}]{{0}} {category.replace(' ', '-')}(f32[{ELEMENTS}]{{0}} %x)", name, stats)


def ran(metadata: Metadata, start: int, duration: int, skew: int = 0) -> Event:
    """An event; its own clock is off by ``skew``."""
    return Event(metadata.name, start + skew, duration + skew, {"device_offset_ps": start, "device_duration_ps": duration})


def tpu(
    events: list[Event], ops: list[Metadata], number: int = 0, lines: list[Line] | None = None, name: str = "XLA Ops", core: str = ""
) -> Plane:
    return Plane(f"/device:TPU:{number}{core}", [Line(name, events, id=3), *(lines or [])], PEAKS, ops)


def test_times_are_the_devices_own_and_figures_the_profiles(tmp_path: Path) -> None:
    fusion = op(
        "fusion.1",
        "loop fusion",
        flops=10,
        moved=100,
        access=breakdown((1, 1, 60), (2, 1, 40)),
        source="model.py:3",
        tf_op="jit(f)/mlp/add:",
    )
    recording = recorded(tmp_path, tpu([ran(fusion, 5 * US, 2 * US, skew=US), ran(fusion, 10 * US, 4 * US)], [fusion]))
    (found,) = recording.workload
    assert (found.name, found.category, found.count, found.time_s) == ("fusion.1", "loop fusion", 2, pytest.approx(6e-6))
    assert (found.scope, found.location) == ("mlp", "model.py:3")
    assert found.cost == Cost.of({"vector/fp32": 20, "hbm": 200})
    assert (found.work_provenance, found.bytes_provenance) == ("profile", "profile")
    assert recording.coverage.wall_s == pytest.approx(9e-6)
    assert recording.devices[0].name == "TPU v6e"
    # Memories that the chip does not have are rated 0 in the profile, and not at all here.
    assert recording.devices[0].rates == pytest.approx(
        {"matrix/bf16": 918e12, "hbm": 1638e9, "vmem.read": 23296e9, "vmem.write": 16128e9},
    )


def test_memories_are_told_apart_and_without_a_breakdown_all_is_main_memory(tmp_path: Path) -> None:
    split = op("a", "loop fusion", moved=15, access=breakdown((1, 1, 1), (2, 1, 2), (1, 2, 3), (2, 2, 4), (1, 3, 5), (2, 3, 6), (1, 9, 7)))
    plain, empty = op("b", "loop fusion", moved=50), op("c", "copy", moved=60, access=b"")
    events = [ran(one, start * 10 * US, US) for start, one in enumerate((split, plain, empty))]
    ops = by_name(recorded(tmp_path, tpu(events, [split, plain, empty])))
    assert ops["a"].cost == Cost.of({"hbm": 3, "cmem.read": 3, "cmem.write": 4, "vmem.read": 5, "vmem.write": 6})
    assert (ops["b"].cost, ops["c"].cost) == (Cost.of({"hbm": 50}), Cost.of({"hbm": 60}))


def test_a_profile_with_its_program_is_told_what_the_program_is(tmp_path: Path) -> None:
    # Each op takes twice its minimum on a v5e. Attention is causal, and computes the full square of scores, in VMEM.
    proto = gzip.decompress((Path(__file__).parent / "data" / "tpu" / "layer_v5e_2x2.hlo.pb.gz").read_bytes())
    chip, events, ops, now = load("v5e"), [], [], 0
    review = Review.of(parse(proto, "layer"), "tpu")
    alone = Recording(workload=review.workload(), format="hlo", graphs=tuple(filter(None, [review.graph()])))
    for each in alone.workload:
        duration = max(round(2 * place(each.cost, chip).floor_s * 1e12), 1)
        ops.append(op(each.name, each.category, flops=round(each.cost.flops or 0), moved=round(each.cost.known("hbm"))))
        events.append(ran(ops[-1], now, duration))
        now += duration
    recording = recorded(tmp_path, tpu(events, ops), programs({PROGRAM: proto}, {PROGRAM: "jit_layer"}))
    what = [{each.name: each.label.rpartition("  ")[2] for each in ran_or_not.workload} for ran_or_not in (recording, alone)]
    assert what[0] == what[1]
    told = [{(op.name, reason.kind) for op in with_evidence(each).workload for reason in op.avoidable} for each in (recording, alone)]
    assert {kind for _, kind in told[0]} == {"masked-attention"}
    assert told[0] == told[1]


def test_idle_time_of_a_tpu_is_not_explained_but_counted(tmp_path: Path) -> None:
    add = op("add.1", "loop fusion")
    recording = recorded(tmp_path, tpu([ran(add, 10 * US, 5 * US), ran(add, 40 * US, 5 * US)], [add]))
    assert [(reason.kind, reason.time_s) for reason in recording.idle] == [("unknown", pytest.approx(25e-6))]


def test_a_loop_spans_its_body_and_costs_nothing_itself(tmp_path: Path) -> None:
    loop, body = op("while.1", "while", flops=99, moved=99), op("fusion.2", "loop fusion", flops=1, moved=8)
    events = [ran(loop, 0, 10 * US), ran(body, US, 2 * US), ran(body, 4 * US, 5 * US)]
    recording = recorded(tmp_path, tpu(events, [loop, body]))
    ops = by_name(recording)
    assert (ops["while.1"].time_s, ops["while.1"].self_time_s, ops["while.1"].cost.amounts) == (
        pytest.approx(1e-5),
        pytest.approx(3e-6),
        (),
    )
    assert ops["fusion.2"].self_time_s == pytest.approx(7e-6)
    assert recording.coverage.busy_s == pytest.approx(1e-5)


def test_products_run_on_the_matrix_unit_in_the_format_their_program_says(tmp_path: Path) -> None:
    square = (64, 64)
    x = Instruction("x", "parameter", dims=square, dtype="s8")
    dot = Instruction("dot.1", "dot", ("x", "x"), dims=square, dtype="s32")
    product = 2 * 64 * 64 * 64
    known = op("dot.1", "convolution", flops=product + 100, moved=10)
    other = op("fusion.9", "convolution fusion", flops=product, moved=10)
    plane = tpu([ran(known, 0, US), ran(other, 2 * US, US)], [known, other])
    ops = by_name(recorded(tmp_path, plane, programs({PROGRAM: hlo("jit_f", {"main": [x, dot]})})))
    # The program has no contracting dimension written, so its own count is of an outer product: the profile's stays the total.
    assert ops["dot.1"].cost.flops == product + 100
    assert {str(resource) for resource, _ in ops["dot.1"].cost.amounts if resource.unit == "matrix"} == {"matrix/int8"}
    # Without its instruction: products of any wider format pass through the unit as bf16.
    assert ops["fusion.9"].cost["matrix/bf16"] == product


def test_what_nobody_can_price_is_unknown(tmp_path: Path) -> None:
    kernel, silent = op("tpu_custom_call.1", "custom-call", flops=0, moved=0), op("mystery", "", flops=None, moved=None)
    recording = recorded(tmp_path, tpu([ran(kernel, 0, US), ran(silent, 2 * US, US)], [kernel, silent]))
    assert not by_name(recording)["mystery"].priced
    assert recording.coverage.priced_s == pytest.approx(1e-6)
    x = Instruction("x", "parameter")
    call = Instruction("tpu_custom_call.1", "custom-call", ("x",), target="tpu_custom_call")
    priced = recorded(tmp_path, tpu([ran(kernel, 0, US)], [kernel]), programs({PROGRAM: hlo("jit_f", {"main": [x, call]})}))
    (found,) = priced.workload
    # Its program gives its operands and results, but not what it computes.
    assert (found.cost.known("hbm"), found.priced, found.bytes_provenance) == (8 * ELEMENTS, False, "compiler")


def pair(name: str, shape: str, operand: str, kind: str = "copy", **more: Value) -> tuple[Metadata, Metadata]:
    """The two halves of an asynchronous operation."""
    number = name.partition(".")[2]
    tail = f".{number}" if number else ""
    start = op(f"{kind}-start{tail}", f"{kind}-start", f"%{kind}-start{tail} = {shape} {kind}-start({operand} %x)", **more)
    done = op(f"{kind}-done{tail}", f"{kind}-done", f"%{kind}-done{tail} = f32[8]{{0}} {kind}-done({shape} %{kind}-start{tail})", **more)
    return start, done


def test_halves_of_a_copy_are_one_from_start_to_done_on_the_hosts_bus(tmp_path: Path) -> None:
    start, done = pair("copy.1", "(f32[8]{0}, f32[8]{0:S(5)}, u32[])", "f32[8]{0:S(5)}", moved=32)
    back, ended = pair("copy.2", "(f32[8]{0:S(5)}, f32[8]{0}, u32[])", "f32[8]{0}", moved=32)
    events = [ran(start, 0, US), ran(done, 9 * US, US), ran(back, 20 * US, US), ran(ended, 24 * US, US)]
    recording = recorded(tmp_path, tpu(events, [start, done, back, ended]))
    ops = by_name(recording)
    assert set(ops) == {"copy-start.1", "copy-start.2"}
    copy = ops["copy-start.1"]
    assert (copy.category, copy.count, copy.kernels, copy.cost) == ("host transfer", 1, 2, Cost.of({"pcie": 32}))
    assert (copy.time_s, copy.self_time_s) == (pytest.approx(1e-5), pytest.approx(2e-6))  # in flight for 10 µs, at the core for 2
    assert ops["copy-start.2"].time_s == pytest.approx(5e-6)


def test_the_end_of_a_copy_is_time_stalled_by_dma_and_that_of_a_collective_is_not(tmp_path: Path) -> None:
    start, done = pair("copy.1", "(f32[8]{0}, f32[8]{0:S(5)}, u32[])", "f32[8]{0:S(5)}", moved=32)
    ahead, ended = pair("all-gather.1", "(f32[8]{0}, f32[8]{0})", "f32[8]{0}", "all-gather")
    fusion = op("fusion.1", "loop fusion", flops=1, moved=8)
    events = [ran(start, 0, US), ran(ahead, US, US), ran(fusion, 2 * US, 2 * US), ran(done, 4 * US, 3 * US), ran(ended, 7 * US, 3 * US)]
    recording = recorded(tmp_path, tpu(events, [start, done, ahead, ended, fusion]))
    stalled = {name: op.dma_stall_s for name, op in by_name(recording).items()}
    assert stalled == {"copy-start.1": pytest.approx(3e-6), "all-gather-start.1": 0.0, "fusion.1": 0.0}
    # 3 of 10 µs; each pair lasts longer, but the core worked besides.
    assert (recording.coverage.dma_stall_s, recording.coverage.busy_s) == (pytest.approx(3e-6), pytest.approx(1e-5))


def test_stalls_that_the_profile_tells_are_counted_within_the_time_of_their_op(tmp_path: Path) -> None:
    fusion, add = op("fusion.1", "loop fusion", flops=1, moved=8), op("add.1", "loop fusion", flops=1, moved=8)
    told = [
        Event(one.name, begin, 4 * US, {"device_offset_ps": begin, "device_duration_ps": 4 * US, "dma_stall_duration_ps": stall * US})
        for one, begin, stall in ((fusion, 0, 1), (fusion, 10 * US, 2), (add, 20 * US, 9))
    ]
    recording = recorded(tmp_path, tpu(told, [fusion, add]))
    assert {name: op.dma_stall_s for name, op in by_name(recording).items()} == {
        "fusion.1": pytest.approx(3e-6),
        "add.1": pytest.approx(4e-6),  # no more than it took
    }


def test_copies_that_overlap_on_one_link_share_the_time_by_their_bytes(tmp_path: Path) -> None:
    one = pair("copy.1", "(f32[8]{0}, f32[8]{0:S(5)}, u32[])", "f32[8]{0:S(5)}", moved=30)
    two = pair("copy.2", "(f32[8]{0}, f32[8]{0:S(5)}, u32[])", "f32[8]{0:S(5)}", moved=10)
    events = [ran(one[0], 0, US), ran(two[0], US, US), ran(one[1], 6 * US, US), ran(two[1], 7 * US, US)]
    ops = by_name(recorded(tmp_path, tpu(events, [*one, *two])))
    # Together from 0 to 8 µs, three quarters of which are the larger one's.
    assert (ops["copy-start.1"].time_s, ops["copy-start.2"].time_s) == (pytest.approx(6e-6), pytest.approx(2e-6))


RING, BACK, PAIRS = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{1,0},{2,1},{3,2}}", "{{0,1},{1,0}}"


@every(
    ("one", "other", "ways", "times_us"),
    [
        (RING, BACK, ("up", "down"), (7, 7)),  # each has the links in its direction for itself
        (RING, RING, ("up", "up"), (4, 4)),  # together from 0 to 8 µs
        (PAIRS, PAIRS, ("", ""), (4, 4)),
    ],
)
def test_permutes_share_the_links_of_one_direction_alone(
    tmp_path: Path, one: str, other: str, ways: tuple[str, ...], times_us: tuple[int, ...]
) -> None:
    shape = "(f32[8]{0}, f32[8]{0}, u32[], u32[])"
    halves = []
    for number, pairs in enumerate((one, other)):
        name = f"collective-permute-start.{number}"
        text = f"%{name} = {shape} collective-permute-start(f32[8]{{0}} %x), source_target_pairs={pairs}"
        end = f"%collective-permute-done.{number} = f32[8]{{0}} collective-permute-done({shape} %{name})"
        halves.append((op(name, "collective-permute-start", text), op(f"collective-permute-done.{number}", "collective-permute-done", end)))
    (first, first_end), (second, second_end) = halves
    events = [ran(first, 0, US), ran(second, US, US), ran(first_end, 6 * US, US), ran(second_end, 7 * US, US)]
    ops = recorded(tmp_path, tpu(events, [first, first_end, second, second_end])).workload.ops
    assert tuple(found.towards for found in ops) == ways
    assert [found.time_s for found in ops] == [pytest.approx(time * 1e-6) for time in times_us]


def test_a_prefetch_reads_one_memory_and_writes_another(tmp_path: Path) -> None:
    shape = "(f32[8]{0:S(1)}, f32[8]{0}, u32[])"
    start = op("copy-start.1", "copy-start", f"%copy-start.1 = {shape} copy-start(f32[8]{{0}} %x)", moved=32, access=breakdown((1, 1, 32)))
    done = op("copy-done.1", "copy-done", f"%copy-done.1 = f32[8] copy-done({shape} %copy-start.1)", moved=32, access=breakdown((2, 3, 32)))
    (copy,) = recorded(tmp_path, tpu([ran(start, 0, US), ran(done, 5 * US, US)], [start, done])).workload
    assert (copy.category, copy.cost) == ("copy", Cost.of({"hbm": 32, "vmem.write": 32}))


def test_a_half_without_its_partner_is_said(tmp_path: Path) -> None:
    start, done = pair("copy.1", "(f32[8]{0}, f32[8]{0:S(5)}, u32[])", "f32[8]{0:S(5)}", moved=32)
    recording = recorded(tmp_path, tpu([ran(done, 0, US), ran(start, 2 * US, US), ran(done, 4 * US, US)], [start, done]))
    assert recording.workload.ops[0].count == 1
    assert recording.notes == ("/device:TPU:0: 1 asynchronous starts or ends have no counterpart",)


def test_halves_that_do_not_name_each_other_have_no_bandwidth(tmp_path: Path) -> None:
    # A copy that one pass of a loop starts and the next one awaits.
    start, _ = pair("copy.1", "(f32[8]{0}, f32[8]{0:S(5)}, u32[])", "f32[8]{0:S(5)}", moved=32)
    text = "%copy-done.7 = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]) %get-tuple-element.3)"
    done = op("copy-done.7", "copy-done", text, moved=32)
    ops = by_name(recorded(tmp_path, tpu([ran(done, 0, US), ran(start, 2 * US, US)], [start, done])))
    assert ops["copy-start.1"].cost.amounts == ()
    assert (ops["copy-done.7"].priced, ops["copy-done.7"].cost["pcie"]) == (False, None)


def test_a_collective_is_on_the_links_with_its_adds_beside(tmp_path: Path) -> None:
    text = "%all-reduce.1 = f32[1000]{0} all-reduce(f32[1000]{0} %x), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%sum"
    reduce = op("all-reduce.1", "all-reduce", text, flops=1000, moved=8000, access=breakdown((1, 1, 4000), (2, 1, 4000)))
    (found,) = recorded(tmp_path, tpu([ran(reduce, 0, US)], [reduce])).workload
    # Pairs: 2 (p−1)/p of the payload is all of it, in two hops.
    assert found.cost == Cost.of({"ici": 4000, "ici/hop": 2, "vector/fp32": 1000})


def test_an_asynchronous_collective_is_joined_too(tmp_path: Path) -> None:
    shape = "(f32[100]{0}, f32[400]{0})"
    text = f"%all-gather-start.1 = {shape} all-gather-start(f32[100]{{0}} %x), replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}"
    start = op("all-gather-start.1", "all-gather-start", text)
    done = op("all-gather-done.1", "all-gather-done", f"%all-gather-done.1 = f32[400] all-gather-done({shape} %all-gather-start.1)")
    (found,) = recorded(tmp_path, tpu([ran(start, 0, US), ran(done, 8 * US, US)], [start, done])).workload
    assert (found.name, found.category, found.time_s) == ("all-gather-start.1", "all-gather", pytest.approx(9e-6))
    assert found.cost == Cost.of({"ici": 3 * 400, "ici/hop": 3})


COLLECTIVES = (
    "all-reduce(f32[{n}]{{0}} x), replica_groups={{{{0,1}},{{2,3}}}}, to_apply=sum",
    "all-reduce(f32[{n}]{{0}} x), replica_groups=[2,4]<=[8], to_apply=sum",
    "all-gather(f32[{n}]{{0}} x), replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}",
    "reduce-scatter(f32[{n}]{{0}} x), replica_groups=[1,8]<=[8], dimensions={{0}}, to_apply=sum",
    "all-to-all(f32[{n}]{{0}} x), replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}",
    "collective-permute(f32[{n}]{{0}} x), source_target_pairs={{{{0,1}},{{1,0}}}}",
    "collective-broadcast(f32[{n}]{{0}} x), replica_groups={{{{0,1,2}}}}",
    "all-reduce(f32[{n}]{{0}} x), replica_groups={{{{0}},{{1}}}}, to_apply=sum",
)


@every("text", COLLECTIVES)
def test_links_read_off_the_text_are_those_of_the_parsed_program(text: str) -> None:
    line = f"f32[96]{{0}} {text.format(n=96)}"
    head = "sum {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"
    module = parse(f"HloModule m, is_scheduled=true\n{head}ENTRY e {{\n x = f32[96]{{0}} parameter(0)\n ROOT c = {line}\n}}")
    root = module.entry_computation.root_instruction
    reference = collective(Site(module, module.entry_computation, root, "tpu"), Network("ici", "ring")).cost
    assert collective_cost(root.opcode, f"%c = {line}") == reference


def test_a_collective_of_all_devices_needs_its_program(tmp_path: Path) -> None:
    assert collective_cost("all-reduce", "%a = f32[8] all-reduce(f32[8] %x), replica_groups={}, to_apply=%s") is None
    lost = op("all-reduce.1", "all-reduce", "%all-reduce.1 = f32[8] all-reduce(f32[8] %x), replica_groups={}", flops=8)
    (found,) = recorded(tmp_path, tpu([ran(lost, 0, US)], [lost])).workload
    assert (found.cost["ici"], found.priced) == (None, False)


def test_infeed_crosses_the_hosts_bus(tmp_path: Path) -> None:
    infeed = op("infeed.1", "infeed", moved=64, access=breakdown((2, 1, 64)))
    (found,) = recorded(tmp_path, tpu([ran(infeed, 0, US)], [infeed])).workload
    assert found.cost == Cost.of({"hbm": 64, "pcie": 64})


def test_sparse_cores_are_part_of_their_chip(tmp_path: Path) -> None:
    dense, sparse = op("fusion.1", "loop fusion", flops=5, moved=8), op("gather.1", "gather", flops=3, moved=16)
    chip = tpu([ran(dense, 0, 4 * US)], [dense])
    beside = tpu([ran(sparse, 2 * US, 4 * US)], [sparse], name="Sparse Core Ops", core=" SparseCore 0")
    recording = recorded(tmp_path, chip, beside)
    assert [device.name for device in recording.devices] == ["TPU v6e"]
    gather = by_name(recording)["gather.1"]
    assert (gather.category, gather.cost) == ("sparse core gather", Cost.of({"compute": 3, "hbm": 16}))
    assert recording.coverage.busy_s == recording.coverage.wall_s == pytest.approx(6e-6)


def test_steps_are_those_the_device_marks_and_one_cut_short_is_not_complete(tmp_path: Path) -> None:
    fusion = op("fusion.1", "loop fusion", flops=1, moved=8)
    marks = Line("Steps", [Event(str(10 + n), n * 10 * US, (10 if n < 3 else 4) * US) for n in range(4)], id=1)
    recording = recorded(tmp_path, tpu([ran(fusion, (n * 10 + 1) * US, 2 * US) for n in range(4)], [fusion], lines=[marks]))
    assert [(step.number, step.complete) for step in recording.steps] == [(10, True), (11, True), (12, True), (13, False)]
    assert (recording.steps[0].time_s, recording.steps[0].busy_s) == (pytest.approx(1e-5), pytest.approx(2e-6))
    assert [share.count for share in recording.workload.ops[0].by_step] == [1, 1, 1, 1]


def test_steps_the_host_annotated_are_the_runs_it_started_in_them(tmp_path: Path) -> None:
    fusion = op("fusion.1", "loop fusion", flops=1, moved=8)
    module = Metadata(f"jit_step({PROGRAM})")
    runs = Line("XLA Modules", [Event(module.name, n * 10 * US, 5 * US, {"run_id": 40 + n}) for n in range(3)], id=2)
    threads = [annotation(5, 0, 4 * US)]
    threads += [Event("CommonPjRtLoadedExecutable::Execute (jit_step)", US + n, US // 2, {"run_id": 40 + n}) for n in range(2)]
    threads += [annotation(6, 5 * US, 4 * US), Event("CommonPjRtLoadedExecutable::Execute (jit_step)", 6 * US, US, {"run_id": 42})]
    plane = tpu([ran(fusion, (n * 10 + 1) * US, 2 * US) for n in range(3)], [fusion, module], lines=[runs])
    recording = recorded(tmp_path, plane, host(threads))
    assert [(step.name, step.number, step.time_s) for step in recording.steps] == [
        ("train", 5, pytest.approx(2e-5)),  # two runs, from 1 µs to the first work of the next at 21
        ("train", 6, pytest.approx(2e-6)),
    ]
    assert [share.count for share in recording.workload.ops[0].by_step] == [2, 1]


def test_without_marks_the_runs_of_the_main_program_are_steps(tmp_path: Path) -> None:
    fusion = op("fusion.1", "loop fusion", flops=1, moved=8)
    modules = [Metadata(f"jit_step({PROGRAM})"), Metadata("jit_init(8)")]
    runs = [Event(modules[0].name, n * 10 * US, 5 * US) for n in range(3)] + [Event(modules[1].name, 90 * US, US)]
    plane = tpu([ran(fusion, (n * 10 + 1) * US, US) for n in range(3)], [fusion, *modules], lines=[Line("XLA Modules", runs, id=2)])
    recording = recorded(tmp_path, plane)
    assert [(step.name, step.number) for step in recording.steps] == [("jit_step", 0), ("jit_step", 1), ("jit_step", 2)]
    assert recording.notes == ("no steps marked: each run of jit_step counts as a step",)
    assert recording.workload.ops[0].module == "jit_step"


def xprof_rows() -> list[dict[str, Any]]:
    """What XProf's roofline tool says of the real profile, row by row."""
    table = json.loads((SHARED / "tpu_v6e_psum.roofline_model.json").read_text())[0]
    ids = [column["id"] for column in table["cols"]]
    return [dict(zip(ids, (cell.get("v") for cell in row["c"]), strict=False)) for row in table["rows"]]


@with_psum
def test_synchronous_rows_of_the_real_profile_equal_xprofs_with_its_own_peaks() -> None:
    recording, rows = read(PSUM), xprof_rows()
    ops = by_name(recording)
    chip = Machine.of("profile", recording.devices[0].rates)
    seen = 0
    for row in rows:
        if row["step"] != "Total" or not row["include_infeed_outfeed"] or not row["rank"] or row["operation"].startswith("copy-"):
            continue
        seen += 1
        found = ops[row["operation"]]
        assert found.time_s is not None
        assert found.self_time_s is not None
        assert found.count == row["occurrences"]
        assert found.time_s * 1e6 == pytest.approx(row["total_time"], rel=1e-9)
        assert found.self_time_s * 1e6 == pytest.approx(row["total_self_time"], rel=1e-9)
        assert float(found.cost.flops or 0) / found.time_s / 1e9 == pytest.approx(row["measured_flop_rate"], rel=1e-9)
        if row["operation"] != "all-reduce":  # its bytes cross ICI
            assert float(found.cost.bytes() or 0) / found.time_s / 2**30 == pytest.approx(row["hbm_bw"], rel=1e-9)
            assert (found.cost.intensity() or 0) == pytest.approx(row["hbm_operational_intensity"], rel=1e-9)
            memory = Cost(tuple(one for one in found.cost.amounts if one[0].is_memory))
            placed = place(memory, chip, found.time_s)
            assert (placed.bound, placed.efficiency) == ("hbm", pytest.approx(row["roofline_efficiency"], rel=1e-9))
    assert seen == 5
    total = next(row for row in rows if row["step"] == "Total" and row["rank"] == 0)
    assert recording.coverage.wall_s == pytest.approx(total["total_time"] * 1e-6, rel=1e-9)


@with_psum
def test_copies_of_the_real_profile_are_joined_on_the_hosts_bus_and_its_all_reduce_is_on_ici() -> None:
    recording = read(PSUM)
    ops, chip = by_name(recording), load("tpu-v6e")
    for number, towards in ((1, 25.5), (2, 25.3), (3, 25.5), (4, 25.3), (5, 25.5)):
        copy = ops[f"copy-start.{number}"]
        # 400 copies of 5,368,709,120 B: by union of intervals 25.3 GiB/s from the host and 25.5 back.
        assert (copy.count, copy.cost) == (400, Cost.of({"pcie": 400 * 5_368_709_120}))
        assert float(copy.cost["pcie"] or 0) / (copy.time_s or 0) / 2**30 == pytest.approx(towards, abs=0.06)
        assert (place(copy.cost, chip, copy.time_s).efficiency or 0) < 1
    # XProf's copy-done rows of the six copies add up to the time stalled: 83.6% of the wall time, 96% of the busy time.
    rows = [row for row in xprof_rows() if row["step"] == "Total" and row["include_infeed_outfeed"] and row["category"] == "copy-done"]
    assert len(rows) == 6
    assert recording.coverage.dma_stall_s == pytest.approx(sum(row["total_self_time"] for row in rows) * 1e-6, rel=1e-6)
    reduce = ops["all-reduce"]
    # 5.37 GB a chip in 121.695 ms over one link.
    assert float(reduce.cost["ici"] or 0) / (reduce.time_s or 0) == pytest.approx(44.1e9, rel=2e-3)
    assert [(step.name, step.number) for step in recording.steps[:2]] == [("jit_f", 0), ("jit_f", 1)]
    assert len(recording.steps) == 100
    assert recording.coverage.attributed_s == recording.coverage.priced_s == recording.coverage.busy_s
    assert sum(op.self_time_s or 0 for op in recording.workload) == pytest.approx(recording.coverage.busy_s)


@pytest.mark.parametrize(
    ("did", "told"),
    [
        ([Event("$data.py:7 load_batch", 110 * US, 80 * US), Event("$time sleep", 111 * US, 78 * US)], ("input", "data.py:7")),
        ([Event("PjRtBuffer::Await", 90 * US, 100 * US)], ("sync", "train.py:3")),
        ([Event("TfrtTpuCompiler::Compile", 105 * US, 90 * US)], ("compile", "train.py:3")),
    ],
)
def test_between_runs_the_host_says_why_the_device_is_idle(tmp_path: Path, did: list[Event], told: tuple[str, str]) -> None:
    fusion, module = op("fusion.1", "loop fusion", flops=1, moved=8), Metadata(f"jit_step({PROGRAM})")
    runs = [Event(module.name, at * US, 100 * US, {"_c": id}) for id, at in ((-5, 0), (6, 200))]
    plane = tpu([ran(fusion, at * US, 100 * US) for at in (0, 200)], [fusion, module], lines=[Line("XLA Modules", runs, id=2)])
    python = [Event("$train.py:3 main", 0, 400 * US), *did]
    worker = [Event("DoEnqueueProgram", at * US, US, {"_p": id}) for id, at in ((-5, 0), (6, 198))]
    (found,) = recorded(tmp_path, plane, host(python, worker)).idle
    assert ((found.kind, found.location), found.time_s) == (told, pytest.approx(100e-6))
    assert [(share.key, share.time_s) for share in found.by_step] == [(0, pytest.approx(100e-6))]


def test_reasons_are_of_no_more_than_the_idle_time_by_the_devices_clock(tmp_path: Path) -> None:
    fusion, module = op("fusion.1", "loop fusion", flops=1, moved=8), Metadata(f"jit_step({PROGRAM})")
    runs = [Event(module.name, at * US, 100 * US, {"_c": id}) for id, at in ((5, 0), (6, 300))]
    plane = tpu([ran(fusion, at * US, 100 * US) for at in (0, 200)], [fusion, module], lines=[Line("XLA Modules", runs, id=2)])
    worker = [Event("DoEnqueueProgram", at * US, US, {"_p": id}) for id, at in ((5, 0), (6, 298))]
    found = recorded(tmp_path, plane, host([Event("$train.py:3 main", 0, 400 * US)], worker))
    assert sum(reason.time_s for reason in found.idle) == pytest.approx(100e-6)


def test_runs_that_count_as_steps_are_summed_once_for_steps_and_idle_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, summed = op("add.1", "non-fusion elementwise"), list[str]()
    runs = Line("XLA Modules", [Event("jit_f(7)", at * US, 100 * US, {"_c": id}) for id, at in ((5, 0), (6, 300))], id=2)
    plane = tpu([ran(add, 0, 100 * US), ran(add, 300 * US, 100 * US)], [add], lines=[runs])
    worker = [Event("DoEnqueueProgram", at * US, US, {"_p": id}) for id, at in ((5, 0), (6, 298))]
    real = scan.read_all

    def read_all(space: Any, requests: Any, *others: Any) -> Any:
        summed.extend(request.line.name for request in requests if isinstance(request, scan.TotalsOf))
        return real(space, requests, *others)

    monkeypatch.setattr(scan, "read_all", read_all)
    found = recorded(tmp_path, plane, host(worker))
    assert [reason.kind for reason in found.idle] == ["input"]
    assert any("no steps marked" in note for note in found.notes)
    assert sorted(summed) == ["XLA Modules", "XLA Ops"]


def test_a_host_that_enqueues_nothing_leaves_the_reason_unknown(tmp_path: Path) -> None:
    fusion = op("fusion.1", "loop fusion", flops=1, moved=8)
    plane = tpu([ran(fusion, at * US, 100 * US) for at in (0, 200)], [fusion])
    assert [reason.kind for reason in recorded(tmp_path, plane, host([Event("step", 0, 400 * US)])).idle] == ["unknown"]


def test_the_timeline_has_what_the_host_did_by_the_devices_clock(tmp_path: Path) -> None:
    # By the clock of events, which is 50 µs ahead and loses 1 µs in 300, programs run from 50 to 150 and from 249 to 349 µs.
    fusion, module = op("fusion.1", "loop fusion", flops=1, moved=8), Metadata(f"jit_step({PROGRAM})")
    runs = [Event(module.name, at * US, 100 * US, {"_c": id}) for id, at in ((5, 50), (6, 249))]
    ops = [ran(fusion, at * US, 100 * US, skew=skew * US) for at, skew in ((0, 50), (200, 49))]
    python = [Event("$train.py:3 main", 0, 400 * US), Event("$data.py:7 load_batch", 152 * US, 90 * US)]
    worker = [Event("DoEnqueueProgram", at * US, US, {"_p": id}) for id, at in ((5, 40), (6, 247))]
    space = [tpu(ops, [fusion, module], lines=[Line("XLA Modules", runs, id=2)]), host(python, worker)]
    recording = read(write(tmp_path, space), timeline=True)
    run = recording.timeline[-1]
    assert run.step is None
    idle = [place for place, busy in enumerate(run.busy_s) if busy < run.bucket_s / 2]
    # 300 µs in a thousand buckets: idle from the 334th to the 666th, and the host loads data all the while.
    assert (min(idle), max(idle)) == (pytest.approx(333, abs=2), pytest.approx(666, abs=2))
    said = {recording.idle[reason].location for place in idle[3:-3] if (reason := run.host[place]) is not None}
    assert said == {"data.py:7"}
    assert sum(run.host[place] is None for place in idle) <= 6
