"""Checks of the linter: pure functions from a card to its problems. An ``[[exception]]`` refers to them by name."""

from collections.abc import Callable, Iterator

from ...machine import Capacity, Ceiling, Machine
from ...resource import HBM, Resource
from ...units import plain, show
from ..catalogue import cards, identify
from ..chip_specs import Card
from ..citations import source_of
from . import peers
from .identity import EQUAL, SAME, THOUSAND, catalogued, confirmed_by_catalogue, devices, identities, relative_difference
from .problem import Problem, problem

# Allowed ratios of a number format's rate to that of another format, which may have two names.
RATIOS: tuple[tuple[str, tuple[str, ...], tuple[float, ...]], ...] = (
    ("matrix/fp16", ("matrix/bf16",), (1,)),
    ("matrix/tf32", ("matrix/bf16", "matrix/fp16"), (0.5, 1)),
    ("matrix/fp8", ("matrix/bf16", "matrix/fp16"), (1, 2)),
    ("matrix/int8", ("matrix/bf16", "matrix/fp16"), (1, 2, 4)),
    ("matrix/int4", ("matrix/int8",), (1, 2)),
    ("matrix/fp6", ("matrix/fp8",), (1, 2)),
    ("matrix/fp4", ("matrix/fp8",), (1, 2)),
    ("vector/fp16", ("vector/fp32",), (1, 2, 4)),
    ("vector/bf16", ("vector/fp32",), (1, 2, 4)),
)
AT_MOST: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("vector/fp64", ("vector/fp32",)),
    ("matrix/fp64", ("matrix/bf16", "matrix/fp16")),
    ("vector/fp32", ("matrix/bf16", "matrix/fp16")),
)


def sources(card: Card) -> Iterator[Problem]:
    """Every figure names its source."""
    figures: list[tuple[object, Ceiling | Capacity]] = [(each.resource, each) for each in card.machine.ceilings]
    figures += [(each.level, each) for each in card.machine.capacities]
    for resource, figure in figures:
        if not figure.citation:
            own = figure.provenance in ("user", "measured", "profile")
            what = "capacity" if isinstance(figure, Capacity) else "rate"
            message = f"the {what} has no source; cite one, like source = ['datasheet, page 2']"
            yield problem("source", card, resource, message, "warning" if own else "error")


def provenances(card: Card) -> Iterator[Problem]:
    """A figure called `datasheet` cites a document of the chip's vendor; a source in words counts as one."""
    for each in card.attributions:
        if each.provenance != "datasheet" or not each.citations:
            continue
        known = [source_of(citation) for citation in each.citations]
        if not any(one is None or (one.vendor and one.vendor == (card.machine.vendor or one.vendor)) for one in known):
            cited = " and ".join(one.cite for one in known if one)
            message = f"called datasheet, but {cited} is not published by {card.machine.vendor or 'its vendor'}; say quoted"
            yield problem("provenance", card, each.figure, message, "warning")


def names(card: Card) -> Iterator[Problem]:
    """All names of a machine mean one chip."""
    meant = {alias: found for alias in card.machine.aliases if len(found := identify(alias)) == 1}
    chips = sorted({found[0] for found in meant.values()})
    if len(chips) > 1:
        belongs = "; ".join(f"{alias!r} is {found[0]}" for alias, found in meant.items())
        yield problem("names", card, "aliases", f"the aliases belong to {len(chips)} chips: {belongs}; keep those of one")


def ranges(card: Card) -> Iterator[Problem]:
    """A rate is in the range of its peers in the catalogue.

    A measured one (it has percentiles) cannot be a typing error, and a vector format at a usual multiple of fp32 is as right as fp32 is.
    """
    known, usual = identities(card), _usual_formats(card.machine)
    for ceiling in card.machine.ceilings:
        resource = ceiling.resource
        if ceiling.spread or resource.name in usual or any(each.machine.ceiling(resource) for each in known):
            continue
        among = peers.by_memory if resource == HBM else peers.by_maker
        yield from _within("range", card, resource, ceiling.rate, resource.per, among(card, _rate_of(resource)))


def _usual_formats(machine: Machine) -> set[str]:
    """The vector formats whose rate is a usual multiple of another format's."""
    rated = [(machine.ceiling(name), _first(machine, bases), multiples) for name, bases, multiples in RATIOS if name.startswith("vector/")]
    return {
        ceiling.resource.name
        for ceiling, base, multiples in rated
        if ceiling and base and any(relative_difference(ceiling.rate / base.rate, multiple) <= SAME for multiple in multiples)
    }


def capacities(card: Card) -> Iterator[Problem]:
    """A memory's capacity is in the range of its peers, and on-chip memories are smaller than main memory."""
    known = identities(card)
    main = card.machine.capacity(HBM)
    for capacity in card.machine.capacities:
        level = capacity.level
        if any(each.machine.capacity(level) for each in known):
            continue
        among = peers.by_memory if level == HBM else peers.by_maker
        yield from _within("capacity", card, level, capacity.bytes, "B", among(card, _capacity_of(level)))
        if main and level.name not in ("hbm", "host") and capacity.bytes >= main:
            yield problem("capacity", card, level, f"{show(capacity.bytes, 'B')} on chip is not less than main memory's {show(main, 'B')}")


