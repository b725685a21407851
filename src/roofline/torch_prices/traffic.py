"""Bytes of main memory: every distinct element that a call needs read once, every result written once."""

from collections.abc import Iterable

from ..cost import Cost
from ..dtypes import DType, dtype
from ..ops.elementwise import summed
from ..ops.movement import moved
from ..resource import HBM
from .call import Call, Priced, Tensor

UNFORMATTED = "traces do not have the number formats of lists of tensors"


def traffic(read: Iterable[Tensor | None] = (), written: Iterable[Tensor | None] = ()) -> Cost:
    """The bytes of these tensors; those of tensors without a number format are marked as unknown, besides the known part."""
    tensors = (one for one in (*read, *written) if one is not None)
    return moved((HBM, one.bytes if one.distinct else 0) for one in tensors)


def result(call: Call, shape: tuple[int, ...], number: DType | None, place: int = 0) -> Tensor:
    """A result of a call: as the recording has it, else of this shape and number format."""
    if call.outputs is not None and place < len(call.outputs):
        return call.outputs[place]
    return Tensor(shape, number)


def format_name(one: Tensor | None) -> str:
    """The name of a tensor's number format, empty where it is not known."""
    return one.dtype.name if one is not None and one.dtype is not None else ""


def pointwise_work(elements: int, flops: int, transcendentals: int, number: DType | None) -> Cost:
    """FLOP and transcendentals of a number of elements on the vector unit, in the format of sums."""
    return summed(elements, number or dtype("fp32"), flops, transcendentals)


def streamed(
    category: str,
    x: Tensor,
    read: Iterable[Tensor | None],
    written: Iterable[Tensor | None],
    *,
    flops: int = 0,
    transcendentals: int = 0,
    elements: int | None = None,
) -> Priced:
    """The price of a call that streams tensors through the vector unit, in the format of ``x``.

    ``flops`` and ``transcendentals`` are per element of ``x``, or of so many ``elements``.
    """
    work = pointwise_work(x.elements if elements is None else elements, flops, transcendentals, x.dtype)
    return Priced(cost=work + traffic(read, written), category=category, dtype=format_name(x))
