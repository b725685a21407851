"""The arithmetic of opcodes that reduce elements or apply a computation to them: reductions, windows, scans, sorts, transforms.

A reduction of n elements to one applies its computation n − 1 times. Comparisons are not FLOP: a sort or a maximum only moves data.
"""

from math import log2, prod

from ...cost import Cost
from ...dtypes import passes_note
from ...graph.index_sets import Box
from ...ops.convolution import outputs_with_input, pairs, pairs_within, whole_windows
from ...ops.elementwise import FUNCTIONS, summed
from ...ops.fourier import flops as transform_flops
from ...ops.linear_algebra import Sizes, work
from ...ops.reduction import running
from ...resource import vector
from ...workload import COUNTED
from ..ir.attributes import WindowDimension
from .contractions import algorithm_unit
from .demand import result_dims
from .types import Site
from .work import NO_WORK, Inner, Rule, Work


def _times(inner: Work, times: int) -> Work:
    return Work(inner.cost * max(0, times), inner.notes)


def _applied(site: Site, inner: Inner, role: str = "to_apply") -> Work:
    """One application of the computation that an instruction calls in this role."""
    called = site.instruction.called(role)
    return inner(called[0]) if called else NO_WORK


def reduce(site: Site, inner: Inner) -> Work:
    """(elements in − elements out) applications; several arrays reduced together are one application per element."""
    before = prod(site.operands[0].shape.dims)
    return _times(_applied(site, inner), before - prod(result_dims(site.instruction.shape)))


def mapped(site: Site, inner: Inner) -> Work:
    """One application per element."""
    return _times(_applied(site, inner), site.instruction.shape.elements)


def reduce_window(site: Site, inner: Inner) -> Work:
    """(valid taps − 1) applications per window that contains an input; padding adds nothing, and equal windows are reduced once.

    A window as long as its dimension, moved from one end to the other, is a cumulative sum: one application per element but the first.
    """
    return _times(_applied(site, inner), _applications(site))


def windows_within(site: Site, inner: Inner, boxes: tuple[Box, ...]) -> Work:
    """The arithmetic of the windows in some boxes of the result, at most that of all of it."""
    sides = _sides(site)
    per_element = (
        prod(pairs_within(side, size, outputs) for (side, size, _), outputs in zip(sides, box, strict=True)) - prod(map(len, box))
        for box in boxes
    )
    return _times(_applied(site, inner), min(sum(per_element), _applications(site)))


def _applications(site: Site) -> int:
    """How often a window's computation is applied for the whole result."""
    total = _running_total(site)
    if total is not None:
        return total
    taps, windows = 1, 1
    for side, size, out in _sides(site):
        again = max(0, whole_windows(side, size, out) - 1)  # all but one of the windows that read the whole dimension
        taps *= pairs(side, size, out) - again * size
        windows *= outputs_with_input(side, size, out) - again
    return taps - windows


def _sides(site: Site) -> tuple[tuple[WindowDimension, int, int], ...]:
    """The window, the size of the input and that of the result along each dimension."""
    return tuple(zip(site.instruction.window, site.operands[0].shape.dims, result_dims(site.instruction.shape), strict=True))


def _running_total(site: Site) -> int | None:
    """Applications of a window that computes cumulative sums, one pass along each such dimension; ``None`` for any other window."""
    source, window = site.operands[0].shape.dims, site.instruction.window
    along = [axis for axis, side in enumerate(window) if _is_running(side, source[axis])]
    if not along or not all(side.size == 1 or axis in along for axis, side in enumerate(window)):
        return None
    return sum(running(prod(source), source[axis]) for axis in along)


def _is_running(side: WindowDimension, size: int) -> bool:
    steps = (side.stride, side.base_dilation, side.window_dilation)
    return size > 1 and side.size == size and steps == (1, 1, 1) and sorted((side.low, side.high)) == [0, size - 1]


def scan(site: Site, inner: Inner) -> Work:
    """One application per step along the scanned dimension; the computation takes a whole slice at a time."""
    inputs = site.operands[: len(site.operands) - (site.instruction.integer("num_carries") or 0)]
    shape = inputs[0].shape if inputs else site.instruction.shape.leaves[0]
    return _times(_applied(site, inner), shape.dims[site.instruction.dimensions[0]])


