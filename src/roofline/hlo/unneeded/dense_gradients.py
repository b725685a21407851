"""Updates of a whole table, such as an embedding, although a step uses only a few rows: the gradient of all others is zero."""

from collections.abc import Iterator

from msgspec import Struct

from ...cost import NOTHING
from ...workload import Avoidable
from ..ir.module import Computation, Instruction
from ..price.types import Site
from .kernels import Kernels
from .program_arrays import results_of
from .values import LAYOUT, Value, Values

KIND = "dense-gradient"
_MOST_ROWS = 1 / 8  # of a table: gathering and scattering more rows takes as long as updating all
_ONE_ARRAY = 3  # operands of a scatter to one array: the array, the indices, the updates
_PASSED = LAYOUT | {"convert"}


class Gradient(Struct, frozen=True):
    """The gradient of a table: the instruction whose result it is, the zeros that it begins with, and the elements added to them."""

    place: int
    zeros: Value
    added: int


def dense_gradients(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that update a table from the gradient of a few of its rows, and those that fill the rest of the gradient with zeros."""
    if not kernels.are_in_entry or "scatter" not in kernels.module.opcodes:
        return
    for found in (*_scattered(kernels), *_accumulated(kernels)):
        elements = kernels.computation[found.place].shape.elements
        if found.added > _MOST_ROWS * elements:
            continue
        updating = _update_kernels(kernels, found.place, elements)
        if not updating or results_of(kernels.computation).isdisjoint(updating):
            continue
        share = found.added / elements
        facts = {"share": share}
        for place in updating:
            yield place, Avoidable(kind=KIND, instead=kernels.costs[place] * share, facts=facts)
        filler = kernels.holding(found.zeros)
        if filler in kernels.costs and filler != found.place:
            yield filler, Avoidable(kind=KIND, instead=NOTHING, facts=facts)


def _scattered(kernels: Kernels) -> Iterator[Gradient]:
    """The gradients that a kernel scatters into an array of zeros."""
    for index in kernels.costs:
        made = kernels.values.origin(Value(kernels.computation, index), _PASSED)
        if not _is_scatter(made) or kernels.holding(made) != index:
            continue
        zeros = kernels.values.origin(kernels.values.operand(made, 0))
        if _is_filled(kernels.values, zeros):
            yield Gradient(index, zeros, kernels.values.operand(made, 2).shape.elements)


def _accumulated(kernels: Kernels) -> Iterator[Gradient]:
    """The gradients that a loop sums: each trip scatters into the sum of the ones before, as for microbatches."""
    values, entry = kernels.values, kernels.computation
    for place, one in enumerate(entry.instructions):
        loop = entry[one.operands[0]] if one.opcode == "get-tuple-element" else None
        if loop is None or loop.opcode != "while" or not one.shape.is_array:
            continue
        part, start = one.integer("index") or 0, values.made_by(Value(entry, loop.operands[0]))
        trips = kernels.pricer.trip_count(Site(kernels.module, entry, loop, kernels.platform))
        if not trips or start.opcode != "tuple":
            continue
        zeros = values.origin(values.operand(start, part))
        added = [_added_in(values, kernels.module.computations[body], part) for body in loop.called("body")]
        if _is_filled(values, zeros) and all(added):
            yield Gradient(place, zeros, trips * sum(added))


def _added_in(values: Values, body: Computation, part: int) -> int:
    """The elements that a trip of a loop adds to a part of its state, by a scatter to it or to zeros; 0 if it does anything else."""
    root = body.root_instruction
    if root.opcode != "tuple":
        return 0
    made = values.origin(Value(body, root.operands[part]), _PASSED)
    operands = [values.origin(one, _PASSED) for one in values.operands(made)]
    if _is_scatter(made):
        scatter, before = made, operands[0]
    elif made.opcode == "add" and any(map(_is_scatter, operands)):
        before, scatter = sorted(operands, key=_is_scatter)
        if not _is_filled(values, values.origin(values.operand(scatter, 0))):
            return 0
    else:
        return 0
    is_state = before.computation is body and before.opcode == "get-tuple-element" and (before.instruction.integer("index") or 0) == part
    return values.operand(scatter, 2).shape.elements if is_state and len(values.users(body, before.index)) == 1 else 0


def _is_scatter(value: Value) -> bool:
    return value.opcode == "scatter" and len(value.instruction.operands) == _ONE_ARRAY and value.shape.is_bounded


def _is_filled(values: Values, value: Value) -> bool:
    """Whether all elements of an array are one constant."""
    if value.opcode == "broadcast":
        value = values.origin(values.operand(value, 0))
    return value.opcode == "constant"


def _update_kernels(kernels: Kernels, gradient: int, elements: int) -> list[int]:
    """The kernels that compute from a gradient and arguments of its size alone; empty if the gradient has any other use."""
    entry, found, pending = kernels.computation, dict.fromkeys((gradient,)), [gradient]
    while pending:
        for user in sorted(kernels.users(pending.pop()) - found.keys()):
            if user not in kernels.costs:
                if entry[user].opcode == "tuple" and user == entry.root:
                    continue
                return []
            large = [place for place in entry[user].operands if _size(entry[place]) >= elements]
            makers = [kernels.values.origin(Value(entry, place), _PASSED) for place in large]
            others = [made for made in makers if made.opcode != "parameter" and kernels.holding(made) not in found]
            if others or kernels.product(user) is not None or user in kernels.convolutions:
                return []
            found[user] = None
            pending.append(user)
    return [place for place in found if place != gradient]


def _size(instruction: Instruction) -> int:
    return max((leaf.elements for leaf in instruction.shape.leaves if leaf.is_array), default=0)
