"""Elementwise operators: operands read at their own size, the broadcast result written, FLOP by the operator.

In-place calls (``add_``) read and write the first operand. A tensor after the schema's operands is the ``out`` of an out variant.
Comparisons and logic write booleans and are not FLOP.
"""

from collections.abc import Iterable

from msgspec import Struct

from ..dtypes import DType
from ..errors import FormulaError
from ..ops.elementwise import FUNCTIONS, PerElement, work
from .call import BOOL, FP32, Call, Priced, Tensor
from .op_table import op
from .products import broadcast
from .traffic import streamed, traffic

ELEMENTWISE = "elementwise"
PYTHON_NUMBER = "fp64"


class Rule(Struct, frozen=True):
    """How many operands a schema starts with, whether the result is boolean (``truth``), and whether the first operand is only written."""

    operands: int = 1
    truth: bool = False
    reads_first: bool = True


_OPERANDS = {
    1: """
    neg negative abs absolute sign sgn ceil floor round trunc fix frac relu relu6 hardtanh threshold bitwise_not nan_to_num
    conj_physical positive angle rrelu softshrink hardshrink hardswish hardsigmoid exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin
    cos tan asin acos atan sinh cosh asinh acosh atanh tanh erf erfc erfinv lgamma digamma special_erfcx special_log_ndtr special_ndtri
    i0 sinc special_entr special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1 special_spherical_bessel_j0 mvlgamma
    poisson binomial _standard_gamma _sample_dirichlet quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize
    _conj_physical reciprocal square leaky_relu lerp_scalar deg2rad rad2deg sigmoid silu softplus elu selu celu mish log_sigmoid_forward
    logit
    """,
    2: """
    add sub mul div rsub subtract multiply divide true_divide floor_divide remainder fmod __add__ __mul__ maximum minimum fmax fmin
    copysign nextafter heaviside pow float_power atan2 arctan2 hypot logaddexp logaddexp2 xlogy bitwise_and bitwise_or bitwise_xor
    __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ilshift__ __irshift__ bitwise_left_shift bitwise_right_shift gcd lcm
    igamma igammac special_zeta special_xlog1py polygamma _standard_gamma_grad ldexp _add_relu _transform_bias_rescale_qkv linalg_cross
    complex polar clamp_min clamp_max masked_fill prelu _prelu_kernel threshold_backward hardtanh_backward relu_backward clamp_backward
    softshrink_backward hardshrink_backward leaky_relu_backward hardswish_backward hardsigmoid_backward sigmoid_backward tanh_backward
    softplus_backward logit_backward silu_backward mish_backward native_dropout_backward masked_scale _masked_scale
    """,
    3: """
    addcmul addcdiv lerp clamp clip where rrelu_with_noise_backward log_sigmoid_backward mse_loss_backward l1_loss_backward
    smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward
    """,
    4: "binary_cross_entropy_backward",
    6: "elu_backward",
}
_TRUTHS = {
    1: "isnan isinf isfinite logical_not isposinf isneginf signbit",
    2: "eq ne lt le gt ge less greater less_equal greater_equal not_equal logical_and logical_or logical_xor isclose",
}
_FILLED = "fill zero normal uniform bernoulli random exponential cauchy log_normal geometric"
# By the operator's name without "aten::" and without the "_" of in-place calls. Of gradients the operands are the gradient of the result,
# then saved tensors.
RULES: dict[str, Rule] = {
    **{name: Rule(operands) for operands, names in _OPERANDS.items() for name in names.split()},
    **{name: Rule(operands, truth=True) for operands, names in _TRUTHS.items() for name in names.split()},
    **dict.fromkeys(_FILLED.split(), Rule(reads_first=False)),
}
DIVISIONS = frozenset(("div", "divide", "true_divide"))


def promoted(*tensors: Tensor) -> DType | None:
    """The number format of a result: of operands with dimensions, unless a 0-dim one is of a higher kind (bool, int, float, complex).

    A Python number is recorded as a 0-dim double, which widens no other 0-dim float.
    """
    if any(one.dtype is None for one in tensors):
        return None
    formats = [(bool(one.shape), one.dtype) for one in tensors if one.dtype is not None]
    if not formats:
        return None
    large = [number for dimensioned, number in formats if dimensioned] or [number for _, number in formats]
    narrower = [number for number in large if number.name != PYTHON_NUMBER and _kind(number) == 2]
    best = _widest(narrower if narrower and not any(dimensioned for dimensioned, _ in formats) else large)
    scalars = [number for dimensioned, number in formats if not dimensioned and _kind(number) > _kind(best)]
    return _widest(scalars) if scalars else best


def _kind(number: DType) -> int:
    if number.name == "bool":
        return 0
    if number.name.startswith(("int", "uint")):
        return 1
    return 3 if number.is_complex else 2


def _widest(formats: list[DType]) -> DType:
    kinds = max(map(_kind, formats))
    same = [number for number in formats if _kind(number) == kinds]
    found = max(same, key=lambda number: number.bits)
    if {number.name for number in same} >= {"bf16", "fp16"} and found.bits == 16:
        return FP32
    return found


