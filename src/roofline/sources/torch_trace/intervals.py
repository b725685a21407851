"""Intervals of time in columns: their union, and the part of each that no earlier one covers."""

import numpy as np

from .read.arrays import Integers


def uncovered(start: Integers, end: Integers) -> Integers:
    """The length of each interval that no earlier one covers; intervals are sorted by begin. The sum is the length of their union.

    >>> uncovered(np.array([0, 2, 3, 20]), np.array([10, 5, 12, 21])).tolist()
    [10, 0, 2, 1]
    """
    if not len(start):
        return np.zeros(0, np.int64)
    before = np.concatenate(([start[0]], np.maximum.accumulate(end)[:-1]))
    left: Integers = np.maximum(end - np.maximum(start, before), 0)
    return left


def merged(start: Integers, end: Integers) -> Integers:
    """The union of intervals, which are sorted by begin, as disjoint intervals: begin, end, begin, end, …

    >>> merged(np.array([0, 2, 20]), np.array([10, 12, 21])).tolist()
    [0, 12, 20, 21]
    """
    if not len(start):
        return np.zeros(0, np.int64)
    reach = np.maximum.accumulate(end)
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return np.stack((start[opens], reach[closes]), axis=1).ravel()


def covered(intervals: Integers, begin: Integers, end: Integers) -> Integers:
    """The length of each span that is covered by sorted, disjoint intervals.

    >>> covered(np.array([0, 10, 20, 30]), np.array([5, 12]), np.array([25, 15])).tolist()
    [10, 0]
    """
    if not len(intervals):
        return np.zeros(len(begin), np.int64)
    begins, ends = intervals[0::2], intervals[1::2]
    before = np.concatenate(([0], np.cumsum(ends - begins)))

    def until(instant: Integers) -> Integers:
        place = np.searchsorted(begins, instant, side="right")
        last = np.maximum(place - 1, 0)
        return np.where(place > 0, before[place] - np.maximum(ends[last] - instant, 0), 0)

    return until(end) - until(begin)
