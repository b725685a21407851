"""Operators, whatever a framework calls them, and the arrays that they take and give."""

from enum import StrEnum
from math import prod

from msgspec import Struct

from ..dtypes import DType


class Operator(StrEnum):
    """What a node computes; `OTHER` is any operator that no rule asks about."""

    DOT = "dot"  # a matrix product, or a batch of them: it takes both factors; the first part of a product with a bias
    CONVOLUTION = "convolution"  # it takes the source and the kernel
    CONVOLUTION_GRADIENT = "convolution-gradient"  # it takes the gradient of the result too
    ATTENTION = "attention"  # it takes queries, keys and values, then a mask if there is one; its parameter is the axis of tokens
    ATTENTION_GRADIENT = "attention-gradient"
    GATHER = "gather"  # slices of its first operand along an axis, at the positions in its second
    SCATTER = "scatter"  # its first operand with those of its third written at the positions in its second; without it, one element
    SCATTER_ADD = "scatter-add"  # its first operand with the rows of its third added at the positions in its second
    CONCATENATE = "concatenate"
    EQUAL = "equal"  # to each other, or to the number that is its parameter, if it takes one operand
    DIFFERENT = "different"
    COMPARE = "compare"  # which of two elements is larger
    SELECT = "select"  # by its first operand, elements of the second or the third
    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    NEGATE = "negate"
    REMAINDER = "remainder"
    AND = "and"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    EXPONENTIAL = "exponential"
    SQUARE_ROOT = "square-root"
    ABSOLUTE = "absolute"
    ELEMENTWISE = "elementwise"  # any other function of each element
    REDUCE = "reduce"  # over axes
    PATCHES = "patches"  # windows of its operand, each as one column: the elements of a window are along the second axis
    FOLD = "fold"  # its operand's windows, added up where they overlap: the gradient of patches
    WINDOW = "window"  # a reduction of each window
    SOFTMAX = "softmax"  # along an axis
    LOG_SOFTMAX = "log-softmax"  # the logarithm of that
    NORM = "norm"  # elements relative to others along the same axes, or the gradient of that
    SCAN = "scan"  # a running reduction
    SORT = "sort"  # its operands along an axis, in the order of the first
    TOP_K = "top-k"
    FOURIER = "fourier"  # along axes
    REAL = "real"  # the real part of complex numbers
    FACTOR = "factor"  # a factorisation of matrices
    DECOMPOSE = "decompose"  # another factorisation, or what is computed with it: by LU or QR, eigenvalues, singular values
    SOLVE = "solve"  # of linear systems: it takes the matrices, perhaps triangular, and the columns
    INVERSE = "inverse"  # of matrices
    RANDOM = "random"
    COLLECTIVE = "collective"  # between devices; the `Exchange`, if it is known
    FILL = "fill"  # one value everywhere, which is its parameter; it takes no array
    CONSTANT = "constant"  # given numbers; it takes no array
    IDENTITY = "identity"  # a matrix with ones on its diagonal and zeros elsewhere; it takes no array
    DIAGONAL = "diagonal"  # matrices with the rows of its operand on their diagonals and zeros elsewhere
    IOTA = "iota"  # the numbers from 0; it takes no array
    CAST = "cast"
    COPY = "copy"
    VIEW = "view"  # the same elements in another shape: in the same order in memory, or row by row if its parameter is `ROW_BY_ROW`
    TRANSPOSE = "transpose"  # the same elements with the axes in another order
    BROADCAST = "broadcast"  # elements of its operand, some of them several times
    SLICE = "slice"  # some elements of its operand
    PAD = "pad"  # its first operand with elements around and between its own
    REVERSE = "reverse"
    TRIANGLE = "triangle"  # its operand with zeros above or below a diagonal
    UPDATE = "update"  # its operands, of which each later one was written over a part of those before; the `Part`, if it is known
    LOOP = "loop"  # it takes what the loop begins with, and gives what it ends with
    BRANCH = "branch"
    OTHER = "other"
    RESULT = "result"  # the use of an array after the end of the program; no node of a graph has it


RENAMING = frozenset((Operator.VIEW, Operator.TRANSPOSE, Operator.CAST, Operator.COPY))  # the same elements under another name
SOFTMAXES = frozenset((Operator.SOFTMAX, Operator.LOG_SOFTMAX))
MULTIPLYING = frozenset((Operator.DOT, Operator.CONVOLUTION, Operator.ATTENTION))
SOLVING = frozenset((Operator.FACTOR, Operator.DECOMPOSE, Operator.SOLVE, Operator.INVERSE))
EXPANDED = SOLVING | {Operator.FOURIER}  # compilers may write them out as products
SCALING = frozenset((Operator.MULTIPLY, Operator.DIVIDE, Operator.NEGATE))
SPREADING = RENAMING | {Operator.BROADCAST}
ROW_BY_ROW = 1  # of a view that keeps the order of elements row by row, whatever the order in memory


