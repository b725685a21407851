"""Writing files: whole or not at all.

The bytes go to a file beside the target, which takes its place when they are complete and on the disk: a full disk, an interrupt or a
kill leaves the old file as it was. Where the system can, the new file has no name until it is complete. Then only a kill between naming
it and replacing an older file leaves a file over (``.NAME.NUMBER.roofline-unfinished``), which the next write of that target removes.
"""

import errno
import os
import re
import stat
from pathlib import Path

from ..errors import OutputError
from .abandoned_files import HAS_LOCKS, mark_in_use, remove_abandoned

_PIECE = 2**24  # bytes of one write call
_LONGEST = 200  # bytes of the target's name in that of its draft
UNFINISHED = ".roofline-unfinished"
_UNSUPPORTED = (errno.EISDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # what systems say that have no files without a name
_NO_LINKS = (*_UNSUPPORTED, errno.ENOENT, errno.EPERM, errno.EXDEV)


def write_file(path: str | Path, data: bytes, *, sync: bool = True) -> None:
    """Bytes as a file that replaces what was there. A pipe or a device is written to as it is.

    Without ``sync`` a power failure may leave a part of them.
    """
    try:
        target = os.path.realpath(path)  # of a link, the file it leads to is replaced
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(None, "is a folder")
            _write(os.open(target, os.O_WRONLY), data)
        else:
            _replace(target, data, mode, sync)
    except (OSError, ValueError) as error:  # the latter for names that no file can have
        raise OutputError(f"{path}: cannot write: {getattr(error, 'strerror', None) or error}") from None


def remove_unfinished(folder: str | Path, name: str = "") -> None:
    """Remove what killed writers left in a folder, of one target or of all."""
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
    """A new file in place of a plain one, with its permissions."""
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
    """By a file that gets its name when it is complete; false where the system has no such files."""
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
            except FileExistsError:  # by now
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
    # The folder's number makes Python follow the link to the file; the path is absolute, so it is not looked at otherwise.
    os.link(f"/proc/self/fd/{file}", name, src_dir_fd=file, follow_symlinks=True)


def _replace_by_named(target: str, draft: str, data: bytes, mode: int | None, sync: bool) -> None:
    """By a file that has a name from the start."""
    file = _open_held(draft)
    try:
        _fill(file, data, mode, sync)
        if HAS_LOCKS:
            os.replace(draft, target)
    finally:
        os.close(file)
    if not HAS_LOCKS:  # Windows renames no open file
        os.replace(draft, target)


def _open_held(draft: str) -> int:
    """A new file that is held; again where another writer took it for abandoned before it was."""
    while True:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        mark_in_use(file)
        if os.fstat(file).st_nlink:
            return file
        os.close(file)


def _fill(file: int, data: bytes, mode: int | None, sync: bool) -> None:
    """Writes all bytes of a new file to the disk."""
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
