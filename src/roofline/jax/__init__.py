"""JAX functions on the roofline, without running them.

    import roofline.jax
    report = roofline.jax.analyze(train_step, chip="h100")(params, batch)

Arguments are arrays or `jax.ShapeDtypeStruct`s; nothing is executed. If the chip is the one JAX runs on, the function is compiled and the
compiled program is priced. For any other chip, the program as lowered by JAX is fused by roofline's model of compilers and priced, and the
report says that this is an estimate. A function that is sharded over devices is always compiled, because only the compiler's partitioner
determines the collectives; its costs are those of one device. If that compiler is for CPUs, its fusions and wider number formats are undone
for any other chip.

For a slice of TPUs the TPU compiler compiles the function in a process of its own, without a TPU (`tpu`):

    report = roofline.jax.analyze(train_step, chip="v5p:4x4x4", mesh={"fsdp": 64})(params, batch)
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import analysis
from ..errors import MachineError, MissingExtra, UsageError
from ..hlo.fusion.compiler_model import RULES, fuse
from ..hlo.fusion.copies import with_copies
from ..hlo.ir.module import HloModule
from ..hlo.ir.platforms import Platform, platform_of
from ..hlo.memory.peak import peak_memory
from ..hlo.price.collectives import network_of
from ..hlo.read import parse
from ..hlo.review import Review
from ..machine import Machine
from ..machines import load
from ..machines.catalogue import catalogue_card
from ..machines.local import NAMES as LOCAL
from ..machines.local import local_card
from ..placement import IDEAL, Corrections
from ..report import Report
from ..sources.programs import from_cpu
from ..workload import Recording
from .cudnn import assumed_cudnn

ESTIMATE = "estimate: the program as lowered by JAX, fused by roofline's model, not by a compiler for {chip}"
BORROWED = "estimate: compiled for {backend}, analyzed for {chip}"
FROM_CPU = "estimate: compiled for a CPU, its fusions and wider formats undone, fused for {chip} by roofline's model"


class Lowered(Struct, frozen=True):
    """The program of a function, its platform, and notes."""

    module: HloModule
    platform: Platform
    notes: tuple[str, ...] = ()


def analyze(
    function: Callable[..., Any],
    *,
    chip: str | Machine | None = None,
    mesh: Mapping[str, int] | None = None,
    compiled: bool | None = None,
    link: str | None = None,
    trips: Mapping[str, int] | None = None,
    xla: Mapping[str, str] | None = None,
    corrections: Corrections = IDEAL,
    **jit: Any,
) -> Callable[..., Report]:
    """A function of the same arguments that returns the report on one call of it.

    ``chip`` is a name of the catalogue or a machine, by default the device JAX runs on. ``compiled`` forces the program compiled here
    (true) or the lowered program (false). ``trips`` gives the trip counts of loops that depend on data, by the name of the while. Further
    options go to `jax.jit`.

    For a slice of TPUs (``v6e:4x4``, ``v5p:4x4x4``, ``2x v6e:16x16``) the TPU compiler compiles, where it is installed. ``mesh`` are the
    axes of its mesh with their sizes, on which the shardings of the arguments are moved by the names of axes, ``xla`` are compiler options.
    """

    def report(*args: Any, **kwargs: Any) -> Report:
        if mesh is not None or xla is not None or _is_slice(chip, compiled):
            from .tpu import portable_job, record_job
            from .tpu.compiling import program_cache
            from .tpu.slices import slice_named

            if not isinstance(chip, str):
                raise UsageError("mesh and xla are for a slice of TPUs, given by its name: analyze(f, chip='v6e:4x4', mesh={'fsdp': 16})")
            require_jax()
            place = slice_named(chip)
            job = replace(portable_job(function, place, mesh, **jit)(*args, **kwargs), options=xla or {})
            return analysis.analyze(record_job(job, cache=program_cache(), link=link, trips=trips)[0], place.machine, corrections)
        machine = _machine(chip)
        recording = record(function, machine, compiled=compiled, link=link, trips=trips, **jit)(*args, **kwargs)
        return analysis.analyze(recording, machine, corrections)

    return report


def _is_slice(chip: str | Machine | None, compiled: bool | None) -> bool:
    """Whether the TPU compiler is to compile for a chip: it is a slice, and the compiler is there, or asked for."""
    if not isinstance(chip, str) or ":" not in chip or compiled is False:
        return False
    from .tpu.compiling import why_not

    return compiled is True or not why_not()


def record(
    function: Callable[..., Any],
    machine: Machine,
    *,
    compiled: bool | None = None,
    link: str | None = None,
    trips: Mapping[str, int] | None = None,
    copies: bool = False,
    **jit: Any,
) -> Callable[..., Recording]:
    """A function of the same arguments that returns the priced ops of one call of it.

    With ``copies``, operands whose layout a GPU's libraries cannot read are copied, and products widen 8-bit operands.
    """

    def recording(*args: Any, **kwargs: Any) -> Recording:
        found = lower(function, machine, compiled=compiled, copies=copies, **jit)(*args, **kwargs)
        review = Review.of(found.module, found.platform, link=network_of(machine, link), trips=trips)
        graph = review.graph()
        return Recording(
            workload=review.workload(),
            format="jax",
            memory=peak_memory(found.module, found.platform),
            graphs=() if graph is None else (graph,),
            notes=(*found.notes, *review.notes),
        )

    return recording


def lower(
    function: Callable[..., Any], machine: Machine, *, compiled: bool | None = None, copies: bool = False, **jit: Any
) -> Callable[..., Lowered]:
    """A function of the same arguments that returns the program of one call of it, for a machine that may not be here."""
    jax = require_jax()
    jitted = function if hasattr(function, "lower") and not jit else jax.jit(function, **jit)
    target = platform_of(machine)

    def lowered(*args: Any, **kwargs: Any) -> Lowered:
        backend = _backend(jax)
        if backend == target if compiled is None else compiled:
            return _compiled(jitted.lower(*args, **kwargs), target, machine, backend)
        written, notes = _lowered(jitted, args, kwargs, machine, target, backend)
        module = parse(written.as_text(debug_info=True), getattr(function, "__name__", "function"))
        if module.num_partitions > 1:
            return _compiled(jitted.lower(*args, **kwargs), target, machine, backend)
        library = copies and target == "gpu"
        rules = replace(RULES[target], copies=library, widens=library)
        return Lowered(with_copies(fuse(module, target, rules), target), target, (ESTIMATE.format(chip=machine.name), *notes))

    return lowered


def _lowered(
    jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any], machine: Machine, target: Platform, backend: str
) -> tuple[Any, list[str]]:
    """The program as JAX lowers it for the machine's platform, or else for the platform here, with a note.

    The platform matters: a ragged product or a Pallas kernel stays one operation only on platforms that support it.
    """
    names = {"gpu": "rocm" if machine.vendor == "AMD" else "cuda", "tpu": "tpu", "cpu": "cpu"}
    try:
        with assumed_cudnn() if names[target] == "cuda" else nullcontext():
            return jitted.trace(*args, **kwargs).lower(lowering_platforms=(names[target],)), []
    except Exception as error:  # a primitive without a rule for that platform may raise anything
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return jitted.lower(*args, **kwargs), [f"lowered for {backend}, because lowering for {names[target]} failed: {why}"]


def _compiled(trace: Any, target: Platform, machine: Machine, backend: str) -> Lowered:
    """The program compiled by the compiler here, read from its protobuf."""
    compiled = trace.compile()
    module = parse(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto(), "compiled program")
    module = replace(module, buffer_assignment=_buffer_assignment(compiled))
    devices = module.num_partitions * module.replica_count
    notes = [f"one of {devices} devices"] if devices > 1 else []
    if backend == "cpu" != target:
        module, more = from_cpu(module, target)
        notes += [FROM_CPU.format(chip=machine.name), *more]
    elif backend != target:
        notes.append(BORROWED.format(backend=backend, chip=machine.name))
    return Lowered(module, target, tuple(notes))


def _buffer_assignment(compiled: Any) -> bytes:
    """The compiler's BufferAssignmentProto of a program; empty if it is not available."""
    try:
        found = compiled.memory_analysis().serialized_buffer_assignment_proto
    except Exception:  # older versions of JAX and some backends have none
        return b""
    return found if isinstance(found, bytes) else b""


