"""``dtype [SCOPE=]FORMAT``: products in another number format, with the conversions and changes of layout that this needs.

Products read their operands in the new format, and the kernels that produce them write it: a fused kernel in the same pass. The result of a
library's product, or an argument that is not a weight, is converted by a kernel of its own. If a whole program changes to a 16-bit format,
all its fp32 arrays change too (and to fp32 all its 16-bit arrays), so nothing is converted; in bf16 a bias that was fused into a product
is added by a kernel of its own. A library's products of 8-bit floats need both operands with the contracted dimension last: XLA transposes
any other operand, element by element.
"""

from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...dtypes import DType, wider
from ...dtypes import dtype as named
from ...errors import FormulaError
from ...hlo.ir.module import HloModule
from ...hlo.ir.shapes import Shape
from ...hlo.ir.values import RENAMED, Value, Values
from ...hlo.lower.products import product_precision
from ...hlo.price.contractions import unit_at
from ...hlo.review.kernels import Product as Found
from ...operation import BYTE_TRANSPOSE, Convolution, Product, Streamed, width
from ...placement import place_op
from ...resource import HBM, Resource, matrix
from ...workload import Op
from .bf16_scatters import added_in_bf16_s
from .change_words import Words
from .state import State

WEIGHTS = "-weights"
HALF = 16  # bits of formats whose operands may have either layout
FLOATS = ("bf16", "fp16", "fp32", "tf32")  # formats that a whole program can be in
BY_ELEMENT, FAR_BELOW = ("gather", "scatter"), 0.6  # categories, and the share of the bandwidth below which it does not bound them
CUTS = frozenset(("dynamic-slice", "slice"))
COMPILED = 0.5  # least share of the products compiled by XLA that go to a library in these formats, which needs transposes (a choice)


def dtype(state: State, words: Words) -> None:
    """Change the format of the products in a scope, or of all."""
    written = words.need()
    scope, equals, name = written.rpartition("=")
    weights_only = name.endswith(WEIGHTS)
    try:
        number = named(name.removesuffix(WEIGHTS))
    except FormulaError as error:
        raise words.wrong(f"dtype {written}: {error}") from None
    whole = not equals and not weights_only and number.rate in FLOATS
    changed = 0
    for index, op in state:
        if isinstance(op.operation, Product) and (not equals or scope in op.scope or scope in str(op.label)):
            changed += _product(state, index, op, op.operation, number.name, weights_only, whole)
    if whole and (changed or any(isinstance(op.operation, Convolution) for _, op in state)):
        changed += _change_other_kernels(state, number)
    if not changed:
        which = f"no matmul with {scope!r} in its scope or label changes" if equals else "no matmul changes"
        state.notes.append(f"dtype {written}: {which}")


def _change_other_kernels(state: State, number: DType) -> int:
    """Change the float arrays of all other kernels of a whole program to a format. Returns how many kernels change."""
    changed = 0
    for index, op in state:
        if isinstance(op.operation, Product) or _is_by_element(state, op, number):
            continue
        share = _share(state, index, number)
        if share == 1 or not op.cost.known(HBM):
            continue
        amounts: dict[Resource, float] = {}
        unit = _unit(state, op, number)
        for resource, amount in op.cost.amounts:
            if resource.unit == "matrix":
                unit = _rated(state, unit, resource.kind)
            here = matrix(unit) if resource.unit == "matrix" else resource
            amounts[here] = amounts.get(here, 0.0) + float(amount or 0) * (share if resource == HBM else 1)
        operation = op.operation
        if isinstance(operation, Convolution):
            operation = replace(operation, compute=unit, bytes=None if operation.bytes is None else float(operation.bytes) * share)
        state.put(index, Cost.of(amounts), operation, 1.0)
        changed += 1
        if number.name == "bf16":
            state.in_bf16.add(index)
    if state.in_bf16:
        _note_slow_scatter(state)
    return changed


def _is_by_element(state: State, op: Op, number: DType) -> bool:
    """Whether a narrower format does not shorten an op: one of PyTorch's kernels that gather or add rows at random places, far below the
    bandwidth.

    On an H200 a gather of a million rows of 256 takes 0.61 ms in fp32 and in bf16, and adding them 1.89 and 2.15 ms.
    """
    if state.module_of(op) is not None or op.category not in BY_ELEMENT or number.bits > HALF or not op.time_s:
        return False
    return place_op(Cost.of({HBM: op.cost.known(HBM)}), state.machine).floor_s < FAR_BELOW * op.time_s


