"""Passes that run twice: forward with gradients and again without, as for a metric of the same batch; or backward for each of two losses.

A trace does not record whether two passes had the same input. A pass counts as repeated if, in one step, its products have the same
modules, shapes and order as those of another pass, and only one of the two is recorded for gradients.
"""

from collections.abc import Iterable, Iterator, Sequence

from ...torch_prices import Tensor
from .lower.recorded import PricedExecution

LEAST = 4  # products of a repeated pass: fewer may be the same by chance
MULTIPLY = frozenset(("matmul", "convolution", "attention"))

Key = tuple[str, tuple[object, ...], tuple[str, ...]]


def second_passes(products: Sequence[PricedExecution], graded: Sequence[bool]) -> Iterator[int]:
    """The ops (places on the host) of passes without gradients that repeat a pass with gradients in the same step.

    ``products`` are the executions of products, ``graded`` whether each is recorded for gradients.
    """
    steps: dict[int, list[tuple[PricedExecution, bool]]] = {}
    for product, is_graded in zip(products, graded, strict=True):
        if not product[0].context.backward and not product[0].context.optimizer:
            steps.setdefault(product[0].mark, []).append((product, is_graded))
    for forward in steps.values():
        runs = _runs(sorted(forward, key=lambda product: product[0][0].op))
        numbers: dict[Key, int] = {}
        passes = [numbered(map(_key, run), numbers) for run, is_graded in runs if is_graded]
        for run, is_graded in runs:
            if is_graded or len(run) < LEAST or not all(execution.context.scope for execution, _ in run):
                continue
            again = numbered(map(_key, run), numbers)
            if any(again in whole for whole in passes):
                yield from (execution.op for execution, _ in run)


def _key(product: PricedExecution) -> Key:
    """What two equal products have in common. Not the op's name or flags: attention without gradients may be another op."""
    execution, priced = product
    return priced.priced.category, tuple(arg.shape for arg in priced.args if isinstance(arg, Tensor)), execution.context.scope


def _runs(forward: Sequence[tuple[PricedExecution, bool]]) -> list[tuple[list[PricedExecution], bool]]:
    """Runs of consecutive executions that are all recorded for gradients, or all not."""
    runs: list[tuple[list[PricedExecution], bool]] = []
    for product, is_graded in forward:
        if runs and runs[-1][1] == is_graded:
            runs[-1][0].append(product)
        else:
            runs.append(([product], is_graded))
    return runs


def numbered(keys: Iterable[Key], numbers: dict[Key, int]) -> str:
    """The numbers of keys as text, which is part of that of other keys if these have the same keys one after the other.

    >>> numbers = {}
    >>> whole = numbered(["mm 8", "mm 4", "conv 2"], numbers)
    >>> numbered(["mm 4", "conv 2"], numbers) in whole, numbered(["mm 8", "conv 2"], numbers) in whole
    (True, False)
    """
    return "".join(f" {numbers.setdefault(key, len(numbers))}," for key in keys)
