"""Foreach operators and fused optimizers: one call over a list of tensors, nearly always longer than the lists that traces keep.

A kernel of ``multi_tensor_apply`` takes chunks of 65,536 elements, one per block, so the sum of ceil(elements / 65,536) over the tensors
is the sum of the grids. If the gradients accumulated in the step give the same sum, they are the list; else the grids are an upper bound.
On the CPU, without grids, those gradients are the upper bound.
The functor in a kernel's name gives the number of lists it reads: ``BinaryOpListAlphaFunctor<float, 2, 2, 0>`` reads two.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..dtypes import DType, dtype
from ..ops.elementwise import FUNCTIONS
from ..ops.optimizer import RULES
from ..workload import UPPER_BOUND
from .call import CPP_TYPES, EXECUTION_TRACE, Call, Priced, Tensor
from .memory_copies import COPY
from .op_table import op
from .traffic import UNFORMATTED, pointwise_work, streamed, traffic

OPTIMIZER = "optimizer"
CHUNK = 65_536
OF_GRID = f"{UPPER_BOUND}the grid's blocks, 65,536 elements each"
OF_STEP = f"{UPPER_BOUND}all gradients that the step accumulates"
FROM_GRADIENTS = "weights and state counted in the number format of the gradients"
_APPLY = "multi_tensor_apply_kernel"
_FUNCTOR = re.compile(r"(\w+)Functor<([\w:]+),\s*(\d+),\s*(\d+),\s*\d+>")
_FUSED = re.compile(r"Fused\w*Functor<([\w:]+),\s*(\d+)")
_ONLY_TYPE = re.compile(r"Functor<([\w:]+),")

_ONE_LIST = """
add sub mul div maximum minimum clamp_min clamp_max neg abs sign ceil floor round trunc sqrt rsqrt exp log erf tanh sin cos log2 log10 log1p
expm1 pow reciprocal sigmoid norm max copy
"""
# By the name after "_foreach_", which is that of a function: how many lists are read.
FOREACH: dict[str, int] = {**dict.fromkeys(_ONE_LIST.split(), 1), "addcmul": 3, "addcdiv": 3, "lerp": 2, "zero": 0}
# By name: the update rule, and the numbers of lists read and written. Weights, gradients and state are read, all but gradients written.
FUSED = {
    "aten::_fused_adam_": ("adam", 4, 3),
    "aten::_fused_adamw_": ("adamw", 4, 3),
    "aten::_fused_sgd_": ("sgd", 2, 1),
    "aten::_fused_adagrad_": ("momentum", 3, 2),
}


def element_type(call: Call) -> DType | None:
    """The number format of the lists, from the functor in a kernel's name, else from the gradients."""
    return _kernel_type(call) or call.extra.get("list format")


def _kernel_type(call: Call) -> DType | None:
    for kernel in call.kernels:
        if _APPLY in kernel.name and (found := _ONLY_TYPE.search(kernel.name)):
            return CPP_TYPES.get(found.group(1))
    return None


def _lists_read(call: Call) -> int | None:
    """How many lists the kernel reads, from its functor."""
    for kernel in call.kernels:
        if found := _FUNCTOR.search(kernel.name):
            return int(found.group(4))
    return None


