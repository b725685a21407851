"""What a release contains, and the workflows that test and build it."""

import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from every import every

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


@every("linter", [["yamllint", "--strict", "-d", YAML_RULES], ["check_jsonschema", "--builtin-schema", "vendor.github-workflows"]])
def test_the_workflows_pass(linter: list[str]) -> None:
    run = subprocess.run([sys.executable, "-m", *linter, *WORKFLOWS], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", ["run", "test", "tpu"])
def test_pinned_versions_are_those_promised_and_have_hashes(name: str) -> None:
    from packaging.requirements import Requirement

    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text  # no package index
    pinned = [line.split() for line in text.replace("\\\n", "").splitlines() if not line.startswith("#")]
    assert all(any(word.startswith("--hash=sha256:") for word in words) for words in pinned)
    pins = [Requirement(" ".join(word for word in words if not word.startswith("--hash"))) for words in pinned]
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = PROJECT["build-system"]["requires"] + PROJECT["project"]["dependencies"]
    if name == "tpu":
        wanted = [*extras["tpu"], "libtpu"]
    if name == "test":
        tested = next(Requirement(one).extras for one in extras["test"] if one.startswith("roofline["))
        wanted += [one for extra in ("test", *sorted(tested)) for one in extras[extra]]
        assert all(f"--extra {extra}" in (ROOT / "Makefile").read_text() for extra in tested)
    for one in (Requirement(text) for text in wanted if not text.startswith("roofline")):
        mine = [pin for pin in pins if pin.name == one.name]
        assert mine, f"{one}: make requirements"
        assert all(one.specifier.contains(next(iter(pin.specifier)).version) for pin in mine), one


def test_the_environment_of_the_tests_has_no_libtpu() -> None:
    # Beside it JAX looks for a TPU at every start; the compiler for TPUs has an environment of its own.
    assert not any(line.startswith("libtpu") for line in (ROOT / "requirements" / "test.txt").read_text().splitlines())


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize(
    ("system", "machine", "made"), [("Linux", "x86_64", True), ("Linux", "aarch64", False), ("Darwin", "arm64", False)]
)
def test_the_environment_of_the_tpu_compiler_is_made_where_it_has_a_wheel(tmp_path: Path, system: str, machine: str, made: bool) -> None:
    uname = tmp_path / "bin" / "uname"
    uname.parent.mkdir()
    uname.write_text(f'#!/bin/sh\n[ "$1" = -s ] && echo {system} || echo {machine}\n')
    uname.chmod(0o755)
    (tmp_path / "pyproject.toml").touch()
    words = ["make", "--dry-run", "--file", str(ROOT / "Makefile"), "test"]
    for file in ("setup.py", "requirements/run.txt", "requirements/test.txt", "requirements/tpu.txt"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    environment = {**os.environ, "PATH": f"{uname.parent}{os.pathsep}{os.environ['PATH']}", "MAKEFLAGS": ""}
    run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert ("requirements/install.py tpu" in run.stdout) == made
    assert (".venv-tpu" in run.stdout) == made


def test_without_a_compiler_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import setuptools

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    (tmp_path / "x.c").write_text("")
    extension = setuptools.Extension("x", [str(tmp_path / "x.c")])
    command = runpy.run_path("setup.py")["BuildExtensions"](setuptools.Distribution({"ext_modules": [extension]}))
    command.build_temp = command.build_lib = str(tmp_path)
    command.ensure_finalized()
    with pytest.raises(SystemExit, match=r"^roofline: cannot compile x: no C compiler \(no-such-compiler is not found\); install one: "):
        command.run()


def test_the_workflows_test_every_python_that_is_promised() -> None:
    promised = [
        line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if line.startswith("Programming Language :: Python :: 3.")
    ]
    tested = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert f"python: {promised}".replace("'", '"') in tested
