"""Passes that run twice: forward with gradients and again without, as for a metric of the same batch; or backward for each of two losses.

A trace does not record whether two passes had the same input. A pass counts as repeated if, in one step, its products have the same
modules, shapes and order as those of another pass, and only one of the two is recorded for gradients.
"""

from collections.abc import Iterable, Iterator, Sequence
from sys import maxunicode

from ....cost import NOTHING
from ....torch_prices import Tensor
from ....workload import Avoidable
from .recorded import PricedExecution

LEAST = 4  # products of a repeated pass: fewer may be the same by chance
MULTIPLY = frozenset(("matmul", "convolution", "attention"))

Key = tuple[str, tuple[object, ...], tuple[str, ...]]


def second_passes(products: Sequence[PricedExecution], graded: Sequence[bool]) -> Iterator[int]:
    """The ops (places on the host) of passes without gradients that repeat a pass with gradients in the same step.

    ``products`` are the executions of products, ``graded`` whether each is recorded for gradients.
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
    """The reason for ops of a pass that runs again, called from the line ``caller``."""
    group, cause = ("gradients", "") if backward else ("", "pass")
    return Avoidable(
        kind="duplicated-work", instead=NOTHING, cause=cause, facts={"caller": caller}, unneeded="duplicated", group=group, extra=True
    )


def _key(held: PricedExecution) -> Key:
    """What two equal products have in common. Not the op's name or flags: attention without gradients may be another op."""
    shapes = tuple(one.shape for one in held[1].args if isinstance(one, Tensor))
    return held[1].priced.category, shapes, held[0].context.scope


def _runs(forward: Sequence[tuple[PricedExecution, bool]]) -> list[tuple[list[PricedExecution], bool]]:
    """Runs of consecutive executions that are all recorded for gradients, or all not."""
    found: list[tuple[list[PricedExecution], bool]] = []
    for held, is_graded in forward:
        if found and found[-1][1] == is_graded:
            found[-1][0].append(held)
        else:
            found.append(([held], is_graded))
    return found


class Letters:
    """Maps keys to characters, so that a sequence of keys becomes a string, in which another can be found fast.

    >>> letters = Letters()
    >>> whole = letters.word([("mm", 8), ("mm", 4), ("conv", 2)])
    >>> letters.word([("mm", 4), ("conv", 2)]) in whole, letters.word([("mm", 8), ("conv", 2)]) in whole
    (True, False)
    """

    def __init__(self) -> None:
        self._places: dict[object, int] = {}

    def word(self, keys: Iterable[object]) -> str:
        """A sequence of keys as a string; after about a million keys, characters are used again."""
        return "".join([chr(self._places.setdefault(key, len(self._places)) % maxunicode) for key in keys])
