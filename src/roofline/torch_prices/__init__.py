"""Prices of PyTorch operators: one table, by operator, for profiler traces and for functions without a device.

>>> from roofline.dtypes import dtype
>>> call = Call("aten::mm", args=(Tensor((8, 4), dtype("bf16")), Tensor((4, 2), dtype("bf16"))))
>>> price(call).cost.flops
128
"""

from .call import CPP_TYPES, SCALAR_TYPES, Call, Kernel, Priced, Tensor
from .registry import forget, has_price, has_users_price, price, register

__all__ = [
    "CPP_TYPES",
    "SCALAR_TYPES",
    "Call",
    "Kernel",
    "Priced",
    "Tensor",
    "forget",
    "has_price",
    "has_users_price",
    "price",
    "register",
]
