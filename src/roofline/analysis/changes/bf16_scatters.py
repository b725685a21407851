"""Scatter-adds in bf16, such as the gradients of embeddings, in XLA's kernels on GPUs.

GPUs have atomic adds for fp32, but XLA's kernels add a bf16 number with a compare-and-swap loop on the 32-bit word that contains it. So the
time of a scatter-add depends on the number of updates, not on the bytes, and if its result is so small that threads update the same words,
most attempts fail and are repeated:

    updates / (cores · clock · ADDS) · max(1, TRIES · updates in flight / words of the result)
"""

from ...hlo.ir.module import Computation, HloModule, Instruction
from ...hlo.price.bodies import reads_target
from ...prediction.calibration import Calibration
from ...workload import Op

ADDS = 0.48  # updates per core and clock if threads update different words (H200: 0.37 to 0.5 in most of 40 kernels, 0.15 at least)
THREADS = 2048  # per core, each with one update in flight
TRIES = 0.6  # attempts per update, per thread that updates the same word (one kernel on H200: 16,384 rows added to 2)
PER_WORD = 2  # bf16 numbers in a 32-bit word
DIFFERENT_WORDS, SAME_WORDS = (0.9, 2.0), (0.4, 2.5)  # bounds, as shares of the time


def added_in_bf16_s(module: HloModule | None, op: Op, calibration: Calibration) -> tuple[float, float, float] | None:
    """The minimum time, with bounds, of an op's fp32 scatter-add if it is done in bf16; ``None`` where it has none."""
    place = module.place(op.name) if module else None
    if module is None or place is None or not calibration.cores or not calibration.clock_hz:
        return None
    computation = module.computations[place[0]]
    bodies = [module.computations[body] for body in computation[place[1]].called("calls")]
    found = [_added(module, computation, computation[place[1]])]
    found += [_added(module, body, one) for body in bodies for one in body]
    seconds, low, high = 0.0, 0.0, 0.0
    for updates, elements in filter(None, found):
        wanted = TRIES * min(updates, calibration.cores * THREADS) / max(elements / PER_WORD, 1.0)
        time_s = updates / (calibration.cores * calibration.clock_hz * ADDS) * max(1.0, wanted) * op.count
        bounds = DIFFERENT_WORDS if wanted <= 1 else SAME_WORDS
        seconds, low, high = seconds + time_s, low + time_s * bounds[0], high + time_s * bounds[1]
    return (seconds, low, high) if seconds else None


def _added(module: HloModule, computation: Computation, one: Instruction) -> tuple[int, int] | None:
    """The number of fp32 updates of a scatter, and the number of elements of its result."""
    if one.opcode != "scatter" or not reads_target(module, one):
        return None
    updates, result = computation[one.operands[-1]].shape, one.shape.leaves[0]
    return (updates.elements, result.elements) if result.number.rate == "fp32" and result.number.bits == 32 else None
