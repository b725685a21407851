"""What each instruction of a compiled program computes, in the operators of the graph: opcodes, and the library calls that are one."""

from collections.abc import Callable, Sequence
from math import isnan

from msgspec import Struct

from ...errors import FormulaError, SourceError
from ...graph import ROW_BY_ROW, Axes, DeviceAxes, Exchange, Factor, Operator, Padding, Params, Part, Pooling, Rows, Sizes, Windows
from ..ir.attributes import DotDimensions
from ..ir.shardings import axes_of_groups
from ..price.calls.fmha import attention_of
from ..price.collectives import COLLECTIVES
from ..price.types import Site
from .products import is_linear, product_dimensions, product_sizes

# The value of the operand itself.
SAME = frozenset(("opt-barrier", "optimization-barrier", "domain", "add-dependency", "async-update", "async-done", "all-reduce-done"))
# Ends of asynchronous operations, whose start gives a tuple with the result.
TRANSFERS = frozenset(("copy-done", "all-gather-done", "collective-permute-done", "send-done", "recv-done"))
_NAMES = {
    Operator.COMPARE: "compare",
    Operator.SELECT: "select",
    Operator.ADD: "add",
    Operator.SUBTRACT: "subtract",
    Operator.MULTIPLY: "multiply",
    Operator.DIVIDE: "divide",
    Operator.NEGATE: "negate",
    Operator.REMAINDER: "remainder",
    Operator.AND: "and",
    Operator.MAXIMUM: "maximum",
    Operator.MINIMUM: "minimum",
    Operator.EXPONENTIAL: "exponential exponential-minus-one",
    Operator.SQUARE_ROOT: "sqrt",
    Operator.ABSOLUTE: "abs",
    Operator.ELEMENTWISE: """
        acos acosh asin asinh atan2 atanh cbrt ceil clamp complex cosine cosh count-leading-zeros erf floor imag is-finite log log-plus-one
        logistic map not or popcnt power round-nearest-afz round-nearest-even rsqrt shift-left shift-right-arithmetic
        shift-right-logical sign sine sinh tan tanh xor
    """,
    Operator.REAL: "real",
    Operator.CAST: "convert bitcast-convert reduce-precision stochastic-convert",
    Operator.COPY: "copy copy-start",
    Operator.VIEW: "bitcast",
    Operator.REVERSE: "reverse",
    Operator.UPDATE: "dynamic-update-slice",
    Operator.SCAN: "scan",
    Operator.TOP_K: "topk",
    Operator.FACTOR: "cholesky",
    Operator.SOLVE: "triangular-solve",
    Operator.WINDOW: "select-and-scatter",
    Operator.RANDOM: "rng rng-bit-generator",
}
_OPERATORS = {name: operator for operator, names in _NAMES.items() for name in names.split()}
_COMPARISONS = {"EQ": Operator.EQUAL, "NE": Operator.DIFFERENT}  # by direction
_SORTS = ("__cub$DeviceRadixSort", "xla.gpu.ext.cub_sort")
_TOP_K = ("TopK", "__gpu$TopK", "xla.gpu.ext.raft_select_k", "__gpu$RaftSelectK")
_CONVOLUTIONS, _WEIGHT_GRADIENT = "__cudnn$conv", "__cudnn$convBackwardFilter"
_FORWARD = ("__cudnn$convForward", "__cudnn$convBiasActivationForward")
_FACTORISATIONS, _SOLVES = ("cusolver_potrf", "hipsolver_potrf"), ("cusolver_trsm", "hipblas_trsm", "__cublas$triangularSolve")
_LINEAR_ALGEBRA = ("lapack_", "cusolver_", "hipsolver_", "cublas_", "hipblas_")
_NORMS = "__cudnn$norm"
_SOFTMAX = "__onednn$softmax"  # along the last axis
_SOFTMAX_PRODUCT = ("tpu_custom_call", "online-softmax")  # the TPU compiler's own kernel, by the name that it gives it
_REDUCING = ("all-reduce", "collective-reduce", "reduce-scatter")
_PLACED = frozenset(
    ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint"]
)  # say where an array is, and change nothing


