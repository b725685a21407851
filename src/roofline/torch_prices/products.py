"""Products: ``mm``, ``addmm``, ``bmm``, ``linear``, ``matmul``, scaled, grouped, integer, packed and 2:4 sparse ones.

2·m·k·n FLOP, four times that for complex numbers; operands read once, the result written once, a bias read unless beta is 0.
"""

from math import prod

from msgspec.structs import replace

from ..cost import NOTHING
from ..dtypes import DType, dtype
from ..errors import FormulaError
from ..formulas.compute_units import matrix_work
from ..operation import Product
from ..ops.elementwise import on_sums
from ..ops.product import real_flops
from .call import FP4_PAIR, Call, Priced, Tensor
from .op_table import op
from .product_formats import product_format
from .traffic import result, traffic

MATMUL, SPARSE_MATMUL, QUANTIZED_MATMUL = "matmul", "sparse matmul", "quantized matmul"
Sizes = tuple[int, int, int, int]  # batch, m, k, n
TURNED_BITS = 16  # bits of formats that matrix units load along either axis (PTX: wgmma's transposed operands)


def product(
    call: Call,
    a: Tensor,
    b: Tensor,
    sizes: Sizes,
    out: Tensor,
    *,
    bias: Tensor | None = None,
    read: tuple[Tensor | None, ...] = (),
    counted: bool = True,
    notes: tuple[str, ...] = (),
) -> Priced:
    """A batch of m x k x n products: ``bias`` is added to the result, ``read`` are tensors besides these.

    ``counted`` is whether PyTorch's FlopCounterMode counts such calls.
    """
    batch, m, k, n = sizes
    number, said = product_format(call, a, b)
    if FP4_PAIR in (a.dtype, b.dtype):
        k *= 2
    flops = 2 * batch * m * k * n
    real = real_flops(batch * m * k * n, number)
    work = matrix_work(real, number)
    if bias is not None:
        work += on_sums("bias", batch * m * n, number)
    return Priced(
        cost=work + traffic((a, b, *read, bias), (out,)),
        category=MATMUL,
        dtype=number.rate,
        by_convention={"flop_counter": flops} if counted else {},
        notes=said + notes,
        operation=_by_sizes(a, b, out, (batch, m, k, n), number) if real == flops else None,
    )


def _by_sizes(a: Tensor, b: Tensor, out: Tensor, sizes: Sizes, number: DType) -> Product:
    batch, m, k, n = sizes
    left, right, made = ((one.dtype or number).name for one in (a, b, out))
    turned = (_apart(a, -1) + _apart(b, -2)) if number.bits != TURNED_BITS else 0
    return Product(m=m, k=k, n=n, batch=batch, left=left, right=right, out=made, compute=number.rate, turned=turned)


def _apart(one: Tensor, axis: int) -> bool:
    """Whether the elements along an axis are not contiguous; a vector has no second axis."""
    return one.strides is not None and -axis <= len(one.strides) == len(one.shape) and one.strides[axis] != 1


def two_matrices(call: Call, first: int = 0, rank: int = 2) -> tuple[Tensor, Tensor, Sizes, tuple[int, ...]]:
    """Two operands of this rank, at ``first`` and after it, with the sizes and the shape of their product.

    Raises `FormulaError` if their contracted sizes do not agree.
    """
    a, b = call.tensor(first), call.tensor(first + 1)
    if a is None or b is None:
        raise FormulaError(f"{call.op}: the recording lacks an operand's shape")
    if len(a.shape) != rank or len(b.shape) != rank or a.shape[-1] != b.shape[-2]:
        raise FormulaError(f"{call.op}: operands of shapes {a.shape} and {b.shape} do not fit")
    m, k, n = *a.shape[-2:], b.shape[-1]
    return a, b, (prod(a.shape[:-2]), m, k, n), (*a.shape[:-1], n)


def _format(call: Call, place: int, a: Tensor) -> DType | None:
    return call.format(place) or a.dtype


@op("aten::mm", "aten::bmm")
def mm(call: Call) -> Priced | None:
    a, b, sizes, shape = two_matrices(call, rank=3 if call.op == "aten::bmm" else 2)
    return product(call, a, b, sizes, result(call, shape, _format(call, 2, a)))


@op("aten::addmm", "aten::baddbmm", "aten::_addmm_activation")
def addmm(call: Call) -> Priced | None:
    a, b, sizes, shape = two_matrices(call, 1, rank=3 if call.op.startswith("aten::baddbmm") else 2)
    priced = product(call, a, b, sizes, result(call, shape, a.dtype), bias=_added(call))
    if call.op != "aten::_addmm_activation":
        return priced
    work = on_sums("gelu" if call.flag(5) else "relu", prod(shape), a.dtype)
    return replace(priced, cost=(priced.cost or NOTHING) + work, operation=None)


@op("aten::addbmm")
def addbmm(call: Call) -> Priced | None:
    """The sum of a batch of products and a matrix: one result of m x n."""
    a, b, (batch, m, k, n), _ = two_matrices(call, 1, rank=3)
    return product(call, a, b, (1, m, batch * k, n), result(call, (m, n), a.dtype), bias=_added(call), counted=False)


