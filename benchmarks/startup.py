"""Start-up: `roofline --help` and short commands, beside a bare `python -c pass`, in one run.

    .venv/bin/python benchmarks/startup.py

The goal is help within 0.1 s. The best of twenty runs each; heavy libraries on the way to an answer are kept out by
tests/test_startup.py, not by a timed test.
"""

import subprocess
import sys
import time

TRIES = 20
ROOFLINE = "import sys; from roofline.cli import main; sys.exit(main(sys.argv[1:]))"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "python -c 'import msgspec'": ["-c", "import msgspec"],
    "roofline --help": ["-c", ROOFLINE, "--help"],
    "roofline analyze --help": ["-c", ROOFLINE, "analyze", "--help"],
    "roofline op matmul 64 64 64": ["-c", ROOFLINE, "op", "matmul", "64", "64", "64", "--chip", "v5e"],
    "roofline analyze sample:train": ["-c", ROOFLINE, "analyze", "sample:train"],
}


def best(words: list[str]) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    bare = best(COMMANDS["python -c pass"])
    for name, words in COMMANDS.items():
        seconds = best(words)
        print(f"{name:32} {seconds:.3f} s  {seconds / bare:4.1f}x bare Python")
