"""Arguments of a dispatch mode converted to those of `Call`: tensors by shape, strides and number format, in schema order."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ..dtypes import DType, dtype
from ..errors import FormulaError
from ..torch_prices.call import FP4_PAIR, Argument, Tensor


@cache
def number_format(name: str) -> DType | None:
    """The `DType` of a PyTorch dtype, by its name; ``None`` for quantized ones.

    >>> number_format("torch.bfloat16").name, number_format("torch.qint8")
    ('bf16', None)
    """
    if name == "torch.float4_e2m1fn_x2":
        return FP4_PAIR
    try:
        return dtype(name)
    except FormulaError:
        return None


def described(tensor: Any) -> Tensor:
    """A PyTorch tensor as a `Tensor`."""
    strides = tuple(int(stride) for stride in tensor.stride()) if str(tensor.layout) == "torch.strided" else None
    return Tensor(tuple(int(size) for size in tensor.shape), number_format(str(tensor.dtype)), strides)


def argument(torch: Any, value: Any) -> Argument:
    """One argument of a call."""
    if isinstance(value, torch.Tensor):
        return described(value)
    if isinstance(value, torch.dtype):
        return number_format(str(value))
    if isinstance(value, (list, tuple)):
        return tuple(argument(torch, item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return str(value)


def in_schema_order(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """All arguments of a call in the order of its schema, with the defaults of those that are not given."""
    arguments = list(args)
    for place in range(len(arguments), len(schema.arguments)):
        wanted = schema.arguments[place]
        arguments.append(kwargs.get(wanted.name, wanted.default_value))
    return arguments


def tensors_in(torch: Any, value: Any) -> list[Any]:
    """Every tensor in a value, including nested lists, tuples and mappings."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(torch, part)]
    return []
