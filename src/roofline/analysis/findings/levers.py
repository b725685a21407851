"""Which levers a finding about kernels has: those for the ops with most of the saving, by what they do, and in what loop they run."""

from collections.abc import Sequence
from heapq import nlargest

from ...operation import GATHERED, Convolution, Operation, Scattered, Streamed
from ...resource import HBM
from ...rules.words import page
from ...workload import Op
from ..op_times import OpTimes
from .evidence import LEVERS
from .writing import Writer

COMPILED = "fusion"  # suffix of the categories of kernels that a compiler generated
# Cases of levers: kernels that Inductor generated, small ones in loops, factorisations as fast as they can be, scatters, and convolutions
# of many groups of channels.
INDUCTOR, LOOP, LINEAR_LOOP, FACTORISE_LESS = "inductor", "loop", "linear loop", "factorise less"
FEW_SUMS, NARROW_SUMS, GROUPED, GROUPED_FP32 = (
    "scatter to few",
    "scatter of 16-bit numbers",
    "grouped convolution",
    "grouped convolution in fp32",
)
OTHER_CASES = {INDUCTOR, LOOP, LINEAR_LOOP, FACTORISE_LESS}  # that are not a category of ops
MOST_SAVING = 100  # ops with the largest savings, which decide on the advice
# Kernels in an iteration up to which unrolling a loop helps. On an H200, programs with 3, 25 and 38 kernels in an iteration took 29%, 58%
# and 80% of their time with unroll=8, one with 274 as long as before.
SHORT_LOOP = 100
LINEAR = "linear"  # the group of kernels of loops that compute linear recurrences
SUM = "sum"  # what a compiler's sums do; its other reductions can be matmuls with one row
SUM_AT_PLACES = "scatter-add"  # what a framework calls it
POOL_GRADIENT = "select and scatter"  # how XLA names the gradient of a maximum over windows
MATMULS, CONVOLUTIONS, ATTENTION = "matmuls", "convolutions", "attention kernels"  # kinds of work on a matrix unit
OF_ROWS = frozenset(("index", "gather", "index_select", "embedding"))  # PyTorch's operators that read rows of a matrix
TOP_K = frozenset(("topk", "top k", "gpu topk"))
NARROW_SUMS_IN = ("bf16", "fp16")
MANY_GROUPS = 16  # of channels of a convolution: fewer run in kernels for dense ones (a choice)
FP32 = ("fp32", "tf32")  # in which convolutions of arrays in fp32 multiply
MOST_SUMS, ROWS_EACH = 1_000, 64  # a scatter that adds many rows to few: most rows of its result, least bytes over those of its result


def cases_of(kind: str, writer: Writer, op_times: OpTimes, ids: Sequence[int], won: Sequence[float]) -> tuple[Sequence[str], Sequence[int]]:
    """The cases whose levers a finding has: those of the ops with most of the saving, and these ops; none if no category has most of it."""
    words, is_inductor = writer.words(kind), "pytorch" in writer.terms and "host" not in writer.terms and INDUCTOR in page(kind).cases
    cases: Sequence[str] = LEVERS
    if LOOP in words.cases and _are_in_short_loops(op_times, ids, won):
        cases = (LINEAR_LOOP if _are_linear(op_times, ids, won) else LOOP,)
    if not is_inductor and page(kind).cases.keys() <= OTHER_CASES:
        return cases, ()
    if is_inductor and any(category.endswith(COMPILED) for category in {*op_times.category}):
        cases = (INDUCTOR,)  # not the advice to compile what is compiled already
    by_category: dict[str, float] = {}
    tried = nlargest(MOST_SAVING, zip(won, ids, strict=True))
    categories = categories_of(op_times, [id for _, id in tried])
    for (seconds, _), category in zip(tried, categories, strict=True):
        by_category[category] = by_category.get(category, 0.0) + seconds
    most = max(by_category, key=by_category.__getitem__)
    if 2 * by_category[most] <= sum(won):
        return cases, ()
    advised = [id for (_, id), category in zip(tried, categories, strict=True) if category == most]
    if most == COMPILED and _is_gathered(op_times.operations[advised[0]]):
        most = "gather"
    if (kind, most) == ("memory", "scatter"):
        return replacements(op_times, advised[0]), advised
    if most == "convolution" and GROUPED in words.cases and _is_depthwise(op_times, advised[0]):
        return ((GROUPED_FP32,) if _multiplies_in_fp32(op_times, advised[0]) else ()) + (GROUPED,), advised
    return (most,) if most in words.cases else cases, advised


