"""The savings of findings on the wall clock: device-seconds divided by devices and steps."""

from collections.abc import Sequence

from ...workload import Op


class WallClock:
    """What device-seconds are on the wall clock: of one device over the whole run, and of one device and step where there are steps.

    ``time_s`` is the time of each op, by id, ``floor_s`` its minimum.
    """

    def __init__(self, ops: Sequence[Op], floor_s: Sequence[float], devices: int, *, has_steps: bool) -> None:
        time_s = [op.time_s for op in ops]
        self._times = [seconds or 0.0 for seconds in time_s]
        self._in_steps = [sum([share.time_s for share in op.by_step]) if has_steps else 0.0 for op in ops]
        keys = {share.key for op in ops for share in op.by_step} if has_steps else set()
        devices = devices or len({share.key for op in ops for share in op.by_device})
        self._devices, self._steps = max(devices, 1), len(keys)
        parts = self._devices * self._steps
        each = zip(time_s, self._in_steps, strict=True)
        self.op_times: Sequence[float | None] = [None if whole is None else part / parts for whole, part in each] if parts else time_s
        self.floor_s = floor_s if not any(self._times) else ()

    def per_device(self, seconds: float) -> float:
        """Seconds over all devices, for one."""
        return seconds / self._devices

    def per_step(self, seconds: float, ops: Sequence[int]) -> float | None:
        """The same for one device and step, where there are steps: the part of them in which these ops ran in steps."""
        if not self._steps:
            return None
        whole = sum([self._times[op] for op in ops])
        share = sum([self._in_steps[op] for op in ops]) / whole if whole else float(not ops)  # idle time belongs to no op
        return seconds / self._devices * share / self._steps if share else None
