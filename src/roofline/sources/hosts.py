"""The files of a run: which they are, and what one of them says, wherever it is and whether or not it was read before."""

import mmap
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..errors import RooflineError, UsageError
from ..machine import Machine
from ..workload import Recording
from . import PROFILE_SOURCE, Progress, Source, find, profiles_in
from .cache import Cache, key_of
from .profile_folder import one_run
from .remote import is_folder, is_remote, local_copy, remote_profiles
from .xspace.attribute import Part
from .xspace.modules import Known
from .xspace.recording import merge, read_part

Buffer = bytes | mmap.mmap


class Reading(Struct, frozen=True, kw_only=True):
    """How the files of a run are read: for which machine, as far as damage allows, as one of several hosts, and with what cache."""

    target: Machine | None = None
    salvage: bool = False
    shared: bool = False
    cache: Cache | None = None


def host_files(paths: Iterable[Path | str]) -> list[str]:
    """The profiles that some paths name: a folder's are the hosts of the one run in it. One that is named twice is an error."""
    files: list[str] = []
    for path in map(str, paths):
        if is_remote(path):
            files += one_run(remote_profiles(path), path) if is_folder(path) else [path]
        else:
            files += one_run([file.as_posix() for file in profiles_in(Path(path))], path) if Path(path).is_dir() else [path]
    seen: dict[str, str] = {}
    for file in files:
        place = file if is_remote(file) else str(Path(file).resolve())
        if place in seen:
            raise UsageError(f"{file}: given twice (also as {seen[place]}); each host of a run has its own file")
        seen[place] = file
    return files


def read_remote(
    url: str, target: "Callable[[Source], Machine | None]", *, salvage: bool = False, progress: Progress | None = None
) -> Recording:
    """Whatever is at an address, as a recording. ``target`` gives the machine that a source has to know."""
    if is_folder(url):
        files = host_files([url])
        how = Reading(salvage=salvage, shared=len(files) > 1)
        known: Known = {}
        return merge([read_host(file, how, known=known, progress=progress) for file in files])
    with local_copy(url, progress) as copy:
        try:
            source = find(copy)
            if source.__name__.endswith(PROFILE_SOURCE):
                return merge([read_part(url, target(source), data=mapped(copy), salvage=salvage, progress=progress)])
            recording = source.read(copy, target(source))
        except RooflineError as error:
            error.args = (str(error).replace(str(copy), url),)
            raise
    return replace(recording, files=(url,), notes=tuple(note.replace(str(copy), url) for note in recording.notes))


def read_host(
    file: str, how: Reading, *, data: bytes | None = None, known: "Known | None" = None, progress: Progress | None = None
) -> Part:
    """What one file says, or its ``data`` where those were sent along.

    ``known`` gathers the programs of hosts that are read one after the other. ``progress`` is told bytes done and to do, copying first.
    """

    def read(data: Buffer | None) -> Part:
        return read_part(file, how.target, data=data, salvage=how.salvage, shared=how.shared, known=known, progress=progress)

    if data is not None or not is_remote(file):
        return _looked_up(file, how, data, read)
    with local_copy(file, progress) as copy:
        return _looked_up(file, how, mapped(copy), read)


def _looked_up(file: str, how: Reading, data: Buffer | None, read: "Callable[[Buffer | None], Part]") -> Part:
    """What the cache has of a file, or else what ``read`` makes of its bytes."""
    if how.cache is None or calls_of_users() or not _pays(file, data, how.cache):
        return read(data)
    if data is None:
        # The bytes that are hashed have to be those that are read: a file that is mapped could change in between.
        try:
            data = Path(file).read_bytes()
        except OSError:
            return read(None)  # which says what is wrong
    key = key_of(data, file, how.target, how.salvage, how.shared)
    part = how.cache.get(key)
    if part is None:
        part = read(data)
        how.cache.put(key, part)
    return part


def mapped(copy: Path) -> Buffer:
    """A file's bytes, mapped; whoever reads them as a profile closes the map."""
    with copy.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if copy.stat().st_size else b""


def _pays(file: str, data: Buffer | None, cache: Cache) -> bool:
    """Whether the cache would give a file's part sooner than reading it. One that cannot be opened is for the reader to complain about."""
    if cache.largest_bytes is None or file.endswith(".gz"):
        return True
    try:
        return (os.stat(file).st_size if data is None else len(data)) <= cache.largest_bytes
    except OSError:
        return False


def calls_of_users() -> bool:
    """Whether somebody registered prices of custom calls in this process: nothing outside of it knows them."""
    registry = sys.modules.get("roofline.hlo.price.calls.registry")
    return bool(registry and registry.user_targets())
