"""Run an unmodified JAX program on the CPU up to its step, which is traced for a slice of TPUs instead of run.

Every Python process that the command starts has a hook on its path (`hook.roofline_hook_step`), which finds the step and ends the program.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from ..errors import RooflineError
from ..jax.tpu import lowering
from ..jax.tpu.compiling import cpu_devices
from ..units import number_of, show
from ..workload import source_line
from .hook.roofline_hook_step import TRACED
from .program import environment, run_program, runnable
from .run_folder import staging_in

NO_EFFECT = "NoEffect: "
HOW = "name the function whose call is the step: --compile step=NAME"


class Step(Struct, frozen=True, kw_only=True):
    """The step of a program: its place in the source, its work, and itself, pickled, for the axes of a mesh (`lowering.Shipment`).

    ``python`` is the program's own, which may have the TPU compiler. ``zeros_of`` are functions before it that were too large to run here.
    """

    name: str
    location: str = ""
    flop: float = 0.0
    arrays: int = 0
    argument_bytes: int = 0
    axes: dict[str, int] = {}
    assumed: tuple[str, ...] = ()
    whole: dict[str, Any] = {}
    zeros_of: tuple[str, ...] = ()
    python: str = ""
    has_compiler: bool = False
    portable: bytes = b""

    @property
    def title(self) -> str:
        """The function, where it is, and what it takes and does."""
        where = f" ({source_line(self.location)})" if self.location else ""
        return (
            f"{self.name}{where}: {number_of(self.arrays, 'argument array')} of {show(self.argument_bytes, 'B')}, {show(self.flop, 'FLOP')}"
        )


class _Message(Struct, frozen=True, kw_only=True):
    """What a process of the program said last."""

    state: str
    note: str = ""
    name: str = ""
    location: str = ""
    called: tuple[str, ...] = ()


def step_of(
    command: Sequence[str],
    devices: int,
    *,
    named: str = "",
    mesh: Mapping[str, int] | None = None,
    batch: Sequence[int] = (),
    shard: str = "",
    changes: Sequence[str] = (),
    folder: Path,
    stdout: IO[Any] | int | None = None,
) -> Step:
    """The step of a program, for a slice of so many devices; an error says why there is none, and what to change.

    ``named`` is its name, where it is not to be guessed; ``mesh``, ``batch`` and ``shard`` are for arguments without shardings, ``changes``
    are made to it (`jax.tpu.changes`).
    """
    with staging_in(folder) as staging:
        settings = {
            "folder": str(staging.resolve()),
            "tracers": str(Path(lowering.__file__).resolve().parent),
            "devices": devices,
            "named": named,
            "axes": mesh,
            "batch": list(batch),
            "shard": shard,
            "changes": list(changes),
        }
        variables = {**environment(os.environ, settings), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": cpu_devices(devices, keep=True)}
        status = run_program(runnable(command), variables, stdout)
        files = sorted(staging.glob("*/status.json"))
        messages = [msgspec.json.decode(file.read_bytes(), type=_Message) for file in files]
        for file, message in zip(files, messages, strict=True):
            if message.state == "found":
                step = msgspec.json.decode(file.read_bytes(), type=Step)
                return msgspec.structs.replace(step, portable=(file.parent / TRACED).read_bytes())
    raise RooflineError(f"{' '.join(command)}: {_why_none(status, messages, named)}")


def _why_none(status: int, messages: Sequence[_Message], named: str) -> str:
    """Why no step was traced, and what to change."""
    if not messages:
        return "ended without importing JAX; a slice of TPUs is compiled for JAX programs alone"
    if failed := [message for message in messages if message.state == "failed"]:
        first = failed[0]
        if first.note.startswith(NO_EFFECT):
            return first.note.removeprefix(NO_EFFECT)
        where = f" ({source_line(first.location)})" if first.location else ""
        return f"{first.name}{where} cannot be compiled for the slice: {_told(first.note)}" if first.name else first.note
    if status:
        return f"failed with exit status {status} before its step"
    called = list(dict.fromkeys(name for message in messages for name in message.called))
    if named:
        return f"ended without a call of a jitted function {named!r}; called: {', '.join(called) or 'none'}"
    if not called:
        return "ended without a call of a jitted function; jit the whole training step: step = jax.jit(step, donate_argnums=0)"
    return f"ended, and none of its jitted functions has matrix products ({', '.join(called)}); {HOW}"


def _told(note: str) -> str:
    """The first line of an error."""
    return next((line for line in note.removeprefix("Misfit: ").splitlines() if line.strip()), note)