def _added(call: Call) -> Tensor | None:
    """The tensor that is added to a product, unless its factor beta is 0."""
    return call.tensor(0) if call.number(3, 1) else None


@op("aten::linear")
def linear(call: Call) -> Priced | None:
    """x · wᵀ + b over the last axis of x; w is (n, k)."""
    x, w, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    if x is None or w is None or not x.shape or x.shape[-1] != w.shape[-1]:
        raise FormulaError(f"{call.op}: the operands' shapes are missing or do not fit")
    n = w.shape[0] if len(w.shape) == 2 else 1
    shape = (*x.shape[:-1], n) if len(w.shape) == 2 else x.shape[:-1]
    rows = prod(x.shape[:-1])
    out = result(call, shape, x.dtype)
    return product(call, x, w, (1, rows, x.shape[-1], n), out, bias=bias)


@op("aten::matmul", "aten::__rmatmul__")
def matmul(call: Call) -> Priced | None:
    """The product of arrays of any rank: the last two axes are matrices, the others broadcast."""
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or not a.shape or not b.shape:
        raise FormulaError(f"{call.op}: the recording lacks an operand's shape")
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        raise FormulaError(f"{call.op}: operands of shapes {a.shape} and {b.shape} do not fit")
    batch = broadcast(call, left[:-2], right[:-2])
    shape = batch + (left[-2:-1] if len(a.shape) > 1 else ()) + (right[-1:] if len(b.shape) > 1 else ())
    sizes = (prod(batch), left[-2], left[-1], right[-1])
    return product(call, a, b, sizes, result(call, shape, a.dtype))


