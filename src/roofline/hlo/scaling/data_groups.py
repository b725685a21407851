"""Which dimensions of a program's data are the batch and the sequence.

Dimensions of inputs that grow together are a group. The batch is a group of first dimensions of the data that most products have. Arrays
that the program updates and returns (the state of a training step, caches) count as data only if there is no other data.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from msgspec import Struct

from ..ir.values import Values
from ..partition.propagation import Key
from .growth import Marks, Program
from .inputs import Input, reached_by
from .weights import FLOATS, MATRIX, is_updated, is_written, walked_by_loops

_KEY = (2, 4)  # 32-bit words in the state of a random number generator: jax.random's threefry, and rbg


class Group(Struct, frozen=True, eq=False):
    """Dimensions of inputs that grow together: ``seeds`` are inputs whose dimension number ``place`` has this ``size``; ``reached`` are all
    dimensions of inputs, and ``marks`` all arrays, that grow with them; ``products`` is the number of products that do.
    """

    place: int
    size: int
    seeds: tuple[Input, ...]
    reached: tuple[tuple[Input, int], ...]
    marks: Marks
    products: int

    @property
    def rank(self) -> tuple[int, int]:
        """How much of the program grows with it: the number of products, then of dimensions of arrays."""
        return self.products, sum(map(len, chain(*self.marks.values())))

    def leads(self, inputs: Collection[Key]) -> bool:
        """Whether one of these inputs is among its seeds."""
        return any(argument.key in inputs and axis == self.place for argument, axis in self.reached)


class DataInputs:
    """The data among a program's inputs; ``fresh`` are those that it does not update."""

    def __init__(self, program: Program, inputs: tuple[Input, ...], kept: Marks) -> None:
        self.program, self.inputs, self.kept = program, inputs, kept
        self.arrays = [argument for argument in inputs if not argument.is_weight]
        module, values = program.module, Values(program.module)
        self.updated = {argument.key for argument in self.arrays if is_updated(module, values, argument.key[1])}
        loops = walked_by_loops(module)
        self.walked = {
            argument.key for argument in self.arrays if argument.key[1] in loops
        }  # loops step along their first dimension: it is no batch
        self.all = {argument.key for argument in self.arrays}
        self.fresh = {
            argument.key for argument in self.arrays if argument.key not in self.updated and not is_written(module, values, argument.key[1])
        }

    def groups(self, place: int, seen: set[tuple[Key, int]], arrays: Iterable[Input] | None = None) -> Iterator[Group]:
        """The groups of dimensions number ``place`` of some arrays (by default all data), without those of weights and those in ``seen``,
        to which they are added.
        """
        for argument in self.arrays if arrays is None else arrays:
            if (
                place >= len(argument.dims)
                or argument.dims[place] == 1
                or (argument.key, place) in seen
                or self._is_random_key(argument, place)
            ):
                continue
            group = self._group(place, (argument,))
            seen |= {(other.key, axis) for other, axis in group.reached}
            if all(_follows_data(other, self._is_whole_numbers(argument)) for other, _ in group.reached if other.is_weight):
                yield group

    def _group(self, place: int, seeds: tuple[Input, ...]) -> Group:
        places = [(argument.key, place) for argument in seeds]
        marks = self.program.grown(places)
        reached = reached_by(self.inputs, marks)
        if self.kept and any(argument.is_weight for argument, _ in reached):
            marks = self.program.grown(places, self.kept)
            reached = reached_by(self.inputs, marks)
        return Group(place, seeds[0].dims[place], seeds, reached, marks, self.program.products_with(marks))

    def _is_whole_numbers(self, argument: Input) -> bool:
        return not self.program.module.entry_computation[argument.key[1]].shape.dtype.startswith(FLOATS)

    def _is_random_key(self, argument: Input, place: int) -> bool:
        dtype = self.program.module.entry_computation[argument.key[1]].shape.dtype
        return dtype == "u32" and place == len(argument.dims) - 1 and argument.dims[place] in _KEY

    def joined(self, first: Group, groups: Iterable[Group]) -> Group:
        """A group merged with others of the same dimension number and size, unless their inputs have another dimension linked with it: then
        the sizes are equal by chance.
        """
        linked = {argument.key for argument, _ in first.reached}
        alike = [
            group.seeds[0]
            for group in groups
            if group is not first and (group.place, group.size) == (first.place, first.size) and group.seeds[0].key not in linked
        ]
        return self._group(first.place, (*first.seeds, *alike)) if alike else first


def batch_group(data: DataInputs, seen: set[tuple[Key, int]]) -> Group | None:
    """The group that is the batch; ``None`` if there is no data, or if the batch is 1: compilers drop such dimensions."""
    groups = list(data.groups(0, set(seen), [argument for argument in data.arrays if argument.key not in data.walked]))
    for keys in (data.fresh, data.all):
        some = [group for group in groups if group.leads(keys)]
        outer = [group for group in some if not _is_inner(group, some, keys)]
        if likely := [group for group in outer if 2 * group.products >= len(data.program.products)]:
            return data.joined(max(likely, key=lambda group: group.rank), some)
    if any(argument.dims[0] == 1 for argument in data.arrays if len(argument.dims) >= MATRIX):
        return None
    groups = groups or list(data.groups(1, set(seen), [argument for argument in data.arrays if argument.key in data.walked]))
    return data.joined(max(groups, key=lambda group: group.rank), groups) if groups else None


def _is_inner(group: Group, groups: list[Group], keys: Collection[Key]) -> bool:
    """Whether data with this dimension has another group first: tokens have the batch first, and positions may be another input."""
    rank = max(len(argument.dims) for argument, axis in group.reached if axis == 0)
    for argument, axis in group.reached:
        if axis == 0 or argument.key not in keys:
            continue
        if argument.dims[0] == 1 and len(argument.dims) > rank:
            return True
        if any(2 * other.products >= group.products for other in groups if other is not group and (argument, 0) in other.reached):
            return True
    return False


def sequence_group(data: DataInputs, seen: set[tuple[Key, int]], batch: Group | None) -> Group | None:
    """The group that is the sequence: of the remaining ones, the first that about as many products have as any other, and not the side of
    an image. It is no dimension of state that the program updates elementwise, unless the batch is one.
    """
    places = range(max((len(argument.dims) for argument in data.arrays), default=0))
    groups = [group for place in places for group in data.groups(place, seen) if not data.program.is_image_side(group.marks)]
    is_state = batch is not None and not batch.leads(data.fresh)
    for keys in (data.fresh, data.all if is_state else data.all - data.updated):
        some = [group for group in groups if group.leads(keys)]
        likely = [group for group in some if any(data.program.computed(group.marks)) or (group.place == 0 and group.leads(data.walked))]
        likely = [group for group in likely if data.program.is_written_along(group.marks)] or likely  # positions of caches
        if likely:
            most = max(group.products for group in likely)
            place = min(group.place for group in likely if 2 * group.products >= most)
            return data.joined(max((group for group in likely if group.place == place), key=lambda group: group.rank), some)
    return None


def _follows_data(weight: Input, of_whole_numbers: bool) -> bool:
    """Whether a weight may be as long as the data, such as a table of positions: no product or look-up uses it.

    A vector may be a gain or a bias, unless the data is ``of_whole_numbers``, which has no features: then it is a vector of labels.
    """
    return (len(weight.dims) >= MATRIX or of_whole_numbers) and not weight.is_taken
