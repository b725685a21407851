"""Writes traces of PyTorch programs where TensorBoard looks for them: one folder per run, one gzipped file per process.

with torch.profiler.profile(record_shapes=True, with_stack=True, on_trace_ready=roofline.torch.handler("run")) as profiler:
    ...
"""

import gzip
import os
import re
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ..files.output_files import staging_folder
from ..units import parse

PROFILES = Path("plugins") / "profile"  # where TensorBoard looks for runs
ENDING = ".pt.trace.json.gz"
CHUNK = int(parse("4 MiB", "B"))
TIMED = 3  # steps that a capture times after its recording
_UNRECORDED = re.compile(rb'("roofline_step_s": *)\[[^\]]*\]')
FAST = 1  # gzip level: compresses to a tenth, in a tenth of the time of the best level


def handler(folder: str | os.PathLike[str], *, name: str | None = None) -> Callable[[Any], None]:
    """A callback for `torch.profiler.profile` that writes each trace below ``folder``, for `roofline analyze folder`.

    Each cycle of a schedule is a run of its own, and all ranks of a distributed program are one run. ``name`` is the run's folder, by
    default the time, or a name that all ranks of the program share.
    """
    root = Path(folder)

    def write(profiler: Any) -> None:
        write_trace(profiler, root, name)

    return write


def write_trace(profiler: Any, root: Path, name: str | None) -> Path:
    """Writes a profiler's trace into a run folder of its own; returns the file."""
    worker = worker_name()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with staging_folder(root) as staging:
            draft = Path(staging, "trace.json")
            profiler.export_chrome_trace(str(draft))
            run = run_folder(root, name, worker)
            run.mkdir(parents=True, exist_ok=True)
            return pack(draft, run / trace_name(worker))
    except OSError as error:
        raise OutputError(f"{root}: cannot write the trace: {error.strerror or error}") from None


def worker_name(rank: int | None = None, process: int | None = None) -> str:
    """The name of a process in file names: its rank in a distributed program, else its process id."""
    rank_word = os.environ.get("RANK", "")
    rank = int(rank_word) if rank is None and process is None and rank_word.isdecimal() else rank
    host = socket.gethostname().replace("capture", "host")  # files with that word in their names are taken for captured graphs
    return f"{host}_rank{rank}" if rank is not None else f"{host}_{process or os.getpid()}"


def trace_name(worker: str) -> str:
    """The file name of a trace that ends now, as torch.profiler names them for TensorBoard."""
    return f"{worker}.{int(1000 * datetime.now().timestamp())}{ENDING}"


def run_folder(root: Path, name: str | None, worker: str) -> Path:
    """The folder of a run: its name, with a number appended if this worker has a trace there already.

    Ranks choose the same folder without communication: the name is the same, and each has written the same number of traces.
    """
    known = (os.environ.get(variable) for variable in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_PORT"))
    shared = next((f"job_{name}" for name in known if name and name != "none"), None) if _world_size() > 1 else None
    stem = name or shared or datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    number, run = 1, root / PROFILES / stem
    while any(run.glob(f"{worker}.*{ENDING}")):
        number += 1
        run = root / PROFILES / f"{stem}_{number}"
    return run


def _world_size() -> int:
    size = os.environ.get("WORLD_SIZE", "")
    return int(size) if size.isdecimal() else 1


def pack(source: Path, target: Path, unfinished: str = "", unprofiled_s: float = 0.0) -> Path:
    """Gzips a trace next to it and moves the result to ``target``; the step ``unfinished`` is marked as such.

    ``unprofiled_s`` is what `TIMED` steps took after the recording, which replaces the figure from before it.
    """
    old, new = f'"{unfinished}"'.encode(), f'"{unfinished} (unfinished)"'.encode()
    draft = source.with_name(f"{source.name}.gz")
    with source.open("rb") as plain, gzip.open(draft, "wb", compresslevel=FAST) as packed:
        while lines := plain.readlines(CHUNK):
            chunk = b"".join(lines)
            if unprofiled_s:
                chunk = _UNRECORDED.sub(b"\\g<1>[%r, %r, %d]" % (unprofiled_s, unprofiled_s, TIMED), chunk, count=1)
            packed.write(chunk.replace(old, new) if unfinished else chunk)
    source.unlink()
    return draft.replace(target)
