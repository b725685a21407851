"""Triton kernels as the compiler left them, with the seconds that an H200 took: `data/blocks/h200.json.gz`.

Triton 3.6 for sm_90, by `roofline.blocks.triton.compiling`; each has its IR, its disassembled machine code, and what it needs of a core.
"""

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from roofline.blocks.triton.compiling import Binary, Lowered

DATA = Path(__file__).parent / "data" / "blocks" / "h200.json.gz"


class Frozen(Struct, frozen=True):
    kernel: str
    shape: tuple[int, ...]
    config: Mapping[str, Any]
    grid: tuple[int, int, int]
    lowered: Lowered
    binary: Binary
    measured_s: float


@cache
def frozen() -> tuple[Frozen, ...]:
    return msgspec.json.decode(gzip.decompress(DATA.read_bytes()), type=tuple[Frozen, ...])


def one_of(kernel: str, **config: int) -> Frozen:
    """The configuration of a kernel with these values."""
    return next(each for each in frozen() if each.kernel == kernel and config.items() <= each.config.items())
