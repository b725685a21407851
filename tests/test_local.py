"""This computer as a machine: measured, kept, found again on the same CPU, and never measured by an analysis."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import roofline as rl
from every import every
from roofline.analysis import analyze
from roofline.cli import main
from roofline.cost import Cost
from roofline.errors import MachineError
from roofline.machine import Spread
from roofline.machines import load
from roofline.machines.catalogue import read_card
from roofline.machines.cpu import Cache, Cpu, this_cpu
from roofline.machines.detection import of_device
from roofline.machines.lint import lint
from roofline.machines.local import local_card, local_file
from roofline.machines.measuring import cpu_experiments as cpu_experiments_module
from roofline.machines.measuring.cpu_conditions import cpu_conditions
from roofline.machines.measuring.cpu_experiments import STREAM_PARTS, cpu_experiments, sweep_sizes, working_sets
from roofline.machines.measuring.cpu_measured import card_of, compare_cpu, measure_cpu
from roofline.machines.measuring.measurement import Result
from roofline.machines.writing import machine_toml, write_machine_file
from roofline.units import percent, show
from roofline.workload import Device, Op, Recording, Workload

CPU = Cpu(
    model="Xeon (R) 5",
    vendor="Intel",
    cores=2,
    threads=2,
    instructions=frozenset({"avx2", "fma"}),
    caches=(Cache(level=1, bytes=2**15, count=2), Cache(level=2, bytes=2**20, count=2)),
    memory_bytes=2**34,
)
CONDITIONS = {"date": "2026-11-16T10:00:00+00:00", "cpu": CPU.model, "cores": "2", "threads": "2", "blas": 'a "quoted" BLAS'}


def result(key: str, rate: float, *, stable: bool = True) -> Result:
    return Result(key=key, how=f"trying {key}", rate=rate, spread=Spread(rate / 2, rate * 0.8, rate), tries=9, stable=stable)


def results(*found: Result) -> dict[str, Result]:
    return {each.key: each for each in found}


HBM_READ = result("hbm/read/100", 20e9)
MEASURED = results(
    result("fma/fp32/all", 150e9),
    result("fma/fp32/one", 80e9),
    result("product/fp32/all", 120e9),
    result("product/fp32/one", 70e9),
    result("fma/fp64/all", 75e9),
    result("hbm/read/100", 20e9),
    result("hbm/copy/100", 15e9),
    result("l2/read/10", 90e9),
    result("l2/copy/10", 100e9),
    result("l2/copy/20", 95e9),
)
CARD = card_of(CPU, MEASURED, CONDITIONS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFLINE_DATA", str(tmp_path))
    return tmp_path


def test_the_roof_is_what_multiply_adds_reach_and_products_are_a_lower_ceiling() -> None:
    machine = CARD.machine
    assert machine.rate("matrix/fp32") == machine.rate("vector/fp32") == 150e9
    assert machine.ceiling("vector/fp32").spread == Spread(75e9, 120e9, 150e9)  # type: ignore[union-attr]
    written = read_back(CARD)
    limits = {limit.name: limit.fraction for limit in written.limits if limit.resource.name == "vector/fp32"}
    assert limits["matrix product"] == pytest.approx(0.8)
    assert limits["one core"] == pytest.approx(80 / 150, rel=1e-5)


def read_back(card: object, path: Path | None = None):  # type: ignore[no-untyped-def]
    import tomllib

    from roofline.machines.machine_file import MachineFile
    from roofline.machines.reading import build
    from roofline.machines.toml_files import typed

    return build(typed(tomllib.loads(machine_toml(card)), MachineFile, "x.toml"), "x.toml").machine  # type: ignore[arg-type]


def test_exponentials_have_a_ceiling_and_the_smallest_ops_are_the_floor_of_predictions() -> None:
    small = (result("small/product", 1e6), result("small/add", 4e6), result("small/sum", 0.5e6))  # of each so many a second
    card = card_of(CPU, MEASURED | results(result("exponentials", 9e9), *small), CONDITIONS)
    machine = read_back(card)
    assert machine.rate("vector/transcendental") == 9e9
    assert machine.launch_floor_s == pytest.approx(1e-6)
    assert card.spec("smallest add") == "250 ns"
    (tiny,) = rl.price([rl.formulas.softmax(8, 8)], machine).ops
    assert tiny.expected is not None
    assert tiny.expected.time_s >= 1e-6
    assert "floor as measured on this machine" in tiny.expected.evidence
    (other,) = rl.price([rl.formulas.softmax(8, 8)], read_back(CARD)).ops  # a file without them
    assert other.expected is not None
    assert "as measured on this machine, and a launch" in other.expected.evidence


def test_products_faster_than_all_vector_units_have_a_unit_of_their_own() -> None:
    fast = card_of(CPU, results(HBM_READ, result("fma/fp32/all", 150e9), result("product/fp32/all", 1000e9)), CONDITIONS).machine
    assert (fast.rate("matrix/fp32"), fast.rate("vector/fp32")) == (1000e9, 150e9)
    # The estimate is 160 GFLOP/s: multiply-adds at a tenth of it were not compiled for the vector units.
    scalar = card_of(CPU, results(HBM_READ, result("fma/fp32/all", 16e9), result("product/fp32/all", 140e9)), CONDITIONS).machine
    assert scalar.rate("matrix/fp32") == scalar.rate("vector/fp32") == 140e9


def test_a_memory_has_the_rate_of_its_fastest_pattern_with_the_others_beside_it() -> None:
    hbm, l2 = CARD.machine.ceiling("hbm"), CARD.machine.ceiling("l2")
    assert hbm is not None
    assert l2 is not None
    assert (hbm.rate, [other.value for other in hbm.others]) == (20e9, [15e9])
    assert (l2.rate, [other.value for other in l2.others]) == (100e9, [90e9])
    assert "write-allocate" in hbm.note


def test_formats_that_cannot_be_measured_are_scaled_from_what_was() -> None:
    amx = replace(CPU, instructions=CPU.instructions | {"amx_tile"})
    bf16 = card_of(amx, MEASURED, CONDITIONS).machine.ceiling("matrix/bf16")
    assert bf16 is not None
    assert (bf16.rate, bf16.provenance) == (150e9 * 1024 / 32, "derived")


def test_a_rate_far_below_the_estimate_is_said() -> None:
    # 2 cores x 2.5 GHz x 32 FLOP per cycle are 160 GFLOP/s.
    busy = card_of(CPU, results(HBM_READ, result("fma/fp32/all", 40e9)), CONDITIONS).machine
    assert "vector/fp32 is 25% of what cores, clock and vector width give" in busy.notes[-1]


@every("found", [[HBM_READ], [result("fma/fp32/all", 150e9)], [HBM_READ, result("fma/fp32/all", 15e9)]])
def test_a_computer_too_busy_to_measure_is_an_error_and_no_machine(found: list[Result]) -> None:
    with pytest.raises(MachineError, match="too busy"):
        card_of(CPU, results(*found), CONDITIONS)


def test_a_written_machine_reads_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    write_machine_file(CARD, path)
    machine = read_card(path).machine
    assert machine.ceilings == CARD.machine.ceilings
    assert machine.conditions == tuple(CONDITIONS.items())
    assert machine.notes == CARD.machine.notes
    assert {held.level.name: held.bytes for held in machine.capacities} == {"hbm": 2**34, "l1": 2**16, "l2": 2**21}
    assert [problem for problem in lint(path) if problem.severity == "error"] == []
    assert [left.name for left in tmp_path.iterdir()] == ["mine.toml"]


def test_a_measurement_counts_on_its_own_cpu_alone(folder: Path) -> None:
    assert local_card(CPU).machine.ceiling("hbm").provenance == "derived"  # type: ignore[union-attr]
    write_machine_file(CARD, local_file(CPU))
    assert local_card(CPU).machine.rate("hbm") == 20e9
    for other in (replace(CPU, cores=1), replace(CPU, threads=4), replace(CPU, model="Xeon (R) 6")):
        assert local_card(other).machine.ceiling("hbm").provenance == "derived"  # type: ignore[union-attr]
    write_machine_file(CARD, local_file(replace(CPU, cores=1)))  # a file in the wrong place does not count either
    assert local_card(replace(CPU, cores=1)).machine.ceiling("hbm").provenance == "derived"  # type: ignore[union-attr]


def test_a_damaged_measurement_is_said_and_the_estimate_used(folder: Path) -> None:
    write_machine_file(CARD, local_file(CPU))
    local_file(CPU).write_text("rate = ")
    machine = local_card(CPU).machine
    assert "cannot be read" in machine.notes[0]
    assert machine.ceiling("hbm").provenance == "derived"  # type: ignore[union-attr]


def mine() -> "object":
    """A measurement of this very computer, made up."""
    cpu = this_cpu()
    return card_of(cpu, MEASURED, {**CONDITIONS, "cpu": cpu.model, "cores": str(cpu.cores), "threads": str(cpu.threads)})


def test_local_is_this_computer_measured_or_estimated(folder: Path) -> None:
    names = ("local", "cpu", "CPU")
    assert {load(name).ceiling("vector/fp32").provenance for name in names} == {"derived"}  # type: ignore[union-attr]
    write_machine_file(mine(), local_file(this_cpu()))  # type: ignore[arg-type]
    assert {load(name).rate("vector/fp32") for name in names} == {150e9}


def test_a_cpu_in_a_profile_is_this_computer_and_the_report_says_so(folder: Path) -> None:
    estimated = of_device(Device(id=0, name="CPU"))
    assert "does not name its CPU: using this computer's" in estimated.notes[0]
    assert "roofline chips measure" in estimated.notes[1]
    write_machine_file(mine(), local_file(this_cpu()))  # type: ignore[arg-type]
    measured = of_device(Device(id=0, name="CPU"))
    assert "measured on 2026-11-16" in measured.notes[1]
    assert not any("roofline chips measure" in note for note in measured.notes)


def test_an_analysis_measures_nothing_and_says_the_same_every_time(folder: Path) -> None:
    code = """
