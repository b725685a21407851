"""Whether two instructions compute the same value from the same operands."""

from collections.abc import Hashable

from .module import Computation, HloModule, Instruction

# Never equal: their values are random, come from outside, or come from computations that are not compared here.
NEVER_EQUAL = frozenset(
    ("rng", "rng-bit-generator", "rng-get-and-update-state", "parameter", "infeed", "recv", "while", "conditional", "call")
)
_DESCRIPTIVE = ("metadata", "frontend_attributes", "backend_config", "sharding", "origin")  # attributes that do not change the value


def is_equal(module: HloModule, left: Instruction, right: Instruction) -> bool:
    """Whether two instructions compute the same value from the same operands."""
    if left.opcode != right.opcode or left.shape != right.shape or left.opcode in NEVER_EQUAL:
        return False
    if left.opcode == "constant" and (left.literal is None or left.literal != right.literal):
        return False
    if left.opcode == "custom-call" and left.backend_config_text != right.backend_config_text:
        return False
    if not _have_same_attributes(left, right) or len(left.calls) != len(right.calls):
        return False
    return all(_is_equal_body(module, inner.computation, other.computation) for inner, other in zip(left.calls, right.calls, strict=True))


class Function:
    """What an instruction computes of its operands: equal ones compute the same of the same operands."""

    __slots__ = ("_instruction", "_module")

    def __init__(self, module: HloModule, instruction: Instruction) -> None:
        self._module, self._instruction = module, instruction

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Function):
            return False
        return self._instruction is other._instruction or is_equal(self._module, self._instruction, other._instruction)

    def __hash__(self) -> int:
        return hash(self._instruction.opcode)


class EqualInstructions:
    """The instructions of a computation, to find the first of those that compute the same value.

    They are compared only if their keys are the same. A result with thousands of parts has as many users that differ in one attribute, so
    those that differ from the first are kept by their attributes.
    """

    def __init__(self, module: HloModule, computation: Computation) -> None:
        self._module, self._computation = module, computation
        self._first: dict[Hashable, int] = {}
        self._others: dict[Hashable, list[int]] = {}

    def first(self, index: int, key: Hashable) -> int:
        """The first instruction with this key that computes the same value: the instruction itself if there is none before it."""
        first = self._first.setdefault(key, index)
        if first == index or self._is_equal(first, index):
            return first
        others = self._others.setdefault((key, *_attributes(self._computation[index])), [])
        equal = next((candidate for candidate in others if self._is_equal(candidate, index)), index)
        if equal == index:
            others.append(index)
        return equal

    def _is_equal(self, left: int, right: int) -> bool:
        return is_equal(self._module, self._computation[left], self._computation[right])


def _have_same_attributes(left: Instruction, right: Instruction) -> bool:
    """Whether two instructions have the same attributes. Those with the same text do, so most need not be parsed."""
    text = left.dialect.unread(left.raw)
    return (text is not None and text == right.dialect.unread(right.raw)) or _attributes(left) == _attributes(right)


def _attributes(instruction: Instruction) -> list[tuple[str, str]]:
    return [(name, str(instruction.attribute(name))) for name in instruction.attributes if name not in _DESCRIPTIVE]


def _is_equal_body(module: HloModule, left: int, right: int) -> bool:
    if left == right:
        return True
    body, other = module.computations[left], module.computations[right]
    if (len(body), body.root, body.parameters) != (len(other), other.root, other.parameters):
        return False
    return all(
        instruction.operands == counterpart.operands
        and (instruction.opcode == counterpart.opcode == "parameter" or is_equal(module, instruction, counterpart))
        for instruction, counterpart in zip(body.instructions, other.instructions, strict=True)
    )
