"""Operators, whatever a framework calls them, and the arrays that they take and give."""

from enum import StrEnum
from math import prod

from msgspec import Struct

from ..dtypes import DType


class Operator(StrEnum):
    """What a node computes; `OTHER` is any operator that no rule asks about."""

    DOT = "dot"  # a matrix product, or a batch of them: it takes both factors; the first part of a product with a bias
    ATTENTION = "attention"  # it takes queries, keys and values, then a mask if there is one
    GATHER = "gather"  # slices of its first operand along an axis, at the positions in its second
    SCATTER = "scatter"  # its first operand with one element, the same for all, written at the positions in its second along an axis
    CONCATENATE = "concatenate"
    EQUAL = "equal"
    ADD = "add"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    NEGATE = "negate"
    FILL = "fill"  # one value everywhere; it takes no array
    IOTA = "iota"  # the numbers from 0; it takes no array
    CAST = "cast"
    COPY = "copy"
    VIEW = "view"  # the same elements in another shape or order
    BROADCAST = "broadcast"  # elements of its operand, some of them several times
    SLICE = "slice"  # some elements of its operand
    UPDATE = "update"  # its operands, of which each later one was written over a part of those before
    OTHER = "other"
    RESULT = "result"  # the use of an array after the end of the program; no node of a graph has it


RENAMING = frozenset((Operator.VIEW, Operator.CAST, Operator.COPY))  # the same elements under another name
SCALING = frozenset((Operator.MULTIPLY, Operator.DIVIDE, Operator.NEGATE))


class Sizes(Struct, frozen=True):
    """``batch`` products of matrices of ``rows`` x ``depth`` and ``depth`` x ``columns``."""

    batch: int
    rows: int
    depth: int
    columns: int

    @property
    def multiplications(self) -> int:
        return self.batch * self.rows * self.depth * self.columns

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.batch * self.rows * self.columns


Params = Sizes | int | None  # the sizes of a product; the axis of a gather, scatter or concatenation


class Array(Struct, frozen=True, gc=False):
    """One array. ``strides`` are in elements, ``None`` if the source does not say; it is ``sure`` unless its maker was matched by size."""

    shape: tuple[int, ...]
    dtype: DType | None = None
    strides: tuple[int, ...] | None = None
    sure: bool = True

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def distinct(self) -> int:
        """Elements in memory: along an axis with stride 0 there is one."""
        if self.strides is None:
            return self.elements
        return prod(1 if stride == 0 and size else size for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> int:
        """Bytes of its elements; 0 if the number format is unknown."""
        return self.dtype.bytes(self.elements) if self.dtype is not None else 0
