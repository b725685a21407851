"""Factorisations, inverses, eigenvalues and solutions of linear systems: operators as routines of `ops.linear_algebra`."""

from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ..dtypes import DType, dtype
from ..errors import FormulaError
from ..ops.linear_algebra import Sizes, elements_read, work
from .call import Call, Priced, Tensor
from .op_table import op
from .products import broadcast
from .traffic import format_name, traffic

LINEAR_ALGEBRA = "linear algebra"


class Operator(Struct, frozen=True, kw_only=True):
    """The routine of an operator, its results, and the places of its arguments.

    ``results`` are products of sizes: m x n is the ``matrix``, k the smaller, r the number of columns of ``right``, 1 a number for each
    matrix; a format follows a colon where it is not that of the matrix. ``others`` are further tensors that are read.
    """

    routine: str
    results: str
    matrix: int = 0
    right: int | None = None
    others: tuple[int, ...] = ()
    on_left: int | None = None  # the argument that is false where the matrix stands right of the unknowns
    unit_diagonal: int | None = None


OPERATORS: dict[str, Operator] = {
    "cholesky": Operator(routine="potrf", results="nn"),
    "linalg_cholesky_ex": Operator(routine="potrf", results="nn 1:int32"),
    "cholesky_inverse": Operator(routine="potri", results="nn"),
    "linalg_lu_factor_ex": Operator(routine="getrf", results="mn k:int32 1:int32"),
    "linalg_lu": Operator(routine="getrf", results="mm mk kn"),
    "_linalg_det": Operator(routine="getrf", results="1 nn n:int32"),
    "_linalg_slogdet": Operator(routine="getrf", results="1 1:real nn n:int32"),
    "lu_unpack": Operator(routine="unpack", results="mm mk kn", others=(1,)),
    "linalg_ldl_factor_ex": Operator(routine="sytrf", results="nn n:int32 1:int32"),
    "linalg_inv_ex": Operator(routine="inverse", results="nn 1:int32"),
    "linalg_qr": Operator(routine="qr", results="mk kn"),
    "geqrf": Operator(routine="geqrf", results="mn k"),
    "linalg_householder_product": Operator(routine="orgqr", results="mn", others=(1,)),
    "_linalg_eigh": Operator(routine="syevd", results="n:real"),
    "linalg_eig": Operator(routine="geev", results="n:complex nn:complex"),
    "_linalg_eigvals": Operator(routine="geev", results="n:complex"),
    "_linalg_svd": Operator(routine="gesdd", results="k:real"),
    "linalg_matrix_exp": Operator(routine="expm", results="nn"),
    "_linalg_solve_ex": Operator(routine="gesv", results="nr nn n:int32 1:int32", right=1, on_left=2),
    "linalg_lstsq": Operator(routine="gels", results="nr", right=1),
    "linalg_solve_triangular": Operator(routine="trsm", results="nr", right=1, on_left=3, unit_diagonal=4),
    "triangular_solve": Operator(routine="trsm", results="nr nn", matrix=1, right=0, unit_diagonal=4),
    **dict.fromkeys(("cholesky_solve", "_cholesky_solve_helper"), Operator(routine="potrs", results="nr", matrix=1, right=0)),
    "linalg_lu_solve": Operator(routine="getrs", results="nr", right=2, others=(1,), on_left=3),
    "linalg_ldl_solve": Operator(routine="sytrs", results="nr", right=2, others=(1,)),
    "ormqr": Operator(routine="ormqr", results="mr", right=2, others=(1,), on_left=3),
}


@op(*(f"aten::{name}" for name in OPERATORS))
def linear_algebra(call: Call) -> Priced | None:
    """The part of the matrix that the routine needs is read, and every result written."""
    operator = OPERATORS[call.op.removeprefix("aten::")]
    a = call.need(operator.matrix)
    if len(a.shape) < 2:
        return None
    right = None if operator.right is None else call.need(operator.right)
    operator, sizes = _asked(call, operator, _sizes(call, operator, a, right))
    number = a.dtype or dtype("fp32")
    share = elements_read(operator.routine, sizes), max(1, sizes.m * sizes.n)
    read = (Tensor((a.distinct * share[0] // share[1],), a.dtype), right, *(call.tensor(place) for place in operator.others))
    written = call.outputs or [_result(word, sizes, number) for word in operator.results.split()]
    return Priced(cost=work(operator.routine, sizes, number) + traffic(read, written), category=LINEAR_ALGEBRA, dtype=format_name(a))


def _sizes(call: Call, operator: Operator, a: Tensor, right: Tensor | None) -> Sizes:
    m, n = a.shape[-2:]
    many, columns = prod(a.shape[:-2]), 0
    if right is not None:
        columns = _right_sides(call, operator, a, right) // max(1, many)
    factors = call.tensor(1)
    reflections = factors.shape[-1] if 1 in operator.others and factors is not None and factors.shape else 0
    unit_diagonal = operator.unit_diagonal is not None and call.flag(operator.unit_diagonal)
    return Sizes(m=m, n=n, columns=columns, reflections=min(reflections, m, n), unit_diagonal=unit_diagonal, many=many)


def _right_sides(call: Call, operator: Operator, a: Tensor, right: Tensor) -> int:
    """The right-hand sides of all matrices, one for each where the right side is a stack of vectors."""
    if right.shape == a.shape[:-1]:
        return prod(a.shape[:-2])
    if len(right.shape) < 2:
        raise FormulaError(f"{call.op}: right-hand sides of shape {right.shape} do not fit {a.shape}")
    left = operator.on_left is None or call.flag(operator.on_left, True)
    return prod(broadcast(call, a.shape[:-2], right.shape[:-2])) * right.shape[-1 if left else -2]


def _asked(call: Call, operator: Operator, sizes: Sizes) -> tuple[Operator, Sizes]:
    """The operator and its sizes with the vectors and factors that its arguments ask for."""
    if operator.routine == "qr":
        mode = next((word for word in call.args if isinstance(word, str)), "reduced")
        if mode == "r":
            return replace(operator, routine="geqrf", results="kn"), sizes
        full = mode == "complete"
        return replace(operator, results="mm mn" if full else "mk kn"), replace(sizes, columns=sizes.m if full else min(sizes.m, sizes.n))
    if operator.routine == "syevd" and call.flag(2, True):
        return replace(operator, results="n:real nn"), replace(sizes, vectors="full")
    if operator.routine == "geev" and "nn" in operator.results:
        return operator, replace(sizes, vectors="full")
    if operator.routine == "gesdd" and call.flag(2, True):
        full = call.flag(1)
        return replace(operator, results="mm k:real nn" if full else "mk k:real kn"), replace(sizes, vectors="full" if full else "thin")
    return operator, sizes


def _result(word: str, sizes: Sizes, number: DType) -> Tensor:
    letters, _, kind = word.partition(":")
    lengths = {"m": sizes.m, "n": sizes.n, "k": min(sizes.m, sizes.n), "r": sizes.columns, "1": 1}
    wide = number.rate == "fp64"
    formats = {"": number, "real": dtype(number.rate), "complex": dtype("complex128" if wide else "complex64"), "int32": dtype("int32")}
    return Tensor((sizes.many, *(lengths[letter] for letter in letters)), formats[kind])
