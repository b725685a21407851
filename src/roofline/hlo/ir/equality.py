"""Whether two instructions compute the same value from the same operands."""

from collections.abc import Hashable

from .module import Computation, HloModule, Instruction

# Never equal: their values are random, come from outside, or come from computations that are not compared here.
NEVER_EQUAL = frozenset(
    ("rng", "rng-bit-generator", "rng-get-and-update-state", "parameter", "infeed", "recv", "while", "conditional", "call")
)
_DESCRIPTIVE = ("metadata", "frontend_attributes", "backend_config", "sharding", "origin")  # attributes that do not change the value


def is_equal(module: HloModule, one: Instruction, other: Instruction) -> bool:
    """Whether two instructions compute the same value from the same operands."""
    if one.opcode != other.opcode or one.shape != other.shape or one.opcode in NEVER_EQUAL:
        return False
    if one.opcode == "constant" and (one.literal is None or one.literal != other.literal):
        return False
    if one.opcode == "custom-call" and one.backend_config_text != other.backend_config_text:
        return False
    if not _have_same_attributes(one, other) or len(one.calls) != len(other.calls):
        return False
    return all(_is_equal_body(module, ours.computation, theirs.computation) for ours, theirs in zip(one.calls, other.calls, strict=True))


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
        found = next((one for one in others if self._is_equal(one, index)), index)
        if found == index:
            others.append(index)
        return found

    def _is_equal(self, one: int, other: int) -> bool:
        return is_equal(self._module, self._computation[one], self._computation[other])


def _have_same_attributes(one: Instruction, other: Instruction) -> bool:
    """Whether two instructions have the same attributes. Those with the same text do, so most need not be parsed."""
    text = one.dialect.unread(one.raw)
    return (text is not None and text == other.dialect.unread(other.raw)) or _attributes(one) == _attributes(other)


def _attributes(instruction: Instruction) -> list[tuple[str, str]]:
    return [(name, str(instruction.attribute(name))) for name in instruction.attributes if name not in _DESCRIPTIVE]


def _is_equal_body(module: HloModule, one: int, other: int) -> bool:
    if one == other:
        return True
    ours, theirs = module.computations[one], module.computations[other]
    if (len(ours), ours.root, ours.parameters) != (len(theirs), theirs.root, theirs.parameters):
        return False
    return all(
        mine.operands == yours.operands and (mine.opcode == yours.opcode == "parameter" or is_equal(module, mine, yours))
        for mine, yours in zip(ours.instructions, theirs.instructions, strict=True)
    )
