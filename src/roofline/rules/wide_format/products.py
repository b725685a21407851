"""Products in a wide format: of operands that were narrower before something widened them, in fp64, in full fp32 where tf32 would do, and
of fp32 numbers that could be bf16; with the last, the kernels beside products that read and write the same arrays.

A few products of fp32 numbers among many of narrow ones, such as the router of experts, are assumed to be wide on purpose, and so are
products of tiny matrices or of vectors, and those of which a factorisation or solve is computed: it would magnify the rounding. Complex
numbers have no narrow format.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from ...cost import NOTHING, Cost, less_traffic
from ...graph import EXPANDED, NO_KERNEL, RENAMING, SOLVING, Array, Graph, Node, Operator, Sizes, Windows
from ...graph.facts.biases import bias_kernel, function_kernels
from ...graph.facts.casts import cast_of, is_float, widened
from ...resource import HBM, Resource, matrix
from ...workload import Avoidable, Facts, source_line
from .narrow_arrays import NarrowArrays

KIND, CLASS = "wide-format", "wide"
SINGLE, FULL, DOUBLE, ATTENTION = "fp32", "full fp32", "fp64", "attention"  # groups
BESIDE_SUMS = "fp32 beside sums"  # the same as fp32, in a program that adds fp32 numbers by index
DOUBLE_ARGUMENTS = "fp64 arguments"  # of a program whose arguments are all fp64
_NARROW = "bf16"
_FEW = 0.05  # of the FLOP of all products (a choice)
_TINY = 4  # two sizes of a product up to which a matrix unit has next to nothing to do
_MOST_KERNELS = 3  # from a product to the solve of its result
_MOST_VISITED = 20  # nodes that an operand depends on
_FACTORS = {Operator.DOT: 2, Operator.CONVOLUTION: 2, Operator.ATTENTION: 3}  # how many of its operands a product multiplies
_ATTENTION = (Operator.ATTENTION, Operator.ATTENTION_GRADIENT)


def wide_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products that run in a wide format, the kernels between them, and those that only widen their operands."""
    products = _WideProducts(graph)
    reasons = {kernel: reason for kernel in products.units if (reason := products.reason(kernel)) is not None}
    yield from reasons.items()
    if any(reason.group == products.single for reason in reasons.values()):
        for kernel, instead in products.arrays.neighbours(products.nodes, products.functions):
            yield kernel, Avoidable(kind=KIND, instead=instead, cause="between", group=products.single)
    for kernel, instead in products.widening():
        if all(user.kernel in reasons for user in users_of(graph, kernel)):
            yield kernel, Avoidable(kind=KIND, instead=instead, cause="widens", unneeded=CLASS)


