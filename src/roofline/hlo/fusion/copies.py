"""Copies that a compiler must add to a program, and copies that it removes.

An update in place, and a loop, write over their operand. If that array must not change (an argument that is not donated, a constant, an
array that is used later, or twice by one loop), it is copied first. A result that is an argument or another result is copied too. Donated
arguments are not copied, and a copy of an array without other uses is removed.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from ..ir.module import Computation, HloModule, Instruction
from ..ir.platforms import Platform
from ..ir.rewriting import Rewriting
from ..price.bodies import updated
from ..price.live_values import Values, ValuesOf
from ..price.traffic import in_place_parameters
from .compiler_model import Names
from .inlining import computations_that_run


class _Use(NamedTuple):
    """A use that needs an array of its own: an instruction, one of its operands, and a part of that."""

    user: int
    operand: int
    path: tuple[int, ...] = ()


def with_copies(module: HloModule, platform: Platform) -> HloModule:
    """An uncompiled program with the copies that its updates, loops and results need, and without needless copies."""
    running = computations_that_run(module)
    if any(instruction.opcode == "copy" for number in running for instruction in module.computations[number]):
        module = _without_needless_copies(module, ValuesOf(module, platform), running)
    values = ValuesOf(module, platform)
    uses = {number: needed for number in running if (needed := _needed(values, number))}
    if not uses:
        return module
    names = Names({instruction.name for instruction in module.instructions})
    computations = list(module.computations)
    for number, needed in uses.items():
        computations[number] = _inserted(computations[number], needed, names.fresh)
    return replace(module, computations=tuple(computations))


def _without_needless_copies(module: HloModule, values: ValuesOf, running: Iterable[int]) -> HloModule:
    """The module without copies, within one memory, of arrays that have no other use."""
    computations = list(module.computations)
    for number in running:
        new = list(module.computations[number].instructions)
        for index, copy in enumerate(new):
            if copy.opcode == "copy" and _is_needless(values, number, copy, index):
                new[index] = replace(new[index], opcode="bitcast")
        computations[number] = replace(computations[number], instructions=tuple(new))
    return replace(module, computations=tuple(computations))


def _is_needless(values: ValuesOf, number: int, copy: Instruction, time: int) -> bool:
    own = values[number]
    copied = own.array(copy.operands[0])
    before = own.computation[copy.operands[0]].shape
    if copied is None or before.memory_space != copy.shape.memory_space or before.minor_axis != copy.shape.minor_axis:
        return False
    carried = copied.leaf is not None and number != values.module.entry  # a parameter: the caller may still need it
    return not carried and copied.last == time and not values.must_stay(number, copied)


def _needed(values: ValuesOf, number: int) -> list[_Use]:
    """The uses in one computation that need an array of their own."""
    own, computation = values[number], values.module.computations[number]
    uses: list[_Use] = []
    in_place: dict[int, list[int]] = {}  # fused body -> the parameters that it updates; several fusions may call one
    for index, instruction in enumerate(computation.instructions):
        for operand in _written_over(values.module, instruction, in_place):
            value = own.array(operand)
            if value is not None and (value.last > index or values.must_stay(number, value)):
                uses.append(_Use(index, operand))
        if instruction.opcode == "while" and instruction.called("body") and instruction.operands:
            uses += _changed(values, number, index)
    return uses + (_returned(values, own) if number == values.module.entry else [])


def _written_over(module: HloModule, instruction: Instruction, in_place: dict[int, list[int]]) -> tuple[int, ...]:
    """The operands that an instruction updates in place."""
    if instruction.opcode != "fusion" or not instruction.calls:
        return updated(instruction)
    number = instruction.calls[0].computation
    body = module.computations[number]
    if number not in in_place:
        in_place[number] = in_place_parameters(body)
    if not in_place[number]:
        return ()
    with_parts_copied = dict(zip(body.parameters, instruction.operands, strict=False))
    return tuple(dict.fromkeys(with_parts_copied[parameter] for parameter in in_place[number] if parameter in with_parts_copied))


def _changed(values: ValuesOf, number: int, index: int) -> list[_Use]:
    """The parts of a loop's operand that the loop changes but that must not change."""
    operand = values.module.computations[number][index].operands[0]
    paths = values.module.computations[number][operand].shape.paths
    changed = values.changed(values.module.computations[number][index])
    parts = [(path, value) for path, value, changes in zip(paths, values[number].leaves[operand], changed, strict=False) if changes]
    # Scalars, such as the initial counter, are not copied: they are written to where the loop needs them.
    arrays = [(path, value) for path, value in parts if value is not None and value.shape.dims]
    firsts = {id(value): path for path, value in reversed(arrays)}  # an array may be two parts of the operand: the second needs a copy
    return [_Use(index, operand, path) for path, value in arrays if firsts[id(value)] != path or values.must_stay(number, value)]


def _returned(values: ValuesOf, own: Values) -> list[_Use]:
    """The program's results that are its arguments and are not in their memory, or that are an earlier result."""
    root = own.computation.root
    paths = own.computation.root_instruction.shape.paths
    results = [(path, value) for path, value in zip(paths, own.root, strict=True) if value is not None]
    firsts = {id(value): path for path, value in reversed(results)}
    return [
        _Use(len(own.computation), root, path)
        for path, value in results
        if firsts[id(value)] != path or (value.leaf is not None and values.donated.get(value.leaf) != path)
    ]


def _inserted(computation: Computation, uses: list[_Use], fresh: Callable[[str], str]) -> Computation:
    """A computation with copies before the instructions that need them."""
    wanted: dict[int, list[_Use]] = {}
    for use in uses:
        wanted.setdefault(use.user, []).append(use)
    writing = Rewriting(computation)
    where = writing.where

    def copied(index: int) -> int:
        """The new index of a copy of an instruction's array."""
        old = computation[index]
        name = fresh(f"copy_{old.name}")
        return writing.put(replace(old, name=name, opcode="copy", operands=(where[index],), calls=(), control=()))

    def with_parts_copied(index: int, inside: list[tuple[int, ...]]) -> int:
        """The new index of an operand with the parts at some paths copied; only tuples built in this computation are opened."""
        old = computation[index]
        if () in inside:
            return copied(index) if not old.shape.is_tuple else where[index]
        if old.opcode != "tuple":
            return where[index]
        parts = [
            with_parts_copied(part, below) if (below := [path[1:] for path in inside if path[0] == place]) else where[part]
            for place, part in enumerate(old.operands)
        ]
        return writing.put(replace(old, name=fresh(old.name), operands=tuple(parts)))

    def rewritten(user: int, operand: int) -> int:
        inside = [use.path for use in wanted.get(user, ()) if use.operand == operand]
        return with_parts_copied(operand, inside) if inside else where[operand]

    for index, old in enumerate(computation.instructions):
        operands = {operand: rewritten(index, operand) for operand in old.operands}
        moved = replace(writing.moved(old), operands=tuple(operands[operand] for operand in old.operands))
        where[index] = writing.put(moved)
    return writing.finished(rewritten(len(computation), computation.root))
