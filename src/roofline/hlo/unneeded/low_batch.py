"""Products that read weights for a few rows: their time is that of reading the weights, and more rows would take no longer.

In a loop with independent iterations (microbatches, `lax.map`) the weights are read again for every part of the rows.
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable, Saves
from ..ir.module import Computation
from .kernels import Kernels, Product
from .unused_in_loops import only_for, writer_of
from .values import LAYOUT, RENAMED, Value, Values

KIND = "low-batch"
LOOP = "loop"  # the group of products in loops, whose iterations could share the weights
FEW_ROWS = 8
FEW_IN_LOOPS = 256  # in a loop, whose other iterations have more rows
_MOVES = LAYOUT | {"convert", "slice", "dynamic-slice", "parameter", "constant"}
_COUNTERS = frozenset(("s32", "s64", "u32", "u64"))
_WEIGHTS_SHARE = 0.7  # of an op's bytes
_MOST_VISITED = 2_000  # values that an operand depends on


def low_batches(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of few rows whose bytes are nearly all weights. Eight times the rows would take about the same time.

    Each row would then have an eighth of the bytes and the same FLOP. A few such products among large ones do not mean a small batch, such
    as the logits of the last of many tokens.
    """
    loop = Loop.around(kernels)
    few = [index for index, found in kernels.products.items() if min(found.rows, found.columns) <= FEW_ROWS]
    is_small = not kernels.are_few(few)
    stacked = _only_stacked(kernels) if loop is not None else frozenset()
    moved: dict[int, Avoidable] = {}  # the kernels that copy the weights of such a product
    for index, found in kernels.products.items():
        if found.is_of_vectors or (found.batch > 1 and not is_split(kernels, index, found.batch)):
            continue
        cost = kernels.costs[index]
        for weights, rows in ((found.right, found.rows), (found.left, found.columns)):
            other = found.left if weights is found.right else found.right
            again = (
                rows <= FEW_IN_LOOPS and loop is not None and (loop.repeats(weights, other) or (index in stacked and loop.keeps(weights)))
            )
            if ((is_small and rows <= FEW_ROWS) or again) and _are_weights(kernels.values, weights, cost, loop if again else None):
                facts = {"weights": weights.shape.bytes, "rows": rows}
                reason = Avoidable(
                    kind=KIND,
                    instead=_shared(cost),
                    facts=facts,
                    group=LOOP if again else "",
                    saves=Saves.SHARED_LOOP if again else Saves.SHARED_READS,
                )
                yield index, reason
                moved.update(dict.fromkeys(_copies(kernels, weights), reason))
                break
        else:
            if loop is not None and found.depth <= FEW_IN_LOOPS and loop.sums(found, cost):
                facts = {"gradients": found.made.shape.bytes, "rows": found.depth}
                reason = Avoidable(kind=KIND, instead=_shared(cost), cause="written", facts=facts, group=LOOP, saves=Saves.SHARED_LOOP)
                yield index, reason

    for index, reason in moved.items():
        yield index, replace(reason, instead=_shared(kernels.costs[index]))


def _only_stacked(kernels: Kernels) -> frozenset[int]:
    """The kernels of a loop's body for results alone that it stacks, one slice per iteration: no later iteration waits for them."""
    body = kernels.computation
    writers = [writer_of(kernels.values, body, part) for part in range(len(body.root_instruction.operands))]
    return frozenset([index for writer in writers if writer is not None for index in only_for(kernels, body, writer)])


def _copies(kernels: Kernels, weights: Value) -> Iterator[int]:
    """The kernels that only slice weights out of a larger array, or convert them, for a product."""
    made = kernels.values.origin(weights, frozenset(("bitcast", "reshape")))
    index = kernels.holding(made)
    if index is None or index not in kernels.costs:
        return
    if kernels.values.opcodes(kernels.computation[index]) <= _MOVES:
        yield index


def _shared(cost: Cost) -> Cost:
    """The cost per row if eight times the rows share the bytes."""
    return Cost.of({resource: amount / FEW_ROWS if resource.measure == "B" else amount for resource, amount in cost.amounts})


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

    def keeps(self, weights: Value) -> bool:
        """Whether weights are a part of the state that no iteration changes, not a slice of one."""
        made = self.values.origin(weights)
        return self.is_state(made) and made.instruction.integer("index") in self.same

    def is_state(self, value: Value) -> bool:
        """Whether a value is a part of the state as the iteration gets it."""
        is_part = value.computation is self.body and value.opcode == "get-tuple-element"
        return is_part and value.instruction.operands[0] == self.body.parameters[0]

    def is_free(self, value: Value) -> bool:
        """Whether a value does not depend on the results of other iterations."""
        return not self._parts(value) & self.changing

    def sums(self, found: Product, cost: Cost) -> bool:
        """Whether most bytes of a product are its result, which is summed over independent iterations."""
        made = found.made.shape.bytes if found.made.shape.is_array else 0
        independent = not (self._parts(found.left) | self._parts(found.right)) & self.changing
        return independent and made >= _WEIGHTS_SHARE / 2 * cost.known(HBM) and min(found.rows, found.columns) > found.depth

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


def _are_weights(values: Values, side: Value, cost: Cost, loop: Loop | None) -> bool:
    """Whether an operand is an argument of the program, or of a loop's body, and most of the bytes that the product moves.

    In a loop that reads the same weights again, half of that share is enough: the gradient of weights writes as many bytes.
    """
    share = _WEIGHTS_SHARE if loop is None else _WEIGHTS_SHARE / 2
    origin = values.origin(side, LAYOUT | {"convert", "dynamic-slice", "slice"})
    return origin.opcode in ("parameter", "get-tuple-element") and origin.shape.is_array and side.shape.bytes >= share * cost.known(HBM)