class Meaning(Struct, frozen=True, gc=False):
    """An operator and its parameters. It takes the first ``most`` operands; a library call changes its result by the operator ``then``,
    with the other operands, or takes a softmax of its first operand, along the last axis, before.
    """

    operator: Operator
    params: Params = None
    most: int | None = None
    then: Operator | None = None
    is_of_softmax: bool = False


def meaning(site: Site) -> Meaning:
    """What an instruction computes; one whose attributes do not fit its operands is an unknown operator."""
    instruction = site.instruction
    find = _WITH_PARAMETERS.get(instruction.opcode)
    try:
        if find is not None:
            return find(site)
    except (FormulaError, SourceError, LookupError, ValueError):
        return Meaning(Operator.OTHER)
    return Meaning(_OPERATORS.get(instruction.opcode, Operator.OTHER))


def _product(site: Site) -> Meaning:
    dims = product_dimensions(site.instruction)
    left, right = (operand.shape for operand in site.operands[:2])
    sizes = product_sizes(dims, left.dims, right.dims) if dims is not None else None
    if dims is None or sizes is None or min(sizes) < 1:
        return Meaning(Operator.OTHER)
    groups = 0
    batch, rows, depth, columns = sizes
    if site.instruction.opcode == "ragged-dot" and len(site.operands) > 2:
        groups = site.operands[2].shape.dims[-1]
        for axis in site.instruction.integers("rhs_group_dims"):
            columns //= max(right.dims[axis], 1)
    factors = _factors(dims, len(left.dims), len(right.dims))
    is_call = site.instruction.opcode == "custom-call"
    more = Operator.ADD if is_linear(site.instruction) else Operator.ELEMENTWISE
    is_changed = is_call and (len(site.operands) > 2 or more != Operator.ADD)
    return Meaning(Operator.DOT, Sizes(batch, rows, depth, columns, *factors, groups), 2, more if is_changed else None)


def _factors(dims: DotDimensions, left: int, right: int) -> tuple[Factor, Factor]:
    ours = tuple([axis for axis in range(left) if axis not in dims.lhs_batch and axis not in dims.lhs_contracting])
    theirs = tuple([axis for axis in range(right) if axis not in dims.rhs_batch and axis not in dims.rhs_contracting])
    return Factor(dims.lhs_batch, dims.lhs_contracting, ours), Factor(dims.rhs_batch, dims.rhs_contracting, theirs)


def _call(site: Site) -> Meaning:
    """A library's kernel."""
    target = site.instruction.custom_call_target
    if product_dimensions(site.instruction) is not None and len(site.operands) > 1:
        return _product(site)
    if target == "ConcatBitcast":  # slices that were copied to one place
        (axis,) = [axis for axis, size in enumerate(site.instruction.shape.dims) if size != site.operands[0].shape.dims[axis]][:1] or (0,)
        return Meaning(Operator.CONCATENATE, axis)
    if target in _PLACED:
        return Meaning(Operator.VIEW, None, 1)
    if (target, site.instruction.op_name) == _SOFTMAX_PRODUCT:
        return _softmax_product(site)
    if target.startswith(_CONVOLUTIONS):
        is_plain = len(site.operands) == 2 and "BiasActivation" not in target
        return Meaning(Operator.CONVOLUTION, _windows(site), 2, None if is_plain else Operator.ELEMENTWISE)
    if target.startswith(_FACTORISATIONS):
        return Meaning(Operator.FACTOR)
    if target.startswith(_SOLVES):
        return Meaning(Operator.SOLVE, None, 2)
    if target.startswith(_LINEAR_ALGEBRA):
        return Meaning(Operator.DECOMPOSE)
    if target.startswith(_NORMS):
        return Meaning(Operator.NORM)
    if target == _SOFTMAX:
        return Meaning(Operator.SOFTMAX, len(site.instruction.shape.dims) - 1)
    if attention_of(site) is not None:
        return Meaning(Operator.ATTENTION_GRADIENT if "Backward" in target else Operator.ATTENTION)
    if target.startswith(_SORTS):
        return Meaning(_order(site), len(site.operands[0].shape.dims) - 1 if site.operands else None)
    if target.startswith(_TOP_K):
        return Meaning(Operator.TOP_K, len(site.operands[0].shape.dims) - 1 if site.operands else None)
    return Meaning(Operator.OTHER)


