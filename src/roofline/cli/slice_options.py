"""Functions that `roofline analyze` compiles for a slice of TPUs: their options, and their recordings."""

import argparse
import os
from typing import TYPE_CHECKING

from ..dtypes import dtype
from ..errors import UnitError, UsageError
from ..sources.remote import is_remote
from ..sources.samples import is_sample
from ..units import parse, percent, show
from ..workload import PeakMemory, Recording
from .functions import shape
from .options import CHIP_VARIABLE
from .output import write_message
from .program_options import chosen_trips
from .progress import progress
from .reading import NO_CACHE

if TYPE_CHECKING:
    from ..jax.tpu.compiling import Bounds


def slice_options(parser: argparse.ArgumentParser) -> None:
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
    group.add_argument("--mesh", nargs="+", default=[], metavar="AXIS=SIZE", help="axes of the mesh: fsdp=4,tensor=4 (default: one axis)")
    group.add_argument(
        "--batch-args",
        metavar="N,…",
        help="arguments, counted from 0, whose leading dimension the first axis divides if none has a sharding (default: the last)",
    )
    group.add_argument(
        "--shard", metavar="AXIS", help="axis that divides the largest dimension of the other arguments (default: replicated)"
    )
    group.add_argument("--xla", action="append", default=[], metavar="KEY=VALUE", help="option of the TPU compiler; may be repeated")
    group.add_argument(
        "--compile-limit",
        action="append",
        default=[],
        metavar="TIME|BYTES",
        help="most time and memory of the compilation: '30 min', '16 GB' (default: 30 min, and nine tenths of the free memory)",
    )


def names_function(args: argparse.Namespace) -> bool:
    """Whether the input is a function, given as FILE.py:FUNCTION or MODULE:FUNCTION."""
    name = args.path[0]
    where, colon, function = name.rpartition(":")
    is_name = bool(colon) and all(part.isidentifier() for part in function.split("."))
    is_module = where.endswith(".py") or all(part.isidentifier() for part in where.split("."))
    found = is_name and is_module and not (os.path.exists(name) or is_remote(name) or is_sample(name))
    if not found and (
        given := next((option for option in ("args", "mesh", "batch_args", "shard", "xla", "compile_limit") if getattr(args, option)), None)
    ):
        raise UsageError(
            f"--{given.replace('_', '-')} is for a function that is compiled for a slice: roofline analyze train.py:step --chip v6e:4x4"
        )
    return found


def record_function(args: argparse.Namespace) -> tuple[Recording, bool]:
    """The recording of a function that is compiled for a slice, and whether the compiler refused it."""
    from ..jax.comparison import format_name
    from ..jax.tpu import record_job
    from ..jax.tpu.compiling import Job, mesh_of, options_of, program_cache
    from ..jax.tpu.slices import slice_named

    chip = args.chip or os.environ.get(CHIP_VARIABLE)
    if len(args.path) > 1 or not chip:
        raise UsageError(f"{args.path[0]}: to compile a function name one function and a slice of TPUs: --chip v6e:4x4")
    place = slice_named(chip)
    args.chip = place.machine.name  # of several slices the name of one
    formats = [(dtype(number or "bf16"), sizes) for number, sizes in map(shape, args.args)]
    job = Job(
        slice=place,
        function=args.path[0],
        args=tuple((format_name(number), sizes) for number, sizes in formats),
        mesh=mesh_of(args.mesh),
        batch_args=_places(args.batch_args),
        shard=args.shard or "",
        options=options_of(args.xla),
    )
    with progress(f"compiling {job.name} for {job.slice.title}"):
        return record_job(
            job,
            bounds=_bounds(args.compile_limit),
            cache=None if args.cache == NO_CACHE else program_cache(),
            fits=lambda peak: write_message(_memory(peak, job.slice.machine.capacity())),
            link=args.link,
            trips=chosen_trips(args),
        )


def _places(words: str | None) -> tuple[int, ...]:
    places = (words or "").replace(",", " ").split()
    if not all(place.isdecimal() for place in places):
        raise UsageError(f"--batch-args {words}: give the places of arguments, counted from 0: 1,2")
    return tuple(map(int, places))


def _bounds(words: list[str]) -> "Bounds":
    from ..jax.tpu.compiling import Bounds

    bounds = Bounds()
    for word in words:
        for unit in ("s", "B"):
            try:
                amount = parse(word, unit)
            except UnitError:
                continue
            bounds = Bounds(amount, bounds.bytes) if unit == "s" else Bounds(bounds.seconds, amount)
            break
        else:
            raise UsageError(f"--compile-limit {word}: give a time or an amount of memory, such as '30 min' or '16 GB'")
    return bounds


def _memory(peak: PeakMemory, capacity: float | None) -> str:
    """Whether a program fits, in one line."""
    needed = f"needs {show(peak.needed_bytes, 'B')}"
    if capacity is None:
        return needed
    verb = "fits" if peak.needed_bytes <= capacity else "does not fit"
    return f"{needed} of {show(capacity, 'B')} a device ({percent(peak.needed_bytes / capacity)}): {verb}"
