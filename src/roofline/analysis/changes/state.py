"""The state of a what-if: the ops of a program while changes are applied to them."""

from fractions import Fraction
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...graph import Array, Graph
from ...hlo.ir.module import HloModule
from ...hlo.ir.platforms import named_platform, platform_of
from ...hlo.price.collectives import Network, network_of
from ...hlo.price.pricing import Pricer
from ...hlo.review import Review
from ...hlo.scaling.growth import Program
from ...hlo.scaling.inputs import inputs_of
from ...machine import Machine
from ...operation import Convolution, Operation, Product, width
from ...prediction import Expected
from ...prediction.calibration import Calibration
from ...workload import Op, ProgramGraph, Recording
from ..expected_times import predict_op
from ..findings.writing import listed
from .bf16_scatters import added_in_bf16_s
from .changed_times import OTHER_UNIT, REFORMATTED, Changed, anchored

LOAD = 16  # most bytes that one instruction loads


class Added(Struct, frozen=True):
    """A kernel that a change adds: name, cost and operation, its time where that is known, and bounds as shares of it.

    It runs as often as ``runs_with``; with ``like``, its time changes like that of the op with this index.
    """

    name: str
    runs_with: Op
    cost: Cost
    operation: Operation | None
    word: str
    time_s: float | None = None
    bounds: tuple[float, float] = (0.9, 1.1)
    like: int | None = None


