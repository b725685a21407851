"""Operations on several chips: the rate that each chip allows, its share of that chip's peak, and what binds."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..cost import Cost
from ..errors import MachineError
from ..ledger import Ledger
from ..machine import Ceiling, Machine
from ..machines.listing import ChipListing
from ..placement import Placement, place_op
from ..report import Amounts
from ..resource import HBM, matrix
from .program_points import number

MATRIX = matrix("bf16").unit


class ChipChoice(Struct, frozen=True):
    """A chip to compare; with a ``number_format`` all matrix work is at the peak of that format, and its bytes are unchanged."""

    machine: Machine
    number_format: str = ""

    @classmethod
    def of(cls, machine: Machine, number_format: str = "") -> "ChipChoice":
        """The chip; where a number format is given, with the matrix rate of that format alone."""
        if not number_format:
            return cls(machine)
        wanted = matrix(number_format)
        found = machine.resolve(wanted)
        if found is None:
            raise MachineError(f"{machine.name} has no known rate for {wanted}")
        others = [ceiling for ceiling in machine.ceilings if ceiling.resource.unit != MATRIX]
        ceilings = (replace(found, resource=wanted), *others)
        return cls(replace(machine, name=f"{machine.name} {number_format}", ceilings=ceilings), number_format)

    def cost(self, cost: Cost) -> Cost:
        """The cost with its matrix work in the number format."""
        work = sum(amount for resource, amount in cost.amounts if resource.unit == MATRIX)
        if not self.number_format or not work:
            return cost
        others = {resource: amount for resource, amount in cost.amounts if resource.unit != MATRIX}
        return Cost.of({**others, matrix(self.number_format): work})


class OpOnChip(Struct, frozen=True, kw_only=True):
    """One operation on one chip: ``rate`` is the best FLOP/s, that of ``minimum_s``; ``intensity`` is FLOP per byte of main memory.

    ``peak`` is the rate of the chip's matrix unit in the operation's number format, ``peak_of``. ``peak_share`` is the part of it that the
    operation attains there, or with all of its FLOP where none are on the matrix unit. ``unrated`` is the work that the minimum excludes,
    because the chip has no known rate for it.
    """

    operation: str
    chip: str
    flops: float | None = None
    bytes: Amounts = {}
    intensity: float | None = None
    rate: float | None = None
    peak: float | None = None
    peak_of: str | None = None
    peak_share: float | None = None
    bound: str | None = None
    minimum_s: float | None = None
    unrated: tuple[str, ...] = ()


class OpListing(ChipListing, frozen=True, kw_only=True):
    """Some machines, and operations on each of them."""

    operations: tuple[OpOnChip, ...] = ()


def ops_on_chips(ops: Sequence[Callable[[Machine], Ledger]], chips: Sequence[ChipChoice]) -> tuple[OpOnChip, ...]:
    """Each operation on each chip, operation by operation; what one sends may depend on the links of the chip."""
    return tuple(_on_chip(op(chip.machine), chip) for op in ops for chip in chips)


def _on_chip(ledger: Ledger, chip: ChipChoice) -> OpOnChip:
    placed = place_op(chip.cost(ledger.cost), chip.machine)
    peak = _peak(ledger, placed, chip)
    known = placed.unit is not None
    return OpOnChip(
        operation=ledger.name,
        chip=chip.machine.name,
        flops=number(placed.cost.flops),
        bytes={resource.name: number(amount) for resource, amount in placed.cost.items() if resource.measure == "B"},
        intensity=placed.intensity(HBM),
        rate=placed.attainable,
        peak=peak.rate if peak else None,
        peak_of=peak.resource.name if peak else None,
        peak_share=_peak_share(placed, peak),
        bound=placed.bound,
        minimum_s=placed.floor_s if known else None,
        unrated=tuple(resource.name for resource in placed.unrated),
    )


def _peak(ledger: Ledger, placed: Placement, chip: ChipChoice) -> Ceiling | None:
    """The rate of the matrix unit in the operation's number format, which is that of its products, else of its first tensor."""
    work = [(amount, resource) for resource, amount in placed.cost.amounts if resource.unit == MATRIX]
    if work:
        return chip.machine.resolve(max(work)[1])
    wanted = chip.number_format or (ledger.rows[0].dtype if ledger.rows else "")
    found = chip.machine.resolve(matrix(wanted)) if wanted else None
    return found or chip.machine.best_matrix


def _peak_share(placed: Placement, peak: Ceiling | None) -> float | None:
    if placed.attainable is None or peak is None:
        return None
    on_matrix_s = dict(placed.times).get(MATRIX)
    return placed.attainable / peak.rate if on_matrix_s is None else on_matrix_s / placed.floor_s
