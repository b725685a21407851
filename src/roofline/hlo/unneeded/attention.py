"""Attention that is not fused: its scores go through memory, and the masked half of them is computed.

Two products with a softmax between them: the first computes scores, one for each pair of positions, the second uses them. A fused kernel
keeps them on chip. Gradients read and write arrays of the same size. A loop over layers stores its scores for the loop of the gradients, in
arrays of all layers, which other kernels may fill or copy to another layout.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ...cost import Amount, Cost, less_traffic
from ...resource import HBM
from ...workload import Avoidable
from ..ir.module import Computation
from ..ir.scopes import direction
from ..ir.shapes import Shape
from ..price.traffic import source
from ..price.types import Site
from .kernels import Kernels, Product
from .positions import position
from .scores import Scores
from .values import Value, Values

KIND = "stored-attention"
_PRODUCTS = ("dot", "custom-call")
_MAKERS = (*_PRODUCTS, "fusion")
_SOFTMAX = ("exponential", "reduce")
_STOP = frozenset(("dot", "custom-call", "parameter", "while", "constant", "iota"))
_COMPARED = ("GE", "GT", "LE", "LT")


def stored_attention(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a computation that write or read scores, and their cost if the scores stayed on chip."""
    if not kernels.module.opcodes.issuperset(_SOFTMAX):
        return
    found = _all_scores(kernels) | {one.elements: one for one in _scores_of_loops(kernels)}
    if not found:
        return
    shapes = {id(one.shape): one.shape for one in kernels.computation.instructions}  # instructions share shape objects
    like = [(scores, {key for key, shape in shapes.items() if any(map(scores.is_like, shape.leaves))}) for scores in found.values()]
    for index, cost in kernels.costs.items():
        for scores, shapes_like in like:
            stored = _stored_bytes(kernels.computation, index, scores, shapes_like, cost.known(HBM))
            if not stored:
                continue
            is_product = any(resource.unit == "matrix" for resource, _ in cost.amounts)
            halved = scores.is_causal and is_product
            if halved:
                cost = Cost.of({resource: amount / 2 if resource.unit == "matrix" else amount for resource, amount in cost.amounts})
                yield index, Avoidable(kind="masked-attention", instead=cost, unneeded="masked")
            yield index, Avoidable(kind=KIND, instead=less_traffic(cost, stored))
            break


def _scores_of_loops(kernels: Kernels) -> tuple[Scores, ...]:
    """The scores of attention in the loops of a program, which other loops, and kernels between the loops, may also read or write."""
    values, module = kernels.values, kernels.module
    if values.scores_of_loops is None:
        loops = [(each, one) for each in module for one in each if one.opcode == "while"] if values.loop_bodies else []
        sites = [Site(module, each, one, kernels.platform) for each, one in loops]
        values.scores_of_loops = tuple([one for site in sites for one in _scores_of_loop(kernels, site)])
    return values.scores_of_loops


def _scores_of_loop(kernels: Kernels, loop: Site) -> Iterator[Scores]:
    """The scores in the body of a loop whose trip count is known."""
    if layers := kernels.pricer.trip_count(loop):
        for body in loop.instruction.called("body"):
            for one in _all_scores(Kernels(kernels.pricer, kernels.values, body)).values():
                yield replace(one, layers=layers)


def _all_scores(kernels: Kernels) -> dict[int, Scores]:
    """The scores of a computation's attention layers, by number of elements; of equally many, those of the last layer.

    Attention multiplies its scores in the forward pass, and gets their gradients from a product. A loss over all pairs, such as a
    contrastive one, multiplies them in the backward pass alone, and its gradients need no further product.

    Layers repeat: the first of each size gives the order of the result, and the last is searched from the end, so that few products are
    examined.
    """
    makers = [index for index, one in enumerate(kernels.computation.instructions) if one.opcode in _MAKERS]
    made = [(index, size) for index in makers for size in _score_sizes(kernels, index)]
    sizes = {size for _, size in made}
    sides = [(second, side) for second in kernels.products.values() for side in (second.left, second.right)]
    taking = [(second, side) for second, side in sides if side.shape.is_bounded and side.shape.elements in sizes]
    used = {side.shape.elements for second, side in taking if not _is_backward(second)}
    used |= {size for index, size in made if (first := kernels.product(index)) is not None and _is_backward(first)}
    scores = [side for _, side in taking if side.shape.elements in used]
    last = _first_scores(kernels, reversed(scores))
    return {size: last[size] for size in _first_scores(kernels, scores)}


