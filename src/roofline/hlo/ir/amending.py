"""Attributes of instructions that are not read from the file when they are asked for: converted, replaced and added ones."""

from msgspec import Struct
from msgspec.structs import replace

from .attributes import SliceRange
from .malformed import Malformed
from .module import Dialect, Instruction
from .shapes import Shape


class MappedDialect(Struct, frozen=True):
    """The dialect of instructions whose ``raw`` is a mapping of HLO attributes by name: those from StableHLO, and new ones."""

    where: str
    unit: str = "line"  # the unit of places in error messages

    def attribute(self, raw: object, name: str) -> object | None:
        assert isinstance(raw, dict)
        return raw.get(name)

    def names(self, raw: object) -> tuple[str, ...]:
        assert isinstance(raw, dict)
        return tuple(raw)

    def unread(self, raw: object) -> tuple[tuple[str, object], ...] | None:
        assert isinstance(raw, dict)
        items = tuple([item for item in raw.items() if item[0] != "metadata"])
        return None if any(isinstance(value, dict) for _, value in items) else items

    def place(self, place: int) -> str:
        return f"{self.unit} {place:,}"


class Amended(Struct, frozen=True):
    """The dialect of amended instructions, whose ``raw`` is a pair: the original ``raw``, and a mapping of replaced or added attributes."""

    base: Dialect

    @property
    def where(self) -> str:
        return self.base.where

    def attribute(self, raw: object, name: str) -> object | None:
        before, new = _halves(raw)
        return new[name] if name in new else self.base.attribute(before, name)

    def names(self, raw: object) -> tuple[str, ...]:
        before, new = _halves(raw)
        return tuple(dict.fromkeys((*self.base.names(before), *new)))

    def unread(self, raw: object) -> None:
        return None

    def place(self, place: int) -> str:
        return self.base.place(place)


def _halves(raw: object) -> tuple[object, dict[str, object]]:
    if not isinstance(raw, tuple) or len(raw) != 2 or not isinstance(raw[1], dict):
        raise Malformed("attributes that were not amended")
    return raw[0], raw[1]


def amended(instruction: Instruction, **attributes: object) -> Instruction:
    """The same instruction with some attributes replaced or added."""
    return replace(instruction, raw=(instruction.raw, attributes), dialect=Amended(instruction.dialect))


def created(like: Instruction, name: str, opcode: str, shape: Shape, operands: tuple[int, ...], **attributes: object) -> Instruction:
    """A new instruction, of the place in its file that another one has."""
    dialect = like.dialect if isinstance(like.dialect, MappedDialect) else MappedDialect(like.dialect.where)
    return Instruction(name, opcode, shape, operands, (), (), like.place, attributes, dialect)


def resized(instruction: Instruction, before: Shape, after: Shape, shape: Shape) -> Instruction:
    """An instruction of a new shape, with sizes in its attributes that fit it; ``before`` and ``after`` are shapes of its first operand."""
    new = replace(instruction, shape=shape)
    if instruction.opcode == "slice":
        sides = zip(instruction.slices, before.dims, after.dims, shape.dims, strict=True)
        return amended(new, slice=tuple(_refitted(cut, size, left) if size != whole else cut for cut, whole, size, left in sides))
    if instruction.opcode == "dynamic-slice":
        return amended(new, dynamic_slice_sizes=shape.dims)
    if instruction.opcode == "gather":
        sizes = zip(instruction.integers("slice_sizes"), before.dims, after.dims, strict=True)
        return amended(new, slice_sizes=tuple(size if taken == whole else taken for taken, whole, size in sizes))
    return new


def _refitted(cut: SliceRange, size: int, taken: int) -> SliceRange:
    """As a slice takes so many elements of a dimension that now has this size."""
    return SliceRange(cut.start, min(cut.start + taken * (cut.stride or 1), size), cut.stride)
