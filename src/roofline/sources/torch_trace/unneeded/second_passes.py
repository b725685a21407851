"""Passes that run twice: forward once for gradients, and again without them, as for a metric of the same batch; or backward for two losses.

A trace does not say whether two passes had the same input. They are taken for one pass that runs again if the modules that multiply, their
shapes and their order are the same in one step, and only one of the passes is recorded for gradients.
"""

from collections.abc import Iterable, Iterator, Sequence
from sys import maxunicode

from ....cost import NOTHING
from ....torch_prices import Tensor
from ....workload import Avoidable
from .recorded import PricedExecution

LEAST = 4  # products of a pass that runs again: fewer may be alike by chance
MULTIPLY = frozenset(("matmul", "convolution", "attention"))

Key = tuple[str, tuple[object, ...], tuple[str, ...]]


def second_passes(products: Sequence[PricedExecution], graded: Sequence[bool]) -> Iterator[int]:
    """The ops of passes without gradients that repeat one with gradients in the same step, by their places on the host.

    ``products`` are the executions that multiply, ``graded`` whether each is recorded for gradients.
    """
    steps: dict[int, list[tuple[PricedExecution, bool]]] = {}
    for held, is_graded in zip(products, graded, strict=True):
        if not held[0].context.backward and not held[0].context.optimizer:
            steps.setdefault(held[0].mark, []).append((held, is_graded))
    for mine in steps.values():
        runs = _runs(sorted(mine, key=lambda one: one[0][0].op))
        letters = Letters()
        first = [letters.word(map(_key, run)) for run, is_graded in runs if is_graded]
        for run, is_graded in runs:
            if is_graded or len(run) < LEAST or not all(one.context.scope for one, _ in run):
                continue
            word = letters.word(map(_key, run))
            if any(word in whole for whole in first):
                yield from (one.op for one, _ in run)


def repeated_pass(caller: str, *, backward: bool) -> Avoidable:
    """A pass that runs again, called from a line."""
    which = "the backward pass of the same ops a second time" if backward else "a forward pass a second time, without gradients"
    why = f"runs {which}{f', called from {caller}' if caller else ''}"
    return Avoidable(kind="duplicated-work", instead=NOTHING, why=why, unneeded="duplicated")


def _key(held: PricedExecution) -> Key:
    """What a product is alike in: attention without gradients has another flag, and may be another op."""
    shapes = tuple(one.shape for one in held[1].args if isinstance(one, Tensor))
    return held[1].priced.category, shapes, held[0].context.scope


def _runs(forward: Sequence[tuple[PricedExecution, bool]]) -> list[tuple[list[PricedExecution], bool]]:
    """Executions in a row that are recorded for gradients, or are not."""
    found: list[tuple[list[PricedExecution], bool]] = []
    for held, is_graded in forward:
        if found and found[-1][1] == is_graded:
            found[-1][0].append(held)
        else:
            found.append(([held], is_graded))
    return found


class Letters:
    """A letter for each of different keys, so that keys in a row are a word, which is found in another in linear time.

    >>> letters = Letters()
    >>> whole = letters.word([("mm", 8), ("mm", 4), ("conv", 2)])
    >>> letters.word([("mm", 4), ("conv", 2)]) in whole, letters.word([("mm", 8), ("conv", 2)]) in whole
    (True, False)
    """

    def __init__(self) -> None:
        self._places: dict[object, int] = {}

    def word(self, keys: Iterable[object]) -> str:
        """Keys in a row as a word; keys beyond a million share the letters of others."""
        return "".join([chr(self._places.setdefault(key, len(self._places)) % maxunicode) for key in keys])
