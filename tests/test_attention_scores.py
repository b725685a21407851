"""Which arrays have a place for each score of attention."""

import pytest

from roofline.hlo.ir.shapes import Shape
from roofline.hlo.unneeded.scores import Scores


@pytest.mark.parametrize(
    ("dims", "layers"),
    [
        ((32, 8, 256, 256), 1),
        ((256, 32 * 8, 256), 1),
        ((32, 2, 256, 4, 256), 1),  # heads in groups
        ((6, 32, 8, 256, 256), 6),
        ((32, 8, 256, 6, 256), 6),
        ((64, 32, 32, 256), 0),  # as many elements: pixels of an image, and its channels
        ((32, 8, 256 * 256), 0),
        ((6, 64, 32, 32, 256), 0),
        ((32, 8, 256, 128), 0),
    ],
)
def test_scores_have_a_dimension_of_keys_and_others_of_queries(dims: tuple[int, ...], layers: int) -> None:
    scores = Scores(32 * 8 * 256 * 256, 256, 256, False, layers=6)
    assert scores.layers_in(Shape("bf16", dims)) == layers
