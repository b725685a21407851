"""The operators of aten, by the names that rules know, and what their arguments mean."""

import re
from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..graph import ROW_BY_ROW, Array, Axes, Factor, Graph, Node, Norm, Operator, Padding, Params, Part, Rows, Sizes, Windows
from .attention import ATTENTION, drops_out, token_axis
from .call import Call, Tensor
from .convolutions import FORWARD as _CONVOLVED
from .elementwise import ELEMENTWISE
from .linear_algebra import LINEAR_ALGEBRA
from .norms import NORM

FIRST_FACTOR = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
    "aten::_addmm_activation": 1,
    "aten::mv": 0,
    "aten::addmv": 1,
}
_AFTER = {
    "aten::addmm": Operator.ADD,
    "aten::baddbmm": Operator.ADD,
    "aten::_addmm_activation": Operator.OTHER,
    "aten::addmv": Operator.ADD,
}
FOREACH = "aten::_foreach_"
LISTS = (FOREACH, "aten::_fused_")  # the names of operators on lists of tensors begin like this
# Categories of operators that a compiler computes in one kernel with those around them: of each element, or of rows that are reduced.
POINTWISE = frozenset(("elementwise", "cast", "copy", "data movement", "gather"))
REDUCING = frozenset(("normalisation", "softmax", "reduction", "loss"))
CONVOLUTIONS = frozenset(f"aten::{name}" for name in _CONVOLVED)
_OF_SELECT = 3  # a predicate and two tensors
_FILLED = {"zero": 0, "ones": 1}
ROLL = "aten::roll"
_STACKS = frozenset(("aten::stack", "aten::_stack"))
_MASKED = frozenset(f"aten::{name}" for name in ("index_put", "index_put_", "_index_put_impl_"))  # x[mask] = y
# Gradients of embedding tables, and the place of the argument that is the number of rows, after the gradient of the result and the indices.
TABLE_GRADIENTS = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
_POWERS = frozenset(("aten::pow", "aten::pow_"))
_SOFTMAX = {
    "aten::_softmax": Operator.SOFTMAX,
    "aten::_safe_softmax": Operator.SOFTMAX,
    "aten::_log_softmax": Operator.LOG_SOFTMAX,
    "aten::log_softmax": Operator.LOG_SOFTMAX,
}
_COMPILED_SOFTMAX = re.compile(r"triton_\w*(?<!log)_(?:safe_|masked_)?softmax(?!_backward)")
_AXIS = {
    "aten::index_select": 1,
    "aten::gather": 1,
    "aten::scatter": 1,
    "aten::scatter_": 1,
    **dict.fromkeys(_SOFTMAX, 1),
}  # the place of the argument that is the axis
_MEAN, _TRAINS = 3, 5  # the places of the arguments of a batch norm with the stored mean, and whether to compute another
# Norms of the last axes and their gradients, and the place of the argument with the sizes of these axes.
_SLICE_NORMS = {"native_layer_norm": 1, "_fused_rms_norm": 1, "native_layer_norm_backward": 2, "_fused_rms_norm_backward": 2}
_NAMES = {
    Operator.GATHER: "index index_select gather embedding",
    Operator.SCATTER: "scatter scatter_",
    Operator.SCATTER_ADD: "index_add index_add_ scatter_add scatter_add_",
    Operator.CONCATENATE: "cat",
    Operator.CONVOLUTION_GRADIENT: "convolution_backward convolution_backward_overrideable",
    Operator.PAD: "constant_pad_nd slice_backward select_backward",
    Operator.EQUAL: "eq",
    Operator.DIFFERENT: "ne",
    Operator.COMPARE: "ge gt le lt",
    Operator.SELECT: "where",
    Operator.AND: "logical_and bitwise_and __and__",
    Operator.ADD: "add add_",
    Operator.SUBTRACT: "sub sub_",
    Operator.MULTIPLY: "mul mul_",
    Operator.DIVIDE: "div div_",
    Operator.REMAINDER: "remainder remainder_ fmod fmod_",
    Operator.NEGATE: "neg neg_",
    Operator.EXPONENTIAL: "exp exp_",
    Operator.FILL: "zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill fill_ zero_ scalar_tensor",
    Operator.IOTA: "arange",
    Operator.IDENTITY: "eye",
    Operator.INVERSE: "linalg_inv_ex",
    Operator.FACTOR: "linalg_cholesky_ex cholesky",
    Operator.SOLVE: "_linalg_solve_ex linalg_solve_triangular",
    Operator.SORT: "sort",
    Operator.RANDOM: "multinomial",
    Operator.SCAN: "cumsum cumsum_ cumprod cumprod_ logcumsumexp",
    Operator.TOP_K: "topk",
    Operator.PATCHES: "im2col",
    Operator.FOLD: "col2im",
    Operator.TRIANGLE: "tril triu tril_ triu_",
    Operator.COPY: "copy_ _to_copy clone contiguous",
    Operator.NORM: " ".join(_SLICE_NORMS),
}
# Reductions, and the operator that each applies; a mean is a sum whose result is scaled.
_REDUCED_BY = {
    Operator.ADD: "sum mean",
    Operator.MULTIPLY: "prod",
    Operator.MAXIMUM: "amax max any",
    Operator.MINIMUM: "amin min all",
}
# What takes a diagonal of a matrix, or makes matrices of diagonals; and the arguments that say that these are main ones.
_OF_DIAGONALS = {"aten::trace": Operator.REDUCE, "aten::diagonal_copy": Operator.COPY, "aten::diag_embed": Operator.DIAGONAL}
_MAIN = (), (0,), (0, -2, -1)
_OF_ROWS = frozenset(("aten::linalg_cross", "aten::_sample_dirichlet", "aten::_transform_bias_rescale_qkv"))  # priced as elementwise
_RANDOM = """
    bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ log_normal_ multinomial normal normal_ poisson random_ uniform_
    rand rand_like randint randint_like randn randn_like randperm dropout dropout_ native_dropout alpha_dropout feature_dropout
    _fused_dropout rrelu_with_noise rrelu_with_noise_ _sample_dirichlet _standard_gamma _cudnn_rnn _cudnn_init_dropout_state miopen_rnn
"""
_RANDOM_NAMES = frozenset(f"aten::{name}" for name in _RANDOM.split())
_BY_CATEGORY = {ELEMENTWISE: Operator.ELEMENTWISE, LINEAR_ALGEBRA: Operator.DECOMPOSE, NORM: Operator.NORM}
_TRANSFORMS = ("aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r")
_REDUCTIONS = {f"aten::{name}": operator for operator, names in _REDUCED_BY.items() for name in names.split()}
_OPERATORS = {f"aten::{name}": operator for operator, names in _NAMES.items() for name in names.split()}


