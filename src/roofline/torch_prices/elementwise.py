"""Elementwise operators: operands read at their own size, the broadcast result written, FLOP by the operator.

In-place calls (``add_``) read and write the first operand. A tensor after the schema's operands is the ``out`` of an out variant.
Comparisons and logic write booleans and are not FLOP.
"""

from msgspec import Struct

from ..dtypes import DType, dtype
from ..errors import FormulaError
from ..formulas.pointwise_counts import POINTWISE
from .call import Call, Priced, Tensor
from .op_table import op
from .products import broadcast
from .traffic import format_name, pointwise_work, streamed, traffic

ELEMENTWISE = "elementwise"
BOOL = dtype("bool")
PYTHON_NUMBER = "fp64"


class Rule(Struct, frozen=True):
    """FLOP and transcendentals per element, how many operands the schema starts with, and whether the result is boolean (``truth``)."""

    flops: int = 0
    transcendentals: int = 0
    operands: int = 1
    truth: bool = False
    reads_first: bool = True


def _named(name: str, operands: int = 1) -> Rule:
    facts = POINTWISE[name]
    return Rule(facts.flops, facts.transcendentals, operands)


def _rules(words: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(words.split(), rule)


# By the operator's name without "aten::" and without the "_" of in-place calls.
RULES: dict[str, Rule] = {
    # two operands
    **_rules("add sub mul div rsub subtract multiply divide true_divide floor_divide remainder fmod __add__ __mul__", Rule(1, 0, 2)),
    **_rules("maximum minimum fmax fmin copysign nextafter heaviside", Rule(0, 0, 2)),
    **_rules("pow float_power atan2 arctan2 hypot logaddexp logaddexp2 xlogy", Rule(0, 1, 2)),
    **_rules("bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__ __lshift__ __rshift__", Rule(1, 0, 2)),
    **_rules("bitwise_left_shift bitwise_right_shift gcd lcm", Rule(1, 0, 2)),
    **_rules("eq ne lt le gt ge less greater less_equal greater_equal not_equal", Rule(0, 0, 2, truth=True)),
    **_rules("logical_and logical_or logical_xor isclose", Rule(0, 0, 2, truth=True)),
    **_rules("igamma igammac special_zeta special_xlog1py polygamma _standard_gamma_grad", Rule(0, 1, 2)),
    **_rules("ldexp _add_relu", Rule(1, 0, 2)),
    "_transform_bias_rescale_qkv": Rule(1, 0, 2),  # of nn.MultiheadAttention without gradients: adds the bias, splits q, k and v
    "linalg_cross": Rule(3, 0, 2),
    "complex": Rule(0, 0, 2),
    "polar": Rule(2, 2, 2),
    # one operand
    **_rules("neg negative abs absolute sign sgn ceil floor round trunc fix frac relu relu6 hardtanh threshold bitwise_not", Rule()),
    **_rules("nan_to_num conj_physical positive angle rrelu softshrink hardshrink", Rule()),
    **_rules("hardswish hardsigmoid", Rule(2)),
    **_rules("isnan isinf isfinite logical_not isposinf isneginf signbit", Rule(truth=True)),
    **_rules("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh", Rule(0, 1)),
    **_rules("tanh erf erfc erfinv lgamma digamma special_erfcx special_log_ndtr special_ndtri i0 sinc", Rule(0, 1)),
    **_rules("special_entr special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1 special_spherical_bessel_j0", Rule(1, 1)),
    **_rules("mvlgamma poisson binomial _standard_gamma _sample_dirichlet", Rule(0, 1)),
    **_rules("quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize", Rule(2)),
    **_rules("_conj_physical", Rule()),
    **_rules("reciprocal square leaky_relu lerp_scalar deg2rad rad2deg", Rule(1)),
    "sigmoid": _named("sigmoid"),
    "silu": _named("silu"),
    "softplus": _named("softplus"),
    "elu": Rule(2, 1),
    "selu": Rule(2, 1),
    "celu": Rule(2, 1),
    "mish": Rule(2, 3),
    "log_sigmoid_forward": Rule(1, 2),
    "logit": Rule(2, 1),
    # three operands
    **_rules("addcmul addcdiv", Rule(3, 0, 3)),
    "lerp": Rule(3, 0, 3),
    **_rules("clamp clip", Rule(0, 0, 3)),
    **_rules("clamp_min clamp_max", Rule(0, 0, 2)),
    "where": Rule(0, 0, 3),
    "masked_fill": Rule(0, 0, 2),
    **_rules("prelu _prelu_kernel", Rule(1, 0, 2)),
    # gradients: operands are the gradient of the result, then saved tensors
    **_rules("threshold_backward hardtanh_backward relu_backward clamp_backward softshrink_backward hardshrink_backward", Rule(0, 0, 2)),
    "rrelu_with_noise_backward": Rule(1, 0, 3),
    **_rules("leaky_relu_backward hardswish_backward hardsigmoid_backward", Rule(1, 0, 2)),
    **_rules("sigmoid_backward tanh_backward", Rule(3, 0, 2)),
    **_rules("softplus_backward logit_backward", Rule(3, 1, 2)),
    "elu_backward": Rule(3, 1, 6),
    "log_sigmoid_backward": Rule(3, 1, 3),
    "silu_backward": Rule(6, 1, 2),
    "mish_backward": Rule(8, 3, 2),
    "native_dropout_backward": Rule(2, 0, 2),
    **_rules("masked_scale _masked_scale", Rule(2, 0, 2)),
    **_rules("mse_loss_backward l1_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward", Rule(3, 0, 3)),
    "binary_cross_entropy_backward": Rule(4, 0, 4),
    # filled without reading an operand
    **_rules("fill zero normal uniform bernoulli random exponential cauchy log_normal geometric", Rule(0, 0, 1, reads_first=False)),
}
DIVISIONS = frozenset(("div", "divide", "true_divide"))
# The cost of gelu(approximate="none" | "tanh"), and of its gradient: the cumulative distribution, the density, and two more multiplies.
_GELU = {"none": POINTWISE["gelu_erf"], "tanh": POINTWISE["gelu"]}


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
    return 3 if number.name.startswith("complex") else 2


def _widest(formats: list[DType]) -> DType:
    kinds = max(map(_kind, formats))
    same = [number for number in formats if _kind(number) == kinds]
    found = max(same, key=lambda number: number.bits)
    if {number.name for number in same} >= {"bf16", "fp16"} and found.bits == 16:
        return dtype("fp32")
    return found


def _result_format(call: Call, rule: Rule, operands: list[Tensor]) -> DType | None:
    """The number format of a result: integers become fp32 by division, by a transcendental or with a float operand."""
    number = promoted(*operands)
    if number is None or _kind(number) > 1:
        return number
    divides = call.op.removeprefix("aten::") in DIVISIONS and not any(isinstance(one, str) for one in call.args)
    floats = any(isinstance(one, float) for one in call.args[: rule.operands])
    return dtype("fp32") if divides or floats or rule.transcendentals else number


def is_in_place(call: Call) -> bool:
    """Whether the operator writes its first operand, by its name."""
    return call.op.endswith("_") and not call.op.endswith("__")


def pointwise(call: Call, rule: Rule) -> Priced | None:
    """An elementwise call by its rule."""
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
        out = Tensor(broadcast(call, *(one.shape for one in operands)), BOOL if rule.truth else _result_format(call, rule, operands))
    read = operands[:1] if call.extra.get("same operands") else operands if rule.reads_first else operands[1:]
    return streamed(ELEMENTWISE, out, read, (out,), flops=rule.flops, transcendentals=rule.transcendentals)


@op(*(f"aten::{name}" for name in RULES), "aten::__iand__", "aten::__ior__", "aten::__ilshift__", "aten::__irshift__")
def elementwise(call: Call) -> Priced | None:
    name = call.op.removeprefix("aten::")
    if name == "where" and len(call.args) == 1:
        return None  # where(condition) alone returns indices, whose number depends on data
    rule = RULES.get(name) or RULES.get(name.removesuffix("_")) or Rule(1, 0, 2)
    return pointwise(call, rule)


@op("aten::gelu")
def gelu(call: Call) -> Priced | None:
    facts = _GELU["tanh" if "tanh" in call.args[1:] else "none"]
    return pointwise(call, Rule(facts.flops, facts.transcendentals))


@op("aten::gelu_backward")
def gelu_backward(call: Call) -> Priced | None:
    """The gradient times the derivative of gelu: the forward's count, the density with an exp for erf, and a product."""
    tanh = "tanh" in call.args[2:]
    facts = _GELU["tanh" if tanh else "none"]
    return pointwise(call, Rule(facts.flops + (6 if tanh else 4), facts.transcendentals + (0 if tanh else 1), 2))


@op("aten::native_dropout", "aten::_fused_dropout", "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
@op("aten::fake_quantize_per_tensor_affine_cachemask", "aten::fake_quantize_per_channel_affine_cachemask")
def dropout(call: Call) -> Priced | None:
    """Writes the result and a boolean mask; a fake quantization's mask is of the values inside its range."""
    x = call.need(0)
    facts = POINTWISE["dropout"]
    written = (Tensor(x.shape, x.dtype), Tensor(x.shape, BOOL))
    return streamed(ELEMENTWISE, x, (x,), written, flops=facts.flops)


@op("aten::rrelu_with_noise", "aten::_prelu_kernel_backward")
def two_results(call: Call) -> Priced | None:
    """Operators with two results of the size of x, the second of which is saved for backward or learnt."""
    tensors = call.all_tensors
    if not tensors:
        return None
    x = tensors[0]
    read = tensors[:1] if "noise" in call.op else tensors
    return streamed(ELEMENTWISE, x, read, (x, Tensor(x.shape, x.dtype)), flops=2)


@op("aten::glu", "aten::glu_backward")
def glu(call: Call) -> Priced | None:
    """Half of x times the sigmoid of its other half; backward reads the gradient and x."""
    backwards = call.op.endswith("backward")
    x = call.need(1 if backwards else 0)
    if x.elements % 2:
        raise FormulaError(f"{call.op}: the split axis of {x.shape} is odd")
    half = Tensor((x.elements // 2,), x.dtype)
    facts = POINTWISE["silu"]
    work = pointwise_work(half.elements, 2 * facts.flops if backwards else facts.flops, facts.transcendentals, x.dtype)
    moved = traffic((half, x), (x,)) if backwards else traffic((x,), (half,))
    return Priced(cost=work + moved, category=ELEMENTWISE, dtype=format_name(x))


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