class _WideProducts:
    """The kernels that multiply, by their main nodes, and the ``units`` of those in a wide format."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._backend = graph, graph.backend
        units = dict(multiplying(graph))
        self.nodes = {kernel: _main(graph.inside[kernel]) for kernel in units}
        self._in_tf32 = {self.nodes[kernel].operator for kernel, unit in units.items() if unit.kind == "tf32"}
        unasked = self._backend.in_tf32 if self._in_tf32 <= self._backend.in_tf32 else frozenset[Operator]()
        self.units = {
            kernel: unit
            for kernel, unit in units.items()
            if unit.kind in self._backend.wide or (unit.kind == "tf32" and self.nodes[kernel].operator in unasked)
        }
        self._exceptions = _few(graph, self.nodes, self.units)

    def reason(self, kernel: int) -> Avoidable | None:
        """Why a product could run in a narrower format, and its cost in that; ``None`` if it is taken to be wide on purpose."""
        node, unit = self.nodes[kernel], self.units[kernel]
        if narrow := self._narrow(node):
            return self._widened(kernel, narrow)
        if unit.kind == "fp64":
            return Avoidable(kind=KIND, instead=self._in(kernel, self._backend.unit("fp32"), 0.5), group=double_group(self._graph))
        is_few = kernel in self._exceptions and node.operator not in _ATTENTION  # in fp32 that takes far longer than its FLOP say
        if is_few or _is_elementwise(node) or _is_complex(self._graph, node) or self._is_solved(kernel):
            return None
        if unit.kind != "fp32" or self._widened_in:
            return None if self._would_compute_functions(kernel) else self._in_bf16(kernel)
        if node.operator in _ATTENTION:
            return Avoidable(kind=KIND, instead=self._in(kernel, matrix(_NARROW), 0.5), group=ATTENTION)
        if self._backend.unit("fp32").kind != "tf32" and node.operator in self._in_tf32:
            return None  # the program asked for tf32, which this product does not have
        return Avoidable(kind=KIND, instead=self._in(kernel, matrix("tf32")), group=FULL)

    def widening(self) -> Iterator[tuple[int, Cost]]:
        """The kernels that widen the operands which were narrower before, and their cost without that."""
        graph = self._graph
        sides = [side for kernel in self.units if self._narrow(self.nodes[kernel]) for side in _operands(self.nodes[kernel])]
        casts = {cast.kernel: cast for side in sides if (cast := cast_of(graph, side)) is not None}
        for kernel, cast in casts.items():
            if kernel == NO_KERNEL or kernel in self.nodes:
                continue
            less = graph.arrays[cast.gives[0]].bytes - graph.arrays[cast.takes[0]].bytes
            yield kernel, NOTHING if graph.only(kernel, RENAMING) else less_traffic(graph.kernels[kernel].cost, less)

    @cached_property
    def arrays(self) -> NarrowArrays:
        return NarrowArrays.beside(self._graph, self.units.keys())

    @cached_property
    def functions(self) -> frozenset[int]:
        """The products in whose kernels functions of biased results are computed, which would not be in bf16."""
        return function_kernels(self._graph, self.nodes) if self._backend.fuses_less_in(_NARROW) else frozenset()

    @cached_property
    def single(self) -> str:
        """The group of products of fp32 operands."""
        sums = [self._graph.arrays[array].dtype for node in self._graph.of(Operator.SCATTER_ADD) for array in node.gives]
        return BESIDE_SUMS if any(number is not None and number.name == "fp32" for number in sums) else SINGLE

    def _narrow(self, node: Node) -> Sequence[Array]:
        """The operands of a product as they were before something widened them; none if one of them was not widened."""
        sides = [widened(self._graph, array) for array in _operands(node)]
        narrow = [side for side in sides if side is not None]
        return narrow if len(narrow) == len(sides) else ()

    def _widened(self, kernel: int, narrow: Sequence[Array]) -> Avoidable:
        cost, unit = self._graph.kernels[kernel].cost, self.units[kernel]
        number = max((array.dtype for array in narrow if array.dtype is not None), key=lambda number: number.bits)
        less = sum(self._graph.arrays[array].bytes for array in _operands(self.nodes[kernel])) - sum(array.bytes for array in narrow)
        instead = less_traffic(_moved(cost, unit, self._backend.unit(number.rate)), less)
        return Avoidable(kind=KIND, instead=instead, facts={"narrow": number.name, "format": unit.kind}, unneeded=CLASS)

    def _in_bf16(self, kernel: int) -> Avoidable:
        kept = self.arrays.kept(kernel) / max(int(self._graph.kernels[kernel].cost.known(HBM)), 1)
        instead = self._in(kernel, matrix(_NARROW), (1 + min(kept, 1)) / 2)
        facts = Facts(format=self.units[kernel].kind, where=self._widened_in)
        besides = bias_kernel(self._graph, self.nodes[kernel]) if self._backend.fuses_less_in(_NARROW) else NOTHING
        group = "" if self._widened_in else self.single
        return Avoidable(kind=KIND, instead=instead, cause="operands", facts=facts, group=group, besides=besides)

    def _in(self, kernel: int, unit: Resource, share: float = 1) -> Cost:
        """The cost of a product on another unit, with a share of its bytes."""
        return _on_unit(self._graph.kernels[kernel].cost, self.units[kernel], unit, share)

    def _would_compute_functions(self, kernel: int) -> bool:
        """Whether a product without a function of its own would compute, in bf16, that of a product whose result it reads."""
        if not self.functions or kernel in self.functions:
            return False
        makers = [self._graph.maker.get(self._graph.origin(array)) for array in _operands(self.nodes[kernel])]
        return any(maker is not None and maker.kernel in self.functions for maker in makers)

    def _is_solved(self, kernel: int) -> bool:
        """Whether a factorisation or solve takes a product's result, perhaps with a few changes."""
        graph, kernels = self._graph, {kernel}
        for _ in range(_MOST_KERNELS if graph.of(*SOLVING) else 0):
            users = [user for before in kernels for user in users_of(graph, before)]
            if any(user.operator in SOLVING for user in users):
                return True
            kernels = {user.kernel for user in users} - {NO_KERNEL, *self.nodes}
        return False

    @cached_property
    def _widened_in(self) -> str:
        """Where an operand of some products was widened earlier, such as by an fp32 factor; empty if it was cast just for the product."""
        graph = self._graph
        for kernel in self.units:
            for side in _operands(self.nodes[kernel]):
                if widened(graph, side) is None:
                    elements = graph.arrays[side].elements
                    lines = (source_line(cast.location) for cast in _casts_before(graph, side, elements))
                    if line := next(filter(None, lines), ""):
                        return line
        return ""


