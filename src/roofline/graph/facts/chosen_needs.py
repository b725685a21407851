"""Which arrays are needed only for the groups that each row chose: the others are multiplied by zero, or not selected."""

from msgspec.structs import replace

from ..graph import Graph, Node, Phase
from ..operators import RENAMING, SOFTMAXES, Operator, Rows
from .choices import Choice, Choices

OTHERS = "others"  # the member of the rows that did not choose another one
HOLDING = "holding"  # that of the rows for which a condition holds
_MASKING = (Operator.MULTIPLY, Operator.AND)


def chosen_needs(graph: Graph, choices: Choices) -> dict[int, Choice | None]:
    """The choice by which elements of each array are needed; ``None`` where all may be. Arrays that nothing needs have none.

    The gradient of what is multiplied by zero is zero: the backward pass needs no more of the forward pass than the latter itself.
    """
    return _Needs(graph, choices).of


class _Needs:
    """The needs, followed from the results of the program back."""

    def __init__(self, graph: Graph, choices: Choices) -> None:
        self.graph, self.choices = graph, choices
        self.of: dict[int, Choice | None] = dict.fromkeys(graph.results)
        self._gradients = set[int]()  # arrays of the forward pass that the backward pass alone was seen to need
        loops = {region.final: region for region in graph.regions}
        for node in reversed(graph.nodes):
            region = loops.get(node.gives) if node.operator == Operator.LOOP else None
            if region is not None:
                pairs = zip(region.handed_on, region.final, strict=True)
                self.of |= dict.fromkeys([handed_on for handed_on, final in pairs if final in self.of])
            if not any(array in graph.users or array in self.of for array in node.gives):  # for an effect that is not in the graph
                self.of |= dict.fromkeys(node.gives)
            if any(array in self.of for array in node.gives) or not node.gives:
                self._ask(node)

    def _ask(self, node: Node) -> None:
        """Joins what a node needs of its operands with what others need."""
        for place, operand in enumerate(node.takes):
            choice, is_for_gradient = self._asked(node, place), self._is_for_gradient(node, operand)
            if choice is None and is_for_gradient:
                if operand not in self.of:
                    self._gradients.add(operand)
                    self.of[operand] = None
            elif operand not in self.of or operand in self._gradients:
                self._gradients.discard(operand)
                self.of[operand] = choice
            elif (before := self.of[operand]) is not None and choice != before:
                is_same = choice is not None and choice.key == before.key and choice.axis == before.axis
                self.of[operand] = before if is_same else None

    def _is_for_gradient(self, node: Node, operand: int) -> bool:
        """Whether the backward pass uses an array of the forward pass."""
        maker = self.graph.maker.get(operand)
        return node.phase == Phase.BACKWARD and maker is not None and maker.phase != Phase.BACKWARD

    def _asked(self, node: Node, place: int) -> Choice | None:
        """The elements of an operand that a node needs."""
        if not node.gives:
            return None
        if node.operator == Operator.GATHER:
            return self._gathered(node) if place == 0 else None
        for choice in (self._masked(node, place), self._wanted(node, place)):
            sources = self.choices.axes.of(node, place) if choice is not None else None
            if choice is not None and sources is not None and (asked := choice.before(sources)) is not None:
                return asked
        return self._shared(node, place) if node.operator == Operator.DOT else None

    def _wanted(self, node: Node, place: int) -> Choice | None:
        """The choice by which the first result is needed, if nothing needs the others."""
        choice = self.of.get(node.gives[0])
        if choice is None or any(array in self.of for array in node.gives[1:]) or (node.operator == Operator.REDUCE and place):
            return None
        is_mixed = node.operator in SOFTMAXES and node.params in (*choice.rows, choice.axis)
        return None if is_mixed else choice

    def _masked(self, node: Node, place: int) -> Choice | None:
        """The choice of the elements of a node's result for which an operand counts, as another one is zero elsewhere or selects them."""
        if node.operator in _MASKING:
            others = [other for other in range(len(node.takes)) if other != place and self.choices.zero(node.takes[other]) is not None]
            return self._moved(node, others[0]) if others else None
        if node.operator != Operator.SELECT or place == 0:
            return None
        choice = self._moved(node, 0)
        if choice is None:
            choice = Choice(self.choices.axes.differing(node, 0), None, 0, 1, self.graph.origin(node.takes[0]), HOLDING)
        if place == 1:
            return choice
        return replace(choice, member=OTHERS) if choice.axis is None else None

    def _moved(self, node: Node, place: int) -> Choice | None:
        choice, sources = self.choices.zero(node.takes[place]), self.choices.axes.of(node, place)
        return choice.moved(sources) if choice is not None and sources is not None else None

    def _shared(self, product: Node, place: int) -> Choice | None:
        """The choice of a factor for an operand whose axes of the batch and of the sum are those along which it is zero."""
        ours, theirs = (product.sizes.left, product.sizes.right)[:: 1 if place == 0 else -1]
        choice = self.choices.zero(product.takes[1 - place])
        if choice is None:
            return None
        same = dict(zip((*theirs.batch, *theirs.summed), (*ours.batch, *ours.summed), strict=True))
        axis = None if choice.axis is None else same.get(choice.axis)
        if not choice.rows <= same.keys() or (choice.axis is not None and axis is None):
            return None
        return replace(choice, rows=frozenset(same[row] for row in choice.rows), axis=axis)

    def _gathered(self, gather: Node) -> Choice | None:
        """The choice of a gather that takes slices along one axis, others for each element of a second one."""
        whole, result = (self.graph.arrays[array] for array in (gather.takes[0], gather.gives[0]))
        sizes, axes = (gather.params.sizes, gather.params.axes) if isinstance(gather.params, Rows) else ((), ())
        single = [axis for axis, (size, count) in enumerate(zip(sizes, whole.shape, strict=False)) if size == 1 < count]
        (axis,) = axes if len(axes) == 1 else (-1,)
        if len(single) != 2 or axis not in single or len(sizes) != len(whole.shape):
            return None
        (row,) = (other for other in single if other != axis)
        chosen = result.elements * whole.shape[axis] / whole.elements
        return Choice(frozenset((row,)), axis, whole.shape[axis], chosen, self.graph.origin(gather.takes[1], RENAMING))
