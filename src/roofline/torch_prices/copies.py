"""Copies, casts, memory copies and memsets, concatenation and other data movement: distinct elements read, results written, no FLOP."""

import re
from math import prod

from ..dtypes import DType
from ..errors import FormulaError
from ..ops.convolution import Axis
from .call import CPP_TYPES, EXECUTION_TRACE, Call, Priced, Tensor, needed
from .op_table import op
from .traffic import COPY, UNFORMATTED, copied, result, streamed, traffic

MOVEMENT = "data movement"
DROPPED = "traces drop lists of more than 30 tensors"
_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
_TYPE = re.compile(r"<\s*(c10::BFloat16|c10::Half|c10::Float8_\w+|float|double|long|int|short|signed char|unsigned char|bool)\b")


@op("Memcpy*", "Memset*", "memcpy*", "memset*")
def memory_copy(call: Call) -> Priced | None:
    """A copy or memset that no operator launched."""
    return copied(call)


@op("aten::copy_", "aten::_copy_from", "aten::_to_copy", "aten::clone", "aten::contiguous", "aten::to", "aten::_reshape_copy")
def copy(call: Call) -> Priced | None:
    """A copy or cast; its kernels may be memory copies, which record their bytes and direction."""
    if (moved := copied(call)) is not None and all(kernel.kind != "kernel" for kernel in call.kernels):
        return moved
    in_place = call.op in ("aten::copy_", "aten::_copy_from")
    target, source = (call.tensor(0), call.tensor(1)) if call.op == "aten::copy_" else (None, call.tensor(0))
    if call.op == "aten::_copy_from":
        target = call.tensor(1)
    if in_place and target is not None and source is None:  # a number into a tensor
        return Priced(cost=traffic((), (target,)), category=COPY)
    if source is None:
        return None
    number = call.format(1) if call.op in ("aten::_to_copy", "aten::to") else None
    out = target or result(call, source.shape, number or source.dtype)
    word = "cast" if None not in (out.dtype, source.dtype) and out.dtype != source.dtype else COPY
    return streamed(word, out, (source,), (out,))


def element_format(call: Call) -> DType | None:
    """The number format of a list's elements, which its call in a trace does not have.

    It comes from other ops, or from the kernels' names: a type, or a width in bytes.
    """
    if (number := call.extra.get("list format")) is not None:
        return number  # type: ignore[no-any-return]
    for kernel in call.kernels:
        if found := _TYPE.search(kernel.name):
            return CPP_TYPES[found.group(1)]
        if found := _OPAQUE.search(kernel.name):
            return DType(f"{found.group(1)} bytes", 8 * int(found.group(1)), "int8")
    return None


def with_formats(call: Call, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same tensors, with the number format of `element_format` if the recording has none."""
    if all(one.dtype is not None for one in tensors):
        return tensors
    number = element_format(call)
    return tuple(one if one.dtype is not None else Tensor(one.shape, number, one.strides) for one in tensors)


@op("aten::cat", "aten::_cat", "aten::concat", "aten::concatenate", "aten::stack", "aten::hstack", "aten::vstack", "aten::_chunk_cat")
@op("aten::_stack")
def concatenate(call: Call) -> Priced | None:
    """Every part is read and written once."""
    parts = call.tensors(0)
    if parts is None:
        if call.outputs:
            return Priced(cost=traffic(call.outputs, call.outputs), category=MOVEMENT)
        return Priced(cost=None, category=MOVEMENT, missing=EXECUTION_TRACE, notes=(DROPPED,)) if call.args else None
    known = with_formats(call, parts)
    number = known[0].dtype if known else None
    out = result(call, (sum(one.elements for one in known),), number)
    notes = () if number else (UNFORMATTED,)
    return Priced(cost=traffic(known, (out,)), category=MOVEMENT, dtype=number.name if number else "", notes=notes)


@op("aten::repeat", "aten::tile", "aten::expand_copy")
def repeated(call: Call) -> Priced | None:
    x, times = call.need(0), needed(call.ints(1))
    shape = times if call.op == "aten::expand_copy" else (x.elements * prod(times),)
    return streamed(MOVEMENT, x, (x,), (result(call, shape, x.dtype),))


@op("aten::repeat_interleave")
def repeat_interleave(call: Call) -> Priced | None:
    """Repeats given as a number; if given as a tensor, the size is known from the result alone."""
    x, times = call.need(0), call.number(1)
    if times is None and not call.outputs:
        return None
    return Priced(cost=traffic((x,), (result(call, (x.elements * int(times or 1),), x.dtype),)), category=MOVEMENT)


PADS = tuple(f"aten::{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3))


@op("aten::im2col", "aten::col2im")
def windows(call: Call) -> Priced | None:
    """Windows copied out of an image (sizes from kernel, dilation, padding and stride), or added back into one."""
    x = call.need(0)
    made = call.outputs[0] if call.outputs else windows_result(call)
    return streamed(MOVEMENT, x, (x,), (made,)) if made is not None and len(x.shape) > 2 else None


def windows_result(call: Call) -> Tensor | None:
    """The windows of an image, each a column; or the image that they are added up to."""
    x, back = call.need(0), call.op == "aten::col2im"
    if len(x.shape) < 3:
        return None
    kernel, *steps = (call.ints(place + back) for place in range(1, 5))
    size = call.ints(1) if back else x.shape[-2:]
    if kernel is None or size is None or None in steps or not all(len(one or ()) == 2 for one in (kernel, size, *steps)):
        return None
    if back:
        return Tensor((*x.shape[:-2], x.shape[-2] // max(1, prod(kernel)), *size), x.dtype)
    dilation, padding, stride = (one or (1, 1) for one in steps)
    sides = zip(size, kernel, stride, padding, dilation, strict=True)
    places = (Axis(size=n, kernel=taps, stride=max(1, step), low=pad, high=pad, dilation=far).out for n, taps, step, pad, far in sides)
    return Tensor((*x.shape[:-3], x.shape[-3] * prod(kernel), prod(places)), x.dtype)


@op("aten::constant_pad_nd", "aten::pad", *PADS)
def padded(call: Call) -> Priced | None:
    """The input is read, the padded result written; padding is listed from the last axis on."""
    x, pads = call.need(0), needed(call.ints(1))
    if len(pads) % 2 or len(pads) > 2 * len(x.shape):
        return None
    shape = list(x.shape)
    for axis in range(len(pads) // 2):
        shape[-1 - axis] += pads[2 * axis] + pads[2 * axis + 1]
    if min(shape, default=0) < 0:
        raise FormulaError(f"{call.op}: padding {pads} removes more than {x.shape} has")
    return streamed(MOVEMENT, x, (x,), (result(call, tuple(shape), x.dtype),))


@op("aten::slice_scatter", "aten::select_scatter")
def scattered_slice(call: Call) -> Priced | None:
    """A copy of the first operand with a part of it replaced."""
    x, part = call.need(0), call.need(1)
    kept = Tensor((max(0, x.elements - part.elements),), x.dtype)
    return streamed(MOVEMENT, x, (kept, part), (Tensor(x.shape, x.dtype),))
