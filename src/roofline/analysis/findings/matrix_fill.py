"""The finding about products whose sizes fill part of a TPU's matrix unit: the rest of its rows or columns multiplies padding.

Their sizes are the author's: products that a compiler writes out of a transform, a factorisation or a solve do not count.
"""

from collections.abc import Sequence

from msgspec import Struct

from ...machine import Machine
from ...operation import MatrixWork
from ...prediction import Expected
from ...prediction.compiled_programs import MATRIX, padded_flops
from ...workload import Fact
from ..op_times import OpTimes
from .clock import Clock
from .evidence import Evidence, Saving

KIND = "matrix-fill"
CYCLES = "cycles"  # the term of a prediction that is not a unit's
LEAST = 0.9  # a unit that is filled to this share is not worth a change


class _Unfilled(Struct, frozen=True):
    """An op that fills part of the matrix unit: its main product, and the seconds that its padding is expected to take."""

    id: int
    product: MatrixWork
    padding_s: float


def matrix_fill(op_times: OpTimes, ids: Sequence[int], machine: Machine, clock: Clock) -> list[Evidence]:
    """The evidence, where the padding is expected to take a notable part of the program's time; with a saving where that was measured."""
    side = machine.matrix_side
    unfilled = [found for id in ids if (found := _unfilled(op_times, id, machine))] if side else []
    padded = tuple([found.id for found in unfilled])
    padding = Saving.of(padded, [found.padding_s for found in unfilled], clock)
    if not side or not unfilled or padding.steps_s < clock.notable_s:
        return []
    worst = max(unfilled, key=lambda found: found.padding_s).product
    cause, size = _short_side(worst, side)
    facts: dict[str, Fact] = {
        "share": worst.fill(side),
        "size": size,
        "side": side,
        "padding" if clock.measured else "alone": padding.steps_s,
    }
    return [Evidence(kind=KIND, cause=cause, facts=facts, ops=padded, saved=padding if clock.measured else None)]


def fills_the_unit(op_times: OpTimes, ids: Sequence[int], machine: Machine) -> bool:
    """Whether the sizes of a compiled program's products are known and fill the matrix unit."""
    side, products = machine.matrix_side, [product for id in ids for product in op_times.ops[id].compiled.products]
    return bool(side and products) and all(product.fill(side) >= LEAST for product in products if side)


def _unfilled(op_times: OpTimes, id: int, machine: Machine) -> _Unfilled | None:
    compiled, side, prediction = op_times.ops[id].compiled, machine.matrix_side, op_times.predicted.get(id)
    products = compiled.products
    if not side or prediction is None or not products or not padded_flops(compiled, machine):
        return None
    main = max(products, key=lambda product: product.flops / product.fill(side))
    padding_s = _padding_s(prediction, products, side)
    if not padding_s or main.is_compilers or main.fill(side) >= LEAST:
        return None
    return _Unfilled(id, main, padding_s)


def _padding_s(prediction: Expected, products: Sequence[MatrixWork], side: int) -> float:
    """The seconds by which padding prolongs the matrix unit's part of an op, as far as that decides the op's expected time."""
    matrix_s = prediction.terms.get(MATRIX, 0.0)
    share = sum(product.flops for product in products) / sum(product.flops / product.fill(side) for product in products)
    others_s = max((seconds for name, seconds in prediction.terms.items() if name not in (MATRIX, CYCLES)), default=0.0)
    return max(min(prediction.time_s, matrix_s) - max(matrix_s * share, others_s), 0.0)


def _short_side(product: MatrixWork, side: int) -> tuple[str, int]:
    """Which size fills part of the unit, or of the last of several passes over it: the depth or the width of a product."""
    wide = max(product.widths, key=lambda width: width / (-(-width // side) * side))
    depth_fill, width_fill = (size / (-(-size // side) * side) for size in (product.depth, wide))
    return ("depth", product.depth) if depth_fill <= width_fill else ("width", wide)
