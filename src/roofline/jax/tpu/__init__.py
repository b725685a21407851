"""JAX functions compiled for slices of TPUs that are not here, by the TPU compiler, which needs no TPU.

    import roofline as rl
    report = rl.jax.analyze(step, chip="v5p:4x4x4", mesh={"fsdp": 64})(params, batch)

The compiled program is one of one device, with its schedule, layouts, memory and collectives; nothing is executed.
"""

import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...errors import RooflineError, UsageError
from ...hlo.price.collectives import network_of
from ...peak_memory import MemorySpace, PeakMemory
from ...quantities import NOTABLE
from ...sources import programs
from ...units import number_of, parse, percent, show
from ...workload import Recording
from .compiling import Answer, Bounds, Compilation, Job, Replicated, compiled, save
from .slices import Slice

COMPILED = "compiled by libtpu {libtpu} and jax {jax} for {slice}, mesh {mesh}, in {seconds}, not run: figures are of one device"
CACHED = "compiled before by libtpu {libtpu} and jax {jax} for {slice}, mesh {mesh}, not run: figures are of one device"
UNCHANGED = "the compiler options {options} change nothing: the program is the same without them"
CHANGED = "the compiler options {options} change the program: it is another one without them"
NOT_PLAIN = "whether the compiler options {options} change anything is not known: without them it is not compiled: {reason}"
REFUSED = "the compiler refused it, so this is the program before code generation: {reason}"


def portable_job(function: Callable[..., Any], place: Slice, mesh: Mapping[str, int] | None, **jit: Any) -> Callable[..., Job]:
    """A function of the same arguments that returns the job to compile ``function`` for a slice: it is traced here, and compiled later."""
    from . import lowering

    def job(*args: Any, **kwargs: Any) -> Job:
        made = Job(slice=place, mesh=mesh)
        try:
            found = lowering.shipped(lowering.jitted(function, **jit), (args, kwargs), place.devices, mesh)
        except lowering.Misfit as misfit:
            raise UsageError(str(misfit)) from None
        return portable(made, pickle.dumps(tuple(found.portable)), found.portable.exported.fun_name, found.axes, found.assumed, found.whole)

    return job


def portable(
    job: Job, function: bytes, name: str, axes: Mapping[str, int], assumed: Sequence[str] = (), whole: Mapping[str, Any] | None = None
) -> Job:
    """The job for a function that was traced elsewhere (`lowering.shipped`), pickled."""
    return replace(job, portable=function, function=name, mesh=axes, assumed=tuple(assumed), replicated=Replicated(**(whole or {})))


def record_job(
    job: Job,
    *,
    bounds: Bounds = Bounds(),  # noqa: B008  # it is frozen
    cache: Path | None = None,
    fits: Callable[[PeakMemory], None] | None = None,
    link: str | None = None,
    trips: Mapping[str, int] | None = None,
    saved: Path | None = None,
) -> tuple[Recording, bool]:
    """The recording of a compiled function, and whether the compiler refused it because it does not fit into memory.

    The program's files are ``saved`` in a folder.
    """

    def priced(folder: Path) -> Recording:
        return programs.read(folder, job.slice.machine, network=lambda machine: network_of(machine, link), trips=trips)

    with compiled(job, bounds=bounds, cache=cache, fits=fits) as made:
        if saved is not None:
            save(made.folder, saved)
        recording = priced(made.folder)
    answer = made.answer
    effect = (_effect(job, answer, recording, priced, bounds, cache),) if job.options and not answer.refused and not job.changes else ()
    whole = job.replicated or answer.replicated
    notes = (
        _described(made, job.slice),
        *effect,
        *job.assumed,
        *answer.assumed,
        *_replicated(whole, recording.memory),
        *recording.notes,
    )
    memory = recording.memory
    if answer.refused:
        notes = (REFUSED.format(reason=answer.refused), *notes)
        if memory is not None and (available := _available_bytes(answer.refused)) is not None:
            memory = replace(memory, capacity_bytes=available)
        if memory is not None and (kernel := _refused_kernel(answer.refused)) is not None:
            memory = replace(memory, spaces=(kernel, *memory.spaces))
    return replace(recording, files=(job.function,), memory=memory, mesh=dict(answer.mesh), notes=notes), bool(answer.refused)


