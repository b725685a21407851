"""Equal layers of a program with very many instructions: only the kernels of one layer need to be priced and reviewed.

Two kernels one layer apart are equal if everything is that prices and findings depend on: opcodes, shapes, attributes, called
computations, operands in their own layer, and names without their numbers.
"""

from collections.abc import Hashable, Sequence

from ..ir.layers import LayerRun, layer_length, repeated_layers, takes_the_same
from ..ir.module import Computation, HloModule, Instruction

MANY = 10_000  # instructions of an entry computation from which on equal layers are searched
_RUN = frozenset(("while", "conditional", "call", "async-start"))  # opcodes that run other computations
_NAMED = frozenset(("pad", "scatter"))  # opcodes whose framework name says whether the user or the compiler wrote them
_DIGITS = b"0123456789"


def equal_layers(module: HloModule) -> LayerRun | None:
    """The equal layers of a program's entry, if it has very many instructions."""
    if len(module.entry_computation) < MANY:
        return None
    forms = _Forms(module)
    period = layer_length(module.entry_computation, forms.are_alike)
    return None if period is None else repeated_layers(module.entry_computation, period, forms.are_alike)


class _Forms:
    """Numbers for the instructions and computations of a module: those that do the same have the same number."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._numbers: dict[int, int] = {}
        self._kinds: dict[int, int] = {}
        self._known: dict[Hashable, int] = {}

    def are_alike(self, instructions: Sequence[Instruction], index: int, period: int) -> bool:
        """Whether a kernel does the same as the one a layer later."""
        return self._kind(instructions, index) == self._kind(instructions, index + period) and takes_the_same(instructions, index, period)

    def _kind(self, instructions: Sequence[Instruction], index: int) -> int:
        """The number of an instruction of the entry, regardless of its operands."""
        known = self._kinds.get(index)
        if known is None:
            instruction = instructions[index]
            names = _without_digits(f"{instruction.name} {instruction.op_name}")
            form = (
                instruction.opcode,
                id(instruction.shape),
                names,
                self._attributes(instruction),
                instruction.calls and self._called(instruction),
                instruction.opcode in _RUN and index,
            )
            known = self._kinds[index] = self._known.setdefault(form, len(self._known))
        return known

    def _called(self, instruction: Instruction) -> tuple[tuple[str, int], ...]:
        return tuple([(call.role, self._number(call.computation)) for call in instruction.calls])

    def _number(self, computation: int) -> int:
        if computation not in self._numbers:
            form = self._form(self._module.computations[computation])
            self._numbers[computation] = self._known.setdefault(form, len(self._known))
        return self._numbers[computation]

    def _form(self, body: Computation) -> Hashable:
        forms = [
            (
                instruction.opcode,
                id(instruction.shape),  # readers share equal shapes, and the module keeps them
                instruction.operands,
                self._attributes(instruction),
                instruction.calls and self._called(instruction),
                _without_digits(instruction.op_name) if instruction.opcode in _NAMED else b"",
            )
            for instruction in body.instructions
        ]
        return body.root, body.parameters, *forms

    def _attributes(self, instruction: Instruction) -> Hashable:
        """The attributes of an instruction without the names of the computations it calls; its id if the attributes cannot be compared."""
        text = instruction.dialect.unread(instruction.raw)
        if text is None and isinstance(instruction.raw, dict):
            return tuple([(name, str(value)) for name, value in instruction.raw.items() if name != "metadata"])
        if instruction.calls and isinstance(text, str):
            for call in instruction.calls:
                text = text.replace(f"%{self._module.computations[call.computation].name}", "%")
        return id(instruction) if text is None else text


def _without_digits(name: str) -> bytes:
    """A name without its digits; as bytes, because deleting from those takes a fifth of the time."""
    return name.encode(errors="surrogatepass").translate(None, _DIGITS)
