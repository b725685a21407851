"""Nodes in the order of the program, and who makes and who uses each array.

>>> graph = Graph()
>>> words, bits = graph.array(Array((4, 8))), graph.array(Array((8, 4)))
>>> graph.append(Node(Operator.VIEW, (words,), (bits,)))
>>> graph.origin(bits) == words
True
"""

from collections.abc import Collection, Iterator
from enum import StrEnum
from functools import cached_property

from msgspec import Struct, field

from ..cost import Cost
from .operators import RENAMING, Array, Operator, Params, Sizes

NO_KERNEL = -1  # of a view, which runs nothing


class Phase(StrEnum):
    """The part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Node(Struct, frozen=True, gc=False):
    """One operator: the arrays that it takes and gives, by number, and the kernel that runs it, which several may share.

    ``step`` and ``sequence`` are equal for an operator and those of its gradient; ``sequence`` is -1 where it has none.
    """

    operator: Operator
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    params: Params = None
    kernel: int = NO_KERNEL
    phase: Phase = Phase.FORWARD
    sequence: int = -1

    @property
    def sizes(self) -> Sizes:
        """The sizes of a product."""
        assert isinstance(self.params, Sizes)
        return self.params


class Kernel(Struct, frozen=True):
    """One launch: its cost; unknown parts of it are marked."""

    cost: Cost


class Graph(Struct, dict=True):
    """Operators in order, their arrays and kernels. ``results`` are arrays that are needed after the program."""

    arrays: list[Array] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    kernels: dict[int, Kernel] = field(default_factory=dict)
    results: set[int] = field(default_factory=set)

    def array(self, array: Array) -> int:
        """The number of a new array."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def append(self, node: Node) -> None:
        self.nodes.append(node)

    @cached_property
    def maker(self) -> dict[int, Node]:
        """The node that gives each array; arguments have none."""
        return {array: node for node in self.nodes for array in node.gives}

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

    def of(self, *operators: Operator) -> list[Node]:
        """The nodes of these operators."""
        return [node for node in self.nodes if node.operator in operators]

    def cost(self, node: Node) -> Cost:
        """The cost of the kernel that runs a node."""
        return self.kernels[node.kernel].cost

    def origin(self, array: int, through: Collection[Operator] = RENAMING) -> int:
        """The first array that is not made by one of these operators, which are followed to their first operand."""
        while (node := self.maker.get(array)) is not None and node.operator in through:
            array = node.takes[0]
        return array

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
