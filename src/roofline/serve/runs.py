"""Finds runs: the inputs below some paths that roofline can open. At most the first bytes of each file are read.

A folder below ``plugins/profile`` is one run, and the profiles or PyTorch traces in it are its hosts or ranks. Elsewhere every profile
is a run of its own, and several in one folder are also listed as one run. A folder that ``--xla_dump_to`` wrote is one run. Programs,
counters, tables and reports are recognised by their content. A file that the user named is always listed; opening it reports what is wrong
with it.

Pipes, sockets and devices are skipped, and so are links that lead out of the folders, unless links are followed.
"""

import os
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2s
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from msgspec import Struct
from msgspec.structs import replace

from ..errors import RooflineError, SourceError
from ..sources import find
from ..sources.files import head_of
from ..sources.hlo_dump import program_files
from ..sources.torch_trace import TRACES
from ..sources.xspace import PROFILES

# Suffixes of files that may be inputs; their first bytes decide.
CANDIDATES = (".pb", ".hlo", ".txt", ".mlir", ".stablehlo", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages"}
MOST_ENTRIES = 200_000  # of all folders together
_DUMPED = re.compile(r"module_\d+\.")
_OP_KEYS = re.compile(rb'"(flops|flop|bytes|time|time_s|duration)"')


class Run(Struct, frozen=True, kw_only=True):
    """An input to open: an opaque id, its kind, its files, and their state when they were found.

    ``path`` is the argument for `roofline analyze`; ``name`` is shorter, for people. ``stamps`` are each file's time of modification in
    nanoseconds and its size in bytes; ``version`` changes with them.
    """

    id: str
    name: str
    path: Path
    kind: str
    files: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.stamps)

    @property
    def modified_ns(self) -> int:
        """When a file was last modified, in nanoseconds since 1970."""
        return max((when for when, _ in self.stamps), default=0)

    @property
    def version(self) -> str:
        """A digest that is the same as long as its files are unchanged."""
        return _digest(self.id, *(f"{file}:{when}:{size}" for file, (when, size) in zip(self.files, self.stamps, strict=True)))


class Listing(Struct, frozen=True, kw_only=True):
    """The runs that a search found, the newest first, and notes on the search."""

    runs: tuple[Run, ...] = ()
    notes: tuple[str, ...] = ()


class RunFinder:
    """Searches the same paths repeatedly. The kind of each file is kept until the file changes.

    With ``follow``, links that lead out of the paths are followed.
    """

    def __init__(self, roots: Sequence[Path | str], *, follow: bool = False) -> None:
        self.roots = tuple(Path(os.path.abspath(root)) for root in roots)
        self._inside = None if follow else tuple(os.path.realpath(root) for root in self.roots)
        self._kinds: dict[tuple[Path, int, int], str] = {}
        for given, root in zip(roots, self.roots, strict=True):
            state = _state(root)
            if state is None:
                raise SourceError(f"{given}: no such file or folder")
            if not S_ISDIR(state.st_mode) and not S_ISREG(state.st_mode):
                raise SourceError(f"{given}: a pipe or device; name a file or folder")

    def refreshed(self, run: Run) -> Run | None:
        """A run with the current state of its files; ``None`` if one of them is gone, is no longer a file, or is a link that leads out."""
        states = [state for file in run.files if (state := _state(file)) and S_ISREG(state.st_mode) and _is_inside(file, self._inside)]
        if len(states) < len(run.files) or not states:
            return None
        return replace(run, stamps=tuple((state.st_mtime_ns, state.st_size) for state in states))

    def find(self) -> Listing:
        """The runs as they are now."""
        folder_search = _FolderSearch(self._kinds, self._inside)
        found: dict[str, Run] = {}
        for root in self.roots:
            for run in folder_search.below(root):
                # Below several roots a name may occur twice, so the root's name is put before it, unless the root is the file itself.
                named = replace(run, name=f"{root.name}/{run.name}") if len(self.roots) > 1 and run.path != root else run
                found.setdefault(run.id, named)
        self._kinds = folder_search.seen
        runs = sorted(found.values(), key=lambda run: (-run.modified_ns, run.name))
        return Listing(runs=tuple(runs), notes=tuple(dict.fromkeys(folder_search.notes)))


