"""Acceptance checks: ten planted faults are found and named, and clean captures pass."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import roofline as rl
from every import every
from program_texts import program_text
from roofline.analysis import assemble
from roofline.analysis.validation.acceptance import Validation
from roofline.cli import main
from roofline.machine import Machine
from roofline.machines.detection import machine_for
from roofline.operation import Convolution, Product
from roofline.report import OpInfo, Report
from roofline.resource import Resource
from roofline.workload import Avoidable, Coverage, Device, Op, Recording, Saves, Share, Step, Workload

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data"
CLEAN = (
    "h200/jax_train.xplane.pb.gz",
    "h200/jax_fusion.xplane.pb",
    "h200/jax_scan.xplane.pb.gz",
    "h200/jax_custom.xplane.pb.gz",
    "h200/jax_attention.xplane.pb.gz",
    "h200/jax_cond.xplane.pb.gz",
    "h200/torch_contig.json.gz",
    "torch_cpu.json.gz",
    "cpu/jax_one.xplane.pb.gz",
)
THOUSAND = 1000


def wrong(found: Validation) -> set[str]:
    """The inputs that are said to be wrong."""
    return {problem.input for check in found.checks for problem in check.problems}


@pytest.fixture(scope="module")
def scan() -> Recording:
    """Products and memory-bound ops, in five steps."""
    return rl.read(DATA / "h200" / "jax_scan.xplane.pb.gz")


@pytest.fixture(scope="module")
def fusion() -> Recording:
    """Memory-bound ops, in steps of three lengths."""
    return rl.read(DATA / "h200" / "jax_fusion.xplane.pb")


@pytest.fixture(scope="module")
def h200(scan: Recording) -> Machine:
    return machine_for(scan.devices)


def changed(recording: Recording, change: Callable[[Op], Op]) -> Recording:
    return replace(recording, workload=Workload(tuple(change(op) for op in recording.workload)))


def scaled(recording: Recording, factor: Callable[[Resource], float]) -> Recording:
    """A recording whose ops' costs are counted so many times."""

    def scale(op: Op) -> Op:
        return replace(op, cost=rl.Cost.of({resource: amount * factor(resource) for resource, amount in op.cost.amounts}))

    return changed(recording, scale)


def moved(recording: Recording, where: Callable[[Resource], str]) -> Recording:
    """A recording whose work is counted on other resources."""

    def move(op: Op) -> Op:
        total = rl.Cost()
        for resource, amount in op.cost.amounts:
            total = total + rl.Cost.of({where(resource): amount})
        return replace(op, cost=total)

    return changed(recording, move)


CONVOLUTIONS = program_text("validation/convolutions.hlo")


@pytest.mark.parametrize(
    ("factor", "input_"),
    [
        (lambda r: 2 if r.is_compute else 1, "FLOP"),
        (lambda r: 0.5 if r.is_compute else 1, "FLOP"),
        (lambda r: 1 if r.is_compute else 0.5, "bytes"),
    ],
    ids=["doubled FLOP", "halved FLOP", "halved bytes"],
)
def test_wrong_counts_of_convolutions_are_found(factor: Callable[[Resource], float], input_: str, tmp_path: Path) -> None:
    (tmp_path / "program.hlo").write_text(CONVOLUTIONS)
    machine = machine_for((Device(id=0, name="NVIDIA H200"),))
    clean = changed(rl.read(tmp_path / "program.hlo"), lambda op: replace(op, time_s=1.4 * rl.place(op.cost, machine).floor_s))
    sizes = [op.operation for op in clean.workload]
    # 56 x 56 outputs with 3 x 3 taps meet (3 x 56 - 2)^2 inputs; 16 channels of a group make 128; then 28 x 28 outputs with one tap each.
    assert sizes == [
        Convolution(batch=32, features=16 * 128, pairs=166**2, bytes=2 * (32 * 56 * 56 * 192 + 9 * 16 * 128), groups=4),
        Convolution(batch=32, features=128 * 256, pairs=28**2, bytes=2 * (32 * 28 * 28 * 384 + 128 * 256)),
    ]
    assert input_ not in wrong(rl.validate(assemble(clean, machine)))
    assert input_ in wrong(rl.validate(assemble(scaled(clean, factor), machine)))


def with_ops(report: Report, change: Callable[[OpInfo], OpInfo]) -> Report:
    return replace(report, ops=tuple(change(op) for op in report.ops))


