"""Kernels of equal layers: in a program of very many instructions, those of one layer stand for the others.

Two kernels a layer apart are alike where nothing tells them apart that a price or a finding follows from: their opcodes, shapes and
attributes, the bodies they call, the values of their own layer that they take, and their names but for numbers.
"""

from collections.abc import Hashable, Sequence

from ..ir.layers import Stretch, layer_length, repeated_layers, takes_the_same
from ..ir.module import Computation, HloModule, Instruction

MANY = 10_000  # instructions of an entry: in fewer no layers are looked for
_RUN = frozenset(("while", "conditional", "call", "async-start"))  # whose work is that of other computations
_NAMED = frozenset(("pad", "scatter"))  # of which the framework's name tells who wrote them
_DIGITS = b"0123456789"


def equal_layers(module: HloModule) -> Stretch | None:
    """The equal layers of a program's entry, if it has very many instructions."""
    if len(module.entry_computation) < MANY:
        return None
    forms = _Forms(module)
    period = layer_length(module.entry_computation, forms.are_alike)
    return None if period is None else repeated_layers(module.entry_computation, period, forms.are_alike)


class _Forms:
    """The bodies of a module by what they do: equal ones have one number."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._numbers: dict[int, int] = {}
        self._kinds: dict[int, int] = {}
        self._known: dict[Hashable, int] = {}

    def are_alike(self, instructions: Sequence[Instruction], index: int, period: int) -> bool:
        """Whether a kernel does the same as the one a layer later."""
        return self._kind(instructions, index) == self._kind(instructions, index + period) and takes_the_same(instructions, index, period)

    def _kind(self, instructions: Sequence[Instruction], index: int) -> int:
        """A number for what a kernel of the entry does, whatever it takes."""
        known = self._kinds.get(index)
        if known is None:
            one = instructions[index]
            names = _without_digits(f"{one.name} {one.op_name}")
            form = (one.opcode, id(one.shape), names, self._said(one), one.calls and self._called(one), one.opcode in _RUN and index)
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
        each = [
            (
                one.opcode,
                id(one.shape),  # readers share equal shapes, and the module keeps them
                one.operands,
                self._said(one),
                one.calls and self._called(one),
                _without_digits(one.op_name) if one.opcode in _NAMED else b"",
            )
            for one in body.instructions
        ]
        return body.root, body.parameters, *each

    def _said(self, instruction: Instruction) -> Hashable:
        """The attributes of an instruction but for the names of what it calls; its own where nothing compares them."""
        words = instruction.dialect.unread(instruction.raw)
        if words is None and isinstance(instruction.raw, dict):
            return tuple([(name, str(value)) for name, value in instruction.raw.items() if name != "metadata"])
        if instruction.calls and isinstance(words, str):
            for call in instruction.calls:
                words = words.replace(f"%{self._module.computations[call.computation].name}", "%")
        return id(instruction) if words is None else words


def _without_digits(name: str) -> bytes:
    """A name but for its numbers; bytes, in which deleting takes a fifth of the time."""
    return name.encode(errors="surrogatepass").translate(None, _DIGITS)
