"""Reductions and scans: applications of an operation to the elements of rows. Comparisons are not FLOP."""

# FLOP to reduce a row of n elements to one value: (a, b) is a·n + b.
REDUCTION_FLOPS = {"sum": (1, -1), "mean": (1, 0), "norm": (2, -1), "max": (0, 0), "min": (0, 0), "argmax": (0, 0), "argmin": (0, 0)}


def running(elements: int, length: int) -> int:
    """Applications in the running totals of rows of a length: one for each element but the first of a row.

    >>> running(12, 4), running(0, 0)
    (9, 0)
    """
    return elements - elements // length if length else 0
