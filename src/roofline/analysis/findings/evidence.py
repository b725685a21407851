"""The evidence of a finding: what is known of a fault, in numbers and names, before the words of its kind say it."""

from collections.abc import Mapping, Sequence
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from ...rules.words.needs import Missing
from ...workload import Avoidable, Fact
from .clock import Clock

LEVERS = ("",)  # the levers of a kind, not those of one of its cases


class Saving(Struct, frozen=True):
    """The seconds that a change saves, in the whole run and in its averaged steps, summed over devices."""

    whole_s: float
    steps_s: float

    @classmethod
    def of(cls, ids: Sequence[int], savings: Sequence[float], clock: Clock, more_s: float = 0.0) -> Self:
        """The sum of the ops' savings, plus ``more_s`` in steps."""
        whole = sum(savings) + more_s
        if not clock.shares:
            return cls(whole, whole)
        return cls(whole, sum([saving * clock.share(id) for id, saving in zip(ids, savings, strict=True)]) + more_s)

    def times(self, share: float) -> "Saving":
        """A share of it."""
        return Saving(self.whole_s * share, self.steps_s * share)

    def plus(self, other: "Saving") -> "Saving":
        """Both."""
        return Saving(self.whole_s + other.whole_s, self.steps_s + other.steps_s)


class Note(Struct, frozen=True):
    """A further sentence of a finding, by its name in ``notes.toml``, with its facts."""

    name: str
    facts: Mapping[str, Fact] = {}


class Evidence(Struct, frozen=True, kw_only=True):
    """What a finding is made of. Without a saving (``saved``) it recommends no change; of ops that are judged one by one it has the seconds
    above their minimum (``headroom_s``).

    ``group`` and ``cause`` choose the words of the kind, ``levers`` the cases whose levers it has. ``ops`` come by their savings, the most
    first; ``advised`` are those that the levers are for, if not all, ``located`` how many of them say where they are. ``avoidable`` is the
    reason that a rule found, ``ways`` how to record what is not known, ``missing`` what the program lacks for the levers.
    """

    kind: str
    group: str = ""
    cause: str = ""
    facts: Mapping[str, Fact | None] = {}
    ops: Sequence[int] = ()
    saved: Saving | None = None
    headroom_s: float | None = None
    levers: Sequence[str] = LEVERS
    notes: tuple[Note, ...] = ()
    advised: Sequence[int] = ()
    located: int | None = None
    avoidable: Avoidable | None = None
    ways: Sequence[str] = ()
    missing: Missing = Missing()

    def saving(self, saved: Saving, *notes: Note) -> "Evidence":
        """The same evidence with another saving and further sentences."""
        return replace(self, saved=saved, notes=(*self.notes, *notes))
