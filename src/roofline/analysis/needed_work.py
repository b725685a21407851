"""Needed work: how much of an op's work the model needed, and the class of the rest."""

from msgspec import Struct

from ..cost import Amount, Cost, tidy
from ..machine import Machine
from ..placement import MinimumTimes
from ..prediction.compiled_programs import padded_flops
from ..workload import Op


class Needed(Struct, frozen=True):
    """The needed work of an op over all its executions: its cost, its minimum time, and the unneeded work by class.

    ``unneeded`` is in FLOP where the op has any that was not needed, else in bytes. It is ``beyond`` the counted work, all of which was
    needed, where it is the padding that a matrix unit multiplies.
    """

    cost: Cost
    floor_s: float
    unneeded: dict[str, Amount]
    beyond: bool = False


PADDED = "padded"  # class of unneeded work


def needed(op: Op, floor_s: float, minimum_s: MinimumTimes, machine: Machine) -> Needed | None:
    """The needed work of an op; ``None`` where all of it was needed, and fills the machine's matrix unit.

    Several reasons may apply to one op: half of a product is masked, and all of it is recomputed. For each resource, the smallest needed
    amount counts.
    """
    reasons = [one for one in op.avoidable if one.unneeded]
    if not reasons:
        padded = sum(padded_flops(op.compiled, machine).values()) * op.count
        return Needed(op.cost, floor_s, {PADDED: tidy(padded)}, beyond=True) if padded else None
    amounts = dict(op.cost.amounts)
    unneeded: dict[str, Amount] = {}
    for reason in reasons:
        count = op.count if reason.share == 1 else reason.share * op.count
        kept = 0 if reason.share == 1 else 1 - reason.share
        least = {resource: min(amount, reason.instead.known(resource) * count + kept * amount) for resource, amount in amounts.items()}
        moved = {resource: reason.instead.known(resource) * count for resource in reason.instead if resource not in amounts}
        after = {**least, **moved}
        flops = sum(amount for resource, amount in amounts.items() if resource.is_arithmetic)
        flops_after = sum(amount for resource, amount in after.items() if resource.is_arithmetic)
        saved = flops - flops_after
        if saved <= 0:
            saved = sum(a for r, a in amounts.items() if r.measure == "B") - sum(a for r, a in after.items() if r.measure == "B")
        if saved > 0:
            unneeded[reason.unneeded] = unneeded.get(reason.unneeded, 0) + tidy(saved)
        amounts = after
    cost = Cost(tuple(sorted(((r, a) for r, a in amounts.items() if a), key=lambda entry: entry[0].name)), op.cost.unknown)
    return Needed(cost, min(minimum_s(cost), floor_s), unneeded)
