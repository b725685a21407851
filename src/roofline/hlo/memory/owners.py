"""What the arrays of a program are for, from who makes and uses them.

weights      arguments that come back as results, on which a result depends that is no argument's, such as the loss; without a backward
             pass those that others are multiplied by, and what comes back is state, such as a cache
optimizer    arguments that come back, on which only results depend that are arguments' too: moments
inputs       other arguments: a batch
activations  stacks that a loop writes part by part, and another loop reads, and what the forward pass makes and the backward pass uses
gradients    stacks that a loop writes part by part, and no other loop reads
collectives  what exchanges between devices make
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ...peak_memory import LiveBuffer, LiveLayer
from ..ir.module import Computation, HloModule, Instruction
from ..ir.platforms import Platform
from ..ir.scopes import direction
from ..ir.shapes import Shape
from ..ir.shardings import parse_sharding, parts_of, ways
from ..price.collectives import COLLECTIVES
from ..scaling.growth import Program
from ..scaling.inputs import inputs_of

WEIGHTS, OPTIMIZER, STATE, INPUTS = "weights", "optimizer", "state", "inputs"
ACTIVATIONS, GRADIENTS, EXCHANGED = "activations", "gradients", "collectives"
OF_KIND = {"argument": INPUTS, "output": "results", "constant": "constants", "temporary": "temporaries", "unused": "gaps"}
_RENAMES = frozenset(("bitcast", "copy", "copy-start", "copy-done", "get-tuple-element", "opt-barrier", "optimization-barrier"))
Place = tuple[str, int]  # an instruction's name, and the number of an element of its result


def owners_of(module: HloModule, platform: Platform) -> dict[str, str]:
    """The owners of arrays by the name of the instruction that makes them; those of others follow from their kind (`OF_KIND`).

    Which arguments products are with is asked of programs for TPUs alone: elsewhere programs are as long as their layers are many.
    """
    owners = dict(_kept(module.entry_computation))
    owners |= _exchanged(module)
    for computation in module:
        owners |= _stacks(module, computation)
    return owners | _arguments(module, platform)


def layers_of(module: HloModule, buffers: Iterable[LiveBuffer]) -> tuple[LiveLayer, ...]:
    """Activations by layer, the most bytes first: those of a loop by its trips, the first dimension of its stacks, others by scope."""
    stacked = {name for computation in module for name in _stacks(module, computation)}
    rows: dict[tuple[str, int], int] = {}
    for buffer in buffers:
        place = module.find(buffer.name)
        dims = place[1].shape.dims if place and buffer.name in stacked else ()
        key = ("", dims[0]) if dims else (_layer(buffer.scope), 1)
        rows[key] = rows.get(key, 0) + buffer.bytes
    layers = [LiveLayer(layer=layer, bytes=size, layers=count) for (layer, count), size in rows.items()]
    return tuple(sorted(layers, key=lambda layer: -layer.bytes))


def _layer(scope: str) -> str:
    """The scope of the layer that a scope is in: up to the first part with a number, or the first part.

    >>> _layer("encoder/layer3/attn/2"), _layer("head/norm")
    ('encoder/layer3', 'head')
    """
    parts = scope.split("/")
    end = next((place for place, part in enumerate(parts) if any(letter.isdecimal() for letter in part)), 0)
    return "/".join(parts[: end + 1])


def _kept(computation: Computation) -> Iterator[tuple[str, str]]:
    """The arrays that the forward pass makes and the backward pass uses."""
    passes = [direction(instruction.op_name) for instruction in computation]
    for index, instruction in enumerate(computation):
        if passes[index] == "backward":
            for operand in instruction.operands:
                source = _renamed(computation, operand)
                if passes[source] == "forward" and computation[source].shape.dims:
                    yield computation[source].name, ACTIVATIONS


def _exchanged(module: HloModule) -> Iterator[tuple[str, str]]:
    for instruction in module.instructions:
        opcodes = {instruction.opcode}
        if instruction.opcode == "fusion":
            opcodes = {part.opcode for call in instruction.calls for part in module.computations[call.computation]}
        if opcodes & COLLECTIVES:
            yield instruction.name, EXCHANGED


def _arguments(module: HloModule, platform: Platform) -> dict[str, str]:
    """The owners of the program's parameters: `STATE` where no result tells weights from the rest."""
    entry = module.entry_computation
    root = entry.root_instruction
    results = list(root.operands) if root.opcode == "tuple" else [entry.root]
    parameters = dict(enumerate(entry.parameters))
    returned = {alias.parameter: alias.output[0] for alias in module.aliases if len(alias.output) == 1 and not alias.index}
    served = None
    if platform == "tpu" and not _trains(module):
        served = {argument.key[1] for argument in inputs_of(Program(module)) if argument.is_weight}
    if served is None:
        free = {number: index for number, index in parameters.items() if number not in returned}
        returned |= _alike(module, free, results, returned.values())
    others = [result for place, result in enumerate(results) if place not in returned.values()]
    needed = _reached(module, entry, others)
    stacks = {}
    for number, index in parameters.items():
        kind = INPUTS
        if number in returned:
            kind = STATE
        elif served is not None and index in served:
            kind = WEIGHTS
        if number in returned and others and served is None:
            kind = WEIGHTS if index in needed else OPTIMIZER
        stacks[entry[index].name] = kind
    return stacks


