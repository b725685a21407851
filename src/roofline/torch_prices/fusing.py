"""Operators that a compiler computes in one kernel with those around them: of each element, or of rows that it reduces."""

from .operators import FOREACH

POINTWISE = frozenset(("elementwise", "cast", "copy", "data movement", "gather"))
REDUCING = frozenset(("normalisation", "softmax", "reduction", "loss"))


def fuses(name: str, category: str) -> bool:
    """Whether an operator of a category is computed in one kernel with those around it, also one on all tensors of a list."""
    return category in POINTWISE or category in REDUCING or (category == "optimizer" and name.startswith(FOREACH))
