"""The graph of a compiled program: the computations that run, with the bodies of fusions, calls and loops in their places.

Tuples are taken apart: each array has one number, under whichever name. What no iteration of a loop changes is the same array inside as
outside.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING
from ...errors import FormulaError, SourceError
from ...graph import NO_KERNEL, Array, Axes, DeviceAxes, Factor, Graph, Kernel, Node, Operation, Operator, Part, Phase, Region
from ...graph.facts.equal_arrays import equal_arrays
from ..ir.attributes import NO_METADATA
from ..ir.equality import NEVER_EQUAL, Function
from ..ir.module import Computation, HloModule, Instruction
from ..ir.scopes import direction, written
from ..ir.shapes import Shape
from ..ir.shardings import MESHES, Mesh, meshes_of, parse_shardings
from ..price.elementwise import ELEMENTWISE
from ..price.pricing import FREE, Pricer
from ..price.types import Site
from .backends import backend
from .meanings import SAME, TRANSFERS, Meaning, meaning

Tree = int | tuple["Tree", ...]  # an array, or the parts of a tuple
_RUN = ("while", "conditional", "call")  # their work is that of instructions in other computations
_BY_AUTHOR = "rematted_computation"  # in JAX's names of what it computes again
_BY_COMPILER = re.compile(r"\.remat\d*(\.|$)")  # in the names of instructions that XLA computes again
_EINSUM = r"(?<![\w.])[a-zA-Z.]+(?:,[a-zA-Z.]+)*->[a-zA-Z.]*(?![\w.])"
# Instructions whose results follow from their operands, and from the parameters of their nodes.
_PLAIN = ELEMENTWISE - {"compare", "map", "reduce-precision", "stochastic-convert"} | {"copy", "copy-start", "bitcast", "reshape"}
_PLAIN_WITH_PARAMETERS = frozenset(("constant", "iota", "broadcast", "transpose", "slice", "concatenate"))
_MOST_GROWTH, _MORE = (
    4,
    2**16,
)  # a graph has at most so many nodes for each instruction, and a few more: bodies may be repeated at every depth


class Lowered(Struct, frozen=True):
    """A graph, and for each of its kernels the computation and the place there of the instruction that launches it."""

    graph: Graph
    places: tuple[tuple[int, int], ...]


class Source(Struct, frozen=True):
    """Where an instruction comes from: the author's operation and line, its direction, and whether its name says that it runs again."""

    op_name: str
    location: str
    direction: str
    is_again: bool
    by_compiler: bool


class TooLarge(FormulaError):
    """The program would have too many nodes."""


def lowered(pricer: Pricer, times: Mapping[int, int] | None = None) -> Lowered:
    """The graph of a program. ``times`` says how many equal kernels an instruction of the entry stands for, where it is not one."""
    lowering = _Lowering(pricer, times or {})
    lowering.program()
    return Lowered(lowering.graph, tuple(lowering.places))


