"""FLOP and transcendentals per element of each elementwise function, by all its names: the only table of these counts.

A multiply, an add or a division is 1 FLOP, of whole numbers too; a comparison, a sign flip, a select, a rounding or a conversion is 0, and
so is logic between booleans; exp, log, tanh, erf, sin, cos, powers and roots are transcendentals, which are counted separately. A fused
chain is the sum of its operations. Names are those of HLO and CHLO (``log-plus-one``), of PyTorch (``log1p``), and of hand formulas.

A function is computed in the number format of its result; the machine says where that runs, and widens it if it has no such rate. Sums over
many elements, and what a kernel does to sums before it writes them, are in fp32, in fp64 for fp64, and for whole numbers in int32 or int64.
"""

from functools import cache

from msgspec import Struct

from ..cost import Amount, Cost
from ..dtypes import DType, dtype
from ..resource import TRANSCENDENTAL, Resource, vector


class PerElement(Struct, frozen=True, kw_only=True):
    """The cost of one operation per element: FLOP, transcendentals, comparisons, and the tensors it reads besides its main input.

    ``reduces`` says that it needs the whole last axis before it can write any of it; ``per_row`` is transcendentals per row of that axis.
    ``why`` explains the count.
    """

    flops: int = 0
    transcendentals: int = 0
    comparisons: int = 0
    inputs: int = 0
    reduces: bool = False
    per_row: int = 0
    why: str = ""


POINTWISE: dict[str, PerElement] = {
    "cast": PerElement(flops=0, why="x in another format: conversions are not counted as FLOP"),
    "scale": PerElement(flops=1, why="x·s: one multiply by a scalar"),
    "bias": PerElement(flops=1, why="x + b: one add; the row b is small and not counted"),
    "add": PerElement(flops=1, inputs=1, why="x + y: one add"),
    "sub": PerElement(flops=1, inputs=1, why="x − y: one add"),
    "mul": PerElement(flops=1, inputs=1, why="x·y: one multiply"),
    "div": PerElement(flops=1, inputs=1, why="x/y: one division"),
    "fma": PerElement(flops=2, inputs=2, why="x·y + z: a multiply and an add"),
    "square": PerElement(flops=1, why="x·x: one multiply"),
    "maximum": PerElement(flops=0, comparisons=1, inputs=1, why="max(x, y): one comparison"),
    "relu": PerElement(flops=0, comparisons=1, why="max(x, 0): one comparison"),
    "leaky_relu": PerElement(flops=1, comparisons=1, why="max(x, a·x): one multiply and one comparison"),
    "exp": PerElement(flops=0, transcendentals=1, why="exp(x): one transcendental"),
    "log": PerElement(flops=0, transcendentals=1, why="log(x): one transcendental"),
    "sqrt": PerElement(flops=0, transcendentals=1, why="√x: one transcendental"),
    "rsqrt": PerElement(flops=0, transcendentals=1, why="1/√x: one transcendental"),
    "tanh": PerElement(flops=0, transcendentals=1, why="tanh(x): one transcendental"),
    "erf": PerElement(flops=0, transcendentals=1, why="erf(x): one transcendental"),
    "sigmoid": PerElement(flops=2, transcendentals=1, why="1/(1 + exp(−x)): an add, a division and an exp"),
    "silu": PerElement(flops=3, transcendentals=1, why="x·sigmoid(x): sigmoid's 2 and a multiply, and an exp"),
    "softplus": PerElement(flops=1, transcendentals=2, why="log(1 + exp(x)): an add, an exp and a log"),
    "gelu": PerElement(
        flops=8,
        transcendentals=1,
        why="x/2·(1 + tanh(c·(x + a·x³))): x², x³, times a, plus x, times c, plus 1, times x, times 1/2, and a tanh",
    ),
    "gelu_erf": PerElement(flops=4, transcendentals=1, why="x/2·(1 + erf(x/√2)): three multiplies, an add and an erf"),
    "swiglu": PerElement(flops=4, transcendentals=1, inputs=1, why="silu(gate)·up: silu's 3 and a multiply, and an exp"),
    "geglu": PerElement(flops=9, transcendentals=1, inputs=1, why="gelu(gate)·up: gelu's 8 and a multiply, and a tanh"),
    "rope": PerElement(flops=3, why="x·cos + rotated(x)·sin: two multiplies and an add; the tables are small and not counted"),
    "dropout": PerElement(flops=1, why="x times 0 or 1/keep: one multiply; random numbers are not counted"),
    "layernorm": PerElement(
        flops=10,
        reduces=True,
        per_row=1,
        why="the usual round figure for mean, variance, normalise, scale and shift; operation by operation it is 7: "
        "sum; centre, square, sum; times 1/σ; scale; shift",
    ),
    "rmsnorm": PerElement(flops=4, reduces=True, per_row=1, why="square, sum, times 1/rms, scale"),
    "softmax": PerElement(
        flops=3,
        transcendentals=1,
        comparisons=1,
        reduces=True,
        why="subtract the maximum, exp, sum, divide; finding the maximum is one comparison per element",
    ),
}