def broadcast(call: Call, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these broadcast to."""
    rank = max((len(shape) for shape in shapes), default=0)
    sizes = []
    for place in range(rank):
        found = {shape[place - rank + len(shape)] for shape in shapes if place - rank + len(shape) >= 0} - {1}
        if len(found) > 1:
            raise FormulaError(f"{call.op}: shapes {', '.join(map(str, shapes))} do not broadcast")
        sizes.append(found.pop() if found else 1)
    return tuple(sizes)


@op("aten::mv", "aten::addmv")
def mv(call: Call) -> Priced | None:
    """A matrix times a vector, with another vector added in ``addmv``."""
    first = 1 if call.op.startswith("aten::addmv") else 0
    a, x = call.tensor(first), call.tensor(first + 1)
    if a is None or x is None or len(a.shape) != 2 or x.shape != a.shape[1:]:
        raise FormulaError(f"{call.op}: the operands' shapes are missing or do not fit")
    bias = _added(call) if first else None
    out = result(call, a.shape[:1], a.dtype)
    return product(call, a, x, (1, *a.shape, 1), out, bias=bias, counted=False)


@op("aten::dot", "aten::vdot", "aten::inner")
def dot(call: Call) -> Priced | None:
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or a.shape != b.shape or len(a.shape) != 1:
        raise FormulaError(f"{call.op}: the operands' shapes are missing or do not fit")
    return product(call, a, b, (1, 1, a.shape[0], 1), result(call, (), a.dtype), counted=False)


@op("aten::ger", "aten::outer", "aten::addr")
def outer(call: Call) -> Priced | None:
    """x ⊗ y: a product with k = 1, with a matrix added in ``addr``."""
    first = 1 if call.op.startswith("aten::addr") else 0
    x, y = call.tensor(first), call.tensor(first + 1)
    if x is None or y is None or len(x.shape) != 1 or len(y.shape) != 1:
        raise FormulaError(f"{call.op}: the operands' shapes are missing or do not fit")
    (m,), (n,) = x.shape, y.shape
    bias = _added(call) if first else None
    return product(call, x, y, (1, m, 1, n), result(call, (m, n), x.dtype), bias=bias, counted=False)


@op("aten::_int_mm")
def int_mm(call: Call) -> Priced | None:
    a, b, sizes, shape = two_matrices(call)
    return product(call, a, b, sizes, result(call, shape, dtype("int32")), counted=False)


@op("aten::_scaled_mm")
def scaled_mm(call: Call) -> Priced | None:
    """fp8 operands; scales are arguments 2 and 3, a bias 4, the result's format 6."""
    a, b, sizes, shape = two_matrices(call)
    return product(call, a, b, sizes, result(call, shape, _format(call, 6, a)), bias=call.tensor(4), read=(call.tensor(2), call.tensor(3)))


@op("aten::_scaled_mm_v2")
def scaled_mm_v2(call: Call) -> Priced | None:
    """The same with lists of scales as arguments 2 and 5, a bias 8, the result's format 9."""
    a, b, sizes, shape = two_matrices(call)
    scales = (*(call.tensors(2) or ()), *(call.tensors(5) or ()))
    return product(call, a, b, sizes, result(call, shape, _format(call, 9, a)), bias=call.tensor(8), read=scales, counted=False)


@op("aten::_grouped_mm", "aten::_scaled_grouped_mm")
def grouped_mm(call: Call) -> Priced | None:
    """One product per group; groups are along rows, columns or the contracted axis of a matrix; offsets are the ends of groups.

    The offsets do not change the FLOP unless they omit rows, which the recording does not show.
    """
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None:
        raise FormulaError(f"{call.op}: the recording lacks an operand's shape")
    offsets, out_format = (4, 7) if "scaled" in call.op else (2, 4)
    groups = call.tensor(offsets)
    shape: tuple[int, ...]
    if len(a.shape) == 2 and len(b.shape) == 3 and a.shape[1] == b.shape[1]:
        sizes = (1, a.shape[0], a.shape[1], b.shape[2])
        shape = (a.shape[0], b.shape[2])
    elif len(a.shape) == 3 and len(b.shape) == 2 and a.shape[2] == b.shape[0]:
        sizes = (1, a.shape[1], a.shape[2], b.shape[1])
        shape = (a.shape[1], b.shape[1])
    elif len(a.shape) == 3 and len(b.shape) == 3 and a.shape[2] == b.shape[1]:
        sizes = (a.shape[0], a.shape[1], a.shape[2], b.shape[2])
        shape = (a.shape[0], a.shape[1], b.shape[2])
    elif len(a.shape) == 2 and len(b.shape) == 2 and a.shape[1] == b.shape[0]:
        sizes = (1, a.shape[0], a.shape[1], b.shape[1])
        shape = (prod(groups.shape) if groups else 1, a.shape[0], b.shape[1])
    else:
        raise FormulaError(f"{call.op}: operands of shapes {a.shape} and {b.shape} do not fit")
    scales = (call.tensor(2), call.tensor(3)) if "scaled" in call.op else ()
    out = result(call, shape, _format(call, out_format, a) if "scaled" not in call.op else call.format(out_format) or dtype("bf16"))
    return product(call, a, b, sizes, out, read=(*scales, groups), counted=False)


@op("aten::_weight_int8pack_mm", "aten::_weight_int4pack_mm", "aten::_mixed_mm")
def packed_mm(call: Call) -> Priced | None:
    """Activations times weights of 8 or 4 bits, widened on the fly: the FLOP run in the activations' format.

    8-bit weights are (n, k); 4-bit ones are packed in tiles of 8 columns each.
    """
    x, w = call.tensor(0), call.tensor(1)
    if x is None or w is None or len(x.shape) != 2 or not w.shape:
        raise FormulaError(f"{call.op}: the operands' shapes are missing or do not fit")
    m, k = x.shape
    n = w.shape[0] * (8 if "int4" in call.op and len(w.shape) == 4 else 1)
    scales = call.tensor(3 if "int4" in call.op else 2)
    number, said = product_format(call, x)
    moved = traffic((x, w, scales), (result(call, (m, n), x.dtype),))
    return Priced(cost=matrix_work(2 * m * k * n, number) + moved, category=QUANTIZED_MATMUL, dtype=number.rate, notes=said)


# The operands of 2:4 sparse products: the weights (half of their elements, or cuSPARSELt's packed form), what they are multiplied with,
# and a bias or added matrix. The weights come first, except in ``linear``, which multiplies x by their transpose.
_SPARSE = {
    "aten::_cslt_sparse_mm": (0, 1, 2),
    "aten::_sparse_semi_structured_mm": (0, 2, None),
    "aten::_sparse_semi_structured_addmm": (1, 3, 0),
    "aten::_sparse_semi_structured_linear": (1, 0, 3),
}
_INDICES = {"aten::_sparse_semi_structured_mm": 1, "aten::_sparse_semi_structured_addmm": 2, "aten::_sparse_semi_structured_linear": 2}
# Sixteenths of the weights' size that cuSPARSELt's form takes, by the bits of an element: half of the elements and their indices.
_PACKED_SIXTEENTHS = {16: 9, 8: 10}
ZEROS = "2:4 sparse weights: zeros are not multiplied and do not count"


@op(*_SPARSE)
def sparse_product(call: Call) -> Priced | None:
    """2:4 sparse weights of m x k times k x n: matrix units skip half of the multiplications, so that m·k·n FLOP run at the dense rate."""
    of_weights, of_other, of_added = _SPARSE[call.op]
    w, x, bias = call.tensor(of_weights), call.tensor(of_other), None if of_added is None else call.tensor(of_added)
    if w is None or x is None or len(x.shape) != 2 or not x.elements:
        raise FormulaError(f"{call.op}: the operands' shapes are missing or do not fit")
    number, said = product_format(call, x)
    by_rows = call.op.endswith("linear")
    k, n = (x.shape[1], x.shape[0]) if by_rows else x.shape
    stored = _PACKED_SIXTEENTHS.get(number.bits, 9) / 16 if call.op == "aten::_cslt_sparse_mm" else 1 / 2
    m = round(w.elements / stored / k)
    out = result(call, (n, m) if by_rows else (m, n), x.dtype)
    moved = traffic((w, x, bias, call.tensor(_INDICES[call.op]) if call.op in _INDICES else None), (out,))
    return Priced(cost=matrix_work(m * k * n, number) + moved, category=SPARSE_MATMUL, dtype=number.rate, notes=(*said, ZEROS))
