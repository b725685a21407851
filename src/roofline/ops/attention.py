"""Fused attention of any library: the pairs of a query and a key that are not masked, and the work per pair.

Forward, two products: scores and values. Backward, five: the scores again, the gradients of values, probabilities, queries and keys.
Causal counts half of the square of queries and their own keys.
"""

from fractions import Fraction

from msgspec import Struct

from ..cost import Amount, Cost, tidy
from ..dtypes import DType
from ..operation import Attention as Measured
from ..resource import TRANSCENDENTAL, matrix, vector
from ..workload import COUNTED
from .elementwise import POINTWISE

CAUSAL = f"{COUNTED}half the square (causal)"
WINDOWED = f"{COUNTED}a window of keys for each query, half of it at the ends"
FULL_LENGTHS = "sequence lengths are known only at run time: assuming full sequences"


class Attention(Struct, frozen=True, kw_only=True):
    """One call: sizes, widths of keys and values, the mask, and whether a bias and dropout are fused.

    ``window`` is the number of keys, up to its own, that a query sees; 0 is no window. ``bottom_right`` aligns the causal mask with the
    last key instead of the first.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    key_width: int
    value_width: int
    number: DType
    causal: bool = False
    bottom_right: bool = False
    window: int = 0
    bias: bool = False
    dropout: bool = False

    @property
    def scored(self) -> Amount:
        """Pairs of a query and a key in one head of one sequence."""
        t, s = self.queries, self.keys
        if not self.causal:
            return t * s
        if t == 1:
            return min(s, self.window or s) if self.bottom_right else min(s, 1)
        before = s - t if self.bottom_right else 0  # keys before the first query's own; negative if only late queries see any
        reach = self.window or (t + s)
        return tidy(_area(t, s, before, reach))

    @property
    def pairs(self) -> Amount:
        """Pairs of a query and a key in all heads of all sequences."""
        return self.batch * self.heads * self.scored

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.causal or self.queries == 1:
            return ()
        return (WINDOWED if self.window else CAUSAL,)

    def by_cudnn(self, *, backward: bool) -> Measured:
        """The operation as a kernel of cuDNN, for predictions."""
        return Measured(
            batch=self.batch,
            heads=self.heads,
            queries=self.queries,
            keys=self.keys,
            size=self.key_width,
            causal=self.causal,
            backward=backward,
            dtype=self.number.name,
            library="cudnn",
        )

    def forward(self) -> Cost:
        """2 · pairs · (d + d_v) on the matrix unit; a scale and a softmax on the vector unit, with a bias and dropout where fused."""
        more = self.bias * POINTWISE["bias"].flops + self.dropout * POINTWISE["dropout"].flops
        return scores_and_values(self.pairs, self.key_width, self.value_width, self.number, more=more)

    def backward(self) -> Cost:
        """2 · pairs · (3d + 2d_v) on the matrix unit: scores again, and the gradients of queries, keys, values and probabilities.

        On the vector unit 5 FLOP and an exp per pair: scale, minus the row's logarithm, P·(dP − D) (2), scale again; with a bias 2 more
        (added, and its gradient summed), with dropout 2 more; and D = Σ dO·O, 2 d_v per query.
        """
        flops = self.pairs * (5 + 2 * self.bias + 2 * self.dropout) + 2 * self.batch * self.heads * self.queries * self.value_width
        return _cost(self.pairs, 3 * self.key_width + 2 * self.value_width, self.number, flops, self.pairs)


def scores_and_values(pairs: Amount, key_width: Amount, value_width: Amount, number: DType, sums: str = "fp32", more: int = 0) -> Cost:
    """Two products, a scale and a softmax for a number of pairs, with some more FLOP for each pair."""
    softmax = POINTWISE["softmax"]
    flops = pairs * (softmax.flops + POINTWISE["scale"].flops + more)
    return _cost(pairs, key_width + value_width, number, flops, pairs * softmax.transcendentals, sums)


def _cost(pairs: Amount, widths: Amount, number: DType, flops: Amount, transcendentals: Amount, sums: str = "fp32") -> Cost:
    return Cost.of({matrix(number): tidy(2 * pairs * widths), vector(sums): tidy(flops), TRANSCENDENTAL: tidy(transcendentals)})


def _area(t: int, s: int, before: int, reach: int) -> Fraction:
    """The area of the t x s rectangle where key − query − before is in [−reach, 0]: pairs on its borders count half."""
    return _under(t, s, before) - _under(t, s, before - reach)


def _under(t: int, s: int, offset: int) -> Fraction:
    """The area of 0 ≤ x ≤ t, 0 ≤ y ≤ min(s, x + offset): the integral over x of the height, where that is positive."""
    start = min(max(0, -offset), t)  # below this the height is 0
    full = min(max(start, s - offset), t)  # from here on it is s
    rising = Fraction((full + offset) ** 2 - (start + offset) ** 2, 2)
    return rising + (t - full) * s
