"""Operators that a compiler computes in one kernel with those around them: of each element, or of rows that it reduces."""

POINTWISE = frozenset(("elementwise", "cast", "copy", "data movement", "gather"))
REDUCING = frozenset(("normalisation", "softmax", "reduction", "loss"))


def fuses(category: str) -> bool:
    """Whether operators of a category are computed in one kernel with those around them."""
    return category in POINTWISE or category in REDUCING
