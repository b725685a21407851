"""Inputs that other machines keep: any address that fsspec can open (``gs://``, ``s3://``, ``https://``, ``memory://``, …).

A file is copied to a temporary one before it is read: one download, memory for only what is being read, and no half of an old file
beside half of a new one. Names in reports and errors are the addresses.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra, RooflineError, SourceError
from .xspace import PROFILES

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SCHEME = "://"  # in a path, it makes an address that fsspec opens
Progress = Callable[[int, int], None]  # how much is done, and how much there is
_NO_FOLDERS = ("http://", "https://")  # asked whether it is one, fsspec downloads the file to look for links
_OWN_MEMORY = "memory"  # the protocol of files that no other process sees


def is_remote(path: Path | str) -> bool:
    """Whether a path is an address: it has a scheme."""
    return SCHEME in str(path)


def is_private(url: str) -> bool:
    """Whether only this process can open the address."""
    return is_remote(url) and url.split(SCHEME)[0].split("::")[-1] == _OWN_MEMORY


def is_folder(url: str) -> bool:
    """Whether an address names a folder; one that names nothing at all is an error, where it costs nothing to find out."""
    with _errors_of(url):
        if url.endswith(PROFILES) or url.startswith(_NO_FOLDERS):
            return False
        system, path = _opened(url)
        if system.isdir(path):
            return True
        if not system.exists(path):
            raise FileNotFoundError
        return False


def remote_profiles(url: str) -> list[str]:
    """The addresses of the profiles below a folder, in order of name."""
    with _errors_of(url):
        system, path = _opened(url)
        found = sorted(name for name in system.find(path) if name.endswith(PROFILES))
    root = str(path).rstrip("/")
    return [url.rstrip("/") + name.removeprefix(root) for name in found]


@contextmanager
def local_copy(url: str, progress: Progress | None = None) -> Iterator[Path]:
    """A temporary copy with the same last name, for as long as it is needed. ``progress`` is told bytes copied and bytes to copy."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="roofline-") as folder:
        name = PurePosixPath(url.split("?")[0]).name or "input"
        if is_folder(url):
            raise SourceError(f"{url}: is a folder; name a file in it")
        with _errors_of(url):
            system, path = _opened(url)
            system.get_file(path, f"{folder}/{name}", callback=_callback(progress))
        yield Path(folder, name)


def _opened(url: str) -> "tuple[AbstractFileSystem, str]":
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtra("fsspec", "remote") from None
    system, path = url_to_fs(url)
    return system, path


def _callback(progress: Progress | None) -> Any:
    """Progress in the form that fsspec tells it."""
    from fsspec.callbacks import Callback

    class FileProgress(Callback):  # type: ignore[misc]
        def call(self, *_: object, **__: object) -> None:
            if progress and self.size:
                progress(self.value, self.size)

    return FileProgress()


@contextmanager
def _errors_of(url: str) -> Iterator[None]:
    """Turns any exception of a file system into a one-line error; each has its own classes, above all for credentials."""
    try:
        yield
    except RooflineError:
        raise
    except FileNotFoundError:
        raise SourceError(f"{url}: no such file or folder") from None
    except ImportError as error:
        raise SourceError(f"{url}: {_line(error)}; {url.split(SCHEME)[0]}:// needs that package in addition to roofline[remote]") from None
    except Exception as error:
        what = f"{type(error).__name__}: {_line(error)}"
        raise SourceError(f"{url}: cannot read: {what}; check the URL and your credentials") from None


def _line(error: Exception) -> str:
    """An exception's first line, without a full stop."""
    return next(iter(str(error).strip().splitlines()), "no reason given").rstrip(". ")
