"""Scatter-adds in bf16, such as the gradients of embeddings, in XLA's kernels on GPUs.

GPUs add fp32 numbers in their memory, but XLA's kernels add a bf16 number by reading its word of four bytes and writing it back, again and
again until no other thread has changed it meanwhile. So a scatter-add takes so long for each number, however few bytes it moves, and if its
result is so small that threads want the same words, most of their tries are in vain:

    updates / (cores · clock · ADDS) · max(1, TRIES · updates in flight / words of the result)
"""

from ...hlo.ir.module import Computation, HloModule, Instruction
from ...hlo.price.bodies import reads_target
from ...prediction.calibration import Calibration
from ...workload import Op

ADDS = 0.48  # numbers that a core adds a clock if threads want different words (H200: 0.37 to 0.5 in most of 40 kernels, 0.15 at least)
THREADS = 2048  # of a core, with an update in flight each
TRIES = 0.6  # of the threads that want one word, as many tries an update (one kernel on H200: 16,384 rows added to 2)
PER_WORD = 2  # numbers
APART, TOGETHER = (0.9, 2.0), (0.4, 2.5)  # bounds, as shares of the time, where threads want different words and the same


def added_in_bf16_s(module: HloModule | None, op: Op, calibration: Calibration) -> tuple[float, float, float] | None:
    """The least time that the scatter-add of fp32 numbers in an op takes in bf16, with bounds; ``None`` where there is none."""
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
        bounds = APART if wanted <= 1 else TOGETHER
        seconds, low, high = seconds + time_s, low + time_s * bounds[0], high + time_s * bounds[1]
    return (seconds, low, high) if seconds else None


def _added(module: HloModule, computation: Computation, one: Instruction) -> tuple[int, int] | None:
    """How many fp32 numbers a scatter combines with the elements of its result, and how many elements that has."""
    if one.opcode != "scatter" or not reads_target(module, one):
        return None
    updates, result = computation[one.operands[-1]].shape, one.shape.leaves[0]
    return (updates.elements, result.elements) if result.number.rate == "fp32" and result.number.bits == 32 else None
