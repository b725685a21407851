"""Array types of columns."""

from typing import Any

import numpy as np

# The same as NDArray, whose import takes 5 ms.
Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def distinct(values: Integers) -> Integers:
    """The distinct values, sorted.

    >>> distinct(np.array([3, 1, 3, 2, 1])).tolist()
    [1, 2, 3]
    """
    ordered = np.sort(values)  # np.unique would import numpy.ma, which takes longer than sorting a small trace
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
