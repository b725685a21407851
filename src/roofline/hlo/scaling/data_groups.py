"""Which dimensions of a program's data are the batch and the sequence.

Dimensions of inputs that grow together are a group. The batch is a group of first dimensions of the data that most products have. Arrays
that the program updates and returns (the state of a training step, caches) count as data only if there is no other data.
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from ..partition.propagation import Key
from ..unneeded.values import Values
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
        return self.products, sum(len(held) for each in self.marks.values() for held in each)

    def leads(self, inputs: Collection[Key]) -> bool:
        """Whether one of these inputs is among its seeds."""
        return any(one.key in inputs and axis == self.place for one, axis in self.reached)


class DataInputs:
    """The data among a program's inputs; ``fresh`` are those that it does not update."""

    def __init__(self, program: Program, inputs: tuple[Input, ...], kept: Marks) -> None:
        self.program, self.inputs, self.kept = program, inputs, kept
        self.arrays = [one for one in inputs if not one.is_weight]
        module, values = program.module, Values(program.module)
        self.updated = {one.key for one in self.arrays if is_updated(module, values, one.key[1])}
        loops = walked_by_loops(module)
        self.walked = {one.key for one in self.arrays if one.key[1] in loops}  # loops step along their first dimension: it is no batch
        self.all = {one.key for one in self.arrays}
        self.fresh = {one.key for one in self.arrays if one.key not in self.updated and not is_written(module, values, one.key[1])}

    def groups(self, place: int, seen: set[tuple[Key, int]], arrays: Iterable[Input] | None = None) -> Iterator[Group]:
        """The groups of dimensions number ``place`` of some arrays (by default all data), without those of weights and those in ``seen``,
        to which they are added.
        """
        for one in self.arrays if arrays is None else arrays:
            if place >= len(one.dims) or one.dims[place] == 1 or (one.key, place) in seen or self._is_random_key(one, place):
                continue
            group = self._group(place, (one,))
            seen |= {(other.key, axis) for other, axis in group.reached}
            if all(_follows_data(other, self._is_whole_numbers(one)) for other, _ in group.reached if other.is_weight):
                yield group

    def _group(self, place: int, seeds: tuple[Input, ...]) -> Group:
        places = [(one.key, place) for one in seeds]
        marks = self.program.grown(places)
        reached = reached_by(self.inputs, marks)
        if self.kept and any(one.is_weight for one, _ in reached):
            marks = self.program.grown(places, self.kept)
            reached = reached_by(self.inputs, marks)
        return Group(place, seeds[0].dims[place], seeds, reached, marks, self.program.products_with(marks))

    def _is_whole_numbers(self, one: Input) -> bool:
        return not self.program.module.entry_computation[one.key[1]].shape.dtype.startswith(FLOATS)

    def _is_random_key(self, one: Input, place: int) -> bool:
        dtype = self.program.module.entry_computation[one.key[1]].shape.dtype
        return dtype == "u32" and place == len(one.dims) - 1 and one.dims[place] in _KEY

    def joined(self, first: Group, groups: Iterable[Group]) -> Group:
        """A group merged with others of the same dimension number and size, unless their inputs have another dimension linked with it: then
        the sizes are equal by chance.
        """
        linked = {one.key for one, _ in first.reached}
        alike = [
            one.seeds[0]
            for one in groups
            if one is not first and (one.place, one.size) == (first.place, first.size) and one.seeds[0].key not in linked
        ]
        return self._group(first.place, (*first.seeds, *alike)) if alike else first


def batch_group(data: DataInputs, seen: set[tuple[Key, int]]) -> Group | None:
    """The group that is the batch; ``None`` if there is no data, or if the batch is 1: compilers drop such dimensions."""
    groups = list(data.groups(0, set(seen), [one for one in data.arrays if one.key not in data.walked]))
    for keys in (data.fresh, data.all):
        some = [one for one in groups if one.leads(keys)]
        outer = [one for one in some if not _is_inner(one, some, keys)]
        if likely := [one for one in outer if 2 * one.products >= len(data.program.products)]:
            return data.joined(max(likely, key=lambda one: one.rank), some)
    if any(one.dims[0] == 1 for one in data.arrays if len(one.dims) >= MATRIX):
        return None
    groups = groups or list(data.groups(1, set(seen), [one for one in data.arrays if one.key in data.walked]))
    return data.joined(max(groups, key=lambda one: one.rank), groups) if groups else None


def _is_inner(group: Group, groups: list[Group], keys: Collection[Key]) -> bool:
    """Whether data with this dimension has another group first: tokens have the batch first, and positions may be another input."""
    rank = max(len(one.dims) for one, axis in group.reached if axis == 0)
    for one, axis in group.reached:
        if axis == 0 or one.key not in keys:
            continue
        if one.dims[0] == 1 and len(one.dims) > rank:
            return True
        if any(2 * other.products >= group.products for other in groups if other is not group and (one, 0) in other.reached):
            return True
    return False


def sequence_group(data: DataInputs, seen: set[tuple[Key, int]], batch: Group | None) -> Group | None:
    """The group that is the sequence: of the remaining ones, the first that about as many products have as any other, and not the side of
    an image. It is no dimension of state that the program updates elementwise, unless the batch is one.
    """
    places = range(max((len(one.dims) for one in data.arrays), default=0))
    groups = [one for place in places for one in data.groups(place, seen) if not data.program.is_image_side(one.marks)]
    is_state = batch is not None and not batch.leads(data.fresh)
    for keys in (data.fresh, data.all if is_state else data.all - data.updated):
        some = [one for one in groups if one.leads(keys)]
        likely = [one for one in some if any(data.program.computed(one.marks)) or (one.place == 0 and one.leads(data.walked))]
        likely = [one for one in likely if data.program.is_written_along(one.marks)] or likely  # positions of caches
        if likely:
            most = max(one.products for one in likely)
            place = min(one.place for one in likely if 2 * one.products >= most)
            return data.joined(max((one for one in likely if one.place == place), key=lambda one: one.rank), some)
    return None


def _follows_data(weight: Input, of_whole_numbers: bool) -> bool:
    """Whether a weight may be as long as the data, such as a table of positions: no product or look-up uses it.

    A vector may be a gain or a bias, unless the data is ``of_whole_numbers``, which has no features: then it is a vector of labels.
    """
    return (len(weight.dims) >= MATRIX or of_whole_numbers) and not weight.is_taken
