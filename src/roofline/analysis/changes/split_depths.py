"""Products of few rows whose depth XLA split into parts, which another kernel adds up: with more rows it makes fewer parts, or one.

Parts keep more cores busy, and cost the traffic of their partial sums, which grows with the rows.
"""

from collections.abc import Iterator
from math import inf

from msgspec.structs import replace

from ...cost import Cost
from ...hlo.ir.module import HloModule
from ...hlo.unneeded import Review
from ...operation import Product, width
from ...prediction import predict
from ...resource import HBM, matrix
from .state import State

Place = tuple[int, int]  # a computation and an instruction of it


def with_fewer_parts(state: State, review: Review, place: Place, made: Product) -> Product | None:
    """A product whose depth is split, in as many parts as make it fastest, if those are fewer."""
    if made.batch == 1 or not review.is_split(*place):
        return None
    best = min(_split(made), key=lambda option: _seconds(state, option))
    return best if best.batch < made.batch else None


def add_up_fewer(state: State, module: HloModule, review: Review, place: Place, before: Product, after: Product) -> None:
    """Take the bytes of parts that are no longer there from the kernels that add them up."""
    computation = module.computations[place[0]]
    adding = {computation[user].name for user in review.values.users(computation, place[1])}
    for index, op in state:
        if op.module == module.name and op.name in adding and op.cost.known(HBM):
            amounts = {resource: float(amount) for resource, amount in op.cost.amounts}
            amounts[HBM] = max(amounts[HBM] - (_partial_bytes(before) - _partial_bytes(after)) * op.count, 0.0)
            state.put(index, Cost.of(amounts), op.operation, 0.0)


def cost_of(product: Product) -> Cost:
    """What one execution of a product costs."""
    return Cost.of({matrix(product.compute): product.flops, HBM: product.bytes})


def _split(made: Product) -> Iterator[Product]:
    """A product in as many parts, in half of them, and so on; one part is written as what was multiplied."""
    parts, depth = int(made.batch), int(made.batch * made.k)
    while parts >= 1:
        yield replace(made, batch=parts, k=depth // parts, out=made.out if parts > 1 else made.left)
        parts //= 2


def _seconds(state: State, option: Product) -> float:
    """How long a product takes, and the reading of its parts."""
    found, memory = predict(option, cost_of(option), state.machine, state.calibration), state.machine.resolve(HBM.name)
    return found.time_s + _partial_bytes(option) / memory.rate if found and memory else inf


def _partial_bytes(product: Product) -> float:
    return float(product.batch * product.m * product.n) * width(product.out)
