"""Experts that run one after another on every row, of which each row keeps one result: ``where(chosen == e, expert(x), …)``.

A select whose predicate compares a number with a constant selects the rows of one expert. The products that compute the selected rows
belong to that expert, as do earlier products that only these use, and products of gradients on rows that a select set to zero.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..price.elementwise import ELEMENTWISE
from .kernels import Kernels
from .values import RENAMED, Value

_ADDED = frozenset(("add", "subtract"))
_ALONE = ELEMENTWISE - _ADDED - {"multiply", "divide", "select"}
PASSED = (ELEMENTWISE | RENAMED) - {"select"}
MOST_VISITED = 60
_DEEPEST = 60


class Expert(NamedTuple):
    """An expert: the key of the compared number, the constant it is compared with, the number of rows, and the experts per row."""

    number: object
    constant: object
    rows: int
    top: int = 1


class Selection(NamedTuple):
    """A select by row, or a multiplication by a gate per row: the rows it takes, and their expert."""

    select: Value
    taken: Value
    expert: Expert
    is_zero_elsewhere: bool


def products_of_experts(kernels: Kernels, selections: list[Selection]) -> Iterator[tuple[int, int, int]]:
    """The products that belong to one expert each, with the number of experts, and of experts per row."""
    owners: dict[int, Expert | None] = {}
    zeroed: dict[tuple[str, int, str], Expert] = {}
    for one in selections:
        if one.is_zero_elsewhere:
            zeroed[one.select.key] = one.expert
        for index in source_products(kernels, one.taken):
            _own(owners, index, one.expert)
    _own_earlier(kernels, owners)
    masks = _Masks(kernels, zeroed)
    for index, found in kernels.products.items():
        if owners.get(index, ()) == () and (mask := masks.of(found.left) or masks.of(found.right)) is not None:
            owners[index] = mask
    by_number: dict[tuple[object, int], dict[object, list[int]]] = {}
    for index, owner in owners.items():
        if owner is not None:
            by_number.setdefault((owner.number, owner.top), {}).setdefault(owner.constant, []).append(index)
    for (_, top), held in by_number.items():
        sizes = {tuple(sorted(kernels.products[index].flops for index in mine)) for mine in held.values()}
        if len(held) > top and len(sizes) == 1:
            yield from sorted((index, len(held), top) for mine in held.values() for index in mine)


def _own(owners: dict[int, Expert | None], index: int, expert: Expert) -> bool:
    """Assigns a product to an expert, or to none if several use it; whether this changes the assignment."""
    before = owners.get(index, expert)
    owner = expert if before == expert else None
    is_new = index not in owners or owners[index] != owner
    owners[index] = owner
    return is_new


def _own_earlier(kernels: Kernels, owners: dict[int, Expert | None]) -> None:
    """Assigns earlier products to the expert whose products use their results, if they compute every row."""
    pending = list(owners)
    while pending:
        index = pending.pop()
        owner, found = owners[index], kernels.products[index]
        if owner is None:
            continue
        for side in (found.left, found.right):
            for earlier in source_products(kernels, side):
                has_rows = owner.rows in (kernels.products[earlier].rows, kernels.products[earlier].columns)
                if earlier != index and has_rows and _own(owners, earlier, owner):
                    pending.append(earlier)


class _Masks:
    """Which values are zero except in the rows of one expert."""

    def __init__(self, kernels: Kernels, zeroed: dict[tuple[str, int, str], Expert]) -> None:
        self.kernels, self.zeroed = kernels, zeroed
        self._known: dict[tuple[str, int, str], Expert | None] = {}

    def of(self, value: Value, depth: int = 0) -> Expert | None:
        made = self.kernels.values.made_by(value)
        if made.key not in self._known:
            self._known[made.key] = None
            self._known[made.key] = self._find(made, depth + 1) if depth < _DEEPEST else None
        return self._known[made.key]

    def _find(self, made: Value, depth: int) -> Expert | None:
        if made.key in self.zeroed or made.opcode == "select":
            return self.zeroed.get(made.key)
        holder = self.kernels.holding(made)
        found = self.kernels.products.get(holder) if holder is not None else None
        if found is not None and found.made.key == made.key:
            mask = self.of(found.left, depth) or self.of(found.right, depth)
            return mask if mask is not None and mask.rows in (found.rows, found.columns) else None
        operands = self.kernels.values.operands(made)
        if made.opcode in _ADDED:
            masks = {self.of(operand, depth) for operand in operands}
            return masks.pop() if len(masks) == 1 else None
        if made.opcode == "multiply":
            return next((mask for operand in operands if (mask := self.of(operand, depth)) is not None), None)
        passes = made.opcode in RENAMED or made.opcode == "divide" or (made.opcode in _ALONE and len(operands) == 1)
        return self.of(operands[0], depth) if passes and operands else None


def source_products(kernels: Kernels, value: Value, passed: frozenset[str] = PASSED) -> set[int]:
    """The kernels with products that a value is computed from by the opcodes ``passed``: by default elementwise ones except selects."""
    found, pending, seen = set[int](), [value], 0
    while pending and seen < MOST_VISITED:
        seen += 1
        one = kernels.values.made_by(pending.pop())
        holder = kernels.holding(one)
        held = kernels.products.get(holder) if holder is not None else None
        if holder is not None and held is not None and held.made.key == one.key:
            found.add(holder)
        elif one.opcode in passed:
            sides = [side for side in kernels.values.operands(one) if side.shape.is_array]
            pending += [side for side in sides if side.shape.elements == value.shape.elements]
    return found
