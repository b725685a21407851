"""What is said of the kernels of an XLA program: labels, operations and sizes; and its graph, on which rules look for avoidable work."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct

from ...cost import NOTHING, Cost
from ...errors import FormulaError, SourceError
from ...graph import NO_KERNEL, Operator
from ...graph.facts.biases import bias_kernel
from ...operation import Label, Operation
from ...resource import HBM
from ...rule_failures import RuleFailures
from ...schedule import Schedule
from ...workload import Array, Op, ProgramGraph, Workload
from ..ir.module import HloModule, Instruction
from ..ir.platforms import Platform, detect_platform
from ..ir.values import Value, Values
from ..lower import Lowered, as_written, lowered
from ..price.collectives import Network
from ..price.compiled import compiled
from ..price.pricing import Pricer, even_share
from ..price.program import Origin, Running, op_of, running
from .equal_layers import EqualLayers
from .fingerprints import Fingerprints
from .kernels import Kernels, Product
from .labels import Wording, label, wording
from .operations import operation
from .program_arrays import exchanged, results_of
from .schedules import schedule_of

__all__ = ["Review"]


class _Kind(Struct, frozen=True, kw_only=True):
    """What equal kernels of equal layers share: their product, whether its depth is split, the words of their labels, their operation, and
    which arguments and results of the program they read and write.
    """

    product: Product | None
    is_split: bool
    words: Wording
    operation: Operation | None
    takes: tuple[Array, ...]
    gives: tuple[Array, ...]


class Review:
    """The review of one program. ``notes`` name what failed on it.

    A program of the TPU compiler is reviewed in the operators that were written (`lower`), in which each kernel has the same place.
    """

    def __init__(self, pricer: Pricer) -> None:
        self._failures = RuleFailures(pricer.module.name)
        self._compiled = pricer
        written = self._failures.attempt("written operators", _as_written, pricer.module) if pricer.platform == "tpu" else None
        module = written or pricer.module
        self.pricer = pricer if module is pricer.module else Pricer(module, pricer.platform, pricer.network, pricer.trips)
        self.module, self.values = module, Values(module)
        self._kernels: dict[int, Kernels] = {}
        self._fingerprints = Fingerprints(self.values)
        self._kinds: dict[tuple[int, int], _Kind] = {}  # by computation and representative kernel
        self._operations: dict[tuple[int, int], Operation | None] = {}

    @classmethod
    def of(
        cls,
        module: HloModule,
        platform: Platform | None = None,
        *,
        link: str | Network | None = None,
        trips: Mapping[str, int] | None = None,
    ) -> "Review":
        """The review of a module on a platform, by default the one that it shows; see `price.program.program`."""
        platform = platform or detect_platform(module)
        return cls(Pricer(module, platform, Network.of(link, platform), trips or {}))

    @property
    def notes(self) -> tuple[str, ...]:
        return self._failures.notes

    def workload(self) -> Workload:
        """The operations that the program runs, with their costs and labels."""
        return Workload(tuple(map(self.reviewed, self.running)))

    @cached_property
    def running(self) -> tuple[Running, ...]:
        """The instructions that the program runs. All are priced first: an error names the first that cannot be priced."""
        return tuple(running(self._compiled))

    def graph(self, places: Iterable[tuple[int, int]] | None = None) -> ProgramGraph | None:
        """The graph of the program; its ops are the instructions in these places, by computation and index, or those of the workload.

        One of equal layers stands for all. An instruction whose even share over devices is only assumed has no kernel.
        """
        if places is None:
            places = ((instruction.computation, instruction.index) for instruction in self.running)
        pricer, times = (self.pricer, {}) if self._layers is None else (self._layers.kernels.pricer, self._layers.kernels.times)
        program = self._failures.attempt("graphs", _lowered, pricer, times)
        if program is None:
            return None
        ops: dict[tuple[int, int], list[int]] = {}
        for number, (computation, index) in enumerate(places):
            if even_share(self.module.computations[computation].instructions[index]) == 1:
                ops.setdefault((computation, self._representative(computation, index)[1]), []).append(number)
        return ProgramGraph(self.module.name, program.graph, tuple([tuple(ops.get(place, ())) for place in program.places]))

    def schedule(self) -> Schedule | None:
        """The order of the ops of the workload, of a program of the TPU compiler, whose core runs one at a time and which states cycles."""
        if self._compiled.platform != "tpu" or not self._compiled.module.is_scheduled:
            return None
        if not any(compiled(run.instruction, run.price).cycles for run in self.running):
            return None
        ops = {(run.computation, run.index): number for number, run in enumerate(self.running)}
        beside = [number for number, run in enumerate(self.running) if compiled(run.instruction, run.price).beside]
        return self._failures.attempt("schedules", schedule_of, self._compiled, ops, frozenset(beside))

    def label(self, computation: int, index: int, scope: str, location: str) -> Label:
        """The label of an instruction, whose scope and source line are known."""
        instruction = self.module.computations[computation].instructions[index]
        product, is_split = self._product(*self._representative(computation, index))
        return self._label(instruction, self._words(instruction, product, is_split), Origin(instruction.op_name, scope, location))

    def _product(self, kernels: Kernels, place: int) -> tuple[Product | None, bool]:
        """The product that a kernel computes, and whether its depth is split."""
        return self._failures.attempt("products", _product, kernels, place) or (None, False)

    def _words(self, instruction: Instruction, product: Product | None, is_split: bool) -> Wording:
        parts = self.values.body(instruction) or ()
        return self._failures.attempt("labels", wording, instruction, product, is_split, parts) or Wording(instruction.opcode, "")

    def _label(self, instruction: Instruction, words: Wording, origin: Origin) -> Label:
        parts = self.values.body(instruction) or ()
        return self._failures.attempt("labels", label, instruction, words, parts, origin, self.module.name) or Label(does=instruction.name)

    def value(self, computation: int, index: int) -> str:
        """The fingerprint of the value of a product or convolution, to find other programs that compute the same; empty for other
        instructions.
        """
        return self._failures.attempt("equal values", self._value, index) or "" if computation == self.module.entry else ""

    def _value(self, index: int) -> str:
        kernels = self._of(self.module.entry)
        product = kernels.product(index)
        try:
            if product is None:
                return self._fingerprints.of(Value(kernels.computation, index)) if index in kernels.convolutions else ""
            return self._fingerprints.of(product.result)
        except (SourceError, FormulaError):
            return ""

    def operation(self, computation: int, index: int, cost: Cost) -> Operation | None:
        """The operation and sizes of an instruction with this cost."""
        kernels, place = self._representative(computation, index)
        if (computation, place) not in self._operations:
            operation = self._failures.attempt("operations", _operation, kernels, place, cost) if cost != NOTHING else None
            self._operations[computation, place] = operation
        return self._operations[computation, place]

    def product(self, computation: int, index: int) -> Product | None:
        """The product that an instruction computes."""
        return self._of(computation).product(index)

    def is_split(self, computation: int, index: int) -> bool:
        """Whether an instruction is a product whose depth is split, so that its parts are summed afterwards."""
        return self._of(computation).is_split(index)

    def bias_kernel(self, computation: int, index: int) -> Cost:
        """The cost of the kernel that would add the bias of a product in 16 bits, if the compiler fuses it into wider products alone."""
        program = self._program
        if program is None or not program.graph.backend.fuses_less_in("bf16"):
            return NOTHING
        inside = program.graph.inside.get(self._kernel_numbers.get((computation, index), NO_KERNEL), ())
        products = [node for node in inside if node.operator == Operator.DOT]
        return max((bias_kernel(program.graph, product) for product in products), key=lambda cost: cost.known(HBM), default=NOTHING)

    @cached_property
    def _program(self) -> Lowered | None:
        return self._failures.attempt("graphs", _lowered, self.pricer, {})

    @cached_property
    def _kernel_numbers(self) -> dict[tuple[int, int], int]:
        return {place: number for number, place in enumerate(self._program.places)} if self._program is not None else {}

    def exchanged(self, computation: int, index: int) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The program's arguments and results that a kernel reads and writes; empty if the program has products."""
        if computation != self.module.entry or self._has_products:
            return (), ()
        return self._failures.attempt("passed arrays", exchanged, self.module.entry_computation, index, self._results) or ((), ())

    @cached_property
    def _results(self) -> set[int]:
        return results_of(self.module.entry_computation)

    @cached_property
    def _has_products(self) -> bool:
        kernels, _ = self._representative(self.module.entry, 0)
        loops = any(instruction.opcode == "while" for instruction in self.module.entry_computation)
        return loops or bool(kernels.products or kernels.convolutions)

    def reviewed(self, run: Running) -> Op:
        """The op of an instruction that runs, with its label."""
        number, index, instruction = run.computation, run.index, run.instruction
        kernels, place = self._representative(number, index)
        kind = self._kinds.get((number, place))
        if kind is None:
            kind = self._kinds[number, place] = self._kind(kernels, place, run)
        words = kind.words
        if instruction.opcode == "fusion":  # its label may use its own name
            words = self._words(instruction, kind.product, kind.is_split)
        origin = Origin.of(self.module, instruction)
        return op_of(
            self.module,
            run,
            origin,
            label=self._label(instruction, words, origin),
            takes=kind.takes,
            gives=kind.gives,
            operation=kind.operation,
        )

    def _kind(self, kernels: Kernels, place: int, run: Running) -> _Kind:
        """What a representative kernel shares with the kernels it represents."""
        number, index = run.computation, run.index
        product, is_split = self._product(kernels, place)
        takes, gives = self.exchanged(number, index)
        return _Kind(
            product=product,
            is_split=is_split,
            words=self._words(run.instruction, product, is_split),
            operation=self.operation(number, index, run.price.cost),
            takes=takes,
            gives=gives,
        )

    def _representative(self, computation: int, index: int) -> tuple[Kernels, int]:
        """The kernels of a computation, and which of them represents this one: of equal layers, only one is reviewed."""
        if computation == self.module.entry and self._layers is not None:
            return self._layers.kernels, self._layers.place(index)
        return self._of(computation), index

    @cached_property
    def _layers(self) -> EqualLayers | None:
        """The equal layers of the entry, where it has very many instructions."""
        return self._failures.attempt("equal layers", EqualLayers, self.pricer) if self.pricer.layers is not None else None

    def _of(self, computation: int) -> Kernels:
        if computation not in self._kernels:
            self._kernels[computation] = Kernels(self.pricer, self.values, computation)
        return self._kernels[computation]


def _as_written(module: HloModule) -> HloModule:
    try:
        return as_written(module)
    except (SourceError, FormulaError):
        return module  # a damaged attribute: pricing the instruction reports it


def _lowered(pricer: Pricer, times: Mapping[int, int]) -> Lowered | None:
    try:
        return lowered(pricer, times)
    except (SourceError, FormulaError):
        return None  # a damaged attribute: pricing the instruction reports it


def _product(kernels: Kernels, place: int) -> tuple[Product | None, bool]:
    return kernels.product(place), kernels.is_split(place)


def _operation(kernels: Kernels, place: int, cost: Cost) -> Operation | None:
    try:
        return operation(kernels, place, cost)
    except (SourceError, FormulaError):
        return None  # a damaged attribute: pricing the instruction reports it
