"""Reads the files of a run in several processes on this machine: this one, and if that lasts long workers beside it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

from ..errors import SourceError
from ..files.input_limits import set_limits
from ..workers import Worker, WorkerDied
from .cores import cores
from .parts import Part
from .reading import Known, OverallProgress, Reading, read_file
from .remote import Progress

PATIENCE_S = 1.0  # of reading before workers are started: starting one takes a quarter of that, and each prices the programs again
Read = Callable[[str, Progress | None], Part]
_known: Known = {}  # the programs that a worker has priced


def read_in_processes(files: Sequence[str], how: Reading, progress: Progress | None = None, *, jobs: int | None = None) -> list[Part]:
    """Reads each file into a part, in the order of the files. If several cannot be read, the error of the first is raised.

    ``jobs`` processes read from the start; by default one process, and one per CPU after `PATIENCE_S`.
    """
    processes = min(cores() if jobs is None else jobs, len(files))
    overall, all_taken = OverallProgress(files, progress), Event()
    numbers = iter(range(len(files)))  # of the files that no process has taken
    parts: dict[int, Part] = {}
    failures: dict[int, Exception] = {}
    known: Known = {}

    def read_rest(read: Read) -> None:
        for number in numbers:
            try:
                parts[number] = read(files[number], overall.of(number))
            except Exception as error:
                failures[number] = error
                list(numbers)  # takes the rest: earlier files are being read already, and later ones no longer matter
        all_taken.set()

    def read_in_worker() -> None:
        if not all_taken.wait(PATIENCE_S if jobs is None else 0):
            worker = workers.enter_context(Worker())
            read_rest(lambda file, progress: _read_by(worker, file, how, progress))

    with ThreadPoolExecutor(processes) as threads, ExitStack() as workers:
        beside = [threads.submit(read_in_worker) for _ in range(1, processes)]
        try:
            read_rest(lambda file, progress: read_file(file, how, known=known, progress=progress))
        finally:
            all_taken.set()
        for thread in beside:
            thread.result()
    if failures:
        raise failures[min(failures)]
    return [parts[number] for number in range(len(files))]


def read_as_asked(
    file: str, how: Reading, data: bytes | None = None, *, known: Known | None = None, progress: Progress | None = None
) -> Part:
    """What another process does to read a file."""
    set_limits(how.limits)
    return read_file(file, how, data=data, known=known, progress=progress)


def read_next(file: str, how: Reading, *, progress: Progress | None = None) -> Part:
    """The same in a worker that reads several files of one run."""
    return read_as_asked(file, how, known=_known, progress=progress)


def _read_by(worker: Worker, file: str, how: Reading, progress: Progress | None) -> Part:
    try:
        part: Part = worker.call(read_next, file, how, progress=progress)
    except MemoryError:
        raise SourceError(f"{file}: out of memory while reading it; try --read jobs=1 or a computer with more memory") from None
    except WorkerDied as error:
        raise SourceError(f"{file}: while reading it {error}; try --read jobs=1") from None
    return part