import sys
from pathlib import Path
from roofline.cli import main
main(["op", "matmul", "512", "512", "512", "--chip", "local", "--json", sys.argv[1]])
main(["op", "--flops", "1e9", "--bytes", "1e6", "--chip", "cpu"])
assert not any("cpu_experiments" in name or name == "numpy" for name in sys.modules), "it measured"
"""
    reports = [folder / "a.json", folder / "b.json"]
    for path in reports:
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, env={**os.environ})
    assert reports[0].read_bytes() == reports[1].read_bytes()
    op = Op(name="copy", cost=Cost.of({"hbm": 1e6}), time_s=1.0)
    recording = Recording(workload=Workload((op,)), format="xspace", devices=(Device(id=0, name="CPU"),))
    assert analyze(recording) == analyze(recording)


def test_working_sets_lie_inside_their_level_and_outside_the_inner_one() -> None:
    sizes = {level: {size for at, _, size in working_sets(CPU) if at == level} for level in ("l1", "l2", "hbm")}
    assert sizes["l1"] == {0.375 * 2**15, 0.75 * 2**15}
    assert sizes["l2"] == {2**16, 0.375 * 2**20, 0.75 * 2**20}  # a core's L1 has 32 KiB
    assert sizes["hbm"] == {2**25}  # a thread's half of 64 MiB, which is more than twelve times the last cache
    large = replace(CPU, caches=(*CPU.caches, Cache(level=3, bytes=300 * 2**20, count=1)), memory_bytes=2**37)
    (stream,) = {size for at, _, size in working_sets(large) if at == "hbm"}
    assert stream * large.threads / STREAM_PARTS > 300 * 2**20  # what one try writes cannot all stay in the last cache
    assert {size for at, _, size in working_sets(replace(CPU, memory_bytes=2**24)) if at == "hbm"} == {2**20}  # an eighth of memory


def test_what_a_cache_takes_in_is_not_counted_as_the_rate_of_main_memory() -> None:
    rates = iter([900e9, 100e9, 99e9, 98e9])  # a clean cache first

    class Team:
        def buffers(self, size: int, parts: int) -> list[memoryview]:
            return []

        def run(self, kernel: str, buffers: object, repeats: int) -> tuple[float, float]:
            return next(rates), 1.0

    assert cpu_experiments_module._Kernel("copy", Team(), 2**20, STREAM_PARTS)(3) == [100e9, 99e9, 98e9]  # type: ignore[arg-type]


def test_products_are_tried_in_a_row_until_their_threads_are_awake() -> None:
    class Worker:
        def __init__(self, *times: float) -> None:
            self.times = iter(times)

        def call(self, function: object, dtype: str, side: int, tries: int) -> list[float]:
            return [next(self.times) for _ in range(tries)]

    def rates(*times: float) -> list[float]:
        return cpu_experiments_module._product_rates(Worker(*times), "float32", (100,), 4)  # type: ignore[arg-type]

    assert rates(0.02, 0.008, 0.01, 0.01) == [2 * 100**3 / each for each in (0.02, 0.008, 0.01)]
    assert rates(0.08, 0.01) == [2 * 100**3 / 0.08]  # long ones alone


def test_caches_are_found_in_a_sweep_of_one_thread_beside_what_the_system_says(folder: Path) -> None:
    sizes = sweep_sizes(CPU)
    assert sizes[0] == 2**12
    assert sizes[-1] > 2**24
    rates = {size: 300e9 if size <= 2**15 else 100e9 if size <= 2**20 else 10e9 for size in sizes}
    card = card_of(CPU, MEASURED | results(*(result(f"sweep/{size}", rate) for size, rate in rates.items())), CONDITIONS)
    write_machine_file(card, local_file(CPU))
    written = read_card(local_file(CPU))
    assert len(written.sweep) == len(sizes)
    found = {name: (str(spec.value), spec.note) for name, spec in written.specs.items()}
    assert found["cache level 1 found"] == ("39 kB at 300 GB/s", "the system reports 32.8 kB")  # between 32 KiB and the next size
    assert found["cache level 2 found"] == ("1.25 MB at 100 GB/s", "the system reports 1.05 MB")
    assert "cache level 3 found" not in found
    assert not any(ceiling.resource.name.startswith("sweep") for ceiling in written.machine.ceilings)


def test_every_experiment_runs_on_this_computer() -> None:
    small = replace(this_cpu(), caches=(Cache(level=1, bytes=2**14, count=1),), memory_bytes=2**27)
    with cpu_experiments(small) as setup:
        found = {each.key: each.run(1) for each in setup.experiments}
        assert setup.blas
    assert all(rate > 0 for rates in found.values() for rate in rates)
    assert {key.partition("/")[0] for key, rates in found.items() if rates} == {
        "fma",
        "exponentials",
        "product",
        "small",
        "hbm",
        "l1",
        "sweep",
    }


def test_a_measurement_says_when_and_how_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def made_up(experiments: object, **options: object) -> list[Result]:
        asked.update(options)
        return list(MEASURED.values())

    monkeypatch.setattr("roofline.machines.measuring.cpu_measured.measure_all", made_up)
    conditions = dict(measure_cpu(replace(CPU, caches=()), quick=True).machine.conditions)
    assert (conditions["cpu"], conditions["cores"]) == (CPU.model, "2")
    assert {"date", "blas", "threads", "duration", "operands", "system"} <= set(conditions)
    assert asked["budget_s"] == 15  # seconds, of the 20 that --quick may take


def test_the_command_keeps_writes_and_shows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("roofline.cli.forms.measure.measure_cpu", lambda cpu, **options: mine())
    assert main(["chips", "measure", "--quick"]) == 0
    shown = capsys.readouterr()
    assert "150 GFLOP/s" in shown.out
    assert "2026-11-16T10:00:00" in shown.out
    assert "p5 75 GFLOP/s, p50 120 GFLOP/s, p95 150 GFLOP/s" in shown.out
    assert f"saved as this computer's machine (--chip local): {local_file(this_cpu())}" in shown.err
    assert main(["chips", "local"]) == 0
    card, compared = shown.out.split("\n\n" + this_cpu().model, 1)
    assert capsys.readouterr().out.rstrip() == card
    assert "vector/fp32:" in compared
    target = tmp_path / "shared.toml"
    assert main(["chips", "measure", "-o", str(target), "--json", str(tmp_path / "shared.json")]) == 0
    assert load(str(target)).rate("hbm") == 20e9
    (machine,) = json.loads((tmp_path / "shared.json").read_text())["machines"]
    assert machine["conditions"]["date"] == "2026-11-16T10:00:00+00:00"
    assert machine["ceilings"][0]["spread"] == {"p5": 75e9, "p50": 120e9, "p95": 150e9}


def test_a_measurement_that_was_interrupted_goes_on_from_its_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, asked = tmp_path / "cpu.toml", dict[str, object]()

    def interrupted(experiments: object, *, keep: Callable[..., None], **options: object) -> list[Result]:
        keep("hbm/read/100", [19e9, 20e9], 4.0)
        raise KeyboardInterrupt

    def finished(experiments: object, **options: object) -> list[Result]:
        asked.update(options)
        return list(MEASURED.values())

    monkeypatch.setattr("roofline.machines.measuring.cpu_measured.measure_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure_cpu(replace(CPU, caches=()), quick=True, target=target)
    monkeypatch.setattr("roofline.machines.measuring.cpu_measured.measure_all", finished)
    conditions = dict(measure_cpu(replace(CPU, caches=()), quick=True, target=target).machine.conditions)
    assert (asked["earlier"], asked["earlier_s"]) == ({"hbm/read/100": [19e9, 20e9]}, 4.0)
    assert conditions["duration"].endswith(", 1 experiments from an earlier run")
    measure_cpu(replace(CPU, caches=()), quick=False, target=target)  # another plan: nothing of the first is used
    assert asked["earlier"] == {}


def test_a_measured_cpu_is_compared_with_the_catalogue_or_with_its_units() -> None:
    lines = compare_cpu(CARD, replace(CPU, clock_hz=2.5e9, clock_source="given"))
    assert lines[0] == "Xeon (R) 5 is not in the catalogue; compared with what its units could do:"
    assert lines[1].startswith("vector/fp32: 94% of 160 GFLOP/s, 2 cores x 2.5 GHz")  # 2 x 2.5 GHz x 32 FLOP of two AVX2 units
    found = compare_cpu(CARD, replace(CPU, model="AMD EPYC 9654 96-Core Processor"))
    assert found[0] == "compared with the catalogue's epyc-9654:"
    paper = load("epyc-9654").rate("hbm")
    assert f"hbm: {percent(20e9 / paper)} of {show(paper, 'B/s')}" in found


def test_a_rate_above_what_the_units_give_is_kept_and_explained() -> None:
    fast = card_of(replace(CPU, clock_hz=1e9), MEASURED, CONDITIONS).machine  # 64 GFLOP/s
    assert fast.rate("vector/fp32") == 150e9
    assert any(note.startswith("vector/fp32 is measured at 234% of what cores, clock and vector width give: kept") for note in fast.notes)
    assert not any("kept" in note for note in CARD.machine.notes)


def test_the_system_says_clock_power_limit_and_temperature(tmp_path: Path) -> None:
    said = {
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3400000",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
        "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw": "150000000",
        "sys/class/thermal/thermal_zone0/type": "acpitz",
        "sys/class/thermal/thermal_zone0/temp": "99000",
        "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp",
        "sys/class/thermal/thermal_zone1/temp": "61000",
        "proc/cpuinfo": "cpu MHz\t\t: 2500.000",
    }
    for name, text in said.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    found = cpu_conditions(tmp_path / "proc", tmp_path / "sys")
    assert found == {"clock": "3.4 GHz", "governor": "performance", "power limit": "150 W", "temperature": "61 °C"}
    assert cpu_conditions(tmp_path / "proc", tmp_path / "nowhere") == {"clock": "2.5 GHz"}
    assert cpu_conditions(tmp_path / "nowhere", tmp_path / "nowhere") == {}
