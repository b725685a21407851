"""Devices that hold the others up: slower in their own work, or last where they meet."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from every import every
from roofline.analysis import analyze
from roofline.analysis.findings.stragglers import median, spreads
from roofline.analysis.findings.stragglers import straggler as evidence_of
from roofline.analysis.findings.writing import Writer
from roofline.cost import Cost
from roofline.report import DeviceShare, Finding, OpInfo, Report
from roofline.sources import read
from roofline.workload import Device, Op, Recording, Share, Workload
from toys import HBM, toy
from xspace_profiles import MICROSECOND as US
from xspace_profiles import Instruction, gpu, hlo, kernel, programs, write

PSUM = Path(__file__).parents[2] / "shared" / "data" / "third_party" / "tpu_v6e_psum.xplane.pb"
FOUR = tuple(Device(id=id, name="chip", host="ab"[id // 2]) for id in range(4))


def straggler(ops: Sequence[OpInfo], shares: Sequence[DeviceShare], devices: Sequence[Device]) -> Finding | None:
    evidence = evidence_of(ops, shares, devices)
    return Writer().finding(evidence) if evidence else None


def rows(op: OpInfo, *times: float, count: int = 1) -> list[DeviceShare]:
    return [DeviceShare(op=op.id, device=device, count=count, time_s=time_s) for device, time_s in enumerate(times)]


DOT, ADD = OpInfo(id=0, rank=1, name="dot"), OpInfo(id=1, rank=2, name="add")
REDUCE = OpInfo(id=2, rank=3, name="all-reduce.1", category="all-reduce", bound="ici")


def test_the_spread_is_of_an_execution_and_waiting_of_them_all() -> None:
    (one,) = spreads([DOT], rows(DOT, 10.0, 12.0, 11.0, 20.0, count=10), FOUR)
    assert (one.places, one.fastest, one.slowest) == (4, "0 on a", "3 on b")
    assert (one.fastest_s, one.median_s, one.slowest_s) == (1.0, 1.15, 2.0)
    assert one.spread == pytest.approx(2 / 1.15)
    assert one.waiting_s == pytest.approx(10 + 8 + 9)  # what the others wait for the slowest


def test_hosts_are_the_sums_of_their_devices() -> None:
    (one,) = spreads([DOT], rows(DOT, 1.0, 3.0, 4.0, 4.0), FOUR, by="host")
    assert (one.places, one.fastest, one.fastest_s, one.slowest, one.slowest_s) == (2, "a", 2.0, "b", 4.0)


def test_what_one_device_runs_has_no_spread() -> None:
    assert spreads([DOT], rows(DOT, 1.0), FOUR) == ()


def test_the_longest_waits_come_first() -> None:
    found = spreads([DOT, ADD], [*rows(DOT, 1.0, 1.1), *rows(ADD, 1.0, 3.0)], FOUR[:2])
    assert [one.name for one in found] == ["add", "dot"]


@every(("times", "expected"), [([3.0, 1.0, 2.0], 2.0), ([1.0, 4.0], 2.5)])
def test_the_median_is_the_middle(times: list[float], expected: float) -> None:
    assert median(times) == expected


def test_a_device_that_is_slower_throughout_is_a_straggler() -> None:
    found = straggler([DOT, ADD], [*rows(DOT, 1.0, 1.0, 1.0, 1.2), *rows(ADD, 2.0, 2.0, 2.0, 2.2)], FOUR)
    assert found is not None
    # Its host is 1.1 times as slow in dot and 1.05 in add, and so named first: 3.2 s where the median host takes 3.1.
    assert found.kind == "straggler"
    one = (FOUR[0], FOUR[1], FOUR[2], Device(id=3, name="chip", host="a"))
    alone = straggler([DOT, ADD], [*rows(DOT, 1.0, 1.0, 1.0, 1.2), *rows(ADD, 2.0, 2.0, 2.0, 2.2)], [d for d in one if d.id != 2])
    assert alone is not None
    assert alone.message.startswith("device 3 takes 1.13 times as long as the median device")  # 3.4 s where the median takes 3
    assert alone.saving_s == pytest.approx(2 * 0.4)  # two others, 0.4 s each
    assert alone.ops == (0, 1)
    assert alone.levers


def test_a_device_that_is_slower_in_one_op_alone_is_none() -> None:
    devices = FOUR[:2] + tuple(Device(id=id, name="chip", host="a") for id in (2, 3))
    assert straggler([DOT, ADD], [*rows(DOT, 1.0, 1.0, 1.0, 1.3), *rows(ADD, 2.0, 2.0, 2.0, 1.9)], devices) is None


def test_who_waits_least_where_devices_meet_came_last() -> None:
    devices = tuple(Device(id=id, name="chip", host="a") for id in range(4))
    found = straggler([DOT, REDUCE], [*rows(DOT, 1.0, 1.0, 1.0, 1.0), *rows(REDUCE, 3.0, 3.0, 3.0, 1.0)], devices)
    assert found is not None
    assert found.message.startswith("device 3 arrives last at collectives: the others wait for it in all-reduce.1")
    assert found.ops == (REDUCE.id,)


def test_a_slow_device_is_not_blamed_for_the_others_waits_as_slow() -> None:
    devices = tuple(Device(id=id, name="chip", host="a") for id in range(4))
    found = straggler([DOT, REDUCE], [*rows(DOT, 1.0, 1.0, 1.0, 2.0), *rows(REDUCE, 3.0, 3.0, 3.0, 2.0)], devices)
    assert found is not None
    assert "device 3 takes 2 times as long" in found.message  # not one of those that wait longest in the exchange


def test_even_devices_are_not_accused() -> None:
    assert straggler([DOT, REDUCE], [*rows(DOT, 1.0, 1.01, 0.99, 1.0), *rows(REDUCE, 1.0, 1.0, 1.02, 1.0)], FOUR) is None


def report_of(*times: float) -> Report:
    shares = tuple(Share(key=device, count=1, time_s=time_s) for device, time_s in enumerate(times))
    op = Op(name="copy", cost=Cost.of({HBM: 10.0 * len(times)}), count=len(times), time_s=sum(times), by_device=shares)
    devices = tuple(Device(id=device, name="toy", host=f"host{device}") for device in range(len(times)))
    return analyze(Recording(workload=Workload((op,)), format="xspace", devices=devices), toy())


def test_a_straggler_is_a_finding_of_the_report_in_its_order() -> None:
    kinds = [finding.kind for finding in report_of(2.0, 2.0, 2.0, 8.0).findings]
    assert "straggler" in kinds
    savings = [finding.saving_s or 0.0 for finding in report_of(2.0, 2.0, 2.0, 8.0).findings]
    assert savings == sorted(savings, reverse=True)
    assert "straggler" not in [finding.kind for finding in report_of(2.0, 2.0, 2.0, 2.0).findings]
    assert "straggler" not in [finding.kind for finding in report_of(2.0).findings]


def host_file(folder: Path, name: str, each_ps: int) -> Path:
    program = hlo("jit_f", {"main": [Instruction("x", "parameter"), Instruction("add.1", "add", ("x", "x"))]})
    events = [kernel("add_1", turn * 10 * US, each_ps, hlo_op="add.1", program_id=7, scope_range_id=turn + 1) for turn in range(3)]
    return write(folder, [gpu(events), programs({7: program})], f"{name}.xplane.pb", [name])


def test_a_slow_host_of_a_run_is_found_in_its_profiles(tmp_path: Path) -> None:
    files = [host_file(tmp_path, f"host{number}", 3 * US if number == 2 else US) for number in range(3)]
    recording = read(files)
    report = analyze(recording, toy())
    (found,) = [finding for finding in report.findings if finding.kind == "straggler"]
    assert found.message.startswith("host host2 takes 3 times as long as the median host")
    (one,) = spreads(report.ops, report.by_device, report.input.devices)
    assert (one.slowest, one.slowest_s, one.median_s) == ("2 on host2", pytest.approx(3e-6), pytest.approx(1e-6))


@pytest.mark.skipif(not PSUM.exists(), reason="the capture is not here")
def test_the_chips_of_a_real_run_are_even() -> None:
    report = analyze(read([PSUM]), toy())
    found = {one.name: one for one in spreads(report.ops, report.by_device, report.input.devices)}
    assert len(found) == 10  # the broadcast ran on one chip only
    assert max(one.spread or 0 for one in found.values()) < 1.001
    assert found["all-reduce"].exchange
    assert not [finding for finding in report.findings if finding.kind == "straggler"]
