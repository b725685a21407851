"""Columns as arrays."""

from typing import Any

import numpy as np

# NDArray would say the same, but importing it takes 5 ms.
Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def distinct(values: Integers) -> Integers:
    """The different values, in order.

    >>> distinct(np.array([3, 1, 3, 2, 1])).tolist()
    [1, 2, 3]
    """
    ordered = np.sort(values)  # np.unique would import numpy.ma, which takes longer than a small trace has events to sort
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
