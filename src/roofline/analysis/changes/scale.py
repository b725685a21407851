"""``scale DIM=xN``: a dimension of the program's inputs made larger, followed through the program."""

import re
from fractions import Fraction
from math import log2

from ...errors import SourceError, UsageError, did_you_mean
from ...hlo.ir.module import HloModule
from ...hlo.price.types import Site
from ...hlo.scaling.growth import Program
from ...hlo.scaling.hidden import Data
from ...hlo.scaling.inputs import Dimension, dimension_named, dimensions_of, inputs_of
from ...hlo.scaling.scaled import scaled
from .state import State
from .words import Words


def scale(state: State, words: Words) -> None:
    """Scale one dimension of the program with the most time, and of others that have it."""
    written = words.need()
    name, _, by = written.partition("=")
    number = re.fullmatch(r"x?(\d+)", by)
    if number is None or int(number[1]) < 1:
        raise words.wrong(f"scale {written}: by how much is a whole number, as in batch=x4")
    if not state.programs:
        raise UsageError("scale needs the compiled program, which this input does not have")
    times, found = int(number[1]), 0
    for module in list(state.programs.values()):
        program = Program(module)
        dimension = dimension_named(program, name)
        if dimension is None:
            continue
        found += 1
        moved = ", ".join(f"{one.name}[{axis}]" for one, axis in dimension.inputs[:4])
        state.notes.append(
            f"{name} of {module.name}: {dimension.size} to {dimension.size * times} ({moved}{', …' if len(dimension.inputs) > 4 else ''})"
        )
        if dimension.is_hidden:
            _hidden(state, module, dimension, times)
        else:
            _grown(state, program, dimension, times)
        break
    if not found:
        first = Program(next(iter(state.programs.values())))
        known = [each.name for each in dimensions_of(first)] + [
            f"{one.name}[{axis}]" for one in inputs_of(first) for axis in range(len(one.dims))
        ]
        raise UsageError(f"scale {name}: no such dimension{did_you_mean(name, known) or '; known: ' + ', '.join(known[:8])}")


def _grown(state: State, program: Program, dimension: Dimension, times: int) -> None:
    module = program.module
    larger = scaled(program, dimension.marks, times)
    review = state.review(larger)
    for index, op in state:
        place = module.place(op.name) if op.module == module.name else None
        if place is None or not op.count:
            continue
        number, position = place
        site = Site(larger, larger.computations[number], larger.computations[number][position], "gpu")
        try:
            once = review.pricer.price(site)
        except SourceError:
            state.notes.append(f"{op.name} cannot be followed: it keeps its time")
            continue
        cost = once.cost * op.count
        if cost.amounts == op.cost.amounts:
            continue
        state.put(index, cost, review.operation(number, position, once.cost), log2(times))
    state.programs[module.name] = larger


def _hidden(state: State, module: HloModule, dimension: Dimension, times: int) -> None:
    """A batch of one, of which the compiled program has no trace."""
    data = Data(module, {one.key[1] for one, _ in dimension.inputs})
    review = state.review(module)
    for index, op in state:
        place = module.place(op.name) if op.module == module.name else None
        if place is None or place[0] != module.entry or place[1] not in data.held:
            continue
        found = review.product(*place)
        operation = data.operation(place[1], op.operation, found, times)
        once = op.cost * Fraction(1, int(op.count) or 1)
        state.put(index, data.cost(place[1], once, times) * op.count, operation, log2(times))