def _are_in_short_loops(op_times: OpTimes, ids: Sequence[int], won: Sequence[float]) -> bool:
    """Whether loops run the ops with most of the saving, and launch few kernels in each iteration."""
    tried = nlargest(MOST_SAVING, zip(won, ids, strict=True))
    if 2 * sum(seconds for seconds, id in tried if op_times.ops[id].in_loop) <= sum(seconds for seconds, _ in tried):
        return False
    launches = [op_times.launches[id] for id in ids if op_times.ops[id].in_loop]
    return sum(launches) <= SHORT_LOOP * max(launches, default=0)


def _are_linear(op_times: OpTimes, ids: Sequence[int], won: Sequence[float]) -> bool:
    """Whether the ops with most of the saving belong to loops that compute linear recurrences."""
    tried = nlargest(MOST_SAVING, zip(won, ids, strict=True))
    linear = [seconds for seconds, id in tried if any(reason.group == LINEAR for reason in op_times.ops[id].avoidable)]
    return 2 * sum(linear) > sum(seconds for seconds, _ in tried)


def replacements(op_times: OpTimes, id: int) -> Sequence[str]:
    """The cases for a scatter or a sort, which are memory-bound: what to use in its place."""
    op = op_times.ops[id]
    cases = categories_of(op_times, [id])
    if isinstance(sums := op.operation, Scattered) and op.label.does == SUM_AT_PLACES:
        narrow = [NARROW_SUMS] if sums.number in NARROW_SUMS_IN else []
        cases = [*([FEW_SUMS] if _adds_to_few(op, sums) else []), *narrow, *cases]
    return cases


def _adds_to_few(op: Op, sums: Scattered) -> bool:
    """Whether a scatter adds many rows to each of a few, by its bytes and those of its result."""
    return sums.rows <= MOST_SUMS and op.cost.known(HBM) >= ROWS_EACH * sums.bytes * max(op.count, 1)


def _multiplies_in_fp32(op_times: OpTimes, id: int) -> bool:
    operation = op_times.operations[id]
    return isinstance(operation, Convolution) and operation.compute in FP32


def _is_depthwise(op_times: OpTimes, id: int) -> bool:
    """Whether a convolution of a compiled program has many groups of channels."""
    operation = op_times.operations[id]
    return isinstance(operation, Convolution) and operation.groups >= MANY_GROUPS


def _is_gathered(operation: Operation | None) -> bool:
    """Whether a compiler's kernel reads its elements at places that it looks up."""
    return isinstance(operation, Streamed) and operation.kind == GATHERED


def categories_of(op_times: OpTimes, ids: Sequence[int]) -> list[str]:
    """The category of each op that decides on its levers: what it does, or that a compiler generated its kernel."""
    return [_category(op_times.ops[id]) for id in ids]


def _category(op: Op) -> str:
    does, shapes = op.label.does, op.shapes
    category = next((word for word in ("scatter", "gather") if does.startswith(word)), op.category)
    if does.startswith(POOL_GRADIENT):
        return "pooling"
    if category == "sort" and does.lower() in TOP_K:
        return "top-k"
    if category == "gather" and does in OF_ROWS and shapes and len(shapes[0]) == 2:
        return "gather of rows"
    if category == "convolution" and (axes := _depthwise_axes(shapes)):
        return "depthwise convolution" if axes > 1 else "depthwise convolution along one axis"
    if does.startswith("triton_tem_"):
        return "flex attention" if "flex_attention" in does else "template"
    if category.endswith(COMPILED):
        return "reduction" if does == SUM else COMPILED
    return category


def _depthwise_axes(shapes: Sequence[Sequence[int]]) -> int:
    """The axes of the windows of a depthwise convolution of PyTorch, by its first arrays: the input, or its gradient, has several channels,
    and the weights have one each; else 0.

    >>> _depthwise_axes([(32, 512, 500), (32, 512, 500), (512, 1, 31)]), _depthwise_axes([(64, 1, 28, 28), (32, 1, 3, 3)])
    (1, 0)
    """
    *_, of, weights = ((), (), *[shape for shape in shapes if len(shape) > 2])
    is_depthwise = len(of) > 1 and of[1] > 1 == weights[1]
    return sum(side > 1 for side in weights[2:]) if is_depthwise else 0


def matrix_work(op_times: OpTimes, ids: Sequence[int]) -> str:
    """The name of the work on the matrix unit: matmuls, convolutions and attention kernels, whichever there are."""
    found = {_matrix_work(op_times, id) for id in ids}
    words = [word for word in (MATMULS, CONVOLUTIONS, ATTENTION) if word in found]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _matrix_work(op_times: OpTimes, id: int) -> str:
    """The name for an op on a matrix unit; a TPU's profiler has matmuls in the category of convolutions too."""
    category = op_times.category[id]
    if category == "convolution" and "conv" in op_times.ops[id].label.does:
        return CONVOLUTIONS
    return ATTENTION if category == "attention" else MATMULS
