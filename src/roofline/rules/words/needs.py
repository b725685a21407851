"""What levers need of a program: which of it is missing, and the change that brings it."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from ...graph import Graph
from ...graph.facts.scores import attention_scores
from . import NEEDS


class Need(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What some levers need: operands of at most so many ``bits``, and heads of a ``multiple`` of elements, at ``most`` so many.

    ``change`` is the ``whatif`` change that brings the format, ``first`` the words for it; ``padded`` and ``smaller`` those for heads.
    """

    bits: int
    multiple: int
    most: int
    change: str
    first: str
    padded: str
    smaller: str


class Missing(Struct, frozen=True):
    """What a program lacks for a lever: in words, and the ``whatif`` change that brings it, if there is one."""

    words: tuple[str, ...] = ()
    change: str = ""

    def before(self, levers: Sequence[str]) -> tuple[str, ...]:
        """The levers with what has to be done first."""
        return tuple(f"{' and '.join(self.words)}: {lever}" for lever in levers) if self.words else tuple(levers)


@cache
def needs() -> Mapping[str, Need]:
    """Every need, by its name."""
    return msgspec.toml.decode(NEEDS.read_bytes(), type=dict[str, Need])


def missing(need: str, graphs: Iterable[Graph]) -> Missing:
    """What the attention of these programs lacks for levers with a need; what is not known is not missing."""
    scores = [(graph, attention.first) for graph in graphs for attention in graph.fact(attention_scores)]
    factors = [(graph.arrays[product.takes[0]].dtype, float(product.sizes.depth)) for graph, product in scores]
    if not need or not factors:
        return Missing()
    asked = needs()[need]
    is_wide = 2 * sum(number is not None and number.bits > asked.bits for number, _ in factors) > len(factors)
    size = max(size for _, size in factors)
    words = [asked.first] if is_wide else []
    if size > asked.most:
        words.append(asked.smaller)
    elif size % asked.multiple:
        words.append(asked.padded)
    return Missing(tuple(words), asked.change if is_wide else "")
