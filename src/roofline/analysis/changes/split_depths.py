"""Split-k: products of few rows whose contracted dimension XLA splits into parts, which another kernel adds up.

With more rows it uses fewer parts, or one: parts keep more cores busy, but the traffic of their partial sums grows with the rows.
"""

from collections.abc import Iterator
from math import inf

from msgspec.structs import replace

from ...cost import Cost
from ...hlo.ir.module import HloModule
from ...hlo.review import Review
from ...operation import Product, width
from ...prediction import predict
from ...resource import HBM, matrix
from .state import State

Place = tuple[int, int]  # indices of a computation and an instruction


def with_fewer_parts(state: State, review: Review, place: Place, made: Product) -> Product | None:
    """A split-k product with the number of parts that is fastest, if that is fewer."""
    if made.batch == 1 or not review.is_split(*place):
        return None
    best = min(_split(made), key=lambda option: _seconds(state, option))
    return best if best.batch < made.batch else None


def add_up_fewer(state: State, module: HloModule, review: Review, place: Place, before: Product, after: Product) -> None:
    """Subtract the bytes of removed parts from the kernels that add up the parts."""
    computation = module.computations[place[0]]
    adding = {computation[user].name for user in review.values.users(computation, place[1])}
    for index, op in state:
        if op.module == module.name and op.name in adding and op.cost.known(HBM):
            amounts = {resource: float(amount) for resource, amount in op.cost.amounts}
            amounts[HBM] = max(amounts[HBM] - (_partial_bytes(before) - _partial_bytes(after)) * op.count, 0.0)
            state.put(index, Cost.of(amounts), op.operation, 0.0)


def cost_of(product: Product) -> Cost:
    """The cost of one execution of a product."""
    return Cost.of({matrix(product.compute): product.flops, HBM: product.bytes})


def _split(made: Product) -> Iterator[Product]:
    """A product with its current number of parts, half as many, and so on; with one part, the result has the format of the operands."""
    parts, depth = int(made.batch), int(made.batch * made.k)
    while parts >= 1:
        yield replace(made, batch=parts, k=depth // parts, out=made.out if parts > 1 else made.left)
        parts //= 2


def _seconds(state: State, option: Product) -> float:
    """The time of a product plus that of reading its parts."""
    found, memory = predict(option, cost_of(option), state.machine, state.calibration), state.machine.resolve(HBM.name)
    return found.time_s + _partial_bytes(option) / memory.rate if found and memory else inf


def _partial_bytes(product: Product) -> float:
    return float(product.batch * product.m * product.n) * width(product.out)