# Functions of one operation, by what is counted for it.
_NAMES = {
    "arithmetic": """
    add subtract sub rsub multiply mul divide div true_divide floor_divide remainder rem fmod mulhi __add__ __mul__ reciprocal deg2rad
    rad2deg lerp_scalar ldexp _add_relu _transform_bias_rescale_qkv prelu _prelu_kernel
    """,
    "bits": """
    and or xor not shift-left shift-right-arithmetic shift-right-logical popcnt count-leading-zeros bitwise_and bitwise_or bitwise_xor
    bitwise_not bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ilshift__
    __irshift__ gcd lcm
    """,
    "transcendentals": """
    acos acosh asin asinh atan atan2 arctan2 atanh cbrt cos cosine cosh digamma erf erfc erfinv exp exp2 expm1 exponential
    exponential-minus-one float_power hypot i0 igamma igammac lgamma log log10 log1p log2 log-plus-one logaddexp logaddexp2 mvlgamma
    polygamma pow power rsqrt sin sinc sine sinh special_erfcx special_log_ndtr special_ndtri special_xlog1py special_zeta sqrt tan tanh
    xlogy bessel-i1e erf-inv zeta poisson binomial _standard_gamma _standard_gamma_grad _sample_dirichlet
    """,
    "comparisons": """
    compare select clamp maximum minimum is-finite fmax fmin eq ne lt le gt ge less greater less_equal greater_equal not_equal
    logical_and logical_or logical_xor logical_not isclose isnan isinf isfinite isposinf isneginf signbit is-inf is-neg-inf is-pos-inf
    relu relu6 hardtanh threshold softshrink hardshrink rrelu clip clamp_min clamp_max where masked_fill threshold_backward
    hardtanh_backward relu_backward clamp_backward softshrink_backward hardshrink_backward heaviside
    """,
    "signs": """
    negate abs sign neg negative absolute sgn positive conj_physical _conj_physical copysign angle
    """,
    "conversions": """
    convert bitcast-convert reduce-precision stochastic-convert ceil floor round-nearest-afz round-nearest-even real imag complex round
    trunc fix frac nan_to_num next-after nextafter identity
    """,
    "random numbers": "fill zero normal uniform bernoulli random cauchy log_normal geometric",  # generators are not counted
}
CONVENTIONS: dict[str, frozenset[str]] = {kind: frozenset(names.split()) for kind, names in _NAMES.items()}
FREE, ONE, ROOT = PerElement(), PerElement(flops=1), PerElement(transcendentals=1)
_EACH = {"arithmetic": ONE, "bits": ONE, "transcendentals": ROOT}
# Functions of several operations: FLOP and transcendentals. A gradient is that of the function times the gradient of its result.
_COMPOSED = {
    "elu celu selu": (2, 1),
    "mish": (2, 3),
    "log_sigmoid_forward": (1, 2),
    "logit": (2, 1),
    "hardswish hardsigmoid linear": (2, 0),
    "polar": (2, 2),
    "special_entr special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1 special_spherical_bessel_j0": (1, 1),
    "quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize": (2, 0),
    "linalg_cross addcmul addcdiv lerp": (3, 0),
    "rrelu_with_noise": (2, 0),
    "leaky_relu_backward hardswish_backward hardsigmoid_backward rrelu_with_noise_backward": (1, 0),
    "sigmoid_backward tanh_backward": (3, 0),
    "softplus_backward logit_backward elu_backward log_sigmoid_backward": (3, 1),
    "silu_backward": (6, 1),
    "mish_backward": (8, 3),
    "gelu_backward": (14, 1),
    "gelu_erf_backward": (8, 2),  # the density has an exp besides
    "glu_backward": (6, 1),
    "native_dropout_backward masked_scale _masked_scale": (2, 0),
    "mse_loss_backward l1_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward": (3, 0),
    "binary_cross_entropy_backward": (4, 0),
}
FUNCTIONS: dict[str, PerElement] = {
    **{name: _EACH.get(kind, FREE) for kind, names in CONVENTIONS.items() for name in names},
    **{
        name: PerElement(flops=flops, transcendentals=transcendentals)
        for names, (flops, transcendentals) in _COMPOSED.items()
        for name in names.split()
    },
    **POINTWISE,
    "logistic": POINTWISE["sigmoid"],
    "glu": POINTWISE["silu"],
    "batch_norm": PerElement(flops=7, per_row=1, why="sum; centre, square, sum; centre again is shared; times 1/σ, scale, shift"),
    "batch_norm_inference": PerElement(flops=4, per_row=1, why="centre, times 1/σ, scale, shift"),
    "batch_norm_gradient": PerElement(
        flops=8, why="two sums, one with the centred input: centre, multiply, two adds; then centre·a + b, subtract, times scale/σ"
    ),
    "layernorm_gradient": PerElement(
        flops=13, why="x̂ is 2, times the scale 1, two sums over the row 3, the gradient of x 4, those of scale 2 and shift 1"
    ),
    "rmsnorm_gradient": PerElement(flops=9, why="as of a layer norm, without mean and shift"),
}
# Names of the MLIR dialects of Triton and Mosaic kernels, for floating-point numbers.
MLIR: dict[str, PerElement] = {
    **{f"arith.{name}f": ONE for name in ("add", "sub", "mul", "div", "rem")},
    **{f"math.{name}": ROOT for name in CONVENTIONS["transcendentals"] | {"powf"}},
    "math.fma": POINTWISE["fma"],
}

