"""Nodes in the order of the program, and who makes and who uses each array.

>>> graph = Graph()
>>> words, bits = graph.array(Array((4, 8))), graph.array(Array((8, 4)))
>>> graph.append(Node(Operator.VIEW, (words,), (bits,)))
>>> graph.origin(bits) == words
True
"""

from collections.abc import Callable, Collection, Hashable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import TypeVar, cast

from msgspec import Struct, field

from ..cost import NOTHING, Cost
from .backend import Backend
from .operators import RENAMING, ROW_BY_ROW, SPREADING, Array, Axes, DeviceAxes, Operator, Params, Sizes

NO_KERNEL = -1  # of a view, which runs nothing
_Fact = TypeVar("_Fact")


class Phase(StrEnum):
    """The part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTED = "recomputed"  # of the forward pass, in the backward pass
    UPDATE = "update"  # of parameters


class Node(Struct, frozen=True, gc=False):
    """One operator: the arrays that it takes and gives, by number, and the kernel that runs it, which several may share.

    ``sequence`` is equal for an operator and those of its gradient, -1 where it has none. ``location`` is the source line, as far as it is
    known. ``operation`` is the number of the author's operation that it is of, -1 if a compiler added it: a compiler may
    compute a value again rather than keep it.
    """

    operator: Operator
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    params: Params = None
    kernel: int = NO_KERNEL
    phase: Phase = Phase.FORWARD
    sequence: int = -1
    location: str = ""
    operation: int = -1

    @property
    def sizes(self) -> Sizes:
        """The sizes of a product."""
        assert isinstance(self.params, Sizes)
        return self.params


class Kernel(Struct, frozen=True, gc=False):
    """One launch: its cost, unknown parts of it are marked; and how many equal ones it stands for.

    ``fuses`` is whether a compiler would compute it in one kernel with those around it, but did not, as each was launched by itself.
    """

    cost: Cost
    times: int = 1
    fuses: bool = False


class Operation(Struct, frozen=True, gc=False):
    """What an author wrote, from which a compiler made nodes, where names tell it: an einsum, or an operator made of others."""

    operator: Operator | None = None
    einsum: str = ""


class Region(Struct, frozen=True, gc=False):
    """A loop: what it begins with, the arrays that an iteration gets, those that it hands on, and those that the loop ends with.

    ``trips`` is how often it runs, ``None`` if that is not known; ``nodes`` are the places of its nodes. Arrays that no iteration changes
    are the same inside as outside, and not listed.
    """

    initial: tuple[int, ...]
    carried: tuple[int, ...]
    handed_on: tuple[int, ...]
    final: tuple[int, ...]
    nodes: range
    trips: int | None = None


class Gradient(Struct, frozen=True, gc=False):
    """An array that a backward pass stored as the gradient of a weight, or added to the one before it, after so many nodes (0: unknown).

    It ``is_used`` if an optimizer updates the weight with it, as far as that is known.
    """

    array: int
    place: int
    is_used: bool = True


class Graph(Struct, dict=True):
    """Operators in order, their arrays and kernels. ``results`` are arrays that are needed after the program, ``arguments`` those that it
    gets, of which some are ``donated``. ``branches`` are the places of the nodes of each side of a condition; ``checkpoints`` are the
    author's lines that ask for a part of the forward pass to be computed again, where they are known. ``equal`` has the first array with
    the same elements, of arrays that another one is equal to.

    ``names`` are those of arguments, and ``operations`` what the author wrote, by `Node.operation`, as far as they are known. Kernels that
    are ``forced`` are copies that a library makes for itself. It ``is_fused`` if a compiler chose which operators share a kernel.
    ``weight_gradients`` are in order. ``converted`` is the share of a kernel's time in which a library changes layouts for itself, and
    ``repeated`` the line that calls a pass which ran before in its step, for kernels of such passes. It ``has_steps`` if it is of
    whole steps of a program that ran, with all that they compute.

    ``divided`` has the axes of devices along which each axis of an argument is divided, of a program that several ``devices`` run.
    """

    arrays: list[Array] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    kernels: dict[int, Kernel] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    branches: list[range] = field(default_factory=list)
    checkpoints: tuple[str, ...] = ()
    is_fused: bool = False
    arguments: list[int] = field(default_factory=list)
    donated: set[int] = field(default_factory=set)
    results: set[int] = field(default_factory=set)
    equal: dict[int, int] = field(default_factory=dict)
    backend: Backend = Backend()
    names: dict[int, str] = field(default_factory=dict)
    operations: dict[int, Operation] = field(default_factory=dict)
    forced: set[int] = field(default_factory=set)
    weight_gradients: list[Gradient] = field(default_factory=list)
    has_steps: bool = False
    converted: dict[int, float] = field(default_factory=dict)
    repeated: dict[int, str] = field(default_factory=dict)
    devices: int = 1
    divided: dict[int, tuple[DeviceAxes, ...]] = field(default_factory=dict)

    def array(self, array: Array) -> int:
        """The number of a new array."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def append(self, node: Node, function: Hashable = None) -> None:
        """Adds a node. Those of one ``function`` give equal results of equal arrays; ``None`` where that is not known, or random."""
        self.nodes.append(node)
        self.functions.append(function)
        for array in node.gives:
            self._makers[array] = node

    def exchange(self, place: int, node: Node) -> None:
        """Puts a node in the place of another, whose results nothing else uses if its own are others."""
        for array in self.nodes[place].gives:
            self._makers.pop(array, None)
        self.nodes[place] = node
        for array in node.gives:
            self._makers[array] = node

    @cached_property
    def functions(self) -> list[Hashable]:
        """What each node computes, as its source tells it, while a graph is made."""
        return []

    @cached_property
    def _makers(self) -> dict[int, Node]:
        return {array: node for node in self.nodes for array in node.gives}

    @property
    def maker(self) -> dict[int, Node]:
        """The node that gives each array; arguments have none."""
        return self._makers

    @cached_property
    def users(self) -> dict[int, list[Node]]:
        """The nodes that take each array, in order."""
        users: dict[int, list[Node]] = {}
        for node in self.nodes:
            for array in dict.fromkeys(node.takes):
                users.setdefault(array, []).append(node)
        return users

    @cached_property
    def _gradients(self) -> dict[int, list[Node]]:
        gradients: dict[int, list[Node]] = {}
        for node in self.nodes:
            if node.phase == Phase.BACKWARD and node.sequence >= 0:
                gradients.setdefault(node.sequence, []).append(node)
        return gradients

    @cached_property
    def _differentiated(self) -> dict[int, list[Node]]:
        forward: dict[int, list[Node]] = {}
        for node in self.nodes:
            if node.phase == Phase.FORWARD and node.sequence >= 0:
                forward.setdefault(node.sequence, []).append(node)
        return forward

    @cached_property
    def _by_operator(self) -> dict[Operator, list[Node]]:
        nodes: dict[Operator, list[Node]] = {}
        for node in self.nodes:
            nodes.setdefault(node.operator, []).append(node)
        return nodes

    def of(self, *operators: Operator) -> list[Node]:
        """The nodes of these operators, those of the first one first."""
        return [node for operator in operators for node in self._by_operator.get(operator, ())]

    @cached_property
    def inside(self) -> dict[int, list[Node]]:
        """The nodes that each kernel runs, in order."""
        inside: dict[int, list[Node]] = {}
        for node in self.nodes:
            if node.kernel != NO_KERNEL:
                inside.setdefault(node.kernel, []).append(node)
        return inside

    def read(self, kernel: int) -> list[int]:
        """The arrays that a kernel takes and others made, or that are arguments."""
        inside = self.inside.get(kernel, ())
        results = {array for node in inside for array in node.gives}
        return [array for array in dict.fromkeys(array for node in inside for array in node.takes) if array not in results]

    def written(self, kernel: int) -> list[int]:
        """The arrays that a kernel makes for others, for the next iteration of a loop, or as results."""
        results = [array for node in self.inside.get(kernel, ()) for array in node.gives]
        return [array for array in results if self.is_handed_on(array) or any(user.kernel != kernel for user in self.users.get(array, ()))]

    @cached_property
    def region_of(self) -> dict[int, Region]:
        """The innermost loop that makes or carries each array; arrays outside of loops have none."""
        innermost: dict[int, Region] = {}
        for region in sorted(self.regions, key=lambda region: -len(region.nodes)):
            innermost |= dict.fromkeys(region.carried, region)
            innermost |= {array: region for place in region.nodes for array in self.nodes[place].gives}
        return innermost

    @cached_property
    def _handed_on(self) -> set[int]:
        return self.results.union(*({*region.handed_on} for region in self.regions))

    @cached_property
    def _given(self) -> frozenset[int]:
        return frozenset(self.arguments)

    def is_argument(self, array: int) -> bool:
        """Whether the program gets an array."""
        return array in self._given

    def is_handed_on(self, array: int) -> bool:
        """Whether an array is needed after the program, or by the next iteration of a loop."""
        return array in self._handed_on

    @cached_property
    def _facts(self) -> dict[object, object]:
        return {}

    def fact(self, find: "Callable[[Graph], _Fact]") -> _Fact:
        """What is found in the graph, which several rules ask for."""
        if find not in self._facts:
            self._facts[find] = find(self)
        return cast("_Fact", self._facts[find])

    def only(self, kernel: int, operators: Collection[Operator]) -> bool:
        """Whether a kernel runs these operators alone."""
        return all(node.operator in operators for node in self.inside.get(kernel, ()))

    def cost(self, node: Node) -> Cost:
        """The cost of the kernel that runs a node."""
        kernel = self.kernels.get(node.kernel)
        return kernel.cost if kernel is not None else NOTHING

    def origin(self, array: int, through: Collection[Operator] = RENAMING) -> int:
        """The first array that is not made by one of these operators, which are followed to their first operand."""
        while (node := self.maker.get(array)) is not None and node.operator in through:
            array = node.takes[0]
        return array

    def distinct(self, array: int) -> int:
        """The elements of an array before they were repeated: one, if it has one value everywhere."""
        origin = self.origin(array, SPREADING)
        maker = self.maker.get(origin)
        return 1 if maker is not None and maker.operator == Operator.FILL else self.arrays[origin].elements

    def value(self, array: int) -> float | None:
        """The value of all elements of an array, if it is known."""
        maker = self.maker.get(self.origin(array, SPREADING))
        return maker.params if maker is not None and maker.operator == Operator.FILL and isinstance(maker.params, int | float) else None

    def source_axis(self, array: int, axis: int, through: Collection[Operator] = RENAMING) -> int | None:
        """The axis of the origin of an array that is one of its axes; ``None`` if that was split, merged or added on the way."""
        place: int | None = axis
        while place is not None and (node := self.maker.get(array)) is not None and node.operator in through:
            place = self.axis_before(node, array, place)
            array = node.takes[0]
        return place

    def axis_before(self, node: Node, array: int, axis: int) -> int | None:
        """The axis of the first operand of a node that renames or spreads elements, which is an axis of its result."""
        axes = node.params.axes if isinstance(node.params, Axes) else ()
        if node.operator == Operator.TRANSPOSE:
            return axes[axis] if axis < len(axes) else None
        if node.operator == Operator.BROADCAST:
            if node.params is None:
                return _expanded_axis(self.arrays[array], self.arrays[node.takes[0]], axis)
            return axes.index(axis) if axis in axes else None
        if node.operator != Operator.VIEW:
            return axis if self.arrays[array].shape == self.arrays[node.takes[0]].shape else None
        whole, part = self.arrays[node.takes[0]], self.arrays[array]
        size = part.shape[axis]
        if not part.sure and part.shape.count(size) == whole.shape.count(size) == 1:  # matched by size, it may be transposed
            return whole.shape.index(size)
        in_memory = node.params != ROW_BY_ROW
        place = next((place for place, other in _places(part, in_memory=in_memory) if other == axis), None)
        return next((other for there, other in _places(whole, in_memory=in_memory) if there == place), None)

    def source_axes(self, array: int, axes: Collection[int], through: Collection[Operator] = RENAMING) -> frozenset[int]:
        """The axes of the origin of an array along which its elements lie that differ along these axes, also of split and merged ones."""
        while (node := self.maker.get(array)) is not None and node.operator in through:
            axes = frozenset[int]().union(*(self._axes_before(node, array, axis) for axis in axes))
            array = node.takes[0]
        return frozenset(axes)

    def _axes_before(self, node: Node, array: int, axis: int) -> frozenset[int]:
        """The axes of the first operand of a node that a part of an axis of its result is along."""
        if node.operator != Operator.VIEW:
            source = self.axis_before(node, array, axis)
            return frozenset(() if source is None else (source,))
        in_memory = node.params != ROW_BY_ROW
        here = next((place for place, other in _places(self.arrays[array], in_memory=in_memory) if other == axis), None)
        if here is None:
            return frozenset()
        (outer, size), before = here, _places(self.arrays[node.takes[0]], in_memory=in_memory)
        return frozenset(other for (first, count), other in before if max(first, outer) < min(first * count, outer * size))

    def between(self, array: int, through: Collection[Operator] = RENAMING) -> list[Node]:
        """The nodes that `origin` goes through, the last one first."""
        nodes = []
        while (node := self.maker.get(array)) is not None and node.operator in through:
            nodes.append(node)
            array = node.takes[0]
        return nodes

    def made_by(self, array: int, *operators: Operator, through: Collection[Operator] = RENAMING) -> Node | None:
        """The node of one of these operators that gives an array, under whichever name."""
        node = self.maker.get(self.origin(array, through))
        return node if node is not None and node.operator in operators else None

    def uses(self, array: int, through: Collection[Operator] = RENAMING) -> Iterator[tuple[Node, int]]:
        """The nodes that use an array, under whichever name, each with the array that it takes."""
        for node in self.users.get(array, ()):
            if node.operator in through and node.takes[0] == array:
                yield from self.uses(node.gives[0], through)
            else:
                yield node, array
        if array in self.results:
            yield Node(Operator.RESULT, (array,), ()), array

    def gradients(self, node: Node) -> list[Node]:
        """The nodes of the backward pass that compute the gradient of one of the forward pass."""
        return self._gradients.get(node.sequence, []) if node.phase == Phase.FORWARD and node.sequence >= 0 else []

    def differentiated(self, node: Node) -> list[Node]:
        """The nodes of the forward pass whose gradient one of the backward pass computes."""
        return self._differentiated.get(node.sequence, []) if node.phase == Phase.BACKWARD and node.sequence >= 0 else []


def _expanded_axis(whole: Array, before: Array, axis: int) -> int | None:
    """The axis of an array that is one of a view in which others are repeated: it has the same stride."""
    if whole.strides is None or before.strides is None or whole.strides[axis] == 0:
        return None
    fitting = [
        place
        for place, (size, stride) in enumerate(zip(before.shape, before.strides, strict=True))
        if (size, stride) == (whole.shape[axis], whole.strides[axis])
    ]
    return fitting[0] if len(fitting) == 1 else None


def _places(array: Array, *, in_memory: bool) -> Iterator[tuple[tuple[int, int], int]]:
    """The axes of an array except those of size 1: the product of the sizes before each, and its own size; then its number."""
    before = 1
    for axis in array.order(in_memory=in_memory):
        if array.shape[axis] != 1:
            yield (before, array.shape[axis]), axis
        before *= array.shape[axis]
