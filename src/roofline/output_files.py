"""Writing files: whole or not at all.

The bytes go to a file beside the target, which takes its place when they are complete and on the disk: a full disk, an interrupt or a
kill leaves the old file as it was. Where the system can, the new file has no name until then, so that nothing is left over either.
"""

import errno
import os
import stat
from pathlib import Path

from .errors import OutputError

_PIECE = 2**24  # bytes of one write call
_LONGEST = 200  # characters of the target's name in that of its draft
_UNSUPPORTED = (errno.EISDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # what systems say that have no files without a name


def write_file(path: str | Path, data: bytes) -> None:
    """Bytes as a file that replaces what was there. A pipe or a device is written to as it is."""
    try:
        target = os.path.realpath(path)  # of a link, the file it leads to is replaced
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(None, "is a folder")
            _write(os.open(target, os.O_WRONLY), data)
        else:
            _replace(target, data, mode)
    except (OSError, ValueError) as error:  # the latter for names that no file can have
        raise OutputError(f"{path}: cannot write: {getattr(error, 'strerror', None) or error}") from None


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _replace(target: str, data: bytes, mode: int | None) -> None:
    """A new file in place of a plain one, with its permissions."""
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(None, "Permission denied")
    draft = os.path.join(os.path.dirname(target), f".{os.path.basename(target)[:_LONGEST]}.{os.getpid()}.unfinished")
    try:
        _remove(draft)  # of a process with the same number that was killed
        if not _link_unnamed(draft, data, mode):
            _fill(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), data, mode)
        os.replace(draft, target)
    except BaseException:
        _remove(draft)
        raise


def _link_unnamed(draft: str, data: bytes, mode: int | None) -> bool:
    """The bytes as a file that gets its name when it is complete; false where the system has no such files."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        file = os.open(os.path.dirname(draft), os.O_WRONLY | os.O_TMPFILE, 0o666)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    linked = os.dup(file)
    try:
        _fill(file, data, mode)
        # The folder's number makes Python follow the link to the file; the path is absolute, so it is not looked at otherwise.
        os.link(f"/proc/self/fd/{linked}", draft, src_dir_fd=linked, follow_symlinks=True)
    except OSError as error:
        if error.errno in (*_UNSUPPORTED, errno.ENOENT, errno.EPERM, errno.EXDEV):
            return False
        raise
    finally:
        os.close(linked)
    return True


def _fill(file: int, data: bytes, mode: int | None) -> None:
    """Writes all bytes of a new file to the disk and closes it."""
    try:
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(file, stat.S_IMODE(mode))
        _write_all(file, data)
        os.fsync(file)
    finally:
        os.close(file)


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
