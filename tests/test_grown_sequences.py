"""Generation without a cache of keys and values, as attention over sequences that grow by a token from pass to pass."""

import pytest

from roofline.cost import Cost
from roofline.dtypes import dtype
from roofline.graph import Array, Graph, Kernel, Node, Operator, Sizes
from roofline.resource import HBM
from roofline.rules.duplicated_work.grown_sequences import grown_sequences

WIDTH, BF16 = 256, dtype("bf16")
WEIGHTS = WIDTH * WIDTH * 2


def generated(lengths: list[int], layers: int = 2) -> Graph:
    """A product and attention per layer, of four rows, for a pass over each of these lengths."""
    graph = Graph()

    def kernel() -> int:
        graph.kernels[len(graph.kernels)] = Kernel(Cost.of({HBM: 1_000_000, "matrix/bf16": 8_000_000}))
        return len(graph.kernels) - 1

    for length in lengths:
        tokens = graph.array(Array((4 * length, WIDTH), BF16))
        for _ in range(layers):
            weights, made = graph.array(Array((WIDTH, WIDTH), BF16)), graph.array(Array((4 * length, WIDTH), BF16))
            graph.append(Node(Operator.DOT, (tokens, weights), (made,), Sizes(1, 4 * length, WIDTH, WIDTH), kernel()))
            heads, attended = (graph.array(Array((4, 2, length, WIDTH // 2), BF16)) for _ in range(2))
            graph.append(Node(Operator.VIEW, (made,), (heads,)))
            graph.append(Node(Operator.ATTENTION, (heads, heads, heads), (attended,), 2, kernel()))
            tokens = graph.array(Array((4 * length, WIDTH), BF16))
            graph.append(Node(Operator.VIEW, (attended,), (tokens,)))
    return graph


def test_passes_after_the_first_need_their_new_token_and_all_weights() -> None:
    found = dict(grown_sequences(generated([100, 101, 102])))
    # Four kernels a pass, of which the first has nothing to start from.
    assert sorted(found) == list(range(4, 12))
    product = found[4].instead
    # One token of 101, but all of the weights.
    assert product.known("matrix/bf16") == pytest.approx(8_000_000 / 101)
    assert product.known(HBM) == WEIGHTS


@pytest.mark.parametrize("lengths", [[100, 101], [100, 100, 100], [100, 300, 900], [102, 101, 100]], ids=str)
def test_other_lengths_are_other_texts(lengths: list[int]) -> None:
    assert not list(grown_sequences(generated(lengths)))


def test_a_new_token_that_attends_to_a_cache_is_no_pass() -> None:
    graph = generated([100, 101, 102])
    for place, node in enumerate(graph.nodes):
        if node.operator == Operator.ATTENTION:
            query = graph.array(Array((4, 2, 1, WIDTH // 2), BF16))
            graph.exchange(place, Node(Operator.ATTENTION, (query, *node.takes[1:]), node.gives, 2, node.kernel))
    assert not list(grown_sequences(graph))
