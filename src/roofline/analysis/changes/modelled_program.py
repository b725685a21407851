"""The measured programs under roofline's own fusion model, so that they can be compared with a function that was not compiled.

A compiler stores more than the model assumes, in layouts that the model does not have. The measured time of its kernels over the time that
the model expects is applied to the expected time of the function.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from ...hlo.fusion.compiler_model import RULES, fuse
from ...hlo.fusion.copies import with_copies
from ...hlo.fusion.decompiling import decompiled
from ...hlo.ir.module import Computation, HloModule
from ...hlo.ir.platforms import Platform
from ...hlo.review import Review
from ...workload import Op, Recording, Step


def modelled(
    measured: Recording, programs: Mapping[str, HloModule], steps: Sequence[Step], platform: Platform
) -> Iterator[tuple[Op, float]]:
    """The ops of a profile's programs under the model, and how often one step runs each of these programs."""
    library = platform == "gpu"
    rules = replace(RULES[platform], copies=library, widens=library, repeats=True)
    for module in programs.values():
        entry = [op for op in measured.workload if op.module == module.name and (module.place(op.name) or (-1, 0))[0] == module.entry]
        runs = median([op.count * share_of_step(op, steps) for op in entry] or [0.0]) / max(len(measured.devices), 1)
        if runs:
            again = with_copies(fuse(_without_control(decompiled(module)), platform, rules), platform)
            yield from ((op, runs) for op in Review.of(again, platform).workload())


def _without_control(module: HloModule) -> HloModule:
    """A program without the control dependencies that its compiler added between independent instructions."""

    def free(computation: Computation) -> Computation:
        return replace(computation, instructions=tuple(replace(one, control=()) if one.control else one for one in computation))

    return replace(module, computations=tuple(map(free, module.computations)))


def share_of_step(op: Op, steps: Sequence[Step]) -> float:
    """The share of an op's executions that falls into one of these steps on average."""
    if not steps or not op.by_step or not op.time_s:
        return 1.0 / max(len(steps), 1)
    keys = {step.step for step in steps}
    return sum(share.time_s for share in op.by_step if share.key in keys) / op.time_s / len(steps)