def _trains(module: HloModule) -> bool:
    """Whether a program may have a backward pass: it has one, or its instructions have no names that would tell."""
    names = [instruction.op_name for instruction in module.instructions if "/" in instruction.op_name]
    return not names or any(direction(name) == "backward" for name in names)


def _alike(module: HloModule, parameters: Mapping[int, int], results: Sequence[int], taken: Collection[int]) -> dict[int, int]:
    """The result of the same shape over all devices for each parameter that is an array, where one is left: of equal ones the first is
    the first.
    """
    entry, free = module.entry_computation, dict[str, list[int]]()
    shardings = dict.fromkeys(range(len(results)), "")
    if module.result_sharding:
        parts = parts_of(module.result_sharding)
        shardings |= enumerate(parts if len(parts) == len(results) else parts[:1] * len(results))
    for place, result in enumerate(results):
        if place not in taken:
            free.setdefault(_whole_shape(entry[result].shape, shardings[place]), []).append(place)
    alike = {}
    for number, index in parameters.items():
        if entry[index].shape.dims:
            sharding = entry[index].word("sharding") if module.result_sharding else ""
            alike[number] = free.get(_whole_shape(entry[index].shape, sharding), [])
    return {number: places.pop(0) for number, places in alike.items() if places}


def _whole_shape(shape: Shape, sharding: str) -> str:
    """The shape of an array over all devices, without its layout."""
    axes = (parse_sharding(sharding, shape.rank, {}) if sharding else None) or ((),) * shape.rank
    return f"{shape.dtype}[{','.join(str(size * ways(along)) for size, along in zip(shape.dims, axes, strict=True))}]"


def _reached(module: HloModule, computation: Computation, indices: Iterable[int]) -> set[int]:
    """The instructions that some of a computation depend on."""
    seen, waiting = set[int](), list(indices)
    while waiting:
        index = waiting.pop()
        if index not in seen:
            seen.add(index)
            waiting += _needed(module, computation, computation[index])
    return seen


def _needed(module: HloModule, computation: Computation, instruction: Instruction) -> Sequence[int]:
    """The operands that an instruction depends on; of a fusion with several results those of the one that it takes."""
    source = computation[instruction.operands[0]] if instruction.opcode == "get-tuple-element" else instruction
    if source is instruction or source.opcode != "fusion" or not source.calls:
        return instruction.operands
    body, number = module.computations[source.calls[0].computation], instruction.integer("index") or 0
    root = body.root_instruction
    if root.opcode != "tuple" or number >= len(root.operands):
        return instruction.operands
    inner = _reached(module, body, [root.operands[number]])
    return [operand for operand, parameter in zip(source.operands, body.parameters, strict=False) if parameter in inner]


def _stacks(module: HloModule, computation: Computation) -> dict[str, str]:
    """The owners of arrays that loops of a computation write part by part: by the names of what allocates and what writes them."""
    names: dict[str, str] = {}
    loops = [index for index, instruction in enumerate(computation) if instruction.opcode == "while"]
    read = {computation[index].name: _sources(computation, index) for index in loops}
    for index in loops:
        loop, body = computation[index], module.computations[computation[index].called("body")[0]]
        start, root = computation[loop.operands[0]], body.root_instruction
        if start.opcode != "tuple" or root.opcode != "tuple":
            continue
        for place, (before, after) in enumerate(zip(start.operands, root.operands, strict=False)):
            writer = body[_renamed(body, after)]
            if _updates(module, writer):
                is_read = any((loop.name, place) in sources for name, sources in read.items() if name != loop.name)
                names[computation[before].name] = names[writer.name] = ACTIVATIONS if is_read else GRADIENTS
    return names


def _updates(module: HloModule, instruction: Instruction) -> bool:
    """Whether an instruction writes a part of an array."""
    if instruction.opcode == "fusion":
        return any(part.opcode == "dynamic-update-slice" for call in instruction.calls for part in module.computations[call.computation])
    return instruction.opcode == "dynamic-update-slice"


def _sources(computation: Computation, loop: int) -> set[Place]:
    """Of what a loop starts with, the elements of other loops' results."""
    start = computation[computation[loop].operands[0]]
    places = set[Place]()
    for operand in start.operands if start.opcode == "tuple" else ():
        element = computation[_renamed(computation, operand, stop="get-tuple-element")]
        if element.opcode == "get-tuple-element":
            places.add((computation[element.operands[0]].name, element.integer("index") or 0))
    return places


def _renamed(computation: Computation, index: int, stop: str = "") -> int:
    """What an instruction renames or copies, whatever is between."""
    while computation[index].opcode in _RENAMES and computation[index].opcode != stop:
        index = computation[index].operands[0]
    return index
