"""Block sizes of Pallas kernels for a TPU: each configuration is compiled for the chip, and its time follows from the compiler's bundles.

kernel   the bundles that it executes, or as long as its busiest matrix unit is kept, over the clock; at least its bytes over the rate of
HBM time     the sum over kernels and other ops, which the core runs one after the other
low      the same with the bundles that no predicate skips
high     the same with the share of HBM's rate that streams reach beside products
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec.structs import replace

from ...blocks.pallas.bundles import Bundles, read_bundles
from ...blocks.results import Blocks, Configuration, ranked, with_shares
from ...blocks.space import Space, configurations
from ...errors import RooflineError, SourceError, UsageError
from ...hlo.price.calls.mosaic import active_share
from ...hlo.price.collectives import network_of
from ...hlo.price.types import Site
from ...machines.calibrations import calibration_for
from ...sources import programs
from ...sources.cores import cores
from ...sources.hlo_dump import read_modules
from ...workload import Op
from . import portable_job
from .compiling import BUNDLES, Compilation, Job, compiled
from .slices import Slice, slice_named

EVIDENCE = "from bundles that no predicate skips, to HBM at what streams reach; two published kernels on v6e took 4 and 5% longer"
KERNEL = "custom_call_config"  # in the configuration of a call of a Pallas kernel
SUSTAINED = "compiled"  # the family of calibrations with the share of HBM that streams reach beside products
ABOVE = 1.1  # of the schedule, by which kernels may take longer
VMEM_DATA = "const DATA ="  # before the data of the compiler's report on VMEM


def predict_pallas(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
    chip: str,
    space: Space | None,
    progress: Callable[[int, int], None] | None = None,
) -> Blocks:
    """The configurations of a function that calls Pallas kernels, compiled for one chip; the best first."""
    place = slice_named(chip)
    asked = configurations(space if space is not None else [{}])
    found: list[Configuration | None] = [None] * len(asked)
    versions: dict[str, str] = {}
    once: list[float] = []
    lock, done = Lock(), 0

    def work(number: int, job: Job | str) -> None:
        nonlocal done
        config = asked[number]
        found[number] = Configuration(config=config, refused=job) if isinstance(job, str) else _timed(config, job, place, versions, once)
        with lock:
            done += 1
            if progress:
                progress(done, len(asked))

    with ThreadPoolExecutor(cores()) as threads:
        for waiting in [threads.submit(work, number, _job(function, args, named, config, place)) for number, config in enumerate(asked)]:
            waiting.result()
    enough = {"hbm": min(once)} if once else {}
    return Blocks(
        kernel=getattr(function, "__name__", str(function)),
        chip=place.machine.chip_name,
        compiler=f"libtpu {versions.get('libtpu', '')}",
        evidence=EVIDENCE,
        configs=ranked(with_shares([config for config in found if config], place.machine, enough)),
    )


def _job(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], config: Mapping[str, Any], place: Slice) -> Job | str:
    """What to compile for a configuration, or why the function refuses it."""
    call = partial(function, **named, **config)
    call.__name__ = getattr(function, "__name__", "kernel")  # type: ignore[attr-defined]
    try:
        return replace(portable_job(call, place, None)(*args), bundles=True)
    except (UsageError, TypeError):
        raise
    except Exception as error:  # of the user's function for these blocks
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _timed(config: dict[str, Any], job: Job, place: Slice, versions: dict[str, str], once: list[float]) -> Configuration:
    """One configuration; ``once`` is given the bytes of its arguments and results."""
    try:
        with compiled(job) as made:
            versions.update(made.answer.versions)
            if made.answer.refused:
                return Configuration(config=config, refused=reason(made.answer.refused))
            if memory := made.answer.memory:
                once.append(float(memory["argument_size_in_bytes"] + memory["output_size_in_bytes"]))
            return _configuration(config, made, place)
    except SourceError as error:
        return Configuration(config=config, refused=reason(str(error)))
    except UsageError:
        raise
    except RooflineError as error:  # it took too long, or too much memory
        return Configuration(config=config, refused=str(error))


def reason(text: str) -> str:
    """What the compiler says of a kernel that does not fit, without the instruction.

    >>> reason("E1001: Ran out of memory in memory space vmem while allocating on stack for %a = x. Scoped allocation with size 33.83M and "
    ... "limit 32.00M exceeded scoped vmem limit by 1.83M.")
    'out of VMEM: Scoped allocation with size 33.83M and limit 32.00M exceeded scoped vmem limit by 1.83M.'
    """
    _, found, rest = text.partition("Scoped allocation with size")
    return f"out of VMEM: Scoped allocation with size{rest.partition(' It ')[0].rstrip()}" if found else text


def _configuration(config: dict[str, Any], made: Compilation, place: Slice) -> Configuration:
    machine = place.machine
    recording = programs.read(made.folder, machine, network=network_of)
    shares = _active_shares(made.folder)
    bundles = {name: found.of_active(shares.get(name, 1.0)) for name, found in bundles_of(made.folder / BUNDLES, place.family).items()}
    family = calibration_for(machine).family(SUSTAINED)
    hbm, share = machine.rate("hbm"), family.values["beside"] if family else 1.0
    if not machine.clock_hz:
        raise UsageError(f"{machine.name}: its machine file has no clock")
    parts = dict.fromkeys(("bundles", "matrix", "hbm"), 0.0)
    low = time_s = high = moved = 0.0
    work: dict[str, float] = {}
    for op in recording.workload.ops:
        schedule = bundles.get(op.name)
        times = _times(op, schedule, machine.clock_hz, hbm)
        for part, seconds in times.items():
            parts[part] += seconds
        time_s += max(times.values())
        low += max(op.count * schedule.always / machine.clock_hz if schedule else 0.0, times["matrix"], times["hbm"])
        high += max(ABOVE * times["bundles"], times["matrix"], times["hbm"] / share)
        for resource, amount in op.cost.amounts:
            if resource.name == "hbm":
                moved += float(amount)
            elif resource.is_compute:
                work[resource.name] = work.get(resource.name, 0.0) + float(amount)
    kernels = [bundles[op.name] for op in recording.workload.ops if op.name in bundles]
    if not kernels:
        raise SourceError("the compiler wrote no bundles of its kernels")
    limit = max(parts, key=lambda part: parts[part])
    return Configuration(
        config=config,
        time_s=time_s,
        low_s=min(low, time_s),
        high_s=max(high, time_s),
        limit={"hbm": "dma"}.get(limit, limit),
        parts=parts,
        spilled=sum(kernel.spilled for kernel in kernels),
        memory=_vmem(made.folder / BUNDLES, set(bundles)),
        work=work,
        bytes={"hbm": moved},
        slots=_slots(kernels),
    )


def _active_shares(folder: Path) -> dict[str, float]:
    """For each kernel by its name the share of its products that its conditions let run."""
    return {
        instruction.name: active_share(Site(module, computation, instruction, "tpu"))
        for module in read_modules(folder)
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "custom-call" and KERNEL in instruction.backend_config_text
    }


def _vmem(folder: Path, kernels: set[str]) -> int | None:
    """Bytes of VMEM of the kernel that has most, with all buffers of its windows; ``None`` where the compiler does not report them."""
    sizes = [
        breakdown["total_size"]
        for file in folder.glob("*-vmem_report.html")
        for name, breakdown in vmem_report(file.read_text(errors="replace")).items()
        if name in kernels
    ]
    return max(sizes, default=None)


def vmem_report(text: str) -> dict[str, Any]:
    """What instructions have of VMEM, by their names, from the compiler's page.

    >>> vmem_report('const DATA ={"hlo_breakdowns": {"product.1": {"total_size": 4194304}}}; const moduleName = 1;')
    {'product.1': {'total_size': 4194304}}
    """
    _, found, rest = text.partition(VMEM_DATA)
    breakdowns: dict[str, Any] = json.JSONDecoder().raw_decode(rest.lstrip())[0]["hlo_breakdowns"] if found else {}
    return breakdowns


def _slots(kernels: Sequence[Bundles]) -> dict[str, float]:
    """Operations of each slot in an executed bundle."""
    executed = sum(kernel.executed for kernel in kernels)
    counts: dict[str, float] = {}
    for kernel in kernels:
        for slot, count in kernel.slots.items():
            counts[slot] = counts.get(slot, 0.0) + count
    return {slot: count / executed for slot, count in sorted(counts.items(), key=lambda item: -item[1])}


def _times(op: Op, bundles: Bundles | None, clock: float, hbm: float) -> dict[str, float]:
    """The seconds of an op's bundles, of the matrix unit and of its bytes of main memory, over all its executions."""
    memory = next((float(amount) for resource, amount in op.cost.amounts if resource.name == "hbm"), 0.0) / hbm
    if bundles is None:
        cycles = op.compiled.cycles if op.compiled and op.compiled.cycles else 0.0
        return {"bundles": op.count * cycles / clock, "matrix": 0.0, "hbm": memory}
    return {"bundles": op.count * bundles.executed / clock, "matrix": op.count * bundles.matrix / clock, "hbm": memory}


def bundles_of(folder: Path, family: str) -> dict[str, Bundles]:
    """The bundles of each instruction by its name, from the files of a dump."""
    found = {}
    for file in sorted(folder.glob("*-final_bundles.txt")):
        name = file.name.removesuffix("-final_bundles.txt").partition("-")[2].rpartition("-")[0]
        if name != "TLP" and not name.startswith("<") and "schedule-analysis" not in file.name:
            found[name] = read_bundles(file.read_text(errors="replace"), family)
    return found