@every("name", CLEAN)
def test_clean_captures_pass(name: str) -> None:
    found = rl.validate(DATA / name)
    assert found.holds, [problem.message for check in found.failed for problem in check.problems]
    assert found.check("classification").holds
    assert found.check("time bounds").holds


@pytest.mark.parametrize(
    "name",
    ["h200/jax_matmuls.xplane.pb", "h200/torch/resnet50.json.gz", "h200/pairs/mlp_fp8.xplane.pb.gz", "third_party/tpu_v6e_psum.xplane.pb"],
)
def test_more_clean_captures_pass(name: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip("needs ../shared/data")
    assert rl.validate(SHARED / name).holds


def test_halved_bytes(scan: Recording, h200: Machine) -> None:
    halved = scaled(scan, lambda resource: 0.5 if resource.name == "hbm" else 1)
    assert "bytes" in wrong(rl.validate(halved, h200))
    clean = assemble(scan, h200)
    assert "bytes" in wrong(
        rl.validate(with_ops(clean, lambda op: replace(op, bytes={name: (b or 0) / 2 for name, b in op.bytes.items()})))
    )


def test_doubled_flop(scan: Recording, h200: Machine) -> None:
    found = rl.validate(scaled(scan, lambda resource: 2 if resource.is_compute else 1), h200)
    assert wrong(found) == {"FLOP"}
    assert any("2 times those of the shapes" in problem.message for problem in found.check("classification").problems)
    assert not found.check("time bounds").holds  # products at 80% of the roofline would be at 160%


def test_padding_counted(scan: Recording, h200: Machine) -> None:
    found = rl.validate(scaled(scan, lambda resource: 1.25 if resource.unit == "matrix" else 1), h200)
    assert any("padding" in problem.message for problem in found.check("classification").problems)
    assert "FLOP" in wrong(found)


def test_a_wrong_formats_peak(scan: Recording, h200: Machine) -> None:
    wrong_peak = replace(
        h200,
        ceilings=tuple(replace(one, rate=h200.rate("matrix/fp8")) if one.resource.name == "matrix/bf16" else one for one in h200.ceilings),
    )
    found = rl.validate(scan, wrong_peak)
    (peak,) = found.check("format thresholds").problems
    assert peak.message == "matrix/bf16: 1.979 PFLOP/s is the rate of matrix/int8; h200-sxm has 989.4 TFLOP/s for it"
    assert not rl.validate(scan, h200.override({"matrix/bf16": h200.rate("matrix/fp8")})).check("format thresholds").holds
    assert rl.validate(scan, h200.override({"hbm": "4.2 TB/s"})).check("format thresholds").holds  # a rate that a person chose


def test_work_counted_in_a_wrong_format(scan: Recording, h200: Machine) -> None:
    as_fp8 = moved(scan, lambda resource: "matrix/fp8" if resource.name == "matrix/bf16" else resource.name)
    assert "format" in wrong(rl.validate(as_fp8, h200))


def test_a_wrong_unit(scan: Recording, h200: Machine) -> None:
    found = rl.validate(moved(scan, lambda resource: "vector/fp32" if resource.unit == "matrix" else resource.name), h200)
    assert "unit" in wrong(found)
    assert not found.check("time bounds").holds  # far faster than the vector unit allows
    clean = assemble(scan, h200)
    renamed = with_ops(clean, lambda op: replace(op, work={name.replace("matrix/bf16", "vector/fp32"): a for name, a in op.work.items()}))
    assert "unit" in wrong(rl.validate(renamed))


@every("factor", [THOUSAND, 1 / THOUSAND])
def test_times_of_another_unit(scan: Recording, h200: Machine, factor: float) -> None:
    def longer(op: Op) -> Op:
        return replace(op, time_s=(op.time_s or 0) * factor, self_time_s=(op.self_time_s or 0) * factor)

    found = rl.validate(changed(scan, longer), h200)
    assert "clock" in wrong(found)
    clean = assemble(scan, h200)
    told = with_ops(clean, lambda op: replace(op, time_s=(op.time_s or 0) * factor, self_time_s=(op.self_time_s or 0) * factor))
    assert "clock" in wrong(rl.validate(told))


def test_one_slow_kernel_is_no_wrong_clock(scan: Recording, h200: Machine) -> None:
    ops = assemble(scan, h200).ops
    slow = ops[0].name

    def longer(op: Op) -> Op:
        factor = 50 if op.name == slow else 1
        return replace(op, time_s=(op.time_s or 0) * factor, self_time_s=(op.self_time_s or 0) * factor)

    times = next(one for one in rl.validate(changed(scan, longer), h200).checks if one.name == "time bounds")
    problem = next(one for one in times.problems if "serial time" in one.message)
    assert (problem.input, problem.ops) == ("bytes", (ops[0].id,))
    assert "slow kernels" in problem.message


def test_a_wrong_device_count(scan: Recording, h200: Machine) -> None:
    twice = replace(scan, devices=(*scan.devices, replace(scan.devices[0], id=99)))
    assert wrong(rl.validate(twice, h200)) == {"devices"}


def test_bytes_that_a_cache_held_counted_as_from_a_cold_one(scan: Recording, h200: Machine) -> None:
    assert "cache" in wrong(rl.validate(scaled(scan, lambda resource: 3 if resource.name == "hbm" else 1), h200))


def test_a_cold_first_step() -> None:
    found = rl.validate(DATA / "h200" / "jax_cold.xplane.pb.gz")
    assert "cache" in wrong(found)


def test_swapped_steps(fusion: Recording, h200: Machine) -> None:
    first, *middle, last = fusion.steps  # a long and a short one
    swapped = (replace(first, busy_s=last.busy_s, time_s=last.time_s), *middle, replace(last, busy_s=first.busy_s, time_s=first.time_s))
    assert "steps" in wrong(rl.validate(replace(fusion, steps=swapped), h200))


def timed_steps(busy_ms: list[float], ops_ms: list[float]) -> Recording:
    """Steps of so many busy milliseconds, in which one memory-bound op took so long."""
    shares = tuple(Share(key=step, count=1, time_s=ms / THOUSAND) for step, ms in enumerate(ops_ms))
    spent = sum(ops_ms) / THOUSAND
    op = Op(name="copy", cost=rl.Cost.of({"hbm": 3e9 * sum(ops_ms)}), count=len(ops_ms), time_s=spent, self_time_s=spent, by_step=shares)
    steps = tuple(Step(step=step, name="train", time_s=ms / THOUSAND, busy_s=ms / THOUSAND) for step, ms in enumerate(busy_ms))
    busy = sum(busy_ms) / THOUSAND
    return Recording(workload=Workload((op,)), format="table", steps=steps, coverage=Coverage(busy_s=busy, attributed_s=busy))


@every(
    ("busy", "ops", "holds"),
    [
        ([10.0, 10.2, 10.1], [10.0, 10.2, 10.1], True),
        ([10.2, 10.0, 10.1], [10.0, 10.2, 10.1], False),  # 2% apart, in the wrong order
        ([10.04, 10.0, 10.0], [10.0, 10.04, 10.0], False),  # 0.4% apart, where the right order agrees exactly
        ([10.04, 10.0, 10.02], [10.03, 10.03, 10.0], True),  # no order agrees better than that: kernels side by side
        ([10.005, 10.0, 10.0], [10.0, 10.005, 10.0], True),  # too alike to tell
        ([10.0, 10.0, 10.0, 10.0], [10.4, 10.0, 10.0, 10.4], True),  # kernels side by side in two steps: no order makes that equal
        ([30.0, 10.0, 10.0], [10.0, 10.0, 10.0], False),  # of another clock
    ],
)
def test_steps_are_told_apart_by_their_lengths(busy: list[float], ops: list[float], holds: bool, h200: Machine) -> None:
    assert ("steps" not in wrong(rl.validate(timed_steps(busy, ops), h200))) is holds


def test_products_that_their_sizes_make_slow_are_not_taken_for_wrong_counts(h200: Machine) -> None:
    def product(side: int, times: float, avoidable: tuple[Avoidable, ...] = ()) -> Recording:
        made = rl.formulas.matmul(side, side, side)
        took = times * 2 * side**3 / h200.rate("matrix/bf16")
        op = Op(name="dot", cost=made.cost, time_s=took, self_time_s=took, operation=made.operation, category="matmul", avoidable=avoidable)
        return Recording(workload=Workload((op,)), format="table")

    assert "counts" not in wrong(rl.validate(product(512, 40.0), h200))  # 11 µs: which kernel the library has decides
    cost = rl.formulas.matmul(4097, 4097, 4097).cost
    odd = Avoidable(kind="odd-sizes", instead=cost, why="multiplies matrices of odd sizes", saves=Saves.GOOD_PRODUCT)
    assert "counts" in wrong(rl.validate(product(4097, 3.0), h200))
    assert "counts" not in wrong(rl.validate(product(4097, 3.0, (odd,)), h200))


def two_devices() -> Recording:
    """A product and an exchange on each of two devices."""
    on = (Share(key=0, count=1, time_s=1e-3), Share(key=1, count=1, time_s=1e-3))
    ops = (
        Op(name="dot", cost=rl.Cost.of({"matrix/bf16": 8e11, "hbm": 1e9}), count=2, time_s=2e-3, self_time_s=2e-3, by_device=on),
        Op(name="all-reduce.1", cost=rl.Cost.of({"nvlink": 3e7, "hbm": 3e7}), count=2, time_s=2e-3, self_time_s=2e-3, by_device=on),
    )
    devices = (Device(id=0, name="NVIDIA H200"), Device(id=1, name="NVIDIA H200"))
    return Recording(workload=Workload(ops), format="table", devices=devices, coverage=Coverage(busy_s=4e-3, attributed_s=4e-3))


def test_a_missing_collective(h200: Machine) -> None:
    clean = two_devices()
    assert rl.validate(clean, h200).holds
    gone = replace(clean, workload=Workload(clean.workload.ops[:1]))
    assert wrong(rl.validate(gone, h200)) == {"communication"}
    without_bytes = moved(clean, lambda resource: "hbm" if resource.is_link else resource.name)
    assert wrong(rl.validate(without_bytes, h200)) == {"communication"}


def test_a_missing_collective_of_a_real_run_on_four_chips() -> None:
    path = SHARED / "third_party" / "tpu_v6e_psum.xplane.pb"
    if not path.exists():
        pytest.skip("needs ../shared/data")
    clean = replace(rl.read(path), graphs=())
    chip = machine_for(clean.devices)
    exchanges = {op.name for op in clean.workload if op.category == "all-reduce"}
    assert exchanges
    gone = replace(clean, workload=Workload(tuple(op for op in clean.workload if op.name not in exchanges)))
    assert wrong(rl.validate(gone, chip)) == {"communication"}
    without_bytes = moved(clean, lambda resource: "hbm" if resource.is_link and resource.unit == "ici" else resource.name)
    assert "communication" in wrong(rl.validate(without_bytes, chip))


def test_a_link_rate_that_is_not_the_datasheets(h200: Machine) -> None:
    slow = replace(h200, ceilings=tuple(replace(one, rate=one.rate / 8) if one.resource.name == "nvlink" else one for one in h200.ceilings))
    assert wrong(rl.validate(two_devices(), slow)) == {"communication", "peak"}  # bits taken for bytes


def test_a_product_of_an_array_with_itself_reads_it_once(h200: Machine) -> None:
    # w @ w reads one array and writes one: no bytes are missing.
    side = 4096
    product = rl.formulas.matmul(side, side, side)
    assert product.operation is not None
    op = Op(
        name="dot",
        cost=rl.Cost.of({"matrix/bf16": 2.0 * side**3, "hbm": 4.0 * side**2}),
        time_s=2e-4,
        self_time_s=2e-4,
        operation=product.operation,
    )
    assert rl.validate(Recording(workload=Workload((op,)), format="table"), h200).check("classification").holds


@pytest.mark.parametrize(("time", "holds", "input"), [("4 ms", True, None), ("1 ms", False, "FLOP"), ("4 s", False, "clock")])
def test_a_table_of_ops_is_checked_by_its_times(tmp_path: Path, time: str, holds: bool, input: str | None) -> None:
    table = tmp_path / "ops.csv"
    table.write_text(f"name,flops,bytes,time\nproduct,3 TFLOP,1 GB,{time}\n")  # 3.03 ms at 989.4 TFLOP/s
    found = rl.validate(table, "h200")
    assert found.check("time bounds").holds is holds
    assert wrong(found) == ({input} if input else set())


def test_the_command_says_what_is_wrong_and_ends_with_status_3(
    scan: Recording, h200: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean, bad = tmp_path / "clean.json", tmp_path / "bad.json"
    rl.save(assemble(scan, h200), clean)
    rl.save(assemble(scaled(scan, lambda resource: 2 if resource.is_compute else 1), h200), bad)
    assert main(["validate", str(clean)]) == 0
    assert "3 passed, 0 failed, 2 not checked" in capsys.readouterr().out
    assert main(["validate", str(bad), "--json", str(tmp_path / "checks.json")]) == 3
    shown = capsys.readouterr().out
    assert "1. classification: FAIL" in shown
    assert "wrong: FLOP: FLOP of" in shown
    written = json.loads((tmp_path / "checks.json").read_text())
    assert written["schema"] == "roofline.validation/1"
    assert [one["holds"] for one in written["checks"]] == [False, False, None, True, None]


@pytest.mark.jax
def test_a_function_is_run_and_its_batch_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jax")
    (tmp_path / "layers_to_check.py").write_text("def layer(x, w):\n    return x @ w\n")
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "layers_to_check:layer", "--args", "64x128", "128x128"]) in (0, 3)  # a busy computer's times may say anything
    shown = capsys.readouterr().out
    assert "times the time with a doubled batch" in shown
    assert "1. classification: pass" in shown
    assert main(["validate", "layers_to_check:layer", "--args", "64x128", "128x128", "--batch", "7"]) == 2
    assert "no argument 7" in capsys.readouterr().err
    assert main(["validate", "layers_to_check:layer", "--args", "64x128", "3x3"]) == 2


