"""What a release contains, and the workflows that test and build it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "roofline"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILT = (".so", ".pyd", ".pyc", ".bin")
WORKFLOWS = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
YAML_RULES = "{extends: default, rules: {line-length: {max: 140}, document-start: disable, truthy: {check-keys: false}}}"


def test_a_wheel_takes_every_data_file_and_no_c() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["roofline"]
    taken = {path for pattern in patterns for path in SOURCE.glob(pattern) if path.is_file()}
    there = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (*BUILT, ".py", ".c", ".h")}
    assert taken == there


@pytest.mark.parametrize(
    "linter",
    [["yamllint", "--strict", "-d", YAML_RULES], ["check_jsonschema", "--builtin-schema", "vendor.github-workflows"]],
    ids=lambda words: words[0],
)
def test_the_workflows_pass(linter: list[str]) -> None:
    run = subprocess.run([sys.executable, "-m", *linter, *WORKFLOWS], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_workflows_test_every_python_that_is_promised() -> None:
    promised = [
        line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if line.startswith("Programming Language :: Python :: 3.")
    ]
    tested = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert f"python: {promised}".replace("'", '"') in tested
