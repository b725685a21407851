"""Whether predicted configurations of a kernel agree with what a device measured of them (`roofline blocks --measure`)."""

from collections.abc import Sequence

import numpy as np

from ...blocks.results import Blocks
from ...errors import UsageError
from ...units import percent, show
from .acceptance import Problem, Validation, made_check

FIRST, RANKS, WITHIN = 1.1, 0.8, 0.5  # measured time of the first over that of the best; rank correlation; share of times in intervals
ORDERED = 8  # configurations, of fewer no order is checked


def validate_blocks(blocks: Blocks, source: str) -> Validation:
    """The first choice, the order and the intervals of the configurations that were measured."""
    pairs = [(config, config.time_s or 0.0, config.measured_s) for config in blocks.configs if config.measured_s]
    if not pairs:
        raise UsageError(f"{source}: no measured times in it; run roofline blocks MODULE:CASE --measure N --json {source} on the GPU")
    predicted, measured = [time_s for _, time_s, _ in pairs], [seconds for _, _, seconds in pairs]
    first, best = pairs[0], min(pairs, key=lambda pair: pair[2])
    ratio, ranks = first[2] / best[2], rank_correlation(predicted, measured)
    inside = sum((config.low_s or 0.0) <= seconds <= (config.high_s or 0.0) for config, _, seconds in pairs)
    few = len(pairs) < ORDERED
    return Validation(
        source=source,
        machine=blocks.chip,
        checks=(
            made_check(
                "first choice",
                f"takes at most {percent(FIRST - 1)} longer than the best of {len(pairs)} measured",
                f"{first[0].name}: {show(first[2], 's', 3)}; best {best[0].name}: {show(best[2], 's', 3)}",
                [Problem(input="blocks", message=f"it takes {percent(ratio - 1)} longer")] if ratio > FIRST else [],
            ),
            made_check(
                "order",
                f"rank correlation of at least {RANKS}",
                f"{ranks:.2f}",
                [Problem(input="blocks", message="other configurations are faster than predicted")] if ranks < RANKS and not few else [],
                [f"fewer than {ORDERED} configurations were measured"] if few else [],
                checked=not few,
            ),
            made_check(
                "intervals",
                f"hold the measured time; about four in five, at least {percent(WITHIN)}",
                f"{inside} of {len(pairs)}; measured over predicted {min(_over(measured, predicted)):.2f} to "
                f"{max(_over(measured, predicted)):.2f}",
                [Problem(input="blocks", message="times lie outside")] if inside < WITHIN * len(pairs) else [],
            ),
        ),
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation, without ties; 1 of a single pair."""
    ranks, others = np.argsort(np.argsort(one)), np.argsort(np.argsort(other))
    return float(np.corrcoef(ranks, others)[0, 1]) if len(one) > 1 else 1.0


def _over(measured: Sequence[float], predicted: Sequence[float]) -> list[float]:
    return [seconds / time_s for seconds, time_s in zip(measured, predicted, strict=True)]
