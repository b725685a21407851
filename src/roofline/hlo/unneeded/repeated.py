"""Arrays that are repeated for a product: keys and values of a few heads, copied for many query heads, are read once for each.

A kernel that broadcasts the largest array it reads, and then adds products with it up, reads that array as often as it is repeated, from a
cache at best. A product over the groups reads it once.
"""

from collections.abc import Iterator

from ...units import parse
from ...workload import Avoidable
from ..ir.module import Computation
from .kernels import DOTS, Kernels
from .values import RENAMED

KIND = "repeated-operand"
_LEAST = parse("1 MB", "B")  # of an array: smaller ones stay in the cache
_SUMMED = frozenset((*DOTS, "reduce"))


def repeated_operands(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that repeat the largest array they read for a sum of products, with how often."""
    known: dict[str, int] = {}  # several kernels may have one body
    for index, cost in kernels.costs.items():
        body = kernels.values.body(kernels.computation[index])
        if body is None or _SUMMED.isdisjoint(kernels.values.opcodes(body)):
            continue
        if body.name not in known:
            known[body.name] = _repeated(body)
        times = known[body.name]
        if times >= 2:
            why = f"reads an array {times} times because it is repeated for a matmul"
            yield index, Avoidable(kind=KIND, instead=cost, why=why)


def _repeated(body: Computation) -> int:
    """How often a body repeats the largest array it reads; 1 where it does not."""
    arrays = [one for one in body.instructions if one.opcode == "parameter" and one.shape.is_array and one.shape.is_bounded]
    largest = max(arrays, key=lambda one: one.shape.bytes, default=None)
    if largest is None or largest.shape.bytes < _LEAST:
        return 1
    found = 1
    for one in body.instructions:
        if one.opcode != "broadcast" or not one.operands or not one.shape.is_bounded:
            continue
        source = body[one.operands[0]]
        while source.opcode in RENAMED and source.operands:
            source = body[source.operands[0]]
        if source is largest and "multiply" in {user.opcode for user in body.instructions}:
            found = max(found, one.shape.elements // max(source.shape.elements, 1))
    return found
