"""Reads the files of a run on the workers of a Dask cluster."""

import os
from collections.abc import Sequence
from typing import Any

from ..errors import MissingExtra, SourceError, UsageError
from .cache import fingerprint
from .files import local_file
from .parts import Part
from .processes import Answer, answer_of, part_of
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
        raise UsageError(f"--cluster {address}: registered custom calls are not available on workers; read without --cluster")
    with _client(address) as client:
        code = fingerprint(compiled=False)
        workers = _count_workers(client, address, code)
        return _Run(client, files, how, code, progress).run(workers)


class _Run:
    """The files of one call, while workers read them."""

    def __init__(self, client: Any, files: Sequence[str], how: Reading, code: str, progress: Progress | None) -> None:
        self._client, self._files, self._how, self._code = client, files, how, code
        self._progress = OverallProgress(files, progress)

    def run(self, workers: int) -> list[Part]:
        parts: dict[int, Part] = {}
        numbers = {self._submit_name(number): number for number in range(len(self._files))}
        to_send: list[int] = []
        sent: set[int] = set()
        pool = _dask().as_completed(list(numbers), loop=self._client.loop)
        for future in pool:
            number = numbers.pop(future)
            answer = self._answer(future, number)
            sent.discard(number)
            if answer == NOT_VISIBLE:
                to_send.append(number)
            else:
                parts[number] = part_of(answer)
                self._progress.update(number, 1, 1)
            while to_send and len(sent) < workers:
                again = self._submit_content(to_send[-1])
                numbers[again] = to_send.pop()
                sent.add(numbers[again])
                pool.add(again)
        return [parts[number] for number in range(len(self._files))]

    def _submit_name(self, number: int) -> Any:
        """Has a worker read a file if it can open it. Dask must not reuse an earlier result (``pure``): the file may have changed."""
        file = self._files[number]
        return self._client.submit(_read_by_name, file, _stamp(file), self._how, self._code, pure=False)

    def _submit_content(self, number: int) -> Any:
        """Sends the content of a file to a worker, which reads it."""
        file = self._files[number]
        try:
            with local_file(file) as here:
                content = here.read_bytes()
        except FileNotFoundError:
            raise SourceError(f"{file}: no such file") from None
        except OSError as error:
            raise SourceError(f"{file}: cannot read: {error.strerror}") from None
        return self._client.submit(_read_content, file, self._client.scatter(content, hash=False), self._how, self._code, pure=False)

    def _answer(self, future: Any, number: int) -> Answer:
        try:
            answer: Answer = future.result()
        except _dask().KilledWorker:
            raise SourceError(
                f"{self._files[number]}: the workers reading it died, probably out of memory; give them more memory"
            ) from None
        return answer


def _read_by_name(file: str, stamp: Stamp, how: Reading, code: str) -> Answer:
    """Runs on a worker: reads a file if the worker can open it."""
    if (mismatch := _version_mismatch(code)) is not None:
        return mismatch
    visible = not is_private(file) if is_remote(file) else stamp is not None and _stamp(file) == stamp
    return answer_of(file, how) if visible else NOT_VISIBLE


def _read_content(file: str, content: bytes, how: Reading, code: str) -> Answer:
    """Runs on a worker: reads the content of a file that the worker cannot open."""
    return _version_mismatch(code) or answer_of(file, how, data=content)


def _version_mismatch(code: str) -> Answer | None:
    return None if code == fingerprint(compiled=False) else ("refused", (UsageError, _MISMATCH.format(who="a worker that joined late")))


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
        raise UsageError(f"--cluster {address}: no Dask scheduler found ({reason}); start one with: dask scheduler") from None


def _count_workers(client: Any, address: str, code: str) -> int:
    """The number of workers; an error if there are none, or if one does not have this version of the package."""
    versions = client.run(fingerprint, compiled=False, on_error="return")
    if not versions:
        raise UsageError(f"--cluster {address}: the cluster has no workers; start some with: dask worker {address}")
    for worker, version in versions.items():
        if isinstance(version, Exception):
            raise UsageError(
                f"--cluster {address}: the worker {worker} cannot run roofline ({type(version).__name__}: {version}); "
                "install the same version there"
            )
        if version != code:
            raise UsageError(f"--cluster {address}: {_MISMATCH.format(who=f'the worker {worker}')}")
    return len(versions)
