"""Aliasing that a TPU program states: which results its compiler wrote over which operands, as it assigned their memory."""

from collections.abc import Mapping

from ..ir.module import Instruction
from ..ir.shapes import whole_or_none
from ..read.backend_config import backend_config

_KEY, _NONE = '"aliasing_operands":{"lists":[', '"aliasing_operands":{"lists":[]'


def stated_aliases(instruction: Instruction) -> Mapping[int, int] | None:
    """The operand that each array of a result is written over, by their numbers; ``None`` if the program does not state it.

    The backend configuration has groups of numbers that share memory: operands first, then the arrays of the result.
    """
    text = instruction.backend_config_text
    if _NONE in text:
        return {}
    if _KEY not in text:
        return None
    config = backend_config(instruction).get("aliasing_operands")
    groups = config.get("lists") if isinstance(config, dict) else None
    count = len(instruction.operands)
    aliases: dict[int, int] = {}
    for group in groups if isinstance(groups, list) else ():
        written = group.get("indices") if isinstance(group, dict) else None
        known = [whole_or_none(str(number)) for number in written] if isinstance(written, list) else []
        numbers = [number for number in known if number is not None and number >= 0]
        operands = [number for number in numbers if number < count]
        aliases |= {number - count: operands[0] for number in numbers if number >= count and operands}
    return aliases
