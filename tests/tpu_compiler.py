"""The real TPU compiler, which needs no TPU: programs of `tests/data/tpu/programs.py` compiled in child processes of `.venv-tpu`.

`make .venv-tpu/installed` makes that environment. The main one stays without libtpu, beside which jax looks for a TPU at every start.
"""

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".venv-tpu"
PYTHON = ENVIRONMENT / "bin" / "python"
CHILD = ROOT / "tests" / "data" / "tpu" / "compile_program.py"
HAS_WHEEL = (sys.platform, platform.machine()) == ("linux", "x86_64")


class Compiled(Struct, frozen=True, kw_only=True):
    """A program as the compiler scheduled it, its buffer assignment, and what the compiler states of it."""

    text: str
    proto: bytes
    buffer_assignment: str
    facts: dict[str, Any]


class Refused(Struct, frozen=True):
    """Why there is no program: what the compiler said, or that it took too long."""

    reason: str


def why_not() -> str:
    """Why programs cannot be compiled for TPUs here; empty if they can."""
    if not HAS_WHEEL:
        return f"libtpu has no wheel for {platform.system()} on {platform.machine()}"
    return "" if PYTHON.exists() else "no TPU compiler; run: make .venv-tpu/installed"


def start(name: str, topology: str, folder: Path) -> "subprocess.Popen[str]":
    """Begin to compile a program for a slice such as `v5e:2x2`; the compiler writes its dump to the folder."""
    from roofline.jax.tpu.compiling import VARIABLES  # not before pytest has prepared the package's plugin

    command = [str(PYTHON), str(CHILD), name, topology, str(folder)]
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS", "LIBTPU_INIT_ARGS")}
    return subprocess.Popen(command, env={**variables, **VARIABLES}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(folder: Path) -> Compiled | Refused:
    """What the compiler wrote to the folder."""
    facts = json.loads((folder / "facts.json").read_text())
    if "refused" in facts:
        return Refused(facts["refused"])
    (text,) = (file for file in folder.glob("*.after_codegen.txt") if ".extracted." not in file.name)  # those are parts for SparseCores
    (assignment,) = folder.glob("*.after_optimizations-buffer-assignment.txt")
    return Compiled(
        text=text.read_text(),
        proto=text.with_suffix(".hlo.pb").read_bytes(),
        buffer_assignment=assignment.read_text(),
        facts=facts,
    )


def compile_program(name: str, topology: str, timeout_s: float = 240) -> Compiled | Refused:
    """Compile a program of `programs.py`."""
    with tempfile.TemporaryDirectory(prefix="roofline-tpu-") as folder, start(name, topology, Path(folder)) as child:
        try:
            _, complaints = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return Refused(f"not compiled within {timeout_s:g} s")
        if child.returncode:
            return Refused(complaints or f"the compiler's process ended with status {child.returncode}")
        return result(Path(folder))


def hbm_bytes(buffer_assignment: str) -> int:
    """Bytes of HBM that a program needs: its allocations in the memory of color 0, which is not written."""
    allocations = re.findall(r"^allocation \d+: size (\d+), (.*)$", buffer_assignment, re.MULTILINE)
    return sum(int(size) for size, kind in allocations if not re.search(r"\bcolor \d", kind))
