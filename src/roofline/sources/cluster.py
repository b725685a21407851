"""Reads the files of a run, and calls functions of this package, on the workers of a Dask cluster."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import MissingExtra, SourceError, UsageError
from ..workers import Answer, answer_of, result_of
from .cache import fingerprint
from .files import local_file
from .parts import Part
from .pool import read_as_asked
from .reading import OverallProgress, Reading, has_user_prices
from .remote import Progress, is_private, is_remote

CONNECT_S = 10
NOT_VISIBLE: Answer = ("not visible", None)  # a worker's answer if it cannot open the same file
Stamp = tuple[int, int] | None  # size in bytes and time of modification


def read_on_cluster(files: Sequence[str], how: Reading, progress: Progress | None = None, *, address: str) -> list[Part]:
    """Reads each file into a part, in the order of the files.

    A worker opens a file itself if it finds it under the same name with the same size and time of modification, or at the same remote
    address. The contents of all other files are sent to the workers, at most one file per worker at a time.
    """
    if has_user_prices():
        raise UsageError(f"--read cluster={address}: registered custom calls are not available on workers; read without it")
    overall = OverallProgress(files, progress)
    parts: dict[int, Part] = {}
    with _client(address) as client:
        code = fingerprint()
        workers = _count_workers(client, address, code)

        def read(numbers: Iterable[int], *, send: bool) -> None:
            # Dask must not reuse an earlier result (`pure`): the file may have changed.
            futures = {
                client.submit(
                    _read_on_worker, files[number], how, code, _stamp(files[number]), _sent(client, files[number], send), pure=False
                ): number
                for number in numbers
            }
            for future in _dask().as_completed(list(futures), loop=client.loop):
                number = futures[future]
                answer = _answer(future, files[number])
                if answer != NOT_VISIBLE:
                    parts[number] = result_of(answer)
                    overall.update(number, 1, 1)

        read(range(len(files)), send=False)
        left = [number for number in range(len(files)) if number not in parts]
        for begin in range(0, len(left), workers):
            read(left[begin : begin + workers], send=True)
    return [parts[number] for number in range(len(files))]


def call_on_cluster(address: str, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What a function of this package returns on a worker; its errors are raised here."""
    with _client(address) as client:
        _count_workers(client, address, fingerprint())
        try:
            return result_of(client.submit(answer_of, function, *arguments, **more, pure=False).result())
        except _dask().KilledWorker:
            raise SourceError(f"the worker of {address} died, probably out of memory; give it more memory") from None


def _sent(client: Any, file: str, send: bool) -> Any:
    """The content of a file on its way to a worker, if it is to be sent."""
    if not send:
        return None
    try:
        with local_file(file) as here:
            return client.scatter(here.read_bytes(), hash=False)
    except FileNotFoundError:
        raise SourceError(f"{file}: no such file") from None
    except OSError as error:
        raise SourceError(f"{file}: cannot read: {error.strerror}") from None


def _answer(future: Any, file: str) -> Answer:
    try:
        answer: Answer = future.result()
    except _dask().KilledWorker:
        raise SourceError(f"{file}: the workers reading it died, probably out of memory; give them more memory") from None
    return answer


def _read_on_worker(file: str, how: Reading, code: str, stamp: Stamp, content: bytes | None) -> Answer:
    """Runs on a worker: reads a file if the worker can open it, or the content that was sent."""
    if code != fingerprint():
        return "refused", (UsageError, _MISMATCH.format(who="a worker that joined late"))
    if content is None and not (stamp == _stamp(file) is not None or (is_remote(file) and not is_private(file))):
        return NOT_VISIBLE
    return answer_of(read_as_asked, file, how, content)


_MISMATCH = "{who} runs a different version of roofline; install the same version everywhere"


def _stamp(file: str) -> Stamp:
    """Identifies a file on machines that share a file system: two files of the same name on two disks differ in it."""
    try:
        state = os.stat(file)
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def _dask() -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtra("distributed", "cluster") from None
    return distributed


def _client(address: str) -> Any:
    try:
        _dask().comm.addressing.get_address_host_port(address)  # a client that is given an invalid address takes long to close
        return _dask().Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"--read cluster={address}: no Dask scheduler found ({reason}); start one with: dask scheduler") from None


def _count_workers(client: Any, address: str, code: str) -> int:
    """The number of workers; an error if there are none, or if one does not have this version of the package."""
    versions = client.run(fingerprint, on_error="return")
    if not versions:
        raise UsageError(f"--read cluster={address}: the cluster has no workers; start some with: dask worker {address}")
    for worker, version in versions.items():
        if isinstance(version, Exception):
            raise UsageError(
                f"--read cluster={address}: the worker {worker} cannot run roofline ({type(version).__name__}: {version}); "
                "install the same version there"
            )
        if version != code:
            raise UsageError(f"--read cluster={address}: {_MISMATCH.format(who=f'the worker {worker}')}")
    return len(versions)