class Meaning(Struct, frozen=True):
    """What a call computes: the operator, the places of the tensors that it takes among all of its tensors, and its parameters.

    The result of a product with a bias is changed by the operator ``then``, in the same kernel. A selection between a tensor and a number
    has that as its parameter. Of its first tensor a call may read a diagonal alone, copy it several times along each axis of the result,
    or join both parts of it in the other order, the first of which has so many elements along an axis. What is stacked gets that axis
    first. Of lists of ``list_length``
    tensors it computes with those at each place by themselves.
    """

    operator: Operator
    takes: tuple[int, ...]
    params: Params = None
    then: Operator | None = None
    is_of_diagonal: bool = False
    repeats: tuple[int, ...] = ()
    turned_at: int = 0
    is_stack: bool = False
    list_length: int = 0


OF_TABLE = Meaning(Operator.SCATTER_ADD, (1, 0), 0)  # the gradient of a table


def fuses(name: str, category: str) -> bool:
    """Whether a compiler computes an operator of a category in one kernel with those around it, also one on lists."""
    return category in POINTWISE or category in REDUCING or (category == "optimizer" and name.startswith(FOREACH))


def append(graph: Graph, means: Meaning, takes: tuple[int, ...], gives: tuple[int, ...], node: Node, function: Hashable = None) -> None:
    """Appends the nodes of a call to a graph; ``node`` has its origin, which all of them share, and ``function`` is what it computes."""
    if means.list_length and len(takes) % means.list_length == len(gives) % means.list_length == 0:
        for place in range(means.list_length):
            graph.append(
                replace(node, operator=means.operator, takes=takes[place :: means.list_length], gives=gives[place :: means.list_length])
            )
        return
    if means.is_of_diagonal:
        takes = (_diagonal(graph, takes[0], gives, node), *takes[1:])
    if means.repeats and gives:
        copies = _repeated(graph, means.repeats, takes[0], node, function)
        graph.append(Node(Operator.VIEW, (copies,), gives, ROW_BY_ROW, phase=node.phase), "")
        return
    if means.turned_at and isinstance(means.params, int):
        takes = _parts(graph, takes[0], means.params, means.turned_at, node)
    if means.is_stack and isinstance(means.params, int):
        takes = tuple(_with_axis(graph, array, means.params, node) for array in takes)
    if means.operator == Operator.REDUCE and gives and (reduced := _reduced(graph, means, takes[0], gives[0])) is not None:
        first = graph.array(reduced)
        graph.append(replace(node, operator=means.operator, takes=takes, gives=(first, *gives[1:]), params=means.params), function)
        graph.append(Node(Operator.VIEW, (first,), gives[:1], ROW_BY_ROW, phase=node.phase), "")
        return
    if means == OF_TABLE and gives:
        takes = _scattered(graph, takes, gives[0], node)
    if means.operator == Operator.SELECT and len(takes) < _OF_SELECT:
        number = graph.array(Array((), graph.arrays[takes[1]].dtype))
        graph.append(Node(Operator.FILL, (), (number,), means.params, phase=node.phase), "")
        graph.append(replace(node, operator=means.operator, takes=(*takes, number), gives=gives), function)
        return
    if means.then is None:
        graph.append(replace(node, operator=means.operator, takes=takes, gives=gives, params=means.params), function)
        return
    made = graph.arrays[gives[0]] if gives else Array(())
    product = graph.array(Array(made.shape, made.dtype, sure=made.sure))
    graph.append(replace(node, operator=means.operator, takes=takes[:2], gives=(product,), params=means.params), function)
    graph.append(replace(node, operator=means.then, takes=(product, *takes[2:]), gives=gives), function)


