"""The house keeps its shape: data flows one way, the door is one, starting is fast, prefixes live in one place."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "roofline"
HEAVY = ("numpy", "pyarrow", "matplotlib", "msgspec", "rich", "jax", "torch")


def loaded_by(code: str) -> set[str]:
    """Which heavy libraries a fresh interpreter has imported after running this."""
    program = f"{code}\nimport sys\nprint(','.join(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = run.stdout.strip().splitlines()[-1].split(",")
    return {library for library in HEAVY if library in modules}


@pytest.mark.parametrize(
    "code",
    [
        "from roofline.cli import main; main(['--help'])",
        "from roofline.cli import main; main(['--version'])",
        "from roofline.cli import main; main(['op', 'matmul', '64', '64', '64', '--chip', 'v5e'])",
        "import roofline",
    ],
)
def test_starting_imports_nothing_heavy(code: str) -> None:
    assert loaded_by(code) == set()


def test_the_public_door_is_pinned() -> None:
    import roofline

    assert sorted(roofline.__all__) == sorted(PUBLIC.split())
    for name in roofline.__all__:
        assert getattr(roofline, name) is not None


PUBLIC = """
Corrections Cost Crossing CustomCall Finding FormulaError Ledger Limit Machine MachineError MissingExtra Op Placement
Recording Report Resource RooflineError Row SourceError StageSpec UnitError UsageError Workload analyze best_fusion
capture catalogue chain chip compare cross dtype explain fit formulas fuse place price read register_call
"""


def test_prefixes_live_in_units_alone() -> None:
    # 1e9, 1e12, 1024 and the like are units; anywhere else they hide a conversion.
    prefixes = {1024, 10**6, 10**9, 10**12, 10**15, 2**20, 2**30, 2**40}
    for path in SOURCE.rglob("*.py"):
        numbers = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        if path.name != "units.py":
            assert not numbers & prefixes, f"{path.name} spells out a prefix"


def test_every_file_fits_in_one_reading() -> None:
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 600, path.name


def test_nothing_below_the_command_line_prints_or_exits() -> None:
    for path in SOURCE.rglob("*.py"):
        if "cli" not in path.parts and path.name != "__main__.py":
            assert not re.search(r"\b(print\(|sys\.exit|sys\.stdout|sys\.stderr|warnings\.warn)", path.read_text()), path.name
