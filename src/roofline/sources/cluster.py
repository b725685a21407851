"""A run of many hosts: a map over its files, in this process, in several, or on a Dask cluster, and one merge to the same digits.

    recording = read_run(["gs://bucket/logs/plugins/profile/monday"], cluster="tcp://scheduler:8786")

Files may be local or remote; a worker opens those that it sees and is sent the others.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..errors import MissingExtra, SourceError, UsageError
from ..machine import Machine
from ..workload import Recording
from . import Progress
from .cache import Cache, fingerprint
from .hosts import Reading, calls_of_users, host_files
from .processes import Answer, answer_of, part_of, read_files, weights
from .remote import is_private, is_remote, local_copy
from .xspace.attribute import Part
from .xspace.recording import merge

CONNECT_S = 10
ELSEWHERE: Answer = ("elsewhere", None)  # a worker's answer when it does not see the file that was meant
Stamp = tuple[int, int] | None  # bytes and time of change


def read_run(
    paths: Iterable[Path | str],
    target: Machine | None = None,
    *,
    salvage: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> Recording:
    """One run from the files of its hosts, a run folder or a log folder, local or remote, whoever reads them and in whatever order.

    ``jobs`` is how many processes of this machine read, ``cluster`` the address of a Dask scheduler whose workers do instead.
    """
    files = host_files(paths)
    if not files:
        raise SourceError("no profile given; name the .xplane.pb files of a run")
    how = Reading(target=target, salvage=salvage, shared=len(files) > 1, cache=cache)
    if cluster is None:
        return merge(read_files(files, how, jobs=jobs, progress=progress))
    return merge(read_on_cluster(cluster, files, how, progress))


def read_on_cluster(address: str, files: Sequence[str], how: Reading, progress: Progress | None = None) -> list[Part]:
    """What each file says, in their order, read by the workers of a Dask cluster.

    A worker opens the file itself where it sees it under the same name with the same size and time of change, or at the same remote
    address; all others are sent to it, no more of them at once than there are workers.
    """
    if calls_of_users():
        raise UsageError(f"--cluster {address}: registered custom calls are not available on workers; read without --cluster")
    with _client(address) as client:
        code = fingerprint(compiled=False)
        workers = _checked(client, address, code)
        return _Errand(client, files, how, code, progress).run(workers)


class _Errand:
    """Files being read by workers."""

    def __init__(self, client: Any, files: Sequence[str], how: Reading, code: str, progress: Progress | None) -> None:
        self._client, self._files, self._how, self._code, self._progress = client, files, how, code, progress
        self._sizes, self._done = weights(files), 0

    def run(self, workers: int) -> list[Part]:
        parts: dict[int, Part] = {}
        numbers = {self._ask(number): number for number in range(len(self._files))}
        to_send: list[int] = []
        sent: set[int] = set()
        pool = _dask().as_completed(list(numbers), loop=self._client.loop)
        for future in pool:
            number = numbers.pop(future)
            answer = self._answer(future, number)
            sent.discard(number)
            if answer == ELSEWHERE:
                to_send.append(number)
            else:
                parts[number] = part_of(answer)
                self._tell(number)
            while to_send and len(sent) < workers:
                again = self._send(to_send[-1])
                numbers[again] = to_send.pop()
                sent.add(numbers[again])
                pool.add(again)
        return [parts[number] for number in range(len(self._files))]

    def _ask(self, number: int) -> Any:
        """Have a worker read a file if it sees it. Never answered from what Dask remembers: the file may have changed."""
        file = self._files[number]
        return self._client.submit(_read_there, file, _stamp(file), self._how, self._code, pure=False)

    def _send(self, number: int) -> Any:
        """Have a worker read bytes that are sent along."""
        file = self._files[number]
        try:
            with local_copy(file) if is_remote(file) else nullcontext(Path(file)) as here:
                content = here.read_bytes()
        except FileNotFoundError:
            raise SourceError(f"{file}: no such file") from None
        except OSError as error:
            raise SourceError(f"{file}: cannot read: {error.strerror}") from None
        return self._client.submit(_read_sent, file, self._client.scatter(content, hash=False), self._how, self._code, pure=False)

    def _answer(self, future: Any, number: int) -> Answer:
        try:
            answer: Answer = future.result()
        except _dask().KilledWorker:
            raise SourceError(
                f"{self._files[number]}: the workers reading it died, probably out of memory; give them more memory"
            ) from None
        return answer

    def _tell(self, number: int) -> None:
        self._done += self._sizes[number]
        if self._progress:
            self._progress(self._done, sum(self._sizes))


def _read_there(file: str, stamp: Stamp, how: Reading, code: str) -> Answer:
    """On a worker: a file that it sees."""
    if (other := _other_code(code)) is not None:
        return other
    seen = not is_private(file) if is_remote(file) else stamp is not None and _stamp(file) == stamp
    return answer_of(file, how) if seen else ELSEWHERE


def _read_sent(file: str, content: bytes, how: Reading, code: str) -> Answer:
    """On a worker: the bytes of a file that it does not see."""
    return _other_code(code) or answer_of(file, how, data=content)


def _other_code(code: str) -> Answer | None:
    return None if code == fingerprint(compiled=False) else ("refused", (UsageError, _MISMATCH.format(who="a worker that joined late")))


_MISMATCH = "{who} runs a different version of roofline; install the same version everywhere"


def _stamp(file: str) -> Stamp:
    """What a file is known by on machines that share a file system; two of one name on two disks differ in it."""
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
        return _dask().Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"--cluster {address}: no Dask scheduler found ({reason}); start one with: dask scheduler") from None


def _checked(client: Any, address: str, code: str) -> int:
    """How many workers there are, all of which have this package in this version."""
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
