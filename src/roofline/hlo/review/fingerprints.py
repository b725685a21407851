"""Fingerprints of values: equal in two programs that compute the same from arguments of the same names, shapes and formats.

They do not depend on the compiler's choices: fusions, layouts, algorithms, formats of intermediate values.
"""

from hashlib import blake2b

from ..ir.module import Instruction
from ..ir.values import RENAMED, Value, Values
from ..price.elementwise import ELEMENTWISE
from .kernels import product

_SIZE = 8  # bytes
_PLAIN = ELEMENTWISE - {"compare"}  # without attributes that change the value
_NO_VALUE = frozenset(("rng", "rng-bit-generator", "rng-get-and-update-state", "infeed", "recv", "while", "conditional", "call"))
_DESCRIPTIVE = frozenset(
    ("metadata", "frontend_attributes", "backend_config", "sharding", "origin", "calls", "kind", "operand_layout_constraints")
)
_DEEPEST = 150  # nested values of one kernel


class Fingerprints:
    """The fingerprints of one program's values."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._known: dict[tuple[object, ...], str] = {}
        self._begun = False

    def of(self, value: Value) -> str:
        """The fingerprint of a value; empty if it depends on more than named arguments."""
        if not self._begun:
            self._begun = True
            entry = self._values.module.entry_computation
            for index in range(len(entry)):  # in order, so that operands are known and recursion stays shallow
                self._of(Value(entry, index))
        return self._of(value)

    def _of(self, value: Value, depth: int = 0) -> str:
        origin = self._values.origin(value, RENAMED)
        key = (origin.computation.name, origin.index, *(fusion.name for _, fusion in origin.inside))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compute(origin, depth) if depth < _DEEPEST else ""
        return known

    def _compute(self, value: Value, depth: int) -> str:
        instruction = value.instruction
        if instruction.opcode in _NO_VALUE or not value.shape.is_array:
            return ""
        if instruction.opcode == "parameter":
            name = instruction.op_name if not value.inside else ""
            return _digest("argument", name, value.shape.dtype, str(value.shape.dims)) if name else ""
        factors = product(self._values, value)
        sides = [factors.left, factors.right] if factors is not None else list(self._values.operands(value))
        parts = [self._of(side, depth + 1) for side in sides]
        if "" in parts:
            return ""
        attributes = str(factors.dims) if factors is not None else _attributes(instruction)
        return _digest("dot" if factors is not None else instruction.opcode, attributes, str(value.shape.dims), *parts)


def _attributes(instruction: Instruction) -> str:
    """The attributes that an instruction's value depends on, as text."""
    if instruction.opcode in _PLAIN:
        return ""
    words = [f"{name}={instruction.attribute(name)}" for name in sorted(instruction.attributes) if name not in _DESCRIPTIVE]
    return f"{words} {instruction.literal if instruction.opcode == 'constant' else ''} {instruction.custom_call_target}"


def _digest(*parts: str) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=_SIZE).hexdigest()
