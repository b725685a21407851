"""Operations by their sizes: what a prediction needs to know about an op in addition to its cost.

The cost of an op says how much it computes and moves; how long that takes depends on its shape as well: two products of equal FLOP differ
by their tiles, two attentions by their heads. An op that is none of the types below is predicted from its cost alone.
"""

from functools import cache

from msgspec import Struct

from .dtypes import dtype

Number = int | float


@cache
def width(number: str) -> float:
    """Bytes of one element of a number format."""
    return dtype(number).bits / 8


class Label(Struct, frozen=True):
    """A name of an op that a person recognises, in parts: where it was written, what it does in a word, its sizes, their number format, and
    how many parts its depth was ``split`` in, if it was. An array's format stands before its sizes.

    >>> str(Label("layer0/mlp", "dot", "8192×2048×8192", "bf16")), str(Label("", "sum", "[8,16]", "fp32"))
    ('layer0/mlp  dot 8192×2048×8192 bf16', 'sum fp32[8,16]')
    """

    where: str = ""
    does: str = ""
    sizes: str = ""
    format: str = ""
    split: int = 0

    @property
    def what(self) -> str:
        """What the op does, without where."""
        sized = f"{self.format}{self.sizes}" if self.sizes.startswith("[") else f"{self.sizes} {self.format}".strip()
        words = f"{self.does} {sized}" if sized else self.does
        return f"{words}, depth split in {self.split}" if self.split else words

    def __str__(self) -> str:
        return f"{self.where}  {self.what}" if self.where else self.what


UNLABELLED = Label()


class Product(Struct, frozen=True, kw_only=True, tag="product"):
    """``batch`` matrix products, m x k times k x n; with ``groups``, that many k x n matrices share the m rows (experts).

    ``quantize`` is how the left operand is quantized to 8 bits first: not at all (empty), ``per-tensor`` or ``per-token``. ``tile`` (rows
    and columns of one block's part of the result) and ``split`` (ways to split k) are those of the kernel that ran, where they are known.
    ``turned`` is how many operands are not contiguous along k, of those that do not have 16 bits: a matrix unit loads such formats only
    along k. ``widened`` is how many bytes fewer the operands take in memory than in the formats ``left`` and ``right``, to which the kernel
    converts them.
    """

    m: Number
    k: Number
    n: Number
    batch: Number = 1
    groups: Number = 0
    left: str = "bf16"
    right: str = "bf16"
    out: str = "bf16"
    compute: str = "bf16"
    quantize: str = ""
    tile: tuple[int, int] | None = None
    split: int | None = None
    turned: int = 0
    widened: Number = 0

    @property
    def flops(self) -> float:
        return 2.0 * float(self.batch) * float(self.m) * float(self.k) * float(self.n)

    @property
    def bytes(self) -> float:
        """Operands read and the result written, once."""
        left, right, out = width(self.left), width(self.right), width(self.out)
        m, k, n = float(self.m), float(self.k), float(self.n)
        return float(self.batch) * (left * m * k + right * max(float(self.groups), 1.0) * k * n + out * m * n)


class Convolution(Struct, frozen=True, kw_only=True, tag="convolution"):
    """A convolution or a gradient of one: FLOP = 2 x ``batch`` x ``features`` x ``pairs``.

    ``features`` is input channels of a group times output channels; ``pairs`` is the number of pairs of an output position and a filter tap
    whose input is not padding. ``bytes`` counts its arrays once each, without inputs that a stride skips; ``None`` where the kernel
    contains other ops too. ``groups`` is the number of groups of channels, as many as input channels where it is depthwise.
    """

    batch: Number
    features: Number
    pairs: Number
    bytes: Number | None = None
    compute: str = "bf16"
    groups: int = 1

    @property
    def flops(self) -> float:
        return 2.0 * float(self.batch) * float(self.features) * float(self.pairs)


