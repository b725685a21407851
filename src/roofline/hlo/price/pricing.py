"""Prices: what one execution of an HLO instruction costs.

Every opcode has a rule in `RULES`, which says that it costs nothing, moves data only, computes, runs other computations, crosses a
link, or has an unknown cost. `price` prices one instruction; a `Pricer` prices many of one module and remembers what they share.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...errors import FormulaError, SourceError
from ...graph.index_sets import WHOLE
from ...resource import HBM, UNNAMED_WORK
from ...units import show
from ..ir.amending import Amended
from ..ir.layers import LayerRun
from ..ir.module import Computation, HloModule, Instruction
from ..ir.platforms import Platform
from ..ir.shapes import Shape
from .bodies import WORK, Bodies
from .calls import call_key, price_call, price_fused_call
from .categories import category
from .collectives import COLLECTIVES, Network, collective, infeed, outfeed, receive, send
from .equal_layers import equal_layers
from .fused_collectives import Channel, fused_exchanges, started_channels
from .loops import Loops
from .traffic import Kernel, KernelKey, Traffic, fused_kernel, fusion_key, instruction_key, kernel
from .types import Price, Site
from .work import Sum

# FLOP in the time of one byte: round ridge points of accelerators, used only to choose the most expensive branch of a conditional.
_FLOPS_A_BYTE = {"matrix": 250, "vector": 15, "compute": 15}

EVEN_SHARE = "even_share"  # an attribute: over how many devices an instruction is taken to be spread evenly


def even_share(instruction: Instruction) -> int:
    """The number of devices over which an instruction is assumed to be divided evenly; 1 if nothing is assumed."""
    return (instruction.integer(EVEN_SHARE) or 1) if isinstance(instruction.dialect, Amended) else 1


class Total(Struct, frozen=True):
    """The cost of one run of a computation: with the most expensive branch of its conditionals, and with the cheapest (``least``)."""

    cost: Cost
    least: Cost


class Pricer:
    """Prices the instructions of one module.

    ``trips`` are trip counts by the name of the while, for loops whose trip count depends on data.
    """

    def __init__(self, module: HloModule, platform: Platform, network: Network, trips: Mapping[str, int] | None = None) -> None:
        self.module, self.platform, self.network, self.trips = module, platform, network, trips or {}
        self.bodies = Bodies(module, platform)
        self.loops = Loops(module)
        self._totals: dict[int, Total] = {}
        self._numbers = {computation.name: number for number, computation in enumerate(module.computations)}
        self._launches: dict[KernelKey, Price] = {}
        self.lone: dict[KernelKey, Price] = {}
        self._prices: dict[tuple[int, int], Price] = {}  # by the ids of computation and instruction, which live as long as the module

    def price(self, site: Site) -> Price:
        """The cost of one execution of an instruction; raises `SourceError` for an inconsistent one."""
        key = (id(site.computation), id(site.instruction))
        known = self._prices.get(key)
        if known is None:
            known = self._prices[key] = self._price(site)
        return known

    def price_at(self, number: int, index: int) -> Price:
        """The cost of one execution of an instruction of a computation."""
        computation = self.module.computations[number]
        return self.price(Site(self.module, computation, computation.instructions[index], self.platform))

    @cached_property
    def started(self) -> frozenset[Channel]:
        """The collectives that fusions of the program start."""
        return started_channels(self.module)

    @cached_property
    def layers(self) -> LayerRun | None:
        """The equal layers of the program's entry, where it has very many instructions."""
        return equal_layers(self.module)

    def representatives(self, number: int) -> Sequence[int]:
        """For each instruction of a computation the index of an equal one that is priced for it: of equal layers, one in an early layer."""
        count = len(self.module.computations[number])
        return range(count) if number != self.module.entry or self.layers is None else self.layers.representatives(count)

    def _price(self, site: Site) -> Price:
        instruction = site.instruction
        rule = RULES.get(instruction.opcode, _unknown)
        try:
            price = rule(self, site)
        except FormulaError as error:
            # A dimension without bound, a window that cannot be counted: the program is valid, its cost is unknown.
            return Price(Cost.of({UNNAMED_WORK: None, HBM: None}), instruction.opcode, (str(error),))
        except (IndexError, KeyError, ValueError, ArithmeticError) as error:
            # Attributes that contradict the operands' shapes: no compiler writes such a program.
            where = f"{instruction.dialect.where}: {instruction.dialect.place(instruction.place)}: {instruction.name}"
            raise SourceError(f"{where}: its attributes do not fit its operands ({error}); is the file damaged?") from None
        if (devices := even_share(instruction)) > 1:
            note = f"an even share of {devices:,} devices is assumed"
            price = replace(price, cost=price.cost * Fraction(1, devices), notes=(*price.notes, note))
        if (price.cost.amounts or price.cost.unknown) and instruction.shape.is_dynamic:
            return replace(price, notes=(*price.notes, "dynamic dimensions are counted at their upper bound"))
        return price

    def sites(self, computation: Computation) -> list[Site]:
        """The instructions of a computation that may cost something."""
        return [
            Site(self.module, computation, instruction, self.platform)
            for instruction in computation.instructions
            if instruction.opcode not in FREE
        ]

    def total(self, number: int) -> Total:
        """One run of a computation: the sum of its instructions."""
        known = self._totals.get(number)
        if known is None:
            cost, least = Sum(), Sum()
            for site in self.sites(self.module.computations[number]):
                price = self.price(site)
                cost.add(price.cost)
                least.add(price.cost if price.least is None else price.least)
            known = self._totals[number] = Total(cost.cost, least.cost)
        return known

    def launch(self, site: Site, key: KernelKey) -> Price:
        """The price of a fusion, computed once for all equivalent ones."""
        known = self._launches.get(key)
        if known is None:
            known = self._launches[key] = _launched(site, fused_kernel(self.bodies, site))
        return known

    def trip_count(self, site: Site) -> int | None:
        """The trip count of a while; ``None`` if it depends on data and the user did not give it."""
        if site.instruction.name in self.trips:
            return self.trips[site.instruction.name]
        return self.loops.trip_count(self._numbers[site.computation.name], site.instruction)

    def most_expensive(self, branches: tuple[int, ...]) -> int:
        """The branch that takes the longest on a typical accelerator; the first of equals."""
        return max(branches, key=lambda number: (_weight(self.total(number).cost), -branches.index(number)))


