"""The profile cache: a folder of parsed parts, each stored under a key of the file's content, the options, and the code that read it.

Entries are in a folder of their own inside the cache folder; no other file there is ever removed.

A key is the SHA-256 of all of that and of the file's path, which reports and errors name. A file with one byte changed, another option or
an edited source file has another key, so an entry is never out of date. When the folder is full, the least recently used entries are
removed. A damaged entry is ignored, and an entry is only data: no bytes in it can run code. Entries are written atomically, so several
processes may share a folder.
"""

import io
import os
import pickle
import re
import zlib
from contextlib import suppress
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from .. import cost, dtypes, operation, resource, workload
from ..errors import OutputError, UsageError
from ..files.output_files import write_file
from ..files.user_folders import user_folder
from ..graph import backend, graph, operators
from ..units import parse
from . import parts
from .parts import Part

FOLDER_VARIABLE = "ROOFLINE_CACHE"
INNER = "roofline-profiles"  # the folder inside the cache folder that has only the entries
SUFFIX = ".roofline-part"
_OWN_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")
MOST_BYTES = int(parse("256 MiB", "B"))
# The largest plain file that is cached by default. Reading the bytes and hashing them takes 1.6 ns per byte, a lookup 0.01 s; parsing takes
# 1.6 (TPU) to 3 ns (GPU) per byte, and 0.1 to 1 s for the programs of a file. So caching pays for files that are mostly programs. (Measured
# on captures of both, with SHA-256 in hardware.)
LARGEST_BYTES = int(parse("16 MB", "B"))
_NO_READERS = ("cli", "render", "serve", "capture", "integrations")  # packages that do not affect how a file is read


def cache_folder() -> Path:
    """The default cache folder: ``$ROOFLINE_CACHE``, or the system's folder for caches."""
    return user_folder(FOLDER_VARIABLE, "cache")


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """A digest of the package's version and of every source file that affects what is read; the same on all machines that have the same."""
    from importlib.metadata import version

    package = Path(__file__).parent.parent
    digest = sha256(f"{version('roofline')}\n".encode())
    for path in sorted(package.rglob("*.py")):
        inner = path.relative_to(package)
        if inner.parts[0] not in _NO_READERS:
            content = path.read_bytes()
            digest.update(f"{inner.as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


class CacheListing(Struct, frozen=True, kw_only=True):
    """The state of the cache as JSON: its folder, its number of entries, their bytes, and the limit on these.

    ``programs`` are those that were compiled for slices of TPUs, which have a folder and a limit of their own.
    """

    schema: str = "roofline.cache/1"
    folder: str
    entries: int
    bytes: int
    most_bytes: int
    programs: int = 0
    programs_bytes: int = 0


class Cache(Struct, frozen=True):
    """A cache folder of at most ``most_bytes``. If the file system refuses access, the cache behaves as if it were empty.

    ``largest_bytes`` is the size of the largest plain file that is cached, ``None`` for any; gzipped files are always cached.
    """

    folder: Path
    most_bytes: int = MOST_BYTES
    largest_bytes: int | None = LARGEST_BYTES

    @classmethod
    def at(cls, folder: Path | str) -> "Cache":
        """The cache in a given folder, which must be writable; files of any size are cached."""
        made = cls(Path(folder), largest_bytes=None)
        try:
            made._make()
            if not os.access(made.inner, os.W_OK | os.X_OK):
                raise PermissionError(None, "the folder is not writable")
        except OSError as error:
            raise UsageError(f"{folder}: cannot write the cache: {error.strerror}; use another folder, or --read cache=no") from None
        return made

    def get(self, key: str) -> Part | None:
        """The part stored under a key; ``None`` if there is none, or it is damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)  # marks it as just used
            return unpack(zlib.decompress(data))
        except (OSError, ValueError, zlib.error):
            return None

    def put(self, key: str, part: Part) -> None:
        """Stores a part, atomically, in place of an older entry."""
        with suppress(OSError, OutputError):
            self._make()
            write_file(self._path(key), zlib.compress(pack(part), 1))
            self._shrink()

    def entries(self) -> list[tuple[Path, int, float]]:
        """Every entry with its bytes and the time of its last use, in seconds since 1970; the least recently used first."""
        return sorted(self._files(), key=lambda entry: entry[2])

    def listing(self) -> CacheListing:
        """The number of entries and their size."""
        sizes = [size for _, size, _ in self.entries()]
        return CacheListing(folder=str(self.folder), entries=len(sizes), bytes=sum(sizes), most_bytes=self.most_bytes)

    def clear(self) -> int:
        """Removes all entries and returns how many there were."""
        return sum(_remove(path) for path, _, _ in self._files())

    @property
    def inner(self) -> Path:
        """The folder of the entries. The cache folder itself may contain other files of the user."""
        return self.folder / INNER

    def _path(self, key: str) -> Path:
        return self.inner / f"{key}{SUFFIX}"

    def _make(self) -> None:
        self.inner.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _files(self) -> list[tuple[Path, int, float]]:
        """The entries: files that have an entry's name."""
        found = []
        with suppress(OSError):
            for path in self.inner.iterdir():
                with suppress(OSError):  # another process removed it
                    if _OWN_NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                        found.append((path, path.stat().st_size, path.stat().st_mtime))
        return found

    def _shrink(self) -> None:
        entries = self.entries()
        excess = sum(size for _, size, _ in entries) - self.most_bytes
        for path, size, _ in entries:
            if excess <= 0:
                break
            _remove(path)
            excess -= size


def key_of(content: object, *options: object) -> str:
    """The key for a file's content, the options (by their ``repr``) and this version of the code."""
    digest = sha256("\0".join([fingerprint(), *map(repr, options)]).encode("utf-8", "surrogateescape"))
    digest.update(sha256(content).digest())  # type: ignore[arg-type]  # anything with a buffer
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _types() -> dict[tuple[str, str], Any]:
    """What a pickled part is made of, by module and name."""
    rebuild = workload.Hardware().__reduce__()[0]  # with which msgspec unpickles values whose fields are named
    types: set[Any] = {rebuild, Fraction, range, set, frozenset, resource.Resource, workload.Facts}
    for module in (backend, cost, dtypes, graph, operation, operators, parts, workload):
        types |= {value for value in vars(module).values() if isinstance(value, type) and issubclass(value, (Struct, Enum))}
    return {(value.__module__, value.__qualname__): value for value in types}


class _Values(pickle.Unpickler):
    """Reads a pickle of values that a part is made of; anything else in it is an error."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _types()[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a profile") from None


def pack(part: Part) -> bytes:
    """A part as a pickle."""
    return pickle.dumps(part, pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Part:
    """The part in a pickle; a `ValueError` if it is anything else."""
    try:
        part = _Values(io.BytesIO(data)).load()
    except Exception as error:  # damaged bytes can raise any
        raise ValueError(f"not a part of a profile: {error!r}") from None
    if not isinstance(part, Part):
        raise ValueError(f"not a part of a profile: a {type(part).__name__}")
    return part


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
