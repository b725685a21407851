"""A function compiled for a slice by the TPU compiler, in a process of its own.

The compiler reads its settings when it is loaded, and may need gigabytes, minutes, or crash: so the process has an environment, limits and
logs of its own. Compiled programs are cached under a key of the program, the slice, the options and the versions of compiler and JAX.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from ...errors import OutputError, RooflineError, SourceError, UsageError
from ...files.user_folders import user_folder
from ...hlo.memory.peak import peak_memory
from ...hlo.read import parse
from ...peak_memory import PeakMemory
from ...units import parse as parse_quantity
from ...units import show
from .slices import Slice

CHILD = Path(__file__).with_name("child.py")
MOST_WAITED = 4  # times the time limit, whoever else uses the cores
PYTHON_VARIABLE = "ROOFLINE_TPU_PYTHON"  # the Python of another environment, which has jax[tpu]
# libtpu reads these when it is loaded. Without them it asks the metadata server of a TPU host that is not there, refuses a second process
# by a lock file, writes logs to a temporary folder, and warns on stderr that it knows no accelerator type and no worker.
VARIABLES = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",  # of this host; programs are compiled for any topology all the same
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}
BUNDLES = "bundles"  # the folder with the bundles of each instruction, for a job that asks for them
DUMP_BUNDLES = "--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final_bundles"
DEVICES_FLAG = "--xla_force_host_platform_device_count"
POLL_S = 0.2
INNER = "roofline-programs"  # the folder inside the cache folder
MOST_BYTES = int(parse_quantity("1 GiB", "B"))  # of cached programs
# What is kept of a dump: the program after code generation, which has cycles, and the one before, which has the buffer assignment.
KEPT = ("after_codegen", "after_optimizations")
ASSIGNED = "*.after_optimizations.hlo.pb"
_running = set["subprocess.Popen[bytes]"]()  # the processes that compile now, in any thread


class Replicated(Struct, frozen=True):
    """Arguments that every device has whole although an axis of the mesh divides them: their number, bytes, the largest, and that axis."""

    arrays: int = 0
    bytes: int = 0
    largest: str = ""
    axis: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """What to compile for ``slice``: the ``function`` of this name, or a ``portable`` one, pickled.

    ``args`` are formats and sizes of arguments, in JAX's names; without them the function is called, and returns the function to compile
    with its arguments. ``mesh`` are the axes of the mesh with their sizes, ``batch_args`` and ``shard`` say how arguments without
    shardings are divided (`lowering.placed`), ``options`` are the compiler's. ``assumed`` is what was assumed about a portable one,
    ``replicated`` what every device has of it whole. ``changes`` are made to the function first (`changes`). ``python`` is one that has
    the compiler, where the user's environment names none. ``bundles`` is whether to write those that the compiler schedules.
    """

    slice: Slice
    function: str = ""
    portable: bytes = b""
    args: tuple[tuple[str, tuple[int, ...]], ...] = ()
    mesh: Mapping[str, int] | None = None
    batch_args: tuple[int, ...] = ()
    shard: str = ""
    options: Mapping[str, str] = {}
    assumed: tuple[str, ...] = ()
    replicated: Replicated | None = None
    changes: tuple[str, ...] = ()
    python: str = ""
    bundles: bool = False

    def __post_init__(self) -> None:
        sizes = list((self.mesh or {}).values())
        devices = 1
        for size in sizes:
            devices *= size
        if sizes and devices != self.slice.devices:
            axes = ",".join(f"{name}={size}" for name, size in (self.mesh or {}).items())
            raise UsageError(f"the mesh {axes} has {devices:,} devices, and {self.slice.title} has {self.slice.devices:,}")


class Bounds(Struct, frozen=True):
    """How long a compilation may take, and how much memory; ``None`` is nine tenths of what this computer has free.

    Where others use the cores too, the seconds are those that the compiler ran, up to four times as long.
    """

    seconds: float = 1800.0
    bytes: float | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What the process answered: what was compiled and how, or why it was not.

    ``plain_key`` is the key of the same program without compiler options, where it has any. ``refused`` is what the compiler says of a
    program that does not fit, ``failed`` any other error, ``misfit`` what is wrong with the function, its arguments or the mesh,
    ``without_effect`` why a change cannot be made.
    """

    versions: dict[str, str] = {}
    devices: int = 1
    device_kind: str = ""
    mesh: dict[str, int] = {}
    assumed: tuple[str, ...] = ()
    replicated: Replicated | None = None
    key: str = ""
    plain_key: str = ""
    cached: bool = False
    lowering_s: float = 0.0
    compile_s: float | None = None
    memory: dict[str, int] = {}
    refused: str = ""
    failed: str = ""
    misfit: str = ""
    without_effect: str = ""


class Compilation(Struct, frozen=True):
    """A compiled program: the folder of its files, which `sources.programs` reads, and what is known of it."""

    folder: Path
    answer: Answer
    seconds: float


