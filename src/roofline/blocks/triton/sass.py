"""Machine code of NVIDIA GPUs, as `nvdisasm` prints it: instructions with the schedule that the compiler wrote into them.

The upper word of each instruction holds how many cycles its warp waits after it, and the barriers of instructions without a fixed latency
that it sets and waits for (from Volta on; Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", section 2.1).
"""

import re

from msgspec import Struct

_LABEL = re.compile(r"^(\.L_x?_?\d+|\$?[\w$.]+):")
_PLACE = re.compile(r'//## File "([^"]*)", line (\d+)(.*)$')
_INLINED = re.compile(r'inlined at "([^"]*)", line (\d+)')
_CODE = re.compile(
    r"/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_.a-z]*)\s*([^;]*);?[^/]*/\*\s*0x([0-9a-f]{16})\s*\*/"
)
_UPPER = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_TARGET = re.compile(r"`\((\.?[\w$.]+)\)")
NO_BARRIER = 7


class Instruction(Struct, frozen=True, kw_only=True):
    """An instruction; ``stall`` is in cycles, ``sets`` the barriers that are released when its result is there or its operands were read,
    ``waits`` those that must be free before it issues, as bits.
    """

    opcode: str
    operands: str = ""
    predicate: str = ""
    stall: int = 1
    sets_result: int = NO_BARRIER
    sets_read: int = NO_BARRIER
    waits: int = 0
    file: str = ""
    line: int = 0

    @property
    def name(self) -> str:
        return self.opcode.partition(".")[0]


class Part(Struct, frozen=True):
    """A run of instructions, or a loop over such parts."""

    instructions: tuple[Instruction, ...] = ()
    loop: tuple["Part", ...] = ()

    def everything(self) -> tuple[Instruction, ...]:
        return self.instructions + tuple(inside for part in self.loop for inside in part.everything())


def read_sass(text: str) -> tuple[Part, ...]:
    """The parts of a kernel in order: each backward branch closes a loop. Routines for rare operands, behind its end, are left out."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    file, line = "", 0
    pending: tuple[str, ...] | None = None
    for row in text.splitlines():
        if place := _PLACE.search(row):
            inlined = _INLINED.findall(place[3])
            file, line = (inlined[-1][0], int(inlined[-1][1])) if inlined else (place[1], int(place[2]))
        elif label := _LABEL.match(row.strip()):
            labels[label[1]] = len(code)
        elif found := _CODE.search(row):
            pending = (found[2] or "", found[3], found[4].strip(), file, str(line))
        elif pending and (upper := _UPPER.match(row)):
            predicate, opcode, operands, where, number = pending
            word = int(upper[1], 16) >> 41
            code.append(
                Instruction(
                    opcode=opcode, operands=operands, predicate=predicate, stall=word & 15, sets_result=word >> 5 & 7, sets_read=word >> 8
                    & 7, waits=word >> 11 & 63, file=where, line=int(number),
                )
            )  # fmt: skip
            pending = None
    return _parts(_without_routines(code), labels)


def _without_routines(code: list[Instruction]) -> list[Instruction]:
    """The instructions up to the last exit of the kernel itself, which a branch to itself follows."""
    for place, instruction in enumerate(code):
        following = code[place + 1].name if place + 1 < len(code) else "BRA"
        if instruction.name == "EXIT" and not instruction.predicate and following in ("BRA", "NOP"):
            return code[:place]
    return code


def _parts(code: list[Instruction], labels: dict[str, int]) -> tuple[Part, ...]:
    loops = []
    for place, instruction in enumerate(code):
        if instruction.name == "BRA" and (target := _TARGET.search(instruction.operands)):
            start = labels.get(target[1], len(code))
            if start <= place:
                loops.append((start, place + 1))
    return _nested(code, 0, len(code), _joined(loops))


def _joined(loops: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Loops of which each is inside another or apart from it: several branches to one start are one loop."""
    found: dict[int, int] = {}
    for start, end in loops:
        found[start] = max(end, found.get(start, 0))
    return sorted(found.items(), key=lambda loop: (loop[0], -loop[1]))


def _nested(code: list[Instruction], start: int, end: int, loops: list[tuple[int, int]]) -> tuple[Part, ...]:
    parts, at = [], start
    for place, (first, last) in enumerate(loops):
        if first < at or last > end:
            continue
        if first > at:
            parts.append(Part(tuple(code[at:first])))
        inner = [loop for loop in loops[place + 1 :] if first <= loop[0] and loop[1] <= last and loop != (first, last)]
        parts.append(Part(loop=_nested(code, first, last, inner)))
        at = last
    if at < end:
        parts.append(Part(tuple(code[at:end])))
    return tuple(parts)