class Attention(Struct, frozen=True, kw_only=True, tag="attention"):
    """Attention in one kernel, of ``queries`` tokens over ``keys`` in each of ``batch`` sequences; scores stay on chip.

    ``library`` is where the kernel comes from: ``cudnn``, or serving frameworks (empty).
    """

    batch: Number
    heads: Number
    queries: Number
    keys: Number
    size: Number
    kv_heads: Number | None = None
    causal: bool = False
    backward: bool = False
    dtype: str = "bf16"
    library: str = ""

    @property
    def groups(self) -> Number:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def is_decode(self) -> bool:
        """One new token per sequence, over a cache."""
        return self.queries == 1 and not self.backward

    @property
    def shares_keys(self) -> bool:
        return self.groups < self.heads


class RowWise(Struct, frozen=True, kw_only=True, tag="row-wise"):
    """An op that needs a whole row before it can finish any of it: a normalisation, a softmax, a sum along rows."""

    rows: Number
    columns: Number
    kind: str = ""


GATHERED, INTERLEAVED, COMPLEX = "gathered", "interleaved", "complex"
BYTE_TRANSPOSE = "byte transpose"  # of elements of 8 bits, one by one


class Streamed(Struct, frozen=True, kw_only=True, tag="streamed"):
    """A kernel that reads elements, computes or moves each of them, and writes them. ``kind`` is ``transpose``, a compiler's ``fusion``, …

    An ``interleaved`` one computes each element from other positions of several arrays and reads many of them repeatedly; a ``gathered``
    one looks up rows first; a ``complex`` one computes with complex numbers.

    ``elements`` is their number, where the kernel handles them one by one; ``narrowed`` is how many of them it converts to 8-bit floats.
    """

    kind: str
    elements: Number = 0
    narrowed: Number = 0


class Scattered(Struct, frozen=True, kw_only=True, tag="scattered"):
    """Elements written to, or added to, places of an array of ``rows`` rows of ``columns`` numbers each."""

    rows: int
    columns: int
    number: str

    @property
    def bytes(self) -> float:
        return self.rows * self.columns * width(self.number)


class Collective(Struct, frozen=True, kw_only=True, tag="collective"):
    """An exchange of ``bytes`` (of the whole payload) between ``devices`` over one kind of link."""

    kind: str
    devices: Number
    bytes: Number
    link: str = ""


class MatrixWork(Struct, frozen=True, kw_only=True):
    """Products of one execution, by how their sizes fill a matrix unit: ``depth`` contracted elements fill its rows, one of ``widths`` its
    columns, whichever the compiler puts there. It ``is_compilers`` if a compiler wrote them out of a transform, a factorisation or a solve.
    """

    flops: int
    depth: int
    widths: tuple[int, ...]
    compute: str = "bf16"
    is_compilers: bool = False

    def fill(self, side: int) -> float:
        """The share of a unit of ``side`` rows and columns that works: the rest multiplies padding.

        >>> MatrixWork(flops=1, depth=64, widths=(64, 4096)).fill(128)
        0.5
        """
        return _filled(self.depth, side) * max(_filled(width, side) for width in self.widths)


def _filled(size: int, side: int) -> float:
    return size / (-(-size // side) * side)


class Compiled(Struct, frozen=True, kw_only=True):
    """What a compiled program says of an op besides its cost.

    ``beside`` is whether it runs beside the ops after it: an asynchronous copy or collective; ``in_place`` whether it writes over an
    operand. ``axes`` are those of the slice over whose links a collective goes, by number; empty where it goes over all, or they are not
    known. ``cycles`` is the compiler's own estimate of one execution, in cycles of one core, ``products`` its work on the matrix unit.
    """

    beside: bool = False
    in_place: bool = False
    axes: tuple[int, ...] = ()
    cycles: float | None = None
    products: tuple[MatrixWork, ...] = ()


UNSTATED = Compiled()


Operation = Product | Convolution | Attention | RowWise | Streamed | Scattered | Collective
