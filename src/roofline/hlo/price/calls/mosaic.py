"""Pallas kernels through Mosaic: TPU custom calls, priced from their code, and Mosaic GPU, whose code is not read.

The code of a TPU kernel is MLIR bytecode in the call. Where it cannot be counted, its author's cost estimate is used, if there is one.
"""

from base64 import b64decode

from ....cost import Cost
from ....units import show
from ....workload import COUNTED, UPPER_BOUND
from ...read.backend_config import backend_config
from ..loops import Loops
from ..mosaic.code import Misread
from ..mosaic.cost import KernelCost, kernel_cost
from ..types import Price, Site
from .estimates import FIELDS, estimated
from .registry import call
from .settings import Config, integer, section, word
from .traffic import results, unpriced

_HIGHEST = b"contract_precision<fp32>"  # an attribute of tpu.matmul and vector.contract
_NO_ESTIMATE = "bytes from its shapes; FLOP unknown"
_ALIKE = 0.01  # an estimate that differs by less says the same


@call("tpu_custom_call", "tpu_custom_call_*")
def tpu(site: Site) -> Price:
    """A kernel at what its code costs; else at its author's estimate (``custom_call_config.cost_estimate``), or with unknown arithmetic."""
    config = backend_config(site.instruction)
    estimate = section(config, "custom_call_config", "cost_estimate") or section(config, "cost_estimate")
    has_estimate = any(name in estimate for name in FIELDS)
    try:
        kernel = _kernel(site, config)
    except Misread as error:
        if has_estimate:
            return estimated(site, estimate, "custom call", "highest" if _asks_for_fp32(config) else "default")
        return unpriced(site, f"{_NO_ESTIMATE}: {error}; give pallas_call a cost_estimate")
    notes = [f"{COUNTED}from its code{_grid(kernel)}", *kernel.notes]
    if kernel.least != kernel.cost:
        notes.append(f"{UPPER_BOUND}what it runs and reads depends on {_unknown_of(site)}; at least {_amounts(kernel.least)}")
    if has_estimate and _differs(kernel, estimate):
        flops, accessed = (show(integer(estimate, name), measure) for name, measure in (("flops", "FLOP"), ("bytes_accessed", "B")))
        counted = _amounts(kernel.cost) if kernel.least == kernel.cost else f"{_amounts(kernel.least)} to {_amounts(kernel.cost)}"
        notes.append(f"{COUNTED}its author's cost estimate is {flops} and {accessed}, its code runs {counted}")
    return Price(kernel.cost, "custom call", tuple(notes), None if kernel.least == kernel.cost else kernel.least)


def active_share(site: Site) -> float:
    """The share of the products of a kernel's code that its conditions let run, as in the blocks below the diagonal of causal attention."""
    config = backend_config(site.instruction)
    try:
        ran, whole = (_products(_kernel(site, config, skips=skips)) for skips in (True, False))
    except Misread:
        return 1.0
    return min(1.0, ran / whole) if whole else 1.0


def _products(kernel: KernelCost) -> float:
    return float(sum(amount for resource, amount in kernel.cost.amounts if resource.unit == "matrix"))


def _kernel(site: Site, config: Config, *, skips: bool = True) -> KernelCost:
    body = word(section(config, "custom_call_config"), "body")
    if not body:
        raise Misread("the call has no code")
    try:
        code = b64decode(body, validate=True)
    except ValueError:
        raise Misread("its code is not MLIR bytecode") from None
    shapes = tuple(operand.shape for operand in site.operands)
    if not all(shape.is_array and shape.is_bounded for shape in (*shapes, *results(site))):
        raise Misread("an array without bounds")
    return kernel_cost(code, shapes, results(site), _tables(site), site.platform, skips=skips)


def _tables(site: Site) -> tuple[tuple[int, ...] | None, ...]:
    """For each operand the integers of the constant that it is; ``None`` where it is computed."""
    place = site.module.place(site.instruction.name)
    if place is None or site.module.computations[place[0]] is not site.computation:
        return (None,) * len(site.operands)
    loops = Loops(site.module)
    return tuple(
        loops.table(place[0], index) if operand.shape.dtype[0] in "su" else None
        for index, operand in zip(site.instruction.operands, site.operands, strict=True)
    )


def _unknown_of(site: Site) -> str:
    """What a bounded kernel depends on: data, or constants that text of HLO leaves out."""
    has_gaps = any(operand.opcode == "constant" and operand.table is None for operand in site.operands)
    return "constants that this text leaves out, and that the program's protobuf has" if has_gaps else "data"


def _grid(kernel: KernelCost) -> str:
    """Its grid, and the VMEM that its blocks and scratch take."""
    grid = f", grid {' x '.join(f'{size:,}' for size in kernel.grid)}" if kernel.grid else ""
    return f"{grid}, {show(kernel.vmem, 'B')} of VMEM for blocks and scratch" if kernel.vmem else grid


def _amounts(cost: Cost) -> str:
    flops = cost.flops
    return f"{show(None if flops is None else float(flops), 'FLOP')} and {show(_moved(cost), 'B')}"


def _moved(cost: Cost) -> float:
    """Bytes of all memories: an estimate does not say where the compiler places an array."""
    return float(sum(amount for resource, amount in cost.amounts if resource.is_memory))


def _differs(kernel: KernelCost, estimate: Config) -> bool:
    """Whether an estimate is outside of what the code runs or moves."""
    ends = {
        "flops": [float(cost.flops or 0) for cost in (kernel.least, kernel.cost)],
        "bytes_accessed": [_moved(cost) for cost in (kernel.least, kernel.cost)],
    }
    return any(
        stated < least * (1 - _ALIKE) or stated > most * (1 + _ALIKE)
        for name, (least, most) in ends.items()
        if (stated := integer(estimate, name))
    )


def _asks_for_fp32(config: Config) -> bool:
    """Whether a product in the kernel's code requests the highest precision; Mosaic has that and the default one."""
    body = word(section(config, "custom_call_config"), "body")
    try:
        return _HIGHEST in b64decode(body, validate=True)
    except ValueError:
        return _HIGHEST.decode() in body


@call("mosaic_gpu", "mosaic_gpu_v2")
def gpu(site: Site) -> Price:
    """A Mosaic GPU kernel: its code is in the program, but no cost estimate."""
    return unpriced(site, "bytes from its shapes; FLOP unknown: Mosaic GPU kernels have no cost estimate")