def _diagonal(graph: Graph, matrix: int, gives: Sequence[int], node: Node) -> int:
    """The diagonal of a matrix, which a call copies or adds up: it reads it through a view of its own."""
    whole, copies = graph.arrays[matrix], [graph.arrays[array].shape for array in gives]
    strides = None if whole.strides is None else (sum(whole.strides),)
    shape = next(filter(None, copies), (min(whole.shape),))
    diagonal = graph.array(Array(shape, whole.dtype, strides, sure=whole.sure))
    graph.append(Node(Operator.SLICE, (matrix,), (diagonal,), phase=node.phase), "")
    return diagonal


def _parts(graph: Graph, source: int, axis: int, end: int, node: Node) -> tuple[int, int]:
    """Both parts of an array along an axis, that after the end of the first one before it."""
    whole = graph.arrays[source]
    parts = []
    for start, limit in ((end, whole.shape[axis]), (0, end)):
        starts, limits = ([*numbers] for numbers in ((0,) * len(whole.shape), whole.shape))
        starts[axis], limits[axis] = start, limit
        shape = tuple(last - first for first, last in zip(starts, limits, strict=True))
        parts.append(graph.array(Array(shape, whole.dtype, whole.strides, sure=whole.sure)))
        graph.append(
            Node(Operator.SLICE, (source,), (parts[-1],), Part(tuple(starts), tuple(limits), (1,) * len(shape)), phase=node.phase), ""
        )
    return parts[0], parts[1]


def _with_axis(graph: Graph, source: int, axis: int, node: Node) -> int:
    """A view of an array with one more axis, of one element."""
    before = graph.arrays[source]
    strides = None if before.strides is None else (*before.strides[:axis], 1, *before.strides[axis:])
    view = graph.array(Array((*before.shape[:axis], 1, *before.shape[axis:]), before.dtype, strides, sure=before.sure))
    graph.append(Node(Operator.VIEW, (source,), (view,), phase=node.phase), "")
    return view


def _scattered(graph: Graph, takes: tuple[int, ...], given: int, node: Node) -> tuple[int, ...]:
    """The zeros, positions and rows of a gradient of a table: zeros that no other call makes are its own, and a row may be at several."""
    whole = graph.arrays[given]
    *zeros, positions, rows = takes
    if not zeros:
        zeros = [graph.array(Array(whole.shape, whole.dtype, sure=whole.sure))]
        graph.append(Node(Operator.FILL, (), (zeros[0],), 0, phase=node.phase), "")
    shape = (graph.arrays[positions].elements, whole.shape[-1])
    if graph.arrays[rows].elements < prod(shape):
        taken = graph.array(Array(shape, graph.arrays[rows].dtype, sure=graph.arrays[rows].sure))
        graph.append(Node(Operator.GATHER, (rows, positions), (taken,), phase=node.phase))
        rows = taken
    return zeros[0], positions, rows


