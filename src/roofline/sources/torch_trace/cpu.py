"""Programs that ran on the CPU alone, where the ops themselves are the work, each on its thread.

Ops call other ops. Some do nothing else (`conv2d`, `linear`); some also work themselves (a convolution copies its input, a norm allocates
its result). An op counts as work if it calls no other work; if it is a product or convolution that calls no other product; or if it has a
price, and ops of its name that call the same ops spend at least half of their time outside these.

Kernels that Inductor compiled are not ops. If Python was recorded, each is a function called ``kernel``; else the time between the ops in a
call of compiled code is taken for them. Gloo's collectives are not ops either, but annotations on threads of its own.
"""

import re
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from ...torch_prices import has_price
from .host import Host, Launches
from .linking import Work
from .pricing import COMPILED_CALL
from .read.arrays import Integers
from .read.columns import KERNEL, NONE, OP, PYTHON, Columns

# Ops that allocate, make views, or only call others: bookkeeping of the host, not work on data.
_NO_WORK = re.compile(
    r"aten::(?:empty\w*|new_empty\w*|resize_\w*|set_|as_strided_?|view|view_as|_unsafe_view|reshape|_reshape_alias|alias|t|transpose_?|permute"
    r"|expand|expand_as|slice|select|narrow|unsqueeze_?|squeeze_?|detach_?|unbind|(?:unsafe_)?(?:split\w*|chunk)|item|_local_scalar_dense|is_nonzero|to|lift_fresh"
    r"|size|stride|result_type|can_cast|_has_\w*|unfold|movedim|flatten|unflatten|contiguous|linear|matmul|resolve_conj|resolve_neg|_?conj|mT|mH"
    r"|numpy_T|adjoint|swapaxes|swapdims|diagonal|real|view_as_real|view_as_complex|broadcast_to|broadcast_tensors|dropout_?|_neg_view"
    r"|_nnpack_available|cudnn_is_acceptable)"
    r"|detach_?|autograd::.*|\w+Backward\d*|torch::autograd::.*|ProfilerStep.*|Optimizer\..*|record_param_comms|enumerate\(.*"
    r"|TorchDynamo .*|Pregraph bytecode|AOTDispatcher .*|Torch-Compiled Region.*|CompiledFunction\w*|## Call .*"
)
# Products and convolutions, and their gradients.
_MULTIPLIES = re.compile(r"(?:aten|mkldnn|onednn)::(?:\w*conv\w*|\w*mm|mv|addmv|dot|vdot|\w*attention\w*|mkldnn_linear\w*|mkldnn_rnn\w*)")
_COMPILED_KERNEL = "<built-in function kernel>"
_GLOO = "gloo:"
_DETACHES = ("aten::detach", "detach")


def work_on_cpu(columns: Columns, host: Host) -> tuple[Launches, Work]:
    """The ops that work, collectives, and kernels of compiled code, as work of one device; each is its own launch."""
    ops = np.sort(np.append(_working_ops(host, columns), _collectives(host, columns)))
    calls, begins, ends = _compiled(host, columns, ops)
    places, start, end = np.append(ops, calls), np.append(host.start[ops], begins), np.append(host.end[ops], ends)
    order = np.argsort(start, kind="stable")
    places, start, end = places[order], start[order], end[order]
    kernels = [columns.kernels[int(name), KERNEL, NONE, NONE] for name in host.name[places]]
    nothing = np.full(len(places), NONE)
    launches = Launches(thread=host.thread[places], start=start, end=end, name=host.name[places], correlation=nothing, extra=nothing)
    work = Work(
        device=np.zeros(len(places), np.int64),
        queue=host.thread[places],
        start=start,
        end=end,
        kernel=np.array(kernels, np.int64),
        extra=nothing,
        launch=np.arange(len(places)),
        op=places,
        kernels=np.array(list(columns.kernels) or [(NONE,) * 4], np.int64),
    )
    return launches, work


