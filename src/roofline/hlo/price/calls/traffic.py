"""The bytes of a library call: every operand read once, every result written once, without workspaces.

An array that is passed twice, or through bitcasts, is read once. Bytes belong to the memory that the array is in, or to the link to it.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec.structs import replace

from ....cost import Cost
from ....errors import FormulaError
from ....ops.movement import moved
from ....resource import UNNAMED_WORK
from ...ir.platforms import Platform
from ...ir.renaming import Place, source
from ...ir.shapes import Shape
from ..memory_spaces import level
from ..types import Price, Site

_SCRATCH = ("s8", "u8")


def traffic_of(operands: Iterable[Shape], results: Iterable[Shape], platform: Platform) -> Cost:
    """Every array of the operands read and every one of the results written once; unknown where a dimension has no bound."""
    return _traffic(tuple(operands), tuple(results), platform)


@lru_cache(maxsize=1_000)  # a program repeats its calls for each layer
def _traffic(operands: tuple[Shape, ...], results: tuple[Shape, ...], platform: Platform) -> Cost:
    leaves = ((leaf, access) for shapes, access in ((operands, "read"), (results, "write")) for shape in shapes for leaf in shape.leaves)
    placed = ((level(leaf, platform, access), leaf) for leaf, access in leaves if leaf.is_array)
    return moved((place, leaf.bytes if leaf.is_bounded else None) for place, leaf in placed if place is not None)


def results(site: Site) -> tuple[Shape, ...]:
    """The arrays of a call's result, in order, with tuples flattened."""
    return tuple(leaf for leaf in site.instruction.shape.leaves if leaf.is_array)


def outputs(site: Site) -> tuple[Shape, ...]:
    """The arrays of a library call's result without its workspace: one-dimensional bytes at the end of a tuple."""
    leaves = results(site)
    if len(leaves) > 1 and leaves[-1].dtype in _SCRATCH and leaves[-1].rank == 1:
        return leaves[:-1]
    return leaves


def traffic(site: Site, written: Iterable[Shape] | None = None, read: Mapping[int, int] = MappingProxyType({})) -> Cost:
    """Every distinct operand read once, and every output (or those named) written once.

    ``read`` has, by the place of the operand, how many elements are read where not all are.
    """
    shapes = [_some_of(operand.shape, read.get(place)) for place, operand in enumerate(site.operands)]
    distinct = dict(zip(origins(site), shapes, strict=True))
    return traffic_of(distinct.values(), outputs(site) if written is None else written, site.platform)


def _some_of(shape: Shape, elements: int | None) -> Shape:
    """An array of some elements of another, in its memory."""
    return shape if elements is None or elements >= shape.elements else replace(shape, dims=(elements,), dynamic=())


def origins(site: Site) -> list[Place]:
    """Where each operand comes from: equal for two bitcasts of one array, and for a part of a tuple taken twice."""
    return [source(site.computation, index) for index in site.instruction.operands]


def priced(
    site: Site,
    work: Cost,
    category: str,
    *notes: str,
    written: Iterable[Shape] | None = None,
    read: Mapping[int, int] = MappingProxyType({}),
) -> Price:
    """A call with this arithmetic and the traffic of its shapes."""
    return Price(work + traffic(site, written, read), category, tuple(note for note in notes if note))


def unpriced(site: Site, why: str, category: str = "custom call") -> Price:
    """A call whose bytes are known from its shapes and whose arithmetic is unknown."""
    return priced(site, Cost.of({UNNAMED_WORK: None}), category, why)


class Misfit(FormulaError):
    """A configuration that does not fit the shapes of its call; the call's arithmetic stays unknown."""


def operand(site: Site, number: int) -> Shape:
    """The shape of one operand, an array."""
    operands = site.operands
    if not 0 <= number < len(operands) or not operands[number].shape.is_array:
        raise Misfit(f"{site.instruction.custom_call_target} has no array as operand {number}")
    return _bounded(operands[number].shape)


def output(site: Site, number: int = 0) -> Shape:
    """The shape of one result, an array."""
    leaves = results(site)
    if number >= len(leaves):
        raise Misfit(f"{site.instruction.custom_call_target} has no array as result {number}")
    return _bounded(leaves[number])


def _bounded(shape: Shape) -> Shape:
    if not shape.is_bounded:
        raise Misfit(f"{shape} has a dimension without bound")
    return shape
