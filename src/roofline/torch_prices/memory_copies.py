"""Memory copies and memsets, by their recorded bytes.

A copy between host and device crosses PCIe once and the device's memory once; one within the device is read and written there. Copies from
and to pageable memory of the host are told apart: the driver copies such memory a second time, and the host waits.
"""

from ..cost import Cost
from ..resource import HBM, PCIE, Resource
from .call import Call, Kernel, Priced

COPY, TRANSFER, PAGEABLE_TRANSFER = "copy", "host transfer", "pageable transfer"
_CROSSES_BUS = {"htod": True, "dtoh": True, "dtod": False, "ptop": False}


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
