"""Inverses that are computed only to be multiplied: solving for what they multiply takes fewer FLOP, and loses fewer digits.

An inverse is the solution for the identity, as many columns as the matrix has. A solution for a few columns does a part of that work.
"""

from collections.abc import Iterator

from ...cost import Cost
from ...workload import Avoidable
from .kernels import Kernels
from .positions import is_diagonal
from .values import LAYOUT, RENAMED, Value

KIND, GROUP = "product-order", "inverse"
_SOLVES = "__cublas$triangularSolve"
_MOVES = LAYOUT | {"parameter"}
_SPREAD = RENAMED | {"broadcast", "gather"}
_MATRIX_AND_COLUMNS = 2  # operands of a solve
_MOST_COLUMNS = 0.5  # of the order of the matrix: with more, a solve saves little


def inverses(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The solves for an identity whose solution is only multiplied by a few columns, and their cost for these columns."""
    for solves in _chains(kernels):
        made = Value(kernels.computation, solves[-1]).shape
        used = [_size(kernels, user) for user in _users(kernels, solves[-1])]
        if not used or None in used:
            continue
        share = max(size for size in used if size is not None) / made.elements
        order = made.dims[-1]
        if share > _MOST_COLUMNS:
            continue
        columns = max(round(share * order), 1)
        facts = {"order": order, "columns": columns}
        for index in solves:
            yield index, Avoidable(kind=KIND, instead=_for_columns(kernels.costs[index], share), facts=facts, group=GROUP)


def _chains(kernels: Kernels) -> list[list[int]]:
    """The solves for an identity, each with the solves for its solution: those with both factors of a matrix."""
    chains: list[list[int]] = []
    for index in kernels.costs:
        instruction = kernels.computation[index]
        is_solve = instruction.opcode == "triangular-solve" or instruction.custom_call_target == _SOLVES
        if not is_solve or len(instruction.operands) < _MATRIX_AND_COLUMNS:
            continue
        columns = Value(kernels.computation, instruction.operands[1])
        before = kernels.holding(kernels.values.origin(columns, LAYOUT))
        chain = next((one for one in chains if one[-1] == before), None)
        if chain is not None:
            chain.append(index)
        elif is_diagonal(kernels.values, kernels.values.origin(columns, _SPREAD)):  # the identity, perhaps with its rows in another order
            chains.append([index])
    return chains


def _users(kernels: Kernels, index: int) -> set[int]:
    """The kernels that use a kernel's result, followed through those that only change its layout."""
    found = set[int]()
    for user in kernels.users(index):
        only_moves = kernels.values.opcodes(kernels.computation[user]) <= _MOVES
        found |= _users(kernels, user) if only_moves else {user}
    return found


def _size(kernels: Kernels, user: int) -> int | None:
    """The number of elements of what a kernel computes from an inverse; ``None`` if it does not multiply by it."""
    shape = Value(kernels.computation, user).shape
    kernel = kernels.computation[user]
    sums = kernel.opcode == "fusion" and "reduce" in kernels.values.opcodes(kernel)
    return shape.elements if shape.is_bounded and (sums or kernels.product(user) is not None) else None


def _for_columns(cost: Cost, share: float) -> Cost:
    """The cost of a solve for a share of its columns. A third of its bytes are the matrix, which it reads whole."""
    return Cost.of(
        {resource: amount * ((1 + 2 * share) / 3 if resource.measure == "B" else share) for resource, amount in cost.amounts if amount}
    )
