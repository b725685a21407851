"""Writing files atomically.

The bytes are written to a file next to the target, which replaces it when all are on disk: a full disk, an interrupt or a kill leaves the
old file unchanged. Where the system supports it, the new file has no name until it is complete. Then only a kill between naming it and
replacing the old file leaves a temporary file (``.NAME.NUMBER.roofline-unfinished``), which the next write of that target removes.
"""

import errno
import os
import re
import stat
from pathlib import Path

from ..errors import OutputError
from .abandoned_files import HAS_LOCKS, mark_in_use, remove_abandoned

_PIECE = 2**24  # bytes of one write call
_LONGEST = 200  # bytes of the target's name in the name of its temporary file
UNFINISHED = ".roofline-unfinished"
_UNSUPPORTED = (errno.EISDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # errors of systems without unnamed files (O_TMPFILE)
_NO_LINKS = (*_UNSUPPORTED, errno.ENOENT, errno.EPERM, errno.EXDEV)


def write_file(path: str | Path, data: bytes, *, sync: bool = True) -> None:
    """Write bytes to a file, replacing it.

    A pipe or a device is written to directly. Without ``sync``, a power failure may leave a partial file.
    """
    try:
        target = os.path.realpath(path)  # the target of a symbolic link is replaced, not the link
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(None, "is a folder")
            _write(os.open(target, os.O_WRONLY), data)
        else:
            _replace(target, data, mode, sync)
    except (OSError, ValueError) as error:  # ValueError for invalid file names
        raise OutputError(f"{path}: cannot write: {getattr(error, 'strerror', None) or error}") from None


def remove_unfinished(folder: str | Path, name: str = "") -> None:
    """Remove the temporary files that killed writers left in a folder, for one target or for all."""
    own = re.escape(_start(name)) if name else r"\..*\."
    remove_abandoned(folder, re.compile(rf"{own}\d+{re.escape(UNFINISHED)}", re.DOTALL))


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _start(name: str) -> str:
    return f".{os.fsdecode(os.fsencode(name)[:_LONGEST])}."


def _replace(target: str, data: bytes, mode: int | None, sync: bool) -> None:
    """Replace a plain file, keeping its permissions."""
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(None, "Permission denied")
    folder, name = os.path.split(target)
    remove_unfinished(folder, name)
    draft = os.path.join(folder, f"{_start(name)}{int.from_bytes(os.urandom(6))}{UNFINISHED}")
    try:
        if not _replace_by_unnamed(target, draft, data, mode, sync):
            _replace_by_named(target, draft, data, mode, sync)
    except BaseException:
        _remove(draft)
        raise


def _replace_by_unnamed(target: str, draft: str, data: bytes, mode: int | None, sync: bool) -> bool:
    """Replace it by a file that gets its name when it is complete. Returns false where the system has no such files."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        file = os.open(os.path.dirname(target), os.O_WRONLY | os.O_TMPFILE, 0o666)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    try:
        mark_in_use(file)
        _fill(file, data, mode, sync)
        if mode is None:
            try:
                _link(file, target)
                return True
            except FileExistsError:  # created meanwhile
                pass
        _link(file, draft)
        os.replace(draft, target)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    finally:
        os.close(file)
    return True


def _link(file: int, name: str) -> None:
    # With a folder descriptor Python follows the link to the file; the path is absolute, so the descriptor has no other effect.
    os.link(f"/proc/self/fd/{file}", name, src_dir_fd=file, follow_symlinks=True)


def _replace_by_named(target: str, draft: str, data: bytes, mode: int | None, sync: bool) -> None:
    """Replace it by a file that has a name from the start."""
    file = _open_held(draft)
    try:
        _fill(file, data, mode, sync)
        if HAS_LOCKS:
            os.replace(draft, target)
    finally:
        os.close(file)
    if not HAS_LOCKS:  # Windows cannot rename an open file
        os.replace(draft, target)


def _open_held(draft: str) -> int:
    """A new, locked file; retries if another writer removed it as abandoned before it was locked."""
    while True:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        mark_in_use(file)
        if os.fstat(file).st_nlink:
            return file
        os.close(file)


def _fill(file: int, data: bytes, mode: int | None, sync: bool) -> None:
    """Write all bytes of a new file to disk."""
    if mode is not None and hasattr(os, "fchmod"):
        os.fchmod(file, stat.S_IMODE(mode))
    _write_all(file, data)
    if sync:
        os.fsync(file)


def _write(file: int, data: bytes) -> None:
    try:
        _write_all(file, data)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest[:_PIECE]) :]


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
