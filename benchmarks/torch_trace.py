"""How long `roofline analyze` takes for a large PyTorch trace, and how much memory.

    python benchmarks/torch_trace.py                          1 GB, made of a captured trace
    python benchmarks/torch_trace.py --size 62MB --tracelens /path/to/venv/bin/python

The trace is one of three training steps on an H200, repeated: each copy later in time, with its own correlation ids and step numbers.
CPU seconds are told beside those on the clock, since other programs may run; a short run is repeated, and the median told. With
``--tracelens`` a Python in which TraceLens is installed (from its repository: the package of that name on PyPI is another project) makes
its report of the same file, in the same run: between two series of ours, so that what else the computer does then slows down both.

Memory is that of the largest process: the one that was started.

On two cores that others used as well: for 62 MB 0.9 to 1.4 CPU seconds and 53 MB, TraceLens (August 2026) 16.6 to 18.8 CPU seconds and
1.03 GB, 14 to 19 times as many. For 1 GB 10 to 15 CPU seconds and 254 MB.
"""

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from roofline.units import parse, show

SOURCE = Path(__file__).parent.parent / "tests" / "data" / "h200" / "torch_eager.json.gz"
NUMBERS = re.compile(rb'("ts": |"correlation": |"External id": |"id": |ProfilerStep#)([0-9.]+)')
IDS = 100_000  # more than one copy uses
STEPS = 3
TOGETHER_S = 10  # that runs of one command take together
TRACELENS = ("-m", "TraceLens.Reporting.generate_perf_report_pytorch", "--profile_json_path")


def grow(target: Path, size: float) -> int:
    """Writes a trace of at least so many bytes; how many copies that took."""
    text = gzip.decompress(SOURCE.read_bytes())
    begin, end = text.index(b"[", text.index(b'"traceEvents"')) + 1, text.rindex(b"]")
    parts = NUMBERS.split(text[begin:end])
    stamps = [float(number) for key, number in zip(parts[1::3], parts[2::3], strict=True) if key == b'"ts": ']
    span = max(stamps) - min(stamps) + 1000
    copies = max(1, round(size / (end - begin)))
    with target.open("wb") as file:
        file.write(text[:begin])
        for copy in range(copies):
            file.write(b"," if copy else b"")
            file.write(b"".join(_moved(parts, copy, span)))
        file.write(text[end:])
    return copies


def _moved(parts: list[bytes], copy: int, span: float) -> list[bytes]:
    moved = parts.copy()
    for place in range(1, len(parts), 3):
        key, number = parts[place], parts[place + 1]
        if key == b'"ts": ':
            moved[place + 1] = b"%.3f" % (float(number) + copy * span)
        else:
            moved[place + 1] = b"%d" % (int(number) + copy * (STEPS if key == b"ProfilerStep#" else IDS))
    return moved


def measure(*command: str, environment: dict[str, str]) -> tuple[float, float, float]:
    """Seconds on the clock, CPU seconds of all its processes, and peak bytes of the largest of them."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def series(*command: str, environment: dict[str, str]) -> list[tuple[float, float, float]]:
    """The same of as many runs as take some seconds together, or of one that takes longer."""
    runs, begun = list[tuple[float, float, float]](), time.perf_counter()
    while not runs or time.perf_counter() - begun < TOGETHER_S:
        runs.append(measure(*command, environment=environment))
    return runs


def _of(trace: Path, command: list[str]) -> list[str]:
    return [str(trace) if word == "TRACE" else word for word in command]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GB", help="of the trace (default 1GB)")
    parser.add_argument("--gzip", action="store_true", help="gzip the trace, as profilers do")
    parser.add_argument("--tracelens", metavar="PYTHON", help="a Python with TraceLens, to compare with")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        copies = grow(trace, parse(args.size, "B"))
        print(f"{show(trace.stat().st_size, 'B')}, {copies} copies of {SOURCE.name}")
        if args.gzip:
            subprocess.run(["gzip", "-1", str(trace)], check=True)
            trace = trace.with_suffix(".json.gz")
        commands = {"roofline": [sys.executable, "-m", "roofline", "analyze", "TRACE", "--json", f"{folder}/report.json"]}
        if args.tracelens:
            commands["TraceLens"] = [args.tracelens, *TRACELENS, "TRACE", "--output_csvs_dir", f"{folder}/csv"]
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # without bytecode both would compile themselves again, which no user waits for
        for command in commands.values():
            measure(*_of(SOURCE, command), environment=environment)  # so that bytecode is there
        runs = dict[str, list[tuple[float, float, float]]]()
        for name in (*commands, "roofline") if args.tracelens else commands:
            runs.setdefault(name, []).extend(series(*_of(trace, commands[name]), environment=environment))
        taken = {name: sorted(mine)[len(mine) // 2] for name, mine in runs.items()}  # the median by the clock
        for name, (clock, cpu, peak) in taken.items():
            print(f"{name:10} {cpu:6.1f} CPU s  {clock:6.1f} s  {show(peak, 'B')} in the largest process")
        if args.tracelens:
            clock, cpu = (taken["TraceLens"][place] / taken["roofline"][place] for place in (0, 1))
            print(f"TraceLens takes {clock:.1f} times as long, and {cpu:.1f} times the CPU seconds")


if __name__ == "__main__":
    main()
