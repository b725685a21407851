"""Identity: a machine that names a chip of the catalogue is compared with that chip, figure by figure."""

from collections.abc import Iterator

from ...machine import Capacity, Ceiling
from ...units import BINARY, DECIMAL, plain, show
from ..catalogue import card as look_up
from ..catalogue import cards, identify
from ..chip_specs import Card
from .problem import Problem, problem

SAME = 0.03  # relative: two roundings of one figure differ by less
FAR = 0.1  # relative: a larger difference means that the figure is wrong, not rounded
EQUAL = 0.003  # relative: a smaller difference means that the figure was copied
MEASURED_LOW = 0.3  # a measurement below this fraction of the datasheet is suspect
THOUSAND = DECIMAL["k"]


def relative_difference(value: float, other: float) -> float:
    """The difference of two figures, relative to the second."""
    return abs(value / other - 1)


def identities(card: Card) -> tuple[Card, ...]:
    """The chips of the catalogue that this card describes: by name, title, alias, or because it extends one.

    Empty for a chip of the catalogue itself, which is compared with its peers.
    """
    machine = card.machine
    if any(each.machine.name == machine.name and each == card for each in cards()):
        return ()
    words = (card.extends, machine.name.removesuffix("/device"), machine.title, *machine.aliases)
    named = dict.fromkeys(name for each in words if each for name in identify(each))
    return tuple(look_up(f"{name}/device" if machine.scope == "device" else name) for name in named)


def _accepted(known: Card, ceiling: Ceiling) -> list[float]:
    """The published figures for a resource of a known chip, without those known to be wrong."""
    figure = known.machine.ceiling(ceiling.resource)
    if figure is None:
        return []
    share = known.machine.devices if known.machine.scope == "device" and not figure.resource.is_link else 1
    wrong = {error.rate / share for error in known.known_errors if error.resource == figure.resource}
    others = [other.value for other in figure.others if other.value not in wrong]
    return [value for value in (figure.rate, figure.peak, *others) if value]


def _agrees(ceiling: Ceiling, known: Card) -> bool:
    accepted = _accepted(known, ceiling)
    if accepted and ceiling.provenance == "measured" and MEASURED_LOW * accepted[0] <= ceiling.rate <= max(accepted) * (1 + SAME):
        return True
    return any(relative_difference(ceiling.rate, value) <= SAME for value in accepted)


def confirmed_by_catalogue(card: Card) -> set[str]:
    """Resources whose figure is the catalogue's own and so needs no further check."""
    known = identities(card)
    return {ceiling.resource.name for ceiling in card.machine.ceilings if any(_agrees(ceiling, each) for each in known)}


def catalogued(card: Card) -> Iterator[Problem]:
    """A known chip has the figures of the catalogue, or other published ones that are not known to be wrong."""
    known = identities(card)
    for ceiling in card.machine.ceilings:
        rated = [each for each in known if each.machine.ceiling(ceiling.resource)]
        if rated and not any(_agrees(ceiling, each) for each in rated):
            distance = min(relative_difference(ceiling.rate, value) for each in rated for value in _accepted(each, ceiling))
            severity = "error" if distance > FAR else "warning"
            yield problem("catalogue", card, ceiling.resource, _explain(ceiling, rated[0]), severity)
    for capacity in card.machine.capacities:
        stored = [each for each in known for own in each.machine.capacities if own.level == capacity.level]
        values = [value for each in stored for own in each.machine.capacities if own.level == capacity.level for value in _sizes(own)]
        if values and not any(relative_difference(capacity.bytes, value) <= FAR for value in values):
            message = (
                f"{show(capacity.bytes, 'B')} is {_times(capacity.bytes / values[0])} {show(values[0], 'B')} for {stored[0].machine.name}"
            )
            yield problem("capacity", card, capacity.level, message)


def devices(card: Card) -> Iterator[Problem]:
    """A known chip has the number of framework devices in the catalogue."""
    known = identities(card)
    if known and card.machine.scope == "chip" and all(each.machine.devices != card.machine.devices for each in known):
        right = known[0].machine
        message = f"devices = {card.machine.devices}, but {right.name} has {right.devices}; use that, with figures of the whole chip"
        yield problem("devices", card, "devices", message)


def _sizes(capacity: Capacity) -> tuple[float, ...]:
    return (capacity.bytes, *(other.value for other in capacity.others))


def _explain(ceiling: Ceiling, known: Card) -> str:
    """The likely explanation of a figure that differs from the catalogue's."""
    figure = known.machine.ceiling(ceiling.resource)
    assert figure is not None
    per, chip = ceiling.resource.per, known.machine.name
    value, right = show(ceiling.rate, per), show(figure.rate, per)
    for error in known.known_errors:
        if error.resource == ceiling.resource and relative_difference(ceiling.rate, error.rate) <= EQUAL:
            return f"{value} is a known error in {error.citation} ({error.note}); the catalogue has {right} for {chip}"
    if figure.sparse and relative_difference(ceiling.rate, figure.sparse) <= SAME:
        return f"{value} is the figure with sparsity; the dense rate of {chip} is {right}"
    count = known.machine.devices
    if known.machine.scope == "chip" and count > 1 and relative_difference(ceiling.rate * count, figure.rate) <= SAME:
        return f"{value} is the rate of one of the {count} devices of {chip}; the whole chip has {right}"
    return f"{value} is {_times(ceiling.rate / figure.rate)} {right} for {chip}"


def _times(ratio: float) -> str:
    """The ratio of two figures as text, with the error that would explain it."""
    slips = {
        0.5: "half of the catalogue's",
        2.0: "twice the catalogue's",
        THOUSAND: "1000 times the catalogue's (T written for G?), which is",
        1 / THOUSAND: "a thousandth of the catalogue's (G written for T?), which is",
        8.0: "8 times the catalogue's (bits taken for bytes?), which is",
        1 / 8: "an eighth of the catalogue's (bytes taken for bits?), which is",
        BINARY["Gi"] / DECIMAL["G"]: "the catalogue's with G taken for Gi, which is",
        DECIMAL["G"] / BINARY["Gi"]: "the catalogue's with Gi taken for G, which is",
        BINARY["Ti"] / DECIMAL["T"]: "the catalogue's with T taken for Ti, which is",
    }
    for slip, words in slips.items():
        if relative_difference(ratio, slip) <= SAME / 2:
            return words
    return f"{plain(ratio, 3)} times the catalogue's"
