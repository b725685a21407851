"""``kernel attention=flash``: attention in one kernel per layer and direction; its scores are no longer stored.

The two products of the forward pass and the ops between them become one kernel; those of the backward pass, which use arrays of the same
size, another. Also removed are arrays in which a loop over layers stores scores for its gradients, masks, and copies that only change the
layout of operands and results. Kernels that slice queries, keys or values from a larger array stay, because a library's kernel takes whole
arrays.
"""

from math import prod

from ...cost import NOTHING, Cost
from ...hlo.ir.module import Computation, HloModule
from ...operation import Attention, Product, width
from ...resource import HBM, matrix
from ...rules.masked_attention.scores import KIND as MASKED
from ...rules.recomputation.recomputed import KIND as RECOMPUTED
from ...rules.stored_attention.written import KIND as STORED
from ...workload import Op
from .change_words import Words
from .state import State
from .traced_dimensions import JOINED

PRODUCTS_PER_KERNEL = {"forward": 2, "again": 2, "backward": 4}  # "again": the forward pass, recomputed
UNSEEN = 0.1  # of the time of ops removed from a trace: the most that further removed ops take, which it does not show (a choice)


def kernel(state: State, words: Words) -> None:
    """Replace attention that is not one kernel yet."""
    if (word := words.need()) != "attention=flash":
        raise words.wrong(f"kernel {word}: only attention=flash is known")
    by_module: dict[str, list[int]] = {}
    for index, op in state:
        if any(one.kind == STORED for one in op.avoidable):
            by_module.setdefault(op.module, []).append(index)
    if not by_module:
        state.notes.append("kernel attention=flash: this program stores no attention scores")
    for module, indices in by_module.items():
        _replace(state, state.programs.get(module), indices)


def _replace(state: State, module: HloModule | None, indices: list[int]) -> None:
    products = {phase: [] for phase in PRODUCTS_PER_KERNEL}  # type: dict[str, list[int]]
    for index in indices:
        op = state.ops[index]
        if isinstance(op.operation, Product):
            is_again = any(one.kind == RECOMPUTED for one in op.avoidable)
            products["again" if is_again else "backward" if op.phase == "backward" else "forward"].append(index)
    causal = any(one.kind == MASKED for index in indices for one in state.ops[index].avoidable)
    stored = [] if module is None else _stored_dims(module, [state.ops[index].name for index in indices])
    kept: set[int] = set()
    for phase, mine in products.items():
        for index in mine[:: PRODUCTS_PER_KERNEL[phase]] if module else _one_per_kernel(state, mine, PRODUCTS_PER_KERNEL[phase]):
            made = _attention(state.ops[index], causal, phase == "backward", stored)
            if made is not None:
                kept.add(index)
                state.put(index, _cost(made, state.ops[index]), made, 1.0, fresh=True)
    if not kept:
        return
    for index in indices:
        if index not in kept:
            state.remove(index, shorter=0.0 if module else UNSEEN)
    if module is None:
        _without_traced_copies(state, [one for index in kept if isinstance(one := state.ops[index].operation, Attention)])
    else:
        _without_copies(state, module, {state.ops[index].name for index in indices})


def _stored_dims(module: HloModule, names: list[str]) -> list[tuple[int, ...]]:
    """The dimensions of the arrays that some kernels return."""
    places = [place for name in names if (place := module.place(name)) is not None]
    return [leaf.dims for number, index in places for leaf in module.computations[number][index].shape.leaves if leaf.is_array]


def _one_per_kernel(state: State, products: list[int], each: int) -> list[int]:
    """The products of a trace that represent the new kernels, one kernel for every ``each`` products.

    A row of a trace contains all products of one shape, for example two of the gradients.
    """
    alike: dict[tuple[float, ...], list[int]] = {}
    for index in products:
        if isinstance(one := state.ops[index].operation, Product):
            alike.setdefault((float(one.batch), *sorted((float(one.m), float(one.k), float(one.n)))), []).append(index)
    runs = {key: sum(state.ops[index].count for index in some) / each for key, some in alike.items()}
    return [min(some, key=lambda index: abs(state.ops[index].count - runs[key])) for key, some in alike.items()]


