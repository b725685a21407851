"""Causes: what the time of a device goes into, each with its words and how it is drawn. The bars and their legends, `points[].lost`, the
timeline, the page and the documentation take them from here.

An op occupies its device for its self time s. Of that, min(s, minimum time of its needed work) is needed; the minimum time of the rest of
its work is lost as unneeded, and the time above that is lost to a cause that depends on the op's bound (`cause_of`).
"""

from msgspec import Struct

from .machine import LATENCY
from .resource import named
from .workload import AUTOTUNING

NEEDED = "needed"  # the part of a time that is not lost
MEMORY, COMPUTE, COMMUNICATION, UNPRICED, IDLE = "memory", "compute", "communication", "unpriced", "idle"
UNNEEDED = "unneeded"


class Cause(Struct, frozen=True, kw_only=True):
    """A part of a time.

    In the terminal it is a ``mark`` with its ``words``, in colour a block of this ``style``. On the page it is a ``title`` with a
    ``meaning``, in the ``colour`` of that name in the theme, or of that place in its series; ``of_minimum`` is the title where only minimum
    times are known.
    """

    mark: str
    style: str
    words: str
    colour: str | int
    title: str
    meaning: str
    of_minimum: str = ""


PARTS = {  # in the order of a bar
    NEEDED: Cause(
        mark="#",
        style="green",
        words="needed",
        colour="ink",
        title="minimum for the needed work",
        meaning="minimum time of the work that the model needs",
    ),
    UNNEEDED: Cause(
        mark="u",
        style="magenta",
        words="not needed",
        colour=3,
        title="work that was not needed",
        meaning="minimum time of work that the model did not need: recomputed, masked, padded, computed twice, moved to change its layout",
    ),
    MEMORY: Cause(
        mark="m",
        style="yellow",
        words="memory",
        colour="memory",
        title="lost to memory",
        meaning="time of memory-bound ops above their minimum time",
        of_minimum="memory-bound ops",
    ),
    COMPUTE: Cause(
        mark="c",
        style="cyan",
        words="compute",
        colour="compute",
        title="lost to compute",
        meaning="time of compute-bound ops above their minimum time",
        of_minimum="compute-bound ops",
    ),
    COMMUNICATION: Cause(
        mark="x",
        style="blue",
        words="communication",
        colour="good",
        title="lost to communication",
        meaning="time of communication-bound ops above their minimum time",
        of_minimum="communication-bound ops",
    ),
    LATENCY: Cause(
        mark="l",
        style="red",
        words="launches",
        colour="muted",
        title="lost to launches",
        meaning="time of ops whose work takes less than their launch, or that have no work: control flow, waiting",
        of_minimum="launches",
    ),
    AUTOTUNING: Cause(
        mark="a",
        style="bold",
        words="autotuning",
        colour=4,
        title="lost to autotuning",
        meaning="time of kernels and copies that a compiler or library ran to choose among candidates",
    ),
    UNPRICED: Cause(
        mark="?",
        style="bold",
        words="no known minimum",
        colour=5,
        title="no known minimum",
        meaning="time of ops whose FLOP or bytes are unknown, or whose resource has no known rate: it may be lost or needed",
    ),
    IDLE: Cause(mark=".", style="dim", words="idle", colour="edge", title="idle", meaning="time in which the device ran nothing"),
}
CAUSES = tuple(name for name in PARTS if name != NEEDED)  # of lost time


class Reason(Struct, frozen=True):
    """Why a device was idle: its mark above an idle part of a timeline, and the text."""

    mark: str
    words: str


REASONS = {  # of idle time, by kind
    "input": Reason("p", "host in Python"),
    "sync": Reason("w", "host waiting for a value"),
    "callback": Reason("k", "host in a callback"),
    "compile": Reason("C", "host compiling"),
    "dispatch": Reason("d", "host dispatching"),
    "transfer": Reason("t", "host copying"),
    "device": Reason("o", "waiting for another device"),
    "latency": Reason("l", "between kernels"),
    "unknown": Reason("?", "host not recorded"),
}


def cause_of(bound: str | None) -> str:
    """The cause to which the time above the minimum of an op of known cost is lost, by its bound."""
    if bound is None or bound == LATENCY:
        return LATENCY
    resource = named(bound)
    return MEMORY if resource.is_memory else COMMUNICATION if resource.is_link else COMPUTE