def _softmax_product(site: Site) -> Meaning:
    """A product of batches of matrices, the first of which are what a softmax is taken of: scores that another kernel stored."""
    left, right = (operand.shape.dims for operand in site.operands)
    batch = tuple(range(len(left) - 2))
    dims = DotDimensions(lhs_contracting=(len(left) - 1,), rhs_contracting=(len(right) - 2,), lhs_batch=batch, rhs_batch=batch)
    sizes = product_sizes(dims, left, right)
    if sizes is None or min(sizes) < 1 or site.instruction.shape.dims != (*left[:-1], right[-1]) or left[-1] != right[-2]:
        return Meaning(Operator.OTHER)
    return Meaning(Operator.DOT, Sizes(*sizes, *_factors(dims, len(left), len(right))), 2, is_of_softmax=True)


def _windows(site: Site) -> Windows | None:
    """The windows of a convolution; ``None`` if its attributes do not say."""
    instruction, labels = site.instruction, site.instruction.convolution
    if labels is None or len(site.operands) < 2:
        return None
    target = instruction.custom_call_target
    kernel = instruction.shape.leaves[0] if target == _WEIGHT_GRADIENT else site.operands[1].shape
    axes = (labels.kernel_input_feature, labels.kernel_output_feature)
    if max(axes) >= len(kernel.dims):
        return None
    sizes, strides = ([getattr(side, name) for side in instruction.window] for name in ("size", "stride"))
    channels = (kernel.dims[axes[0]], kernel.dims[axes[1]])
    return Windows(channels, tuple(sizes), tuple(strides), tuple(labels.output_spatial), target in _FORWARD)


def _transform(site: Site) -> Meaning:
    """A transform along the last axes, of one or two sides of which the lengths are given."""
    rank = len(site.operands[0].shape.dims)
    return Meaning(Operator.FOURIER, Axes(tuple(range(rank))[rank - len(site.instruction.integers("fft_length")) :]))


def _constant(site: Site) -> Meaning:
    if site.instruction.shape.elements != 1:
        return Meaning(Operator.CONSTANT)
    literal = site.instruction.literal
    value = literal[0] if literal else None
    if not isinstance(value, int | float) or isnan(value):  # a graph with what is not a number would not equal itself
        return Meaning(Operator.FILL, None)
    return Meaning(Operator.FILL, float(value))


def _reduce(site: Site) -> Meaning:
    inputs = len(site.operands) // 2
    return Meaning(Operator.REDUCE, Axes(site.instruction.dimensions, _OPERATORS.get(_folded_by(site), Operator.OTHER)), inputs or None)


def _folded_by(site: Site) -> str:
    """The opcode that a reduction, a scatter or a collective joins two numbers by; empty if it joins none."""
    return next((site.module.computations[body].root_instruction.opcode for body in site.instruction.called("to_apply")), "")


def _exchange(site: Site) -> Meaning:
    """A collective, with the operator that it reduces by, if it does."""
    instruction = site.instruction
    kind = instruction.opcode.removesuffix("-start")
    joining = _folded_by(site) if kind in _REDUCING else ""
    function = _OPERATORS.get(joining, Operator.OTHER) if joining else None
    return Meaning(Operator.COLLECTIVE, Exchange(kind, _along(site), instruction.integer("channel_id"), function))


def _along(site: Site) -> DeviceAxes | None:
    """The axes of devices that the groups of a collective span: of a permute those of the devices that are joined by its pairs."""
    instruction, devices = site.instruction, max(1, site.module.replica_count * site.module.num_partitions)
    if instruction.opcode.startswith("collective-permute"):
        return axes_of_groups(_joined(instruction.source_target_pairs))
    groups = instruction.replica_groups
    return axes_of_groups(groups.groups if groups is not None and groups.count else [range(devices)])


def _joined(pairs: Sequence[tuple[int, int]]) -> list[set[int]]:
    """The devices that pairs join, in sets that no pair joins.

    >>> _joined([(0, 1), (1, 0), (2, 3)])
    [{0, 1}, {2, 3}]
    """
    joined: list[set[int]] = []
    for pair in pairs:
        touching = [group for group in joined if not group.isdisjoint(pair)]
        joined = [*(group for group in joined if group not in touching), set(pair).union(*touching)]
    return joined