def powers(card: Card) -> Iterator[Problem]:
    """A chip draws about what its peers draw."""
    watts = card.machine.power_w
    if watts and not any(each.machine.power_w for each in identities(card)):
        yield from _within("power", card, "power", watts, "W", peers.by_maker(card, lambda peer: peer.machine.power_w))


def _rate(card: Card, resource: Resource) -> float | None:
    ceiling = card.machine.ceiling(resource)
    return ceiling.rate if ceiling else None


def _rate_of(resource: Resource) -> peers.Measure:
    return lambda card: _rate(card, resource)


def _capacity_of(level: Resource) -> peers.Measure:
    return lambda card: card.machine.capacity(level)


def _within(check: str, card: Card, resource: object, value: float, per: str, allowed: peers.Range | None) -> Iterator[Problem]:
    if allowed is None or value in allowed:
        return
    message = f"{show(value, per)} is outside the range of {allowed.among}, {show(allowed.low, per)} to {show(allowed.high, per)}"
    if value / THOUSAND in allowed:
        message += "; 1000 times too large (T written for G)?"
    elif value * THOUSAND in allowed:
        message += "; 1000 times too small (G written for T)?"
    yield problem(check, card, resource, message)


def ridges(card: Card) -> Iterator[Problem]:
    """The ridge (peak over bandwidth) is in the range of its peers: it shows a wrong prefix or half a memory."""
    ridge = _ridge(card)
    matrix = _main_matrix(card.machine)
    if ridge is None or matrix is None or {matrix.resource.name, HBM.name} <= confirmed_by_catalogue(card):
        return
    allowed = peers.by_maker(card, _usual_ridge, peers.RIDGE_MARGIN)
    if allowed and ridge not in allowed:
        span = f"{plain(allowed.low, 3)} to {plain(allowed.high, 3)}"
        message = f"{matrix.resource} over hbm gives a ridge of {plain(ridge, 3)} FLOP/B; {allowed.among} have {span}; check both"
        yield problem("ridge", card, matrix.resource, message)


def _main_matrix(machine: Machine) -> Ceiling | None:
    return machine.ceiling("matrix/bf16") or machine.ceiling("matrix/fp16")


def _ridge(card: Card) -> float | None:
    matrix, main = _main_matrix(card.machine), card.machine.ceiling(HBM)
    return matrix.rate / main.rate if matrix and main else None


def _usual_ridge(card: Card) -> float | None:
    """The ridge of a peer; ``None`` if the peer's own file declares it an exception."""
    return None if any(exemption.check == "ridge" for exemption in card.exemptions) else _ridge(card)


def ratios(card: Card) -> Iterator[Problem]:
    """Number formats keep the usual proportions: fp16 as bf16, fp8 and int8 twice that, tf32 half, fp64 no more than fp32."""
    sure = confirmed_by_catalogue(card)
    for name, bases, multiples in RATIOS:
        ceiling, base = card.machine.ceiling(name), _first(card.machine, bases)
        if ceiling is None or base is None or {name, base.resource.name} <= sure:
            continue
        ratio = ceiling.rate / base.rate
        if not any(relative_difference(ratio, multiple) <= SAME for multiple in multiples):
            usual = " or ".join(f"{multiple:g}" for multiple in multiples)
            message = (
                f"{show(ceiling.rate, 'FLOP/s')} is {plain(ratio, 3)} times {base.resource}'s {show(base.rate, 'FLOP/s')}; usual: {usual}"
            )
            yield problem("ratio", card, name, message)
    for name, bases in AT_MOST:
        ceiling, base = card.machine.ceiling(name), _first(card.machine, bases)
        if ceiling and base and not {name, base.resource.name} <= sure and ceiling.rate > base.rate * (1 + SAME):
            message = f"{show(ceiling.rate, 'FLOP/s')} is more than {base.resource}'s {show(base.rate, 'FLOP/s')}"
            yield problem("ratio", card, name, message)


def _first(machine: Machine, choices: tuple[str, ...]) -> Ceiling | None:
    return next((found for name in choices if (found := machine.ceiling(name))), None)


def matrix_rates(card: Card) -> Iterator[Problem]:
    """A machine with compute rates has a matrix rate or ``matrix_unit = false``; otherwise products have no bound."""
    machine = card.machine
    if machine.compute and not machine.rates_matrix and machine.kind != "cpu" and machine.matrix_unit is None:
        message = "no matrix rate, so matmuls have no bound; give one, or say matrix_unit = false if the chip has no matrix unit"
        yield problem("matrix", card, "matrix", message, "warning")


