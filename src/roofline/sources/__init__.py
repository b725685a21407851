"""Sources: every kind of input, turned into a `Recording`. Only sources read files.

    paths ── files_of ──> files ── find ──> Source ── read_part of each file (here, in processes, on a cluster) ── merge ──> Recording

A source is a module and a line in `SOURCES`. It is chosen by the first bytes of a file and imported only when it is needed.
"""

import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from ..errors import RooflineError, SourceError, UsageError
from ..files.input_limits import limits
from ..workload import Recording
from .files import all_of, files_of, head_of, local_file, profiles_in, traces_in
from .remote import Progress, is_remote
from .samples import is_sample
from .target import Target
from .xspace import PROFILES

if TYPE_CHECKING:
    from .cache import Cache
    from .parts import Part
    from .reading import Reading


class Source(Struct, frozen=True, kw_only=True):
    """A kind of input: its name, its title in the plural, its kind as `roofline serve` lists it, and the module that reads it.

    The module has ``sniff(head, path)``, which recognises a file by its first bytes, and ``read(path, target)``. With ``hosts``, several
    files can be the hosts of one run, and it has ``read_part`` (of one file) and ``merge`` instead of ``read``. With ``needs_machine``, the
    recording depends on the machine: a program that was not compiled is fused for it. ``recogniser`` is the module of ``sniff`` where the
    module that reads takes long to import.
    """

    name: str
    title: str
    kind: str
    module: str
    hosts: bool = False
    needs_machine: bool = False
    recogniser: str = ""

    def load(self) -> Any:
        """The module that reads it."""
        return import_module(f"{__name__}.{self.module}")

    def recognises(self, head: bytes, path: Path | str) -> bool:
        """Whether a file with these first bytes is of this kind."""
        module = import_module(f"{__name__}.{self.recogniser or self.module}")
        return bool(module.sniff(head, path))


PROFILE = Source(name="xspace", title="profiles", kind="profile", module="xspace.recording", hosts=True, recogniser="xspace.recognition")
TRACE = Source(name="torch", title="PyTorch profiler traces", kind="profile", module="torch_trace.recording", hosts=True)
PROGRAM = Source(name="program", title="HLO programs", kind="program", module="programs", needs_machine=True, recogniser="hlo_dump")
TABLE = Source(name="table", title="tables of ops", kind="table", module="table.recording")
# In order: the first that recognises a file reads it.
SOURCES = (
    PROFILE,
    TRACE,
    Source(name="report", title="roofline's reports", kind="report", module="report_json"),
    PROGRAM,
    Source(name="ncu", title="Nsight Compute CSVs", kind="counters", module="ncu.recording"),
    TABLE,
)


def find(path: Path | str) -> Source:
    """The source that reads a file or folder."""
    if is_remote(path) and str(path).endswith(PROFILES):
        return PROFILE  # its content is checked when it is copied
    if os.path.isdir(path):
        return PROFILE if profiles_in(path) else TRACE if traces_in(path) else PROGRAM
    head = head_of(path)
    if not head:
        all_of(path)  # raises an error if the file is gzipped and truncated
        raise SourceError(f"{path}: the file is empty")
    for source in SOURCES:
        if source is TABLE:
            from . import unsupported  # imported only for files that no other source reads

            unsupported.check(head, path)  # before the table, which would accept any JSON
        if source.recognises(head, path):
            return source
    raise SourceError(f"{path}: unknown format; roofline reads {', '.join(source.title for source in SOURCES)}")


class HowToRead(TypedDict, total=False):
    """The options of `read`."""

    salvage: bool
    timeline: bool
    jobs: int | None
    cluster: str | None
    cache: Path | str | bool | None
    progress: Progress | None


def read(
    paths: Path | str | Iterable[Path | str],
    target: Target | None = None,
    *,
    salvage: bool = False,
    timeline: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: Path | str | bool | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Reads a file, folder, address or ``sample:NAME``, or the profiles of a run's hosts in any order, into a recording.

    ``target`` is the machine to analyze for, or a function that finds it: of the devices of a profile, of the TPU that a program was
    compiled for, or of none for another source that needs a machine. Other processes may call it.
    ``salvage`` reads a damaged profile up to the damage. ``timeline`` reads a profile a second time to fill the timeline. ``jobs`` is
    how many processes read the files of a run (default: one, or one per CPU if it takes longer than a second); ``cluster`` is the address
    of a Dask scheduler whose workers read instead. ``cache`` is a folder for parsed profiles; ``True`` is the user's cache folder, used for
    runs of several files and remote ones. ``progress`` is called with the bytes read and the bytes in all.
    """
    files = files_of([os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)])
    source = None if len(files) == 1 and _is_copied(files[0]) else find(files[0])
    if cluster and not (source and source.hosts):
        raise UsageError(f"{files[0]}: not a profile; a cluster reads profiles only")
    if source is None:
        return _read_copy(files[0], target, progress, salvage=salvage, timeline=timeline)
    if source.hosts:
        from .reading import Reading

        how = Reading(
            module=source.module,
            target=target,
            salvage=salvage,
            shared=len(files) > 1,
            timeline=timeline,
            cache=_cache(cache, files),
            limits=limits(),
        )
        recording: Recording = source.load().merge(_read_parts(files, how, jobs, cluster, progress))
    else:
        recording = source.load().read(Path(files[0]), target if source.needs_machine or not callable(target) else None)
    return recording


def _is_copied(name: str) -> bool:
    """Whether another file is read instead: that of a sample, or the local copy of a remote file, whose kind is unknown until then."""
    return is_sample(name) or (is_remote(name) and not name.endswith(PROFILES))


def _read_copy(name: str, target: Target | None, progress: Progress | None, *, salvage: bool, timeline: bool) -> Recording:
    """Reads the file of a sample or remote address; the recording, its notes and errors give that name instead of the local path."""
    with local_file(name, progress) as file:
        try:
            recording = read(file, target, salvage=salvage, timeline=timeline, progress=progress)
        except RooflineError as error:
            error.args = (str(error).replace(str(file), name),)
            raise
    return replace(recording, files=(name,), notes=tuple(note.replace(str(file), name) for note in recording.notes))


def _cache(asked: Path | str | bool | None, files: list[str]) -> "Cache | None":
    """The cache to use. For a single local file only a folder that the user named is used."""
    if not asked or (asked is True and len(files) == 1 and not is_remote(files[0])):
        return None
    from .cache import Cache, cache_folder

    if asked is not True:
        return Cache.at(asked)
    try:
        return Cache(cache_folder())
    except UsageError:  # a user without a home folder has no cache
        return None


def _read_parts(files: list[str], how: "Reading", jobs: int | None, cluster: str | None, progress: Progress | None) -> "list[Part]":
    """Reads each file into a part: on a cluster, in this process, or in several."""
    if cluster:
        from .cluster import read_on_cluster

        return read_on_cluster(files, how, progress, address=cluster)
    from .reading import needs_this_process, read_here

    if len(files) == 1 or jobs == 1 or needs_this_process(files):
        return read_here(files, how, progress)
    from .pool import read_in_processes

    return read_in_processes(files, how, progress, jobs=jobs)
