"""Every name of an operator costs the same: as an HLO opcode, a library call, a PyTorch operator and a hand formula."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_sites import price as call
from priced import ADD, MAX
from priced import priced as opcode
from roofline import formulas
from roofline.cost import Cost
from roofline.dtypes import dtype
from roofline.ops.elementwise import FUNCTIONS
from roofline.torch_prices import Call, Tensor
from roofline.torch_prices import price as torch_price
from roofline.torch_prices.elementwise import RULES

FORMATS = {"fp32": "f32", "fp64": "f64", "bf16": "bf16", "fp16": "f16", "int32": "s32", "int64": "s64", "bool": "pred", "complex64": "c64"}
FLOATS, WHOLE = ("fp32", "bf16", "fp64", "fp16"), ("int32", "int64")
Sizes = tuple[int, ...]
Costs = Mapping[str, Cost]


def shape(number: str, *sizes: int) -> str:
    """An array of HLO, row by row."""
    order = ",".join(str(axis) for axis in reversed(range(len(sizes))))
    return f"{FORMATS[number]}[{','.join(map(str, sizes))}]{{{order}}}"


def tensor(number: str, *sizes: int) -> Tensor:
    return Tensor(sizes, dtype(number))


def aten(name: str, *args: object) -> Cost:
    cost = torch_price(Call(f"aten::{name}", args=args)).cost
    assert cost is not None, name
    return cost


def hlo(instruction: str, *operands: str, computations: str = "") -> Cost:
    return opcode(instruction, *operands, computations=computations).cost


def library(result: str, operands: str, target: str, config: str = "", platform: str = "gpu") -> Cost:
    return call(result, operands, target, config, platform=platform).cost


def alike(costs: Costs) -> None:
    """Amounts of every resource are within 1%, beside a few scalars: initial values of a reduction, a status word of a factorisation."""
    (first, expected), *rest = costs.items()
    assert expected.is_known
    for name, cost in rest:
        for resource in {resource for resource, _ in (*expected.amounts, *cost.amounts)}:
            here, there = float(cost.known(resource)), float(expected.known(resource))
            assert here == pytest.approx(there, rel=0.01, abs=16 if resource.is_memory else 0), (
                f"{resource}: {name} {here}, {first} {there}"
            )


# By opcode: the PyTorch operator, the formula if there is one, the number of operands and the formats.
POINTWISE: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "add": ("add", "add", 2, (*FLOATS, *WHOLE, "complex64")),
    "subtract": ("sub", "sub", 2, (*FLOATS, *WHOLE, "complex64")),
    "multiply": ("mul", "mul", 2, (*FLOATS, *WHOLE, "complex64")),
    "divide": ("div", "div", 2, FLOATS),
    "remainder": ("fmod", "", 2, (*FLOATS, *WHOLE)),
    "maximum": ("maximum", "maximum", 2, (*FLOATS, *WHOLE)),
    "minimum": ("minimum", "", 2, (*FLOATS, *WHOLE)),
    "power": ("pow", "", 2, FLOATS),
    "atan2": ("atan2", "", 2, FLOATS),
    "and": ("bitwise_and", "", 2, (*WHOLE, "bool")),
    "or": ("bitwise_or", "", 2, (*WHOLE, "bool")),
    "xor": ("bitwise_xor", "", 2, (*WHOLE, "bool")),
    "shift-left": ("bitwise_left_shift", "", 2, WHOLE),
    "not": ("bitwise_not", "", 1, (*WHOLE, "bool")),
    "exponential": ("exp", "exp", 1, (*FLOATS, "complex64")),
    "exponential-minus-one": ("expm1", "", 1, FLOATS),
    "log": ("log", "log", 1, (*FLOATS, "complex64")),
    "log-plus-one": ("log1p", "", 1, FLOATS),
    "sqrt": ("sqrt", "sqrt", 1, FLOATS),
    "rsqrt": ("rsqrt", "rsqrt", 1, FLOATS),
    "tanh": ("tanh", "tanh", 1, FLOATS),
    "erf": ("erf", "erf", 1, FLOATS),
    "logistic": ("sigmoid", "sigmoid", 1, FLOATS),
    "sine": ("sin", "", 1, FLOATS),
    "cosine": ("cos", "", 1, FLOATS),
    "tan": ("tan", "", 1, FLOATS),
    "negate": ("neg", "", 1, (*FLOATS, *WHOLE)),
    "abs": ("abs", "", 1, (*FLOATS, *WHOLE)),
    "sign": ("sign", "", 1, FLOATS),
    "floor": ("floor", "", 1, FLOATS),
    "ceil": ("ceil", "", 1, FLOATS),
    "round-nearest-even": ("round", "", 1, FLOATS),
}


@pytest.mark.parametrize("name", POINTWISE)
@given(data=st.data(), rows=st.integers(1, 300), columns=st.integers(1, 300))
def test_elementwise_functions(name: str, data: st.DataObject, rows: int, columns: int) -> None:
    operator, formula, operands, formats = POINTWISE[name]
    number = data.draw(st.sampled_from(formats))
    array, places = shape(number, rows, columns), ", ".join(f"%{place}" for place in range(operands))
    costs = {
        "HLO": hlo(f"{array} {name}({places})", *(array,) * operands),
        "aten": aten(operator, *(tensor(number, rows, columns),) * operands),
    }
    if formula and number != "complex64":
        costs["formula"] = formulas.lookup(formula)(rows * columns, dtype=number).cost
    alike(costs)


def reduced(kind: str, region: str) -> Callable[[str, Sizes], Costs]:
    def costs(number: str, sizes: Sizes) -> Costs:
        rows, columns, _ = sizes
        wide = shape("fp32", rows, columns)
        return {
            "HLO": hlo(f"{shape('fp32', rows)} reduce(%0, %1), dimensions={{1}}, to_apply=%{kind}", wide, "f32[]", computations=region),
            "aten": aten({"add": "sum", "max": "amax"}[kind], tensor("fp32", rows, columns), (1,)),
            "formula": formulas.reduction(rows, columns, kind={"add": "sum", "max": "max"}[kind], dtype="fp32").cost,
        }

    return costs


def product(number: str, sizes: Sizes) -> Costs:
    m, k, n = sizes
    left, right, result = shape(number, m, k), shape(number, k, n), shape(number, m, n)
    config = '{"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    config += '"rhs_contracting_dimensions":["0"]},"epilogue":"DEFAULT"}}'
    return {
        "HLO": hlo(f"{result} dot(%0, %1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}", left, right),
        "call": library(result, f"{left}; {right}", "__cublas$gemm", config),
        "aten": aten("mm", tensor(number, m, k), tensor(number, k, n)),
        "formula": formulas.matmul(m, k, n, dtype=number).cost,
    }


def batched_product(number: str, sizes: Sizes) -> Costs:
    m, k, n = sizes
    left, right, result = shape(number, 3, m, k), shape(number, 3, k, n), shape(number, 3, m, n)
    dims = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    return {
        "HLO": hlo(f"{result} dot(%0, %1), {dims}", left, right),
        "aten": aten("bmm", tensor(number, 3, m, k), tensor(number, 3, k, n)),
        "formula": formulas.batched_matmul(3, m, k, n, dtype=number).cost,
    }


def convolution(number: str, sizes: Sizes) -> Costs:
    batch, channels, side = sizes[0] % 4 + 1, sizes[1] % 16 + 1, sizes[2] + 3
    x, w, y = (batch, channels, side, side), (8, channels, 3, 3), (batch, 8, side, side)
    window, labels = "window={size=3x3 pad=1_1x1_1}", "dim_labels=bf01_oi01->bf01"
    return {
        "HLO": hlo(f"{shape(number, *y)} convolution(%0, %1), {window}, {labels}", shape(number, *x), shape(number, *w)),
        "aten": aten("convolution", tensor(number, *x), tensor(number, *w), None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
        "formula": formulas.conv2d(batch, channels, 8, side, side, kernel=3, padding=1, dtype=number).cost,
        "call": call(
            f"({shape(number, *y)}, u8[0]{{0}})",
            f"{shape(number, *x)}; {shape(number, *w)}",
            "__cudnn$convForward",
            '{"cudnn_conv_backend_config":{"activation_mode":"kNone","conv_result_scale":1}}',
            f"{window}, {labels}",
        ).cost,
    }


def attention(number: str, sizes: Sizes) -> Costs:
    batch, heads, length, width = 2, sizes[0] % 5 + 1, sizes[1] + 1, 8 * (sizes[2] % 8 + 1)
    q = (batch, heads, length, width)
    stored = (batch, length, heads, width)
    square = ",".join(f'"{size}"' for size in (batch, heads, length, length))
    config = f'{{"cudnn_fmha_backend_config":{{"intermediate_tensor_shape":{{"dimensions":[{square}]}},"mask_type":"NO_MASK"}}}}'
    tensors = (tensor(number, *q),) * 3
    return {
        "call": library(f"({shape(number, *q)}, u8[0])", "; ".join((shape(number, *stored),) * 3), "__cudnn$fmhaSoftmax", config),
        "aten": aten("_scaled_dot_product_cudnn_attention", *tensors, None, False, 0.0, False),
        "formula": formulas.attention(batch, heads, length, length, width, dtype=number).cost,
    }


def softmax(number: str, sizes: Sizes) -> Costs:
    rows, columns, _ = sizes
    array = shape(number, rows, columns)
    return {
        "call": library(array, array, "__onednn$softmax", platform="cpu"),
        "aten": aten("_softmax", tensor(number, rows, columns), 1, False),
        "formula": formulas.softmax(rows, columns, dtype=number).cost,
    }


def layer_norm(number: str, sizes: Sizes) -> Costs:
    rows, columns, _ = sizes
    array, row = shape(number, rows, columns), shape(number, columns)
    weight = tensor(number, columns)
    return {
        "call": library(array, f"{array}; {row}; {row}", "__onednn$layernorm", platform="cpu"),
        "aten": aten("layer_norm", tensor(number, rows, columns), (columns,), weight, weight),
        "formula": formulas.layernorm(rows, columns, dtype=number).cost,
    }


def batch_norm(number: str, sizes: Sizes) -> Costs:
    batch, channels, side = sizes[0] % 8 + 1, sizes[1] % 32 + 1, sizes[2] + 1
    x, row = shape("fp32", batch, channels, side, side), shape("fp32", channels)
    weight = tensor("fp32", channels)
    attributes = "epsilon=0.001, feature_index=1"
    return {
        "HLO": hlo(f"({x}, {row}, {row}) batch-norm-training(%0, %1, %2), {attributes}", x, row, row),
        "aten": aten("native_batch_norm", tensor("fp32", batch, channels, side, side), weight, weight, None, None, True, 0.1, 1e-3),
    }


def batch_norm_inference(number: str, sizes: Sizes) -> Costs:
    batch, channels, side = sizes[0] % 8 + 1, sizes[1] % 32 + 1, sizes[2] + 1
    x, row = shape("fp32", batch, channels, side, side), shape("fp32", channels)
    rows = (tensor("fp32", channels),) * 4
    return {
        "HLO": hlo(f"{x} batch-norm-inference(%0, %1, %2, %3, %4), epsilon=0.001, feature_index=1", x, row, row, row, row),
        "aten": aten("native_batch_norm", tensor("fp32", batch, channels, side, side), *rows, False, 0.1, 1e-3),
    }


def batch_norm_gradient(number: str, sizes: Sizes) -> Costs:
    batch, channels, side = sizes[0] % 8 + 1, sizes[1] % 32 + 1, sizes[2] + 1
    x, row = shape("fp32", batch, channels, side, side), shape("fp32", channels)
    image, weight = tensor("fp32", batch, channels, side, side), tensor("fp32", channels)
    arguments = (image, image, weight, None, None, weight, weight, True, 1e-3, (True, True, True))
    # PyTorch saved 1/σ, XLA the variance: a root per channel.
    root = Cost.of({"vector/transcendental": channels})
    return {
        "HLO": hlo(f"({x}, {row}, {row}) batch-norm-grad(%0, %1, %2, %3, %4), epsilon=0.001, feature_index=1", x, row, row, row, x),
        "aten": aten("native_batch_norm_backward", *arguments) + root,
    }


def running_sum(number: str, sizes: Sizes) -> Costs:
    rows, columns, _ = sizes[0], sizes[1] + 1, 0
    array = shape("fp32", rows, columns)
    window = f"window={{size=1x{columns} pad=0_0x{columns - 1}_0}}"
    return {
        "HLO": hlo(f"{array} reduce-window(%0, %1), {window}, to_apply=%add", array, "f32[]", computations=ADD),
        "call": library(array, array, "xla.gpu.ext.cub_scan"),
        "aten": aten("cumsum", tensor("fp32", rows, columns), 1),
    }


def averaged(number: str, sizes: Sizes) -> Costs:
    planes, side = sizes[0] % 7 + 1, sizes[2] + 4
    out = (side + 2 - 3) // 2 + 1
    x, y = shape("fp32", planes, side, side), shape("fp32", planes, out, out)
    window = "window={size=1x3x3 stride=1x2x2 pad=0_0x1_1x1_1}"
    divided = Cost.of({"vector/fp32": planes * out * out})
    return {
        "HLO": hlo(f"{y} reduce-window(%0, %1), {window}, to_apply=%add", x, "f32[]", computations=ADD) + divided,
        "aten": aten("avg_pool2d", tensor("fp32", 1, planes, side, side), (3, 3), (2, 2), (1, 1)),
    }


def sorted_rows(number: str, sizes: Sizes) -> Costs:
    array = shape(number, *sizes[:2])
    each = f"{FORMATS[number]}[]"
    less = f"%less {{\n  %p = {each} parameter(0)\n  %q = {each} parameter(1)\n  ROOT %l = pred[] compare(%p, %q), direction=LT\n}}"
    return {
        "HLO": hlo(f"{array} sort(%0), dimensions={{1}}, to_apply=%less", array, computations=less),
        "call": library(f"({array}, u8[100]{{0}})", array, "xla.gpu.ext.cub_sort_keys"),
        "aten": aten("msort", tensor(number, *sizes[:2])),
    }


def fourier(kind: str) -> Callable[[str, Sizes], Costs]:
    def costs(number: str, sizes: Sizes) -> Costs:
        rows, points = sizes[0], 2 * sizes[1] + 256
        real, waves = ("fp32", rows, points), ("complex64", rows, points // 2 + 1)
        whole = ("complex64", rows, points)
        before, after = {"FFT": (whole, whole), "RFFT": (real, waves), "IRFFT": (waves, real)}[kind]
        name, more = {"FFT": ("_fft_c2c", (0, True)), "RFFT": ("_fft_r2c", (0, True)), "IRFFT": ("_fft_c2r", (2, points))}[kind]
        attributes = f"fft_type={kind}, fft_length={{{points}}}"
        return {
            "HLO": hlo(f"{shape(*after)} fft(%0), {attributes}", shape(*before)),
            "aten": aten(name, tensor(*before), (1,), *more),
        }

    return costs


def embedding(number: str, sizes: Sizes) -> Costs:
    rows, width, tokens = sizes[0] + 300, sizes[1], sizes[2]
    attributes = f"offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{width}}}"
    table = shape(number, rows, width)
    return {
        "HLO": hlo(f"{shape(number, tokens, width)} gather(%0, %1), {attributes}", table, shape("int32", tokens, 1)),
        "aten::embedding": aten("embedding", tensor(number, rows, width), tensor("int32", tokens)),
        "aten::index_select": aten("index_select", tensor(number, rows, width), 0, tensor("int32", tokens)),
        "formula": formulas.embedding(tokens, width, dtype=number).cost,
        "gather": formulas.gather(tokens, width, dtype=number).cost,
    }


def added_rows(number: str, sizes: Sizes) -> Costs:
    rows, width, tokens = sizes[0] + 300, sizes[1], sizes[2]
    attributes = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add"
    table, updates = shape("fp32", rows, width), shape("fp32", tokens, width)
    return {
        "HLO": hlo(f"{table} scatter(%0, %1, %2), {attributes}", table, shape("int32", tokens, 1), updates, computations=ADD),
        "aten": aten("index_add_", tensor("fp32", rows, width), 0, tensor("int32", tokens), tensor("fp32", tokens, width)),
        "formula": formulas.scatter(tokens, width, accumulate=True, dtype="fp32").cost,
    }


def moved(number: str, sizes: Sizes) -> Costs:
    rows, columns = sizes[0] + 1, sizes[1] + 1
    array, turned = shape(number, rows, columns), shape(number, columns, rows)
    return {
        "HLO copy": hlo(f"{array} copy(%0)", array),
        "HLO transpose": hlo(f"{turned} transpose(%0), dimensions={{1,0}}", array),
        "HLO reverse": hlo(f"{array} reverse(%0), dimensions={{1}}", array),
        "aten::clone": aten("clone", tensor(number, rows, columns)),
        "aten::flip": aten("flip", tensor(number, rows, columns), (1,)),
        "copy": formulas.copy(rows * columns, dtype=number).cost,
        "transpose": formulas.transpose(rows, columns, dtype=number).cost,
    }


def joined(number: str, sizes: Sizes) -> Costs:
    rows, columns, more = sizes
    parts = ((rows, columns), (more, columns))
    return {
        "HLO": hlo(
            f"{shape(number, rows + more, columns)} concatenate(%0, %1), dimensions={{0}}", *(shape(number, *part) for part in parts)
        ),
        "aten": aten("cat", tuple(tensor(number, *part) for part in parts), 0),
        "formula": formulas.concatenate((rows + more) * columns, dtype=number).cost,
    }


def converted(number: str, sizes: Sizes) -> Costs:
    rows, columns, _ = sizes
    return {
        "HLO": hlo(f"{shape('fp32', rows, columns)} convert(%0)", shape("bf16", rows, columns)),
        "aten": aten("_to_copy", tensor("bf16", rows, columns), dtype("fp32")),
        "formula": formulas.cast(rows * columns, dtype="bf16", out="fp32").cost,
    }


def padded(number: str, sizes: Sizes) -> Costs:
    rows, columns, more = sizes
    array = shape(number, rows, columns)
    return {
        "HLO": hlo(f"{shape(number, rows, columns + more)} pad(%0, %1), padding=0_0x0_{more}", array, f"{FORMATS[number]}[]"),
        "aten": aten("constant_pad_nd", tensor(number, rows, columns), (0, more), 0),
    }


def selected(number: str, sizes: Sizes) -> Costs:
    array, truth = shape(number, *sizes[:2]), shape("bool", *sizes[:2])
    x = tensor(number, *sizes[:2])
    return {
        "HLO": hlo(f"{array} select(%0, %1, %2)", truth, array, array),
        "aten": aten("where", tensor("bool", *sizes[:2]), x, x),
    }


def compared(number: str, sizes: Sizes) -> Costs:
    array, x = shape(number, *sizes[:2]), tensor(number, *sizes[:2])
    return {"HLO": hlo(f"{shape('bool', *sizes[:2])} compare(%0, %1), direction=LT", array, array), "aten": aten("lt", x, x)}


def counted(number: str, sizes: Sizes) -> Costs:
    count = sizes[0] * sizes[1]
    return {"HLO": hlo(f"{shape('int32', count)} iota(), iota_dimension=0"), "aten": aten("full", (count,), 0, dtype("int32"))}


def gelu(number: str, sizes: Sizes) -> Costs:
    elements = sizes[0] * sizes[1]
    return {
        "aten": aten("gelu", tensor(number, elements), "tanh"),
        "formula": formulas.gelu(elements, dtype=number).cost,
    }


def dropout(number: str, sizes: Sizes) -> Costs:
    elements = sizes[0] * sizes[1]
    return {
        "aten": aten("native_dropout", tensor(number, elements), 0.1, True),
        "formula": formulas.dropout(elements, dtype=number, mask="bool").cost,
    }


def optimizer(number: str, sizes: Sizes) -> Costs:
    weights = (tensor("fp32", sizes[0], sizes[1]),)
    return {
        "aten": aten("_fused_adamw_", weights, weights, weights, weights, (), (tensor("fp32"),)),
        "formula": formulas.optimizer_update(sizes[0] * sizes[1], optimizer="adamw", weights="fp32").cost,
    }


def cholesky(number: str, sizes: Sizes) -> Costs:
    n = sizes[0]
    array = shape("fp64", 3, n, n)
    return {
        "HLO": hlo(f"{array} cholesky(%0), lower=true", array),
        "call": library(f"({array}, s32[3])", array, "cusolver_potrf_ffi"),
        "LAPACK": library(f"({array}, s32[3])", array, "lapack_dpotrf_ffi", platform="cpu"),
        "aten": aten("linalg_cholesky_ex", tensor("fp64", 3, n, n)),
    }


def lu(number: str, sizes: Sizes) -> Costs:
    m, n, _ = sizes
    array = shape("fp32", 3, m, n)
    return {
        "call": library(f"({array}, s32[3,{min(m, n)}], s32[3])", array, "cusolver_getrf_ffi"),
        "aten": aten("linalg_lu_factor_ex", tensor("fp32", 3, m, n)),
    }


def householder(number: str, sizes: Sizes) -> Costs:
    m, n, _ = sizes
    array = shape("fp32", m, n)
    return {
        "call": library(f"({array}, f32[{min(m, n)}])", array, "cusolver_geqrf_ffi"),
        "aten": aten("geqrf", tensor("fp32", m, n)),
    }


def formed(number: str, sizes: Sizes) -> Costs:
    n, m = sorted(sizes[:2])
    array = shape("fp32", m, n)
    return {
        "call": library(array, f"{array}; f32[{n}]", "cusolver_orgqr_ffi"),
        "aten": aten("linalg_householder_product", tensor("fp32", m, n), tensor("fp32", n)),
    }


def applied(number: str, sizes: Sizes) -> Costs:
    n, m = sorted(sizes[:2])
    array, other = shape("fp32", m, n), shape("fp32", m, sizes[2])
    return {
        "call": library(other, f"{array}; f32[{n}]; {other}", "cusolver_ormqr_ffi"),
        "aten": aten("ormqr", tensor("fp32", m, n), tensor("fp32", n), tensor("fp32", m, sizes[2])),
    }


def triangular(number: str, sizes: Sizes) -> Costs:
    n, columns, _ = sizes
    a, b = shape("fp32", 3, n, n), shape("fp32", 3, n, columns)
    attributes = "left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
    return {
        "HLO": opcode(f"{b} triangular-solve(%0, %1), {attributes}", a, b, platform="gpu").cost,
        "cuBLAS": library(b, f"{a}; {b}", "__cublas$triangularSolve", '{"left_side":true}'),
        "LAPACK": library(b, f"{a}; {b}", "lapack_strsm_ffi", "{side = 76 : ui8}", platform="cpu"),
        "aten": aten("linalg_solve_triangular", tensor("fp32", 3, n, n), tensor("fp32", 3, n, columns), False),
    }


def symmetric_eigen(number: str, sizes: Sizes) -> Costs:
    n = sizes[0]
    array = shape("fp64", 2, n, n)
    return {
        "call": library(f"({array}, f64[2,{n}], s32[2])", array, "lapack_dsyevd_ffi", "{mode = 86 : ui8}", platform="cpu"),
        "aten": aten("_linalg_eigh", tensor("fp64", 2, n, n), "L", True),
    }


def singular(number: str, sizes: Sizes) -> Costs:
    m, n, _ = sizes
    k = min(m, n)
    array, values = shape("fp32", m, n), f"f32[{k}], f32[{m},{k}], f32[{k},{n}], s32[]"
    return {
        "call": library(f"({array}, {values})", array, "lapack_sgesdd_ffi", "{mode = 83 : ui8}", platform="cpu"),
        "aten": aten("_linalg_svd", tensor("fp32", m, n), False, True),
    }


def recurrent(number: str, sizes: Sizes) -> Costs:
    batch, steps, inputs, width = sizes[0] % 8 + 1, sizes[1] % 16 + 1, sizes[2] + 1, 32
    weights = (4 * width * inputs, 4 * width * width)
    x, state, y = ("fp16", batch, steps, inputs), ("fp16", 1, batch, width), ("fp16", batch, steps, width)
    parameters = f"f16[{sum(weights)}]{{0}}"
    placed = [None] * 13
    placed[0], placed[1], placed[4], placed[5] = tensor(*x), (tensor("fp16", sum(weights)),), tensor(*state), tensor(*state)
    placed[6], placed[7], placed[8], placed[9], placed[12] = 2, width, 0, 1, False
    return {
        "call": library(
            f"({shape(*y)}, {shape(*state)}, {shape(*state)}, u8[0])",
            f"{shape(*x)}; {shape(*state)}; {shape(*state)}; {parameters}",
            "cudnn_rnn_ffi",
        ),
        "aten": aten("_cudnn_rnn", *placed),
    }


# By operator: its costs under all names, and the formats to try.
OPERATORS: dict[str, tuple[Callable[[str, Sizes], Costs], tuple[str, ...]]] = {
    "sum": (reduced("add", ADD), ("fp32",)),
    "maximum of a row": (reduced("max", MAX), ("fp32",)),
    "product": (product, ("bf16", "fp16", "fp64")),
    "products": (batched_product, ("bf16", "fp16", "fp64")),
    "convolution": (convolution, ("bf16", "fp16", "fp64")),
    "attention": (attention, ("bf16", "fp16")),
    "softmax": (softmax, ("fp32", "bf16")),
    "layer norm": (layer_norm, ("fp32", "bf16")),
    "batch norm": (batch_norm, ("fp32",)),
    "batch norm of inference": (batch_norm_inference, ("fp32",)),
    "gradient of a batch norm": (batch_norm_gradient, ("fp32",)),
    "running sum": (running_sum, ("fp32",)),
    "average of windows": (averaged, ("fp32",)),
    "sort": (sorted_rows, ("fp32", "bf16", "int32")),
    "complex transform": (fourier("FFT"), ("fp32",)),
    "real transform": (fourier("RFFT"), ("fp32",)),
    "inverse real transform": (fourier("IRFFT"), ("fp32",)),
    "embedding": (embedding, FLOATS),
    "rows added to a table": (added_rows, ("fp32",)),
    "copy": (moved, (*FLOATS, *WHOLE)),
    "concatenation": (joined, FLOATS),
    "conversion": (converted, ("fp32",)),
    "padding": (padded, FLOATS),
    "select": (selected, FLOATS),
    "compare": (compared, FLOATS),
    "fill": (counted, ("int32",)),
    "gelu": (gelu, FLOATS),
    "dropout": (dropout, FLOATS),
    "optimizer": (optimizer, ("fp32",)),
    "Cholesky factor": (cholesky, ("fp64",)),
    "LU factor": (lu, ("fp32",)),
    "QR factor": (householder, ("fp32",)),
    "Q of a QR factor": (formed, ("fp32",)),
    "reflections applied": (applied, ("fp32",)),
    "triangular solve": (triangular, ("fp32",)),
    "eigenvectors of a symmetric matrix": (symmetric_eigen, ("fp64",)),
    "singular vectors": (singular, ("fp32",)),
    "LSTM": (recurrent, ("fp16",)),
}


@pytest.mark.parametrize("name", OPERATORS)
@given(data=st.data(), sizes=st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 60)))
def test_an_operator_costs_the_same_under_all_of_its_names(name: str, data: st.DataObject, sizes: Sizes) -> None:
    costs, formats = OPERATORS[name]
    alike(costs(data.draw(st.sampled_from(formats)), sizes))


def test_every_elementwise_operator_of_pytorch_is_a_function_of_the_table() -> None:
    assert {name for name, rule in RULES.items() if rule.reads_first} <= FUNCTIONS.keys()
