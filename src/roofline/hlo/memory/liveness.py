"""Liveness: the arrays that are live at the same time, found by following the order of execution.

Arguments and results of the program are held throughout; a donated argument and its result are one. Every other array lives from the
instruction that makes it to its last use. Elementwise work and updates write over an operand that is not used again. The arrays inside a
loop, branch or call are live in addition to those around it.
"""

from collections.abc import Mapping, Set

from msgspec import Struct

from ..ir.module import HloModule, Instruction
from ..ir.platforms import Platform
from ..price.live_values import Value, Values, ValuesOf
from .scoped import scoped_bytes
from .slots import Slot, Slots, SlotsOf

CALLING = frozenset(("while", "conditional", "call", "async-start"))  # opcodes whose computations run in the program's order


class Live(Struct, frozen=True):
    """A live array, and the computation that made it."""

    computation: int
    value: Value


class LivePeak(Struct, frozen=True):
    """The arrays that a computation allocates itself, at their peak.

    ``scoped`` are bytes that the instruction that runs then, ``at``, uses besides. ``unused`` are the arrays of its parameters, by number,
    whose memory others use then; ``bytes`` is less by theirs. ``levels`` are the bytes while each instruction runs, without those of the
    computations that it calls: these are the peaks ``inside``. ``number`` is that of the computation.
    """

    bytes: int
    live: tuple[Live, ...]
    unused: frozenset[int] = frozenset()
    scoped: int = 0
    at: Instruction | None = None
    number: int = -1
    levels: tuple[int, ...] = ()
    inside: Mapping[int, "LivePeak"] = {}


NOTHING = LivePeak(0, ())


class Liveness:
    """The live arrays of each computation of a module: in main memory, or in the memory spaces with these numbers."""

    def __init__(self, module: HloModule, platform: Platform, spaces: frozenset[int] = frozenset()) -> None:
        self.module = module
        self.values = ValuesOf(module, platform, spaces)
        self.slots = SlotsOf(self.values)
        self._peaks: dict[tuple[int, str, frozenset[int]], LivePeak] = {}

    def peak(self, number: int, role: str = "call", lent: frozenset[int] = frozenset()) -> LivePeak:
        """The peak of a computation's arrays, without its parameters and its result; ``role`` is ``body`` in a loop.

        ``lent`` are the arrays that a loop carries in temporary memory, which others use in the body after the last use of such an array
        and before its next value is made.
        """
        key = (number, role if role in ("body", "condition") else "call", lent)
        if key not in self._peaks:
            self._peaks[key] = self._simulate(*key)
        return self._peaks[key]

    def over_program(self) -> dict[str, int]:
        """The bytes that are allocated while each instruction runs, of the program and of what it calls."""
        levels: dict[str, int] = {}
        waiting = [(self.module.entry, self.peak(self.module.entry), 0)]
        while waiting:
            number, peak, below = waiting.pop()
            for time, (instruction, own) in enumerate(zip(self.module.computations[number], peak.levels, strict=True)):
                levels[instruction.name] = max(levels.get(instruction.name, 0), below + own)
                called = peak.inside.get(time)
                if called is not None and called.number >= 0:
                    waiting.append((called.number, called, below + own))
        return levels

    def kept_results(self) -> list[Value]:
        """The program's results, except those in the memory of a donated argument."""
        results = self.values[self.module.entry].root
        return [value for place, value in enumerate(results) if value is not None and place not in self.slots.donated]

    def constants(self) -> list[tuple[Instruction, int]]:
        """The constants of the computations that run, and their bytes."""
        constants = []
        for values in self.values.walked():
            for value in values.arrays:
                if values.computation[value.index].opcode == "constant":
                    constants.append((values.computation[value.index], value.bytes))
        return constants

    def _simulate(self, number: int, role: str, lent: frozenset[int]) -> LivePeak:
        """Adds up the live memory over the order of execution, with that of called computations, and returns the peak."""
        values = self.values[number]
        slots = self.slots.of(number, role)
        instructions = values.computation.instructions
        change = [0] * (len(instructions) + 2)
        for slot in slots.own:
            change[slot.start] += slot.bytes
            change[slot.end + 1] -= slot.bytes
        gaps = slots.gaps(values, lent)
        for before, start, end in gaps:
            change[start] -= before.bytes
            change[end] += before.bytes
        most, peak, now, inner, own = 0, -1, 0, NOTHING, 0
        levels, inside = [], {}
        for time, instruction in enumerate(instructions):
            now += change[time]
            called = self._called(values, instruction, slots, lent) if instruction.calls else NOTHING
            scoped = scoped_bytes(instruction, self.values.spaces)
            levels.append(now + scoped)
            if called is not NOTHING:
                inside[time] = called
            if now + called.bytes + scoped > most:
                most, peak, inner, own = now + called.bytes + scoped, time, called, scoped
        at = instructions[peak]
        unused = {id(value) for place, value in enumerate(values.leaves[at.operands[0]] if inner.unused else ()) if place in inner.unused}
        occupants = [value for slot in slots.own if (value := slot.occupant(peak)) is not None]
        live = [Live(number, value) for value in occupants if id(value) not in unused]
        unused |= {id(before) for before, start, end in gaps if start <= peak < end}
        return LivePeak(
            bytes=most,
            live=(*live, *inner.live),
            unused=frozenset(place for place in lent if id(values.parameters[place]) in unused),
            scoped=own + inner.scoped,
            at=inner.at or at,
            number=number,
            levels=tuple(levels),
            inside=inside,
        )

    def _called(self, values: Values, instruction: Instruction, slots: Slots, lent: frozenset[int]) -> LivePeak:
        """The largest peak of the computations that an instruction calls."""
        if instruction.opcode not in CALLING:
            return NOTHING
        passed = frozenset[int]()
        if instruction.opcode == "while" and instruction.called("body") and self.values.platform == "tpu":
            own = {values.parameters[place] for place in lent}
            body = self.values[instruction.called("body")[0]].parameters
            carried = enumerate(zip(values.leaves[instruction.operands[0]], body, strict=False))
            passed = frozenset(place for place, (value, inside) in carried if value and inside and _is_temporary(slots.lender(value), own))
        called = [self.peak(call.computation, call.role, passed if call.role == "body" else frozenset()) for call in instruction.calls]
        return max(called, key=lambda peak: peak.bytes)


def _is_temporary(lender: Slot | Value | None, own: Set[Value | None]) -> bool:
    """Whether memory is temporary: of the computation, or of its ``own`` parameters, lent by the caller."""
    return isinstance(lender, Slot) or (lender is not None and lender in own)