def _compiled(host: Host, columns: Columns, ops: Integers) -> tuple[Integers, Integers, Integers]:
    """The kernels of compiled code: the call that each ran in, its begin and its end."""
    names = [number for name, number in columns.names.items() if isinstance(name, str) and COMPILED_CALL.match(name)]
    calls = np.flatnonzero(np.isin(host.name, names))
    spans: list[tuple[int, int, int]] = []
    for call in calls.tolist():
        inside = slice(call + 1, host.within(call))
        if (host.kind[inside] == PYTHON).any():
            kernels = inside.start + np.flatnonzero(host.name[inside] == columns.names.get(_COMPILED_KERNEL, NONE))
            spans += [(call, begin, end) for begin, end in zip(host.start[kernels].tolist(), host.end[kernels].tolist(), strict=True)]
        else:
            inner = ops[slice(*np.searchsorted(ops, (inside.start, inside.stop)))]
            edges = [int(host.start[call]), *np.stack([host.start[inner], host.end[inner]], 1).ravel().tolist(), int(host.end[call])]
            spans += [(call, begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if end > begin]
    places, begins, ends = np.array(spans, np.int64).reshape(-1, 3).T
    return places, begins, ends


def _collectives(host: Host, columns: Columns) -> Integers:
    """The places of Gloo's collectives, which it annotates on threads of its own."""
    return np.flatnonzero(np.isin(host.name, [number for name, number in columns.names.items() if str(name).startswith(_GLOO)]))


def _working_ops(host: Host, columns: Columns) -> Integers:
    """The places of the ops that work themselves."""
    ops = np.flatnonzero(host.kind == OP)
    around = dict(zip(ops.tolist(), host.nearest(host.parent[ops], OP).tolist(), strict=True))
    alike = _alike(around, host, columns)
    works: set[int] = set()
    parts: set[int] = set()
    for place, outer in around.items():  # an op comes before those that it calls
        if outer in works or outer in parts:
            parts.add(place)
        elif alike[place].is_work:
            works.add(place)
    return np.array(sorted(works), np.int64)


class _Alike(Struct):
    """Ops of one name that call ops of the same names: their total nanoseconds, and those of possible work in the ops they call.

    ``may`` is whether the name allows them to be work, ``multiplies`` whether they are products, ``products`` whether they call a product.
    """

    may: bool
    priced: bool
    multiplies: bool
    products: bool
    length: int = 0
    inside: int = 0

    @property
    def is_work(self) -> bool:
        if not self.may or not self.inside:
            return self.may
        return not self.products and (self.multiplies or (self.priced and 2 * self.inside <= self.length))


def _alike(around: Mapping[int, int], host: Host, columns: Columns) -> dict[int, _Alike]:
    """The group of equal ops of each op. ``around`` has the op around each, in order of time, outer ones first."""
    names = {number: name for name, number in columns.names.items() if isinstance(name, str)}
    elsewhere = "c10d::" if len(_collectives(host, columns)) else "\0"  # ops that only start a collective, which runs on Gloo's threads
    no_work = {number for number, name in names.items() if _NO_WORK.fullmatch(name) or name.startswith(elsewhere)}
    multiplying = {number for number, name in names.items() if _MULTIPLIES.fullmatch(name)}
    name_of, lengths = host.name.data, (host.end - host.start).data
    inside: dict[int, int] = {}
    called: dict[int, set[int]] = {}  # names
    kind_of: dict[int, _Alike] = {}
    kinds: dict[tuple[int, frozenset[int]], _Alike] = {}
    for place in reversed(around):
        number, length, theirs = name_of[place], lengths[place], called.pop(place, set[int]())
        key = (number, frozenset(theirs))
        if key not in kinds:
            name = names.get(number, "")
            kinds[key] = _Alike(number not in no_work, has_price(name), number in multiplying, bool(theirs & multiplying))
        kind_of[place] = alike = kinds[key]
        within = inside.pop(place, 0)
        alike.length, alike.inside = alike.length + length, alike.inside + within
        outer = around[place]
        inside[outer] = inside.get(outer, 0) + (length if alike.may else within)
        called.setdefault(outer, set()).update(theirs, (number,))
    _exclude_stopped(kinds, {columns.names.get(name, NONE) for name in _DETACHES})
    return kind_of


def _exclude_stopped(kinds: Mapping[tuple[int, frozenset[int]], _Alike], detaches: set[int]) -> None:
    """Excludes ops that never ran: checkpointing stops at the last op that it would recompute, once that op's inputs are there.

    Such an op has only detached its inputs, unlike others of its name.
    """
    ran = {number for number, theirs in kinds if theirs - detaches}
    for (number, theirs), ours in kinds.items():
        if theirs and theirs <= detaches and number in ran:
            ours.may = False
