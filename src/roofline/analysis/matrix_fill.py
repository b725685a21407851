"""The finding about products whose sizes fill part of a TPU's matrix unit: the rest of its rows or columns multiplies padding."""

from collections.abc import Sequence

from msgspec import Struct

from ..machine import Machine
from ..operation import MatrixWork
from ..prediction import Prediction
from ..prediction.compiled_programs import MATRIX, padded_flops
from ..units import percent, rounded, show
from .finding_drafts import FindingDraft, StepSaving
from .finding_kinds import Kinds
from .finding_words import at_place, subject
from .op_times import OpTimes
from .program_clock import Clock, Saving

KIND = "matrix-fill"
CYCLES = "cycles"  # the term of a prediction that is not a unit's
LEAST = 0.9  # a unit that is filled to this share is not worth a change


class _Unfilled(Struct, frozen=True):
    """An op that fills part of the matrix unit: its main product, and the seconds that its padding is expected to take."""

    id: int
    product: MatrixWork
    padding_s: float


def matrix_fill(op_times: OpTimes, ids: Sequence[int], machine: Machine, clock: Clock, kinds: Kinds) -> list[FindingDraft]:
    """The finding, where the padding is expected to take a notable part of the program's time; with a saving where that was measured."""
    side = machine.matrix_side
    unfilled = [found for id in ids if (found := _unfilled(op_times, id, machine))] if side else []
    mine = [found.id for found in unfilled]
    padding = Saving.of(mine, [found.padding_s for found in unfilled], clock)
    if not side or not unfilled or padding.steps_s < clock.notable_s:
        return []
    worst = max(unfilled, key=lambda found: found.padding_s).product
    kind, place = kinds[KIND], at_place(op_times, mine)
    fill = "fills" if len(mine) == 1 else "fill"
    took = clock.of(padding.steps_s) if clock.measured else f"{show(rounded(padding.steps_s, 3), 's')}, which the minimum time leaves out"
    observation = (
        f"{place}{subject(op_times, mine)} {fill} {percent(worst.fill(side))} of the matrix unit: {_short_side(worst, side)}. "
        f"Padding is expected to take {took}."
    )
    saved = StepSaving(padding.whole_s, padding.steps_s / clock.parts if clock.per else padding.whole_s) if clock.measured else None
    return [
        FindingDraft(
            kind=KIND, title=kind.title, observations=(observation,), change=kind.change, levers=kind.levers, ops=tuple(mine), saved=saved
        )
    ]


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
    return _Unfilled(id, main, padding_s) if padding_s and main.fill(side) < LEAST else None


def _padding_s(prediction: Prediction, products: Sequence[MatrixWork], side: int) -> float:
    """The seconds by which padding prolongs the matrix unit's part of an op, as far as that decides the op's expected time."""
    matrix_s = prediction.terms.get(MATRIX, 0.0)
    share = sum(product.flops for product in products) / sum(product.flops / product.fill(side) for product in products)
    others_s = max((seconds for name, seconds in prediction.terms.items() if name not in (MATRIX, CYCLES)), default=0.0)
    return max(min(prediction.time_s, matrix_s) - max(matrix_s * share, others_s), 0.0)


def _short_side(product: MatrixWork, side: int) -> str:
    """The size that fills part of the unit, or of the last of several passes over it, in words."""
    wide = max(product.widths, key=lambda width: width / (-(-width // side) * side))
    depth_fill, width_fill = (size / (-(-size // side) * side) for size in (product.depth, wide))
    if depth_fill <= width_fill:
        return f"{product.depth:,} contracted elements for {side} rows"
    return f"a result {wide:,} wide for {side} columns"
