"""Work that every step does and few steps use: both sides of a select by a scalar that is true in every n-th step.

In all other steps the select gives zero, and so does everything that is linear in it, such as the gradients of a penalty. What only
such zeros and the side not taken need is computed for nothing; a conditional computes it in the steps that use it.
"""

from collections.abc import Iterator

from msgspec import Struct

from ...rules.unused_results.parts import CLASS, KIND
from ...workload import Avoidable
from ..lower.products import is_linear, product_dimensions
from .fingerprints import Fingerprints
from .kernels import Kernels
from .values import SPREAD, Value

GROUP = "condition"
_INTEGERS = frozenset(("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"))
_ANY = frozenset(("multiply", "dot", "convolution"))  # zero if one operand is
_ALL = frozenset(("add", "subtract", "pad", "concatenate", "reduce"))  # zero if all operands are
_FIRST = SPREAD | frozenset(("negate", "abs", "divide", "slice", "dynamic-slice", "reverse", "gather", "sqrt", "get-tuple-element"))
_LINEAR_CALLS = frozenset(("__cudnn$convForward", "__cudnn$convBackwardInput", "__cudnn$convBackwardFilter"))
_OPERANDS = 2  # of a library call without bias or another array that it adds
_LEAST = 2  # steps of which one uses the work


class _Condition(Struct, frozen=True):
    """A scalar predicate by its fingerprint, whether the work is used where it is false, and the period in steps."""

    fingerprint: str
    used_if_false: bool
    period: int


def occasional_work(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a program's entry whose results only every n-th step uses."""
    if not kernels.are_in_entry or "compare" not in kernels.module.opcodes:
        return
    search = _Search(kernels)
    for condition in search.conditions():
        for index in search.unused(condition):
            instead = kernels.costs[index] * (1 / condition.period)
            yield index, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, factor=condition.period)


class _Search:
    """The values of an entry, inside of fusions too, in order, and the conditions of its scalar selects."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels, self.values = kernels, kernels.values
        self._fingerprints = Fingerprints(kernels.values)
        self._conditions: dict[object, _Condition] = {}  # of scalar comparisons
        for compared in kernels.parts_with("compare"):
            if compared.shape.elements == 1 and (condition := self._condition(compared)) is not None:
                self._conditions[compared.key] = condition

    def conditions(self) -> Iterator[_Condition]:
        """The conditions that hold in few steps."""
        yield from dict.fromkeys(self._conditions.values())

    def unused(self, condition: _Condition) -> list[int]:
        """The kernels that compute only zeros, or what nothing needs, in steps in which a condition does not hold."""
        computation, values = self.kernels.computation, self.values
        zeros: set[object] = set()
        for index in range(len(computation)):
            for value in (*values.parts(computation, index), Value(computation, index)):
                if self._is_zero(value, zeros, condition):
                    zeros.add(value.key)
        needed = self._needed(zeros, condition)
        found = []
        for index in self.kernels.costs:
            written = [values.made_by(value).key for value in values.written(computation, index)]
            if not any(key in self._conditions or (key in needed and key not in zeros) for key in written):
                found.append(index)
        return found

    def _needed(self, zeros: set[object], condition: _Condition) -> set[object]:
        """The values that the results of the program depend on in such steps, other than zeros."""
        entry, values = self.kernels.computation, self.values
        needed: set[object] = set()
        unread = [index for index, one in enumerate(entry.instructions) if one.opcode != "parameter" and not values.users(entry, index)]
        waiting = [Value(entry, index) for index in (entry.root, *unread)]  # what nothing reads has an effect of its own
        while waiting:
            value = values.made_by(waiting.pop())
            if value.key in needed or value.key in zeros:
                continue
            needed.add(value.key)
            operands = values.operands(value)
            if value.opcode == "select" and self._of(operands[0]) == condition:
                operands.pop(2 if condition.used_if_false else 1)
            waiting += operands
        return needed

    def _is_zero(self, value: Value, zeros: set[object], condition: _Condition) -> bool:
        if value.opcode in ("parameter", "fusion"):
            made = self.values.made_by(value)
            return made.key != value.key and made.key in zeros
        instruction, operands = value.instruction, self.values.operands(value)
        if value.opcode == "constant":
            literal = instruction.literal
            return literal is not None and not any(literal)
        are_zero = [self.values.made_by(operand).key in zeros for operand in operands]
        if value.opcode == "select":
            if self._of(operands[0]) == condition:
                return are_zero[1 if condition.used_if_false else 2]
            return are_zero[1] and are_zero[2]
        if value.opcode == "compare":
            return not condition.used_if_false and self._conditions.get(value.key) == condition
        if value.opcode == "reduce":
            return all(are_zero) and self._adds(value)
        if value.opcode in _ANY:
            return any(are_zero)
        if value.opcode in _ALL:
            return all(are_zero)
        if value.opcode == "custom-call":
            is_product = product_dimensions(instruction) is not None and is_linear(instruction)
            is_known = is_product or instruction.custom_call_target in _LINEAR_CALLS
            return is_known and len(operands) == _OPERANDS and any(are_zero)
        return value.opcode in _FIRST and bool(are_zero) and are_zero[0]

    def _adds(self, reduce: Value) -> bool:
        bodies = [self.kernels.module.computations[number] for number in reduce.instruction.called("to_apply")]
        return all(body.root_instruction.opcode == "add" for body in bodies)

    def _of(self, predicate: Value) -> _Condition | None:
        return self._conditions.get(self.values.origin(predicate, SPREAD).key)

    def _condition(self, compared: Value) -> _Condition | None:
        """The condition that a step's number, modulo a period, equals a constant; ``None`` for other comparisons."""
        direction = compared.instruction.word("direction").upper()
        period = self._period(compared) if direction in ("EQ", "NE") else 0
        fingerprint = self._fingerprints.of(compared) if period >= _LEAST else ""
        return _Condition(fingerprint, direction == "NE", period) if fingerprint else None

    def _period(self, compared: Value) -> int:
        """The period of a remainder that is compared with a constant; 0 if there is none, or arrays decide.

        The remainder of a power of two may be written as the last bits of the number.
        """
        periods = set[int]()
        if all(self._constant(side) is None for side in self.values.operands(compared)):
            return 0
        for one in self.values.ancestors(compared, frozenset()):
            if not one.shape.is_array or one.shape.elements != 1 or one.shape.dtype not in (*_INTEGERS, "pred"):
                return 0
            if one.opcode in ("remainder", "and") and one.shape.dtype in _INTEGERS:
                by = self._constant(self.values.operand(one, 1))
                periods |= set() if by is None else {by + (one.opcode == "and")}
        return periods.pop() if len(periods) == 1 else 0

    def _constant(self, value: Value) -> int | None:
        """The value of an integer constant, also of JAX's guard of a divisor: one in place of zero."""
        made = self.values.origin(value)
        if made.opcode == "constant" and made.instruction.literal:
            return int(made.instruction.literal[0].real)
        if made.opcode != "select":
            return None
        is_zero, one, other = self.values.operands(made)
        compared = self.values.origin(is_zero)
        sides = [self._constant(side) for side in self.values.operands(compared)] if compared.opcode == "compare" else [None]
        if None in sides or compared.instruction.word("direction").upper() != "EQ":
            return None
        return self._constant(one if sides[0] == sides[1] else other)