def why_not_here() -> str:
    """Why the TPU compiler cannot run on this computer; empty if it can."""
    if PYTHON_VARIABLE in os.environ or (sys.platform, platform.machine()) == ("linux", "x86_64"):
        return ""
    where = f"{platform.system()} on {platform.machine()}"
    return f"the TPU compiler (libtpu) runs on x86-64 Linux only, and this is {where}; programs that were saved there are analyzed here"


def why_not(python: str = "") -> str:
    """Why nothing can be compiled for TPUs here, by a ``python`` that has the compiler or by this one; empty if it can."""
    if PYTHON_VARIABLE in os.environ:
        return (
            "" if os.access(os.environ[PYTHON_VARIABLE], os.X_OK) else f"{PYTHON_VARIABLE} names no Python: {os.environ[PYTHON_VARIABLE]}"
        )
    if reason := why_not_here():
        return reason
    if not python and (find_spec("libtpu") is None or find_spec("jax") is None):
        elsewhere = f"set {PYTHON_VARIABLE} to the Python of an environment with jax[tpu]"
        return f"libtpu, the TPU compiler, is not installed; run: pip install 'roofline[tpu]', or {elsewhere}"
    return ""


@contextmanager
def compiled(
    job: Job,
    *,
    bounds: Bounds = Bounds(),  # noqa: B008  # it is frozen
    cache: Path | None = None,
    fits: Callable[[PeakMemory], None] | None = None,
) -> Iterator[Compilation]:
    """A function compiled for a slice; its files are there until the block ends.

    ``cache`` is a folder for compiled programs. ``fits`` is told the memory that the program needs, before the longest part of the
    compilation.
    """
    if reason := why_not(job.python):
        raise UsageError(reason)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="roofline-tpu-") as name:
        folder = Path(name)
        answer = _answer(job, folder, bounds, cache, fits)
        if answer.without_effect:
            raise UsageError(answer.without_effect)
        if answer.misfit:
            raise UsageError(f"{job.function}: {answer.misfit}")
        if answer.failed:
            raise SourceError(f"{job.function}: not compiled for {job.slice.title}: {_first_line(answer.failed)}")
        files = folder / "files"
        if answer.cached and cache is not None:
            files = cache / answer.key
            with suppress(OSError):
                os.utime(files)  # marks it as just used
        else:
            _keep(folder / "dump", files, answer)
            if job.bundles and (folder / BUNDLES).is_dir():
                shutil.move(folder / BUNDLES, files / BUNDLES)
            if cache is not None:
                _store(files, cache / answer.key)
        if answer.refused and not list(files.glob(ASSIGNED)):
            raise SourceError(f"{job.function}: does not fit {job.slice.title}: {' '.join(answer.refused.split())}")
        yield Compilation(files, answer, time.monotonic() - began)


def cached_programs(folder: Path) -> list[tuple[Path, int]]:
    """The programs in a folder of compiled ones, each with its bytes, the most recently used first."""
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and (path / "answer.json").is_file():
                found.append((path, sum(file.stat().st_size for file in path.iterdir())))
    return sorted(found, key=lambda entry: entry[0].stat().st_mtime, reverse=True)


def program_cache() -> Path:
    """The default folder of compiled programs."""
    return user_folder("ROOFLINE_CACHE", "cache") / INNER


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), text)


