"""Sharding propagation: the sharding of every value of a program, from the annotated ones to operands and users.

A simplification of XLA's: annotations stay, operands and users of an annotated value are split the same way as far as the operation
allows, and everything else is replicated. If two operands need one axis for different dimensions, the larger operand gets it.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod

from msgspec import Struct, field

from ...graph.axes import Factors, IndexMap
from ..fusion.inlining import SHARDING_MARKS, computations_that_run
from ..ir.axes import index_map
from ..ir.module import Computation, HloModule, Instruction
from ..ir.shapes import Shape, whole_or_none
from ..ir.shardings import MANUAL, MESHES, Axes, Axis, Sharding, meshes_of, open_dimensions, parse_shardings, ways

ROUNDS = 12  # passes over the program in both directions; few programs need more than three
Key = tuple[int, int, int]  # computation, instruction, array in its result
FULL_TO_LOCAL = ("SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape")


class Shardings(Struct):
    """The sharding of every array of every value; dimensions in ``closed`` keep their annotation."""

    known: dict[Key, Sharding] = field(default_factory=dict)
    closed: dict[Key, frozenset[int]] = field(default_factory=dict)
    annotated: int = 0


def propagated(module: HloModule) -> Shardings:
    """The shardings of a program whose calls are inlined."""
    shardings = Shardings()
    numbers = computations_that_run(module)
    for number in numbers:
        _annotated(module, number, shardings)
    mappings: dict[tuple[int, int], IndexMap | None] = {}
    for number in numbers:
        computation = module.computations[number]
        for index, instruction in enumerate(computation.instructions):
            mappings[number, index] = index_map(instruction, computation.operands(instruction))
    for _ in range(ROUNDS):
        changed = False
        for order in (1, -1):
            for number in numbers[::order]:
                computation = module.computations[number]
                for index in range(len(computation))[::order]:
                    changed |= _step(module, number, index, mappings[number, index], shardings)
        if not changed:
            break
    return shardings


def _annotated(module: HloModule, number: int, shardings: Shardings) -> None:
    """Adds the annotated shardings of a computation."""
    meshes = meshes_of(module.frontend_attributes.get(MESHES, ""))
    for index, instruction in enumerate(module.computations[number].instructions):
        leaves = tuple(instruction.shape.leaves)
        text = sharding_text(instruction)
        given = parse_shardings(text, tuple(leaf.rank for leaf in leaves), meshes) if text else (None,) * len(leaves)
        for part, (leaf, sharding) in enumerate(zip(leaves, given, strict=True)):
            key = (number, index, part)
            shardings.known[key] = sharding or ((),) * leaf.rank
            if sharding is not None:
                shardings.closed[key] = frozenset(range(leaf.rank)) - open_dimensions(text, leaf.rank) - _unspecified(instruction)
                shardings.annotated += leaf.rank > 0
            elif instruction.opcode == "custom-call" and instruction.custom_call_target in MANUAL:
                shardings.closed[key] = frozenset(range(leaf.rank))


def sharding_text(instruction: Instruction) -> str:
    """The sharding annotation of an instruction's result; empty for a value that is one device's part already."""
    if instruction.opcode == "custom-call" and instruction.custom_call_target in FULL_TO_LOCAL:
        return ""
    if instruction.opcode == "custom-call" and instruction.custom_call_target in MANUAL:
        return instruction.frontend_attributes.get("xla.sdy.out_shardings", "") or instruction.word("sharding")
    return instruction.word("out_shardings") or instruction.word("sharding") or instruction.frontend_attributes.get("xla.sdy.sharding", "")


def _unspecified(instruction: Instruction) -> frozenset[int]:
    """The dimensions that an annotation leaves to the partitioner: ``unspecified_dims=[1]``."""
    if instruction.opcode != "custom-call":
        return frozenset()
    _, _, listed = instruction.backend_config_text.partition("unspecified_dims=[")
    axes = map(whole_or_none, listed.partition("]")[0].split(","))
    return frozenset(axis for axis in axes if axis is not None)


def _step(module: HloModule, number: int, index: int, mapping: IndexMap | None, shardings: Shardings) -> bool:
    """Propagates shardings through one instruction; whether any changed."""
    computation = module.computations[number]
    instruction = computation[index]
    if mapping is not None:
        return _through(number, index, instruction, mapping, shardings)
    changed = False
    for keys in _same(module, number, computation, index, instruction):
        changed |= _alike(keys, shardings)
    return changed


def _through(number: int, index: int, instruction: Instruction, mapping: IndexMap, shardings: Shardings) -> bool:
    """Gives all arrays of an instruction the axes that any of them has for a shared factor; whether any changed."""
    arrays: list[tuple[Key, list[Factors]]] = [
        ((number, operand, 0), dims) for operand, dims in zip(instruction.operands, mapping.operands, strict=True)
    ]
    arrays += [((number, index, part), dims) for part, dims in enumerate(mapping.results)]
    factors: dict[int, Axes] = {}
    sources: dict[int, int] = {}  # factor -> size of the array that its axes come from
    for key, dims in sorted(arrays, key=lambda array: array[0] not in shardings.closed):
        size = prod(mapping.dims(dims))
        for factor, axes in factors_of(shardings.known[key], dims, mapping).items():
            if factor not in mapping.whole and len(axes) > len(factors.get(factor, ())):
                factors[factor], sources[factor] = axes, size
    changed = False
    for key, dims in arrays:
        largest_first = sorted(range(len(dims)), key=lambda place: -max((sources.get(factor, 0) for factor in dims[place]), default=0))
        changed |= _extend(key, tuple(joined(factors, axis_factors) for axis_factors in dims), shardings, largest_first)
    return changed


def factors_of(sharding: Sharding, dims: list[Factors], mapping: IndexMap) -> dict[int, Axes]:
    """The axes of each factor of an array, major factors first: a minor factor is split only if the major ones are split completely."""
    known: dict[int, Axes] = {}
    for axes, factors in zip(sharding, dims, strict=True):
        left = list(axes)
        for factor in factors:
            taken: list[Axis] = []
            while left and (factor == factors[-1] or mapping.sizes[factor] % ways((*taken, left[0])) == 0):
                taken.append(left.pop(0))
            if taken:
                known[factor] = tuple(taken)
            if ways(tuple(taken)) != mapping.sizes[factor]:
                break
    return known


def joined(factors: dict[int, Axes], dims: tuple[int, ...]) -> Axes:
    """The axes of a dimension, from those of its factors ``dims``."""
    return tuple(chain(*(factors.get(factor, ()) for factor in dims)))


def _extend(key: Key, wanted: Sharding, shardings: Shardings, order: Iterable[int]) -> bool:
    """Splits dimensions of an array further as ``wanted``, in ``order``, unless closed or an axis is in use; whether any changed."""
    known = list(shardings.known[key])
    used = {*chain(*known)}
    changed = False
    for place in order:
        own, axes = known[place], wanted[place]
        more = axes[len(own) :]
        if place in shardings.closed.get(key, ()) or axes[: len(own)] != own or not more or used.intersection(more):
            continue
        known[place] = axes
        used.update(more)
        changed = True
    shardings.known[key] = tuple(known)
    return changed


def _alike(keys: list[Key], shardings: Shardings) -> bool:
    """Gives arrays that are the same value the same sharding; whether any changed."""
    changed = False
    for other in keys:
        for key in keys:
            changed |= key != other and _extend(key, shardings.known[other], shardings, range(len(shardings.known[key])))
    return changed


def handed_on(module: HloModule, number: int, computation: Computation, index: int, instruction: Instruction) -> Iterator[list[Key]]:
    """Groups of arrays that are one value, because a tuple or a loop passes it on."""
    leaves = len(instruction.shape.leaves)
    if instruction.opcode == "tuple":
        part = 0
        for operand in instruction.operands:
            for inner in range(len(computation[operand].shape.leaves)):
                yield [(number, operand, inner), (number, index, part)]
                part += 1
    elif instruction.opcode == "get-tuple-element":
        first = first_leaf(computation[instruction.operands[0]].shape, instruction.integer("index") or 0)
        for part in range(leaves):
            yield [(number, instruction.operands[0], first + part), (number, index, part)]
    elif instruction.opcode == "while":
        for part in range(leaves):
            keys = [(number, instruction.operands[0], part), (number, index, part)]
            for role in ("body", "condition"):
                for called in instruction.called(role):
                    keys.append((called, module.computations[called].parameters[0], part))
                    if role == "body":
                        keys.append((called, module.computations[called].root, part))
            yield keys


def _same(module: HloModule, number: int, computation: Computation, index: int, instruction: Instruction) -> Iterator[list[Key]]:
    """Groups of arrays that are one value: parts of tuples, the state of loops, arguments of branches."""
    yield from handed_on(module, number, computation, index, instruction)
    leaves = len(instruction.shape.leaves)
    if instruction.opcode == "conditional":
        branches = instruction.called("branch_computations")
        for part in range(leaves):
            yield [(number, index, part), *((called, module.computations[called].root, part) for called in branches)]
        for operand, called in zip(instruction.operands[1:], branches, strict=False):
            for part in range(len(computation[operand].shape.leaves)):
                yield [(number, operand, part), (called, module.computations[called].parameters[0], part)]
    elif (instruction.opcode in ("opt-barrier", "domain", "bitcast") or is_annotation(instruction)) and computation[
        instruction.operands[0]
    ].shape == instruction.shape:
        for part in range(leaves):
            yield [(number, instruction.operands[0], part), (number, index, part)]


def is_annotation(instruction: Instruction) -> bool:
    """Whether an instruction only annotates the sharding of its operand."""
    return instruction.opcode == "custom-call" and instruction.custom_call_target in SHARDING_MARKS


def first_leaf(shape: Shape, index: int) -> int:
    """The position, among all arrays of a tuple, of the first array of one part."""
    return sum(len(part.leaves) for part in shape.parts[:index])
