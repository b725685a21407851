"""Where an op stands: what its time is compared with, and what it is lost to."""

from msgspec import Struct

from ..prediction import Prediction
from ..workload import Op
from .needed_work import Needed


class Standing(Struct, frozen=True):
    """An op and where it stands: its minimum time, what its time above that is lost to, what binds it, what of it was
    needed, and how long it was expected to take."""

    id: int
    op: Op
    floor_s: float
    cause: str
    unit: str | None = None
    needed: Needed | None = None
    prediction: Prediction | None = None

    @property
    def own_s(self) -> float:
        """The seconds that it held its device: its self time, where the source tells nested ops apart."""
        return (self.op.time_s or 0.0) if self.op.self_time_s is None else self.op.self_time_s

    @property
    def spent_s(self) -> float:
        """The seconds that it held its device; without times its minimum."""
        op = self.op
        if op.self_time_s is not None:
            return op.self_time_s
        return self.floor_s if op.time_s is None else op.time_s


def share_in_steps(op: Op) -> float:
    """The share of an op's time that lies in steps."""
    return min(sum([share.time_s for share in op.by_step]) / op.time_s, 1.0) if op.time_s else 0.0
