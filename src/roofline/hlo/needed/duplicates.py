"""The same value computed twice in one program: kernels of the same body on the same operands."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...workload import Avoidable
from ..ir.module import HloModule, Instruction
from .kernels import Kernels

KIND, CLASS = "duplicated-work", "duplicated"
_EACH_ITS_OWN = frozenset(
    ("rng", "rng-bit-generator", "rng-get-and-update-state", "parameter", "infeed", "recv", "while", "conditional", "call")
)
_ABOUT = ("metadata", "frontend_attributes", "backend_config", "sharding", "origin")  # attributes that change no value


def duplicates(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that compute what an earlier one of the same computation did."""
    module, computation = kernels.module, kernels.computation
    alike: dict[object, list[int]] = {}  # by what is quickly compared
    same: dict[int, int] = {}  # an instruction, and the first that makes the same value
    for index, instruction in enumerate(computation.instructions):
        if instruction.opcode in _EACH_ITS_OWN:
            continue
        operands = tuple([same.get(operand, operand) for operand in instruction.operands]) if same else instruction.operands
        earlier = alike.setdefault((instruction.opcode, instruction.shape.dtype, instruction.shape.dims, operands), [])
        first = next((one for one in earlier if _is_equal(module, computation[one], instruction)), None)
        if first is None:
            earlier.append(index)
            continue
        same[index] = first
        if index in kernels.costs and instruction.operands:  # without any it fills a buffer of its own
            why = f"computes again what {computation[first].name} did"
            yield index, Avoidable(kind=KIND, instead=NOTHING, why=why, unneeded=CLASS)


def _is_equal(module: HloModule, one: Instruction, other: Instruction) -> bool:
    """Whether two instructions make the same value of the same operands."""
    if one.opcode != other.opcode or one.shape != other.shape or one.opcode in _EACH_ITS_OWN:
        return False
    if one.opcode == "constant" and (one.literal is None or one.literal != other.literal):
        return False
    if one.opcode == "custom-call" and one.backend_config_text != other.backend_config_text:
        return False
    if _said(one) != _said(other) or len(one.calls) != len(other.calls):
        return False
    return all(_is_equal_body(module, ours.computation, theirs.computation) for ours, theirs in zip(one.calls, other.calls, strict=True))


def _said(instruction: Instruction) -> list[tuple[str, str]]:
    return [(name, str(instruction.attribute(name))) for name in instruction.attributes if name not in _ABOUT]


def _is_equal_body(module: HloModule, one: int, other: int) -> bool:
    if one == other:
        return True
    ours, theirs = module.computations[one], module.computations[other]
    if (len(ours), ours.root, ours.parameters) != (len(theirs), theirs.root, theirs.parameters):
        return False
    return all(
        mine.operands == yours.operands and (mine.opcode == yours.opcode == "parameter" or _is_equal(module, mine, yours))
        for mine, yours in zip(ours.instructions, theirs.instructions, strict=True)
    )
