"""Cores (SMs) of GPUs by compute capability: how much one holds, latencies, and how long instructions keep its units."""

import tomllib
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path

from msgspec import Struct, convert

from ..errors import MachineError
from ..units import parse

FILE = Path(__file__).with_name("cores.toml")


class Core(Struct, frozen=True, kw_only=True, dict=True):
    """A core: the most warps and blocks, registers, bytes of memory, cycles of latency by instruction or level, and pipes.

    ``shared_bytes`` and ``l2_bytes`` are bytes in a cycle from shared memory or L1, and from L2. ``l2_copies`` is how
    many parts of L2 may each keep a copy of the same data. ``warp_products`` is the share of the matrix
    unit's rate that products of single warps reach, ``blocks_per_s`` how many blocks the chip starts. ``interval`` is that of
    measured over predicted times of kernels, ``evidence`` where it was measured.
    """

    capability: tuple[str, ...]
    schedulers: int
    warps: int
    blocks: int
    registers: int
    register_granule: int
    shared: str
    shared_of_block: str
    shared_reserved: str
    l1: str
    shared_bytes: int
    l2_bytes: int
    l2_copies: int
    warp_products: float
    blocks_per_s: float
    source: tuple[str, ...]
    interval: tuple[float, float]
    evidence: str
    latency: Mapping[str, float]
    cycles: Mapping[str, float]
    pipes: Mapping[str, tuple[str, ...]]

    @cached_property
    def _pipe_of(self) -> dict[str, str]:
        return {name: pipe for pipe, names in self.pipes.items() for name in names}

    def pipe_of(self, name: str) -> str | None:
        """The pipe that executes an instruction of this name; the others only take an issue slot."""
        return self._pipe_of.get(name)

    def bytes(self, name: str) -> int:
        """The bytes of one of its memories."""
        return int(parse(getattr(self, name), "B"))


@cache
def cores() -> tuple[Core, ...]:
    """Every core that is described."""
    return convert(tomllib.loads(FILE.read_text("utf-8"))["core"], tuple[Core, ...])


def core_of(capability: str) -> Core:
    """The core of this compute capability."""
    for core in cores():
        if capability in core.capability:
            return core
    known = ", ".join(name for core in cores() for name in core.capability)
    raise MachineError(f"no core of compute capability {capability!r} is described; known: {known}")
