"""Instructions that make the same value of the same operands."""

from .module import HloModule, Instruction

# Each makes a value of its own: another one every time, one from outside, or one whose making is work that no comparison here looks into.
EACH_ITS_OWN = frozenset(
    ("rng", "rng-bit-generator", "rng-get-and-update-state", "parameter", "infeed", "recv", "while", "conditional", "call")
)
_ABOUT = ("metadata", "frontend_attributes", "backend_config", "sharding", "origin")  # attributes that change no value


def is_equal(module: HloModule, one: Instruction, other: Instruction) -> bool:
    """Whether two instructions make the same value of the same operands."""
    if one.opcode != other.opcode or one.shape != other.shape or one.opcode in EACH_ITS_OWN:
        return False
    if one.opcode == "constant" and (one.literal is None or one.literal != other.literal):
        return False
    if one.opcode == "custom-call" and one.backend_config_text != other.backend_config_text:
        return False
    if not _say_the_same(one, other) or len(one.calls) != len(other.calls):
        return False
    return all(_is_equal_body(module, ours.computation, theirs.computation) for ours, theirs in zip(one.calls, other.calls, strict=True))


def _say_the_same(one: Instruction, other: Instruction) -> bool:
    """Whether the attributes of two instructions say the same; those that are written in the same words do."""
    words = one.dialect.unread(one.raw)
    return (words is not None and words == other.dialect.unread(other.raw)) or _said(one) == _said(other)


def _said(instruction: Instruction) -> list[tuple[str, str]]:
    return [(name, str(instruction.attribute(name))) for name in instruction.attributes if name not in _ABOUT]


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
