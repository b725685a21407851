"""Which of very many rows may be alike: found from sorted columns, so that only those few are compared word by word."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lazy_rows import ABSENT

Codes = NDArray[np.int64]
CLOSE = 2e-5  # numbers with the same six significant digits differ by half of that at most
_UNKNOWN, _NONE = -2.0, -1.0  # stand for an unknown and an absent amount, which are like themselves alone


def similar_rows(words: Iterable[Sequence[Hashable]], amounts: Iterable[Sequence[Any]], counts: Sequence[float]) -> list[int]:
    """The rows, by their places, that another has the same words as and nearly the same amounts per execution.

    >>> similar_rows([["dot", "dot", "copy"]], [[10.0, 20.00001, 10.0]], [1, 2, 1])
    [0, 1]
    """
    runs = np.array(counts, dtype=np.float64)
    runs[runs == 0] = 1.0
    group = np.zeros(len(runs), dtype=np.int64)
    for code in [*map(_word_codes, words), *(_amount_codes(each, runs) for each in amounts)]:
        _, group = np.unique(group * (code.max(initial=0) + 1) + code, return_inverse=True)
    return np.flatnonzero(np.bincount(group)[group] > 1).tolist()


def _word_codes(words: Sequence[Hashable]) -> Codes:
    """A number for each different word."""
    codes = {word: code for code, word in enumerate({*words})}
    return np.array(list(map(codes.__getitem__, words)), dtype=np.int64)


def _amount_codes(amounts: Sequence[Any], runs: NDArray[np.float64]) -> Codes:
    """A number for each run of amounts in which every one is close to the next."""
    values = np.array([_UNKNOWN if amount is None else _NONE if amount is ABSENT else amount for amount in amounts], dtype=np.float64)
    np.divide(values, runs, out=values, where=values > 0)
    order = values.argsort()
    ordered = values[order]
    codes = np.zeros(len(values), dtype=np.int64)
    codes[order[1:]] = np.cumsum(ordered[1:] > ordered[:-1] + CLOSE * np.abs(ordered[:-1]))
    return codes
