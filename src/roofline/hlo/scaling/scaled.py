"""A program with scaled dimensions: the same instructions with new shapes."""

from msgspec.structs import replace

from ..ir.amending import amended, resized
from ..ir.module import HloModule, Instruction
from ..ir.shapes import Shape
from .attention_calls import refitted
from .growth import Marks, Program, Times, grown_dims, running


def scaled(program: Program, marks: Marks, times: Times, length: int = 0) -> HloModule:
    """The program with its marks scaled by ``times``; sizes a little above or below ``length`` keep their difference to it."""
    module = program.module
    computations = list(module.computations)
    for number in running(module):
        old = module.computations[number]
        shapes = [_grown(instruction.shape, number, index, marks, times, length) for index, instruction in enumerate(old.instructions)]
        instructions = tuple(
            _fitted(
                instruction,
                [old[operand].shape for operand in instruction.operands],
                [shapes[operand] for operand in instruction.operands],
                shape,
            )
            for instruction, shape in zip(old.instructions, shapes, strict=True)
        )
        computations[number] = replace(old, instructions=instructions)
    return replace(module, computations=tuple(computations), buffer_assignment=b"")


def _grown(shape: Shape, number: int, index: int, marks: Marks, times: Times, length: int) -> Shape:
    part = iter(range(len(list(shape.leaves))))

    def rebuilt(old: Shape) -> Shape:
        if old.is_tuple:
            return replace(old, parts=tuple(map(rebuilt, old.parts)))
        marked = marks.get((number, index, next(part)))
        return replace(old, dims=grown_dims(old.dims, marked, times, length)) if marked else old

    return rebuilt(shape)


def _fitted(instruction: Instruction, before: list[Shape], after: list[Shape], shape: Shape) -> Instruction:
    """An instruction with its new shape, and with sizes in its attributes that fit it."""
    if shape == instruction.shape and before == after:
        return instruction
    if not before:
        return replace(instruction, shape=shape)
    new = resized(instruction, before[0], after[0], shape)
    if instruction.opcode == "convolution" and instruction.convolution is not None:
        # In the gradient of a kernel, the window has the size of the input.
        windows = [after[1].dims[axis] for axis in instruction.convolution.kernel_spatial]
        return amended(new, window=tuple(replace(side, size=size) for side, size in zip(instruction.window, windows, strict=True)))
    return refitted(instruction, before, after, new) if instruction.opcode == "custom-call" else new