def _result_format(call: Call, rule: Rule, function: PerElement, operands: list[Tensor]) -> DType | None:
    """The number format of a result: integers become fp32 by division, by a transcendental or with a float operand."""
    number = promoted(*operands)
    if number is None or _kind(number) > 1:
        return number
    divides = call.op.removeprefix("aten::") in DIVISIONS and not any(isinstance(one, str) for one in call.args)
    floats = any(isinstance(one, float) for one in call.args[: rule.operands])
    return FP32 if divides or floats or function.transcendentals else number


def is_in_place(call: Call) -> bool:
    """Whether the operator writes its first operand, by its name."""
    return call.op.endswith("_") and not call.op.endswith("__")


def pointwise(call: Call, rule: Rule, function: str) -> Priced | None:
    """An elementwise call by its rule; it computes a function in the number format of its result."""
    operands = [one for one in call.args[: rule.operands] if isinstance(one, Tensor)]
    if not operands:
        return None
    others = [one for one in call.args[rule.operands :] if isinstance(one, Tensor)]
    if is_in_place(call) or not rule.reads_first:
        out = operands[0]
    elif others:
        out = others[-1]  # the result of an out variant, which the schema has last
    elif call.outputs:
        out = call.outputs[0]
    else:
        number = BOOL if rule.truth else _result_format(call, rule, FUNCTIONS[function], operands)
        out = Tensor(broadcast(call, *(one.shape for one in operands)), number)
    read = operands[:1] if call.extra.get("same operands") else operands if rule.reads_first else operands[1:]
    return _computed(function, out.elements, out, read, (out,))


def _computed(function: str, elements: int, x: Tensor, read: Iterable[Tensor | None], written: Iterable[Tensor | None]) -> Priced:
    """A function of so many elements in the format of ``x``."""
    return streamed(ELEMENTWISE, x, read, written, work(function, elements, x.dtype or FP32))


@op(*(f"aten::{name}" for name in RULES))
def elementwise(call: Call) -> Priced | None:
    name = call.op.removeprefix("aten::")
    if name == "where" and len(call.args) == 1:
        return None  # where(condition) alone returns indices, whose number depends on data
    name = name if name in RULES else name.removesuffix("_")
    return pointwise(call, RULES[name], name if RULES[name].reads_first else "fill")


@op("aten::gelu", "aten::gelu_backward")
def gelu(call: Call) -> Priced | None:
    backwards = call.op.endswith("backward")
    name = "gelu" if "tanh" in call.args[1:] else "gelu_erf"
    return pointwise(call, Rule(2), f"{name}_backward") if backwards else pointwise(call, Rule(), name)


@op("aten::native_dropout", "aten::_fused_dropout", "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
@op("aten::fake_quantize_per_tensor_affine_cachemask", "aten::fake_quantize_per_channel_affine_cachemask")
def dropout(call: Call) -> Priced | None:
    """Writes the result and a boolean mask; a fake quantization's mask is of the values inside its range."""
    x = call.need(0)
    return _computed("dropout", x.elements, x, (x,), (Tensor(x.shape, x.dtype), Tensor(x.shape, BOOL)))


@op("aten::rrelu_with_noise", "aten::_prelu_kernel_backward")
def two_results(call: Call) -> Priced | None:
    """Operators with two results of the size of x, the second of which is saved for backward or learnt."""
    tensors = call.all_tensors
    if not tensors:
        return None
    x = tensors[0]
    read = tensors[:1] if "noise" in call.op else tensors
    return _computed("rrelu_with_noise", x.elements, x, read, (x, Tensor(x.shape, x.dtype)))


@op("aten::glu", "aten::glu_backward")
def glu(call: Call) -> Priced | None:
    """Half of x times the sigmoid of its other half; backward reads the gradient and x."""
    backwards = call.op.endswith("backward")
    x = call.need(1 if backwards else 0)
    if x.elements % 2:
        raise FormulaError(f"{call.op}: the split axis of {x.shape} is odd")
    half = Tensor((x.elements // 2,), x.dtype)
    if backwards:
        return _computed("glu_backward", half.elements, x, (half, x), (x,))
    return _computed("glu", half.elements, x, (x,), (half,))


@op("aten::arange", "aten::linspace", "aten::full", "aten::ones", "aten::zeros", "aten::rand", "aten::randn", "aten::eye", "aten::randperm")
@op("aten::full_like", "aten::ones_like", "aten::zeros_like", "aten::rand_like", "aten::randn_like", "aten::new_zeros", "aten::new_full")
@op("aten::randint", "aten::bernoulli_p", "aten::tril_indices", "aten::scalar_tensor", "aten::new_ones", "aten::randint_like")
@op("aten::logspace", "aten::range", "aten::triu_indices")
def made(call: Call) -> Priced | None:
    """A new tensor filled with numbers: written once. Traces have a fill inside the call, or the sizes among its arguments."""
    written = call.outputs
    if written is None:
        like = call.tensor(0) if call.op.endswith("_like") else next(iter(call.all_tensors), None) or _sized(call)
        written = (like,) if like else None
    return Priced(cost=traffic((), written), category=ELEMENTWISE) if written else None


def _sized(call: Call) -> Tensor | None:
    """The tensor that an operator without tensor arguments makes, if its sizes and its number format are recorded."""
    place = next((place for place in range(len(call.args)) if isinstance(call.arg(place), tuple)), len(call.args))
    sizes, number = call.ints(place), call.format(place + (2 if call.op == "aten::full" else 1))
    return Tensor(sizes, number) if sizes is not None and number is not None else None
