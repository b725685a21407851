"""Very many rows, from arrays: which of them may be equal, so that only those few are compared as text."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lazy_rows import ABSENT

Codes = NDArray[np.int64]
DIGITS = 6  # significant digits to which equal amounts per execution agree
NEARLY = 1e-6  # of the last digit: amounts this close to a rounding boundary are formatted as text to decide
_UNKNOWN, _NONE = -2.0, -1.0  # codes of unknown and absent amounts
_INFINITE = -3
_EXPONENTS = 1000  # more than floats have


def same_rows(
    words: Iterable[Sequence[Hashable]], amounts: Iterable[Sequence[Any]], counts: Sequence[float]
) -> tuple[list[int], list[int]]:
    """The indices of rows that have the same words and amounts per execution as another row, and for each the number of its kind.

    >>> same_rows([["dot", "dot", "copy"]], [[10.0, 20.0, 10.0]], [1, 2, 1])
    ([0, 1], [0, 0])
    """
    runs = np.array(counts, dtype=np.float64)
    runs[runs == 0] = 1.0
    kind = _word_codes(words, len(runs))
    for each in amounts:
        _, code = np.unique(_amount_codes(each, counts, runs), return_inverse=True)
        _, kind = np.unique(kind * (code.max(initial=0) + 1) + code, return_inverse=True)
    order = kind.argsort(kind="stable")
    places = order[np.bincount(kind)[kind[order]] > 1]
    return places.tolist(), kind[places].tolist()


def _word_codes(words: Iterable[Sequence[Hashable]], count: int) -> Codes:
    """A code for the words of each row; equal words have equal codes."""
    differing = [each for each in words if len({*each}) > 1]
    if not differing:
        return np.zeros(count, dtype=np.int64)
    codes = {row: code for code, row in enumerate(dict.fromkeys(zip(*differing, strict=True)))}
    return np.array(list(map(codes.__getitem__, zip(*differing, strict=True))), dtype=np.int64)


def _amount_codes(amounts: Sequence[Any], counts: Sequence[float], runs: NDArray[np.float64]) -> Codes:
    """A code for each amount per execution; amounts that are equal when rounded have equal codes."""
    is_plain = {*map(type, amounts)} <= {int, float}
    values = np.array(
        amounts if is_plain else [_UNKNOWN if amount is None else _NONE if amount is ABSENT else amount for amount in amounts],
        dtype=np.float64,
    )
    codes = np.minimum(values, 0).astype(np.int64)
    places = np.flatnonzero(values > 0)
    each = values[places] / runs[places]
    with np.errstate(all="ignore"):  # out-of-range values are handled as text below
        exponent = np.floor(np.log10(each))
        digits = each / 10.0 ** (exponent - (DIGITS - 1))
        is_sure = (digits >= 10 ** (DIGITS - 1)) & (digits < 10**DIGITS - 1) & (np.abs(digits % 1 - 0.5) > NEARLY)
    codes[places[is_sure]] = _code(exponent[is_sure], np.rint(digits[is_sure]))
    unsure = places[~is_sure].tolist()
    written = [amounts[place] / (counts[place] or 1) for place in unsure]
    known = {amount: _written_code(amount) for amount in {*written}}
    codes[unsure] = [known[amount] for amount in written]
    return codes


def _written_code(amount: float) -> int:
    """The code of one amount, from its digits as text.

    >>> _written_code(1234.5678) == _code(3, 123457)
    True
    """
    digits, _, exponent = f"{float(amount):.{DIGITS - 1}e}".partition("e")
    if not exponent:
        return _INFINITE
    return int(_code(int(exponent), int(digits.replace(".", "")))) if amount else 0


def _code(exponent: Any, digits: Any) -> Any:
    return (exponent + _EXPONENTS) * 10**DIGITS + digits
