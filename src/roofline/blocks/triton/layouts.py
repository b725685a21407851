"""How the threads of a warp share a tile: the layouts that Triton's compiler gives loads and stores, and the lines of memory that a warp
touches at a time with them.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from .addresses import Evaluation
from .ir import located

LINE = 128  # bytes of a line of L1, of which one is looked up in a cycle
WARP = 32
Line = tuple[str, int]
_LAYOUT = re.compile(
    r"^(#\w+) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\], threadsPerWarp = \[([\d, ]+)\],.* order = \[([\d, ]+)\]", re.MULTILINE
)
_ACCESS = re.compile(r"(?:tt\.load|tt\.store|ttg\.async_copy_global_to_local) .*?tensor<[^<]*!tt\.ptr<[^>]*>, (#\w+)>")


class Layout(Struct, frozen=True):
    """Elements next to each other that a thread has, and threads of a warp, along each axis, and the axes from the fastest."""

    elements: tuple[int, ...]
    threads: tuple[int, ...]
    order: tuple[int, ...]

    def places(self) -> np.ndarray:
        """The first element of each thread of a warp, along each axis."""
        lanes, places = np.arange(WARP), np.zeros((len(self.order), WARP), np.int64)
        for axis in self.order:
            places[axis], lanes = lanes % self.threads[axis] * self.elements[axis], lanes // self.threads[axis]
        return places


def layouts_of(ir: str) -> tuple[tuple[Line, Layout], ...]:
    """The layouts of loads and stores in Triton's GPU IR, by their lines of source."""
    layouts = {name: Layout(*(tuple(map(int, part.split(","))) for part in parts)) for name, *parts in _LAYOUT.findall(ir)}
    rows = ((row, found[1]) for row in ir.splitlines() if (found := _ACCESS.search(row)))
    places = located(ir)
    return tuple((places(row), layouts[name]) for row, name in rows if name in layouts)


def touched_lines(layouts: Sequence[tuple[Line, Layout]], samples: Evaluation) -> dict[Line, float]:
    """For each line of source the lines of memory that a warp touches with one of its loads or stores, from whole tiles of some blocks."""
    found: defaultdict[Line, list[int]] = defaultdict(list)
    for place, layout in layouts:
        for access in samples.accesses:
            shape = access.tile.shape
            if (access.operation.file, access.operation.line) != place or access.addresses is None or len(shape) != len(layout.order):
                continue
            tile = np.broadcast_to(access.addresses, (*access.addresses.shape[:1], *shape))[-1]
            index = tuple(places % size for places, size in zip(layout.places(), shape, strict=True))
            found[place].append(len(np.unique(tile[index] // LINE)))
    return {place: sum(counts) / len(counts) for place, counts in found.items()}
