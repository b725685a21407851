"""The scores of attention, one for each pair of positions, and the arrays that have an element for each."""

from collections.abc import Sequence

from msgspec import Struct

from ..ir.shapes import Shape


class Scores(Struct, frozen=True):
    """The scores of one attention layer: their number, the numbers of queries and keys, and whether half of them is masked.

    Those of a loop over layers may be kept for its gradients, in arrays of all ``layers``.
    """

    elements: int
    queries: int
    keys: int
    is_causal: bool
    layers: int = 1

    def is_like(self, shape: Shape) -> bool:
        """Whether an array has an element for each score, of one layer or of all."""
        return self.layers_in(shape) > 0

    def layers_in(self, shape: Shape) -> int:
        """The number of layers whose scores an array has: one, all, or none."""
        if not shape.is_array:
            return 0
        if shape.elements == self.elements:
            return int(self._are_positions(shape.dims))
        if shape.elements != self.layers * self.elements or self.layers not in shape.dims:
            return 0
        of_one = list(shape.dims)
        of_one.remove(self.layers)
        return self.layers if self._are_positions(of_one) else 0

    def _are_positions(self, sizes: Sequence[int]) -> bool:
        """Whether one dimension is the keys (or the queries), and the product of some others is the queries (or the keys)."""
        pairs = ((self.queries, self.keys), (self.keys, self.queries))
        return any(
            size == one and _is_product_of_some((*sizes[:place], *sizes[place + 1 :]), other)
            for place, size in enumerate(sizes)
            for one, other in pairs
        )


def _is_product_of_some(sizes: Sequence[int], wanted: int) -> bool:
    """Whether the product of some of the sizes is ``wanted``: grouped heads split the queries into two dimensions."""
    made = {1}
    for size in sizes:
        made |= {one * size for one in made if one * size <= wanted}
    return wanted in made
