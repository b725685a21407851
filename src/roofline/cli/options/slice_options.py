"""Functions that `roofline analyze` compiles for a slice of TPUs: their options, and their recordings."""

import argparse
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...dtypes import dtype
from ...errors import UsageError
from ...peak_memory import PeakMemory
from ...sources.remote import is_remote
from ...sources.samples import is_sample
from ...units import parse, percent, show
from ...workload import Recording
from ..functions import shape
from ..output import write_message
from ..progress import progress
from ..reading import NO_CACHE
from . import CHIP_VARIABLE, at_least
from .named_values import TakesOptions, Value, named_values
from .program_options import chosen_trips

if TYPE_CHECKING:
    from ...jax.tpu.compiling import Job
    from ...jax.tpu.slices import Slice


def slice_options(parser: argparse.ArgumentParser, values: Sequence[Value] | None = None) -> None:
    """Options for a function that is compiled for a slice."""
    group = parser.add_argument_group("functions for a slice of TPUs (MODULE.py:FUNCTION --chip v6e:4x4; compiled without a TPU, not run)")
    group.add_argument(
        "--args",
        nargs="+",
        default=[],
        metavar="SHAPE",
        help="shapes of its arguments: 8x512:bf16, or bf16[8,512] (bf16 where no format is given); without them the function is called, "
        "and returns (function, arguments) or a lowered function",
    )
    compilation_options(parser, values or COMPILATION, group)
    group.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)  # compiled programs are cached: every run goes on


def compilation_options(parser: argparse.ArgumentParser, values: Sequence[Value], group: TakesOptions | None = None) -> None:
    """How to compile for a slice."""
    named_values(parser, "--compile", "how to compile for a slice of TPUs", values, group)


MAKE_IT_FIT = "make-it-fit"
TRY_CHANGES = f"to try what makes it fit: --{MAKE_IT_FIT}"

COMPILATION = (
    Value(
        "mesh=AXIS=SIZE,…",
        "axes of the mesh: mesh=fsdp=4,tensor=4 (default: one axis); several meshes to rank: mesh=fsdp=16/fsdp=4,tensor=4; programs are "
        "cached, so the same command resumes an interrupted ranking",
        several=True,
        own_option="--mesh",
    ),
    Value(
        "batch=N,…",
        "arguments, counted from 0, whose leading dimension the first axis divides if none has a sharding (default: the last)",
        at_least(0),
        several=True,
        own_option="--batch-args",
    ),
    Value("shard=AXIS", "axis that divides the largest dimension of the other arguments (default: replicated)", own_option="--shard"),
    Value(
        "xla-KEY=VALUE",
        "option of the TPU compiler; the function is compiled without it too, to say whether it changes anything",
        own_option="--xla",
    ),
    Value(
        MAKE_IT_FIT,
        "if it does not fit, compile it with each change that may help, and rank them: donation, remat, bf16 state, half the batch, …",
        own_option="--make-it-fit",
    ),
    Value("save=FOLDER", "keep the compiled program there, which analyze reads on any computer"),
    Value(
        "time=TIME",
        "end a compilation that takes longer by the clock (default: 30 min; give more where cores are shared)",
        partial(parse, dimension="s"),
    ),
    Value("memory=BYTES", "end one that needs more (default: nine tenths of the free memory)", partial(parse, dimension="B")),
)
STEP = Value("step=NAME", "the function that is the step, where it is not to be guessed")
FOR_FUNCTIONS = {"args": "--args", **{value.place: f"--compile {value.name}" for value in COMPILATION}}


def is_function(name: str) -> bool:
    """Whether an input is a function, given as FILE.py:FUNCTION or MODULE:FUNCTION."""
    where, colon, function = name.rpartition(":")
    is_name = bool(colon) and all(part.isidentifier() for part in function.split("."))
    is_module = where.endswith(".py") or all(part.isidentifier() for part in where.split("."))
    return is_name and is_module and not (os.path.exists(name) or is_remote(name) or is_sample(name))


def refuse_compilation(args: argparse.Namespace, command: str) -> None:
    """Raise an error for options of a compilation where nothing is compiled."""
    given = [value.name for value in (STEP, *COMPILATION) if getattr(args, value.place, None)]
    if given:
        raise UsageError(f"{command}: --compile {given[0]} is for a slice of TPUs that is not here: --chip v6e:4x4")


