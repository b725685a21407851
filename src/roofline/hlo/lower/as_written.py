"""Programs of the TPU compiler in the operators that were written: products as dots, and fusions inside of fusions written out.

The TPU compiler writes every product as a convolution, often inside of fusions that are inside of a fusion. Rules about programs look for
dots, and follow values through the body of a kernel. Here each kernel's body becomes one list of operators. Computations that run and the
places of their instructions stay: a kernel has the same place in both programs.
"""

from collections.abc import Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ...errors import FormulaError
from ..ir.amending import amended, created
from ..ir.attributes import WindowDimension
from ..ir.module import Call, Computation, HloModule, Instruction
from ..ir.rewriting import Rewriting, written_out
from ..ir.shapes import Layout, Shape
from ..price.convolved_products import Role, fits, role_of
from .concatenations import with_concatenations
from .products import product_sizes

FUSION, CONVOLUTION = "fusion", "convolution"
_MOST_GROWTH = 4  # times the module's instructions, and a few more: nested fusions may repeat a body
_MORE = 2**16


def as_written(module: HloModule) -> HloModule:
    """The program with the body of each kernel written out, with dots for convolutions that are products, and with concatenations.

    The program itself, if it has neither nested fusions nor convolutions.
    """
    if CONVOLUTION not in module.opcodes and FUSION not in module.opcodes:
        return module
    bodies = {
        call.computation
        for computation in module
        for instruction in computation
        if instruction.opcode == FUSION
        for call in instruction.calls
    }
    computations = list(module.computations)
    left = _MOST_GROWTH * sum(map(len, computations)) + _MORE

    def body(instruction: Instruction) -> Computation | None:
        nonlocal left
        if instruction.opcode != FUSION or not instruction.calls:
            return None
        called = computations[instruction.calls[0].computation]
        left -= len(called)
        return called if left >= 0 and len(called.parameters) <= len(instruction.operands) else None

    for number in module.callees_first:
        if number in bodies:
            computations[number] = written_out(computations[number], body)
    if left < 0:  # bodies that are repeated at every depth would fill the memory
        return module
    for number in bodies:
        computations[number] = with_concatenations(_with_dots(computations[number]))
    for number, computation in enumerate(module.computations):
        if number not in bodies:
            computations[number] = _with_product_kernels(computation, computations)
    return replace(module, computations=tuple(computations))


def _with_dots(computation: Computation) -> Computation:
    """A body with dots for its convolutions that are products."""
    if not any(instruction.opcode == CONVOLUTION for instruction in computation.instructions):
        return computation
    body = Rewriting(computation)
    for index, instruction in enumerate(computation.instructions):
        moved = body.moved(instruction)
        dot = _dot(moved, body.new) if instruction.opcode == CONVOLUTION and len(instruction.operands) == 2 else None
        body.new += dot or [moved]
        body.where[index] = len(body.new) - 1
    return body.finished()


def _with_product_kernels(computation: Computation, computations: list[Computation]) -> Computation:
    """A computation that runs, in which each convolution that is a product is a fusion of a dot: in its place, so that no place changes."""
    places = [
        index
        for index, instruction in enumerate(computation.instructions)
        if instruction.opcode == CONVOLUTION and len(instruction.operands) == 2
    ]
    instructions = list(computation.instructions)
    for index in places:
        instruction = instructions[index]
        parameters = [
            created(instruction, f"{instruction.name}.operand.{number}", "parameter", operand.shape, ())
            for number, operand in enumerate(computation.operands(instruction))
        ]
        dot = _dot(replace(instruction, operands=(0, 1)), parameters)
        if dot is None:
            continue
        body = (*parameters, *dot)
        computations.append(
            Computation(name=f"{computation.name}.{instruction.name}", instructions=body, root=len(body) - 1, parameters=(0, 1))
        )
        instructions[index] = amended(
            replace(instruction, opcode=FUSION, calls=(Call("calls", len(computations) - 1),)), kind="kOutput", dim_labels=None, window=None
        )
    return replace(computation, instructions=tuple(instructions)) if places else computation


