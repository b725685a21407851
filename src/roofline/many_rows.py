"""Very many rows, from arrays: their order, and which of them may be alike, so that only those few are compared word by word."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lazy_rows import ABSENT

Codes = NDArray[np.int64]
CLOSE = 1.1e-5  # numbers with the same six significant digits differ by 1e-5 of them at most
_UNKNOWN, _NONE = -2.0, -1.0  # stand for an unknown and an absent amount, which are like themselves alone


def similar_rows(words: Iterable[Sequence[Hashable]], amounts: Iterable[Sequence[Any]], counts: Sequence[float]) -> list[int]:
    """The rows, by their places, that another has the same words as and nearly the same amounts per execution.

    >>> similar_rows([["dot", "dot", "copy"]], [[10.0, 20.0001, 10.0]], [1, 2, 1])
    [0, 1]
    """
    runs = np.array(counts, dtype=np.float64)
    runs[runs == 0] = 1.0
    group = np.zeros(len(runs), dtype=np.int64)
    for code in [_word_codes(words, len(runs)), *(_amount_codes(each, runs) for each in amounts)]:
        _, group = np.unique(group * (code.max(initial=0) + 1) + code, return_inverse=True)
    return np.flatnonzero(np.bincount(group)[group] > 1).tolist()


def longest_first(seconds: Sequence[float]) -> list[int]:
    """The places of seconds, the longest first, those of equal length as they came."""
    return np.argsort(-np.array(seconds), kind="stable").tolist()  # type: ignore[no-any-return]


def ranks_of(order: Sequence[int]) -> list[int]:
    """The rank of each place, from 1.

    >>> ranks_of([2, 0, 1])
    [2, 3, 1]
    """
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[np.array(order, dtype=np.int64)] = np.arange(1, len(order) + 1)
    return ranks.tolist()


def _word_codes(words: Iterable[Sequence[Hashable]], count: int) -> Codes:
    """A number for all the words of a row; rows with the same words have the same."""
    differing = [each for each in words if len({*each}) > 1]
    if not differing:
        return np.zeros(count, dtype=np.int64)
    codes = {row: code for code, row in enumerate({*zip(*differing, strict=True)})}
    return np.array(list(map(codes.__getitem__, zip(*differing, strict=True))), dtype=np.int64)


def _amount_codes(amounts: Sequence[Any], runs: NDArray[np.float64]) -> Codes:
    """A number for each run of amounts in which every one is close to the next."""
    values = np.array([_UNKNOWN if amount is None else _NONE if amount is ABSENT else amount for amount in amounts], dtype=np.float64)
    np.divide(values, runs, out=values, where=values > 0)
    order = values.argsort()
    ordered = values[order]
    codes = np.zeros(len(values), dtype=np.int64)
    codes[order[1:]] = np.cumsum(ordered[1:] > ordered[:-1] + CLOSE * np.abs(ordered[:-1]))
    return codes
