"""Whether two instructions compute the same value from the same operands."""

from .module import HloModule, Instruction

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