def written_product(convolution: Instruction, operands: Sequence[Instruction]) -> tuple[int, int, int, int] | None:
    """Batch, rows, depth and columns of the product that a convolution of these arrays is; ``None`` if it is none."""
    if len(operands) != 2:
        return None
    arrays = [*operands]
    steps = _dot(replace(convolution, operands=(0, 1)), arrays) or ()
    arrays += steps
    dot = next((step for step in steps if step.opcode == "dot"), None)
    return None if dot is None else product_sizes(dot.dot, *(arrays[operand].shape.dims for operand in dot.operands))


class _Axes(Struct):
    """How the axes of an operand take part in a product."""

    batch: list[int] = []
    contracted: list[int] = []
    free: list[int] = []
    absent: list[int] = []  # of size 1, which the product does not have


class _Side(Struct):
    """An operand of a convolution: 0 is the source and 1 the kernel, the array, its place, and how its axes take part in the product."""

    number: int
    array: Instruction
    operand: int
    axes: _Axes

    def places(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Where axes of the array are once those of one element are gone."""
        kept = [axis for axis in range(self.array.shape.rank) if axis not in self.axes.absent]
        return tuple([kept.index(axis) for axis in axes])


def _dot(instruction: Instruction, written: Sequence[Instruction]) -> list[Instruction] | None:
    """A convolution as a dot of its operands, with changes of shape before and after where it needs them; ``None`` if it is no product."""
    source, kernel = (written[operand] for operand in instruction.operands)
    roles = _roles(instruction, source.shape.dims, kernel.shape.dims)
    labels = instruction.convolution
    if roles is None or labels is None:
        return None
    left, right = (
        _Axes([], [labels.input_feature], [labels.input_batch], []),
        _Axes([], [labels.kernel_input_feature], [labels.kernel_output_feature], []),
    )
    for role, ours, theirs in zip(roles, labels.input_spatial, labels.kernel_spatial, strict=True):
        for axes, axis, is_absent in ((left, ours, role == "columns"), (right, theirs, role == "rows")):
            by_role = {"batch": axes.batch, "depth": axes.contracted}
            places = axes.absent if is_absent else by_role.get(role, axes.free)
            places.append(axis)
    wanted = _wanted(instruction, roles, left, right)
    if wanted is None:
        return None
    sides = [_Side(0, source, instruction.operands[0], left), _Side(1, kernel, instruction.operands[1], right)]
    if _is_kernel_first(wanted, instruction.shape.dims, left):
        sides.reverse()
    product_axes = [(0, axis) for axis in left.batch] + [(side.number, axis) for side in sides for axis in sorted(side.axes.free)]
    if sorted(axis for axis in wanted if axis is not None) != sorted(product_axes):
        return None
    steps = _Steps(instruction, len(written))
    operands = tuple([steps.squeezed(side.array, side.operand, side.axes.absent) for side in sides])
    first, second = sides
    dims = [(source if number == 0 else kernel).shape.dims[axis] for number, axis in product_axes]
    order = [product_axes.index(axis) for axis in wanted if axis is not None]  # of the dot's axes in the result
    attributes = {
        "lhs_batch_dims": first.places(first.axes.batch),
        "rhs_batch_dims": second.places(second.axes.batch),
        "lhs_contracting_dims": first.places(first.axes.contracted),
        "rhs_contracting_dims": second.places(second.axes.contracted),
        "operand_precision": instruction.operand_precision if first.number == 0 else instruction.operand_precision[::-1],
        "metadata": instruction.metadata,
    }
    kept = [axis for axis, of in enumerate(wanted) if of is not None]
    shape = _kept_axes(instruction.shape, kept)  # the result without axes of size 1
    if prod(dims) != shape.elements:
        return None
    steps.put("dot", _reordered(shape, order, dims), operands, attributes)
    if order != sorted(order):
        steps.put("transpose", shape, (steps.last,), {"dimensions": tuple(order), "metadata": instruction.metadata})
    if len(kept) < instruction.shape.rank:
        steps.put("bitcast", instruction.shape, (steps.last,), {"metadata": instruction.metadata})
    return steps.named()


def _roles(instruction: Instruction, source: tuple[int, ...], kernel: tuple[int, ...]) -> list[Role] | None:
    """What each spatial axis of a convolution is in a product; ``None`` if it is no product, or one of groups."""
    labels, result = instruction.convolution, instruction.shape.dims
    if labels is None or not fits(labels, source, kernel, result) or instruction.feature_group_count * instruction.batch_group_count > 1:
        return None
    sides = instruction.window or tuple(WindowDimension(kernel[axis]) for axis in labels.kernel_spatial)
    try:
        possible_roles = [
            role_of(side, source[place], result[out])
            for side, place, out in zip(sides, labels.input_spatial, labels.output_spatial, strict=True)
        ]
    except (FormulaError, IndexError, ValueError):
        return None
    known = [role for role in possible_roles if role is not None]
    return known if len(known) == len(possible_roles) else None


def _wanted(instruction: Instruction, roles: Sequence[Role], left: _Axes, right: _Axes) -> list[tuple[int, int] | None] | None:
    """For each axis of the result the operand and the axis of it that it is; ``None`` for an axis of size 1 that was contracted."""
    labels = instruction.convolution
    assert labels is not None
    wanted: dict[int, tuple[int, int] | None] = {
        labels.output_batch: (0, labels.input_batch),
        labels.output_feature: (1, labels.kernel_output_feature),
    }
    for role, out, ours, theirs in zip(roles, labels.output_spatial, labels.input_spatial, labels.kernel_spatial, strict=True):
        wanted[out] = {"batch": (0, ours), "rows": (0, ours), "columns": (1, theirs), "depth": None}[role]
    return [wanted[axis] for axis in range(instruction.shape.rank)] if sorted(wanted) == list(range(instruction.shape.rank)) else None


def _is_kernel_first(wanted: Sequence[tuple[int, int] | None], sizes: Sequence[int], source: _Axes) -> bool:
    """Whether the rows of the dot that was written are the kernel's: its axes come before the source's in the result."""
    last = {0: -1, 1: len(sizes)}
    for place, (axis, size) in enumerate(zip(wanted, sizes, strict=True)):
        if axis is not None and size > 1 and not (axis[0] == 0 and axis[1] in source.batch):
            last[axis[0]] = place
    return last[0] > last[1]


def _kept_axes(shape: Shape, kept: Sequence[int]) -> Shape:
    """The shape of an array without its other axes, which have one element: in the same order in memory."""
    place, layout = {axis: number for number, axis in enumerate(kept)}, shape.layout
    if layout is not None:
        layout = replace(layout, minor_to_major=tuple(place[axis] for axis in layout.minor_to_major if axis in place))
    return Shape(shape.dtype, tuple(shape.dims[axis] for axis in kept), layout)


def _reordered(shape: Shape, order: Sequence[int], dims: Sequence[int]) -> Shape:
    """The shape of an array whose axes ``order`` takes to those of a shape, in the same order in memory."""
    layout: Layout | None = shape.layout
    if layout is not None:
        layout = replace(layout, minor_to_major=tuple(order[axis] for axis in layout.minor_to_major))
    return Shape(shape.dtype, tuple(dims), layout)


class _Steps:
    """The instructions that a convolution becomes, appended to a body that has ``start`` before them."""

    def __init__(self, instruction: Instruction, start: int) -> None:
        self._convolution, self._start = instruction, start
        self._instructions: list[Instruction] = []

    @property
    def last(self) -> int:
        return self._start + len(self._instructions) - 1

    def put(self, opcode: str, shape: Shape, operands: tuple[int, ...], attributes: dict[str, object]) -> int:
        name = f"{self._convolution.name}.{opcode}.{len(self._instructions)}"
        self._instructions.append(created(self._convolution, name, opcode, shape, operands, **attributes))
        return self.last

    def squeezed(self, operand: Instruction, index: int, absent: Sequence[int]) -> int:
        """An operand without axes of one element."""
        if not absent:
            return index
        kept = [axis for axis in range(operand.shape.rank) if axis not in absent]
        return self.put("bitcast", _kept_axes(operand.shape, kept), (index,), {"metadata": operand.metadata})

    def named(self) -> list[Instruction]:
        """The instructions, the last with the name of the convolution."""
        return [*self._instructions[:-1], replace(self._instructions[-1], name=self._convolution.name)]
