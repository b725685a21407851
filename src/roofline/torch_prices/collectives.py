"""Collectives: bytes through the busiest link, from the fields that NCCL's events record, or else from the operator's arguments.

``Collective name``, ``In msg nelems``, ``Out msg nelems``, ``dtype`` and ``Group size`` are recorded with or without shapes. Kernel names
are not reliable: NCCL runs an all-to-all as ``SendRecv`` and RCCL calls every kernel ``Generic``. Gloo's collectives run on CPUs. A
collective's duration includes waiting for its peers.
"""

from collections.abc import Mapping
from typing import Any

from ..cost import NOTHING, Cost
from ..formulas.network import Network, collective_ledger, collective_notes, whole_cost
from .call import CPP_TYPES, Call, Priced, Tensor
from .op_table import op

COLLECTIVE = "collective"
# By a word in the name, longer ones first: the formula, and whether its size is that of the input, or of the output divided by the group.
_KINDS = (
    ("reduce_scatter", "reduce-scatter"),
    ("reducescatter", "reduce-scatter"),
    ("allgather", "all-gather"),
    ("all_gather", "all-gather"),
    ("allreduce", "all-reduce"),
    ("all_reduce", "all-reduce"),
    ("alltoall", "all-to-all"),
    ("all_to_all", "all-to-all"),
    ("broadcast", "collective-broadcast"),
    ("sendrecv", "collective-permute"),
    ("send", "collective-permute"),
    ("recv", "receive"),
    ("gather", "collective-reduce"),
    ("scatter", "collective-broadcast"),
    ("reduce", "collective-reduce"),
    ("barrier", "barrier"),
    ("wait", "barrier"),
)

_BASES = ("_allgather_base", "_reduce_scatter_base")  # of one tensor into another, which is larger or smaller by the number of devices


def kind_of(name: str) -> str | None:
    """The kind of collective with this name, in any library's spelling.

    >>> kind_of("_allgather_base"), kind_of("c10d::allreduce_"), kind_of("nccl:all_to_allv")
    ('all-gather', 'all-reduce', 'all-to-all')
    """
    word = name.lower()
    return next((kind for part, kind in _KINDS if part in word), None)


def _whole(extra: Mapping[str, Any], key: str) -> int | None:
    found = extra.get(key)
    return int(found) if isinstance(found, (int, float)) and found >= 0 else None


def _bytes(call: Call, kind: str, group: int | None) -> int | None:
    """Bytes of each device before the collective: as recorded, else of the operator's tensors."""
    number = CPP_TYPES.get(str(call.extra.get("dtype", "")))
    held, gathered = _whole(call.extra, "In msg nelems"), _whole(call.extra, "Out msg nelems")
    if number is not None and (held is not None or gathered is not None):
        if kind in ("receive",) or (not held and gathered and kind == "collective-broadcast"):
            held = gathered
        if held is None and gathered is not None and kind == "all-gather" and group:
            held = gathered // group
        return number.bytes(held) if held is not None else None
    tensors = _operands(call, kind)
    sizes = [one.bytes for one in tensors]
    return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


def _operands(call: Call, kind: str) -> tuple[Tensor, ...]:
    """The input tensors of an operator without recorded fields; in ``_base`` and ``_tensor`` variants they follow the output."""
    name = call.op.rpartition("::")[2]
    if name.startswith((*_BASES, "all_to_all_single", "alltoall_base")) and call.tensor(1) is not None:
        return tuple(one for one in (call.tensor(1),) if one)
    for place in range(len(call.args)):
        if (listed := call.tensors(place)) is not None:
            return listed
        if (one := call.tensor(place)) is not None:
            return (one,)
    return ()


def _group(call: Call) -> int | None:
    """The number of devices in the group."""
    recorded = _whole(call.extra, "Group size")
    if recorded:
        return recorded
    if call.op.startswith("_c10d_functional::"):  # operators that change a tensor's size have the group's size as an argument
        place = {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 2}.get(call.op.rpartition("::")[2], -1)
        size = call.number(place) if place > 0 else None
        return int(size) if size else None
    return _ratio(call) or _whole(call.extra, "World size")


def _ratio(call: Call) -> int | None:
    """How many times as large as the other the result or the input of a collective is: as many devices take part."""
    result, given = call.tensor(0), call.tensor(1)
    if not call.op.rpartition("::")[2].startswith(_BASES) or result is None or given is None:
        return None
    less, more = sorted((result.elements, given.elements))
    return more // less if less and more % less == 0 else None


@op("record_param_comms", "c10d::*", "_c10d_functional::*", "nccl:*", "gloo:*", "ncclDevKernel*", "ncclKernel*", "symm_mem::*", "rccl*")
@op("vllm::all_reduce*", "vllm::all_gather*", "vllm::reduce_scatter*", "sgl_kernel::all_reduce*", "_C_custom_ar::*", "aiter::all_reduce*")
def collective(call: Call) -> Priced | None:
    kind = kind_of(str(call.extra.get("Collective name") or call.op))
    if kind is None:
        return None
    if kind == "barrier":
        return Priced(cost=NOTHING, category=COLLECTIVE)
    group = _group(call)
    size = _bytes(call, kind, group)
    if size is None or group is None:
        notes = ("the recording does not say how many devices take part",) if group is None else ("the recording lacks its size",)
        return Priced(cost=None, category=COLLECTIVE, notes=notes)
    if group == 1:
        return Priced(cost=Cost.of({"hbm": 2 * size}), category=COLLECTIVE, notes=("a group of one device: no link traffic",))
    on_cpu = call.op.startswith("gloo:")
    network = Network.of(None if on_cpu else call.network, "cpu" if on_cpu else "gpu")
    if kind == "receive":  # counted at the sender; it uses the other direction of the link
        kind = "collective-permute"
    ledger = collective_ledger(kind, size, group, network)
    return Priced(cost=whole_cost(ledger), category=COLLECTIVE, notes=collective_notes(ledger, group, network))