def _weight(cost: Cost) -> float:
    """Bytes, plus FLOP as the bytes that take the same time."""
    return float(sum(amount / _FLOPS_A_BYTE.get(resource.unit, 1) for resource, amount in cost.amounts))


def uncertain(cost: Cost) -> Cost:
    """The same amounts as lower bounds: each is marked as partly unknown."""
    return Cost(cost.amounts, cost.unknown | {resource for resource, _ in cost.amounts})


def _alone(pricer: Pricer, site: Site) -> Price:
    """One kernel for one instruction, which computes or only moves data; priced once for all equivalent ones."""
    key = instruction_key(pricer.bodies, site)
    if key is None:
        return _launched(site, kernel(pricer.bodies, site))
    known = pricer.lone.get(key)
    if known is None:
        known = pricer.lone[key] = _launched(site, kernel(pricer.bodies, site))
    return known


def _reshapes(pricer: Pricer, site: Site) -> Price:
    """Free if the elements keep their positions in memory, else a kernel that moves them."""
    before, after = site.operands[0].shape, site.instruction.shape
    if site.instruction.opcode == "transpose":
        order = site.instruction.dimensions
        stays = [order[axis] for axis in after.major_to_minor] == list(before.major_to_minor)
    else:
        stays = all(shape.major_to_minor == tuple(range(len(shape.dims))) and not _tiles(shape) for shape in (before, after))
    if stays and _tiles(before) == _tiles(after) and before.memory_space == after.memory_space:
        return Price(NOTHING, "bitcast")
    return _alone(pricer, site)


def _tiles(shape: Shape) -> tuple[tuple[int, ...], ...]:
    return shape.layout.tiles if shape.layout is not None else ()


def _fused(pricer: Pricer, site: Site) -> Price:
    """One kernel for the whole body. TPUs fuse collectives too: their link bytes are added."""
    if not site.instruction.calls:
        return _unknown(pricer, site)
    if (key := fusion_key(pricer.bodies, site)) is not None:
        return pricer.launch(site, (*key, site.instruction.fusion_kind))
    if (wrapped := price_fused_call(site)) is not None:
        return wrapped
    launch = fused_kernel(pricer.bodies, site)
    if COLLECTIVES.isdisjoint(launch.opcodes):
        return _launched(site, launch)
    return _exchanging(pricer, site, launch)


