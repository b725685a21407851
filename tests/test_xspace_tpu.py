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
from xspace_profiles import ELEMENTS, MICROSECOND, by_name, host, programs, recorded, write
from xspace_writer import Event, Line, Metadata, Plane, Value

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
    what = [{each.name: each.label.what for each in ran_or_not.workload} for ran_or_not in (recording, alone)]
    assert what[0] == what[1]
    told = [{(op.name, reason.kind) for op in with_evidence(each).workload for reason in op.avoidable} for each in (recording, alone)]
    assert {kind for _, kind in told[0]} == {"masked-attention"}
    assert told[0] == told[1]


RING, BACK, PAIRS = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{1,0},{2,1},{3,2}}", "{{0,1},{1,0}}"


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
