"""Programs that the real TPU compiler compiles here and now, in child processes: what is counted of them, and that nothing is printed."""

from pathlib import Path

import pytest

import roofline as rl
from roofline.report import Report
from test_frozen_tpu_programs import matrix_flop, unknown
from tpu_compiler import Compiled, Refused, compile_program, hbm_bytes, result, start

pytestmark = pytest.mark.tpu


def compiled(name: str, topology: str) -> Compiled:
    program = compile_program(name, topology)
    assert isinstance(program, Compiled), program.reason
    return program


def report(program: Compiled, folder: Path, form: str = "hlo") -> Report:
    """A program that was just compiled, compared with its chip."""
    file = folder / f"program.{form}"
    file.write_bytes(program.proto if form == "pb" else program.text.encode())
    return rl.analyze(rl.read(file), rl.chip(program.facts["topology"].partition(":")[0]))


# The FLOP of each are worked out from its shapes in data/tpu/programs.py; add programs there and here.
@pytest.mark.parametrize(
    ("name", "topology", "devices"),
    [
        ("matmul", "v5e:2x2", 4),
        pytest.param("matmul", "v6e:2x2", 4, marks=pytest.mark.slow),
        pytest.param("sharded_mlp", "v5p:2x2x2", 8, marks=pytest.mark.slow),
        pytest.param("scan", "v6e:2x2", 4, marks=pytest.mark.slow),
        pytest.param("pallas_matmul", "v6e:2x2", 4, marks=pytest.mark.slow),
    ],
)
def test_products_and_peak_memory_are_those_of_the_compiler(name: str, topology: str, devices: int, tmp_path: Path) -> None:
    program = compiled(name, topology)
    assert program.facts["devices"] == devices
    assert "T(8,128)" in program.text  # the tiles of a TPU: it was not compiled for this computer
    for form in ("hlo", "pb"):
        counted = report(program, tmp_path, form)
        assert matrix_flop(counted) == program.facts["matrix_flop"]
        assert unknown(counted) == []
        assert counted.memory is not None
        assert counted.memory.needed_bytes == pytest.approx(hbm_bytes(program.buffer_assignment), rel=0.001)


@pytest.mark.slow
def test_the_gradient_of_attention_has_six_products(tmp_path: Path) -> None:
    # Two forward, four backward, each of 2 heads x 1024² x 128: the masked half is computed too.
    counted = report(compiled("attention_gradient", "v5e:2x2"), tmp_path)
    assert matrix_flop(counted) == 6 * 2 * 2 * 1024**2 * 128
    assert unknown(counted) == []


@pytest.mark.slow
def test_two_compilers_run_at_once_and_print_nothing(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("sharded_mlp", "pallas_matmul")]
    for folder in folders:
        folder.mkdir()
    children = [start(folder.name, "v6e:2x2", folder) for folder in folders]
    assert [child.communicate(timeout=240) for child in children] == [("", ""), ("", "")]
    assert all(isinstance(result(folder), Compiled) for folder in folders)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "topology", "why"),
    [
        ("too_large", "v5e:2x2", "RESOURCE_EXHAUSTED: Ran out of memory on HBM"),
        ("matmul", "v5e:3x3", "INVALID_ARGUMENT"),
    ],
)
def test_what_the_compiler_refuses_is_a_value(name: str, topology: str, why: str) -> None:
    refused = compile_program(name, topology)
    assert isinstance(refused, Refused)
    assert why in refused.reason


def test_a_compile_that_takes_too_long_is_ended() -> None:
    assert compile_program("matmul", "v5e:2x2", timeout_s=0.2) == Refused("not compiled within 0.2 s")
