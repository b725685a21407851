"""A GPU measured: the plan, the worker on a real framework, the plateaus of a sweep, and the machine file that comes of the answers."""

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import roofline as rl
from every import every
from roofline.errors import MachineError
from roofline.machine import LAUNCH_LATENCY_S
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.machines.catalogue import card as look_up
from roofline.machines.catalogue import read_card
from roofline.machines.local import local_gpu_file
from roofline.machines.measuring import gpu_measured, gpu_plan
from roofline.machines.measuring.finished_experiments import FinishedExperiments, finish
from roofline.machines.measuring.gpu_measured import compare_with_catalogue, gpu_card, measure_gpu
from roofline.machines.measuring.gpu_plan import Plan, plan, sizes
from roofline.machines.measuring.gpu_worker import Accelerator
from roofline.machines.measuring.memory_levels import plateaus
from roofline.machines.writing import write_machine_file
from roofline.prediction import predict
from roofline.prediction.calibration import Calibration

MIB = 2**20
H200 = {"framework": "torch 2", "device": "NVIDIA H200", "cores": 132, "memory": 150109880320, "l2": 60 * MIB, "capability": "9.0"}
BURSTS = {"bf16": 830e12, "fp16": 800e12, "tf32": 420e12, "fp8": 1400e12, "int8": 1300e12, "fp32": 52e12, "fp64": 63e12}
SAID = {"device": "NVIDIA H200", "date": "2026-11-16T10:00:00+00:00", "power limit": "700.00 W"}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What an H200 would say: 4.3 TB/s from memory, twice that from 40 MiB of L2, held products at 85% of bursts."""
    name = request["name"]
    if name == "product":
        if request["number"] not in BURSTS:
            return {"absent": "no such format"}
        rate = BURSTS[request["number"]] * (0.85 if request.get("held") else 1) * (1.1 if request.get("zeros") else 1)
        return {"rates": [0.98 * rate, rate, 1.01 * rate], "how": "products", "shape": [8192] * 3, "layout": "NT"}
    if name == "stream":
        pattern, size = request["pattern"], request["size"]
        rate = {"read": 4.3e12, "write": 4.1e12, "copy": 4.0e12, "per_core": 4.3e12}[pattern] * (2 if size < 40 * MIB else 1)
        if pattern == "per_core" and size < 24 * MIB:
            rate = 30e12
        return {"rates": [rate] * 3, "how": pattern, "bytes": size}
    if name in ("launch", "small"):
        return {"seconds": [2e-6, 2.2e-6, 2.4e-6], "how": "one after the other"}
    return {"rates": [{"vector": 60e12, "host": 55e9}[name]], "how": name}


ANSWERS = {key: answer(request) for key, request in plan(H200, quick=False).items()}
CARD = gpu_card(H200, ANSWERS, SAID)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("measured") / "h200.toml"
    write_machine_file(CARD, path)
    return path


def sweep(*levels: tuple[float, float], noise: float = 0.0) -> Iterator[tuple[float, float]]:
    """Rates of working sets from 1 MiB to 4 GiB, for levels given as (bytes it holds, B/s)."""
    numbers = random.Random(7)
    for size in sizes(MIB, 4096 * MIB, 2):
        yield size, next(rate for holds, rate in levels if size <= holds) * math.exp(numbers.uniform(-noise, noise))


def test_levels_are_the_plateaus_of_a_sweep_and_hold_what_lies_before_the_fall() -> None:
    found = plateaus(list(sweep((20 * MIB, 20e12), (60 * MIB, 8e12), (math.inf, 4e12), noise=0.03)))
    assert [round(level.rate / 1e12) for level in found] == [20, 8, 4]
    assert found[0].holds == pytest.approx(20 * MIB, rel=0.3)
    assert found[1].holds == pytest.approx(60 * MIB, rel=0.3)
    assert found[2].holds is None


@every("holds", [30 * MIB, 45 * MIB, 60 * MIB])
@every("replacement", ["random", "least recently used"])
def test_a_level_serves_what_it_holds_however_it_replaces(holds: float, replacement: str) -> None:
    # Of a working set x times as large as a cache that replaces at random, the share h stays in it from one pass to the next, where
    # h = exp(-(1 - h) x): the rate falls over more than a doubling. The time is that of both shares one after the other.
    points = []
    for size in sizes(MIB, 4096 * MIB, 4):
        share = 1.0 if size <= holds else 0.0
        if replacement == "random" and not share:
            for _ in range(200):
                share = math.exp(-(1 - share) * size / holds)
        points.append((float(size), 1 / (share / 9.5e12 + (1 - share) / 4.5e12)))
    inner, outer = plateaus(points)
    assert inner.serves == pytest.approx(holds, rel=0.17)
    assert outer.serves is None
    if replacement == "random":
        assert (inner.holds or 0) > 1.2 * holds


def test_the_way_between_two_levels_is_no_level() -> None:
    # Eight sizes per doubling: several lie on the way from one level to the next.
    points = [(MIB * 2 ** (step / 8), 8e12 / (1 + max(0.0, min(1.0, (step - 40) / 12)))) for step in range(96)]
    assert [round(level.rate / 1e12) for level in plateaus(points)] == [8, 4]


def test_a_quick_plan_is_a_part_of_the_full_one() -> None:
    quick, full = plan(H200, quick=True), plan(H200, quick=False)
    assert quick.keys() < full.keys()
    assert sum(each["seconds"] for each in quick.values()) < 6 < sum(each["seconds"] for each in full.values()) < 70
    compiled = plan({**H200, "framework": "jax 0.10"}, quick=True)  # which takes longer than the experiments
    assert {key for key in compiled if not key.startswith("launch/")} < quick.keys()
    assert all(len(each["shapes"]) == 1 for each in compiled.values() if each["name"] == "product")


def test_the_roof_is_what_bursts_of_random_operands_reach_with_zeros_beside_and_held_rates_below(written: Path) -> None:
    machine = load(str(written))
    roof = machine.ceiling("matrix/bf16")
    assert roof is not None
    assert roof.spread is not None
    assert (roof.rate, roof.provenance, roof.spread.p50) == (pytest.approx(1.01 * 830e12), "measured", 830e12)
    assert {each.note for each in roof.others} >= {"zeros take less power"}
    held = next(limit for limit in machine.limits if (limit.name, limit.resource.name) == ("held", "matrix/bf16"))
    assert held.fraction * roof.rate == pytest.approx(0.85 * 830e12, rel=0.005)


@every("slow", [5, 9])
def test_a_held_rate_is_work_over_time_however_long_power_control_slows_it_down(slow: int) -> None:
    # 700 and 600 TFLOP/s by turns: the median would be one or the other.
    rates = [700e12] * (14 - slow) + [600e12] * slow
    card = gpu_card(H200, ANSWERS | {"product/bf16/held/random": {"rates": rates, "how": "products"}}, SAID)
    held = next(each for each in card.sustained if each.what == "bf16 products held")
    assert held.per_second == pytest.approx(14 / ((14 - slow) / 700e12 + slow / 600e12))
    assert "p50 700" in held.note if slow == 5 else "p50 600" in held.note


class FakeWorker:
    """Answers as an H200 would, and takes some seconds for each."""

    def __init__(self, clock: list[float], takes_s: float = 10) -> None:
        self.clock, self.takes_s, self.asked = clock, takes_s, dict[str, Any]()

    def ask(self, request: dict[str, Any]) -> None:
        self.asked = request

    def answer(self) -> dict[str, Any]:
        self.clock[0] += self.takes_s
        return answer(self.asked)


def test_a_quick_measurement_on_a_slow_computer_makes_a_machine_of_what_it_had_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(gpu_plan.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gpu_plan.time, "sleep", lambda _: None)
    kept = FinishedExperiments(tmp_path / "gpu.toml", {})
    worker: Any = FakeWorker(clock)
    found = gpu_plan.run_plan(worker, kept, plan({**H200, "framework": "jax 1"}, quick=True), lambda done, total: None, until=15.0)
    machine = gpu_card(H200, found["answers"], SAID).machine
    assert machine.rate("hbm") == pytest.approx(4.3e12)
    assert machine.launch_floor_s == pytest.approx(2.2e-6)
    bf16, fp16 = machine.ceiling("matrix/bf16"), machine.ceiling("matrix/fp16")
    assert (bf16 is not None, fp16 is not None) == (True, False)
    assert any("experiments were skipped because time ran out" in note for note in machine.notes)
    assert not any("no matmuls in" in note for note in machine.notes)


def test_a_quick_measurement_ends_in_time_however_slow_each_experiment_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan({**H200, "framework": "jax 1"}, quick=True)
    for takes_s in (0.1, 0.5, 1.0):
        clock = [4.0]  # the start of the process
        monkeypatch.setattr(gpu_plan.time, "monotonic", lambda clock=clock: clock[0])
        monkeypatch.setattr(gpu_plan.time, "sleep", lambda _: None)
        kept = FinishedExperiments(tmp_path / f"{takes_s}.toml", {})
        worker: Any = FakeWorker(clock, takes_s)
        found = gpu_plan.run_plan(worker, kept, wanted, lambda done, total: None, until=gpu_plan.QUICK_S)
        assert clock[0] <= gpu_plan.QUICK_S + takes_s < 20
        assert gpu_card(H200, found["answers"], SAID).machine.rate("hbm")  # what a machine file needs came first
    assert len(wanted) > 16  # which would have taken longer than that


@pytest.mark.jax
def test_what_a_try_through_jax_takes_besides_its_calls_is_found_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from roofline.machines.measuring import jax_experiments
    from roofline.machines.measuring.jax_experiments import JaxDevice
    from roofline.machines.measuring.jax_timing import wait_of

    assert wait_of(lambda calls: 0.5e-3 + 0.8e-3 * calls) == pytest.approx(0.5e-3)
    monkeypatch.setattr(jax_experiments, "CONFIG", SimpleNamespace(update=lambda name, value: None))  # tests share this process
    device = JaxDevice("cpu")
    assert device._clock is None  # of GPUs alone
    device._wait_s = 0.5e-3
    device.each = lambda work, tries, calls: [(0.5e-3 + 0.8e-3 * calls) / calls] * tries  # type: ignore[method-assign]
    assert device.timed(lambda: None, 2, 6) == pytest.approx([0.8e-3] * 2)
    device._wait_s = 1.0  # longer than the try: then it was not that
    assert device.timed(lambda: None, 1, 6) == pytest.approx([(0.5e-3 + 0.8e-3 * 6) / 12])


class FakeDevice:
    """A device that takes 1 ms for each call it is sent, one after the other; the host's clock, which each sending moves a little."""

    def __init__(self) -> None:
        self.now, self.busy_until, self.idle = 5.0, 5.0, 0.0

    def call(self) -> float:
        self.now += 40e-6
        self.idle += max(0.0, self.now - self.busy_until)
        self.busy_until = max(self.now, self.busy_until) + 1e-3
        return self.busy_until

    def clock(self) -> list[float]:
        return [max(self.now, self.busy_until) * 1e9]

    def wait(self, value: Any) -> Any:
        self.now = max(self.now, value[0] / 1e9 if isinstance(value, list) else value)
        return value


