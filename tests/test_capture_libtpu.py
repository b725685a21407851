"""A libtpu that is newer than the one JAX pins, with which JAX's profiler would end the process, is told in one line."""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import roofline as rl
from roofline.capture.hook.roofline_hook_jax_libtpu import CrashingProfiler, check_libtpu
from roofline.errors import UsageError

linux = pytest.mark.skipif(sys.platform != "linux", reason="libtpu is published for Linux alone")
ANY_JAX = SimpleNamespace(default_backend=lambda: "cpu")


def install(folder: Path, name: str, version: str, *requirements: str) -> None:
    """What pip writes about an installed distribution."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requirements)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def install_pair(folder: Path, libtpu: str, pin: str) -> None:
    install(folder, "jax", "0.10.2", "numpy>=2.0", 'libtpu-nightly==0.1; extra == "tpu"', f'{pin}; extra == "tpu"')
    install(folder, "libtpu", libtpu)
    library = folder / "libtpu" / "libtpu.so"
    library.parent.mkdir()
    library.write_bytes(b"library")
    (folder / "libtpu" / "__init__.py").write_text(f"def get_library_path(): return {str(library)!r}\n")  # JAX asks where it is


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for distributions, which is looked in before the environment's own."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def loaded(site: Path) -> Iterator[Path]:
    """The same, with libtpu 0.0.51 beside JAX, which pins 0.0.42; its library is mapped as by the dynamic loader."""
    install_pair(site, "0.0.51", "libtpu==0.0.42.*")
    with (site / "libtpu" / "libtpu.so").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        yield site


def refusal(site: Path) -> str:
    with (site / "libtpu" / "libtpu.so").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        try:
            check_libtpu(ANY_JAX)
        except CrashingProfiler as error:
            return str(error)
    return ""


@linux
@pytest.mark.parametrize(
    ("libtpu", "pin"),
    [
        ("0.0.51", "libtpu==0.0.42.*"),
        ("0.0.43.dev20261101+nightly", "libtpu==0.0.42.*"),
        ("0.1", "libtpu==0.0.42.*"),
        ("0.0.24", "libtpu==0.0.23"),  # as jax 0.7.2 pins it
    ],
)
def test_a_libtpu_newer_than_the_pinned_one_says_what_to_install(site: Path, libtpu: str, pin: str) -> None:
    install_pair(site, libtpu, pin)
    assert refusal(site) == f"libtpu {libtpu} crashes the profiler of jax 0.10.2, which pins {pin}; run: pip install '{pin}'"


@pytest.mark.parametrize(
    ("libtpu", "pin"),
    [
        ("0.0.42.1", "libtpu==0.0.42.*"),
        ("0.0.42", "libtpu==0.0.42.*"),
        ("0.0.23.1", "libtpu==0.0.23"),  # a patch of the pinned version
        ("0.0.30", "libtpu==0.0.42.*"),  # older: JAX's profiler records
        ("0.0.51", "libtpu>=0.0.42"),  # a JAX that takes any later one
        ("0.0.51", "scipy>=1.14"),  # a JAX that pins none
    ],
)
def test_other_pairs_are_left_alone(site: Path, libtpu: str, pin: str) -> None:
    install_pair(site, libtpu, pin)
    assert refusal(site) == ""


def test_a_library_that_is_not_loaded_does_no_harm(site: Path) -> None:
    # With JAX_PLATFORMS=cpu JAX never loads it, and its profiler records.
    install_pair(site, "0.0.51", "libtpu==0.0.42.*")
    check_libtpu(ANY_JAX)


@linux
def test_a_block_is_not_entered_and_says_why(loaded: Path, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    with pytest.raises(UsageError, match=r"^cannot start JAX's profiler: libtpu 0\.0\.51 crashes the profiler of jax 0\.10\.2"):
        rl.capture(tmp_path / "run", framework="jax").__enter__()
    assert list((tmp_path / "run").iterdir()) == []


PROGRAM = """
import mmap, pathlib, sys
import jax, jax.numpy as jnp
file = pathlib.Path(sys.argv[1], "libtpu", "libtpu.so").open("rb")
library = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("the sum is", float(jax.jit(lambda x: x @ x)(jnp.eye(128)).sum()))
"""


@pytest.mark.slow
@linux
def test_a_captured_program_runs_to_its_end_and_one_line_says_why_there_is_no_profile(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    install_pair(site, "0.0.51", "libtpu==0.0.42.*")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(site)]
    run = subprocess.run(
        [sys.executable, "-m", "roofline", "capture", "-o", str(tmp_path / "run"), "--from-start", "--", *command],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))},
        capture_output=True,
        text=True,
    )
    why = "libtpu 0.0.51 crashes the profiler of jax 0.10.2, which pins libtpu==0.0.42.*; run: pip install 'libtpu==0.0.42.*'"
    assert run.stderr == f"roofline: {' '.join(command)}: the profiler did not start: {why}\n"
    assert (run.stdout, run.returncode) == ("the sum is 128.0\n", 1)