def _machine(chip: str | Machine | None) -> Machine:
    """The requested machine, per framework device; by default the device JAX runs on."""
    if isinstance(chip, Machine):
        return chip
    if chip is None:
        kind = require_jax().devices()[0].device_kind
        try:
            machine = (local_card() if kind.lower() in LOCAL else catalogue_card(kind)).machine
        except MachineError:
            raise UsageError(f"JAX runs on {kind!r}, which is not in the catalogue; name a chip: analyze(f, chip='h100')") from None
        return machine.per_device() if machine.devices > 1 else replace(machine, notes=(*machine.notes, f"JAX runs on {kind}"))
    machine = load(chip)
    return machine.per_device() if machine.devices > 1 else machine


def is_compiled_for(machine: Machine) -> bool:
    """Whether functions are compiled for a machine by the compiler here, not fused by roofline's model."""
    return _backend(require_jax()) == platform_of(machine)


def _backend(jax: Any) -> str:
    """The platform JAX runs on: cpu, gpu or tpu."""
    name = str(jax.default_backend())
    return "gpu" if name in ("cuda", "rocm") else name


def require_jax() -> Any:
    """The jax module; raises an error that says how to install it."""
    try:
        return import_module("jax")
    except ImportError:
        raise MissingExtra("jax", "jax") from None
