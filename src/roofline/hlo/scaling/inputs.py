"""The arrays among a program's arguments: weights, and data."""

import re

from msgspec import Struct
from msgspec.structs import replace

from ..partition.propagation import Key
from .growth import Marks, Program
from .weights import FLOATS, MATRIX, kept_with, own_weights


class Input(Struct, frozen=True):
    """An array among a program's arguments: its name, its key in the program, its dimensions, and whether it is a weight.

    ``is_taken`` is true for weights that are operands of products, convolutions, look-ups or loops.
    """

    name: str
    key: Key
    dims: tuple[int, ...]
    is_weight: bool
    is_taken: bool = False


def inputs_of(program: Program) -> tuple[Input, ...]:
    """The arrays among the arguments of a program."""
    module = program.module
    entry = module.entry_computation
    own = own_weights(program)
    weights = own | kept_with(program, own)
    inputs = []
    for number, index in enumerate(entry.parameters):
        instruction = entry[index]
        for part, leaf in enumerate(instruction.shape.leaves):
            if leaf.is_array:
                name = re.sub(r"\s", "", instruction.op_name) or instruction.name or f"argument{number}"
                small = leaf.dtype.startswith(FLOATS) and leaf.rank < MATRIX
                inputs.append(Input(name, (module.entry, index, part), leaf.dims, index in weights or small, index in own))
    # Arrays in the same container as weights belong to the layer too: stacked gains, tables of positions.
    containers = {_container(argument.name) for argument in inputs if argument.key[1] in weights} - {""}
    floats = {index for index in entry.parameters if entry[index].shape.dtype.startswith(FLOATS)}
    return tuple(
        replace(argument, is_weight=True) if argument.key[1] in floats and _container(argument.name) in containers else argument
        for argument in inputs
    )


def _container(name: str) -> str:
    """The list or dictionary that an argument is in, by its name: ``layers[0]`` of ``layers[0]['gain']``."""
    return name[: name.rindex("[")] if name.endswith("]") else ""


def reached_by(inputs: tuple[Input, ...], marks: Marks) -> tuple[tuple[Input, int], ...]:
    """The dimensions of inputs that have marks."""
    return tuple((argument, axis) for argument in inputs for axis, marked in enumerate(marks.get(argument.key, ())) if marked)
