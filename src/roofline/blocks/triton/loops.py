"""Which loop of the machine code is which loop of Triton's IR, and how often it runs."""

import math
import re
from collections.abc import Mapping, Sequence

from .addresses import Loop
from .ir import Operation
from .sass import Instruction, Part
from .warp import WARP_MATRIX, WARPGROUP_MATRIX, flops_of

_WIDTH = re.compile(r"\.(?:U|S)?(8|16|32|64|128)\b")
THREADS = 32


def trip_counts(
    parts: Sequence[Part], loops: Sequence[Loop], trips: Mapping[int, float], warps: int, entered: Sequence[Operation] = ()
) -> dict[int, float]:
    """How often each loop of the code runs, by the identity of its part; ``trips`` has that of the IR's loops, by their operation's.

    A loop of the code belongs to the loop of the IR whose lines its instructions have. The compiler may unroll a loop and run the rest in a
    second one: how many iterations one pass does follows from its matrix products, its loads and its stores. A loop of the code outside of
    which the IR has more loops than were ``entered`` does the iterations of these, too.
    """
    outer = {id(loop.operation): [operation for operation in loop.outer if operation not in entered] for loop in loops}
    found: dict[int, float] = {}
    for source, passes in _by_source(parts, loops, warps).items():
        left = trips.get(source, 1.0) * math.prod(trips.get(id(operation), 1.0) for operation in outer[source])
        for unrolled, part in passes:
            found[id(part)] = left // unrolled if unrolled > 1 else left
            left -= found[id(part)] * unrolled
    for part in parts:
        if part.loop:
            source_loop = _source(part, loops)
            found.setdefault(id(part), 1.0)
            inner = [loop for loop in loops if source_loop is not None and source_loop.operation in loop.outer]
            through = (*source_loop.outer, source_loop.operation) if source_loop is not None else entered
            found |= trip_counts(part.loop, inner, trips, warps, through)
    return found


def unfused(parts: Sequence[Part], loops: Sequence[Loop]) -> tuple[Part, ...]:
    """The parts with what a loop does only for a loop around it, which the compiler fused into it (`flatten`), as a loop of its own."""
    apart: list[Part] = []
    for part in parts:
        source = _source(part, loops) if part.loop else None
        if source is None or not source.outer:
            apart.append(part)
            continue
        inside = {(operation.file, operation.line) for operation in source.operation.everything()}
        lines = {(operation.file, operation.line) for operation in _own(source.outer[-1])} - inside
        code = [inner.instructions for inner in part.loop if not inner.loop]
        rest = tuple(instruction for run in code for instruction in run if (instruction.file, instruction.line) in lines)
        kept = (
            inner if inner.loop else Part(tuple(each for each in inner.instructions if (each.file, each.line) not in lines))
            for inner in part.loop
        )
        apart += [Part(loop=tuple(kept)), Part(loop=(Part(rest),))]
    return tuple(apart)


def without_rest(parts: Sequence[Part], loops: Sequence[Loop], trips: Mapping[int, float], warps: int) -> tuple[Part, ...]:
    """The parts without the code behind an unrolled loop, for the iterations that are left over, as far as these do not run."""
    runs: dict[tuple[str, int], float] = {}
    for source, passes in _by_source(parts, loops, warps).items():
        unrolled = passes[0][0]
        if unrolled > 1 and len(passes) == 1:
            operation = next(loop.operation for loop in loops if id(loop.operation) == source)
            share = trips.get(source, 1.0) % unrolled / (unrolled - 1)
            runs |= {(inside.file, inside.line): share for inside in _own(operation)}
    return tuple(part if part.loop else Part(_kept(part.instructions, runs)) for part in parts) if runs else tuple(parts)


def _kept(code: tuple[Instruction, ...], runs: Mapping[tuple[str, int], float]) -> tuple[Instruction, ...]:
    """Of the instructions of each line the first, by the share that runs."""
    lines = [(instruction.file, instruction.line) for instruction in code]
    left = {line: lines.count(line) * share for line, share in runs.items()}
    kept = []
    for instruction, line in zip(code, lines, strict=True):
        if line in left:
            left[line] -= 1
        if left.get(line, 0.0) > -1:
            kept.append(instruction)
    return tuple(kept)


def _by_source(parts: Sequence[Part], loops: Sequence[Loop], warps: int) -> dict[int, list[tuple[float, Part]]]:
    """The loops of the code that belong to each loop of the IR, with the iterations that one pass does; those that do most first."""
    found: dict[int, list[tuple[float, Part]]] = {}
    for part in parts:
        if part.loop and (source := _source(part, loops)):
            found.setdefault(id(source.operation), []).append((_unrolled(part, source.operation, warps), part))
    return {source: sorted(passes, key=lambda each: -each[0]) for source, passes in found.items()}


def _source(part: Part, loops: Sequence[Loop]) -> Loop | None:
    lines = [(instruction.file, instruction.line) for instruction in part.everything()]
    best, most = None, 0.0
    for loop in loops:
        body = {(operation.file, operation.line) for inside in loop.operation.body for operation in inside.everything()}
        # Of two loops with these lines, the inner one, whose body is smaller.
        score = sum(line in body for line in lines) - len(body) / 1000
        if score > most:
            best, most = loop, score
    return best


def _own(operation: Operation) -> list[Operation]:
    """The operations of a loop's body that are not in an inner loop."""
    found = []
    for inside in operation.body:
        found.append(inside)
        if inside.name not in ("scf.for", "scf.while"):
            found += _own(inside)
    return found


def _unrolled(part: Part, source: Operation, warps: int) -> float:
    """Iterations in one pass: loads, stores and products of the code over those of the IR. Warps may repeat some: the least."""
    code: list[Instruction] = [instruction for inner in part.loop for instruction in inner.instructions]
    inside = _own(source)
    groups = sum(flops_of(found) for each in code if (found := WARPGROUP_MATRIX.match(each.opcode))) * warps / 4
    singles = sum(flops_of(found) for each in code if (found := WARP_MATRIX.match(each.opcode))) * warps
    done = [(groups + singles, sum(dot_flops(operation) for operation in inside))]
    for names, operation in ((("LDG", "LDGSTS"), "tt.load"), (("STG",), "tt.store")):
        moved = sum(width(each) * THREADS * warps for each in code if each.name in names)
        done.append((moved, sum(max(each.type.elements, THREADS * warps) * each.type.bytes for each in inside if each.name == operation)))
    return max(1.0, round(min((amount / needed for amount, needed in done if amount and needed), default=1.0)))


def width(instruction: Instruction) -> int:
    """Bytes that each thread loads or stores."""
    found = _WIDTH.search(instruction.opcode)
    return int(found[1]) // 8 if found else 4


def dot_flops(operation: Operation) -> float:
    """FLOP of a product of two tiles, whose types are all in its text."""
    if operation.name != "tt.dot":
        return 0.0
    shapes = re.findall(r"tensor<(\d+)x(\d+)x", operation.text.rpartition(" : ")[2])
    return 2.0 * int(shapes[0][0]) * int(shapes[0][1]) * int(shapes[1][1]) if len(shapes) > 1 else 0.0
