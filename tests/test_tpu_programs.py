"""The generation of TPU that a program was compiled for: taken from the program, or asked for in one line."""

import gzip
from pathlib import Path

import pytest

import roofline as rl
from every import every
from hlo_programs import SHARED
from roofline.cli import main
from roofline.errors import UsageError
from roofline.hlo.read import parse
from roofline.machines import load
from roofline.machines.architectures import clock_of
from roofline.machines.catalogue import card
from roofline.sources.hlo_dump import read_modules
from roofline.sources.tpu_programs import BYTES_PER_CYCLE, FLOP_PER_CYCLE, GENERATIONS, generations

DATA = Path(__file__).parent / "data" / "tpu"  # compiled by libtpu 0.0.42.1
NAMES = dict(zip(("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x"), GENERATIONS, strict=True))
# Those of two devices a chip are compared with one of them.
MACHINES = {chip: f"tpu-{chip}/device" if chip in ("v2", "v3", "v7x") else f"tpu-{chip}" for chip in NAMES}


def _possible(path: Path) -> set[str]:
    return generations(read_modules(path))[0]


@every("chip", NAMES)
def test_a_large_product_tells_the_generation_it_was_compiled_for(chip: str) -> None:
    assert _possible(DATA / f"matmul_{chip}.hlo.gz") == {NAMES[chip]}


@every(
    ("chip", "alike"),
    [
        ("v2", {"v2", "v3"}),  # scalars in tiles of 256 words, and no memory on the chip for arrays
        ("v3", {"v2", "v3"}),
        ("v4", {"v4"}),  # its argument is copied to CMEM
        ("v5e", {"v5e", "v5p", "v6e"}),  # its argument is copied to VMEM
        ("v5p", {"v5e", "v5p", "v6e"}),
        ("v6e", {"v5e", "v5p", "v6e"}),
        ("v7x", {"v7x"}),  # its parameters have limits of VMEM
    ],
)
def test_a_sum_of_128_numbers_looks_the_same_for_some_generations(chip: str, alike: set[str]) -> None:
    assert _possible(DATA / f"sum_{chip}.hlo.gz") == {NAMES[name] for name in alike}


@every("chip", NAMES)
def test_a_program_is_compared_with_the_chip_it_was_compiled_for(chip: str) -> None:
    report = rl.analyze(DATA / f"matmul_{chip}.hlo.gz")
    assert report.machine.name == MACHINES[chip]
    assert not report.machine.assumed
    assert report.input.notes[0].startswith(f"jit__lambda was compiled for a {NAMES[chip]}, by ")
    assert not any("its kernels are that compiler's" in note for note in report.input.notes)


def test_a_device_that_is_half_a_chip_is_so_in_words() -> None:
    summary = rl.analyze(DATA / "matmul_v7x.hlo.gz").summary
    assert "on one device of Google TPU7x (Ironwood) (two a chip)" in summary
    assert "on one Google TPU v5e;" in rl.analyze(DATA / "matmul_v5e.hlo.gz").summary


@every("command", ["analyze", "analyze --fusion", "whatif"])
def test_a_program_that_fits_several_generations_asks_for_the_chip_in_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "sum_v6e.hlo.gz"
    assert main([*command.split(), str(path), *(["chip", "v6e"] if command == "whatif" else [])]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"roofline: {path}: compiled for a TPU, which may be v5e, v5p or v6e: choose it with --chip v5e\n"


@every("options", [["--chip", "v6e"], ["--chip", "v6e", "--network", "link=ici"]])
def test_a_chosen_chip_is_not_asked_for(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(DATA / "sum_v6e.hlo.gz"), *options]) == 0
    assert "on one Google TPU v6e" in capsys.readouterr().out


@every("command", [["analyze", "--network", "link=ici"], ["hlo"], ["fusion-report"], ["check"]])
def test_every_command_takes_the_chip_from_the_program(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    limit = ["--require", "flops > 1"] if command == ["check"] else []
    assert main([command[0], str(DATA / "matmul_v5p.hlo.gz"), *command[1:], *limit]) == 0
    assert "h100" not in capsys.readouterr().out


def test_two_programs_are_each_compared_with_their_own_chip(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(DATA / "matmul_v5e.hlo.gz"), str(DATA / "matmul_v6e.hlo.gz")]) == 0
    assert "the machine changed from tpu-v5e to tpu-v6e" in capsys.readouterr().out


def test_a_dump_names_the_chip(tmp_path: Path) -> None:
    # module_0007.jit_f.cl_1.* is one program of a dump.
    stem = "module_0007.jit_f.cl_1"
    program = gzip.decompress((DATA / "sum_v6e.hlo.gz").read_bytes())
    (tmp_path / f"{stem}.after_optimizations.txt").write_bytes(program)
    (tmp_path / f"{stem}.target_arguments.txt").write_text('tpu_topology_args {\n  version: TPU_VERSION_VIPERFISH\n  variant: "lite"\n}\n')
    for path in (tmp_path, tmp_path / f"{stem}.after_optimizations.txt"):
        assert rl.analyze(path).machine.name == "tpu-v5e"  # not what the program would suggest: the dump decides
    (tmp_path / f"{stem}.target_arguments.txt").write_text("tpu_topology_args {\n  version: TPU_VERSION_OF_TOMORROW\n}\n")
    with pytest.raises(UsageError, match="may be v5e, v5p or v6e"):
        rl.analyze(tmp_path)


def test_facts_that_contradict_leave_every_generation() -> None:
    text = gzip.decompress((DATA / "sum_v2.hlo.gz").read_bytes()).decode()
    cmem = text.replace("ROOT %reduce_sum.7 = f32[]{:T(256)}", "ROOT %reduce_sum.7 = f32[]{:T(256)S(3)}")
    assert generations([parse(cmem.encode(), "program")])[0] == {*GENERATIONS}


@pytest.mark.parametrize("chip", NAMES)
def test_rates_per_cycle_are_those_of_the_catalogue(chip: str) -> None:
    found = card(f"tpu-{chip}")
    clock = found.spec("clock")
    if clock is None:
        pytest.skip("the clock of this chip is not in the catalogue")
    machine = found.machine.per_device()
    assert FLOP_PER_CYCLE[NAMES[chip]] * clock_of(clock) == pytest.approx(machine.rate("matrix/bf16"), rel=0.01)
    assert BYTES_PER_CYCLE[NAMES[chip]] * clock_of(clock) == pytest.approx(machine.rate("hbm"), rel=0.03)


def test_names_of_generations_are_those_of_the_catalogue() -> None:
    assert [load(name).name for name in GENERATIONS] == [f"tpu-{chip}" for chip in NAMES]


def test_shared_programs_tell_their_chip_or_may_be_of_it() -> None:
    paths = [path for path in (SHARED / "tpu").glob("**/*_v*.gz") if path.name.split(".")[1] in ("hlo", "pb")]
    if not paths:
        pytest.skip("the shared programs are not here")
    told = set()
    for path in paths:
        chip = path.name.partition(".")[0].split("_v")[1].split("_")[0]
        possible = _possible(path)
        assert NAMES[f"v{chip}"] in possible, path
        told |= {path.name} if len(possible) == 1 else set()
    assert {path.name for path in paths if path.name.startswith(("train", "matmul", "layer", "sharded", "mlp", "scan"))} <= told
