"""The finding about launches of a program's own kernels (of Triton, Pallas, Inductor) whose blocks leave cores idle at the end.

All that a profile states of such a launch is its grid and what a block takes of a core. That tells how many blocks run at a time
(`blocks.occupancy`) and how many are left for the last round (`blocks.waves`), not what other blocks would compute.
"""

import re
from collections.abc import Sequence
from math import prod

from ...blocks.occupancy import THREADS, occupancy
from ...blocks.triton.chips import Chip, chip_for
from ...blocks.waves import even_share, streamed_share
from ...errors import RooflineError
from ...machine import LATENCY, Machine
from ...resource import COMPUTE_UNITS, HBM
from ...workload import KernelUse
from ..op_times import OpTimes
from .clock import Clock
from .evidence import Evidence, Saving
from .kernel_tiles import generation_of, tile_of
from .reachable import OTHERWISE

KIND = "block-sizes"
LEAST = 0.1  # of a kernel's time: less is not told
OWN = ("custom call", "kernel", "unknown")  # categories of ops whose kernels are neither a framework's nor a library's
INDUCTORS = "triton_"  # the prefix of kernels that Inductor writes
LAUNCHES = 5  # launch latencies: shorter kernels wait for other things than cores
_PLAIN = re.compile(r"(?!cudnn|cublas|nccl|rccl)[A-Za-z_]\w*")  # libraries of C++ have names with types, these prefixes, or tiles


def block_sizes(op_times: OpTimes, ids: Sequence[int], kernels: Sequence[KernelUse], machine: Machine, clock: Clock) -> list[Evidence]:
    """The evidence for each kernel that the model expects to be at least a tenth faster with blocks that fill the cores evenly."""
    uses = _own_kernels(op_times, ids, kernels) if machine.kind == "gpu" and clock.measured else {}
    chip = _chip(machine) if uses else None
    found = []
    for id, use in uses.items() if chip else ():
        evidence = _uneven(op_times, id, use, chip, machine, clock) if chip else None
        found += [evidence] if evidence else []
    return found


def _uneven(op_times: OpTimes, id: int, use: KernelUse, chip: Chip, machine: Machine, clock: Clock) -> Evidence | None:
    blocks, block = prod(use.grid or ()), use.block
    if block is None or not use.grid or not blocks:
        return None
    fits = occupancy(chip.core, warps=-(-block.threads // THREADS), registers=block.registers, shared=block.shared)
    spent, launches = op_times.spent_s[id], op_times.launches[id]
    after_s = _after_s(op_times, id, blocks, max(1, fits.blocks), chip, machine)
    saved = Saving.of([id], [spent - after_s], clock)
    if after_s > (1 - LEAST) * spent or saved.steps_s < clock.notable_s:
        return None
    few = "few" if blocks < chip.cores else ""
    rounds = -(-blocks // chip.cores)
    idle = 1 - (blocks - (rounds - 1) * chip.cores) / chip.cores
    facts = {"blocks": blocks, "cores": chip.cores, "fit": fits.blocks, "idle": idle, "each": spent / launches, "even": after_s / launches}
    return Evidence(kind=KIND, cause=few, levers=(few,), facts=facts, ops=[id], saved=saved)


def _own_kernels(op_times: OpTimes, ids: Sequence[int], kernels: Sequence[KernelUse]) -> dict[int, KernelUse]:
    """For each op that launches one kernel of its program's own, always alike, that kernel."""
    wanted, found, mixed = set(ids), dict[int, KernelUse](), set[int]()
    for use in kernels:
        id = use.op_index
        if (
            id in wanted
            and id in found
            and (use.kernel_name, use.grid, use.block) != (found[id].kernel_name, found[id].grid, found[id].block)
        ):
            mixed.add(id)
        elif id in wanted and _is_own(use.kernel_name, op_times.category[id]):
            found[id] = use
    return {id: use for id, use in found.items() if id not in mixed}


def _is_own(kernel: str, category: str) -> bool:
    if kernel.startswith(INDUCTORS):
        return True
    return category in OWN and _PLAIN.fullmatch(kernel) is not None and tile_of(kernel) is None and generation_of(kernel) is None


def _chip(machine: Machine) -> Chip | None:
    """The chip, if the catalogue has its cores."""
    try:
        return chip_for(machine.chip_name)[0]
    except RooflineError:
        return None


def _after_s(op_times: OpTimes, id: int, blocks: int, fit: int, chip: Chip, machine: Machine) -> float:
    """The time of an op with blocks that fill the cores evenly; where it is not known what limits the op, the longest."""
    spent, launches, unit = op_times.spent_s[id], op_times.launches[id], op_times.unit[id]
    if op_times.cause[id] == LATENCY or spent < LAUNCHES * launches * machine.launch_latency_s:
        return spent
    port = chip.core.l2_bytes * chip.clock * chip.cores / chip.hbm
    computing, streaming = even_share(blocks, chip.cores), streamed_share(blocks, chip.cores, fit, port)
    shares = [computing] if unit in COMPUTE_UNITS else [streaming] if unit == HBM.name else [computing, streaming]
    return max(max(shares) * spent, op_times.floor_s[id] / OTHERWISE, launches * machine.launch_latency_s)