# Complex operations in real ones. Division multiplies by the conjugate (6), squares the modulus (3) and divides twice (2).
_COMPLEX = {
    **dict.fromkeys(("add", "subtract", "sub", "rsub", "__add__"), PerElement(flops=2)),
    **dict.fromkeys(("multiply", "mul", "__mul__"), PerElement(flops=6)),
    **dict.fromkeys(("divide", "div", "true_divide"), PerElement(flops=11)),
    **dict.fromkeys(("abs", "absolute"), PerElement(flops=3, transcendentals=1)),
    **dict.fromkeys(("exponential", "exp"), PerElement(flops=2, transcendentals=3)),
    "log": PerElement(flops=3, transcendentals=2),
}
_COMPLEX_ROOT = PerElement(transcendentals=2)


def per_element(name: str, number: DType) -> PerElement:
    """The work of a function per element of operands of a number format.

    >>> per_element("multiply", dtype("complex64")).flops, per_element("and", dtype("bool")).flops
    (6, 0)
    """
    if number.name == "bool":
        return FREE
    facts = FUNCTIONS[name]
    if not number.is_complex:
        return facts
    return _COMPLEX.get(name, _COMPLEX_ROOT if facts.transcendentals else FREE)


@cache  # a program repeats a few such pairs thousands of times
def amounts(name: str, operands: DType, result: DType) -> tuple[tuple[Resource, Amount], ...]:
    """The work of a function per element, sorted by resource: in the format of the result."""
    facts = per_element(name, operands)
    return Cost.of({vector(result): facts.flops, TRANSCENDENTAL: facts.transcendentals}).amounts if facts is not FREE else ()


def work(name: str, elements: int, operands: DType, result: DType | None = None) -> Cost:
    """The work of a function on many elements."""
    per_element = amounts(name, operands, result or operands)
    return Cost(tuple((resource, amount * elements) for resource, amount in per_element) if elements else ())


def accumulator(number: DType | None) -> DType:
    """The format in which sums of numbers of a format are computed."""
    if number is not None and number.rate in ("fp64", "int64"):
        return dtype(number.rate)
    return dtype("int32") if number is not None and "int" in number.rate else dtype("fp32")


def added(scale: float) -> int:
    """The FLOP per element of adding an array that is scaled first."""
    if not scale:
        return 0
    return 1 if scale == 1 else 2


def summed(elements: Amount, number: DType | None, flops: Amount = 0, transcendentals: Amount = 0) -> Cost:
    """FLOP and transcendentals per element of sums."""
    return Cost.of({vector(accumulator(number)): elements * flops, TRANSCENDENTAL: elements * transcendentals})


def on_sums(name: str, elements: int, number: DType | None, rows: int = 0, more: int = 0) -> Cost:
    """A function of sums before they are written, as an epilogue, or of whole rows; ``more`` is further FLOP per element."""
    facts = FUNCTIONS[name]
    return summed(elements, number, facts.flops + more, facts.transcendentals) + summed(rows, number, 0, facts.per_row)
