"""The ops of a program with all avoidable work that rules find."""

from roofline.analysis.evidence import with_evidence
from roofline.hlo.ir.module import HloModule
from roofline.hlo.ir.platforms import Platform
from roofline.hlo.review import Review
from roofline.workload import Recording, Workload


def reviewed_program(module: HloModule, platform: Platform | None = None) -> Workload:
    """The operations that a module runs, with their costs, labels and avoidable work."""
    review = Review.of(module, platform)
    graph = review.graph()
    return with_evidence(Recording(workload=review.workload(), format="hlo", graphs=() if graph is None else (graph,))).workload