def _repeated(graph: Graph, repeats: Sequence[int], source: int, node: Node, function: Hashable) -> int:
    """The copies of an array, in an axis of their own before each that they repeat."""
    once = graph.arrays[source]
    missing = len(repeats) - len(once.shape)
    sizes, strides = (1,) * missing + once.shape, (0,) * missing + (once.strides or ())
    shape = tuple(size for times, length in zip(repeats, sizes, strict=True) for size in (times, length))
    steps = tuple(step for stride in strides for step in (0, stride)) if once.strides is not None else None
    expanded, copies = graph.array(Array(shape, once.dtype, steps, sure=once.sure)), graph.array(Array(shape, once.dtype, sure=once.sure))
    graph.append(Node(Operator.BROADCAST, (source,), (expanded,), phase=node.phase), "")
    graph.append(replace(node, operator=Operator.COPY, takes=(expanded,), gives=(copies,)), function)
    return copies


def _reduced(graph: Graph, means: Meaning, source: int, given: int) -> Array | None:
    """The result of a reduction without the axes of size 1 that it keeps; ``None`` if it keeps none."""
    axes = means.params.axes if isinstance(means.params, Axes) else ()
    shape = tuple(size for axis, size in enumerate(graph.arrays[source].shape) if axis not in axes)
    kept = graph.arrays[given]
    return Array(shape, kept.dtype, sure=kept.sure) if len(kept.shape) > len(shape) else None


def meaning(name: str, args: Sequence[Any], category: str) -> Meaning:
    """What a call of an operator of aten computes, by its arguments and the category of its price."""
    tensors = tensors_of(args)
    everything = tuple(range(len(tensors)))
    if name.startswith(LISTS) and (means := _of_lists(args)) is not None:
        return means
    if (place := FIRST_FACTOR.get(name)) is not None:
        return _product(tensors, place, _AFTER.get(name))
    if category == ATTENTION and len(tensors) > 2:
        operator = Operator.ATTENTION_GRADIENT if "backward" in name else Operator.ATTENTION
        return Meaning(operator, everything, token_axis(name))
    if name in CONVOLUTIONS and len(tensors) > 1 and len(tensors[1].shape) > 2:
        return _convolution(everything, tensors[1].shape)
    if name in _TRANSFORMS and tensors:
        return Meaning(Operator.FOURIER, (0,), _transformed_axes(args, len(tensors[0].shape)))
    if name in _REDUCTIONS and tensors:
        return _reduction(name, args, tensors)
    if name in TABLE_GRADIENTS and len(tensors) > 1 and tensors[0].shape:
        return OF_TABLE
    if name in _OF_DIAGONALS and tensors:
        return _of_diagonals(name, args, tensors[0])
    if name == ROLL and tensors:
        return _rolled(args, tensors[0])
    if name in _STACKS and tensors:
        axis = args[1] if len(args) > 1 and isinstance(args[1], int) else 0
        return Meaning(Operator.CONCATENATE, everything, axis % (len(tensors[0].shape) + 1), is_stack=True)
    if name == "aten::repeat" and (repeats := _repeats(args, tensors)):
        return Meaning(Operator.COPY, (0,), repeats=repeats)
    operator = _OPERATORS.get(name, Operator.OTHER if name in _OF_ROWS else _BY_CATEGORY.get(category, Operator.OTHER))
    if operator == Operator.ELEMENTWISE and name.endswith("_backward"):  # a gradient times a function of the others
        operator = Operator.MULTIPLY
    source = 1 if name == "aten::copy_" else 0
    if operator == Operator.FILL:
        return Meaning(operator, (), _filling(name, args))
    if operator in (Operator.IOTA, Operator.IDENTITY):
        return Meaning(operator, ())
    if len(tensors) <= (source if operator == Operator.COPY else 0):  # traces may leave arguments out
        return Meaning(Operator.OTHER, ())
    if operator == Operator.COPY:
        return Meaning(Operator.CAST if category == "cast" else Operator.COPY, (source,))
    words = [arg for arg in args if isinstance(arg, str)]
    if (operator == Operator.DIVIDE and words) or any(word.endswith("j") for word in words):  # it rounds quotients, or has a complex number
        return Meaning(Operator.ELEMENTWISE, everything)
    if name in _POWERS and args[1:] == (2,):
        return Meaning(Operator.MULTIPLY, (0, 0))
    if operator == Operator.GATHER:
        return _gather(name, args, tensors)
    if operator == Operator.SCATTER:
        return Meaning(operator if len(tensors) > 1 else Operator.OTHER, everything, _axis(name, args))
    if operator == Operator.SCATTER_ADD:
        return _sums(name, args, everything)
    if operator in (Operator.EQUAL, Operator.DIFFERENT, Operator.COMPARE, Operator.REMAINDER) and len(tensors) == 1:
        return Meaning(operator, everything, _number(args, 1))
    if operator == Operator.SELECT and len(tensors) < _OF_SELECT:
        are_first = len(tensors) == _OF_SELECT - 1 and all(isinstance(arg, Tensor) for arg in args[:2])
        return Meaning(operator, everything, _number(args, 2)) if are_first else Meaning(Operator.ELEMENTWISE, everything)
    if name in _SOFTMAX:
        return Meaning(_SOFTMAX[name], everything, _axis(name, args))
    if _COMPILED_SOFTMAX.match(name):  # fused with what surrounds it
        return Meaning(Operator.SOFTMAX, everything)
    if name in _MASKED and (mask := _whole_mask(args, tensors[0])) is not None:
        return Meaning(Operator.SELECT, (mask, len(tensors) - 1, 0))
    if operator in (Operator.SORT, Operator.SCAN):
        axis = next((arg for arg in args[1:] if isinstance(arg, int) and not isinstance(arg, bool)), -1)
        return Meaning(operator, (0,), axis % max(len(tensors[0].shape), 1))
    if operator == Operator.DIVIDE and len(args) > 2:  # it rounds the quotient
        return Meaning(Operator.ELEMENTWISE, everything)
    if operator == Operator.PAD:
        return Meaning(operator, everything, _padding(name, args, tensors[0]))
    if operator == Operator.NORM:
        return Meaning(operator, everything, _normed_axes(name, args, tensors[0]))
    if operator == Operator.CONCATENATE:
        return Meaning(operator, everything, args[1] if len(args) > 1 and isinstance(args[1], int) else 0)
    return Meaning(operator, everything)


