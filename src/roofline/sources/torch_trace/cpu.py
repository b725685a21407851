"""Programs that ran on the CPU alone: there the ops themselves are the work, each on its thread."""

import re

import numpy as np

from .columns import KERNEL, NONE, OP, Columns
from .host import Host, Launches
from .linking import Work

# Ops that allocate, look at memory in another way, or only call others: the host's bookkeeping, not work on data.
_NO_WORK = re.compile(
    r"aten::(?:empty\w*|new_empty\w*|resize_\w*|set_|as_strided_?|view|view_as|_unsafe_view|reshape|_reshape_alias|alias|t|transpose_?|permute"
    r"|expand|expand_as|slice|select|narrow|unsqueeze_?|squeeze_?|detach_?|unbind|split\w*|chunk|item|_local_scalar_dense|is_nonzero|to|lift_fresh"
    r"|size|stride|result_type|can_cast|_has_\w*|unfold|movedim|flatten|contiguous|linear|matmul)"
    r"|detach_?|autograd::.*|\w+Backward\d*|torch::autograd::.*|ProfilerStep.*|Optimizer\..*|record_param_comms|enumerate\(.*"
    r"|TorchDynamo .*|Pregraph bytecode|AOTDispatcher .*|Torch-Compiled Region.*|CompiledFunction\w*|## Call .*"
)


def work_on_cpu(columns: Columns, host: Host) -> tuple[Launches, Work]:
    """The innermost ops as work of one device, each its own launch."""
    ops = host.kind == OP
    inner = host.nearest(host.parent[ops], OP)
    outer = np.zeros(len(host.kind), bool)
    outer[inner[inner != NONE]] = True
    idle = [number for name, number in columns.names.items() if isinstance(name, str) and _NO_WORK.fullmatch(name)]
    places = np.flatnonzero(ops & ~outer & (host.end > host.start) & ~np.isin(host.name, idle))
    places = places[np.argsort(host.start[places], kind="stable")]
    kernels = [columns.kernels[int(name), KERNEL, NONE, NONE] for name in host.name[places]]
    nothing = np.full(len(places), NONE)
    launches = Launches(
        thread=host.thread[places],
        start=host.start[places],
        end=host.end[places],
        name=host.name[places],
        correlation=nothing,
        extra=nothing,
    )
    work = Work(
        device=np.zeros(len(places), np.int64),
        queue=host.thread[places],
        start=host.start[places],
        end=host.end[places],
        kernel=np.array(kernels, np.int64),
        extra=nothing,
        launch=np.arange(len(places)),
        op=places,
        kernels=np.array(list(columns.kernels) or [(NONE,) * 4], np.int64),
    )
    return launches, work
