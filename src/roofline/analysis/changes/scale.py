"""``scale DIM=xN``: make a dimension of the program's inputs larger or smaller, and trace it through the program."""

from fractions import Fraction
from math import log2

from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...errors import SourceError, UsageError, did_you_mean
from ...hlo.ir.module import HloModule
from ...hlo.memory.owners import OPTIMIZER
from ...hlo.price.types import Site
from ...hlo.review.kernels import Product as Found
from ...hlo.scaling.batch_of_one import Data
from ...hlo.scaling.growth import Program, Times
from ...hlo.scaling.inputs import inputs_of
from ...hlo.scaling.named_dimensions import BATCH, Dimension, dimension_named, dimensions_of, walking
from ...hlo.scaling.scaled import scaled
from ...operation import Collective, Product
from ...peak_memory import RECORDED_ALLOCATIONS, PeakMemory
from ...plan.chips import chips_on
from ...plan.exchanges import gradients_shown
from ...plan.times import training_calibration
from ...resource import SCALE_UP
from ...sources.programs import most_memory
from ...units import number_of, percent, show
from .change_words import Words
from .single_rows import parts_of, split_product
from .split_depths import add_up_fewer, cost_of, with_fewer_parts
from .state import State
from .traced_scale import TRACED, scale_traced

LEAST_SHOWN = 0.5  # of what an exchange is expected to show: the low bound; the high one is all of it
LISTED = 8  # dimensions that an error lists when one is not known
LEAST, MOST = Fraction(1, 2**20), 2**20  # allowed factors


def scale(state: State, words: Words) -> None:
    """Scale a dimension of the program that has it (the one with the most time), and the same dimension of equal size in the others."""
    written = words.first or ""
    name, times = _asked("scale", words)
    if not state.programs and name in TRACED and (size := scale_traced(state, name, times)):
        if (size * times).denominator != 1:
            raise UsageError(f"scale {name}=x{times}: {name} is {size}, which leaves no whole number")
        state.notes.append(f"{name}: {size} to {size * times}, by the shapes of each op's first tensors{_as_factor(written, size)}")
        state.memory = None
        return
    program, dimension = _dimension(state, "scale", name)
    module, after = program.module, dimension.size * times
    if after.denominator != 1 or (dimension.is_dropped and times < 1):
        raise UsageError(f"scale {name}=x{times}: {name} is {dimension.size}, which leaves no whole number")
    inputs = _inputs_of_size(dimension, dimension.size)
    state.notes.append(f"{name} of {module.name}: {dimension.size} to {after}{inputs}{_as_factor(written, dimension.size)}")
    if longer := _inputs_of_size(dimension, dimension.size + 1 if dimension.length else 0):
        state.notes.append(f"{name} of {module.name}: inputs with one more, {dimension.size + 1} to {after + 1}{longer}")
    _scaled(state, program, dimension, times)
    others = 0
    for other in [one for one in state.programs.values() if one.name != module.name]:
        program = Program(other)
        same = dimension_named(program, name)
        if same and (same.size, same.is_dropped) == (dimension.size, dimension.is_dropped):
            _scaled(state, program, same, times)
            others += 1
    if others:
        state.notes.append(f"{name} of {number_of(others, 'other program')} in the same way")
    state.memory = None if dimension.is_dropped else _memory(state)


def _as_factor(written: str, size: int) -> str:
    """What ``batch=16`` means, which looks like a batch of 16: a factor; and how to write the batch of 16, if it is another one."""
    name, _, number = written.partition("=")
    if not number.isdecimal():
        return ""
    other = Fraction(int(number), size)
    return f"; {written} is {number} times as large" + (f", a {name} of {number} is {name}=x{other}" if other != 1 else "")


def _inputs_of_size(dimension: Dimension, size: int) -> str:
    """The inputs that have the dimension in this size, in parentheses."""
    whole = [f"{one.name}[{axis}]" for one, axis in dimension.inputs if one.dims[axis] == size]
    return f" ({', '.join(whole[:4])}{', …' if len(whole) > 4 else ''})" if whole else ""


def _scaled(state: State, program: Program, dimension: Dimension, times: Fraction) -> None:
    """Scale a dimension of one program."""
    if dimension.is_dropped:
        _hidden(state, program.module, dimension, int(times))
        return
    _grown(state, program, dimension, times)
    if dimension.grouped:
        _with_the_same_tokens(state, program.module.name, times)


def _memory(state: State) -> PeakMemory | None:
    """The peak memory of the programs in their new sizes; ``None`` for a profile's allocations, which cover more than the programs."""
    if state.memory is None or state.memory.method == RECORDED_ALLOCATIONS:
        return None
    return most_memory((module, state.review(module).pricer.platform) for module in state.programs.values())


