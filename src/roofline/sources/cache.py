"""A folder of partial results: parts of profiles under the content of the file, the options, and the code that read it.

Entries lie in a folder of their own inside the one that was named; nothing else there is ever removed.

A key is the SHA-256 of all of that, the path included (errors and reports name it), so a file with one byte changed, another option or an
edited source file has another key: what is kept is never wrong, only not asked for any more. The least recently used goes when the
folder is full. Entries are data with a checksum: one that is damaged is not there. They appear whole or not at all, so any number of
processes may share a folder.
"""

import os
import re
import stat
import time
import zlib
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from ..errors import OutputError, UsageError
from ..files.output_files import remove_unfinished, write_file
from ..files.user_folders import user_folder
from ..units import parse
from .packing import pack, unpack
from .parts import Part

FOLDER_VARIABLE = "ROOFLINE_CACHE"
MAGIC = b"roofline.part/1\n"
INNER = "roofline-profiles"  # the folder inside the cache folder that has only the entries
SUFFIX = ".roofline-part"
_OWN_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")
MOST_BYTES = int(parse("256 MiB", "B"))
# Fetching and hashing takes 1.6 ns per byte, looking up 0.01 s; reading 1.6 (TPU) to 3 ns (GPU), and 0.1 to 1 s for the programs of a file.
# So caching pays for files that are mostly programs. (Measured on captures of both, with SHA-256 in hardware.)
LARGEST_BYTES = int(parse("16 MB", "B"))
COMPILED = (".so", ".pyd")
LOADED_S = time.time()  # about when this process read the source files
_CHECKSUM_BYTES = sha256().digest_size
_NO_READERS = ("cli", "render", "serve", "capture", "integrations")  # packages that do not affect how a file is read


def cache_folder() -> Path:
    """The default cache folder: ``$ROOFLINE_CACHE``, or the system's folder for caches."""
    return user_folder(FOLDER_VARIABLE, "cache")


@lru_cache(maxsize=2)
def fingerprint(*, compiled: bool = True) -> str:
    """The version of this package and of every source file that has a say in what is read.

    Without ``compiled`` it is the same on machines of different kinds and clocks that have the same package. With it, and a file that was
    edited since this process began, which is not the one that runs, it is one of a kind.
    """
    from importlib.metadata import version

    package = Path(__file__).parent.parent
    digest = sha256(f"{version('roofline')}\n".encode())
    for path in sorted(package.rglob("*")):
        inner = path.relative_to(package)
        if inner.parts[0] not in _NO_READERS and (path.suffix == ".py" or (compiled and path.suffix in COMPILED)):
            content = path.read_bytes()
            edited = compiled and path.stat().st_mtime > LOADED_S
            digest.update(f"{inner.as_posix()} {len(content)} {(os.getpid(), LOADED_S) if edited else ''}\n".encode())
            digest.update(content)
    return digest.hexdigest()


class CacheListing(Struct, frozen=True, kw_only=True):
    """A cache as JSON: where it is, how many entries it has, and how many bytes of how many it may have."""

    schema: str = "roofline.cache/1"
    folder: str
    entries: int
    bytes: int
    most_bytes: int


class Cache(Struct, frozen=True):
    """A folder of parts. ``most_bytes`` is what it may hold; a file system that refuses is a cache that is empty.

    ``largest_bytes`` is the largest plain file it is asked about; gzipped ones always pay.
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
            raise UsageError(f"{folder}: cannot write the cache: {error.strerror}; use another folder, or --no-cache") from None
        return made

    def get(self, key: str) -> Part | None:
        """What is kept under a key; ``None`` when nothing is, or it is damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)  # used just now
        except OSError:
            return None
        head = len(MAGIC) + _CHECKSUM_BYTES
        if not data.startswith(MAGIC) or data[len(MAGIC) : head] != _checksum(key, data[head:]):
            return None
        try:
            return unpack(zlib.decompress(data[head:]))
        except (ValueError, zlib.error):
            return None

    def put(self, key: str, part: Part) -> None:
        """Keep a part. The entry appears whole, in place of one that was there."""
        body = zlib.compress(pack(part), 1)
        with suppress(OSError, OutputError):
            self._make()
            write_file(self._path(key), MAGIC + _checksum(key, body) + body, sync=False)  # its checksum shows what a power failure cut
            self._shrink()

    def entries(self) -> list[tuple[Path, int, float]]:
        """Every entry with its bytes and the time it was last used, in seconds since 1970; the least recent first."""
        return sorted(self._files(), key=lambda entry: entry[2])

    def listing(self) -> CacheListing:
        """What the cache holds."""
        sizes = [size for _, size, _ in self.entries()]
        return CacheListing(folder=str(self.folder), entries=len(sizes), bytes=sum(sizes), most_bytes=self.most_bytes)

    def clear(self) -> int:
        """Forget everything; how many entries that were."""
        remove_unfinished(self.inner)
        return sum(_remove(path) for path, _, _ in self._files())

    @property
    def inner(self) -> Path:
        """The folder of the entries: the cache's own, whatever else is in the one that the user named."""
        return self.folder / INNER

    def _path(self, key: str) -> Path:
        return self.inner / f"{key}{SUFFIX}"

    def _make(self) -> None:
        self.inner.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _files(self) -> list[tuple[Path, int, float]]:
        """The cache's own files: by their names and by how they begin."""
        found = []
        try:
            paths = [path for path in self.inner.iterdir() if _OWN_NAME.fullmatch(path.name)]
        except OSError:
            return []
        for path in paths:
            try:
                state = path.lstat()
                own = stat.S_ISREG(state.st_mode) and _is_own(path)
            except OSError:  # another process was faster
                continue
            if own:
                found.append((path, state.st_size, state.st_mtime))
        return found

    def _shrink(self) -> None:
        entries = self.entries()
        excess = sum(size for _, size, _ in entries) - self.most_bytes
        for path, size, _ in entries:
            if excess <= 0:
                break
            _remove(path)
            excess -= size
        remove_unfinished(self.inner)


def key_of(content: object, *options: object) -> str:
    """The key of a file's bytes, read with these options by this code. Options differ if their representations do."""
    digest = sha256("\0".join([fingerprint(), *map(repr, options)]).encode("utf-8", "surrogateescape"))
    digest.update(sha256(content).digest())  # type: ignore[arg-type]  # anything with a buffer
    return digest.hexdigest()


def _checksum(key: str, body: bytes) -> bytes:
    """Of an entry's bytes and of the key they are kept under, so that a renamed entry is a damaged one."""
    return sha256(key.encode() + body).digest()


def _is_own(path: Path) -> bool:
    """Whether a file begins as entries do."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