@pytest.mark.jax
def test_calls_through_jax_are_timed_by_the_devices_own_clock_where_a_kernel_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from roofline.machines.measuring import jax_timing
    from roofline.machines.measuring.jax_timing import JaxTimer

    timer, fake = JaxTimer.__new__(JaxTimer), FakeDevice()
    monkeypatch.setattr(jax_timing, "WAIT", fake.wait)
    monkeypatch.setattr(jax_timing, "time", SimpleNamespace(perf_counter=lambda: fake.now, monotonic=lambda: fake.now))
    timer._clock = fake.clock
    assert timer.timed(fake.call, 3, 4) == pytest.approx([1e-3] * 3)
    timer._calls = lambda work: 4  # type: ignore[method-assign]
    began, fake.idle = fake.now, 0.0
    held = timer._held(fake.call, 0.5)
    assert 0.5 <= fake.now - began < 0.55  # neither waits for each try nor sends seconds of work ahead
    assert 50 <= len(held) <= 70  # the second half
    assert held == pytest.approx([1e-3] * len(held))
    assert fake.idle < 1e-3  # a device that rests between tries stays below its power limit


@pytest.mark.jax
@pytest.mark.parametrize(("ticks", "used"), [(1.0, True), (0.97, True), (1000.0, False), (0.0, False)])
def test_a_device_clock_that_does_not_run_as_the_hosts_is_not_used(ticks: float, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    from roofline.machines.measuring import jax_timing
    from roofline.machines.measuring.jax_timing import JaxTimer

    timer, now = JaxTimer.__new__(JaxTimer), [0.0]

    def rest(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(jax_timing, "time", SimpleNamespace(perf_counter=lambda: now[0], sleep=rest))
    timer.kernels = SimpleNamespace(CLOCKS=1, clock=lambda: lambda anything: [int(now[0] * 1e9 * ticks)])
    with jax.enable_x64(True):
        assert (timer._device_clock() is not None) is used


@pytest.mark.jax
def test_kernels_through_pallas_go_over_every_block_of_the_working_set_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.experimental.pallas.triton")
    from functools import partial

    from roofline.machines.measuring import pallas_kernels

    monkeypatch.setattr(pallas_kernels.pallas, "pallas_call", partial(pallas_kernels.pallas.pallas_call, interpret=True))
    words, elements, blocks, passes = 256, 16, 11, 3
    source = jax.numpy.arange(words, dtype=jax.numpy.float32)
    counts = jax.numpy.array([blocks, passes], jax.numpy.int32)

    def run(pattern: str) -> Any:
        return pallas_kernels.stream(pattern, words, (elements, 4, 2), cores=2)(source, counts)

    inside = source[: blocks * elements]
    assert float(run("read").sum()) == passes * float(inside.sum())
    assert (run("copy")[: blocks * elements] == inside).all()
    written = jax.numpy.isin(run("write"), jax.numpy.arange(passes))  # by whichever pass came last
    assert written[: blocks * elements].all()
    assert not written[blocks * elements :].any()
    per_core = pallas_kernels.per_core((elements, 4, 1), cores=3)(source, jax.numpy.array([9, passes], jax.numpy.int32))
    assert (per_core.reshape(3, elements) == passes * source[: 9 * elements].reshape(3, 3, elements).sum(1)).all()  # three blocks each


@pytest.mark.jax
def test_every_kernel_through_pallas_compiles_for_a_gpu() -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.experimental.pallas.triton")
    from roofline.machines.measuring import pallas_kernels

    def compiled(kernel: Any, *shapes: tuple[tuple[int, ...], str]) -> str:
        return str(kernel.trace(*(jax.ShapeDtypeStruct(*one) for one in shapes)).lower(lowering_platforms=("cuda",)).as_text())

    for pattern in ("read", "write", "copy"):
        kernel = pallas_kernels.stream(pattern, 2**20, (2048, 8, 8), cores=132)
        assert "triton" in compiled(kernel, ((2**20,), "float32"), ((2,), "int32"))
    for number in ("fp32", "transcendental"):
        assert "triton" in compiled(pallas_kernels.arithmetic(number, 8, 1024, 16), ((8 * 1024,), "float32"))
    with jax.enable_x64(True):
        assert "triton" in compiled(pallas_kernels.clock(), ((pallas_kernels.CLOCKS,), "int64"))
        assert "triton" in compiled(pallas_kernels.null(), ((pallas_kernels.CLOCKS,), "int64"))
    assert "triton" in compiled(pallas_kernels.per_core((2048, 16, 1), 132), ((2**20,), "float32"), ((2,), "int32"))


class FakeLaunches:
    """Chains of null kernels on a GPU: 30 us and so much for each kernel, by whether XLA was asked for a graph."""

    def __init__(self, inside: float, outside: float) -> None:
        from roofline.machines.measuring import jax_launches

        made = jax_launches.Launches.__new__(jax_launches.Launches)
        made._anything = None

        def chain(length: int, options: dict[str, Any], *_: Any) -> Any:
            each = outside if options is jax_launches.ONE_BY_ONE else inside
            tries = iter([900e-6] * jax_launches.WARM_UP + [1e-6, 0.0, 2e-6] * jax_launches.TRIES)  # the first ones make the graph
            return lambda *_: ([5000], [5000 + 1e9 * (30e-6 + length * each + next(tries))])

        made._chain = chain  # type: ignore[method-assign]
        self.launches = made


@pytest.mark.jax
def test_a_kernel_in_a_graph_of_xla_takes_what_a_longer_chain_takes_more() -> None:
    pytest.importorskip("jax")
    launches = FakeLaunches(inside=0.5e-6, outside=4e-6).launches
    inside, outside = launches.graph()["seconds"], launches.stream()["seconds"]
    assert sorted(inside)[len(inside) // 2] == pytest.approx(0.5e-6)
    assert sorted(outside)[len(outside) // 2] == pytest.approx(4e-6)
    assert max(inside) == pytest.approx(0.51e-6)  # a try that took 1 us longer, over 100 kernels
    smallest = launches.small_op(lambda x, y: x + y, (1, 2))
    assert sorted(smallest)[len(smallest) // 2] == pytest.approx(0.5e-6)


@pytest.mark.jax
def test_the_smallest_ops_run_between_two_readings_of_the_clock_and_need_each_other() -> None:
    jax = pytest.importorskip("jax")
    from roofline.machines.measuring.jax_launches import Launches

    with jax.enable_x64(True):
        clock = SimpleNamespace(CLOCKS=4, clock=lambda: lambda value: value + 7, null=lambda: lambda value: value + 1)
        launches, one = Launches(clock), jax.numpy.ones((2, 8), "bfloat16")
        started, ended = launches._chain(5, {}, lambda x, y: x + y, (one, one))(launches._anything, one, one)
        assert started.tolist() == [7] * 4
        assert ended.tolist() == [7 + (1 + 7 % 2 + 5) + 7] * 4  # the first value, five more, and the clock again
        started, ended = launches._chain(5, {})(launches._anything)
        assert (ended - started).tolist() == [5 + 7] * 4


@pytest.mark.jax
def test_where_xla_made_no_graph_the_machine_says_so_and_has_no_such_figure() -> None:
    pytest.importorskip("jax")
    from roofline.machines.measuring.gpu_worker import answer as answer_of

    launches = FakeLaunches(inside=3.9e-6, outside=4e-6).launches
    device: Any = SimpleNamespace(run=lambda name, request: launches.graph())
    found = answer_of(device, {"name": "launch", "kind": "graph"})
    assert found == {"absent": "XLA made no graph: 3.9 \u00b5s for each kernel, 4 \u00b5s when not asked for one"}
    card = gpu_card(H200, ANSWERS | {"launch/graph": found}, SAID)
    assert card.spec("null kernel in a graph") is None
    assert any("no kernel in a graph was measured: XLA made no graph" in note for note in card.machine.notes)
    assert card.machine.launch_latency_s == LAUNCH_LATENCY_S  # an assumption, as of every machine that was not measured


@pytest.mark.jax
def test_this_version_of_xla_knows_the_options_that_make_a_graph() -> None:
    jax = pytest.importorskip("jax")
    from roofline.machines.measuring import jax_launches

    for options in (jax_launches.AS_GRAPH, jax_launches.ONE_BY_ONE):
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options=options)
    with pytest.raises(Exception, match="No such compile option"):
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={"xla_gpu_no_such_thing": 1})


def test_fp32_products_are_a_lower_ceiling_of_the_vector_unit_where_the_chip_has_no_fp32_matrix_unit(written: Path) -> None:
    machine = load(str(written))
    assert machine.ceiling("matrix/fp32") is None
    assert ("matrix product", "vector/fp32") in {(limit.name, limit.resource.name) for limit in machine.limits}


def test_memory_levels_are_found_in_the_sweep_with_the_drivers_size_beside(written: Path) -> None:
    machine = load(str(written))
    assert machine.rate("hbm") == pytest.approx(4.3e12)
    assert machine.rate("l2") == pytest.approx(8.6e12)
    assert machine.rate("l1") == pytest.approx(30e12)
    assert 30 * MIB < (machine.capacity("l2") or 0) < 50 * MIB


def test_the_machine_file_extends_the_chip_and_reads_back_with_sweep_floor_and_conditions(written: Path) -> None:
    card = read_card(written)
    assert (card.extends, card.machine.name) == ("h200-sxm", "h200-sxm-measured")
    assert card.sweep == CARD.sweep
    assert card.machine.launch_floor_s == pytest.approx(2.2e-6)
    assert dict(card.machine.conditions)["power limit"] == "700.00 W"
    assert card.machine.ceiling("nvlink") is not None  # what was not measured is the catalogue's


def test_several_devices_are_measured_by_copies_between_two_of_them() -> None:
    assert "peer" in plan({**H200, "count": 8}, quick=False)
    card = gpu_card(H200, ANSWERS | {"peer": {"rates": [380e9], "how": "copies between two devices"}}, SAID)
    assert card.spec("copy to another device") == "380 GB/s"


def test_an_all_reduce_is_told_with_what_each_device_sends() -> None:
    assert {key for key in plan({**H200, "count": 8}, quick=True) if key.startswith("all-reduce/")}
    assert not any(key.startswith("all-reduce/") for key in plan(H200, quick=False))
    found = {"seconds": [1e-3, 1e-3, 1.2e-3], "how": "all-reduce", "bytes": 200_000_000, "devices": 8}
    card = gpu_card(H200, ANSWERS | {"all-reduce/200000000": found}, SAID)
    spec = card.specs["all-reduce of 200 MB over 8 devices"]
    assert spec.value == "1 ms"
    assert "350 GB/s sent by each device" in spec.note  # 2 x 7 / 8 of 200 MB in a millisecond


@pytest.mark.slow
@pytest.mark.jax
def test_copies_and_all_reduces_between_two_devices_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with Accelerator("cpu", "jax") as worker:
        assert worker.device["count"] == 2
        worker.ask({"name": "all-reduce", "size": 2**20, "seconds": 0.0})
        reduced = worker.answer()
        worker.ask({"name": "peer", "seconds": 0.0})
        copied = worker.answer()
    assert (reduced.get("devices"), reduced.get("bytes")) == (2, 2**20)
    assert min(reduced["seconds"]) > 1e-6
    assert min(copied["rates"]) > 1e6


def test_a_rate_above_the_datasheet_is_kept_and_explained() -> None:
    answers = ANSWERS | {"product/fp64/burst/random": {"rates": [80e12], "how": "products"}}
    machine = gpu_card(H200, answers, SAID).machine
    assert machine.rate("matrix/fp64") == 80e12
    assert any("matrix/fp64 is measured at 119% of the catalogue's 67 TFLOP/s: kept" in note for note in machine.notes)


def test_the_result_is_compared_with_the_datasheet_and_with_what_others_measured() -> None:
    lines = compare_with_catalogue(CARD, look_up("h200-sxm"))
    bf16 = next(line for line in lines if line.startswith("matrix/bf16"))
    assert bf16 == "matrix/bf16: 85% of the catalogue's 989.4 TFLOP/s in bursts, 71% held; others measured 80%"


def test_a_device_whose_memory_could_not_be_measured_is_no_machine() -> None:
    with pytest.raises(MachineError, match="no bandwidth of its memory"):
        gpu_card(H200, {key: found for key, found in ANSWERS.items() if not key.startswith("stream")}, SAID)


@pytest.fixture(params=["jax", "torch"])
def framework(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


def small_plan(device: Any, quick: bool) -> Plan:
    """A few experiments of every kind, each as short as it can be."""
    wanted = (
        "product/fp32/burst",
        "product/fp4/burst",
        "stream/read/1048576",
        "stream/copy/2097152",
        "launch/",
        "small/add",
        "host/in",
    )
    return {key: {**request, "seconds": 0.0} for key, request in plan(device, True).items() if key.startswith(wanted)}


def test_a_real_framework_is_measured_and_an_interrupted_run_resumes(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_measured, "plan", small_plan)
    monkeypatch.setattr(gpu_measured, "QUICK_S", math.inf)  # a busy machine may need longer, and would leave experiments out
    target = tmp_path / "device.toml"
    told: list[tuple[int, int]] = []
    card = measure_gpu(target, quick=True, kind="cpu", framework=framework, tell=lambda done, total: told.append((done, total)))
    machine = card.machine
    assert machine.rate("hbm") > 1e8
    assert machine.rate("matrix/fp32") > 1e8
    assert machine.launch_floor_s is not None
    assert 0 < machine.launch_floor_s < 1
    assert any("no matmuls in fp4" in note for note in machine.notes)
    assert framework in dict(machine.conditions)["libraries"]
    assert told[-1][0] == told[-1][1]
    write_machine_file(card, target)
    assert load(str(target)).rate("hbm") == pytest.approx(machine.rate("hbm"), rel=1e-4)
    # All is finished, so the same command takes every rate from the file beside the target, until the machine file is written.
    again = measure_gpu(target, quick=True, kind="cpu", framework=framework)
    assert again.machine.ceilings == machine.ceilings
    assert "from an earlier run" in dict(again.machine.conditions)["duration"]
    finish(target)
    assert [path.name for path in tmp_path.iterdir()] == ["device.toml"]


def test_answers_of_another_device_or_cut_off_are_not_used(tmp_path: Path) -> None:
    target = tmp_path / "gpu.toml"
    first = FinishedExperiments(target, {"device": "A"})
    first.add("vector/fp32", {"rates": [1.0]})
    assert FinishedExperiments(target, {"device": "A"}).answers == {"vector/fp32": {"rates": [1.0]}}
    part = tmp_path / "gpu.toml.part"
    part.write_text(part.read_text() + '["vector/fp64", {"rat')
    assert FinishedExperiments(target, {"device": "A"}).answers == {"vector/fp32": {"rates": [1.0]}}
    assert FinishedExperiments(target, {"device": "B"}).answers == {}


def test_no_gpu_is_one_line_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with pytest.raises(MachineError, match=r"no GPU can be measured here \(.*jax: no accelerator"):
        Accelerator("gpu", "jax")


def test_a_gpu_that_was_never_measured_has_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Path) -> None:
    monkeypatch.setenv("ROOFLINE_DATA", str(tmp_path))
    with pytest.raises(MachineError, match="roofline chips measure --device gpu"):
        load("local-gpu")
    mine = local_gpu_file()
    mine.parent.mkdir(parents=True)
    mine.write_text(written.read_text())
    assert load("local-gpu").rate("hbm") == pytest.approx(4.3e12)


def test_a_measured_machine_predicts_the_same_rates_from_its_own_roof_and_floor(written: Path) -> None:
    measured, chip = load(str(written)), load("h200-sxm")
    mine, paper = calibration_for(measured), calibration_for(chip)
    ours, theirs = mine.family("products", "", "bf16"), paper.family("products", "", "bf16")
    assert ours is not None
    assert theirs is not None
    assert ours.values["compute"] * measured.rate("matrix/bf16") == pytest.approx(theirs.values["compute"] * chip.rate("matrix/bf16"))
    assert ours.values["memory"] * measured.rate("hbm") == pytest.approx(theirs.values["memory"] * chip.rate("hbm"))
    assert mine.floor_s == measured.launch_floor_s


def test_a_fit_from_other_cards_is_named_so_and_never_above_what_this_card_reached(written: Path) -> None:
    words = "on other cards of this chip, not on the one measured here: fitted on"
    product = rl.formulas.matmul(8192, 8192, 8192)
    seconds = {}
    for name, machine in (("chip", load("h200-sxm")), ("card", load(str(written)))):
        (op,) = rl.price([product], machine).ops
        assert op.expected is not None
        assert op.floor_s is not None
        assert op.expected.low_s >= op.floor_s
        assert (words in op.expected.evidence) == (name == "card")
        seconds[name] = op.expected.time_s
    slow = written.with_name("slow.toml")  # a card that reaches 300 TFLOP/s: the fit of 700 cannot hold of it
    slow.write_text(re.sub(r'(resource = "matrix/bf16"\nrate = )"[^"]*"', r'\1"300 TFLOP/s"', written.read_text()))
    (op,) = rl.price([product], load(str(slow))).ops
    assert op.expected is not None
    assert op.expected.time_s >= 2 * 8192**3 / 300e12 > 1.5 * seconds["card"]


def test_what_a_measured_machine_sustains_is_used_and_named_where_no_calibration_is(written: Path) -> None:
    measured, chip = load(str(written)), load("h200-sxm")
    product, copy = rl.Cost.of({"matrix/bf16": 1e13}), rl.Cost.of({"hbm": 1e10})
    nothing = Calibration(name="none")
    # Held products run at 0.85 of the median burst, 0.84 of the roof; copies at 4.0 of 4.3 TB/s.
    for cost, seconds in ((product, 1e13 / (0.85 * 830e12)), (copy, 1e10 / 4.0e12)):
        mine = predict(None, cost, measured, nothing.with_floor(measured.launch_floor_s))
        paper = predict(None, cost, chip, nothing)
        assert mine is not None
        assert paper is not None
        assert mine.time_s == pytest.approx(seconds, rel=0.01)
        assert "sustained rates and floor as measured on this machine" in mine.evidence
        assert "measured" not in paper.evidence