def functions_of(args: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """The functions among the inputs; options for functions are an error where there is none."""
    found = [name for name in names if is_function(name)]
    given = [option for place, option in FOR_FUNCTIONS.items() if getattr(args, place, None)]
    if given and not found:
        raise UsageError(f"{given[0]} is for a function that is compiled for a slice: roofline analyze train.py:step --chip v6e:4x4")
    return found


def each_slice(args: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The options of a function for each slice and mesh alone."""
    chips, meshes = chips_and_meshes(args)
    for chip in chips:
        for mesh in meshes:
            yield argparse.Namespace(**{**vars(args), "chip": chip, "mesh": [mesh] if mesh else None})


def chips_and_meshes(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The slices and the meshes to compile a function for; a mesh is empty where it is that of the function, or one axis."""
    chips = (args.chip or os.environ.get(CHIP_VARIABLE) or "").split(",")
    return [chip.strip() for chip in chips], ",".join(args.mesh or ("",)).split("/")


def function_job(args: argparse.Namespace, name: str) -> "Job":
    """A function of this name, to be compiled for a slice."""
    from ...jax.comparison import format_name

    formats = [(dtype(number or "bf16"), sizes) for number, sizes in map(shape, args.args)]
    return replace(slice_job(args, name), function=name, args=tuple((format_name(number), sizes) for number, sizes in formats))


def record_function(args: argparse.Namespace, name: str) -> "tuple[Recording, bool, Slice]":
    """The recording of a function that is compiled for a slice, whether the compiler refused it, and the slice."""
    job = function_job(args, name)
    return *record(args, job), job.slice


def slice_job(args: argparse.Namespace, what: str) -> "Job":
    """What these options say about compiling for a slice; the function is still to be named."""
    from ...jax.tpu.compiling import Job, mesh_of, options_of
    from ...jax.tpu.slices import slice_named

    chip = args.chip or os.environ.get(CHIP_VARIABLE)
    if not chip:
        raise UsageError(f"{what}: to compile a function name a slice of TPUs: --chip v6e:4x4")
    return Job(
        slice=slice_named(chip),
        mesh=mesh_of(args.mesh or ()),
        batch_args=tuple(args.batch or ()),
        shard=args.shard or "",
        options=options_of(args.xla or ()),
    )


def record(args: argparse.Namespace, job: "Job") -> tuple[Recording, bool]:
    """The recording of a compiled function, and whether the compiler refused it; the program is saved where that was asked for."""
    from ...jax.tpu import record_job, without_effect
    from ...jax.tpu.compiling import Bounds, program_cache

    how: dict[str, Any] = {
        "bounds": Bounds(Bounds().seconds if args.time is None else args.time, args.memory),
        "cache": None if getattr(args, "cache", None) == NO_CACHE else program_cache(),
        "link": getattr(args, "link", None),
        "trips": chosen_trips(args) if "trips" in args else None,
        "saved": Path(args.save).absolute() if getattr(args, "save", None) else None,
    }
    if cluster := getattr(args, "cluster", None):
        from ...sources.cluster import call_on_cluster

        recording, is_refused = call_on_cluster(cluster, record_job, replace(job, function=_absolute(job.function)), **how)
        return replace(recording, files=(job.function,)), is_refused
    with progress(f"compiling {job.function} for {job.slice.title}"):
        recording, is_refused = record_job(job, fits=lambda peak: write_message(_memory(peak, job.slice.available)), **how)
    if without_effect(job) in recording.notes:
        write_message(without_effect(job))
    return recording, is_refused


def advise_changes(refused: Recording) -> None:
    """Says how to try what makes a refused program fit, except for a kernel that needs too much of a small memory: it stays as it is."""
    spaces = refused.memory.spaces if refused.memory else ()
    if all(space.capacity_bytes is None or space.peak_bytes <= space.capacity_bytes for space in spaces):
        write_message(TRY_CHANGES)


def _absolute(function: str) -> str:
    """The name of a function by the whole path of its file, if it is in one."""
    where, colon, name = function.rpartition(":")
    return f"{os.path.abspath(where)}{colon}{name}" if where.endswith(".py") else function


def _memory(peak: PeakMemory, capacity: float | None) -> str:
    """Whether a program fits, in one line."""
    needed = f"needs {show(peak.needed_bytes, 'B')}"
    if capacity is None:
        return needed
    verb = "fits" if peak.needed_bytes <= capacity else "does not fit"
    return f"{needed} of {show(capacity, 'B')} of HBM a device ({percent(peak.needed_bytes / capacity)}): {verb}"
