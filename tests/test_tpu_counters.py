"""Counters of a whole TPU: two shares that the profiler writes, the program's point by hardware."""

from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.sources import read
from roofline.sources.xspace.peaks import NOT_USED
from toys import toy
from xspace_profiles import MICROSECOND as US
from xspace_profiles import write
from xspace_writer import Event, Line, Metadata, Plane, Value


def chip(*lines: Line, busy_us: int = 4) -> Plane:
    add = Metadata("%add.1 = f32[8]{0} add(f32[8]{0} %x)", "add.1", {"hlo_category": "loop fusion", "flops": 8, "bytes_accessed": 96})
    event = Event(add.name, 0, busy_us * US, {"device_offset_ps": 0, "device_duration_ps": busy_us * US})
    return Plane("/device:TPU:0", [Line("XLA Ops", [event], id=3), *lines], {"device_type_string": "TPU v6 Lite"}, [add])


def host(**stats: Value) -> Plane:
    return Plane("/host:CPU", [], stats)


def test_the_two_shares_are_the_hardware_point(tmp_path: Path) -> None:
    recording = read(write(tmp_path, [chip(), host(matrix_unit_utilization_percent=12.5, hbm_utilization_percent=50.0)]))
    assert recording.measured == {"matrix": 0.125, "hbm": 0.5}
    (point,) = [point for point in analyze(recording, toy()).points if point.scope == "hardware"]
    assert point.utilization == {"matrix": 0.125, "hbm": 0.5}
    assert (point.bound, point.floor_s) == ("hbm", pytest.approx(2e-6))  # half of 4 µs


def test_hosts_are_averaged_by_their_time(tmp_path: Path) -> None:
    short = write(tmp_path, [chip(busy_us=1), host(hbm_utilization_percent=100.0)], "a.xplane.pb", ["a"])
    long = write(tmp_path, [chip(busy_us=3), host(hbm_utilization_percent=20.0)], "b.xplane.pb", ["b"])
    assert read([short, long]).measured == {"hbm": pytest.approx(0.4)}  # (1 x 1 + 3 x 0.2) / 4
    bare = write(tmp_path, [chip(), host()], "c.xplane.pb", ["c"])
    assert read([short, bare]).measured == {}  # of a part nobody knows the whole


def test_a_profile_without_counters_has_no_hardware_point(tmp_path: Path) -> None:
    recording = read(write(tmp_path, [chip(), host()]))
    assert recording.measured == {}
    assert "hardware" not in [point.scope for point in analyze(recording, toy()).points]


def test_nonsense_is_not_a_share(tmp_path: Path) -> None:
    assert read(write(tmp_path, [chip(), host(hbm_utilization_percent=-3.0, matrix_unit_utilization_percent=400.0)])).measured == {}


def test_registers_are_said_not_to_be_used(tmp_path: Path) -> None:
    registers = Line("Sample 0", [Event("count_cycles", 0, 0, {"counter_value": 1000.0})], id=9)
    assert NOT_USED in read(write(tmp_path, [chip(registers), host()])).notes
    assert NOT_USED not in read(write(tmp_path, [chip(), host()])).notes
