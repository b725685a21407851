"""Large arrays that are constants of a program: ``jit`` compiles arrays into a program that its function closes over.

Constants that a compiler computed are left out: they have the name of the operation that they are the result of, or their bytes compress
well (a value repeated, an iota, a mask). Only serialized programs have the bytes; text leaves them out.
"""

from zlib import compress

from ...units import parse, show
from ..ir.module import HloModule, Instruction

LEAST, LEAST_EACH = parse("1 MB", "B"), parse("100 kB", "B")  # of all of a program, and of each
SAMPLE = 4096  # bytes of a constant that are looked at
DATA = 0.5  # compressed to no less than this share, bytes are data (random numbers in fp32: 0.94; progressions: 0.2 to 0.36)
LISTED = 3


def large_constants_note(module: HloModule) -> str:
    """A note on the large constants of a program; empty if it has none."""
    constants = {constant.name: constant for constant in module.instructions if _is_large(constant) and _is_data(constant.raw)}
    largest = sorted(constants.values(), key=lambda constant: -constant.shape.bytes)
    whole = sum(constant.shape.bytes for constant in largest)
    if whole < LEAST:
        return ""
    shapes = ", ".join(_words(constant) for constant in largest[:LISTED]) + (", …" if len(largest) > LISTED else "")
    return (
        f"{module.name} has {show(float(whole), 'B', 3)} of constants ({shapes}): pass arrays as arguments instead of closing over them, "
        "so that they are not compiled into the program, and into each profile of it"
    )


def _words(constant: Instruction) -> str:
    return f"{constant.shape.number.name}[{','.join(map(str, constant.shape.dims))}]"


def _is_large(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" and instruction.shape.bytes >= LEAST_EACH and not instruction.metadata.op_name


def _is_data(raw: object) -> bool:
    """Whether the bytes of a constant, in the middle of its instruction, do not compress well: those of masks and progressions do."""
    if not isinstance(raw, bytes):
        return False
    middle = len(raw) // 2
    sample = raw[middle : middle + SAMPLE]
    return len(sample) == SAMPLE and len(compress(sample)) >= DATA * SAMPLE
