"""Reductions, scans, sorts and losses: the input read, the values written."""

from math import prod

from ..dtypes import DType
from ..errors import FormulaError
from ..ops.elementwise import summed
from ..ops.reduction import reduced, running
from .call import BOOL, INT64, Call, Priced, Tensor
from .op_table import op
from .traffic import format_name, result, streamed, traffic

SORT, SELECTION = "sort", "selection"
REDUCTION, LOSS = "reduction", "loss"
# By name: the kind of reduction with the same FLOP.
_SUMS = {"sum": "sum", "nansum": "sum", "mean": "mean", "prod": "sum", "logsumexp": "sum", "trace": "sum", "count_nonzero": "sum"}
_NORMS = {"norm": "norm", "linalg_vector_norm": "norm", "frobenius_norm": "norm"}
_EXTREMES = {"max": "max", "min": "min", "amax": "max", "amin": "min", "aminmax": "max", "any": "max", "all": "max", "median": "max"}
_EXTREMES |= {"nanmedian": "max", "_aminmax": "max", "_is_all_true": "max", "_is_any_true": "max"}
_PLACES = {"argmax": "argmax", "argmin": "argmin"}
_SPREADS = {"var": "norm", "std": "norm", "var_mean": "norm", "std_mean": "norm"}
KINDS = {**_SUMS, **_NORMS, **_EXTREMES, **_PLACES, **_SPREADS}


def results_of(call: Call, x: Tensor, place: int) -> int:
    """The number of results if the axes in argument ``place`` are reduced: one if none are given."""
    found = call.arg(place)
    axes = found if isinstance(found, tuple) else (found,) if isinstance(found, int) and not isinstance(found, bool) else ()
    if not axes:
        return 1
    if not all(isinstance(axis, int) and -len(x.shape) <= axis < max(1, len(x.shape)) for axis in axes):
        raise FormulaError(f"{call.op}: axes {axes} do not fit {x.shape}")
    gone = {axis % len(x.shape) for axis in axes if x.shape}
    return prod(size for axis, size in enumerate(x.shape) if axis not in gone)


@op(*(f"aten::{name}" for name in KINDS))
def reduction(call: Call) -> Priced | None:
    name = call.op.removeprefix("aten::")
    x = call.need(0)
    if x.dtype is None:
        return None
    if call.tensor(1) is not None and name in ("max", "min"):  # of two tensors
        out = result(call, x.shape, x.dtype)
        return streamed("elementwise", x, (x, call.tensor(1)), (out,))
    # sum(x, dtype) and max(x) reduce everything; a list, or a number of an operator that has no such overload, is axes.
    place = 2 if name in ("norm", "linalg_vector_norm") else 1
    whole = name in ("sum", "mean", "prod", "nansum") and not isinstance(call.arg(1), tuple) and len(call.args) <= 2
    values = 1 if whole else results_of(call, x, place)
    kind = KINDS[name]
    columns = x.elements // values if values else 0
    number = _result_format(call, name, x.dtype, 1 if whole else place + 2)
    second = (
        INT64 if name in ("max", "min", "median", "nanmedian") and values > 1 else number if name.endswith(("_mean", "aminmax")) else None
    )
    more = Tensor((values,), second) if second else None
    read = Tensor((x.distinct,), x.dtype)
    work = summed(1, x.dtype, reduced(kind, values, columns) if columns else 0, values if kind == "norm" and columns else 0)
    return streamed(REDUCTION, x, (read,), (Tensor((values,), number), more), work)


def _result_format(call: Call, name: str, own: DType, place: int) -> DType:
    if call.outputs and call.outputs[0].dtype:
        return call.outputs[0].dtype
    if name in _PLACES or name == "count_nonzero":
        return INT64
    if name in ("any", "all", "_is_all_true", "_is_any_true"):
        return BOOL
    requested = call.format(place)
    if requested is None and name in ("sum", "prod") and own.name.startswith(("int", "uint", "bool")):
        return INT64
    return requested or own


@op("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::cummax", "aten::cummin")
def scan(call: Call) -> Priced | None:
    x = call.need(0)
    indices = Tensor(x.shape, INT64) if call.op.startswith("aten::cumm") else None
    out = result(call, x.shape, call.format(2) or (INT64 if format_name(x).startswith(("int", "bool")) else x.dtype))
    axis = int(call.number(1, -1) or 0)
    length = x.shape[axis] if -len(x.shape) <= axis < len(x.shape) else 1
    return streamed(REDUCTION, x, (x,), (out, indices), flops=1, elements=running(x.elements, length) if indices is None else 0)


