"""The bundles that the TPU compiler schedules for a kernel: how many cycles they take, loops by their trips, and what keeps the matrix
units.

A line of `*-final_bundles.txt` is an address, flags (``LB`` begins a loop's body), a ``>`` for each loop around it, and the instructions
of one cycle. The exit test of a loop holds its trip count. A product of 16 rows keeps its matrix unit for more than one bundle. Bodies
behind a predicate count in each trip, so a kernel that skips blocks takes less.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ...errors import SourceError

_BUNDLE = re.compile(r"^\s*(0x[0-9a-f]+|0)\s+(?:([A-Z]{2}(?:,? ?[A-Z]{2})*)\s*)?:\s*((?:> ?)*)\s*\{(.*)$")
_EXIT = re.compile(r"scmp\.(?:ge|ne|eq|lt)\.s32\.totalorder %\S+, (\d+) /\* loop exit test")
_OPERATION = re.compile(r"= (v[a-z][\w.]*)")
_UNIT = re.compile(r"mxu\d")
# Bundles that a product of 16 rows keeps its unit: a row a cycle, two from v6e on (reference of each chip's matrix unit, and the bundles
# of XLA's own products, libtpu 0.0.51, 2026-10); half of that for formats of one byte.
HELD: Mapping[str, float] = {"v2": 8, "v3": 8, "v4": 16, "v5e": 16, "v5p": 16, "v6e": 8, "v7x": 8}
# slots of a bundle, by how their operations begin
SLOTS: Mapping[str, tuple[str, ...]] = {
    "matrix": ("vmatmul", "vmatpush", "vmatprep", "vlatch", "vdwg", "vmatres"),
    "load": ("vld",),
    "store": ("vst",),
    "functions": ("vpow2", "vrcp", "vlog2", "vtanh", "vrsqrt", "verf", "vsin", "vcos"),
    "cross-lane": ("vxpose", "vrot", "vperm", "vbcast", "vsublane"),
}


class Bundles(Struct, frozen=True, kw_only=True):
    """A kernel's bundles in its code, those that it executes, the cycles that its busiest matrix unit is kept, operations by slot, and
    spilled registers' stores and loads in its code. ``always`` are the executed ones that no predicate skips.
    """

    written: int
    executed: float
    always: float
    matrix: float
    slots: Mapping[str, float]
    spilled: int

    @property
    def cycles(self) -> float:
        return max(self.executed, self.matrix)

    def of_active(self, share: float) -> "Bundles":
        """The same where only a share of the kernel's products runs: conditions skip the rest, with the bundles behind them."""
        if share >= 1:
            return self
        skipped = (1 - share) * (self.executed - self.always)
        return replace(self, executed=self.executed - skipped, matrix=share * self.matrix)


def read_bundles(text: str, family: str) -> Bundles:
    """A kernel's bundles from the compiler's file, for a generation of chips (``v6e``)."""
    if family not in HELD:
        raise SourceError(f"bundles of {family} are not understood; known: {', '.join(HELD)}")
    rows = [(found[2] or "", found[3].count(">"), found[4]) for line in text.splitlines() if (found := _BUNDLE.match(line))]
    trips = _trips(rows)
    held: Counter[str] = Counter()
    slots: defaultdict[str, float] = defaultdict(float)
    for runs, (_, _, instructions) in zip(trips, rows, strict=True):
        for operation in _OPERATION.findall(instructions):
            slots[_slot(operation)] += runs
            if operation.startswith("vmatmul"):
                unit = _UNIT.search(operation)
                width = 1.0 if "bf16" in operation or "f32" in operation else 0.5
                held[unit[0] if unit else "any"] += runs * HELD[family] * width  # type: ignore[assignment]
    units = [cycles for unit, cycles in held.items() if unit != "any"]
    skipped = _skipped(rows)
    return Bundles(
        written=len(rows),
        executed=sum(trips),
        always=sum(runs for place, runs in enumerate(trips) if place not in skipped),
        matrix=max([*units, held["any"] / 2]),
        slots=dict(slots),
        spilled=sum(instructions.count("_spill]") for _, _, instructions in rows),
    )


def _slot(operation: str) -> str:
    return next((slot for slot, names in SLOTS.items() if operation.startswith(names)), "vector")


def _trips(rows: list[tuple[str, int, str]]) -> list[float]:
    """How often each bundle runs: a loop's body ends at the branch after its exit test."""
    trips = [1.0] * len(rows)
    begun: list[tuple[int, int]] = []
    for place, (flags, depth, instructions) in enumerate(rows):
        if "LB" in flags:
            begun.append((place, depth))
        found = _EXIT.search(instructions)
        if found and begun:
            start, inside = begun.pop()
            end = place
            while end + 1 < len(rows) and rows[end + 1][1] >= inside and "sbr.rel" not in rows[end][2]:
                end += 1
            for each in range(start, end + 1):
                trips[each] *= int(found[1])
    return trips


def _skipped(rows: list[tuple[str, int, str]]) -> set[int]:
    """The bundles between a branch forward under a predicate and the point where the code goes on."""
    skipped: set[int] = set()
    begun: list[int] = []
    for place, (flags, _, instructions) in enumerate(rows):
        if "PF" in flags and begun:
            skipped |= set(range(begun.pop() + 1, place))
        if "sbr.rel" in instructions and "(%" in instructions and not _closes(rows, place):
            begun.append(place)
    return skipped


def _closes(rows: list[tuple[str, int, str]], place: int) -> bool:
    """Whether a branch is that back to the beginning of a loop: the exit test is a few bundles before it."""
    return any(_EXIT.search(instructions) for _, _, instructions in rows[max(0, place - 12) : place + 1])