def without_effect(job: Job) -> str:
    """The note on compiler options that change nothing."""
    return UNCHANGED.format(options=_options(job))


def _options(job: Job) -> str:
    return ", ".join(f"{name}={value}" for name, value in job.options.items())


def _effect(job: Job, answer: Answer, recording: Recording, priced: Callable[[Path], Recording], bounds: Bounds, cache: Path | None) -> str:
    """The note on whether compiler options change a program, which is compiled without them too."""
    known = cache / answer.plain_key if cache is not None and answer.plain_key else None
    try:
        if known is not None and known.is_dir():
            plain, refused = priced(known), False
        else:
            with compiled(replace(job, options={}), bounds=bounds, cache=cache) as made:
                plain, refused = priced(made.folder), bool(made.answer.refused)
    except RooflineError as error:
        return NOT_PLAIN.format(options=_options(job), reason=error)
    return without_effect(job) if not refused and _is_same(recording, plain) else CHANGED.format(options=_options(job))


def _is_same(recording: Recording, other: Recording) -> bool:
    """Whether two programs run the same ops in the same order."""
    ops, others = ([(op.name, op.cost, op.count, op.compiled) for op in one.workload.ops] for one in (recording, other))
    return ops == others and recording.schedules == other.schedules


def _described(made: Compilation, place: Slice) -> str:
    answer = made.answer
    mesh = ",".join(f"{name}={size}" for name, size in answer.mesh.items()) or "as it was lowered"
    words = CACHED if answer.cached else COMPILED
    return words.format(
        libtpu=answer.versions.get("libtpu", ""),
        jax=answer.versions.get("jax", ""),
        slice=place.title,
        mesh=mesh,
        seconds=show(round(made.seconds, 1), "s"),
    )


def _replicated(whole: Replicated | None, memory: PeakMemory | None) -> tuple[str, ...]:
    """A note on arguments that every device has whole, where they take a notable part of its memory."""
    if whole is None or memory is None or whole.bytes < NOTABLE * memory.needed_bytes:
        return ()
    arrays = f"{number_of(whole.arrays, 'argument')} of {show(whole.bytes, 'B')}"
    return (
        f"every device has {arrays} whole, {percent(whole.bytes / memory.needed_bytes)} of its memory; "
        f"{whole.axis} would divide the largest, {whole.largest}",
    )


def _available_bytes(reason: str) -> int | None:
    """The memory that the compiler says there is: ``exceeds available HBM (15.75G)``."""
    found = re.search(r"available HBM \((\S+)\)", reason)
    return _size(found[1]) if found else None


# What the compiler says of a kernel that needs too much of a small memory, for its stack or for one array.
_KERNELS = (
    r"memory space (?P<space>\w+) while allocating on stack for %(?P<at>\S+).*"
    r"allocation with size (?P<asked>\S+) and limit (?P<limit>\S+) exceeded",
    r"\(size=(?P<asked>\d+)\) would exceed memory \(size=(?P<limit>\d+)\).*space=(?P<space>\w+).* :: (?P<at>\S+)",
)


def _refused_kernel(reason: str) -> MemorySpace | None:
    """The kernel that needs too much of a small memory, and the limit."""
    found = next(filter(None, (re.search(pattern, reason, re.DOTALL) for pattern in _KERNELS)), None)
    if found is None or (asked := _size(found["asked"])) is None:
        return None
    limit = _size(found["limit"])
    return MemorySpace(space=found["space"], peak_bytes=asked, arrays_bytes=0, scoped_bytes=asked, capacity_bytes=limit, at=found["at"])


def _size(text: str) -> int | None:
    """Bytes as the compiler writes them, where G is 2³⁰: ``15.75G``."""
    found = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    return int(parse(f"{found[1]} {found[2]}{'i' if found[2] else ''}B", "B")) if found else None