def sparsity(card: Card) -> Iterator[Problem]:
    """A rate is dense: below its own figure with sparsity, usually half of it, and not some chip's sparse figure."""
    sure, known = confirmed_by_catalogue(card), identities(card)
    for ceiling in card.machine.compute:
        if ceiling.resource.name in sure:
            continue
        rate = show(ceiling.rate, "FLOP/s")
        if ceiling.sparse and ceiling.sparse <= ceiling.rate * (1 + SAME):
            message = f"{rate} dense is not less than {show(ceiling.sparse, 'FLOP/s')} with sparsity; give the dense rate"
            yield problem("sparse", card, ceiling.resource, message)
        elif ceiling.sparse and relative_difference(ceiling.sparse / ceiling.rate, 2) > SAME:
            message = f"sparsity multiplies {rate} by {plain(ceiling.sparse / ceiling.rate, 3)}; usual: 2"
            yield problem("sparse", card, ceiling.resource, message)
        elif not any(each.machine.ceiling(ceiling.resource) for each in known) and (copied := _sparse_of(card, ceiling)):
            dense = show(_rate(copied, ceiling.resource), "FLOP/s")
            message = f"{rate} is the rate of {copied.machine.name} with sparsity; its dense rate is {dense}"
            yield problem("sparse", card, ceiling.resource, message)


def _sparse_of(card: Card, ceiling: Ceiling) -> Card | None:
    """The chip of the catalogue whose figure with sparsity this dense rate equals; of several, the one with the most similar memory."""
    copied = []
    for peer in cards():
        figure = peer.machine.ceiling(ceiling.resource)
        same_maker = card.machine.vendor in ("", peer.machine.vendor)
        is_other = same_maker and peer.machine.name != card.machine.name
        if figure and figure.sparse and is_other and relative_difference(ceiling.rate, figure.sparse) <= EQUAL:
            copied.append(peer)
    own = _rate(card, HBM)
    return min(copied, key=lambda peer: relative_difference(_rate(peer, HBM) or own, own) if own else 0.0, default=None)


def links(card: Card) -> Iterator[Problem]:
    """A chip's links add up: count x one link is the chip's total one way, twice that is both ways; no rate is above its peak."""
    for link in card.links:
        name, rate = link.resource, link.number("rate", link.resource.per)
        peak, chip, both_ways = (link.number(key, "B/s") for key in ("peak", "chip", "chip_both_ways"))
        if rate and peak and rate > peak * (1 + SAME):
            yield problem("link", card, name, f"the rate {show(rate, 'B/s')} is above the peak {show(peak, 'B/s')}")
        one = peak or rate
        if one and link.count and chip and relative_difference(one * link.count, chip) > SAME:
            message = f"{link.count} links of {show(one, 'B/s')} are {show(one * link.count, 'B/s')}, not {show(chip, 'B/s')} per chip"
            yield problem("link", card, name, message)
        if chip and both_ways and relative_difference(both_ways, 2 * chip) > SAME:
            message = f"{show(both_ways, 'B/s')} both ways is not twice {show(chip, 'B/s')} one way"
            yield problem("link", card, name, message)


def levels(card: Card) -> Iterator[Problem]:
    """Memories on the chip are faster than main memory, and l1 is faster than l2."""
    main = card.machine.ceiling(HBM)
    for ceiling in card.machine.memories:
        if main and ceiling.resource.name not in ("hbm", "host") and ceiling.rate <= main.rate:
            message = f"{show(ceiling.rate, 'B/s')} on chip is not faster than main memory's {show(main.rate, 'B/s')}"
            yield problem("level", card, ceiling.resource, message)
    inner, outer = card.machine.ceiling("l1"), card.machine.ceiling("l2")
    if inner and outer and inner.rate <= outer.rate:
        yield problem("level", card, "l1", f"{show(inner.rate, 'B/s')} is not faster than l2's {show(outer.rate, 'B/s')}")


def sustained(card: Card) -> Iterator[Problem]:
    """A sustained rate and its fraction agree, for the chip's peak or for that of one device or link."""
    totals = {link.resource.name: chip for link in card.links if (chip := link.number("chip", "B/s"))}
    for each in card.sustained:
        ceiling = card.machine.ceiling(each.resource) if each.resource else None
        if ceiling is None or each.fraction is None:
            continue
        rate, peak = each.per_second, totals.get(ceiling.resource.name, ceiling.rate)
        shares = (rate / peak, rate * card.machine.devices / peak, rate / (ceiling.peak or ceiling.rate))
        if not any(abs(share - each.fraction) <= SAME / 2 for share in shares):
            message = f"{each.what}: {show(rate, each.per)} is {plain(shares[0], 3)} of {show(peak, each.per)}, not {each.fraction:g}"
            yield problem("sustained", card, ceiling.resource, message)


CHECKS: dict[str, Callable[[Card], Iterator[Problem]]] = {
    "source": sources,
    "provenance": provenances,
    "names": names,
    "catalogue": catalogued,
    "devices": devices,
    "range": ranges,
    "capacity": capacities,
    "power": powers,
    "ridge": ridges,
    "ratio": ratios,
    "matrix": matrix_rates,
    "sparse": sparsity,
    "link": links,
    "level": levels,
    "sustained": sustained,
}
