"""The native code, under the address and undefined-behaviour sanitizers: the scanner over damaged profiles, `_wire` over damaged programs.

    python tests/sanitize/test_sanitize.py [INPUTS [SEED]]

runs 20,000 inputs of each; the tests run a few hundred. Profiles are damaged copies of the captures in `../shared/data`, where present,
and of small ones written here; programs are those of `tests/data/hlo`.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from xspace_writer import Event, Line, Metadata, Plane, Ref, Unsigned, space  # noqa: E402

ROOT = HERE.parents[1] / "src" / "roofline"
SOURCES = ROOT / "sources" / "xspace"
CAPTURES = HERE.parents[2] / "shared" / "data"
FLAGS = ("-std=gnu11", "-g", "-O0", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
INPUTS = 20_000


def profiles() -> list[bytes]:
    """Small profiles, in which most damage hits something that matters."""
    stats = {"a": Unsigned(300), "b": Ref("dot.1"), "c": "text", "d": 0.5, "e": -1, "f": b"bytes", "device_offset_ps": Unsigned(10**13)}
    ops = [Event(f"op{i % 5}", 1000 * i, 700 + i, stats) for i in range(40)]
    nested = [Event("while", 0, 100), Event("body", 10, 20), Event("start", 30, 1), Event("done", 31, 9), Event("sum", occurrences=3)]
    # More events than wait for their order, three times over the same time; keys and values change from one to the next.
    turned = [Event(f"op{i * i % 7}", 100 * (i % 150), 90, {"a": Unsigned(i // 9), "b": "xyz"[i * i % 3]}) for i in range(450)]
    metadata = [Metadata("jit_f(1)", "f", {"Hlo Proto": b"\x0a\x03hlo", "program_id": 1}, b"raw", (1, 2))]
    device = Plane("/device:TPU:0", [Line("XLA Ops", ops, 14533894, 3), Line("Steps", nested)], {"peak": 918.0}, id=2)
    return [
        space([device, Plane("/host:metadata", metadata=metadata)], ["vm"], ["error"]),
        space([Plane("p", [Line("l", nested)])]),
        space([Plane("p", [Line("l", turned)])]),
    ]


def build(folder: Path, *options: str) -> Path:
    """The fuzzer, compiled with the sanitizers."""
    program = folder / "fuzz"
    core = sorted(str(path) for path in (SOURCES / "core").glob("*.c"))
    subprocess.run(
        ["cc", *FLAGS, *options, "-I", str(ROOT), "-I", str(SOURCES), str(HERE / "fuzz.c"), *core, "-o", str(program)],
        check=True,
        capture_output=True,
        text=True,
    )
    return program


def fuzz(folder: Path, inputs: int, seed: int, *options: str) -> subprocess.CompletedProcess[str]:
    files = []
    for number, profile in enumerate(profiles()):
        files.append(folder / f"{number}.pb")
        files[-1].write_bytes(profile)
    files += sorted(CAPTURES.glob("*/*.xplane.pb"))
    return subprocess.run(
        [str(build(folder, *options)), str(inputs), str(seed), *map(str, files)], capture_output=True, text=True, check=False
    )


def fuzz_wire(folder: Path, inputs: int, seed: int) -> subprocess.CompletedProcess[str]:
    """The reader of programs, compiled with the sanitizers and loaded into a Python that has their library."""
    extension = folder / "_wire.so"
    command = ["cc", *FLAGS, "-Wconversion", "-fPIC", "-shared", "-DPy_LIMITED_API=0x030B0000", "-I", sysconfig.get_paths()["include"]]
    subprocess.run(
        [*command, "-I", str(ROOT), str(ROOT / "hlo" / "read" / "_wire.c"), "-o", str(extension)],
        check=True,
        capture_output=True,
        text=True,
    )
    library = subprocess.run(["cc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True).stdout.strip()
    # Python's own allocator would hide what runs past an object; what Python never frees is not ours to report.
    environment = {**os.environ, "LD_PRELOAD": library, "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(
        [sys.executable, str(HERE / "fuzz_wire.py"), str(extension), str(inputs), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def has_sanitizers(folder: Path) -> bool:
    if not shutil.which("cc"):
        return False
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    program = folder / "empty"
    built = subprocess.run(
        ["cc", "-fsanitize=address,undefined", str(folder / "empty.c"), "-o", str(program)], capture_output=True, check=False
    )
    return built.returncode == 0 and subprocess.run([str(program)], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_damaged_profiles_never_make_the_scanner_misstep(tmp_path: Path) -> None:
    if not has_sanitizers(tmp_path):
        pytest.skip("no compiler with sanitizers")
    here = fuzz(tmp_path, 300, 1)
    everywhere = fuzz(tmp_path, 300, 1, "-DXS_PORTABLE")
    for run in (here, everywhere):
        assert run.returncode == 0, run.stderr[-2000:]
        assert run.stdout.startswith("300 inputs")
        assert ", 0 parts absorbed" not in run.stdout, "lines are read in parts, too"
    assert here.stdout == everywhere.stdout, "code for this processor sums what code for any sums"


@pytest.mark.slow
def test_damaged_programs_never_make_the_reader_misstep(tmp_path: Path) -> None:
    if sys.platform != "linux" or not has_sanitizers(tmp_path):
        pytest.skip("no compiler with sanitizers whose library can be loaded into Python")
    run = fuzz_wire(tmp_path, inputs=300, seed=1)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.startswith("300 inputs")


if __name__ == "__main__":
    import tempfile

    wanted, first = int(sys.argv[1]) if len(sys.argv) > 1 else INPUTS, int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for run_all in (fuzz, fuzz_wire):
        with tempfile.TemporaryDirectory() as temporary:
            finished = run_all(Path(temporary), wanted, first)
        sys.stdout.write(finished.stdout)
        sys.stderr.write(finished.stderr)
        if finished.returncode:
            sys.exit(finished.returncode)
