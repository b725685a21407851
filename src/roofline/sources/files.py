"""Input files: finds the files that a path names, and reads them."""

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import SourceError, UsageError
from ..files.input_limits import limits, too_much
from ..units import parse
from .pipes import opened_path
from .remote import Progress, is_folder, is_remote, local_copy, remote_profiles
from .samples import sample_or_path
from .xspace import PROFILES

HEAD_BYTES = int(parse("64 KiB", "B"))
GZIP_MAGIC = b"\x1f\x8b"


def files_of(paths: Sequence[str]) -> list[str]:
    """The files to read: of a folder with profiles, those of the one run in it. Several paths must be profiles, one per host."""
    if len(paths) != 1:
        return _hosts(paths)
    path = paths[0]
    if is_remote(path):
        return _one_run(remote_profiles(path), path) if is_folder(path) else [path]
    if not os.path.isdir(path):
        return [path]
    if profiles := profiles_in(path):
        return _one_run(profiles, Path(path).as_posix())
    if traces := traces_in(path):
        return _ranks(traces, Path(path).as_posix())
    return [path]  # other folders are read as a whole


def profiles_in(folder: Path | str) -> list[str]:
    """The profiles in a folder and in the folders below it, in order of name."""
    return [file.as_posix() for file in sorted(files_below(folder)) if file.name.endswith(PROFILES)]


def traces_in(folder: Path | str) -> list[str]:
    """The PyTorch traces of a run's ranks: those with the name that torch.profiler gives them for TensorBoard, else JSON files with the
    content of a trace.

    A trace that was recorded while graphs were captured is not a rank of its own; such traces count only if there are no others.
    """
    from .torch_trace import TRACES  # here because only folders and runs of several files need it
    from .torch_trace.read.capture_files import is_capture

    below = [file for file in files_below(folder) if file.name.endswith(TRACES)]
    here = sorted(file for file in Path(folder).iterdir() if file.name.endswith((".json", ".json.gz")))
    for found in (
        [file for file in below if not is_capture(file)],
        [file for file in here if not is_capture(file) and is_trace(file)],
        below,
        [file for file in here if is_trace(file)],
    ):
        if found:
            return [file.as_posix() for file in found]
    return []


def is_trace(path: Path | str) -> bool:
    """Whether a file is a PyTorch trace, by its first bytes."""
    from .torch_trace.recognition import looks_like_trace

    try:
        return looks_like_trace(head_of(path))
    except SourceError:
        return False


def _ranks(files: Sequence[str], folder: str) -> list[str]:
    """The traces of one run: one ``WORKER.TIMESTAMP.pt.trace.json`` per worker; several of one worker are an error."""
    ranks = _one_run(files, folder)
    workers = [_worker(file) for file in ranks]
    twice = next((worker for worker in workers if workers.count(worker) > 1), None)
    if twice is not None:
        raise SourceError(f"{folder}: {workers.count(twice)} traces of {twice} in this folder; name the one to read, or one of each rank")
    return ranks


def _worker(file: str) -> str:
    """The worker that wrote a trace, from the file's name.

    >>> _worker("log/host_12.1700000000000.pt.trace.json.gz"), _worker("log/rank0.json")
    ('host_12', 'rank0')
    """
    name = file.rpartition("/")[2].removesuffix(".gz").removesuffix(".json").removesuffix(".trace").removesuffix(".pt")
    worker, _, stamp = name.rpartition(".")
    return worker if worker and stamp.isdecimal() else name


def files_below(folder: Path | str) -> Iterator[Path]:
    """The files in a folder and in the folders below it; folders that cannot be read are left out."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where, name) for name in sorted(names) if os.path.isfile(os.path.join(where, name)))


def _hosts(paths: Sequence[str]) -> list[str]:
    if not paths:
        raise SourceError("no profile given; name the .xplane.pb files of a run")
    if not all(path.endswith(PROFILES) for path in paths) and not all(not is_remote(path) and is_trace(path) for path in paths):
        raise UsageError(
            "several files must be the .xplane.pb files or PyTorch traces of one run; to compare two inputs use: roofline compare A B"
        )
    seen: dict[str, str] = {}
    for path in paths:
        place = path if is_remote(path) else os.path.realpath(path)
        if place in seen:
            raise UsageError(f"{path}: given twice (also as {seen[place]}); each host of a run has its own file")
        seen[place] = path
    return list(paths)


def _one_run(files: Sequence[str], folder: str) -> list[str]:
    """The profiles below a folder, without gzipped copies of the same file; an error if they are of more than one run."""
    if not files:
        raise SourceError(f"{folder}: no .xplane.pb file in this folder; name a folder written by jax.profiler or roofline capture")
    runs = sorted({file.rpartition("/")[0] for file in files})
    if len(runs) > 1:
        root = f"{folder.rstrip('/')}/"
        names = ", ".join(run.removeprefix(root) for run in runs[:4])
        more = f" and {len(runs) - 4} more" if len(runs) > 4 else ""
        raise SourceError(f"{folder}: {len(runs)} runs in this folder ({names}{more}); name one, or compare two with: roofline compare")
    return [file for file in files if not (file.endswith(".gz") and file.removesuffix(".gz") in files)]


@contextmanager
def local_file(name: str, progress: Progress | None = None) -> Iterator[Path]:
    """A local path for an input: a temporary copy of a remote file, the file of a sample, else the path itself."""
    if is_remote(name):
        with local_copy(name, progress) as copy:
            yield copy
    else:
        yield sample_or_path(name)


def head_of(path: Path | str) -> bytes:
    """The first bytes of a file, decompressed if it is gzipped."""
    with _opened(path):
        place = opened_path(path)
        with open(place, "rb") as file:
            head = file.read(HEAD_BYTES)
        if head.startswith(GZIP_MAGIC):
            head = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)  # 31: with a gzip header. Works on truncated files too
        return head


def all_of(path: Path | str) -> bytes:
    """A whole file, decompressed if it is gzipped; an error if it is larger than the limit."""
    most = limits().size
    with _opened(path):
        place = opened_path(path)
        with open(place, "rb") as file:
            data = file.read(most + 1)
        if data.startswith(GZIP_MAGIC):
            import gzip

            with gzip.open(place, "rb") as unzipped:
                data = unzipped.read(most + 1)
    if len(data) > most:
        raise too_much("size", str(path))
    return data


@contextmanager
def _opened(path: Path | str) -> Iterator[None]:
    """Turns exceptions while a file is read into errors of one line."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SourceError(f"{path}: is a folder; name a file in it") from None
    except EOFError:
        raise SourceError(f"{path}: truncated: the gzipped data end too early; the copy is incomplete") from None
    except (OSError, zlib.error) as error:
        raise SourceError(f"{path}: cannot read: {error}") from None