def _is_backward(product: Product) -> bool:
    return direction(product.made.instruction.op_name) == "backward"


def _first_scores(kernels: Kernels, sides: Iterable[Value]) -> dict[int, Scores]:
    """The first scores of each size that some operands of products are computed from."""
    found: dict[int, Scores] = {}
    for side in sides:
        if side.shape.elements not in found and (scores := _scores(kernels, side)) is not None:
            found[side.shape.elements] = scores
    return found


def _score_sizes(kernels: Kernels, index: int) -> Iterator[int]:
    """The sizes of the products in a kernel that may be scores; most products are not."""
    product = kernels.product(index)
    if product is None or not _makes_scores(kernels.values, product):
        return
    for made in kernels.values.parts(kernels.computation, index):
        if made.opcode in _PRODUCTS and made.shape.is_bounded:
            yield made.shape.elements


def _makes_scores(values: Values, first: Product) -> bool:
    """Whether a product may be the first one of attention: its result is larger than its operands, and neither is a weight."""
    if not all(value.shape.is_bounded for value in (first.left, first.right, first.made)):
        return False
    inputs = (first.left.shape.bytes + first.right.shape.bytes) if first.left.shape.is_array else 0
    if first.made.shape.bytes <= inputs:
        return False
    return first.batch > 1 or all(values.origin(operand).opcode != "parameter" for operand in (first.left, first.right))


def _scores(kernels: Kernels, side: Value) -> Scores | None:
    """The scores that an operand of a product is computed from: a softmax of another product's result, of the same size."""
    values = kernels.values
    opcodes: set[str] = set()
    first: Product | None = None
    is_causal = False
    for value in values.ancestors(side, _STOP):
        opcode = value.opcode
        opcodes.add(opcode)
        if opcode == "select":
            is_causal = is_causal or _is_causal(values, values.operand(value, 0))
        if opcode in _PRODUCTS and value.shape.elements == side.shape.elements:
            holder = kernels.holding(value)
            first = first or (kernels.product(holder) if holder is not None else None)
    if first is None or not opcodes.issuperset(_SOFTMAX) or not _makes_scores(values, first):
        return None
    return Scores(side.shape.elements, first.rows, first.columns, is_causal)


def _is_causal(values: Values, predicate: Value) -> bool:
    """Whether a mask compares the positions of a query and a key."""
    for value in values.ancestors(predicate, frozenset(("compare", "parameter", "constant")), most=50):
        outside = values.before_loop(value) if value.opcode == "get-tuple-element" else None
        if outside is not None and _is_causal(values, outside):  # compilers compute a mask before the loop: it is the same for all layers
            return True
        if value.opcode != "compare" or value.instruction.word("direction").upper() not in _COMPARED:
            continue
        places = [position(values, values.operand(value, number)) for number in (0, 1)]
        if None not in places:
            return True
    return False


def _stored_bytes(computation: Computation, index: int, scores: Scores, shapes_like: set[int], moved: Amount) -> int:
    """Bytes that a kernel reads or writes of arrays with an element for each score; ``shapes_like`` are the ids of shapes with such arrays.

    If an array of all layers' scores is larger than the bytes that the kernel has ``moved``, one layer's part counts.
    """

    def bytes_in(shape: Shape) -> int:
        layers = scores.layers_in(shape)
        return 0 if not layers else shape.bytes // layers if shape.bytes > moved else shape.bytes

    instructions = computation.instructions
    instruction = instructions[index]
    is_like = id(instruction.shape) in shapes_like
    like = [operand for operand in instruction.operands if id(instructions[operand].shape) in shapes_like]
    if not is_like and not like:
        return 0
    written = sum(map(bytes_in, instruction.shape.leaves)) if is_like else 0
    read = {source(computation, operand, ()): instructions[operand].shape for operand in like}
    return written + sum(map(bytes_in, read.values()))
