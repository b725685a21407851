"""The state of loops that carried sums depend on, and products whose depth a compiler split."""

from msgspec import Struct

from ..ir.module import Computation
from .kernels import Kernels, Product
from .values import LAYOUT, RENAMED, Value, Values

_COUNTERS = frozenset(("s32", "s64", "u32", "u64"))
_MOST_VISITED = 2_000  # values that an operand depends on


class Loop(Struct, frozen=True):
    """A loop's body: which parts of its state do not change, and which change other than by counting."""

    values: Values
    body: Computation
    same: frozenset[int]
    changing: frozenset[int]

    @classmethod
    def around(cls, kernels: Kernels) -> "Loop | None":
        """The loop whose body a computation is; ``None`` if it is not a loop's body."""
        body, root = kernels.computation, kernels.computation.root_instruction
        if kernels.number not in kernels.values.loop_bodies or root.opcode != "tuple" or len(body.parameters) != 1:
            return None
        same, changing = set[int](), set[int]()
        for place, operand in enumerate(root.operands):
            made = kernels.values.origin(Value(body, operand), LAYOUT)
            is_parameter = made.opcode == "get-tuple-element" and made.instruction.operands[0] == body.parameters[0]
            if is_parameter and made.instruction.integer("index") == place:
                same.add(place)
            elif not (made.shape.is_array and made.shape.dtype in _COUNTERS and made.shape.elements == 1):
                changing.add(place)
        return cls(kernels.values, body, frozenset(same), frozenset(changing))

    def repeats(self, weights: Value, rows: Value) -> bool:
        """Whether every iteration reads the same weights, and computes its rows without the results of other iterations."""
        return not self._parts(weights) & self.changing and bool(self._parts(weights)) and not self._parts(rows) & self.changing

    def is_recurrent(self, found: Product) -> bool:
        """Whether a product depends on the results of other iterations."""
        return bool((self._parts(found.left) | self._parts(found.right)) & self.changing)

    def reads(self, value: Value, place: int) -> bool:
        """Whether a value is computed from a part of the state."""
        return place in self._parts(value)

    def _parts(self, value: Value) -> set[int]:
        """The parts of the state that a value is computed from; all of them if the search is cut short."""
        found, looked = set[int](), 0
        for one in self.values.ancestors(value, frozenset(("get-tuple-element",)), most=_MOST_VISITED):
            looked += 1
            if one.opcode == "get-tuple-element" and one.computation is self.body:
                if one.instruction.operands[0] == self.body.parameters[0]:
                    found.add(one.instruction.integer("index") or 0)
                else:  # a result of a kernel with several
                    found |= self._parts(Value(self.body, one.instruction.operands[0]))
        return found if looked < _MOST_VISITED else found | self.changing


def is_split(kernels: Kernels, index: int, parts: int) -> bool:
    """Whether the batch of a product is summed right after: it is one product whose depth was split into ``parts``."""
    if index not in kernels.splits:
        computation, users = kernels.computation, kernels.values.users(kernels.computation, index)
        reductions = (kernels.values.parts_with("reduce", computation, user) for user in users)
        summed = (any(_sums(kernels, made, index, parts) for made in inside) for inside in reductions)
        kernels.splits[index] = bool(users) and all(summed)
    return kernels.splits[index]


def _sums(kernels: Kernels, made: Value, index: int, parts: int) -> bool:
    """Whether a reduction sums a kernel's result over the parts, which are its first dimension."""
    if made.instruction.dimensions[:1] != (0,):
        return False
    summed = kernels.values.operand(made, 0)
    while summed.opcode in RENAMED and summed.shape.dims[:1] == (parts,):
        summed = kernels.values.operand(summed, 0)
    return kernels.holding(kernels.values.made_by(summed)) == index