def _pool(site: Site) -> Meaning:
    sides = site.instruction.window
    return Meaning(Operator.WINDOW, Pooling(tuple(side.size for side in sides), tuple(side.stride for side in sides)))


def _broadcast(site: Site) -> Meaning:
    """One that only adds axes of one element, as `jax.numpy.stack` does, repeats nothing."""
    axes = tuple(site.instruction.dimensions)
    if list(axes) == sorted(axes) and site.instruction.shape.elements == site.operands[0].shape.elements:
        return Meaning(Operator.VIEW, ROW_BY_ROW)
    return Meaning(Operator.BROADCAST, Axes(axes))


def _slice(site: Site) -> Meaning:
    cuts = site.instruction.slices
    if len(cuts) != len(site.operands[0].shape.dims):
        return Meaning(Operator.OTHER)
    return Meaning(
        Operator.SLICE, Part(tuple(cut.start for cut in cuts), tuple(cut.limit for cut in cuts), tuple(cut.stride for cut in cuts))
    )


def _pad(site: Site) -> Meaning:
    sides = site.instruction.padding
    low, high, interior = zip(*((side.low, side.high, side.interior) for side in sides), strict=True)
    value = site.operands[1].literal if site.operands[1].opcode == "constant" else None
    added = float(value[0]) if value and isinstance(value[0], int | float) else None
    return Meaning(Operator.PAD, Padding(tuple(low), tuple(high), tuple(interior), added), 1)


def _order(site: Site) -> Operator:
    """A sort, unless the author asked for a top-k, which compilers write as a sort if it is of many elements."""
    return Operator.TOP_K if "top_k" in site.instruction.op_name else Operator.SORT


def _gather(site: Site) -> Meaning:
    """A gather of whole slices along one axis has that axis."""
    instruction, table = site.instruction, site.operands[0].shape.dims
    sizes, axes = instruction.integers("slice_sizes"), instruction.integers("start_index_map")
    others = [axis for axis, size in enumerate(sizes) if size != table[axis]]
    if len(axes) == 1 and others in ([], [axes[0]]) and sizes[axes[0]] == 1:
        return Meaning(Operator.GATHER, axes[0])
    return Meaning(Operator.GATHER, Rows(sizes, axes))


def _scatter(site: Site) -> Meaning:
    """A scatter that adds is one of its own; of others only those of a single element for each position have the operator."""
    axes = site.instruction.integers("scatter_dims_to_operand_dims")
    operator = Operator.SCATTER_ADD if _folded_by(site) == "add" else Operator.SCATTER
    return Meaning(operator, axes[0] if len(axes) == 1 else Rows((), axes))


_WITH_PARAMETERS: dict[str, Callable[[Site], Meaning]] = {
    **dict.fromkeys(("dot", "ragged-dot", "scaled-dot"), _product),
    "custom-call": _call,
    "convolution": lambda site: Meaning(Operator.CONVOLUTION, _windows(site)),
    "compare": lambda site: Meaning(_COMPARISONS.get(site.instruction.word("direction").upper(), Operator.COMPARE)),
    "constant": _constant,
    "iota": lambda site: Meaning(Operator.IOTA, site.instruction.integer("iota_dimension") or 0),
    "broadcast": _broadcast,
    **dict.fromkeys(("reshape", "dynamic-reshape"), lambda site: Meaning(Operator.VIEW, ROW_BY_ROW)),
    "transpose": lambda site: Meaning(Operator.TRANSPOSE, Axes(site.instruction.dimensions)),
    "reduce": _reduce,
    "reduce-window": _pool,
    **dict.fromkeys(COLLECTIVES, _exchange),
    "fft": _transform,
    "concatenate": lambda site: Meaning(Operator.CONCATENATE, site.instruction.dimensions[0]),
    "slice": _slice,
    "dynamic-slice": lambda site: Meaning(Operator.SLICE),
    "pad": _pad,
    "sort": lambda site: Meaning(_order(site), site.instruction.dimensions[0]),
    "gather": _gather,
    "scatter": _scatter,
}