class _FolderSearch:
    """One search: the folders visited so far, how many more entries it may read, and what it could not read."""

    def __init__(self, known: dict[tuple[Path, int, int], str], inside: Sequence[str] | None) -> None:
        self._known, self.seen, self._inside = known, dict[tuple[Path, int, int], str](), inside
        self._folders: set[tuple[int, int]] = set()
        self._entries, self._outside = MOST_ENTRIES, 0
        self._own_notes: list[str] = []

    @property
    def notes(self) -> list[str]:
        full = [f"stopped after {MOST_ENTRIES:,} files; name the folders of the runs directly"] if self._entries <= 0 else []
        outside = [f"{self._outside:,} links lead out of the folder; --follow lists them too"] if self._outside else []
        return [*self._own_notes, *outside, *full]

    def below(self, root: Path) -> Iterator[Run]:
        """Every run in a file or folder that the user named."""
        state = _state(root)
        if state is None:
            self._own_notes.append(f"{root}: no longer exists")
        elif S_ISREG(state.st_mode):
            yield _run(root, root.name, self._kind(root, state) or "file", [(root, state)])
        elif S_ISDIR(state.st_mode):
            folders = [root]
            while folders and self._entries > 0:
                folder = folders.pop()
                inner, files = self._open(folder)
                folders += reversed(inner)
                yield from self._of_folder(root, folder, files)

    def _open(self, folder: Path) -> tuple[list[Path], list[tuple[Path, os.stat_result]]]:
        """The folders and files in a folder; none if it was visited before, as with a link to a folder above it."""
        state = _state(folder)
        if state is None or (state.st_dev, state.st_ino) in self._folders:
            return [], []
        self._folders.add((state.st_dev, state.st_ino))
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            self._own_notes.append(f"{folder}: cannot read: {error.strerror}")
            return [], []
        self._entries -= len(names)
        inner: list[Path] = []
        files: list[tuple[Path, os.stat_result]] = []
        for name in names:
            if name.startswith(".") or name in SKIPPED_FOLDERS:
                continue
            entry = folder / name
            if entry.is_symlink() and not _is_inside(entry, self._inside):
                self._outside += 1
                continue
            found = _state(entry)
            if found is not None and S_ISDIR(found.st_mode):
                inner.append(entry)
            elif found is not None and S_ISREG(found.st_mode):
                files.append((entry, found))
        return inner, files

    def _of_folder(self, root: Path, folder: Path, files: list[tuple[Path, os.stat_result]]) -> Iterator[Run]:
        name = str(folder.relative_to(root)) if folder != root else ""
        profiles = [(file, state) for file, state in files if file.name.endswith(PROFILES)]
        traces = [(file, state) for file, state in files if file.name.endswith(TRACES)]
        if folder.parent.parts[-2:] == ("plugins", "profile"):
            # Other files in such a folder are views of the same run that the profiler wrote for other tools.
            if profiles or traces:
                yield _run(folder, _short_name(root, folder), "profile", profiles or traces)
            return
        if len(profiles) > 1:
            yield _run(folder, f"{name or folder.name} (all {len(profiles)} as hosts of one run)", "profile", profiles)
        if len(traces) > 1:
            yield _run(folder, f"{name or folder.name} (all {len(traces)} as ranks of one run)", "profile", traces)
        for file, state in (*profiles, *traces):
            yield _run(file, str(file.relative_to(root)), "profile", [(file, state)])
        if any(_DUMPED.match(file.name) for file, _ in files):
            try:
                programs = set(program_files(folder))
            except SourceError as error:
                self._own_notes.append(str(error))
                return
            if not programs <= {file for file, _ in files}:
                return  # the folder is read as a whole, but some of its files lead out of the search
            yield _run(folder, name or folder.name, "program", [(file, state) for file, state in files if file in programs])
            return
        for file, state in files:
            if not file.name.endswith((*PROFILES, *TRACES)) and (kind := self._kind_of_candidate(file, state)):
                yield _run(file, str(file.relative_to(root)), kind, [(file, state)])

    def _kind_of_candidate(self, file: Path, state: os.stat_result) -> str:
        return self._kind(file, state) if file.name.lower().removesuffix(".gz").endswith(CANDIDATES) else ""

    def _kind(self, file: Path, state: os.stat_result) -> str:
        """The kind of a file; empty if it is not an input."""
        key = (file, state.st_mtime_ns, state.st_size)
        self.seen[key] = self._known[key] if key in self._known else _kind_by_content(file)
        return self.seen[key]


def _kind_by_content(file: Path) -> str:
    try:
        source = find(file)
        # Any JSON passes for a table, so a JSON file that the user did not name must look like rows of ops.
        if source.name == "table" and (head := head_of(file)).lstrip()[:1] in (b"[", b"{") and not _looks_like_ops(head):
            return ""
    except (RooflineError, OSError, ValueError):  # opening the file reports what is wrong with it
        return ""
    return source.kind


def _looks_like_ops(head: bytes) -> bool:
    return b'"name"' in head and _OP_KEYS.search(head) is not None


def _run(path: Path, name: str, kind: str, files: Sequence[tuple[Path, os.stat_result]]) -> Run:
    return Run(
        id=_digest(str(path)),
        name=name,
        path=path,
        kind=kind,
        files=tuple(file for file, _ in files),
        stamps=tuple((state.st_mtime_ns, state.st_size) for _, state in files),
    )


def _short_name(root: Path, folder: Path) -> str:
    """The name of a run in a TensorBoard log folder: ``big/plugins/profile/monday`` becomes ``big/monday``."""
    try:
        above = folder.parent.parent.parent.relative_to(root)
    except ValueError:
        return folder.name
    return str(above / folder.name)


def _state(path: Path) -> os.stat_result | None:
    """The state of a file; ``None`` if it does not exist, cannot be reached, or is a link to itself."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _is_inside(path: Path, folders: Sequence[str] | None) -> bool:
    """Whether a path, with its links resolved, is one of these folders or below one; always true if ``folders`` is ``None``."""
    if folders is None:
        return True
    real = os.path.realpath(path)
    return any(real == folder or real.startswith(os.path.join(folder, "")) for folder in folders)


def _digest(*words: str) -> str:
    # File names may contain bytes that are not UTF-8, or on Windows lone surrogates.
    return blake2s("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