@op("aten::sort", "aten::argsort", "aten::topk", "aten::kthvalue", "aten::mode", "aten::msort")
def sort(call: Call) -> Priced | None:
    """The input is read once; values and 64-bit indices are written, k per row for ``topk``. A sort's passes are not counted."""
    x = call.need(0)
    elements = x.elements
    if call.op == "aten::topk":
        k, axis = call.number(1), int(call.number(2, -1) or 0)
        if k is None or not -max(1, len(x.shape)) <= axis < max(1, len(x.shape)):
            raise FormulaError(f"{call.op}: {k} along axis {axis} does not fit {x.shape}")
        size = x.shape[axis] if x.shape else 1
        elements = elements // size * int(k) if size else 0
    values = Tensor((elements,), x.dtype) if call.op != "aten::argsort" else None
    indices = None if call.op == "aten::msort" else Tensor((elements,), INT64)
    return streamed(SORT, x, (x,), (values, indices))


@op("aten::nonzero", "aten::masked_select", "aten::unique", "aten::_unique2", "aten::unique_dim", "aten::bincount", "aten::histogram")
@op("aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::_unique")
def data_dependent(call: Call) -> Priced | None:
    """The input is read; the size of the results is recorded, or depends on data. Compilers do not fuse these; ``unique`` sorts."""
    x = call.all_tensors
    if not x:
        return None
    category = SORT if "unique" in call.op else SELECTION
    if call.outputs:
        return streamed(category, x[0], x, call.outputs)
    least, most = traffic(x).bytes(), traffic(x, (Tensor((x[0].elements * max(1, len(x[0].shape)),), INT64),)).bytes()
    bounds = (least, most) if least is not None and most is not None else None
    return Priced(
        cost=traffic(x), category=category, dtype=format_name(x[0]), interval=bounds, notes=("the size of the result depends on the data",)
    )


@op("aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::nll_loss")
def nll_loss(call: Call) -> Priced | None:
    """One value of each row is read, that of its target."""
    x, target = call.need(0), call.need(1)
    rows = target.elements
    picked = Tensor((rows,), x.dtype)
    out = Tensor((rows if call.number(3, 1) == 0 else 1,), x.dtype)
    return streamed(LOSS, x, (picked, target, call.tensor(2)), (out,), flops=2, elements=rows)


@op("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(call: Call) -> Priced | None:
    """One value of each row is written into zeros, which in a trace are a call of their own."""
    dy, x, target = call.need(0), call.need(1), call.need(2)
    written = Tensor((target.elements,), x.dtype) if call.kernels else Tensor(x.shape, x.dtype)
    return streamed(LOSS, x, (dy, target, call.tensor(3)), (written,), flops=1, elements=target.elements)


@op("aten::_ctc_loss", "aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss")
def ctc_loss(call: Call) -> Priced | None:
    """(log-probabilities of T steps and N sequences, targets of S): T · N · (2S + 1) sums, kept for backward; cuDNN writes the gradient."""
    x, targets = call.need(0), call.need(1)
    if len(x.shape) != 3:
        return None
    steps, sequences, _ = x.shape
    longest = targets.shape[-1] if len(targets.shape) == 2 else -(-targets.elements // max(1, sequences))
    sums = Tensor((steps, sequences, 2 * longest + 1), x.dtype)
    written = (sums,) if call.op == "aten::_ctc_loss" else (x,)
    return streamed(LOSS, x, (x, targets), written, flops=4, transcendentals=4, elements=sums.elements)


@op("aten::_ctc_loss_backward")
def ctc_loss_backward(call: Call) -> Priced | None:
    """(gradient, log-probabilities, targets, lengths, lengths, loss, sums): the sums backward, and the gradient of every probability."""
    x, targets = call.need(1), call.tensor(2)
    sums = call.need(6)
    work = summed(sums.elements, x.dtype, 4, 4) + summed(x.elements, x.dtype, 2, 1)
    return streamed(LOSS, x, (x, targets, sums), (x,), work)
