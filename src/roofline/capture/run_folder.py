"""The folder of a capture: ``FOLDER/plugins/profile/RUN``, one file per process, where TensorBoard looks for profiles."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..files.output_files import staging_folder
from ..sources.torch_trace.read.capture_files import FOLDER as CAPTURE_TRACES
from ..torch.trace_files import PROFILES, pack, trace_name, worker_name
from .hook.roofline_hook_torch import TRACE

XPLANE = ".xplane.pb"
_WORK = re.compile(rb'"cat": *"(?:cpu_op|kernel|gpu_mem)')


@contextmanager
def staging_in(folder: Path) -> Iterator[Path]:
    """A temporary folder inside another, for incomplete profiles."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = staging_folder(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write the profile: {error.strerror}") from None
    with staging as path:
        yield Path(path)


def collect(staging: Path, folder: Path, name: str | None = None) -> tuple[Path, tuple[Path, ...]]:
    """Move the profiles of all processes into one run folder, without overwriting. Returns the folder and its new files."""
    run = folder / PROFILES / (name or _unused_time(folder / PROFILES))
    files = []
    for file in sorted(staging.rglob(f"{PROFILES.as_posix()}/*/*{XPLANE}")):
        run.mkdir(parents=True, exist_ok=True)
        files.append(_moved(file, run))
    for file in sorted(staging.glob(f"*/{TRACE}")):
        status = json.loads((file.parent / "status.json").read_text("utf-8"))
        if status["recorded"] or _has_work(file):
            run.mkdir(parents=True, exist_ok=True)
            files.append(_packed(file, run, status))
    return run, tuple(files)


def _has_work(file: Path) -> bool:
    """Whether a trace contains an op or a kernel: a program may end right after its recording began."""
    with file.open("rb") as lines:
        return any(_WORK.search(line) for line in lines)


def _moved(file: Path, run: Path) -> Path:
    """A profile of JAX in its run folder; processes of one host are numbered, also when several captures share the folder."""
    host = file.name.removesuffix(XPLANE)
    number = 1
    while True:
        target = run / (f"{host}{XPLANE}" if number == 1 else f"{host}.{number}{XPLANE}")
        try:
            os.link(file, target)  # atomic, so that no other capture uses the name and a kill leaves no empty file
        except FileExistsError:
            number += 1
            continue
        except OSError:  # a file system without links
            if target.exists():
                number += 1
                continue
            return file.replace(target)
        file.unlink()
        return target


def _packed(file: Path, run: Path, status: Mapping[str, Any]) -> Path:
    """Move a PyTorch trace to its run folder, with the recordings of its graph captures in a folder next to it."""
    worker = worker_name(status["rank"], int(file.parent.name.partition("-")[0]))
    for capture in sorted((file.parent / CAPTURE_TRACES).glob("*.json")):
        (run / CAPTURE_TRACES).mkdir(exist_ok=True)
        pack(capture, run / CAPTURE_TRACES / f"{worker}.{capture.stem}.json.gz")
    return pack(file, run / trace_name(worker), status["unfinished"], status.get("unprofiled_s", 0.0))


def _unused_time(runs: Path) -> str:
    """A run name from the current time in JAX's format, with a number appended if that name exists."""
    now = datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    number, name = 1, now
    while (runs / name).exists():
        number += 1
        name = f"{now}_{number}"
    return name
