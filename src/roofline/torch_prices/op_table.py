"""The registry of PyTorch operators: which function of this package prices which operator. Each family of operators fills it.

``aten::add_`` is priced by the function of ``aten::add``, which checks whether the call is in place.
"""

from ..ops.registry import Registry
from .call import Pricer

FAMILIES = (
    *("products", "convolutions", "attention", "elementwise", "copies", "norms", "gathers", "reductions", "pools", "streams"),
    *("recurrent", "linear_algebra", "transforms", "optimizers", "collectives", "serving", "inductor"),
)
op: Registry[Pricer] = Registry("operator", __package__, FAMILIES)
