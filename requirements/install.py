"""Install the versions of `run.txt`, `test.txt` or `tpu.txt`, each checked by its hash, into the environment that runs this.

    .venv/bin/python requirements/install.py run|test [--strict]        this checkout too
    .venv-tpu/bin/python requirements/install.py tpu [--strict]         JAX with the compiler for TPUs alone

A file that is not the one whose hash is listed is an error. Where the package index lacks a version, `--strict` makes that an error too;
else versions that `pyproject.toml` allows are installed instead, and it is said so.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
MISSING = "No matching distribution found for "
WITHOUT_DEPENDENCIES = ("--no-deps", "--no-build-isolation")  # they are installed, setuptools too
FASTER = ("--no-compile",)  # most modules of the test libraries are never imported: not compiling them saves minutes


def pip(*words: str) -> str:
    """Runs pip, prints what it says, and gives its errors; none if it succeeded."""
    ended = subprocess.run([*PIP, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(ended.stderr)
    return ended.stderr if ended.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "test", "tpu"))
    parser.add_argument("--strict", action="store_true", help="install these versions or nothing")
    args = parser.parse_args()
    more = () if args.what == "run" else FASTER
    errors = pip(*more, "--require-hashes", "-r", f"requirements/{args.what}.txt")
    if not errors:
        return 1 if args.what != "tpu" and pip(*WITHOUT_DEPENDENCIES, "-e", ".") else 0
    if args.strict or MISSING not in errors:
        return 1
    lacking = errors.partition(MISSING)[2].split()[0]
    sys.stderr.write(f"the package index lacks {lacking}: installing versions that pyproject.toml allows, without checking hashes\n")
    return 1 if pip(*more, *allowed(args.what)) else 0


def allowed(what: str) -> tuple[str, ...]:
    """The same for pip, with the versions that `pyproject.toml` allows."""
    if what == "tpu":
        return tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["tpu"])
    return ("-e", ".[test]" if what == "test" else ".")


if __name__ == "__main__":
    sys.exit(main())
