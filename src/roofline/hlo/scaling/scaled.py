"""A program with scaled dimensions: the same instructions with new shapes."""

from msgspec.structs import replace

from ..ir.amending import amended
from ..ir.attributes import SliceRange
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
        shapes = [_grown(one.shape, number, index, marks, times, length) for index, one in enumerate(old.instructions)]
        instructions = tuple(
            _fitted(one, [old[operand].shape for operand in one.operands], [shapes[operand] for operand in one.operands], shape)
            for one, shape in zip(old.instructions, shapes, strict=True)
        )
        computations[number] = replace(old, instructions=instructions)
    return replace(module, computations=tuple(computations), buffer_assignment=b"")


def _grown(shape: Shape, number: int, index: int, marks: Marks, times: Times, length: int) -> Shape:
    part = iter(range(len(list(shape.leaves))))

    def rebuilt(one: Shape) -> Shape:
        if one.is_tuple:
            return replace(one, parts=tuple(map(rebuilt, one.parts)))
        held = marks.get((number, index, next(part)))
        return replace(one, dims=grown_dims(one.dims, held, times, length)) if held else one

    return rebuilt(shape)


def _fitted(one: Instruction, before: list[Shape], after: list[Shape], shape: Shape) -> Instruction:
    """An instruction with its new shape, and with sizes in its attributes that fit it."""
    made = replace(one, shape=shape)
    if shape == one.shape and before == after:
        return one
    if one.opcode == "slice":
        ranges = [
            _range(each, old, new, size) for each, old, new, size in zip(one.slices, before[0].dims, after[0].dims, shape.dims, strict=True)
        ]
        return amended(made, slice=tuple(ranges))
    if one.opcode == "dynamic-slice":
        return amended(made, dynamic_slice_sizes=shape.dims)
    if one.opcode == "gather":
        sizes = zip(one.integers("slice_sizes"), before[0].dims, after[0].dims, strict=True)
        return amended(made, slice_sizes=tuple(new if size == old else size for size, old, new in sizes))
    if one.opcode == "convolution" and one.convolution is not None:  # in the gradient of a kernel, the window has the size of the input
        windows = [after[1].dims[axis] for axis in one.convolution.kernel_spatial]
        return amended(made, window=tuple(replace(each, size=size) for each, size in zip(one.window, windows, strict=True)))
    return refitted(one, before, after, made) if one.opcode == "custom-call" else made


def _range(each: SliceRange, old: int, new: int, size: int) -> SliceRange:
    if old == new:
        return each
    return SliceRange(each.start, min(each.start + size * (each.stride or 1), new), each.stride)