def _answer(job: Job, folder: Path, bounds: Bounds, cache: Path | None, fits: Callable[[PeakMemory], None] | None) -> Answer:
    """Runs the process, watches its limits, and reads its answer."""
    portable = folder / "portable" if job.portable else None
    if portable is not None:
        portable.write_bytes(job.portable)
    described = {
        "function": job.function,
        "portable": str(portable or ""),
        "args": job.args,
        "topology": job.slice.topology,
        "mesh": job.mesh,
        "batch_args": job.batch_args,
        "shard": job.shard,
        "options": job.options,
        "changes": job.changes,
        "cache": str(cache or ""),
    }
    (folder / "job.json").write_bytes(msgspec.json.encode(described))
    log = folder / "log"
    with log.open("wb") as stream:
        command = [os.environ.get(PYTHON_VARIABLE) or job.python or sys.executable, "-P", str(CHILD), str(folder)]
        process = subprocess.Popen(
            command, env=_environment(job, folder), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
        _running.add(process)
        try:
            _watch(process, folder, bounds, fits)
        finally:
            _running.discard(process)
            _end(process)
    try:
        return msgspec.json.decode((folder / "answer.json").read_bytes(), type=Answer)
    except (OSError, msgspec.DecodeError):
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        why = f": {last[0].strip()}" if last else ""
        raise SourceError(f"{job.function}: the TPU compiler's process ended with status {process.returncode}{why}") from None


def end_all() -> None:
    """Ends the compilations of all threads, each of which then says that its process ended."""
    for process in list(_running):
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(job: Job, folder: Path) -> dict[str, str]:
    """The process's variables: the user's, those of the compiler, and as many CPU devices as the slice has, on which a mesh can be made."""
    own = {"XLA_FLAGS": cpu_devices(job.slice.devices)}
    if job.bundles:
        own["LIBTPU_INIT_ARGS"] = f"{os.environ.get('LIBTPU_INIT_ARGS', '')} {DUMP_BUNDLES.format(folder=folder / BUNDLES)}".strip()
    return {**os.environ, **VARIABLES, **own}


def cpu_devices(devices: int, *, keep: bool = False) -> str:
    """The flags of XLA, with so many CPU devices, or as many as the user asks for, with ``keep``."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    others = [flag for flag in flags if not flag.startswith(DEVICES_FLAG)]
    return " ".join(flags if keep and len(others) < len(flags) else [*others, f"{DEVICES_FLAG}={devices}"])


def _watch(process: "subprocess.Popen[bytes]", folder: Path, bounds: Bounds, fits: Callable[[PeakMemory], None] | None) -> None:
    """Waits for a process, and ends it at its limits; tells the memory that the program needs as soon as the compiler wrote it."""
    began, most = time.monotonic(), bounds.bytes if bounds.bytes is not None else 0.9 * free_bytes()
    sizes: dict[str, int] = {}
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
        if _spent(process.pid, time.monotonic() - began) > bounds.seconds:
            raise RooflineError(f"the compilation took longer than {show(bounds.seconds, 's')} and was ended; see --compile time=")
        if (used := _resident_bytes(process.pid)) > most:
            raise RooflineError(f"the compilation needed {show(used, 'B')} of memory, more than {show(most, 'B')}, and was ended")
        if fits is not None and (peak := _assigned(folder / "dump", sizes)) is not None:
            fits(peak)
            fits = None


def _spent(process: int, waited_s: float) -> float:
    """The seconds that a process had a core, of those since its start; at least a quarter of these, should it wait for nothing."""
    with suppress(OSError, ValueError, IndexError):
        user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
        return max(min((int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), waited_s), waited_s / MOST_WAITED)
    return waited_s


def _assigned(dump: Path, sizes: dict[str, int]) -> PeakMemory | None:
    """The memory that a program needs, once the file with its buffer assignment is complete."""
    for file in _programs(dump, ASSIGNED):
        size = file.stat().st_size
        if size and sizes.get(file.name) == size:
            with suppress(RooflineError):
                return peak_memory(parse(file.read_bytes(), file.name), "tpu")
        sizes[file.name] = size
    return None


def _programs(dump: Path, pattern: str) -> list[Path]:
    """Files of a dump, without those of the parts that run on SparseCores."""
    return [file for file in sorted(dump.glob(pattern)) if ".extracted." not in file.name] if dump.is_dir() else []


def _keep(dump: Path, files: Path, answer: Answer) -> None:
    """The files of a dump that are analyzed."""
    files.mkdir()
    for stage in KEPT:
        for file in _programs(dump, f"*.{stage}.hlo.pb"):
            shutil.move(file, files / file.name)
    (files / "answer.json").write_bytes(msgspec.json.encode(answer))


def save(files: Path, folder: Path) -> None:
    """Copies the programs of a compilation to a folder of the user's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stage in KEPT:
            for file in files.glob(f"*.{stage}.hlo.pb"):
                shutil.copy(file, folder / file.name)
    except OSError as error:
        raise OutputError(f"{folder}: cannot write: {error.strerror}") from None


def _store(files: Path, entry: Path) -> None:
    """Copies the files of a program into the cache, and removes the entries that were not used for longest if it is full."""
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".roofline-", dir=entry.parent) as draft:
            whole = Path(draft, "entry")
            shutil.copytree(files, whole)
            whole.rename(entry)
        total = 0
        for path, size in cached_programs(entry.parent):
            total += size
            if total > MOST_BYTES and path != entry:
                shutil.rmtree(path, ignore_errors=True)


def free_bytes() -> float:
    """The memory that is free here; as much as one likes where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(line for line in lines if line.startswith("MemAvailable:"))
        return parse_quantity(f"{free.split()[1]} KiB", "B")
    return float("inf")


def _resident_bytes(process: int) -> float:
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return float(pages * os.sysconf("SC_PAGE_SIZE"))
    return 0.0


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Compiler options, given as KEY=VALUE."""
    found = {}
    for word in words:
        name, equals, value = word.strip().removeprefix("--").partition("=")
        if not equals or not name:
            raise UsageError(f"compiler option {word}: write KEY=VALUE, such as xla_tpu_scoped_vmem_limit_kib=65536")
        found[name] = value
    return found


def mesh_of(words: Sequence[str]) -> dict[str, int] | None:
    """The axes of a mesh, given as NAME=SIZE, with commas or spaces between them; ``None`` if none is given."""
    found: dict[str, int] = {}
    for word in " ".join(words).replace(",", " ").split():
        name, equals, size = word.partition("=")
        if not equals or not name.isidentifier() or not size.isdecimal() or int(size) < 1:
            raise UsageError(f"mesh {word}: write AXIS=SIZE, such as fsdp=4,tensor=4")
        if name in found:
            raise UsageError(f"mesh {','.join(words)}: the axis {name} is named twice; a slash separates several meshes")
        found[name] = int(size)
    return found or None
