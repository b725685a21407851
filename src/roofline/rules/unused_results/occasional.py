"""Work that every step does and few steps use: both sides of a select by a scalar that is true in every n-th step.

In all other steps the select gives zero, and so does everything that is linear in it, such as the gradients of a penalty. What only
such zeros and the side not taken need is computed for nothing; a conditional computes it in the steps that use it.
"""

from collections.abc import Iterator

from msgspec import Struct

from ...graph import SPREADING, Axes, Graph, Node, Operator, Padding
from ...workload import Avoidable
from .parts import CLASS, KIND

GROUP = "condition"
_ANY = frozenset((Operator.MULTIPLY, Operator.DOT, Operator.CONVOLUTION))  # zero if one operand is
_ALL = frozenset((Operator.ADD, Operator.SUBTRACT, Operator.CONCATENATE))  # zero if all operands are
_OF_FIRST = "negate absolute divide square-root slice reverse gather"
_FIRST = SPREADING | set(map(Operator, _OF_FIRST.split()))  # zero if the first operand is
_COMPARISONS = (Operator.EQUAL, Operator.DIFFERENT)
_WHOLE_NUMBERS = ("int", "uint", "bool")
_LEAST = 2  # steps of which one uses the work


class _Condition(Struct, frozen=True):
    """Equal predicates of one number, whether the work is used where they are false, and the period in steps."""

    predicates: frozenset[int]
    used_if_false: bool
    period: int

    def decides(self, graph: Graph, node: Node) -> bool:
        """Whether a node is a select by this condition."""
        return node.operator == Operator.SELECT and len(node.takes) == 3 and graph.origin(node.takes[0], SPREADING) in self.predicates


_NEVER = _Condition(frozenset(), used_if_false=False, period=1)


def occasional_work(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels whose results only every n-th step uses."""
    conditions = _conditions(graph)
    branches = {graph.nodes[place].kernel for branch in graph.branches for place in branch} if conditions else set()
    for condition in conditions:
        needed = _needed(graph, condition)
        for kernel, nodes in graph.inside.items():
            arrays = [graph.arrays[array] for node in nodes for array in (*node.takes, *node.gives)]
            is_of_arrays = any(array.elements > 1 for array in arrays)  # what only computes the condition is needed to know it
            if is_of_arrays and kernel not in branches and all(needed.isdisjoint(node.gives) for node in nodes):
                instead = graph.kernels[kernel].cost * (1 / condition.period)
                yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, factor=condition.period)


def _conditions(graph: Graph) -> list[_Condition]:
    """The conditions that hold in every n-th step."""
    periods = {node.gives[0]: period for node in graph.of(*_COMPARISONS) if node.gives and (period := _period(graph, node)) >= _LEAST}
    first = graph.equal if periods else {}
    equal: dict[int, set[int]] = {}
    for predicate in periods:
        equal.setdefault(first.get(predicate, predicate), set()).add(predicate)
    return [
        _Condition(frozenset(predicates), graph.maker[predicate].operator == Operator.DIFFERENT, periods[predicate])
        for predicate, predicates in equal.items()
        if predicate in periods
    ]


def _period(graph: Graph, comparison: Node) -> int:
    """The period of the remainder of a whole number that is compared with a constant; 0 if there is none.

    The remainder of a power of two may be written as the last bits of the number.
    """
    if comparison.params is None and all(_constant(graph, side) is None for side in comparison.takes):
        return 0
    periods, waiting, seen = set[int](), [*comparison.gives], set[int]()
    while waiting:
        here = waiting.pop()
        array, node = graph.arrays[here], graph.maker.get(here)
        if array.elements != 1 or array.dtype is None or not array.dtype.name.startswith(_WHOLE_NUMBERS):
            return 0
        if here in seen or node is None:
            continue
        seen.add(here)
        if node.operator in (Operator.REMAINDER, Operator.AND) and array.dtype.name != "bool":
            divisors = [node.params if isinstance(node.params, int) else None, *(_constant(graph, divisor) for divisor in node.takes[1:])]
            periods |= {divisor + (node.operator == Operator.AND) for divisor in divisors if divisor is not None}
        waiting += node.takes
    return periods.pop() if len(periods) == 1 else 0


def _constant(graph: Graph, array: int) -> int | None:
    """The value of a whole number, also of one that a guard replaces where it is zero."""
    value, guard = graph.value(array), graph.made_by(array, Operator.SELECT)
    if value is not None or guard is None:
        return int(value) if value is not None and float(value).is_integer() else None
    compared = graph.made_by(guard.takes[0], Operator.EQUAL)
    sides = [_constant(graph, side) for side in compared.takes] if compared is not None else []
    if len(sides) != 2 or None in sides:
        return None
    return _constant(graph, guard.takes[1 if sides[0] == sides[1] else 2])


def _needed(graph: Graph, condition: _Condition) -> set[int]:
    """The arrays that the results depend on in steps in which a condition does not hold, other than those that are zero then.

    A node of which nothing takes anything has an effect of its own.
    """
    removed = zeros(graph, condition) - zeros(graph)
    loops = {region.final: region for region in graph.regions}
    needed = graph.results - removed
    for node in reversed(graph.nodes):
        is_taken = any(array in graph.users or graph.is_handed_on(array) for array in node.gives)
        if needed.isdisjoint(node.gives) and (is_taken or not node.takes):
            continue
        taken = list(node.takes)
        if condition.decides(graph, node):
            taken.pop(2 if condition.used_if_false else 1)
        if node.operator == Operator.LOOP and node.gives in loops:
            taken += loops[node.gives].handed_on
        needed.update(node.gives)
        needed.update(array for array in taken if array not in removed)
    return needed


def zeros(graph: Graph, condition: _Condition = _NEVER) -> set[int]:
    """The arrays that are zero in steps in which a condition does not hold."""
    are_zero = set[int]()
    for node in graph.nodes:
        if condition.decides(graph, node):
            is_zero = node.takes[1 if condition.used_if_false else 2] in are_zero
        else:
            is_zero = _is_zero(graph, node, are_zero) or (not condition.used_if_false and not condition.predicates.isdisjoint(node.gives))
        if is_zero:
            are_zero.update(node.gives)
    return are_zero


def _is_zero(graph: Graph, node: Node, zeros: set[int]) -> bool:
    """Whether a node gives zero, by its operands that are zero."""
    are_zero = [array in zeros for array in node.takes]
    if not are_zero:
        return node.operator == Operator.FILL and node.params == 0
    if node.operator == Operator.SELECT:
        return all(are_zero[1:])
    if node.operator == Operator.REDUCE:
        return isinstance(node.params, Axes) and node.params.function == Operator.ADD and all(are_zero)
    if node.operator == Operator.PAD:
        return are_zero[0] and isinstance(node.params, Padding) and node.params.value == 0
    if node.operator in _ANY:
        return any(are_zero)
    return all(are_zero) if node.operator in _ALL else node.operator in _FIRST and are_zero[0]