def lists_in(args: Sequence[Any]) -> list[Sequence[Tensor]]:
    """The lists of tensors among arguments that are as long as the first one."""
    lists = [arg for arg in args if isinstance(arg, list | tuple) and arg and all(isinstance(tensor, Tensor) for tensor in arg)]
    return [tensors for tensors in lists if len(tensors) == len(lists[0])]


def _of_lists(args: Sequence[Any]) -> Meaning | None:
    """What an operator computes of lists of tensors, place by place."""
    lists, places, before = lists_in(args), list[int](), 0
    for arg in args:
        tensors = tensors_of(arg)
        places += range(before, before + len(tensors)) if any(arg is tensors for tensors in lists) else ()
        before += len(tensors)
    return Meaning(Operator.OTHER, tuple(places), list_length=len(lists[0])) if lists else None


def function_of(call: Call) -> Hashable:
    """What a call computes of its tensors: its operator and other arguments; ``None`` if it is random, or not PyTorch's."""
    if not call.op.startswith("aten::") or call.op in _RANDOM_NAMES or drops_out(call):
        return None
    return call.op, call.overload, _without_tensors(call.args)


def _without_tensors(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_without_tensors, value))
    return Tensor if isinstance(value, Tensor) else value


def tensors_of(value: Any) -> list[Tensor]:
    """Every tensor in an argument or a list of arguments, in order."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in tensors_of(part)] if isinstance(value, (list, tuple)) else []


def _transformed_axes(args: Sequence[Any], rank: int) -> Axes | None:
    axes = args[1] if len(args) > 1 else None
    if not isinstance(axes, tuple) or not all(isinstance(axis, int) and -rank <= axis < rank for axis in axes):
        return None
    return Axes(tuple(sorted(axis % rank for axis in axes)))


def _axis(name: str, args: Sequence[Any]) -> int | None:
    place = _AXIS[name]
    axis = args[place] if place < len(args) else None
    return axis if isinstance(axis, int) else None


def _number(args: Sequence[Any], place: int) -> float | None:
    given = args[place] if place < len(args) else None
    return given if isinstance(given, int | float) else None


def _filling(name: str, args: Sequence[Any]) -> float | None:
    """The value that an operator fills a tensor with."""
    value = next((value for word, value in _FILLED.items() if word in name), None)
    return value if value is not None else _number(args, 0 if name == "aten::scalar_tensor" else 1)


def _product(tensors: Sequence[Tensor], place: int, then: Operator | None) -> Meaning:
    """A product of the tensor at a place and the next one, which may be a vector; the others are added to it."""
    everything = tuple(range(len(tensors)))
    factors = tensors[place : place + 2]
    if len(factors) < 2 or len(factors[0].shape) < 2 or not factors[1].shape:
        return Meaning(Operator.OTHER, everything)
    left, right = factors
    outer, other = (tuple(range(len(factor.shape) - 2)) for factor in factors)
    ours = Factor(outer, (len(outer) + 1,), (len(outer),))
    theirs = Factor(other, (len(other),), (len(other) + 1,) if len(right.shape) > 1 else ())
    batch, columns = left.elements // max(left.shape[-2] * left.shape[-1], 1), right.shape[-1] if len(right.shape) > 1 else 1
    sizes = Sizes(batch, left.shape[-2], left.shape[-1], columns, ours, theirs)
    others = tuple(other for other in everything if other not in (place, place + 1))
    return Meaning(Operator.DOT, (place, place + 1, *(others if then is not None else ())), sizes, then)


def _convolution(everything: tuple[int, ...], weights: tuple[int, ...]) -> Meaning:
    """A convolution, which may add a bias."""
    gives, takes, *sizes = weights
    positions = tuple(range(2, len(weights)))
    return Meaning(Operator.CONVOLUTION, everything, Windows((takes, gives), tuple(sizes), (1,) * len(sizes), positions))


def _reduction(name: str, args: Sequence[Any], tensors: Sequence[Tensor]) -> Meaning:
    """A reduction over some axes, all if none are given; ``max`` and ``min`` of two tensors are elementwise."""
    function, rank = _REDUCTIONS[name], len(tensors[0].shape)
    if len(tensors) > 1 and function in (Operator.MAXIMUM, Operator.MINIMUM):
        return Meaning(function, tuple(range(len(tensors))))
    given = args[1] if len(args) > 1 else ()
    axes = given if isinstance(given, tuple) else (given,) if isinstance(given, int) and not isinstance(given, bool) else ()
    if not all(isinstance(axis, int) and -rank <= axis < rank for axis in axes):
        return Meaning(Operator.OTHER, (0,))
    return Meaning(Operator.REDUCE, (0,), Axes(tuple(sorted(axis % rank for axis in axes)) or tuple(range(rank)), function))


def _repeats(args: Sequence[Any], tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """How often a tensor is repeated along each axis of the result; nothing if that is not known."""
    repeats = args[1] if len(args) > 1 and isinstance(args[1], tuple) else ()
    is_known = bool(tensors) and len(repeats) >= len(tensors[0].shape) and all(isinstance(times, int) and times > 0 for times in repeats)
    return repeats if is_known else ()


def _rolled(args: Sequence[Any], source: Tensor) -> Meaning:
    """What a tensor that is rolled along one axis is made of: its last elements, then those before."""
    match [*args[1:3]]:
        case [(int(shift),) | int(shift), (int(axis),) | int(axis)] if -len(source.shape) <= axis < len(source.shape):
            end = -shift % max(source.shape[axis], 1)
            return Meaning(Operator.CONCATENATE if end else Operator.OTHER, (0,), axis % len(source.shape), turned_at=end)
    return Meaning(Operator.OTHER, (0,))


def _whole_mask(args: Sequence[Any], target: Tensor) -> int | None:
    """The place of the mask among the tensors of a write to some elements, if it has one of the target's shape and adds to none."""
    masks = tensors_of(args[1]) if len(args) > 1 else []
    is_mask = len(masks) == 1 and masks[0].shape == target.shape and masks[0].dtype is not None and masks[0].dtype.name == "bool"
    return 1 if is_mask and len(tensors_of(args)) == _OF_SELECT and True not in args[3:4] else None