def _exchanging(pricer: Pricer, site: Site, launch: Kernel) -> Price:
    """A fusion with collectives. Of an asynchronous one, which several fusions have, only the fusion that starts it counts the bytes."""
    body = pricer.module.computations[site.instruction.calls[0].computation]
    exchanges = fused_exchanges(body, pricer.started)
    if exchanges.is_asynchronous:
        launch = fused_kernel(pricer.bodies, site, exchanges.carried)
    elif launch.cost.flops == 0:
        launch = Kernel(NOTHING, launch.notes)
    crossing = [
        collective(Site(pricer.module, body, body[index], pricer.platform), pricer.network, kind) for index, kind in exchanges.counted
    ]
    if not crossing:
        return _launched(site, launch) if launch.cost != NOTHING else Price(NOTHING, "async-done")
    total = Sum()
    total.add(launch.cost, notes=launch.notes)
    for priced in crossing:
        total.add(priced.cost, notes=priced.notes)
    beside = exchanges.is_asynchronous and launch.cost == NOTHING
    ways = {priced.towards for priced in crossing}
    axes = {axis for priced in crossing for axis in priced.axes} if all(priced.axes for priced in crossing) else ()
    return Price(
        total.cost,
        crossing[0].category,
        tuple(total.notes),
        products=launch.products,
        beside=beside,
        towards=ways.pop() if len(ways) == 1 else "",
        axes=tuple(sorted(axes)),
    )


def _launched(site: Site, launch: Kernel) -> Price:
    return Price(launch.cost, category(site, launch.opcodes, launch.cost), launch.notes, products=launch.products)


def _copy_start(pricer: Pricer, site: Site) -> Price:
    """An asynchronous copy; its result is (target, source, context)."""
    traffic = Traffic(site.platform)
    for operand in site.instruction.operands:
        traffic.read(site.computation, operand, (), WHOLE)
    shape = site.instruction.shape
    traffic.write(shape.parts[0] if shape.parts else shape)
    return _launched(site, Kernel(traffic.cost(moves_only=True)))


def _loop(pricer: Pricer, site: Site) -> Price:
    """Trip count x (body + condition)."""
    runs = [pricer.total(call.computation) for call in site.instruction.calls]
    cost: Cost = sum((run.cost for run in runs), NOTHING)
    least: Cost = sum((run.least for run in runs), NOTHING)
    trips = pricer.trip_count(site)
    if trips is None:
        note = trips_note(site.instruction.name)
        return Price(uncertain(cost), "while", (note,))
    least = least * trips
    return Price(cost * trips, "while", (f"{trips:,} times",), None if least == cost * trips else least)


def _branches(pricer: Pricer, site: Site) -> Price:
    """The most expensive branch; ``least`` is the cheapest."""
    branches = site.instruction.called("branch_computations")
    if not branches:
        return _unknown(pricer, site)
    totals = [pricer.total(number) for number in branches]
    cost = pricer.total(pricer.most_expensive(branches)).cost
    least = min((total.least for total in totals), key=_weight)
    # A branch with an unknown cost might be the most expensive.
    unknown = frozenset().union(*(total.cost.unknown for total in totals))
    return Price(Cost(cost.amounts, cost.unknown | unknown), "conditional", (branch_note(len(branches), least),), least)


def trips_note(loop: str) -> str:
    """The note about a loop whose trip count depends on data."""
    return (
        f"the trip count of {loop} is known only at run time: one iteration is counted, the rest is unknown; give it with --trips {loop}=N"
    )


def branch_note(count: int, least: Cost) -> str:
    """The note about a conditional."""
    return f"most expensive of {count} branches; cheapest: {show(_float(least.flops), 'FLOP')} and {show(_float(least.bytes()), 'B')}"


def _float(amount: object) -> float | None:
    return None if amount is None else float(amount)  # type: ignore[arg-type]