def _note_slow_scatter(state: State) -> None:
    """Add a note about the scatter-add that slows down the most in bf16, compared with fp32."""
    slower = []
    for index in state.in_bf16:
        op = state.ops[index]
        least = added_in_bf16_s(state.module_of(op), op, state.calibration)
        if least and op.time_s and least[0] > op.time_s:
            slower.append((least[0] - op.time_s, op.label or op.name, least[0] / op.time_s))
    if slower:
        _, name, times = max(slower)
        state.notes.append(
            f"dtype bf16: {name} takes about {times:,.3g} times as long, since GPUs add fp32 numbers faster: keep it in fp32"
        )


def _share(state: State, index: int, number: DType) -> float:
    """The factor on an op's bytes if its fp32 arrays change to a 16-bit format, or its 16-bit arrays to fp32."""
    arrays = [array for array in state.arrays_of(index) if array.dtype is not None]
    others = ("fp32",) if number.bits == HALF else ("bf16", "fp16")
    changing = [array for array in arrays if array.dtype is not None and array.dtype.rate in others]
    whole = sum(array.bytes for array in arrays)
    return 1 + sum(number.bytes(array.elements) - array.bytes for array in changing) / whole if whole else 1.0


def _unit(state: State, op: Op, number: DType) -> str:
    """The format in which an op computes products of operands in this format: on GPUs XLA runs fp32 as tf32 by default."""
    if number.rate != "fp32":
        return number.rate
    module = state.module_of(op)
    place = module.place(op.name) if module else None
    if module is None or place is None:
        return "tf32" if isinstance(op.operation, Product | Convolution) and op.operation.compute == "tf32" else "fp32"
    review = state.review(module)
    found, one = review.product(*place), module.computations[place[0]][place[1]]
    inside = review.values.body(one) or ()
    made = found.result.instruction if found else next((each for each in inside if each.opcode == "convolution"), one)
    return unit_at(number, review.pricer.platform, product_precision(made)).kind


def _rated(state: State, unit: str, before: str) -> str:
    """The format in which a chip computes: where its matrix unit has no rate for this one, it converts operands to that of before."""
    chip = state.after_machine
    if unit == before or not chip.rates_matrix or chip.resolve(matrix(unit)) is not None:
        return unit
    note = f"dtype {unit}: {chip.name} has no rate for matmuls in {unit}: computed in {before}"
    if note not in state.notes:
        state.notes.append(note)
    return before


def _product(state: State, index: int, op: Op, old: Product, number: str, weights_only: bool, whole: bool) -> bool:
    """Change one product. Returns whether it changes. If the ``whole`` program changes, nothing is converted."""
    right_is_weight = _is_weight(state, op, 1)
    left_is_weight = _is_weight(state, op, 0) and not right_is_weight
    left = old.left if weights_only and not left_is_weight else number
    right = old.right if weights_only and not right_is_weight else number
    compute = _rated(state, _unit(state, op, wider(named(left), named(right))), old.compute)
    out = old.out if named(old.out).bits <= 16 or named(number).bits > 16 else "bf16"
    turned = 0 if named(compute).bits == HALF else old.turned
    new = replace(old, left=left, right=right, out=out if named(number).bits <= 16 else number, compute=compute, turned=turned)
    if (new.left, new.right, new.compute) == (old.left, old.right, old.compute):
        return False
    cost = _cost(op, old, new, _share(state, index, named(number)) if whole and state.module_of(op) else None)
    state.put(index, cost * op.count, new, 1.0)
    state.reformatted.add(index)
    if not whole:
        _change_producers(state, op, old, new)
    elif number == "bf16":
        _add_bias_kernel(state, op)
    return True


def _add_bias_kernel(state: State, op: Op) -> None:
    """Add the kernel for a bias that the compiler does not fuse into a product of 16 bits."""
    _, number, position = _product_of(state, op)
    module = state.module_of(op)
    cost = state.review(module).bias_kernel(number, position) if module is not None else NOTHING
    if cost != NOTHING:
        state.add(op, cost, Streamed(kind="fusion"), "add")


def _cost(op: Op, old: Product, new: Product, share: float | None) -> Cost:
    """The cost of one execution in the new formats; ``share`` is the factor on its bytes where all its arrays change."""
    count = op.count or 1
    amounts = {}
    for resource, amount in op.cost.amounts:
        here = resource if resource.unit != "matrix" else matrix(new.compute)
        amounts[here] = float(amount) / count
    if HBM in amounts:
        amounts[HBM] = max(amounts[HBM] + new.bytes - old.bytes, 0.0) if share is None else amounts[HBM] * share
    return Cost.of(amounts)