class Factor(Struct, frozen=True, gc=False):
    """The axes of a factor of a product: those of the batch, those that are summed, and those of the result alone."""

    batch: tuple[int, ...] = ()
    summed: tuple[int, ...] = ()
    free: tuple[int, ...] = ()


class Sizes(Struct, frozen=True, gc=False):
    """``batch`` products of matrices of ``rows`` x ``depth`` and ``depth`` x ``columns``, and the axes of both factors.

    With ``groups`` the rows, or the depth, are that many groups, each multiplied by a matrix of its own.
    """

    batch: int
    rows: int
    depth: int
    columns: int
    left: Factor = Factor()
    right: Factor = Factor()
    groups: int = 0

    @property
    def multiplications(self) -> int:
        return self.batch * self.rows * self.depth * self.columns

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.batch * self.rows * self.columns

    def __str__(self) -> str:
        size = f"{self.rows}×{self.depth}×{self.columns}"
        return f"{self.batch}×({size})" if self.batch > 1 else size


class Axes(Struct, frozen=True, gc=False):
    """Axes by number: of a transposition the operand's axis of each axis of the result, of a broadcast the result's axis of each axis of
    the operand, of a reduction, sort or transform those that it works along. ``function`` is the operator that reduces.
    """

    axes: tuple[int, ...]
    function: Operator | None = None


class Norm(Axes, frozen=True, gc=False):
    """The axes of a norm, which ``has_stored`` means and variances too that it could use instead of those of its operand."""

    has_stored: bool = False


class Part(Struct, frozen=True, gc=False):
    """The part of an array that is cut out: the first element of each axis, the end, and the distance of its elements."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]


class Rows(Struct, frozen=True, gc=False):
    """A gather or scatter of slices of these sizes; ``axes`` are those that positions choose in."""

    sizes: tuple[int, ...]
    axes: tuple[int, ...]


class Pooling(Struct, frozen=True, gc=False):
    """The windows of a reduction: how many elements each has along each axis, and how far windows are apart."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Padding(Struct, frozen=True, gc=False):
    """Elements added before, after and between those of each axis; before and after may be negative. ``value`` is that of all of them, if
    it is known.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]
    value: float | None = None


class Windows(Struct, frozen=True, gc=False):
    """The windows of a convolution: the channels that one of its groups takes and gives, the sizes of a window, how far windows are apart,
    and the axes of the result that are their positions.

    ``is_forward_kernel`` is whether a library's kernel for forward convolutions computes it, whatever it is the gradient of.
    """

    channels: tuple[int, int]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    positions: tuple[int, ...]
    is_forward_kernel: bool = False


DeviceAxes = tuple[tuple[int, int], ...]  # factors of the number of a device, as stride and size, major to minor


class Exchange(Struct, frozen=True, gc=False):
    """A collective: its ``kind``, as XLA calls it, the axes of devices that its groups span, and its channel, which those parts of it share
    that are in several kernels. ``function`` is the operator that reduces.

    The axes are ``None`` where its groups are along none.
    """

    kind: str
    along: DeviceAxes | None = None
    channel: int | None = None
    function: Operator | None = None


# The sizes of a product; the axis of a gather, scatter, concatenation or iota; the value of a fill; and so on.
Params = Sizes | Axes | Exchange | Part | Rows | Padding | Pooling | Windows | int | float | None


HOST = 5  # the memory of the host, as XLA numbers memories


class Array(Struct, frozen=True, gc=False):
    """One array. ``strides`` are in elements, ``None`` if the source does not say; it is ``sure`` unless its maker was matched by size.

    ``space`` is the memory that it lies in: 0 is main memory. With a ``tile``, whole tiles of its last two axes in memory are stored.
    """

    shape: tuple[int, ...]
    dtype: DType | None = None
    strides: tuple[int, ...] | None = None
    sure: bool = True
    space: int = 0
    tile: tuple[int, int] | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def distinct(self) -> int:
        """Elements in memory: along an axis with stride 0 there is one."""
        if self.strides is None:
            return self.elements
        return prod(1 if stride == 0 and size else size for size, stride in zip(self.shape, self.strides, strict=True))

    def order(self, *, in_memory: bool) -> tuple[int, ...]:
        """The axes from the slowest to the fastest, row by row or in memory."""
        if not in_memory or self.strides is None:
            return tuple(range(len(self.shape)))
        return tuple(sorted(range(len(self.shape)), key=lambda axis: (-(self.strides or ())[axis], axis)))

    def distances(self, *, in_memory: bool) -> tuple[int, ...]:
        """How many elements those along each axis are apart, row by row or in memory, without gaps between them."""
        distances, distance = [1] * len(self.shape), 1
        for axis in reversed(self.order(in_memory=in_memory)):
            distances[axis] = distance
            distance *= self.shape[axis]
        return tuple(distances)

    @property
    def bytes(self) -> int:
        """Bytes of its elements; 0 if the number format is unknown."""
        return self.dtype.bytes(self.elements) if self.dtype is not None else 0