@pytest.mark.jax
def test_the_lever_test_fails_where_the_time_does_not_follow_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    from roofline.jax import validation

    times = [0.01, 0.05, 1e-5]  # five times the time for twice the work, and a call that takes little
    monkeypatch.setattr(validation, "seconds", lambda *_: times)
    chip = Machine.of("toy", {"matrix/fp32": "1 TFLOP/s", "vector/fp32": "1 TFLOP/s", "hbm": "1 TB/s"})
    found = validation.validate(lambda x, w: x @ w, chip=chip)(jax.numpy.ones((256, 256)), jax.numpy.ones((256, 256)))
    lever = found.check("lever")
    assert lever.holds is False
    assert lever.saw.startswith("5 times the time")


@pytest.mark.jax
@pytest.mark.parametrize("slow", [(0.0, 0.2), (0.1, 0.3), (0.2, 9.0)])
def test_a_computer_that_is_busy_for_a_while_does_not_fail_the_lever_test(
    slow: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    from roofline.jax import validation

    now = [0.0]

    def work(takes_s: float) -> Callable[[], None]:
        def run() -> None:
            now[0] += takes_s * (5 if slow[0] <= now[0] < slow[1] else 1)

        return run

    monkeypatch.setattr(validation, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    jax: Any = SimpleNamespace(block_until_ready=lambda value: value)
    assert validation.seconds(jax, [work(4e-3), work(8e-3)]) == pytest.approx([4e-3, 8e-3])


def test_weights_that_a_kernel_widens_itself_are_read_in_their_own_format(tmp_path: Path) -> None:
    """Half the bytes of bf16 weights are no missing bytes where they are stored in int8."""
    (tmp_path / "program.hlo").write_text(program_text("validation/weights_that_a_kernel_widens_itself_are_read_in_their_own_format.hlo"))
    machine = machine_for((Device(id=0, name="NVIDIA H200"),))
    clean = changed(rl.read(tmp_path / "program.hlo"), lambda op: replace(op, time_s=1.4 * rl.place(op.cost, machine).floor_s))
    (product,) = [op.operation for op in clean.workload]
    assert isinstance(product, Product)
    assert product.widened == 4096 * 1024
    assert "bytes" not in wrong(rl.validate(assemble(clean, machine)))
    halved = scaled(clean, lambda resource: 0.5 if resource.name == "hbm" else 1)
    assert "bytes" in wrong(rl.validate(assemble(halved, machine)))


@every(("milliseconds", "holds"), [(30, True), (80, True), (200, False)])
def test_estimated_rates_of_a_cpu_allow_three_times_as_much_and_the_check_says_so(milliseconds: float, holds: bool) -> None:
    op = Op(name="copy", cost=rl.Cost.of({"hbm": 1e9}), time_s=milliseconds / 1e3)  # 10 ms, or 13 at 75% of the rate
    cpu = replace(Machine.of("cpu", {}).override({"hbm": 100e9}, provenance="derived"), kind="cpu")
    check = rl.validate(Recording(workload=Workload((op,)), format="table"), cpu).check("time bounds")
    assert "within 9 times its serial time by estimated rates" in check.expected
    assert check.holds is holds
    assert any("run roofline chips measure" in note for note in check.notes) is (milliseconds == 80)
