"""FLOP and transcendentals per element of each pointwise operation, the only table of these counts.

A multiply, an add or a division is 1 FLOP; a comparison, a sign flip, a select or a conversion is 0; exp, log, tanh, erf, sin, cos and
roots are transcendentals, which are counted separately. A fused chain is the sum of its operations.
"""

from msgspec import Struct


class PerElement(Struct, frozen=True, kw_only=True):
    """The cost of one operation per element: FLOP, transcendentals, comparisons, and the tensors it reads besides its main input.

    ``reduces`` says that it needs the whole last axis before it can write any of it; ``per_row`` is transcendentals per row of that axis.
    ``why`` explains the count.
    """

    flops: int
    transcendentals: int = 0
    comparisons: int = 0
    inputs: int = 0
    reduces: bool = False
    per_row: int = 0
    why: str


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
