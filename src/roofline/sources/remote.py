"""Remote inputs: any address that fsspec can open (``gs://``, ``s3://``, ``https://``, ``memory://``, …).

A file is copied to a temporary file before it is read, so it is downloaded only once and cannot change while it is read. Reports and errors
name the address.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra, RooflineError, SourceError
from .xspace import PROFILES

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SCHEME = "://"  # a path that contains this is an address for fsspec
Progress = Callable[[int, int], None]  # called with the bytes done and the bytes in all
_NO_FOLDERS = ("http://", "https://")  # to tell whether such an address is a folder, fsspec would download it
_OWN_MEMORY = "memory"  # the protocol for files in the memory of this process


def is_remote(path: Path | str) -> bool:
    """Whether a path is an address: it has a scheme."""
    return SCHEME in str(path)


def is_private(url: str) -> bool:
    """Whether only this process can open the address."""
    return is_remote(url) and url.split(SCHEME)[0].split("::")[-1] == _OWN_MEMORY


def is_folder(url: str) -> bool:
    """Whether an address names a folder. If nothing exists there, that is an error, unless checking would need a download."""
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
    """A temporary copy with the same file name. ``progress`` is called with the bytes copied and the bytes in all."""
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
    """The fsspec callback that reports to ``progress``."""
    from fsspec.callbacks import Callback

    class FileProgress(Callback):  # type: ignore[misc]
        def call(self, *_: object, **__: object) -> None:
            if progress and self.size:
                progress(self.value, self.size)

    return FileProgress()


@contextmanager
def _errors_of(url: str) -> Iterator[None]:
    """Turns any exception of a file system into a one-line error; each file system has exceptions of its own."""
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