def _called(pricer: Pricer, site: Site) -> Price:
    """A call: the cost of the computation it runs."""
    if not site.instruction.calls:
        return _unknown(pricer, site)
    total = pricer.total(site.instruction.calls[0].computation)
    return Price(total.cost, "call", (), None if total.least == total.cost else total.least)


def _started(pricer: Pricer, site: Site) -> Price:
    """An asynchronous operation, counted where it starts."""
    if not site.instruction.calls:
        return _unknown(pricer, site)
    parts = _priced_parts(pricer, site.instruction.calls[0].computation)
    if len(parts) == 1:
        return parts[0]
    total = Sum()
    for priced in parts:
        total.add(priced.cost, notes=priced.notes)
    return Price(total.cost, parts[-1].category if parts else "async", tuple(total.notes))


def _priced_parts(pricer: Pricer, number: int) -> list[Price]:
    """The prices of what a computation runs, through calls: work of a SparseCore is a call in an asynchronous one, or several."""
    parts: list[Price] = []
    for inner in pricer.sites(pricer.module.computations[number]):
        if _is_call(inner):
            parts += _priced_parts(pricer, inner.instruction.calls[0].computation)
        elif (priced := pricer.price(inner)).cost != NOTHING:
            parts.append(priced)
    return parts


def _is_call(site: Site) -> bool:
    """Whether it runs a computation as its own: a call, or a custom call of no library whose body has its operands and result."""
    if not site.instruction.calls or site.instruction.opcode != "custom-call":
        return bool(site.instruction.calls) and site.instruction.opcode == "call"
    body = site.module.computations[site.instruction.calls[0].computation]
    takes = [body[index].shape.dims for index in body.parameters]
    same = takes == [operand.shape.dims for operand in site.operands] and body.root_instruction.shape.dims == site.instruction.shape.dims
    return same and price_call(site) is None


def _custom(pricer: Pricer, site: Site) -> Price:
    """A library's or a user's kernel, priced by the function registered for its target."""
    key = call_key(site)
    if key is None:
        return price_call(site) or _unknown(pricer, site)
    known = pricer.lone.get(key)
    if known is None:
        known = pricer.lone[key] = price_call(site) or _unknown(pricer, site)
    return known


def _unknown(pricer: Pricer, site: Site) -> Price:
    """An instruction without a price: its operands and results are read and written once, its arithmetic is unknown."""
    traffic = Traffic(site.platform)
    for operand in site.instruction.operands:
        traffic.read(site.computation, operand, (), WHOLE)
    traffic.write(site.instruction.shape)
    what = site.instruction.custom_call_target or site.instruction.opcode
    cost = traffic.cost(moves_only=False) + Cost.of({UNNAMED_WORK: None})
    if site.instruction.opcode != "custom-call":
        return Price(cost, "unknown", (f"the cost of {what} is unknown",))
    return Price(cost, "custom call", (f"the cost of {what} is unknown; price it with roofline.register_call({what!r}, function)",))


Rule = Callable[[Pricer, Site], Price]

_RENAMES = """
add-dependency after-all async-done async-update bitcast constant copy-done all-gather-done all-reduce-done collective-permute-done domain
get-dimension-size get-tuple-element opt-barrier parameter partition-id recv-done replica-id send-done set-dimension-size tuple
"""
FREE = frozenset(_RENAMES.split())  # opcodes that never cost anything
_MOVERS = """
broadcast concatenate copy dynamic-reshape dynamic-slice dynamic-update-slice gather iota pad reverse rng-get-and-update-state slice
"""

RULES: dict[str, Rule] = {
    **dict.fromkeys((*WORK, *_MOVERS.split()), _alone),
    **dict.fromkeys(FREE, lambda pricer, site: Price(NOTHING, site.instruction.opcode)),  # values are renamed or grouped: no kernel runs
    **dict.fromkeys(COLLECTIVES, lambda pricer, site: collective(site, pricer.network)),
    "async-start": _started,
    "call": _called,
    "conditional": _branches,
    "copy-start": _copy_start,
    "custom-call": _custom,
    "fusion": _fused,
    "infeed": lambda pricer, site: infeed(site),
    "outfeed": lambda pricer, site: outfeed(site),
    "recv": lambda pricer, site: receive(site),
    "reshape": _reshapes,
    "send": lambda pricer, site: send(site, pricer.network),
    "transpose": _reshapes,
    "while": _loop,
}
