"""Fourier transforms that cost more than necessary: of real numbers as complex ones, and of lengths with a large prime factor."""

from collections.abc import Iterator

from ...formulas.fourier import slow_length
from ...workload import Avoidable, Saves
from ..ir.module import Computation
from ..ir.shapes import Shape
from .kernels import Kernels
from .number_formats import CLASS as WIDE
from .number_formats import KIND as WIDE_FORMAT
from .values import LAYOUT, Value

ODD_SIZES = "odd-sizes"
COMPLEX, LENGTHS = "complex", "transforms"  # the groups
# Opcodes that keep the symmetry of spectra of real signals, if all their operands are such spectra.
_SYMMETRIC = LAYOUT | {"multiply", "divide", "add", "subtract", "negate", "broadcast", "parameter"}


def complex_transforms(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The complex transforms of real numbers, the kernels that compute on their spectra, and the transforms back to real numbers.

    A transform of real numbers computes, and an inverse one needs, only half of each spectrum.
    """
    if "fft" not in kernels.module.opcodes:
        return
    values, computation = kernels.values, kernels.computation
    spectra: set[int] = set()  # kernels whose result is the spectrum of a real signal
    for index in kernels.costs:
        instruction = computation[index]
        transform = instruction.word("fft_type").upper() if instruction.opcode == "fft" else ""
        if transform == "FFT":
            made = values.origin(Value(computation, instruction.operands[0]), LAYOUT)
            if not _is_widened(kernels, made):
                continue
            spectra.add(index)
            yield index, _halved(kernels, index)
            maker = kernels.holding(made)
            if maker in kernels.costs and values.users(computation, maker) == [index]:
                yield maker, _halved(kernels, maker)
        elif transform == "IFFT":
            if _source(computation, instruction.operands[0]) in spectra and _is_taken_real(kernels, Value(computation, index)):
                yield index, _halved(kernels, index)
        elif _is_complex(instruction.shape) and _keeps_symmetry(kernels, index, spectra):
            spectra.add(index)
            yield index, _halved(kernels, index)


def odd_transforms(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The transforms of lengths that have a large prime factor."""
    if "fft" not in kernels.module.opcodes:
        return
    for index, cost in kernels.costs.items():
        instruction = kernels.computation[index]
        lengths = instruction.integers("fft_length") if instruction.opcode == "fft" else ()
        if slow := slow_length(lengths):
            yield (
                index,
                Avoidable(kind=ODD_SIZES, instead=cost, facts={"length": slow}, group=LENGTHS, saves=Saves.GOOD_TRANSFORM),
            )


def _halved(kernels: Kernels, index: int) -> Avoidable:
    return Avoidable(kind=WIDE_FORMAT, instead=kernels.costs[index] * 0.5, unneeded=WIDE, group=COMPLEX, factor=2)


def _is_complex(shape: Shape) -> bool:
    return shape.is_array and shape.dtype in ("c64", "c128")


def _is_widened(kernels: Kernels, made: Value) -> bool:
    """Whether a complex value was converted from a real one."""
    operands = kernels.values.operands(made)
    if made.opcode == "convert":
        return operands[0].shape.is_array and not _is_complex(operands[0].shape)
    if made.opcode == "pad":
        return _is_widened(kernels, kernels.values.origin(operands[0], LAYOUT))
    return False


def _source(computation: Computation, index: int) -> int:
    while computation[index].opcode in ("bitcast", "get-tuple-element", "reshape") and computation[index].operands:
        index = computation[index].operands[0]
    return index


def _keeps_symmetry(kernels: Kernels, index: int, spectra: set[int]) -> bool:
    """Whether a kernel is elementwise work on spectra of real signals alone."""
    instruction = kernels.computation[index]
    taken = {_source(kernels.computation, operand) for operand in instruction.operands}
    return kernels.values.opcodes(instruction) <= _SYMMETRIC and taken <= spectra


def _is_taken_real(kernels: Kernels, value: Value) -> bool:
    """Whether only the real part of a value is used."""
    uses = list(kernels.values.uses(value))
    return bool(uses) and all(use.opcode == "real" or (use.opcode in (*LAYOUT, "slice") and _is_taken_real(kernels, use)) for use in uses)
