"""Products of which each row needs only one: both branches of a condition, or experts one after another with other rows set to zero.

A select takes whole rows by a predicate that is the same along each. If both sides are computed by products, a row needs one of them; if
predicates compare one number per row with different constants, a row needs at most one of the products.
"""

from collections.abc import Iterator

from ...cost import Cost, less_traffic
from ...rules.unused_results.parts import CLASS, KIND
from ...workload import Avoidable
from . import experts
from .kernels import Kernels
from .selected_experts import MOST_VISITED, PASSED, Expert, Selection, products_of_experts, source_products
from .values import SPREAD, Value

_PASSED = PASSED | {"select"}
_STOP = frozenset(("parameter", "constant", "iota", "dot", "sort", "topk", "custom-call", "compare"))
_MOST_CHOSEN = 16  # experts of a row
_MOST_LAYERS = 1000  # instructions of the layers before a product that are looked at
Group = tuple[str, object]


def selected_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products that a computation computes for all rows although each row uses only one of them."""
    if "select" not in kernels.module.opcodes or len(kernels.products) < 2:
        return
    chosen: dict[Group, set[int]] = {}
    constants: dict[object, set[object]] = {}
    selects = [one for one in kernels.parts_with("select") if _is_by_row(kernels, kernels.values.operand(one, 0), one)]
    selections = [found for one in selects if (found := _selection(kernels, one)) is not None]
    for index, count, top in products_of_experts(kernels, [*selections, *_gated(kernels)]):
        yield index, _instead(kernels, index, experts.KIND, count, top)
    for select in selects:
        predicate, one, other = kernels.values.operands(select)
        products = [source_products(kernels, side, _PASSED) for side in (one, other)]
        if all(products) and _are_apart(kernels, *products):
            chosen.setdefault((KIND, select.key), set()).update(*products)
        elif any(products) and (compared := _compared(kernels, predicate)) is not None:
            number, constant = compared
            chosen.setdefault((experts.KIND, number), set()).update(*products)
            constants.setdefault(number, set()).add(constant)
    for (kind, number), mine in chosen.items():
        count, sizes = len(mine), {kernels.products[index].flops for index in mine}
        if count < 2 or len(sizes) > 1 or (kind == experts.KIND and len(constants[number]) < count):
            continue
        for index in sorted(mine):
            yield index, _instead(kernels, index, kind, count)


def _are_apart(kernels: Kernels, some: set[int], others: set[int]) -> bool:
    """Whether no product is on both sides, and none reads results of the other side's, as a layer reads those of the layers before it."""
    return some.isdisjoint(others) and not _reads(kernels, some, others) and not _reads(kernels, others, some)


def _reads(kernels: Kernels, readers: set[int], products: set[int]) -> bool:
    """Whether some products depend on the results of others."""
    results = {kernels.products[index].made.key for index in products}
    sides = [side for index in readers for side in (kernels.products[index].left, kernels.products[index].right)]
    return any(one.key in results for side in sides for one in kernels.values.ancestors(side, frozenset(), most=_MOST_LAYERS))


def _selection(kernels: Kernels, select: Value) -> Selection | None:
    """A select as the selection of an expert's rows; ``None`` if it is not one."""
    predicate, taken, other = kernels.values.operands(select)
    compared = _compared(kernels, predicate)
    if compared is None:
        return None
    expert = Expert(*compared, select.shape.elements // max(select.shape.dims[-1], 1))
    return Selection(select, taken, expert, kernels.values.origin(other, SPREAD).opcode == "constant")


def _gated(kernels: Kernels) -> Iterator[Selection]:
    """The elementwise multiplications by a gate per row that compares the chosen experts with one expert."""
    if "compare" not in kernels.module.opcodes:
        return
    for made in kernels.parts_with("multiply"):
        sides = kernels.values.operands(made)
        for gate, taken in (sides, sides[::-1]):
            spread = kernels.values.origin(gate)
            if spread.opcode != "broadcast" or not made.shape.dims or not _is_alike_along_rows(kernels, spread):
                continue
            rows = made.shape.elements // max(made.shape.dims[-1], 1)
            ancestors = kernels.values.ancestors(spread, _STOP, most=MOST_VISITED)
            found = {compared: one for one in ancestors if one.opcode == "compare" and (compared := _compared(kernels, one)) is not None}
            tops = {one.shape.elements / rows for one in found.values()}
            if len(found) == 1 and tops <= {float(top) for top in range(1, _MOST_CHOSEN + 1)}:
                yield Selection(made, taken, Expert(*next(iter(found)), rows, int(tops.pop())), is_zero_elsewhere=True)


def _instead(kernels: Kernels, index: int, kind: str, count: int, top: int = 1) -> Avoidable:
    cost, made = kernels.costs[index], kernels.products[index].made
    written = made.shape.bytes if made.shape.is_array else 0
    factor = count / top
    amounts = {resource: amount / factor if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
    instead = less_traffic(Cost.of(amounts), written * (1 - 1 / factor))
    if kind == experts.KIND:
        facts = {"experts": count, "chosen": top}
        return Avoidable(kind=kind, instead=instead, cause="selected", facts=facts, unneeded=experts.CLASS, factor=factor)
    facts = {"branches": count, "chosen": top}
    return Avoidable(kind=kind, instead=instead, cause="branches", facts=facts, unneeded=CLASS, factor=factor)


def _is_by_row(kernels: Kernels, predicate: Value, select: Value) -> bool:
    """Whether a predicate is the same along the last axis of a select."""
    if not select.shape.is_array or not select.shape.dims:
        return False
    made = kernels.values.origin(predicate)
    if made.opcode == "compare":  # of numbers that were broadcast before
        sides = [kernels.values.origin(side) for side in kernels.values.operands(made)]
        return all(_is_alike_along_rows(kernels, side) for side in sides)
    return predicate.shape.elements == 1 or _is_alike_along_rows(kernels, made)


def _is_alike_along_rows(kernels: Kernels, spread: Value) -> bool:
    """Whether a value is broadcast along its last axis."""
    if spread.opcode != "broadcast":
        return spread.opcode == "constant"
    last, dimensions = len(spread.shape.dims) - 1, spread.instruction.dimensions
    return last not in dimensions or kernels.values.operand(spread, 0).shape.dims[dimensions.index(last)] == 1


def _compared(kernels: Kernels, predicate: Value) -> tuple[object, object] | None:
    """The key of the value that a predicate compares with a constant for equality, and the constant."""
    made = kernels.values.origin(predicate, SPREAD)
    if made.opcode != "compare" or made.instruction.word("direction").upper() != "EQ":
        return None
    sides = [kernels.values.origin(side, SPREAD) for side in kernels.values.operands(made)]
    for number, constant in (sides, sides[::-1]):
        if constant.opcode == "constant" and number.opcode != "constant":
            return number.key, constant.instruction.literal
    return None
