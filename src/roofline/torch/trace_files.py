"""Where traces of PyTorch programs are written: one run per folder, one file per process, gzipped, where TensorBoard looks for them.

with torch.profiler.profile(record_shapes=True, with_stack=True, on_trace_ready=roofline.torch.handler("run")) as profiler:
    ...
"""

import gzip
import os
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ..files.staging import staging_folder
from ..units import parse

PROFILES = Path("plugins") / "profile"  # where TensorBoard looks for runs
ENDING = ".pt.trace.json.gz"
CHUNK = int(parse("4 MiB", "B"))
FAST = 1  # of gzip's levels: a tenth of the size in a tenth of the time of the best one


def handler(folder: str | os.PathLike[str], *, name: str | None = None) -> Callable[[Any], None]:
    """What `torch.profiler.profile` calls when a trace is ready: writes it below ``folder``, for `roofline analyze folder`.

    Each cycle of a schedule is a run by itself, and all ranks of a distributed program are one run. ``name`` is the run's folder, by
    default the time, or what all ranks know the program by.
    """
    root = Path(folder)

    def write(profiler: Any) -> None:
        write_trace(profiler, root, name)

    return write


def write_trace(profiler: Any, root: Path, name: str | None) -> Path:
    """Writes what a profiler recorded into a run folder of its own; the file."""
    worker = worker_name()
    try:
        with staging_folder(root) as staging:
            draft = staging / "trace.json"
            profiler.export_chrome_trace(str(draft))
            run = run_folder(root, name, worker)
            run.mkdir(parents=True, exist_ok=True)
            return pack(draft, run / trace_name(worker))
    except OSError as error:
        raise OutputError(f"{root}: cannot write the trace: {error.strerror or error}") from None


def worker_name(rank: int | None = None, process: int | None = None) -> str:
    """What the traces of a process are called: its rank in a distributed program, else its number."""
    said = os.environ.get("RANK", "")
    rank = int(said) if rank is None and process is None and said.isdecimal() else rank
    host = socket.gethostname().replace("capture", "host")  # names with that word are of captures of graphs
    return f"{host}_rank{rank}" if rank is not None else f"{host}_{process or os.getpid()}"


def trace_name(worker: str) -> str:
    """The file of a trace that ends now, as torch.profiler names them for TensorBoard."""
    return f"{worker}.{int(1000 * datetime.now().timestamp())}{ENDING}"


def run_folder(root: Path, name: str | None, worker: str) -> Path:
    """The folder of a run: by its name, with a number behind it where this worker has a trace there already.

    Ranks agree on it without asking each other: they know the program by the same name, and each has the same traces behind it.
    """
    known = (os.environ.get(variable) for variable in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_PORT"))
    shared = next((f"job_{one}" for one in known if one and one != "none"), None) if _world_size() > 1 else None
    stem = name or shared or datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    number, run = 1, root / PROFILES / stem
    while any(run.glob(f"{worker}.*{ENDING}")):
        number += 1
        run = root / PROFILES / f"{stem}_{number}"
    return run


def _world_size() -> int:
    said = os.environ.get("WORLD_SIZE", "")
    return int(said) if said.isdecimal() else 1


def pack(source: Path, target: Path, unfinished: str = "") -> Path:
    """Gzips a trace beside it and moves that; a step that was ``unfinished`` when the recording ended is not called a step any more."""
    old, new = f'"{unfinished}"'.encode(), f'"{unfinished} (unfinished)"'.encode()
    draft = source.with_name(f"{source.name}.gz")
    with source.open("rb") as plain, gzip.open(draft, "wb", compresslevel=FAST) as packed:
        while lines := plain.readlines(CHUNK):
            chunk = b"".join(lines)
            packed.write(chunk.replace(old, new) if unfinished else chunk)
    source.unlink()
    return draft.replace(target)
