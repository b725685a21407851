"""Fourier transforms of lengths with a large prime factor, which libraries compute slowly."""

from collections.abc import Iterable, Iterator

from ...graph import NO_KERNEL, Axes, Graph, Operator
from ...workload import Avoidable, Saves
from .tiny import KIND

LENGTHS = "lengths"  # the group
# cuFFT has fast kernels for the prime factors 2, 3, 5 and 7, and slow ones up to 127; with a larger factor it computes a transform as a
# convolution of at least twice the length. A convolution of 8192 samples by transforms in PyTorch, with its gradient, on an H200: 6.19 ms
# for a length of 16383 (3 · 43 · 127), 2.10 ms for 16384 (predicted: 3.5 ms saved). How much a length costs is measured, not known from it.
LARGEST_FACTOR = 7
LONGEST = 2**36  # complex numbers take 0.5 TB: no device has room for longer ones, and the factors of a damaged length may take hours


def slow_lengths(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The transforms of such lengths; where one side is real, it has the length."""
    for node in graph.of(Operator.FOURIER):
        axes = node.params.axes if isinstance(node.params, Axes) else ()
        sides = [graph.arrays[array].shape for array in (*node.takes[:1], *node.gives[:1])]
        slow = slow_length([max(side[axis] for side in sides) for axis in axes if all(axis < len(side) for side in sides)])
        if slow and node.kernel != NO_KERNEL:
            cost = graph.kernels[node.kernel].cost
            yield node.kernel, Avoidable(kind=KIND, instead=cost, facts={"length": slow}, group=LENGTHS, saves=Saves.GOOD_TRANSFORM)


def slow_length(lengths: Iterable[int]) -> str:
    """The length with the largest prime factor and that factor, in words; empty if the factor is small.

    >>> slow_length([256, 16381]), slow_length([2 * 8009]), slow_length([2 * 3 * 5 * 7, 2**61 - 1])
    ('16381, which is a prime', '16018, which has the prime factor 8009', '')
    """
    length = max((length for length in lengths if length <= LONGEST), key=largest_prime_factor, default=1)
    factor = largest_prime_factor(length)
    if factor <= LARGEST_FACTOR:
        return ""
    return f"{length}, which is a prime" if factor == length else f"{length}, which has the prime factor {factor}"


def largest_prime_factor(number: int) -> int:
    """The largest prime that divides a number.

    >>> largest_prime_factor(16384), largest_prime_factor(16381), largest_prime_factor(2 * 3 * 131), largest_prime_factor(1)
    (2, 16381, 131, 1)
    """
    largest, divisor = 1, 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            largest, number = divisor, number // divisor
        divisor += 1
    return max(largest, number)
