"""Bytes of main memory: every distinct element that a call needs read once, every result written once; memory copies as recorded.

A memory copy between host and device crosses PCIe once and the device's memory once; one within the device is read and written there.
Copies from and to pageable memory of the host are told apart: the driver copies such memory a second time, and the host waits.
"""

from collections.abc import Iterable

from ..cost import NOTHING, Cost
from ..dtypes import DType
from ..ops.elementwise import summed
from ..ops.movement import moved
from ..resource import HBM, PCIE, Resource
from .call import Call, Kernel, Priced, Tensor

COPY, TRANSFER, PAGEABLE_TRANSFER = "copy", "host transfer", "pageable transfer"
_CROSSES_BUS = {"htod": True, "dtoh": True, "dtod": False, "ptop": False}
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


def streamed(
    category: str,
    x: Tensor,
    read: Iterable[Tensor | None],
    written: Iterable[Tensor | None],
    work: Cost = NOTHING,
    *,
    flops: int = 0,
    transcendentals: int = 0,
    elements: int | None = None,
) -> Priced:
    """The price of a call that streams tensors through the vector unit, in the format of ``x``.

    ``flops`` and ``transcendentals`` are per element of ``x``, or of so many ``elements``; ``work`` is further work.
    """
    each = summed(x.elements if elements is None else elements, x.dtype, flops, transcendentals)
    return Priced(cost=each + work + traffic(read, written), category=category, dtype=format_name(x))


def copied(call: Call) -> Priced | None:
    """The cost of the memory copies and memsets of a call, by their recorded bytes; ``None`` if there are none."""
    copies = [kernel for kernel in call.kernels if kernel.kind == "memcpy" and kernel.bytes is not None]
    sets = [kernel for kernel in call.kernels if kernel.kind == "memset" and kernel.bytes is not None]
    if not copies and not sets:
        return None
    cost = Cost.total(_crossing(call, kernel) for kernel in copies) + Cost.of({HBM: sum(kernel.bytes or 0 for kernel in sets)})
    if cost.known(PCIE):
        pageable = sum(kernel.bytes or 0 for kernel in copies if "pageable" in kernel.name.lower())
        return Priced(cost=cost, category=PAGEABLE_TRANSFER if 2 * pageable > cost.known(PCIE) else TRANSFER)
    return Priced(cost=cost, category=COPY if copies else "memset")


def _crossing(call: Call, kernel: Kernel) -> Cost:
    word = str(call.extra.get("memcpy_kind") or kernel.name).lower()
    kind = next((kind for kind in _CROSSES_BUS if kind in word), "dtod")
    moved = kernel.bytes or 0
    if kind == "ptop":
        return Cost.of({Resource("nvlink"): moved, HBM: moved})
    return Cost.of({PCIE: moved, HBM: moved}) if _CROSSES_BUS[kind] else Cost.of({HBM: 2 * moved})