def _attention(op: Op, causal: bool, backward: bool, stored: list[tuple[int, ...]]) -> Attention | None:
    """The attention to which a product belongs, from its sizes: two of them are numbers of positions, one is the size of a head.

    Heads that share keys are rows of one product; the dimensions in which scores are ``stored`` distinguish them from more positions.
    """
    one = op.operation
    if not isinstance(one, Product):
        return None
    size, queries, keys = sorted((float(one.m), float(one.k), float(one.n)))
    shared = keys / queries
    is_shared = shared > 1 and any(dims.count(int(queries)) > 1 and shared in dims for dims in stored)
    return Attention(
        batch=1,
        heads=float(one.batch) * shared if is_shared else one.batch,
        kv_heads=one.batch if is_shared else None,
        queries=queries,
        keys=queries if is_shared else keys,
        size=size,
        causal=causal,
        backward=backward,
        dtype=one.left if width(one.left) <= 2 else "bf16",
        library="cudnn",
    )


def _cost(made: Attention, op: Op) -> Cost:
    """The cost of all executions of a kernel: two products forward, five backward; queries, keys, values and results once."""
    pairs = float(made.heads) * float(made.queries) * float(made.keys) / (2 if made.causal else 1)
    flops = (10 if made.backward else 4) * pairs * float(made.size)
    rows = float(made.heads) * float(made.queries) + float(made.groups) * float(made.keys)
    arrays = (4 if made.backward else 2) * rows * float(made.size) * width(made.dtype)
    return Cost.of({matrix(made.dtype): flops, HBM: arrays}) * op.count


def _without_copies(state: State, module: HloModule, replaced: set[str]) -> None:
    """Remove kernels that only move data from or to the replaced ones, and masks that nothing else uses."""
    by_name = {op.name: index for index, op in state if op.module == module.name}
    places = [place for name in replaced if (place := module.place(name)) is not None]
    for number in sorted({number for number, _ in places}):
        gone = {index for where, index in places if where == number}
        _without_copies_in(state, module, module.computations[number], gone, by_name)


def _without_copies_in(state: State, module: HloModule, computation: Computation, gone: set[int], by_name: dict[str, int]) -> None:
    """Do so in one computation; ``gone`` are its instructions that are already removed."""
    values = state.review(module).values
    changed = True
    while changed:
        changed = False
        for place, one in enumerate(computation.instructions):
            if place in gone or (one.name in by_name and not _moves_only(state.ops[by_name[one.name]])):
                continue
            if one.opcode in ("parameter", "tuple", "while", "conditional", "call"):
                continue
            users = values.users(computation, place)
            feeds = bool(users) and all(user in gone for user in users) and not _takes_a_part(computation, place)
            takes = any(operand in gone for operand in one.operands) and all(
                operand in gone or not computation[operand].shape.dims for operand in one.operands
            )
            if feeds or takes:
                gone.add(place)
                changed = True
                if one.name in by_name:
                    state.remove(by_name[one.name])


def _takes_a_part(computation: Computation, place: int) -> bool:
    """Whether an instruction returns an array that is smaller than one of its operands."""
    one = computation[place]
    taken = max((shape.elements for operand in one.operands for shape in computation[operand].shape.leaves if shape.is_array), default=0)
    return any(shape.elements < taken for shape in one.shape.leaves if shape.is_array)


def _without_traced_copies(state: State, made: list[Attention]) -> None:
    """Remove copies of a trace that change the layout of queries, keys, values or results by head."""
    heads = {
        (float(one.batch) * float(one.heads) * float(tokens) * float(one.size), one.size)
        for one in made
        for tokens in (one.queries, one.keys)
    }
    for index, op in state:
        shapes = op.shapes
        if (
            shapes
            and len(shapes[0]) > JOINED
            and _moves_only(op)
            and any(prod(shapes[0]) == whole and size in shapes[0] for whole, size in heads)
        ):
            state.remove(index)


def _moves_only(op: Op) -> bool:
    """Whether an op computes nothing."""
    return op.cost != NOTHING and not any(resource.is_arithmetic or resource.unit == "matrix" for resource, _ in op.cost.amounts)
