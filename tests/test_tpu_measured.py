"""Measuring a TPU through JAX: the experiments run for real, on a CPU that only its name makes a TPU."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from roofline.cli import main
from roofline.cli.forms import measure
from roofline.errors import MachineError
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.machines.measuring import gpu_plan
from roofline.machines.measuring.finished_experiments import FinishedExperiments
from roofline.machines.measuring.gpu_measured import compare_with_catalogue, gpu_card
from roofline.machines.measuring.gpu_plan import plan, run_plan
from roofline.machines.measuring.gpu_worker import Accelerator, answer
from roofline.machines.measuring.tpu_devices import tpu_here
from roofline.machines.writing import write_machine_file
from roofline.units import parse

V6E = {"framework": "jax 0.10.2", "device": "TPU v6 lite", "platform": "tpu", "count": 1, "cores": 1, "memory": parse("31.25 GiB", "B")}
SAID = {"device": "TPU v6 lite", "date": "2026-11-18T00:00:00+00:00"}


def test_a_tpu_is_asked_for_what_its_units_do() -> None:
    wanted = plan(V6E, quick=False)
    assert {key.split("/")[1] for key in wanted if key.startswith("product/")} == {"bf16", "int8", "fp8"}
    assert {key.split("/")[1] for key in wanted if key.startswith("vector/")} == {"fp32", "bf16", "transcendental"}
    assert {key.split("/")[1] for key in wanted if key.startswith("launch/")} == {"sync", "dispatch", "program round trip"}
    # VMEM holds 128 MiB: smaller sets would be timed there, or in main memory, as the compiler decides.
    sizes = [request["size"] for key, request in wanted.items() if key.startswith("stream/")]
    assert min(sizes) >= parse("256 MiB", "B")
    assert {key.split("/")[1] for key in wanted if key.startswith("stream/")} == {"read", "write", "copy"}
    assert not [key for key in wanted if key.startswith(("peer", "all-reduce"))]
    several = plan({**V6E, "count": 4}, quick=False)
    assert "peer" in several
    assert [key for key in several if key.startswith("all-reduce/")]


class NamedTpu:
    """JAX's CPU with a TPU's name: what it answers to the worker's requests is what its experiments find."""

    def __init__(self) -> None:
        from roofline.machines.measuring.jax_experiments import JaxDevice

        self.real = JaxDevice("cpu")
        self.real.platform = "tpu"
        # An identity, and a memory small enough for a CPU: working sets are a sixteenth of it.
        self.device = {**self.real.describe(), **V6E, "memory": parse("64 MiB", "B"), "count": len(self.real.devices)}
        self.asked: dict[str, Any] = {}

    def ask(self, request: dict[str, Any]) -> None:
        self.asked = dict(request)

    def answer(self) -> dict[str, Any]:
        return answer(self.real, self.asked)


@pytest.mark.jax
def test_every_experiment_of_a_tpu_runs_and_makes_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(jax.config, "update", lambda *_: None)  # 64-bit numbers, which no experiment of a TPU needs, for all later tests
    monkeypatch.setattr(gpu_plan, "SIDES", (32, 64))
    monkeypatch.setattr(gpu_plan, "TILE", (1, 2))
    monkeypatch.setattr(gpu_plan, "BEYOND_VMEM", parse("1 MiB", "B"))
    from roofline.machines.measuring import jax_experiments, jax_timing

    monkeypatch.setattr(jax_experiments, "COPY", 1 << 20)
    monkeypatch.setattr(jax_experiments, "CHAINED_ON_CPU", 1 << 12)
    monkeypatch.setattr(jax_timing, "HOST_TRY_S", 1e-3)
    worker: Any = NamedTpu()
    assert worker.device["libraries"].startswith("libtpu ")
    wanted = {key: {**request, "seconds": 0.0} for key, request in plan(worker.device, quick=True).items()}
    found = run_plan(worker, FinishedExperiments(tmp_path / "tpu.toml", {}), wanted, lambda done, total: None)
    answers = found["answers"]
    assert {key: each["absent"] for key, each in answers.items() if "absent" in each and not key.startswith("product/fp8")} == {}
    card = gpu_card({**worker.device, "memory": V6E["memory"]}, answers, SAID)
    machine = card.machine
    assert (machine.name, machine.kind, card.extends) == ("tpu-v6e-measured", "tpu", "tpu-v6e")
    measured = {each.resource.name for each in machine.ceilings if each.provenance == "measured"}
    assert {"matrix/bf16", "matrix/int8", "vector/fp32", "vector/bf16", "vector/transcendental", "hbm", "pcie"} <= measured
    assert machine.launch_floor_s is not None
    assert "dispatch of a program" in card.specs
    # The file reads back on top of the catalogue's chip, whose other figures stay.
    path = tmp_path / "tpu.toml"
    write_machine_file(card, path)
    back = load(str(path))
    assert back.rate("matrix/bf16") == pytest.approx(machine.rate("matrix/bf16"), rel=1e-4)
    assert back.rate("vmem.read") == load("tpu-v6e").rate("vmem.read")
    assert calibration_for(back).other_card
    assert any(line.startswith("matrix/bf16: ") for line in compare_with_catalogue(card, load_card("tpu-v6e")))