class State:
    """A recording, its programs, and the ops as the changes so far left them.

    ``programs`` are compiled programs by name, the first with the most time; ``doublings`` is how far each op has changed.
    """

    def __init__(self, recording: Recording, programs: dict[str, HloModule], machine: Machine, calibration: Calibration) -> None:
        self.recording, self.programs, self.machine, self.calibration = recording, programs, machine, calibration
        self.after_machine, self.after_calibration = machine, calibration
        self.ops: list[Op] = list(recording.workload.ops)
        self.doublings: dict[int, float] = {}
        self.fresh: set[int] = set()  # ops that run another kernel than the measured one
        self.reformatted: set[int] = set()  # ops in another number format: another kernel of the same shape
        self.in_bf16: set[int] = set()  # ops whose fp32 arrays became bf16
        self.added: list[Added] = []
        self.fixed: dict[int, tuple[float, float, float]] = {}  # time and bounds of ops for which a change computes them itself
        self.no_idle = self.one_graph = False
        self.memory = recording.memory  # None where a change leaves it unknown
        self.notes: list[str] = []
        self._reviews: dict[str, Review] = {}
        self._graphs: dict[str, ProgramGraph | None] = {}
        self._weights: dict[str, set[int]] = {}

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(enumerate(self.ops))

    def put(self, index: int, cost: Cost, operation: Operation | None, doublings: float, *, fresh: bool = False) -> None:
        """Change an op; ``cost`` is of all its executions. A ``fresh`` op is another kernel, so its measured time is not used."""
        self.ops[index] = replace(self.ops[index], cost=cost, operation=operation)
        self.doublings[index] = self.doublings.get(index, 0.0) + doublings
        if fresh:
            self.fresh.add(index)

    def run_more(self, index: int, times: Fraction | int) -> None:
        """Multiply the executions of an op by ``times``."""
        op = self.ops[index]
        self.put(index, op.cost * times, op.operation, 0.0)
        kernels = None if op.kernels is None else op.kernels * float(times)
        self.ops[index] = replace(self.ops[index], count=op.count * float(times), kernels=kernels)

    def add(
        self,
        runs_with: Op,
        cost: Cost,
        operation: Operation | None,
        word: str,
        least: float = 1.0,
        most: float = 1.0,
        time_s: float | None = None,
    ) -> None:
        """Add a kernel that runs as often as ``runs_with``; ``cost`` is of one execution, ``time_s`` of all, with bounds as shares."""
        name = f"{runs_with.name}.{word}.{len(self.added)}"
        self.added.append(Added(name, runs_with, cost, operation, word, time_s, (least, most)))

    def repeat(self, index: int, word: str, bounds: tuple[float, float], time_s: float | None = None) -> None:
        """Run an op once more, in the same time or in ``time_s``; ``bounds`` are shares of it."""
        op = self.ops[index]
        name, cost = f"{op.name}.{word}.{len(self.added)}", op.cost * Fraction(1, int(op.count) or 1)
        self.added.append(Added(name, op, cost, op.operation, word, op.time_s if time_s is None else time_s, bounds, index))

    def remove(self, index: int, longer: float = 0.0, shorter: float = 0.0) -> None:
        """Remove an op. Others may get slower (``longer``) or faster (``shorter``) because of that, by at most these shares of its time."""
        self.put(index, NOTHING, None, 0.0, fresh=True)
        was = self.recording.workload.ops[index].time_s or 0.0
        self.fixed[index] = (0.0, -shorter * was, longer * was)

    @cached_property
    def before(self) -> dict[int, Expected | None]:
        """How long each op was expected to take."""
        return {index: predict_op(op, self.machine, self.calibration) for index, op in enumerate(self.recording.workload.ops)}

    def review(self, module: HloModule) -> Review:
        """The analysis of a program's kernels, cached for each version of the program."""
        key = f"{module.name} {id(module)}"
        if key not in self._reviews:
            platform = named_platform(module) or platform_of(self.machine)
            self._reviews[key] = Review(Pricer(module, platform, Network.of(network_of(self.machine), platform)))
        return self._reviews[key]

    def graph(self, module: HloModule) -> ProgramGraph | None:
        """The graph of a program as the changes so far left it, cached for each version of the program."""
        key = f"{module.name} {id(module)}"
        if key not in self._graphs:
            ops = {index: place for index, op in self if op.module == module.name and (place := module.place(op.name)) is not None}
            program = self.review(module).graph(ops.values())
            self._graphs[key] = None if program is None else program.kept(dict(enumerate(ops)))
        return self._graphs[key]

    @cached_property
    def _kernels(self) -> dict[int, tuple[Graph, int]]:
        """The first kernel of each op, with its graph."""
        kernels: dict[int, tuple[Graph, int]] = {}
        for program in self.recording.graphs:
            for kernel, ops in enumerate(program.ops):
                for op in ops:
                    kernels.setdefault(op, (program.graph, kernel))
        return kernels

    def arrays_of(self, index: int) -> list[Array]:
        """The arrays that an execution of an op reads and writes, as they were recorded."""
        if index not in self._kernels:
            return []
        graph, kernel = self._kernels[index]
        return [graph.arrays[array] for array in (*graph.read(kernel), *graph.written(kernel))]

    @property
    def failures(self) -> tuple[str, ...]:
        """Notes on rules that failed on the programs."""
        return tuple(note for review in self._reviews.values() for note in review.notes)

    def weights(self, module: HloModule) -> set[int]:
        """The arguments of a program that are weights, by their indices."""
        if module.name not in self._weights:
            inputs = inputs_of(Program(module))
            self._weights[module.name] = {one.key[1] for one in inputs if one.is_weight}
        return self._weights[module.name]

    def module_of(self, op: Op) -> HloModule | None:
        """The program that an op is of."""
        return self.programs.get(op.module)

    def changed(self) -> dict[int, Changed]:
        """Every changed op, with its new time."""
        found: dict[int, Changed] = {}
        unpredicted: list[str] = []
        moved = self.after_machine is not self.machine
        for index, op in enumerate(self.ops):
            old = self.recording.workload.ops[index]
            if op is old and not moved:
                continue
            if op.cost == NOTHING and op is not old:
                time_s, low_s, high_s = self.fixed.get(index, (0.0, 0.0, 0.0))
                found[index] = Changed(time_s=time_s, low_s=low_s, high_s=high_s, family="spared")
                continue
            after = predict_op(op, self.after_machine, self.after_calibration)
            if after is None:
                unpredicted += [op.name] if old.time_s else []  # an op without a measured time has a note already
                continue
            if op is old and (before := self.before[index]) is not None and after.time_s == before.time_s:
                continue  # equally fast on the other machine
            time_s, low_s, high_s = self._time_and_bounds(index, old, op, after)
            found[index] = Changed(
                time_s=time_s,
                low_s=low_s,
                high_s=high_s,
                cost=op.cost,
                operation=op.operation,
                family=after.family,
                terms=after.terms,
                evidence=after.evidence,
                times=op.count / old.count if old.count else 1.0,
            )
        if unpredicted:
            whose = "its time is" if len(unpredicted) == 1 else "their times are"
            self.notes.append(f"{listed(unpredicted, len(unpredicted))}: no prediction; {whose} left unchanged")
        return found

    def _time_and_bounds(self, index: int, old: Op, op: Op, after: Expected) -> tuple[float, float, float]:
        """The time of a changed op and its bounds: scaled from its measured time, unless it is a new kernel; never below its minimum."""
        stays_uneven = _is_uneven(op) and _is_uneven(old)  # uneven sizes are slow in any format
        time_s, low_s, high_s = self.fixed.get(index) or anchored(
            None if index in self.fresh else old.time_s,
            self.before[index],
            after,
            self.doublings.get(index, 1.0),
            OTHER_UNIT if _unit(op) != _unit(old) and not stays_uneven else 1.0,
            uneven=_is_uneven(op),
            same_matrices=_is_more_of_the_same(old, op),
            unknown=op.operation is None or isinstance(op.operation, Convolution),
        )
        if index in self.reformatted and time_s:
            low_s, high_s = (time_s * (each / time_s) ** REFORMATTED for each in (low_s, high_s))
        if index in self.in_bf16 and (least := added_in_bf16_s(self.module_of(op), op, self.after_calibration)):
            time_s, low_s, high_s = map(max, (time_s, low_s, high_s), least)
        return max(time_s, after.floor_s), max(low_s, after.floor_s), max(high_s, after.floor_s)


def _unit(op: Op) -> str:
    """The number format that a product computes in."""
    return op.operation.compute if isinstance(op.operation, Product) else ""


def _is_more_of_the_same(old: Op, op: Op) -> bool:
    """Whether a product has more matrices of the same sizes."""
    before, after = old.operation, op.operation
    return isinstance(before, Product) and isinstance(after, Product) and after.batch > 1 and replace(after, batch=before.batch) == before


def _is_uneven(op: Op) -> bool:
    """Whether a large dimension of a product is not a multiple of a 16-byte load, for which libraries use slower kernels."""
    one = op.operation
    if not isinstance(one, Product):
        return False
    return any(size > LOAD and size * width(one.compute) % LOAD for size in map(float, (one.m, one.k, one.n)))
