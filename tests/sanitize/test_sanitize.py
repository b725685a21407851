"""The scanner's core, under the address and undefined-behaviour sanitizers, over damaged profiles.

    python tests/sanitize/test_sanitize.py [INPUTS [SEED]]

runs 20,000 inputs; the test runs a few hundred. Inputs are damaged copies of the captures in `../shared/data`, where present, and of
small profiles written here.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from xspace_writer import Event, Line, Metadata, Plane, Ref, Unsigned, space  # noqa: E402

SOURCES = HERE.parents[1] / "src" / "roofline" / "sources" / "xspace"
CAPTURES = HERE.parents[2] / "shared" / "data"
FLAGS = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
INPUTS = 20_000


def profiles() -> list[bytes]:
    """Small profiles, in which most damage hits something that matters."""
    stats = {"a": Unsigned(300), "b": Ref("dot.1"), "c": "text", "d": 0.5, "e": -1, "f": b"bytes", "device_offset_ps": Unsigned(10**13)}
    ops = [Event(f"op{i % 5}", 1000 * i, 700 + i, stats) for i in range(40)]
    nested = [Event("while", 0, 100), Event("body", 10, 20), Event("start", 30, 1), Event("done", 31, 9), Event("sum", occurrences=3)]
    metadata = [Metadata("jit_f(1)", "f", {"Hlo Proto": b"\x0a\x03hlo", "program_id": 1}, b"raw", (1, 2))]
    device = Plane("/device:TPU:0", [Line("XLA Ops", ops, 14533894, 3), Line("Steps", nested)], {"peak": 918.0}, id=2)
    return [space([device, Plane("/host:metadata", metadata=metadata)], ["vm"], ["error"]), space([Plane("p", [Line("l", nested)])])]


def build(folder: Path) -> Path:
    """The fuzzer, compiled with the sanitizers."""
    program = folder / "fuzz"
    core = sorted(str(path) for path in (SOURCES / "core").glob("*.c"))
    subprocess.run(
        ["cc", *FLAGS, "-I", str(SOURCES), str(HERE / "fuzz.c"), *core, "-o", str(program)], check=True, capture_output=True, text=True
    )
    return program


def fuzz(folder: Path, inputs: int, seed: int) -> subprocess.CompletedProcess[str]:
    files = []
    for number, profile in enumerate(profiles()):
        files.append(folder / f"{number}.pb")
        files[-1].write_bytes(profile)
    files += sorted(CAPTURES.glob("*/*.xplane.pb"))
    return subprocess.run([str(build(folder)), str(inputs), str(seed), *map(str, files)], capture_output=True, text=True, check=False)


def has_sanitizers(folder: Path) -> bool:
    if not shutil.which("cc"):
        return False
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    program = folder / "empty"
    built = subprocess.run(
        ["cc", "-fsanitize=address,undefined", str(folder / "empty.c"), "-o", str(program)], capture_output=True, check=False
    )
    return built.returncode == 0 and subprocess.run([str(program)], capture_output=True, check=False).returncode == 0


def test_damaged_profiles_never_make_the_scanner_misstep(tmp_path: Path) -> None:
    if not has_sanitizers(tmp_path):
        pytest.skip("no compiler with sanitizers")
    run = fuzz(tmp_path, inputs=300, seed=1)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.startswith("300 inputs")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        finished = fuzz(Path(temporary), int(sys.argv[1]) if len(sys.argv) > 1 else INPUTS, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    sys.stdout.write(finished.stdout)
    sys.stderr.write(finished.stderr)
    sys.exit(finished.returncode)