def elements_of(call: Call) -> tuple[int, str] | None:
    """How many elements a list that the trace dropped has, and a note unless that is exact; ``None`` if it is unknown."""
    grids = [kernel.grid[0] for kernel in call.kernels if _APPLY in kernel.name and kernel.grid]
    added = [int(one) for one in call.extra.get("accumulated", ())]
    if not grids:
        on_cpu = any(kernel.name == call.op for kernel in call.kernels)  # where an op is its own kernel
        return (sum(added), OF_STEP) if on_cpu and added else None
    blocks = sum(grids)
    if call.op == "aten::_foreach_add_" and call.number(1) == 1 and 0 < blocks <= len(added):
        return blocks, ""  # step counters, one element per tensor
    accumulated = _once(added, blocks)
    if accumulated and blocks == len(accumulated) and max(accumulated) > CHUNK:
        return blocks, ""  # values computed from the step counters, one element each too
    if accumulated and blocks == sum(-(-one // CHUNK) for one in accumulated):
        return sum(accumulated), ""
    return blocks * CHUNK, OF_GRID


def _once(accumulated: Sequence[int], blocks: int) -> Sequence[int]:
    """The sizes of the gradients, each once if several backward passes of a step accumulate them."""
    counts = Counter(accumulated)
    for whole in (len(accumulated), sum(-(-one // CHUNK) for one in accumulated)):
        passes, rest = divmod(whole, max(blocks, 1))
        if passes > 1 and not rest and not any(count % passes for count in counts.values()):
            return [size for size, count in counts.items() for _ in range(count // passes)]
    return accumulated


def _dropped(call: Call, number: DType | None, read: int, written: int, flops: int, transcendentals: int = 0) -> Priced | None:
    """The price of a call whose lists the trace dropped: so many are ``read`` and ``written``, of as many elements as are known."""
    found = elements_of(call)
    if found is None:
        return Priced(cost=None, category=OPTIMIZER, missing=EXECUTION_TRACE) if call.args else None
    elements, note = found
    each = Tensor((elements,), number)
    priced = streamed(OPTIMIZER, each, (each,) * read, (each,) * written, flops=flops, transcendentals=transcendentals)
    return replace(priced, notes=(note,), missing=EXECUTION_TRACE) if note else priced


def _formatted(tensors: Iterable[Tensor], number: DType | None) -> list[Tensor]:
    return [one if one.dtype is not None else Tensor(one.shape, number, one.strides) for one in tensors]


@op("aten::_foreach_*")
def foreach(call: Call) -> Priced | None:
    name = call.op.removeprefix("aten::_foreach_").removesuffix("_")
    if name not in FOREACH:
        return None
    function = FUNCTIONS[{"max": "maximum", "copy": "identity", "norm": "fma"}.get(name, name)]
    flops, transcendentals, reads = function.flops, function.transcendentals, FOREACH[name]
    number = element_type(call)
    own = call.tensors(0) or (call.tensors(1) if call.number(0) is not None else None)  # pow has the list after a number
    writes_list = name not in ("norm", "max")
    if own is None:
        return _dropped(call, number, _lists_read(call) or reads, int(writes_list), flops, transcendentals)
    others = range(1 if call.tensors(0) else 2, len(call.args))
    lists = [_formatted(some, number) for place in others if (some := call.tensors(place))]
    mine = _formatted(own, number)
    elements = sum(one.elements for one in mine)
    read_self = [] if name in ("copy", "zero") else mine
    dropped = [mine] * max(0, (_lists_read(call) or reads) - 1 - len(lists)) if name != "copy" else []
    results = [Tensor((len(mine),), mine[0].dtype)] if not writes_list else mine
    read = [*read_self, *(one for some in (*lists, *dropped) for one in some)]
    return streamed(OPTIMIZER, mine[0], read, results, flops=flops, transcendentals=transcendentals, elements=elements)


@op("aten::_foreach_copy")
def copied_lists(call: Call) -> Priced | None:
    """Copies of lists of tensors, which programs other than optimizers make too: into the inputs of a graph, into buffers of gradients."""
    found = foreach(call)
    return replace(found, category=COPY) if found is not None else None


@op(*FUSED)
def fused(call: Call) -> Priced | None:
    """Weights, gradients and state in one kernel; amsgrad has one more list, read and written, momentum too."""
    rule_name, read, written = FUSED[call.op]
    lists = [some for place in range(6) if (some := call.tensors(place))]
    if call.op == "aten::_fused_sgd_" and (len(lists) > 2 or _depth(call) == 3):
        rule_name, read, written = "momentum", 3, 2
    elif (_depth(call) or 0) > read:
        read, written = read + 1, written + 1
    rule = RULES[rule_name]
    if lists:
        number = element_type(call)
        known = [_formatted(some, number) for some in lists]
        elements = sum(one.elements for one in known[0])
        moving = known[:read] if len(known) >= read else [known[0]] * read
        first, own = known[0][0], known[0][0].dtype
        taken, given = ([one for some in moved for one in some] for moved in (moving, (known[0], *moving[2:])))
        priced = streamed(OPTIMIZER, first, taken, given, flops=rule.flops, transcendentals=rule.transcendentals, elements=elements)
        notes = () if own and own == _kernel_type(call) else (FROM_GRADIENTS if own else UNFORMATTED,)
        return replace(priced, notes=notes)
    return _dropped(call, element_type(call) or dtype("fp32"), read, written, rule.flops, rule.transcendentals)


def _depth(call: Call) -> int | None:
    """How many lists a fused optimizer's kernel takes, from its functor."""
    for kernel in call.kernels:
        if found := _FUSED.search(kernel.name):
            return int(found.group(2))
    return None


@op("aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale(call: Call) -> Priced | None:
    """Gradients multiplied by 1/scale in place, and checked for infinities."""
    own, number = call.tensors(0), element_type(call)
    if own is not None:
        mine = _formatted(own, number)
        work = pointwise_work(sum(one.elements for one in mine), 1, 0, mine[0].dtype)
        return Priced(cost=work + traffic(mine, mine), category=OPTIMIZER)
    return _dropped(call, number, 1, 1, flops=1)


@op("aten::_amp_update_scale")
def update_scale(call: Call) -> Priced | None:
    """A few numbers of a gradient scaler."""
    return Priced(cost=traffic(call.all_tensors, call.all_tensors[:2]), category=OPTIMIZER)
