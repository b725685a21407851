"""The cost of a TPU's collective on ICI, from its HLO text: bytes through the busiest link of a ring, and hops.

The formula is that of `roofline.formulas.collective`. It is repeated here because importing the modules that parse and price whole programs
takes longer than reading a profile of a million events.
"""

import re
from collections.abc import Callable
from math import prod

from ...cost import Cost, part_of
from ...dtypes import dtype
from ...errors import FormulaError

LINK, HOP = "ici", "ici/hop"
_ARRAY = r"\b([a-z][a-z0-9]*)\[([\d,]*)\]"
_IOTA_GROUPS = r"replica_groups=\[(\d+(?:,\d+)*)\]<="
_GROUPS = r"replica_groups=\{\{([\d,]*)\}"
_TARGETS = r"source_target_pairs=\{(.*?)\}\}"
_PAIR = r"(\d{1,9}),(\d{1,9})"


def collective_cost(opcode: str, text: str) -> Cost | None:
    """The cost of one execution; ``None`` if the text does not show it (a group of all devices, or a collective inside a fusion)."""
    kind = opcode.removesuffix("-start")
    chips, size = group_size(kind, text), operand_bytes(opcode, text)
    if chips is None or not size:
        return None
    if chips == 1:
        return Cost.of({"hbm": 2 * size})
    ring = _RINGS.get(kind)
    if ring is None:
        return None
    crossing, of, hops = ring(chips)
    return Cost.of({LINK: part_of(size, crossing, of), HOP: hops})


# The fraction of the operands' bytes on the busiest link of a ring of p chips, in one direction (numerator, denominator), and hops.
_RINGS: dict[str, Callable[[int], tuple[int, int, int]]] = {
    "all-reduce": lambda p: (2 * (p - 1), p, 2 * (p - 1)),
    "all-gather": lambda p: (p - 1, 1, p - 1),
    "reduce-scatter": lambda p: (p - 1, p, p - 1),
    "all-to-all": lambda p: (p - 1, 2, p - 1),
    "collective-permute": lambda p: (1, 1, 1),
    "collective-broadcast": lambda p: (1, 1, p - 1),
}


def group_size(kind: str, text: str) -> int | None:
    """The number of devices in a group of the collective.

    >>> group_size("all-reduce", "replica_groups=[4,2]<=[2,4]T(1,0)"), group_size("all-gather", "replica_groups={{0,1,2},{3,4,5}}")
    (2, 3)
    """
    if kind == "collective-permute":
        pairs = source_target_pairs(text)
        return 1 + any(source != target for source, target in pairs) if pairs else None
    iota = re.search(_IOTA_GROUPS, text)
    if iota is not None:
        return prod(int(side) for side in iota[1].split(",")[1:])
    listed = re.search(_GROUPS, text)
    return len(listed[1].split(",")) if listed is not None and listed[1] else None


def source_target_pairs(text: str) -> list[tuple[int, int]]:
    """The devices that send in a permute, each with the one that it sends to; none in any other instruction.

    >>> source_target_pairs("collective-permute(f32[8]{0} %x), source_target_pairs={{0,1},{1,0}}")
    [(0, 1), (1, 0)]
    """
    targets = re.search(_TARGETS, text)
    return [(int(source), int(target)) for source, target in re.findall(_PAIR, targets[1])] if targets else []


def operand_bytes(opcode: str, text: str) -> int:
    """The bytes of an instruction's operands, from their shapes."""
    operands = text.partition(f" {opcode}(")[2].partition("), ")[0]
    total = 0
    for name, dims in re.findall(_ARRAY, operands):
        try:
            total += dtype(name).bytes(prod(int(dim) for dim in dims.split(",") if dim))
        except FormulaError:
            return 0
    return total
