"""Operations by their sizes: what a prediction needs to know of an op beside its cost.

The cost of an op says how much it computes and moves; how long that takes depends on its shape as well: two products of equal FLOP differ
by their tiles, two attentions by their heads. An op that none of these describes is predicted from its cost alone.
"""

from functools import cache

from msgspec import Struct

from .cost import Amount
from .dtypes import dtype


@cache
def width(number: str) -> float:
    """Bytes of one element of a number format."""
    return dtype(number).bits / 8


class Product(Struct, frozen=True, kw_only=True, tag="product"):
    """``batch`` products of matrices, m x k times k x n; with ``groups``, that many of different rows, m in all, as of experts.

    ``quantize`` is how the left operand becomes 8 bits wide before: not at all (empty), ``per-tensor`` or ``per-token``. ``tile`` (rows and
    columns of one block's part of the result) and ``split`` (ways to split k) are those of the kernel that ran, where they are known.
    ``turned`` is how many operands of other than 16 bits do not lie in memory along k: a matrix unit loads those along k alone.
    ``widened`` is how many bytes its operands take less in memory, where the kernel itself makes them as wide as ``left`` and ``right``.
    """

    m: Amount
    k: Amount
    n: Amount
    batch: Amount = 1
    groups: Amount = 0
    left: str = "bf16"
    right: str = "bf16"
    out: str = "bf16"
    compute: str = "bf16"
    quantize: str = ""
    tile: tuple[int, int] | None = None
    split: int | None = None
    turned: int = 0
    widened: Amount = 0

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
    """A convolution or a gradient of one: for each of ``batch`` images, ``pairs`` of an output and a tap whose input exists, and in each
    the product of ``features``, input channels of a group times output channels.

    ``bytes`` is that of its arrays, once each, without inputs that a stride steps over; ``None`` where other ops are in the kernel.
    """

    batch: Amount
    features: Amount
    pairs: Amount
    bytes: Amount | None = None
    compute: str = "bf16"

    @property
    def flops(self) -> float:
        return 2.0 * float(self.batch) * float(self.features) * float(self.pairs)


class Attention(Struct, frozen=True, kw_only=True, tag="attention"):
    """Attention in one kernel, of ``queries`` tokens over ``keys`` in each of ``batch`` sequences; scores stay on chip.

    ``library`` is whose kernel it is: ``cudnn``, or that of serving frameworks (empty).
    """

    batch: Amount
    heads: Amount
    queries: Amount
    keys: Amount
    size: Amount
    kv_heads: Amount | None = None
    causal: bool = False
    backward: bool = False
    dtype: str = "bf16"
    library: str = ""

    @property
    def groups(self) -> Amount:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def is_decode(self) -> bool:
        """One new token a sequence over a cache."""
        return self.queries == 1 and not self.backward

    @property
    def shares_keys(self) -> bool:
        return self.groups < self.heads


class RowWise(Struct, frozen=True, kw_only=True, tag="row-wise"):
    """An op that needs a whole row before it can finish any of it: a normalisation, a softmax, a sum along rows."""

    rows: Amount
    columns: Amount
    kind: str = ""


GATHERED, INTERLEAVED = "gathered", "interleaved"
BYTE_TRANSPOSE = "byte transpose"  # of elements of 8 bits, one by one


class Streamed(Struct, frozen=True, kw_only=True, tag="streamed"):
    """Elements that are read, treated alike or put elsewhere, and written, by a kind of kernel: ``transpose``, a compiler's ``fusion``.

    One that is ``interleaved`` computes each element from other places of several arrays, many of them again and again; one that is
    ``gathered`` looks up rows first.

    ``elements`` is how many there are, where the kernel treats them one by one; ``narrowed`` how many it writes as 8-bit floats, each of
    which it converts.
    """

    kind: str
    elements: Amount = 0
    narrowed: Amount = 0


class Collective(Struct, frozen=True, kw_only=True, tag="collective"):
    """An exchange of ``bytes`` (of the whole payload) between ``devices`` over one kind of link."""

    kind: str
    devices: Amount
    bytes: Amount
    link: str = ""


Operation = Product | Convolution | Attention | RowWise | Streamed | Collective
