"""Configurations of a kernel as values: what each is predicted to take, what limits it, or why it cannot run; the best first."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import SourceError, UsageError
from ..machine import Machine

HEAD = 200  # bytes of a file that say what it is
EQUAL = 0.05  # configurations this close to the best are not told apart
LIMITS = {
    "matrix": "matrix unit",
    "memory": "memory",
    "core memory": "shared memory and L2 port",
    "vector": "vector units",
    "issue": "instructions",
    "occupancy": "latency, with few blocks on a core",
    "latency": "latency",
    "waves": "the last wave",
    "spills": "spills",
    "dispatch": "starting blocks",
    "launch": "launch",
    "dma": "DMA that nothing hides",
    "bundles": "bundles of the core",
}


class Line(Struct, frozen=True, kw_only=True):
    """A line of the kernel's source: its share of the cycles that a block takes, and of what the block's warps use of each unit."""

    file: str
    line: int
    share: float
    text: str = ""


class Configuration(Struct, frozen=True, kw_only=True):
    """One configuration: ``config`` has the names of the space alone; ``time_s`` is ``None`` if it cannot run, ``refused`` says why.

    ``share`` is the roofline's time over the predicted time, ``parts`` the seconds of everything that overlaps in it, ``limit`` one of
    `LIMITS`. ``registers`` are of a thread, ``spilled`` bytes of a thread in the code, ``memory`` bytes of shared memory, or of VMEM,
    ``per_core`` the blocks on a core at a time, ``waves`` how many times all cores are filled. ``measured_s`` is what a device took, if
    it was asked.
    """

    config: dict[str, Any]
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    share: float | None = None
    limit: str = ""
    refused: str = ""
    parts: dict[str, float] = {}
    grid: tuple[int, ...] = ()
    registers: int | None = None
    spilled: int | None = None
    memory: int | None = None
    per_core: int | None = None
    waves: float | None = None
    work: dict[str, float] = {}
    bytes: dict[str, float] = {}
    lines: tuple[Line, ...] = ()
    slots: dict[str, float] = {}
    measured_s: float | None = None

    @property
    def name(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.config.items()) or "as it is"


class Blocks(Struct, frozen=True, kw_only=True):
    """The configurations of a kernel on a chip, the best first, those that cannot run last."""

    schema: Literal["roofline.blocks/1"] = "roofline.blocks/1"
    kernel: str
    chip: str
    compiler: str
    evidence: str
    configs: tuple[Configuration, ...]

    @property
    def best(self) -> Configuration:
        found = next((config for config in self.configs if config.time_s is not None), None)
        if found is None:
            raise UsageError(
                f"{self.kernel}: no configuration can run on {self.chip}: {self.configs[0].refused if self.configs else 'none given'}"
            )
        return found

    def equals_best(self, config: Configuration) -> bool:
        """Whether a configuration cannot be told from the best one."""
        return config.time_s is not None and self.best.time_s is not None and config.time_s <= self.best.time_s * (1 + EQUAL)


def read_blocks(data: bytes, name: str) -> Blocks | None:
    """What `to_json` wrote of configurations; ``None`` of another file."""
    if b'"roofline.blocks/1"' not in data[:HEAD]:
        return None
    try:
        return msgspec.json.decode(data, type=Blocks)
    except msgspec.DecodeError as error:
        raise SourceError(f"{name}: {error}") from None


def ranked(configs: "list[Configuration]") -> tuple[Configuration, ...]:
    """The best first, those that cannot run last."""
    return tuple(sorted(configs, key=lambda config: (config.time_s is None, config.time_s or 0.0)))


def with_shares(found: list[Configuration], machine: Machine, enough: Mapping[str, float] | None = None) -> list[Configuration]:
    """Configurations with their share of the roofline: the least that any of them computes and moves, or what is ``enough`` if that is
    less, at the chip's full rates.
    """
    timed = [config for config in found if config.time_s is not None]
    least: dict[str, float] = {}
    for resource in {name for config in timed for name in (*config.work, *config.bytes)}:
        least[resource] = min({**config.work, **config.bytes}.get(resource, 0.0) for config in timed)
    for resource, amount in (enough or {}).items():
        least[resource] = min(amount, least.get(resource, amount))
    units: dict[str, float] = {}
    for resource, amount in least.items():
        ceiling = machine.resolve(resource)
        if ceiling:
            units[ceiling.resource.unit] = units.get(ceiling.resource.unit, 0.0) + amount / ceiling.rate
    floor = max(units.values(), default=0.0)
    return [config if config.time_s is None else replace(config, share=floor / config.time_s) for config in found]
