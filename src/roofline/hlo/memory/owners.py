"""What the arrays of a program are for, from who makes and uses them.

weights      arguments that come back as results, on which a result depends that is no argument's, such as the loss
optimizer    arguments that come back, on which only results depend that are arguments' too: moments
inputs       other arguments: a batch
activations  stacks that a loop writes part by part, and another loop reads: kept for the backward pass
gradients    stacks that a loop writes part by part, and no other loop reads
collectives  what exchanges between devices make
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..ir.module import Computation, HloModule, Instruction
from ..price.collectives import COLLECTIVES
from .buffers import plain_shape

WEIGHTS, OPTIMIZER, STATE, INPUTS = "weights", "optimizer", "state", "inputs"
ACTIVATIONS, GRADIENTS, EXCHANGED = "activations", "gradients", "collectives"
OF_KIND = {"argument": INPUTS, "output": "results", "constant": "constants", "temporary": "temporaries", "unused": "gaps"}
_RENAMES = frozenset(("bitcast", "copy", "copy-start", "copy-done", "get-tuple-element", "opt-barrier", "optimization-barrier"))
Place = tuple[str, int]  # an instruction's name, and the number of an element of its result


def owners_of(module: HloModule) -> dict[str, str]:
    """The owners of arrays by the name of the instruction that makes them; those of others follow from their kind (`OF_KIND`)."""
    owners = dict(_exchanged(module))
    for computation in module:
        owners |= _stacks(module, computation)
    return owners | _arguments(module)


def _exchanged(module: HloModule) -> Iterator[tuple[str, str]]:
    for instruction in module.instructions:
        opcodes = {instruction.opcode}
        if instruction.opcode == "fusion":
            opcodes = {part.opcode for call in instruction.calls for part in module.computations[call.computation]}
        if opcodes & COLLECTIVES:
            yield instruction.name, EXCHANGED


def _arguments(module: HloModule) -> dict[str, str]:
    """The owners of the program's parameters: `STATE` where no result tells weights from the rest."""
    entry = module.entry_computation
    root = entry.root_instruction
    results = list(root.operands) if root.opcode == "tuple" else [entry.root]
    parameters = dict(enumerate(entry.parameters))
    returned = {alias.parameter: alias.output[0] for alias in module.aliases if len(alias.output) == 1 and not alias.index}
    returned |= _alike(entry, {number: index for number, index in parameters.items() if number not in returned}, results, returned.values())
    others = [result for place, result in enumerate(results) if place not in returned.values()]
    needed = _reached(module, entry, others)
    stacks = {}
    for number, index in parameters.items():
        kind = INPUTS
        if number in returned:
            kind = STATE
        if number in returned and others:
            kind = WEIGHTS if index in needed else OPTIMIZER
        stacks[entry[index].name] = kind
    return stacks


def _alike(entry: Computation, parameters: Mapping[int, int], results: Sequence[int], taken: Collection[int]) -> dict[int, int]:
    """The result of the same shape for each parameter that is an array, where one is left: of equal ones the first is the first."""
    free: dict[str, list[int]] = {}
    for place, result in enumerate(results):
        if place not in taken:
            free.setdefault(plain_shape(entry[result].shape), []).append(place)
    alike = {number: free.get(plain_shape(entry[index].shape), []) for number, index in parameters.items() if entry[index].shape.dims}
    return {number: places.pop(0) for number, places in alike.items() if places}


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
