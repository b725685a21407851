"""`--compile make-it-fit`: a program that does not fit, compiled with each change that may make it fit."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ...peak_memory import PeakMemory
from ...report import VariantInfo
from ...workload import Recording
from ..output import write_message
from .slice_variants import rank, variant

if TYPE_CHECKING:
    from ...jax.tpu.compiling import Job

HALF = "half"
MORE_LAYERS = 1.25
# A change of `jax.tpu.changes`, and what it is in the user's code.
CHANGES: Mapping[str, str] = {
    "donate": "donate the state (donate_argnums)",
    "divide": "shard what every device has whole",
    "remat": "recompute bodies of scans (jax.checkpoint)",
    "recompute": "keep only products (jax.checkpoint of the loss)",
    "narrow": "optimizer state in bf16",
    HALF: "half the batch (gradient accumulation)",
}


class JobOf(Protocol):
    """Gives the job of a program after some changes, or on another mesh."""

    def __call__(self, changes: tuple[str, ...] = (), mesh: Mapping[str, int] | None = None) -> "Job": ...


def attempts(args: argparse.Namespace, job_of: JobOf, refused: Recording) -> list[VariantInfo]:
    """A refused program after each change, the best first; where none fits, after all that help together."""
    before = refused.memory.needed_bytes if refused.memory else 0
    attempts = {name: _attempt(args, partial(job_of, (name,)), words) for name, words in CHANGES.items()}
    attempts[HALF] = _of_whole_batch(attempts[HALF])
    helping = [name for name, info in attempts.items() if info.needed_bytes is not None and info.needed_bytes < before]
    tried = [*attempts.values()]
    if layers := some_layers(refused.memory):
        tried.append(_attempt(args, partial(job_of, (f"remat {layers}",)), f"recompute the first {layers} layers (jax.checkpoint)"))
    for axes in other_meshes(refused.mesh):
        tried.append(_attempt(args, partial(job_of, mesh=axes), "mesh", ",".join(f"{axis}={size}" for axis, size in axes.items())))
    if len(helping) > 1 and not any(info.fits for info in tried):
        together = _attempt(args, partial(job_of, tuple(helping)), " and ".join(helping))
        tried.append(_of_whole_batch(together) if HALF in helping else together)
    there = refused.memory.capacity_bytes if refused.memory else None  # what the compiler says there is, also for those that fit
    return sorted((replace(info, capacity_bytes=there) if info.capacity_bytes else info for info in tried), key=rank)


def some_layers(memory: PeakMemory | None) -> str:
    """How many layers of a loop keep what is too much for the device, such as ``8 of 32``; empty where it takes all, or no loop keeps any.

    A quarter more are taken, since a layer that is recomputed keeps its input.
    """
    rows = [layer for owner in memory.owners for layer in owner.layers if layer.layers > 1] if memory else []
    if not memory or not memory.capacity_bytes or not rows:
        return ""
    kept = max(rows, key=lambda layer: layer.bytes)
    some = ceil(MORE_LAYERS * (memory.needed_bytes - memory.capacity_bytes) * kept.layers / kept.bytes)
    return f"{some} of {kept.layers}" if 0 < some < kept.layers else ""


def other_meshes(mesh: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The meshes in which one axis is twice as long, and another half as long.

    >>> list(other_meshes({"fsdp": 4, "tensor": 2}))
    [{'fsdp': 8, 'tensor': 1}, {'fsdp': 2, 'tensor': 4}]
    """
    for longer in mesh:
        for shorter in mesh:
            if longer != shorter and mesh[shorter] % 2 == 0:
                yield {**mesh, longer: 2 * mesh[longer], shorter: mesh[shorter] // 2}


def _of_whole_batch(info: VariantInfo) -> VariantInfo:
    """A step of half the batch, ranked by what the whole batch takes: two of them."""
    rates = {word: rate / 2 for word, rate in info.per_chip_hour.items()}
    return replace(info, chip_seconds=None if info.chip_seconds is None else 2 * info.chip_seconds, per_chip_hour=rates)


def _attempt(args: argparse.Namespace, job_of: "Callable[[], Job]", words: str, mesh: str = "") -> VariantInfo:
    write_message(f"trying: {words} {mesh}".rstrip())
    return variant(args, job_of, VariantInfo(chip=args.chip or "", mesh=mesh, change=words)).info