def load_card(name: str) -> Any:
    from roofline.machines import card

    return card(name)


def test_one_of_two_devices_of_a_chip_is_measured_as_a_device(tmp_path: Path) -> None:
    # 1000 TFLOP/s of 1153.5, 3.2 TB/s of 3.69: a device is half of a TPU7x.
    answers = {
        "product/bf16/burst/random": {"rates": [1000e12] * 5, "how": "products"},
        "stream/copy/1073741824": {"rates": [3.2e12] * 5, "how": "copy", "bytes": 2**30},
        "stream/read/1073741824": {"rates": [3.1e12] * 5, "how": "read", "bytes": 2**30},
    }
    device = {**V6E, "device": "TPU7x", "count": 8, "memory": parse("94.75 GiB", "B")}
    card = gpu_card(device, answers, {**SAID, "device": "TPU7x"})
    assert (card.machine.name, card.machine.scope, card.extends) == ("tpu-v7x-measured", "device", "tpu-v7x/device")
    path = tmp_path / "tpu.toml"
    write_machine_file(card, path)
    back = load(str(path))
    assert (back.scope, back.rate("matrix/bf16"), back.rate("hbm")) == ("device", 1000e12, 3.2e12)
    assert back.rate("vmem.read") == load("tpu-v7x").rate("vmem.read") / 2
    # Shares fitted to the catalogue's device keep their absolute rates: 0.87 of 1153.5 TFLOP/s is above what was measured.
    [product] = [each for each in calibration_for(back).families if each.family == "products" and "bf16" in each.formats]
    assert product.values["compute"] == pytest.approx(0.87 * 1153.5 / 1000)


def test_without_a_tpu_the_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with pytest.raises(MachineError, match=r"no TPU can be measured here \(jax: .*\); it takes jax\[tpu\] on a computer with TPUs"):
        Accelerator("tpu")


def test_a_tpu_is_not_measured_through_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "measure", "--device", "tpu", "--framework", "torch"]) == 2
    assert "a TPU is measured through JAX" in capsys.readouterr().err


def test_tpus_are_found_among_the_pci_devices(tmp_path: Path) -> None:
    for number, (vendor, device) in enumerate((("0x8086", "0x006f"), ("0x1ae0", "0x001f"), ("0x1ae0", "0x006f"))):
        folder = tmp_path / f"0000:00:0{number}.0"
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    assert tpu_here(tmp_path) == "tpu-v6e"
    (tmp_path / "0000:00:02.0" / "device").write_text("0xffff\n")  # a network card of the same maker
    assert tpu_here(tmp_path) == ""
    assert tpu_here(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("gpu", "tpu", "installed", "kind"),
    [
        (True, True, {"torch", "jax", "libtpu"}, "gpu"),
        (False, True, {"jax", "libtpu"}, "tpu"),
        (False, True, {"torch", "jax"}, ""),  # JAX without libtpu sees no TPU
        (False, False, {"torch", "jax", "libtpu"}, ""),
    ],
)
def test_what_is_measured_is_what_is_here_with_a_library(
    gpu: bool, tpu: bool, installed: set[str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "conditions", lambda: {"driver": "1"} if gpu else {})
    monkeypatch.setattr(measure, "tpu_here", lambda: "tpu-v6e" if tpu else "")
    monkeypatch.setattr(measure, "find_spec", lambda name: name if name in installed else None)
    assert measure._accelerator() == kind


def test_a_tpu_that_was_never_measured_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_DATA", str(tmp_path))
    with pytest.raises(
        MachineError, match=r"this computer's TPU has not been measured \(local-tpu\); run: roofline chips measure --device tpu"
    ):
        load("local-tpu")


def test_the_measurement_of_a_tpu_is_kept_as_local_tpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROOFLINE_DATA", str(tmp_path))

    def measured(args: argparse.Namespace, kind: str, path: Path) -> list[str]:
        answers = {
            "product/bf16/burst/random": {"rates": [800e12] * 5, "how": "products"},
            "stream/copy/1073741824": {"rates": [1.3e12] * 5, "how": "copy", "bytes": 2**30},
            "stream/read/1073741824": {"rates": [1.2e12] * 5, "how": "read", "bytes": 2**30},
        }
        write_machine_file(gpu_card(V6E, answers, SAID), path)
        return [kind]

    monkeypatch.setattr(measure, "_accelerated", measured)
    assert main(["chips", "measure", "--device", "tpu"]) == 0
    assert "--chip local-tpu" in capsys.readouterr().err
    assert load("local-tpu").rate("hbm") == 1.3e12
