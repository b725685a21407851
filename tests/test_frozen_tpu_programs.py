"""Small programs of the real TPU compiler, frozen in `data/tpu`: products by hand, memory by the compiler's buffer assignment."""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import roofline as rl
import tpu_compiler
from every import every
from roofline.report import Report
from tpu_compiler import ROOT

DATA = Path(__file__).parent / "data" / "tpu"
NAMES = sorted(path.stem for path in DATA.glob("*.json"))
# Collectives inside of fusions, which are not counted yet.
UNKNOWN_COSTS: set[str] = set()


def report(name: str) -> tuple[Report, dict[str, Any]]:
    """A frozen program compared with its chip, and what the compiler states of it."""
    facts = json.loads((DATA / f"{name}.json").read_text())
    return rl.analyze(rl.read(DATA / f"{name}.hlo.gz"), rl.chip(facts["topology"].partition(":")[0])), facts


def matrix_flop(report: Report) -> float:
    """FLOP on matrix units: products and convolutions, without vector work."""
    return sum(amount or 0 for op in report.ops for unit, amount in op.work.items() if unit.startswith("matrix"))


def unknown(report: Report) -> list[str]:
    """Ops of which an amount is unknown."""
    return [op.name for op in report.ops if None in op.work.values()]


@every("name", NAMES)
def test_products_count_what_their_shapes_say(name: str) -> None:
    counted, facts = report(name)
    assert matrix_flop(counted) == facts["matrix_flop"]  # by the formula beside the shapes in data/tpu/programs.py


@every("name", sorted({*NAMES} - UNKNOWN_COSTS))
def test_every_op_has_a_known_cost(name: str) -> None:
    assert unknown(report(name)[0]) == []


@every("name", NAMES)
def test_the_peak_of_hbm_is_that_of_the_buffer_assignment(name: str) -> None:
    counted, facts = report(name)
    assert counted.memory is not None
    assert counted.memory.needed_bytes == pytest.approx(facts["hbm_bytes"], rel=0.001)  # scalars of reductions are not counted


def test_a_donated_cache_is_in_memory_once() -> None:
    # Two caches of 4 x 4 heads x 2048 tokens x 128 in bf16, overwritten in place; queries, results, scalars and tuples are 0.7% more.
    counted, facts = report("decode_v6e_2x2")
    caches = 2 * 4 * 4 * 2048 * 128 * 2
    assert facts["memory"]["alias_size_in_bytes"] == caches
    assert counted.memory is not None
    assert counted.memory.needed_bytes == pytest.approx(caches, rel=0.007)


def test_a_loop_counts_each_trip_where_xla_counts_one() -> None:
    # Eight layers; XLA's cost analysis counts the body of a loop once, with its vector work.
    counted, facts = report("hidden_gathers_v5e_2x2")
    assert matrix_flop(counted) == pytest.approx(8 * facts["cost"]["flops"], rel=0.006)


@every("name", sorted({*NAMES} - {"hidden_gathers_v5e_2x2", "embedding_v6e_2x2"}))
def test_elsewhere_xla_counts_the_same_products_and_some_vector_work(name: str) -> None:
    counted, facts = report(name)
    assert matrix_flop(counted) <= facts["cost"]["flops"] <= 1.3 * matrix_flop(counted)


def test_the_page_of_the_programs_lists_each() -> None:
    page = (DATA / "README.md").read_text()
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == NAMES
    assert {json.loads((DATA / f"{name}.json").read_text())["versions"]["libtpu"] for name in NAMES} == set(
        re.findall(r"with libtpu ([\d.]+\d)", page)
    )


WITHOUT_THE_COMPILER = """
import sys
from pathlib import Path
import pytest
sys.path.insert(0, "tests")
import tpu_compiler
tpu_compiler.HAS_WHEEL, tpu_compiler.PYTHON = True, Path("nowhere")
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/test_tpu_compiler.py", "-k", "takes_too_long", "-rs"]))
"""


def test_tests_of_the_compiler_are_skipped_with_a_reason_and_show_where_it_could_be_installed() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_THE_COMPILER], cwd=ROOT, capture_output=True, text=True)
    why = "no TPU compiler; run: make .venv-tpu/installed"
    assert re.search(rf"^SKIPPED \[1\].*: {why}$", run.stdout, re.MULTILINE), run.stdout + run.stderr
    assert f"tests of TPU programs that were skipped: 1; {why}" in run.stdout
    assert run.returncode == 0


def test_a_platform_without_a_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_compiler, "HAS_WHEEL", False)
    assert tpu_compiler.why_not() == f"libtpu has no wheel for {platform.system()} on {platform.machine()}"
