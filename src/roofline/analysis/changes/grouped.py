"""``grouped``: dense experts as grouped products, and the kernels between them with correspondingly fewer rows."""

from fractions import Fraction
from math import log2

from ...hlo.ir.module import HloModule
from ...hlo.price.traffic import source
from ...rules.layout_copies.reordered import KIND as LAYOUT
from .avoided import remove_avoidable
from .change_words import Words
from .state import State

_SAME_MEMORY = ("bitcast", "get-tuple-element")
_SMALL = 8  # an operand with less than 1/8 of the bytes of the largest is not an array of rows


def grouped(state: State, words: Words) -> None:
    """Compute each token with its own experts only."""
    shares = remove_avoidable(state, "dense-experts", "grouped: this program does not compute every expert for every token")
    for name, module in state.programs.items():
        places = {module.place(op.name): index for index, op in state if op.module == name}
        entry = {place[1]: index for place, index in places.items() if place and place[0] == module.entry}
        _shrink_between(state, module, entry, shares)


def _shrink_between(state: State, module: HloModule, places: dict[int, int], shares: dict[int, float]) -> None:
    """Reduce kernels between products of experts to the remaining rows; grouped products need no copies into another row order."""
    entry = module.entry_computation
    taken = [[source(entry, operand, ())[0] for operand in one.operands] for one in entry]
    users: dict[int, set[int]] = {}
    for user, sources in enumerate(taken):
        for place in sources if entry[user].opcode not in _SAME_MEMORY else ():
            users.setdefault(place, set()).add(user)
    products = {place for place, index in places.items() if index in shares}
    left = {place: shares[places[place]] for place in products}  # by place, the share of its rows that remains
    for place, index in sorted(places.items()):  # forwards from the first product
        if place in products:
            continue
        op, sizes = state.ops[index], [entry[operand].shape.bytes for operand in entry[place].operands]
        large = [each for size, each in zip(sizes, taken[place], strict=True) if size * _SMALL >= max(sizes)]
        share = max((left.get(each, 1.0) for each in large), default=1.0)
        into = users.get(place)
        if any(one.kind == LAYOUT for one in op.avoidable) and (share < 1 or (into and into <= products)):
            left[place] = share
            state.remove(index, longer=share)
        elif share < 1 and 2 * entry[place].shape.bytes >= max(sizes):  # a smaller result is a sum over the experts
            left[place] = share
    between = set(products)
    for place, index in sorted(places.items(), reverse=True):  # backwards from the last product
        if place in left and users.get(place) and users[place] <= between and place not in products:
            between.add(place)
            op = state.ops[index]
            if op.cost.amounts:
                state.put(index, op.cost * Fraction(left[place]), op.operation, abs(log2(left[place])))