def _product_of(state: State, op: Op) -> tuple[Found | None, int, int]:
    module = state.module_of(op)
    place = module.place(op.name) if module else None
    if module is None or place is None:
        return None, 0, 0
    return state.review(module).product(*place), *place


def _is_weight(state: State, op: Op, side: int) -> bool:
    """Whether an operand of a product is an argument of the program, a concatenation of arguments, or a slice of stacked weights."""
    found, _, _ = _product_of(state, op)
    module = state.module_of(op)
    if found is None or module is None:
        return side == 1
    sources, cuts = _sources(state.review(module).values, (found.left, found.right)[side])
    return _are_arguments(module, sources) and (not cuts or all(source.index in state.weights(module) for source in sources))


def _sources(values: Values, side: Value) -> tuple[list[Value], list[Value]]:
    """The values that an operand is assembled from, and the slices taken of them."""
    return values.sources(side, lambda one: values.operand(one, 0) if one.opcode in CUTS else None)


def _are_arguments(module: HloModule, sources: list[Value]) -> bool:
    return all(source.opcode == "parameter" and source.computation is module.entry_computation for source in sources)


def _change_producers(state: State, op: Op, old: Product, new: Product) -> None:
    """Change the kernels that produce a product's operands: they write the new format, or a separate kernel converts it."""
    found, number, position = _product_of(state, op)
    module = state.module_of(op)
    if found is None or module is None:
        return
    review, made = state.review(module), module.computations[number][position]
    sides = ((found.left, old.left, new.left, found.dims.lhs_contracting), (found.right, old.right, new.right, found.dims.rhs_contracting))
    for side, before, after, contracted in sides:
        if before == after:
            continue
        elements = side.shape.elements
        sources, cuts = _sources(review.values, side)
        is_argument = _are_arguments(module, sources)
        if is_argument and all(source.index in state.weights(module) for source in sources):  # weights are stored in the new format
            for cut in cuts:
                _change_moved(state, op, cut.kernel, 2 * cut.shape.elements, before, after)
        else:
            maker = None if is_argument else review.values.origin(side, RENAMED | {"get-tuple-element"}).kernel
            _change_result(state, op, maker, elements, before, after)
        if review.pricer.platform == "gpu" and named(after).rate == "fp8" and not _is_last(side.shape, contracted):
            least = 1.0 if made.opcode == "custom-call" else COMPILED
            turned = Streamed(kind=BYTE_TRANSPOSE, elements=elements)
            state.add(op, Cost.of({HBM: elements * 2 * width(after)}), turned, "transpose", least)


def _is_last(shape: Shape, contracted: tuple[int, ...]) -> bool:
    """Whether the contracted dimension of an operand is the last (contiguous) one."""
    if not contracted or shape.layout is None:
        return bool(contracted) and contracted[-1] == shape.rank - 1
    return shape.layout.minor_to_major[0] in contracted


def _change_result(state: State, op: Op, maker: str | None, elements: int, before: str, after: str) -> None:
    """Write a kernel's result in the new format: fused kernels write it directly, results of others are converted afterwards."""
    if not _change_moved(state, op, maker, elements, before, after):
        narrowed = elements if named(after).rate == "fp8" else 0
        state.add(op, Cost.of({HBM: elements * (width(before) + width(after))}), Streamed(kind="fusion", narrowed=narrowed), "convert")


def _change_moved(state: State, op: Op, kernel: str | None, elements: int, before: str, after: str) -> bool:
    """Change the format of elements that a kernel of the op's program moves. Returns whether there is such a kernel."""
    narrowed = elements if named(after).rate == "fp8" else 0
    for index, one in state:
        is_compiled = one.operation is None or isinstance(one.operation, Streamed)  # others are library calls
        if kernel is not None and one.name == kernel and one.module == op.module and is_compiled:
            saved = elements * (width(before) - width(after)) * one.count
            amounts = {resource: float(amount) for resource, amount in one.cost.amounts}
            amounts[HBM] = max(amounts.get(HBM, 0.0) - saved, 0.0)
            operation = replace(one.operation, narrowed=narrowed) if one.operation else None
            state.put(index, Cost.of(amounts), operation, 0.5)
            return True
    return False