def double_group(graph: Graph) -> str:
    """The group of work in fp64, by whether that is all that the program was given."""
    numbers = [array.dtype for array in (graph.arrays[number] for number in graph.arguments) if is_float(array)]
    return DOUBLE_ARGUMENTS if numbers and all(number is not None and number.name == "fp64" for number in numbers) else DOUBLE


def multiplying(graph: Graph) -> Iterator[tuple[int, Resource]]:
    """The kernels whose products run on a matrix unit, but for factorisations, solves and transforms, and the unit."""
    for kernel, launch in graph.kernels.items():
        units = [resource for resource, _ in launch.cost.amounts if resource.unit == "matrix"]
        inside = graph.inside.get(kernel, ())
        if units and inside and not any(_is_of_solver(graph, node) for node in inside):
            yield kernel, next((unit for unit in units if unit.kind in graph.backend.wide), units[0])


def _is_of_solver(graph: Graph, node: Node) -> bool:
    """Whether a node is a factorisation or solve, or a product of which a compiler makes one that the author wrote, or a transform."""
    written = graph.operations.get(node.operation) if node.operator in _FACTORS else None
    return node.operator in SOLVING or (written is not None and written.operator in EXPANDED)


def _main(inside: Iterable[Node]) -> Node:
    """The largest product of a kernel, else another node that multiplies, else its first."""
    return max(inside, key=lambda node: (node.sizes.multiplications if node.operator == Operator.DOT else 0, node.operator in _FACTORS))


def _few(graph: Graph, nodes: Mapping[int, Node], units: Mapping[int, Resource]) -> set[int]:
    """The wide products that have next to no share of the FLOP of all products of the program, or of the loop that they are in."""
    flops: dict[int, list[float]] = {}
    regions = {kernel: id(graph.region_of.get(node.gives[0])) if node.gives else 0 for kernel, node in nodes.items()}
    for kernel, region in regions.items():
        launch, of_region = graph.kernels[kernel], flops.setdefault(region, [0.0, 0.0])
        done = float(launch.cost.flops or 0) * launch.times
        of_region[0] += done
        of_region[1] += done if kernel in units else 0
    return {kernel for kernel in units if flops[regions[kernel]][1] < _FEW * flops[regions[kernel]][0]}


def _operands(node: Node) -> tuple[int, ...]:
    return node.takes[: _FACTORS.get(node.operator, 0)]


def _is_elementwise(node: Node) -> bool:
    """Whether elementwise products and sums would do the same, so that a format of the matrix unit does not help."""
    if isinstance(node.params, Sizes):
        return sorted((node.sizes.rows, node.sizes.depth, node.sizes.columns))[1] <= _TINY
    return isinstance(node.params, Windows) and node.params.channels == (1, 1)


def _is_complex(graph: Graph, node: Node) -> bool:
    numbers = [graph.arrays[array].dtype for array in node.takes]
    return any(number is not None and number.is_complex for number in numbers)


def users_of(graph: Graph, kernel: int) -> list[Node]:
    """The nodes of other kernels that use what a kernel makes."""
    return [user for array in graph.written(kernel) for user, _ in graph.uses(array) if user.kernel != kernel]


def _casts_before(graph: Graph, array: int, elements: int) -> Iterator[Node]:
    """The casts that widen as many elements, of those that an array is computed from after the last product, the nearest first."""
    waiting, seen = [array], set[int]()
    while waiting and len(seen) < _MOST_VISITED:
        node = graph.maker.get(waiting.pop(0))
        if (
            node is None
            or node.gives[0] in seen
            or node.operator in (*_FACTORS, Operator.CONVOLUTION_GRADIENT, Operator.LOOP, Operator.OTHER)
        ):
            continue
        seen.add(node.gives[0])
        waiting += node.takes
        if node.operator == Operator.CAST and graph.arrays[node.gives[0]].elements == elements and widened(graph, node.gives[0]):
            yield node


@lru_cache(maxsize=256)  # a program repeats its products for each layer
def _on_unit(cost: Cost, unit: Resource, into: Resource, share: float) -> Cost:
    """A cost whose work on one unit another does, with a share of its bytes."""
    return less_traffic(_moved(cost, unit, into), cost.known(HBM) * (1 - share))


def _moved(cost: Cost, unit: Resource, into: Resource) -> Cost:
    """A cost whose work on one unit another does."""
    amounts = {resource: amount for resource, amount in cost.amounts if resource != unit}
    amounts[into] = amounts.get(into, 0) + cost.known(unit)
    return Cost.of(amounts)