def _with_the_same_tokens(state: State, name: str, times: Fraction) -> None:
    """Keep the number of tokens when experts are scaled: tokens are grouped by expert, so the scaling multiplied them too."""
    program = Program(state.programs[name])
    if tokens := dimension_named(program, BATCH):
        _grown(state, program, tokens, 1 / times)


def shard(state: State, words: Words) -> None:
    """Split a dimension over devices; sums over it need an all-reduce, whose time and overlap are those of plans."""
    name, asked = _asked("shard", words)
    devices = int(asked)
    if devices != asked:
        raise words.wrong(f"shard {name}={asked}: the number of devices must be a whole number")
    program, dimension = _dimension(state, "shard", name)
    if dimension.is_dropped or dimension.size < devices:
        raise UsageError(f"shard {name}={devices}: {name} is {dimension.size}, which cannot be spread over {devices} devices")
    module, review = program.module, state.review(program.module)
    link = next((unit for unit in SCALE_UP if state.after_machine.ceiling(unit)), "")
    sums = []
    for _, op in state:
        place = module.place(op.name) if op.module == module.name else None
        found = review.product(*place) if place else None
        if found is not None and _sums(program, dimension, found):
            sums.append((op, found.result.shape.bytes))
    _grown(state, program, dimension, Fraction(1, devices))
    state.memory = _memory(state)
    if state.memory and not _splits_weights(dimension) and (note := _with_parts_of_the_optimizer(state.memory, devices)):
        state.notes.append(f"shard {name}={devices}: {note}")
    if not link:
        state.notes.append(f"shard {name}={devices}: {state.after_machine.name} has no known link, so its exchanges are left out")
        return
    chips = chips_on(state.after_machine.per_device(), -(-devices // state.after_machine.per_device().devices))
    whole = [op.count * 2 * chips.gather(float(moved), 1, devices) for op, moved in sums]  # a scatter and a gather
    shown = _shown(state, dimension, sum(whole), devices)
    for (op, moved), time_s in zip(sums, whole, strict=True):
        crossing = Fraction(2 * (devices - 1) * moved, devices * max(1, rated.count if (rated := state.after_machine.ceiling(link)) else 1))
        operation = Collective(kind="all-reduce", devices=devices, bytes=moved, link=link)
        visible = Cost.of({link: crossing * Fraction(shown).limit_denominator(1000)})
        state.add(op, visible, operation, "all-reduce", LEAST_SHOWN, 1 / shown, shown * time_s)
    exchanges = f"{len(sums):,} all-reduces over {link}, of which {percent(shown)} shows beside other work"
    state.notes.append(f"shard {name}={devices}: one of {devices} devices, {exchanges}")


def _with_parts_of_the_optimizer(memory: PeakMemory, devices: int) -> str:
    """What the peak is where each device owns a part of the optimizer's state, as in plans, which takes the same scatter and gather."""
    less = sum(owner.bytes for owner in memory.owners if owner.owner == OPTIMIZER) * (devices - 1) // devices
    if not less:
        return ""
    return (
        f"every device keeps the optimizer's whole state, {show(memory.peak_bytes, 'B')} at the peak; with a part on each, as plans "
        f"count it, {show(memory.peak_bytes - less, 'B')}"
    )


def _splits_weights(dimension: Dimension) -> bool:
    return any(array.is_weight for array, _ in dimension.inputs)


def _shown(state: State, dimension: Dimension, whole: float, devices: int) -> float:
    """The share of all-reduces that nothing hides: of gradients where no weight is split, else between the halves of a layer."""
    values = training_calibration().values
    if _splits_weights(dimension):
        return 1 - values["overlap.tensor"]
    beside = sum(op.time_s or 0.0 for op in state.recording.workload) / devices
    return gradients_shown(whole, beside, values) / whole if whole else 1.0


def _sums(program: Program, dimension: Dimension, found: Found) -> bool:
    """Whether a product sums over the split dimension."""
    numbers = {computation.name: number for number, computation in enumerate(program.module.computations)}
    marks = dimension.marks.get((numbers[found.left.computation.name], found.left.index, 0), ())
    return any(axis < len(marks) and marks[axis] for axis in found.dims.lhs_contracting)


def _asked(change: str, words: Words) -> tuple[str, Fraction]:
    """Parse the name of a dimension and a factor: 4, x4, x1/2 or x0.5."""
    written = words.need()
    name, _, by = written.partition("=")
    try:
        times = Fraction(by.removeprefix("x"))
    except (ValueError, ZeroDivisionError):
        times = Fraction()
    if not LEAST <= times <= MOST:
        raise words.wrong(f"{change} {written}: the factor must be a number, such as batch=x4 or batch=x1/2")
    return name, times


def _dimension(state: State, change: str, name: str) -> tuple[Program, Dimension]:
    """The program with the most time that has a dimension of this name, and the dimension."""
    if not state.programs and change == "scale" and name in TRACED:
        has_shapes = any(op.shapes for op in state.recording.workload)
        why = "no tensor of three dimensions or more shows it" if has_shapes else "no shapes were recorded"
        option = "" if has_shapes else "record them (record_shapes=True in torch.profiler), or "
        raise UsageError(f"scale {name}: {why}; {option}give the changed function instead: rl.what_if(path, program=f, args=…)")
    if not state.programs:
        others = f" (only {' and '.join(TRACED)} can be scaled without)" if change == "scale" else ""
        raise UsageError(
            f"{change} {name} needs the compiled program, which this input does not have{others}; "
            "give the changed function instead: rl.what_if(path, program=f, args=…)"
        )
    for module in state.programs.values():
        program = Program(module)
        dimension = dimension_named(program, name)
        if dimension is not None:
            return program, dimension
    first = Program(next(iter(state.programs.values())))
    known = [each.name for each in dimensions_of(first)]
    data_first = sorted(inputs_of(first), key=lambda one: one.is_weight)
    known += [f"{one.name}[{axis}]" for one in data_first for axis in range(len(one.dims))]
    more = ", …" if len(known) > LISTED else ""
    raise UsageError(f"{change} {name}: no such dimension{did_you_mean(name, known) or '; known: ' + ', '.join(known[:LISTED]) + more}")


def _grown(state: State, program: Program, dimension: Dimension, times: Times) -> None:
    module = program.module
    larger = scaled(program, dimension.marks, times, dimension.length)
    review = state.review(larger)
    longer = walking(program, dimension)
    joined = list[tuple[tuple[int, int], Product, Product]]()
    for index, op in state:
        place = module.place(op.name) if op.module == module.name else None
        if place is None or not op.count or op.cost == NOTHING:
            continue  # loops and calls have no cost of their own, only the ops in them
        number, position = place
        if number in longer:
            state.run_more(index, times ** longer[number])
            op = state.ops[index]
        site = Site(larger, larger.computations[number], larger.computations[number][position], review.pricer.platform)
        try:
            once = review.pricer.price(site)
        except SourceError:
            state.notes.append(f"{op.name}: the dimension cannot be traced through it; its time is left unchanged")
            continue
        cost = once.cost * op.count
        if cost.amounts == op.cost.amounts:
            continue
        made, far = review.operation(number, position, once.cost), abs(log2(times))
        if parts := parts_of(review, place, op.operation, made):
            split_product(state, index, parts, far)
        elif times > 1 and isinstance(made, Product) and (fewer := with_fewer_parts(state, review, place, made)):
            state.put(index, cost_of(fewer) * op.count, fewer, far)
            joined.append((place, made, fewer))
        else:
            state.put(index, cost, made, far)
    for place, before, after in joined:
        add_up_fewer(state, larger, review, place, before, after)
    state.programs[module.name] = larger


def _hidden(state: State, module: HloModule, dimension: Dimension, times: int) -> None:
    """Scale a batch of one, which does not appear in the shapes of the compiled program."""
    data = Data(module, {one.key[1] for one, _ in dimension.inputs})
    held = [module.entry_computation[index] for index in sorted(data.held)]
    if loops := [one.name for one in held if one.opcode == "while"]:
        raise UsageError(
            f"scale {dimension.name}: the {dimension.name} of {module.name} is 1, which cannot be followed into its loop {loops[0]}; "
            f"start from the program with a {dimension.name} of 2"
        )
    review, rows = state.review(module), data.row_products()
    sums = {place for one in rows.values() for place in one.sums}
    for index, op in state:
        place = module.place(op.name) if op.module == module.name else None
        if place is None or place[0] != module.entry or place[1] not in data.held:
            continue
        if place[1] in sums:
            state.remove(index)
            continue
        if row := rows.get(place[1]):
            product = replace(row.product, m=times)
            state.put(index, cost_of(product) * op.count, product, log2(times), fresh=True)
            continue
        found = review.product(*place)
        operation = data.operation(place[1], op.operation, found, times)
        once = op.cost * Fraction(1, int(op.count) or 1)
        state.put(index, data.cost(place[1], once, times) * op.count, operation, log2(times))