def scatter(site: Site, inner: Inner) -> Work:
    """One application per update."""
    updates = site.operands[-1].shape
    return _times(_applied(site, inner), prod(updates.dims))


def select_and_scatter(site: Site, inner: Inner) -> Work:
    """(valid taps − 1) selections per window, and one scatter per element of the source."""
    source, result = site.operands[0].shape.dims, site.operands[1].shape.dims
    sides = tuple(zip(site.instruction.window, source, result, strict=True))
    taps = prod(pairs(side, size, out) for side, size, out in sides)
    chosen = _times(_applied(site, inner, "select"), taps - prod(result))
    added = _times(_applied(site, inner, "scatter"), prod(result))
    return Work(chosen.cost + added.cost, chosen.notes + added.notes)


def sort(site: Site, inner: Inner) -> Work:
    """Comparisons only: about n log2 n per row of n elements."""
    dims = site.operands[0].shape.dims
    axis = site.instruction.dimensions[0] if site.instruction.dimensions else len(dims) - 1
    line = dims[axis] if dims else 1
    comparisons = round(prod(dims) * log2(line)) if line > 1 else 0
    return Work(notes=(f"{COUNTED}no FLOP for about {comparisons:,} comparisons",))


def topk(site: Site, inner: Inner) -> Work:
    """Comparisons only: one per element at least."""
    return Work(notes=(f"{COUNTED}no FLOP for at least {prod(site.operands[0].shape.dims):,} comparisons",))


def fft(site: Site, inner: Inner) -> Work:
    """5 n log2 n FLOP per complex transform of n points, half of it if one side is real."""
    lengths = site.instruction.integers("fft_length")
    points = prod(lengths)
    half = site.instruction.word("fft_type").upper() in ("RFFT", "IRFFT")
    # In a real transform the real side has all the points, the complex side about half.
    elements = max(prod(site.operands[0].shape.dims), site.instruction.shape.elements)
    flops = transform_flops(elements // max(1, points), points, half)
    return Work(Cost.of({vector(site.instruction.shape.number): flops}), ("5 n log2 n FLOP per transform of n complex points",))


def cholesky(site: Site, inner: Inner) -> Work:
    """n³/3 FLOP per matrix of n rows, for large n."""
    return _in_full(site, "potrf", 0)


def triangular_solve(site: Site, inner: Inner) -> Work:
    """n² FLOP per right-hand side of n elements."""
    triangle, sides = (operand.shape for operand in site.operands[:2])
    return _in_full(site, "trsm", sides.elements // max(1, prod(triangle.dims[:-1])))


def _in_full(site: Site, routine: str, columns: int) -> Work:
    """A routine of linear algebra in the number format of its matrices, in full precision."""
    shape = site.operands[0].shape
    unit = algorithm_unit(shape.number.rate, None, site.platform)
    n, unit_diagonal = shape.dims[-1], site.instruction.flag("unit_diagonal")
    sizes = Sizes(m=n, n=n, columns=columns, unit_diagonal=unit_diagonal, many=prod(shape.dims[:-2]))
    note = passes_note(unit.kind)
    return Work(work(routine, sizes, shape.number, unit), (note,) if note else ())


def random(site: Site, inner: Inner) -> Work:
    """None: the integer arithmetic depends on the generator and is not counted."""
    return Work(notes=(f"{COUNTED}no arithmetic for the random number generator",))


def _batch_norm(name: str) -> Rule:
    def rule(site: Site, inner: Inner) -> Work:
        shape = site.operands[0].shape
        features = shape.dims[site.instruction.integer("feature_index") or 0]
        return Work(summed(shape.elements, shape.number, FUNCTIONS[name].flops) + summed(features, shape.number, 0, 1))

    return rule


REDUCTIONS: dict[str, Rule] = {
    "batch-norm-training": _batch_norm("batch_norm"),
    "batch-norm-inference": _batch_norm("batch_norm_inference"),
    "batch-norm-grad": _batch_norm("batch_norm_gradient"),
    "cholesky": cholesky,
    "fft": fft,
    "map": mapped,
    "reduce": reduce,
    "reduce-window": reduce_window,
    "rng": random,
    "rng-bit-generator": random,
    "scan": scan,
    "scatter": scatter,
    "select-and-scatter": select_and_scatter,
    "sort": sort,
    "topk": topk,
    "triangular-solve": triangular_solve,
}
