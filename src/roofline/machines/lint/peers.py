"""Peers: the plausible range of a chip's figures, from chips of the same vendor, kind and memory technology in the catalogue.

A range is the lowest to the highest figure among the chip's closest peers in the catalogue, itself left out, times a margin on
both sides. Only the margins are chosen by hand.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from ..catalogue import cards
from ..chip_specs import Card

MARGIN = 3.0  # generations of one technology differ by about this much
RIDGE_MARGIN = 1.5  # peak and bandwidth grow together: their quotient differs less
_ENOUGH = 3  # least number of chip families, because variants of one chip are not independent

Measure = Callable[[Card], float | None]


class Range(Struct, frozen=True):
    """The range of the peers' figures, and the peers."""

    low: float
    high: float
    among: str

    def widened(self, margin: float) -> "Range":
        return Range(self.low / margin, self.high * margin, self.among)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def by_maker(card: Card, measure: Measure, margin: float = MARGIN) -> Range | None:
    """The range among chips of the same vendor and kind, else of the same kind, else all; CPUs are compared only with CPUs."""
    vendor, kind = card.machine.vendor, card.machine.kind
    plural = {"gpu": "GPUs", "tpu": "TPUs", "accelerator": "accelerators", "soc": "systems on a chip", "cpu": "CPUs"}.get(kind, "chips")
    groups = (
        (f"{vendor} {plural}", lambda peer: bool(vendor) and (peer.machine.vendor, peer.machine.kind) == (vendor, kind)),
        (plural, lambda peer: bool(kind) and peer.machine.kind == kind),
        ("all chips", lambda _: kind != "cpu"),
    )
    return _first(card, measure, groups, margin)


def by_memory(card: Card, measure: Measure, margin: float = MARGIN) -> Range | None:
    """The range among chips with the same main memory: its generation, else its technology, else the maker's chips."""
    own = card.technology
    if own:
        groups = (
            (f"chips with {own}", lambda peer: peer.technology.upper() == own.upper()),
            (f"chips with {_family(own)}", lambda peer: _family(peer.technology) == _family(own)),
        )
        if found := _first(card, measure, groups, margin):
            return found
    return by_maker(card, measure, margin)


def _family(technology: str) -> str:
    return technology.upper().rstrip("0123456789EX")


def _other(peer: Card, card: Card) -> bool:
    return peer.machine.name != card.machine.name


def _first(card: Card, measure: Measure, groups: Iterable[tuple[str, Callable[[Card], bool]]], margin: float) -> Range | None:
    """The range of the narrowest group that is large enough."""
    for among, belongs in groups:
        found = [(peer.family, value) for peer in cards() if _other(peer, card) and belongs(peer) and (value := measure(peer))]
        if len({family for family, _ in found}) >= _ENOUGH:
            values = [value for _, value in found]
            return Range(min(values), max(values), among).widened(margin)
    return None