class _Lowering:
    def __init__(self, pricer: Pricer, times: Mapping[int, int]) -> None:
        self.pricer, self.module, self.graph = pricer, pricer.module, Graph(backend=backend(pricer.platform), is_fused=True)
        self.places: list[tuple[int, int]] = []
        self._times = times
        self._kernels: dict[tuple[int, int], int] = {}
        self._meanings: dict[tuple[int, int], Meaning] = {}  # by the ids of a computation and an instruction of it
        self._operations: dict[str, int] = {}  # the number of each of the author's operations, by its name
        self._sources: dict[int, Source] = {}  # by the id of an instruction
        self._left = _MOST_GROWTH * sum(map(len, self.module.computations)) + _MORE

    def program(self) -> None:
        entry, graph = self.module.entry_computation, self.graph
        given = [self._arrays(entry[index].shape) for index in entry.parameters]
        graph.arguments = [array for tree in given for array in leaves(tree)]
        donated = {(alias.parameter, alias.index) for alias in self.module.aliases}
        named = (entry[index].op_name for index, tree in zip(entry.parameters, given, strict=True) if isinstance(tree, int))
        numbers = (tree for tree in given if isinstance(tree, int))
        graph.names = {number: name for number, name in zip(numbers, named, strict=True) if name}
        graph.devices = max(1, self.module.replica_count * self.module.num_partitions)
        if graph.devices > 1:
            meshes = meshes_of(self.module.frontend_attributes.get(MESHES, ""))
            for index, tree in zip(entry.parameters, given, strict=True):
                graph.divided |= dict(_divided(entry[index], leaves(tree), meshes))
        graph.donated = {array for number, index in donated if number < len(given) for array in leaves(_part(given[number], index))}
        graph.results = set(leaves(self._running(self.module.entry, given)))
        operations = ((number, _operation(name)) for name, number in self._operations.items())
        graph.operations = {number: operation for number, operation in operations if operation is not None}
        self._join_split_depths()
        graph.equal = equal_arrays(graph)

    def _join_split_depths(self) -> None:
        """Takes a batched product whose parts the compiler adds up for one product, as it split the depth for more kernels.

        Both have the name of the author's operation; a sum that the author wrote has a name of its own.
        """
        graph, users = self.graph, dict[int, list[int]]()
        for place, node in enumerate(graph.nodes):
            for array in node.takes:
                users.setdefault(array, []).append(place)
        for place, product in enumerate(graph.nodes):
            if product.operator != Operator.DOT or product.sizes.batch == 1:
                continue
            totals = _sums_of(graph, users, product.gives[0])
            axes = {_parts(graph, graph.nodes[at], len(product.sizes.left.batch)) for at in totals or ()}
            if totals is None or len(axes) != 1 or not all(_are_one_operation(product, graph.nodes[at]) for at in totals):
                continue
            (parts,), sizes = axes, product.sizes
            if not parts:
                continue
            count = prod(graph.arrays[product.gives[0]].shape[axis] for axis in parts)
            left, right = (_without_parts(factor, parts) for factor in (sizes.left, sizes.right))
            whole = replace(sizes, batch=sizes.batch // count, depth=sizes.depth * count, left=left, right=right)
            uncut = graph.array(_without_axes(graph.arrays[product.gives[0]], parts))
            graph.exchange(place, replace(product, params=whole, gives=(uncut,)))
            for at in totals:
                graph.exchange(at, replace(graph.nodes[at], operator=Operator.VIEW, takes=(uncut,), params=None))

    def _arrays(self, shape: Shape) -> Tree:
        """New arrays for a value of this shape."""
        if shape.is_tuple:
            return tuple([self._arrays(part) for part in shape.parts])
        return self.graph.array(_array(shape))

    def _running(self, number: int, given: Sequence[Tree]) -> Tree:
        """The result of a computation whose instructions are launched one by one."""
        computation = self.module.computations[number]
        values: dict[int, Tree] = dict(zip(computation.parameters, given, strict=False))
        for index, instruction in enumerate(computation.instructions):
            if index not in values:
                kernel = self._kernel(number, index, instruction)
                values[index] = self._value(computation, index, [values[operand] for operand in instruction.operands], kernel)
        return values[computation.root]

    def _inside(self, number: int, given: Sequence[Tree], kernel: int, fusion: Instruction) -> Tree:
        """The result of the body of a fusion, which one kernel runs."""
        computation = self.module.computations[number]
        values: dict[int, Tree] = dict(zip(computation.parameters, given, strict=False))
        for index, instruction in enumerate(computation.instructions):
            if index not in values:
                operands = [values[operand] for operand in instruction.operands]
                values[index] = self._value(computation, index, operands, kernel, fusion)
        return values[computation.root]

    def _kernel(self, number: int, index: int, instruction: Instruction) -> int:
        """The kernel that an instruction launches, if its cost is known and not zero."""
        if instruction.opcode in FREE or instruction.opcode in _RUN:
            return NO_KERNEL
        known = self._kernels.get((number, index))
        if known is not None:
            return known
        try:
            cost = self.pricer.price(Site(self.module, self.module.computations[number], instruction, self.pricer.platform)).cost
        except SourceError:
            cost = NOTHING
        kernel = NO_KERNEL
        if cost != NOTHING:
            kernel = len(self.places)
            self.places.append((number, index))
            self.graph.kernels[kernel] = Kernel(cost, self._times.get(index, 1) if number == self.module.entry else 1)
        self._kernels[number, index] = kernel
        return kernel

    def _value(
        self, computation: Computation, index: int, operands: Sequence[Tree], kernel: int, fusion: Instruction | None = None
    ) -> Tree:
        instruction = computation.instructions[index]
        opcode = instruction.opcode
        self._left -= 1
        if self._left < 0:
            raise TooLarge("the graph of the program is too large")
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            return _part(operands[0], (instruction.integer("index") or 0,))
        if opcode in SAME and operands:
            return operands[0]
        if opcode in TRANSFERS and operands:
            return self._transferred(instruction, operands[0])
        if instruction.calls:
            if opcode in ("fusion", "async-start") and len(operands) >= len(self._called(instruction).parameters):
                return self._inside(instruction.calls[0].computation, operands, kernel, instruction)
            if opcode == "call":
                return self._running(instruction.calls[0].computation, operands)
            if opcode == "while":
                return self._loop(computation, instruction, operands[0])
            if opcode == "conditional":
                return self._branches(instruction, operands)
        return self._node(computation, instruction, operands, kernel, fusion)

    def _called(self, instruction: Instruction) -> Computation:
        return self.module.computations[instruction.calls[0].computation]

    def _transferred(self, instruction: Instruction, started: Tree) -> Tree:
        """The result of an asynchronous operation at its end: the part of what its start gives that has the same shape, the last one."""
        if instruction.shape.is_tuple or isinstance(started, int):
            return started
        wanted = instruction.shape.dims
        fitting = [array for array in leaves(started) if self.graph.arrays[array].shape == wanted]
        if instruction.opcode == "copy-done":
            return fitting[0] if fitting else started[0]
        return fitting[-1] if fitting else self._arrays(instruction.shape)

    def _node(
        self, computation: Computation, instruction: Instruction, operands: Sequence[Tree], kernel: int, fusion: Instruction | None
    ) -> Tree:
        """The results of one operator. The fusion that it is in may tell the author's operation that it is of."""
        takes = [array for tree in operands for array in leaves(tree)]
        means = self._meaning(computation, instruction)
        gives = self._arrays(instruction.shape)
        arrays = leaves(gives)
        operator, params, function = means.operator, means.params, self._function(instruction, takes, means)
        own, outer = self._source(instruction), self._source(fusion)
        name = own.op_name or outer.op_name
        node = Node(
            operator,
            (),
            (),
            kernel=kernel,
            phase=_phase(own, outer),
            location=own.location,
            operation=self._operations.setdefault(name, len(self._operations)) if name else -1,
        )
        if operator == Operator.BROADCAST and takes:
            maker = self.graph.maker.get(takes[0])
            if maker is not None and maker.operator == Operator.FILL:  # one value everywhere
                operator, params, takes = Operator.FILL, maker.params, []
                function = None if params is None else function
        if operator == Operator.CONCATENATE and (whole := _cut_whole(self.graph, takes, self.graph.arrays[arrays[0]])) is not None:
            operator, params, takes = Operator.COPY, None, [whole]  # a prefetch in several slices
        if means.is_of_softmax:
            scores = self.graph.arrays[takes[0]]
            shares = self.graph.array(scores)
            softmax = replace(node, operator=Operator.SOFTMAX, takes=(takes[0],), gives=(shares,), params=len(scores.shape) - 1)
            self.graph.append(softmax, function)
            takes[0] = shares
        if means.then is None:
            self.graph.append(replace(node, operator=operator, takes=tuple(takes[: means.most]), gives=arrays, params=params), function)
            return gives
        first = self.graph.array(self.graph.arrays[arrays[0]])
        self.graph.append(replace(node, operator=operator, takes=tuple(takes[: means.most]), gives=(first,), params=params), function)
        self.graph.append(replace(node, operator=means.then, takes=(first, *takes[means.most :]), gives=arrays), function)
        return gives

    def _source(self, instruction: Instruction | None) -> Source:
        """Where an instruction comes from, which is parsed once: a fusion is asked for each instruction in it."""
        known = self._sources.get(id(instruction))
        if known is None:
            metadata = NO_METADATA if instruction is None else instruction.metadata
            by_compiler = bool(instruction is not None and _BY_COMPILER.search(instruction.name))
            is_again = by_compiler or _BY_AUTHOR in metadata.op_name
            known = Source(metadata.op_name, self.module.located(metadata), direction(metadata.op_name), is_again, by_compiler)
            self._sources[id(instruction)] = known
        return known

    def _function(self, instruction: Instruction, takes: Sequence[int], means: Meaning) -> Hashable:
        """What an instruction computes, with the numbers that its node does not take, such as those that padding consists of."""
        opcode = instruction.opcode
        if opcode in NEVER_EQUAL or (means.operator == Operator.FILL and means.params is None):
            return None
        if opcode in _PLAIN or (opcode in _PLAIN_WITH_PARAMETERS and means.params is not None and means.most is None):
            return opcode
        left = takes[means.most :] if means.most is not None and means.then is None else ()
        return Function(self.module, instruction), *(number if (number := self.graph.value(array)) is not None else array for array in left)

    def _meaning(self, computation: Computation, instruction: Instruction) -> Meaning:
        key = (id(computation), id(instruction))
        known = self._meanings.get(key)
        if known is None:
            known = self._meanings[key] = meaning(Site(self.module, computation, instruction, self.pricer.platform))
        return known

    def _loop(self, computation: Computation, loop: Instruction, before: Tree) -> Tree:
        """The result of a loop, whose body is lowered once."""
        (body,) = loop.called("body")[:1] or (None,)
        parts = before if isinstance(before, tuple) else None
        if body is None or parts is None or len(self.module.computations[body].parameters) != 1:
            return self._arrays(loop.shape)
        unchanged = _unchanged(self.module, body, len(parts))
        carried = tuple([part if place in unchanged else self._like(part) for place, part in enumerate(parts)])
        start = len(self.graph.nodes)
        handed_on = self._running(body, [carried])
        final = tuple([part if place in unchanged else self._like(part) for place, part in enumerate(parts)])
        after = handed_on if isinstance(handed_on, tuple) and len(handed_on) == len(parts) else carried
        changing = [place for place in range(len(parts)) if place not in unchanged]
        sides = [tuple([array for place in changing for array in leaves(tree[place])]) for tree in (parts, carried, after, final)]
        if len({len(side) for side in sides}) == 1:
            nodes = range(start, len(self.graph.nodes))
            trips = self.pricer.trip_count(Site(self.module, computation, loop, self.pricer.platform))
            self.graph.regions.append(Region(sides[0], sides[1], sides[2], sides[3], nodes, trips))
        self.graph.append(Node(Operator.LOOP, sides[0], sides[3]))
        return final

    def _like(self, tree: Tree) -> Tree:
        """New arrays like others."""
        return self.graph.array(self.graph.arrays[tree]) if isinstance(tree, int) else tuple([self._like(part) for part in tree])

    def _branches(self, instruction: Instruction, operands: Sequence[Tree]) -> Tree:
        """The result of a conditional, of which all branches are lowered."""
        taken = list(leaves(operands[0]))
        for number, given in zip(instruction.called("branch_computations"), operands[1:], strict=False):
            parameters, start = self.module.computations[number].parameters, len(self.graph.nodes)
            taken += leaves(self._running(number, [given] if parameters else []))
            self.graph.branches.append(range(start, len(self.graph.nodes)))
        result = self._arrays(instruction.shape)
        self.graph.append(Node(Operator.BRANCH, tuple(taken), leaves(result)))
        return result


def _divided(parameter: Instruction, arrays: Sequence[int], meshes: Mapping[str, Mesh]) -> Iterator[tuple[int, tuple[DeviceAxes, ...]]]:
    """The axes of devices along which the arrays of an argument are divided, of those that say so."""
    text, shapes = parameter.word("sharding"), parameter.shape.leaves
    if not text:
        return
    shardings = parse_shardings(text, tuple(len(shape.dims) for shape in shapes), meshes)
    for array, sharding in zip(arrays, shardings, strict=False):
        if sharding is not None:
            yield array, sharding


def _sums_of(graph: Graph, users: Mapping[int, Sequence[int]], array: int) -> list[int] | None:
    """The places of the uses of an array, if all are sums before which nothing moves elements: each kernel after a product may have one."""
    if array in graph.results:
        return None
    places: list[int] = []
    for place in users.get(array, ()):
        user = graph.nodes[place]
        if user.operator == Operator.REDUCE and isinstance(user.params, Axes) and user.params.function == Operator.ADD:
            places.append(place)
            continue
        further = _sums_of(graph, users, user.gives[0]) if user.operator in (Operator.VIEW, Operator.CAST) else None
        if further is None:
            return None
        places += further
    return places


def _parts(graph: Graph, total: Node, batch: int) -> frozenset[int]:
    """The axes of a product's result that a sum adds up, if all are of its batch; else none."""
    assert isinstance(total.params, Axes)
    array = total.takes[0]
    axes = graph.source_axes(array, total.params.axes)
    summed = prod(graph.arrays[array].shape[axis] for axis in total.params.axes)
    whole = prod(graph.arrays[graph.origin(array)].shape[axis] for axis in axes)
    return axes if axes <= {*range(batch)} and whole == summed else frozenset()


def _without_parts(factor: Factor, parts: frozenset[int]) -> Factor:
    """A factor whose batch has some axes less, which are a part of its depth."""
    batch = tuple(axis for place, axis in enumerate(factor.batch) if place not in parts)
    return Factor(batch, (*(factor.batch[place] for place in sorted(parts)), *factor.summed), factor.free)


def _without_axes(array: Array, axes: frozenset[int]) -> Array:
    """An array without some axes, in the same order in memory."""
    kept = [axis for axis in range(len(array.shape)) if axis not in axes]
    by_axis, distance = dict[int, int](), 1
    for axis in reversed(array.order(in_memory=True)):
        if axis in kept:
            by_axis[axis] = distance
            distance *= max(array.shape[axis], 1)
    shape = tuple(array.shape[axis] for axis in kept)
    return Array(shape, array.dtype, tuple(by_axis[axis] for axis in kept), space=array.space)


def _cut_whole(graph: Graph, parts: Sequence[int], whole: Array) -> int | None:
    """The array that was cut into these parts, if they are all of it."""
    makers = [graph.maker.get(part) for part in parts]
    cut = {node.takes[0] for node in makers if node is not None and node.operator == Operator.SLICE}
    starts = [node.params.starts for node in makers if node is not None and isinstance(node.params, Part)]
    if len(cut) != 1 or len({*starts}) < len(parts) or starts != sorted(starts):
        return None
    source = cut.pop()
    return source if graph.arrays[source].shape == whole.shape else None


def leaves(tree: Tree) -> tuple[int, ...]:
    """The arrays of a value."""
    return (tree,) if isinstance(tree, int) else tuple([array for part in tree for array in leaves(part)])


def _part(tree: Tree, places: Sequence[int]) -> Tree:
    for place in places:
        if isinstance(tree, int) or place >= len(tree):
            return tree  # a library call whose other results are not told
        tree = tree[place]
    return tree


def _array(shape: Shape) -> Array:
    """An array of this shape; axes without a bound have no elements."""
    if not shape.is_array:
        return Array((0,))
    dims = tuple([max(size, 0) for size in shape.dims])
    strides = None
    if shape.layout is not None and len(shape.layout.minor_to_major) == len(dims):
        by_axis, distance = dict[int, int](), 1
        for axis in shape.layout.minor_to_major:
            by_axis[axis] = distance
            distance *= max(dims[axis], 1) if axis < len(dims) else 1
        strides = tuple([by_axis[axis] for axis in range(len(dims))]) if len(by_axis) == len(dims) else None
    tiles = shape.layout.tiles if shape.layout is not None else ()
    tile = (tiles[0][-2] if len(tiles[0]) > 1 else 1, tiles[0][-1]) if tiles and tiles[0] else None
    return Array(dims, shape.number, strides, space=shape.memory_space, tile=tile)


def _are_one_operation(product: Node, total: Node) -> bool:
    return product.operation == total.operation or -1 in (product.operation, total.operation)


def _operation(name: str) -> Operation | None:
    """What an author's operation of this name is, if it moves elements, is an einsum, or has products that the compiler wrote."""
    operator, einsum = written(name), re.search(_EINSUM, name.rpartition(";")[2])
    return Operation(operator, einsum[0] if einsum else "") if operator or einsum else None


def _phase(own: Source, fusion: Source) -> Phase:
    """The phase of an instruction, perhaps in a fusion: equal ones of several phases may have one body."""
    if own.is_again or fusion.by_compiler or (own.direction != "backward" and fusion.is_again):
        return Phase.RECOMPUTED
    is_backward = own.direction == "backward" if own.op_name else fusion.direction == "backward"
    return Phase.BACKWARD if is_backward else Phase.FORWARD


def _unchanged(module: HloModule, body: int, parts: int) -> set[int]:
    """The parts of a loop's state that its body hands on as they are."""
    computation = module.computations[body]
    root = computation.root_instruction
    if root.opcode != "tuple" or len(root.operands) != parts:
        return set()
    unchanged = set()
    for place, operand in enumerate(root.operands):
        part = computation[operand]
        is_state = part.opcode == "get-tuple-element" and part.operands[:1] == computation.parameters[:1]
        if is_state and (part.integer("index") or 0) == place:
            unchanged.add(place)
    return unchanged
