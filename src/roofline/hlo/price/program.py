"""Programs: a module as a workload, with one op for each instruction that runs, those in loops and calls included.

Fusions are one op; of an asynchronous pair the start is the op. An op's cost is the total over its executions: the product of the trip
counts around it, summed over the places that call it. Instructions that cost nothing are left out.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from ...cost import NOTHING
from ...operation import UNLABELLED, Label, Operation
from ...workload import Array, Op, Workload
from ..ir.module import HloModule, Instruction
from ..ir.platforms import Platform, detect_platform
from ..ir.scopes import direction, is_in_loop, scope
from .collectives import Network
from .compiled import compiled
from .pricing import FREE, Pricer, branch_note, trips_note, uncertain
from .types import Price, Site


class Executed(Struct, frozen=True):
    """An instruction that runs: its price per execution, how often it runs, and its op.

    ``is_certain`` is false inside loops of unknown trip count: ``runs`` then counts one iteration.
    """

    site: Site
    price: Price
    runs: int
    is_certain: bool
    op: Op


class _Runs(Struct):
    """How often a computation runs, and notes on that number."""

    count: int = 0
    is_certain: bool = True
    notes: tuple[str, ...] = ()


class Running(Struct, frozen=True, gc=False):
    """An instruction that runs and costs something: its computation and index, its price per execution, and how often it runs."""

    computation: int
    index: int
    instruction: Instruction
    price: Price
    runs: _Runs


def program(
    module: HloModule, platform: Platform | None = None, *, link: str | Network | None = None, trips: Mapping[str, int] | None = None
) -> Workload:
    """The operations a module runs, with their costs.

    ``platform`` is detected from the program unless given, ``link`` is by default the platform's usual one; ``trips`` are trip counts by
    the name of the while, for loops whose trip count depends on data.
    """
    return Workload(tuple(run.op for run in executed(module, platform, link=link, trips=trips)))


def executed(
    module: HloModule, platform: Platform | None = None, *, link: str | Network | None = None, trips: Mapping[str, int] | None = None
) -> tuple[Executed, ...]:
    """The instructions a module runs, in the order in which they first run; see `program`."""
    platform = platform or detect_platform(module)
    return executed_by(Pricer(module, platform, Network.of(link, platform), trips or {}))


def executed_by(pricer: Pricer) -> tuple[Executed, ...]:
    """The instructions that the module of a pricer runs; see `executed`."""
    module = pricer.module
    return tuple(
        Executed(
            Site(module, module.computations[run.computation], run.instruction, pricer.platform),
            run.price,
            run.runs.count,
            run.runs.is_certain,
            op_of(module, run, Origin.of(module, run.instruction)),
        )
        for run in running(pricer)
    )


def running(pricer: Pricer) -> Iterator[Running]:
    """The instructions that the module of a pricer runs, in the order in which they first run."""
    return _emit(pricer, _count(pricer), pricer.module.entry, set())


def _count(pricer: Pricer) -> dict[int, _Runs]:
    """How often each computation runs as part of the program, callers first."""
    module = pricer.module
    runs = {number: _Runs() for number in range(len(module.computations))}
    runs[module.entry].count = 1
    for number in reversed(module.callees_first):
        here = runs[number]
        if not here.count:
            continue
        computation = module.computations[number]
        for instruction in computation.instructions:
            if instruction.calls and instruction.opcode in ("while", "conditional", "call"):
                site = Site(module, computation, instruction, pricer.platform)
                for called, times, certain, note in _steps(pricer, site):
                    there = runs[called]
                    there.count += here.count * times
                    there.is_certain = there.is_certain and here.is_certain and certain
                    there.notes = tuple(dict.fromkeys((*there.notes, *here.notes, *((note,) if note else ()))))
    return runs


def _steps(pricer: Pricer, site: Site) -> Iterator[tuple[int, int, bool, str]]:
    """The computations that an instruction runs, each with how often, whether that is certain, and a note."""
    instruction = site.instruction
    if instruction.opcode == "call":
        yield instruction.calls[0].computation, 1, True, ""
    elif instruction.opcode == "conditional":
        branches = instruction.called("branch_computations")
        priced = pricer.price(site)
        if branches:
            note = f"{instruction.name}: {branch_note(len(branches), priced.least or NOTHING)}"
            yield pricer.most_expensive(branches), 1, True, note
    else:
        trips = pricer.trip_count(site)
        note = "" if trips is not None else trips_note(instruction.name)
        for role in ("condition", "body"):
            for called in instruction.called(role):
                yield called, 1 if trips is None else trips, trips is not None, note


def _emit(pricer: Pricer, runs: dict[int, _Runs], number: int, done: set[int]) -> Iterator[Running]:
    """The instructions of a computation and of those it runs, each computation once."""
    done.add(number)
    here = runs[number]
    prices: dict[int, Price] = {}  # by the index of the representative instruction
    representatives = pricer.representatives(number)
    for index, instruction in enumerate(pricer.module.computations[number].instructions):
        if instruction.opcode in FREE:
            continue
        if instruction.opcode in ("while", "conditional", "call"):
            for call in instruction.calls:
                if call.computation not in done and runs[call.computation].count:
                    yield from _emit(pricer, runs, call.computation, done)
            continue
        priced = prices.get(representatives[index])
        if priced is None:
            priced = prices[representatives[index]] = pricer.price_at(number, representatives[index])
        if priced.cost != NOTHING:
            yield Running(number, index, instruction, priced, here)


class Origin(Struct, frozen=True, gc=False):
    """Where an instruction comes from: the framework's name, the scope in it, and the source line."""

    op_name: str
    scope: str
    location: str

    @classmethod
    def of(cls, module: HloModule, instruction: Instruction) -> "Origin":
        metadata = instruction.metadata
        return cls(metadata.op_name, scope(metadata.op_name), module.located(metadata))


def op_of(
    module: HloModule,
    run: Running,
    origin: Origin,
    *,
    label: Label = UNLABELLED,
    takes: tuple[Array, ...] = (),
    gives: tuple[Array, ...] = (),
    operation: Operation | None = None,
) -> Op:
    """The op of an instruction that runs."""
    priced, runs = run.price, run.runs
    cost = priced.cost if runs.count == 1 else priced.cost * runs.count
    return Op(
        name=run.instruction.name,
        cost=cost if runs.is_certain else uncertain(cost),
        label=label,
        count=runs.count,
        kernels=None if run.instruction.opcode == "custom-call" else runs.count,
        category=priced.category,
        module=module.name,
        scope=origin.scope,
        location=origin.location,
        phase=direction(origin.op_name),
        in_loop=is_in_loop(origin.op_name),
        towards=priced.towards,
        work_provenance="compiler",
        bytes_provenance="compiler",
        takes=takes,
        gives=gives,
        operation=operation,
        compiled=compiled(run.instruction, priced),
        notes=(*priced.notes, *runs.notes) if runs.notes else priced.notes,
    )
