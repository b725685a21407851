"""The FLOP of products and convolutions in a JAX function as it was traced, which tell a training step from the functions before it."""

from math import prod
from typing import Any


def flop_of(jaxpr: Any) -> float:
    """FLOP of all products: loops over a known number of trips multiply, others count once, of branches the dearest counts."""
    return float(sum(map(_flop_of_equation, jaxpr.eqns)))


def _flop_of_equation(equation: Any) -> float:
    kind, params = equation.primitive.name, equation.params
    results = getattr(equation.outvars[0].aval, "size", 0) if equation.outvars else 0
    if kind == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        lhs = equation.invars[0].aval.shape
        return float(2 * results * prod(lhs[axis] for axis in contracted))
    if kind.startswith("ragged_dot"):
        return float(2 * results * equation.invars[0].aval.shape[-1])
    if kind == "conv_general_dilated":
        kernel = equation.invars[1].aval
        features = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
        return float(2 * results * kernel.size / max(features, 1))
    inner = [flop_of(getattr(part, "jaxpr", part)) for value in params.values() for part in _parts(value)]
    return _trips(params) * (max(inner, default=0.0) if kind == "cond" else sum(inner))


def _parts(value: Any) -> list[Any]:
    """The functions that are a parameter of an equation."""
    values = value if isinstance(value, tuple | list) else (value,)
    return [part for part in values if hasattr(getattr(part, "jaxpr", part), "eqns")]


def _trips(params: Any) -> float:
    """How often the inside of an equation runs: the length of a scan, the grid of a kernel, the devices of a mesh."""
    grid = getattr(params.get("grid_mapping"), "grid", ())
    devices = getattr(params.get("mesh"), "size", 1)
    return float(params.get("length") or 1) * prod(size for size in grid if isinstance(size, int)) * devices