def _of_diagonals(name: str, args: Sequence[Any], source: Tensor) -> Meaning:
    """A function of a diagonal of a matrix, or matrices with tensors on their main diagonals."""
    operator = _OF_DIAGONALS[name]
    if operator == Operator.DIAGONAL:
        return Meaning(operator if tuple(args[1:]) in _MAIN else Operator.OTHER, (0,))
    if len(source.shape) > 2:
        return Meaning(Operator.OTHER, (0,))
    return Meaning(operator, (0,), Axes((0,), Operator.ADD) if operator == Operator.REDUCE else None, is_of_diagonal=True)


def _padding(name: str, args: Sequence[Any], source: Tensor) -> Padding | None:
    """The elements that are added around those of a tensor, which are given in pairs from the last axis on."""
    given = args[1] if name == "aten::constant_pad_nd" and len(args) > 1 else ()
    added, rank = (given if isinstance(given, tuple) else ()), len(source.shape)
    if not added or len(added) > 2 * rank or len(added) % 2 or not all(isinstance(count, int) for count in added):
        return None
    pairs = [*zip(added[::2], added[1::2], strict=True)] + [(0, 0)] * (rank - len(added) // 2)
    low, high = zip(*reversed(pairs), strict=True)
    value = args[2] if len(args) > 2 else 0
    return Padding(low, high, (0,) * rank, float(value) if isinstance(value, int | float) else None)


def _normed_axes(name: str, args: Sequence[Any], source: Tensor) -> Axes | None:
    """The axes that a norm is along: its last ones, or those of a batch norm, none if it takes its statistics from outside."""
    if "batch_norm" in name and ("no_" in name or False in args[_TRAINS : _TRAINS + 1]):
        return Norm(())
    if "batch_norm" in name:
        axes, mean = tuple(axis for axis in range(len(source.shape)) if axis != 1), args[_MEAN] if len(args) > _TRAINS else None
        return Norm(axes, has_stored=isinstance(mean, Tensor) and mean.shape == source.shape[1:2])
    place = _SLICE_NORMS.get(name.removeprefix("aten::"), len(args))
    sizes, rank = args[place] if place < len(args) else None, len(source.shape)
    return Axes(tuple(range(rank - len(sizes), rank))) if isinstance(sizes, tuple) and len(sizes) <= rank else None


def _sums(name: str, args: Sequence[Any], everything: tuple[int, ...]) -> Meaning:
    """Rows that are added to others, or single elements, whose other positions are those of the indices."""
    tensors, axis = tensors_of(args), _number(args, 1)
    if len(tensors) != _OF_SELECT:
        return Meaning(Operator.OTHER, everything)
    rank = len(tensors[0].shape)
    if "scatter" in name:
        return Meaning(Operator.SCATTER_ADD, everything, Rows((), tuple(range(rank))))
    return Meaning(Operator.SCATTER_ADD, everything, axis % rank if isinstance(axis, int) and rank else None)


def _elements(axis: int | None, tensors: Sequence[Tensor]) -> Rows:
    """What ``gather`` takes: single elements, with the positions of the indices on other axes, or slices along which these are expanded."""
    table, indices = (*tensors, Tensor(()), Tensor(()))[:2]
    rank, strides = len(table.shape), indices.strides or ()
    sizes = [1] * rank
    if axis is not None and rank == len(indices.shape) == len(strides):
        for place, size in enumerate(table.shape):
            if strides[place] == 0 and indices.shape[place] == size and place != axis % rank:
                sizes[place] = size
    return Rows(tuple(sizes), tuple(range(rank)) if axis is None or max(sizes, default=1) == 1 else (axis % rank,))


def _gather(name: str, args: Sequence[Any], tensors: Sequence[Tensor]) -> Meaning:
    """A gather; ``x[i, j]`` and ``x[mask]`` are other operators. Where the indices are not recorded, neither is the axis."""
    everything = tuple(range(len(tensors)))
    if name == "aten::index_select":
        return Meaning(Operator.GATHER, everything, _axis(name, args))
    if name == "aten::embedding":
        return Meaning(Operator.GATHER, everything, 0)
    if name == "aten::gather":
        return Meaning(Operator.GATHER, everything, _elements(_axis(name, args), tensors))
    indices = args[1] if len(args) > 1 else None
    if not isinstance(indices, (list, tuple)):
        return Meaning(Operator.GATHER, everything)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    is_mask = any(isinstance(index, Tensor) and index.dtype is not None and index.dtype.name == "bool" for index in indices)
    return Meaning(Operator.GATHER, everything, axes[0]) if len(axes) == 1 and not is_mask else Meaning(Operator.OTHER, everything)
