"""The findings in a few of a program's equal layers, extended to all layers."""

from collections.abc import Mapping

from msgspec.structs import replace

from ...rules.kernel_names import KERNEL
from ...workload import Avoidable
from ..ir.layers import MIDDLE, REACH, LayerRun, shortened
from ..ir.module import Computation
from ..price.pricing import Pricer
from .kernels import Kernels
from .values import Values

Found = Mapping[int, tuple[Avoidable, ...]]


def shortened_kernels(pricer: Pricer, layers: LayerRun) -> Kernels:
    """The kernels of a program's entry without most of its equal layers."""
    module, entry = pricer.module, pricer.module.entry
    computations = list(module.computations)
    computations[entry] = shortened(computations[entry], layers)
    short = replace(module, computations=tuple(computations))
    times = dict.fromkeys(layers.left_out_places[: layers.period], layers.left_out // layers.period + 1)
    return Kernels(Pricer(short, pricer.platform, pricer.network, pricer.trips), Values(short), entry, times)


class EqualLayers:
    """The kernels of a shortened entry, and their avoidable work for all layers: a duplicate names a kernel of its own layer."""

    def __init__(self, whole: Computation, kernels: Kernels, layers: LayerRun, found: Found) -> None:
        self._whole, self._layers, self.kernels = whole, layers, kernels
        self._representatives = layers.shortened_places(len(whole))
        places = {one.name: place for place, one in enumerate(kernels.computation)}
        self._found = {place: [(one, places.get(str(one.facts.get(KERNEL)))) for one in avoidables] for place, avoidables in found.items()}

    def place(self, index: int) -> int:
        """The kernel of the shortened entry that represents an instruction of the whole entry."""
        return self._representatives[index]

    def avoidable(self, index: int) -> tuple[Avoidable, ...]:
        """The avoidable work of an instruction of the whole entry."""
        place = self.place(index)
        return tuple([one if other is None else self._renamed(one, index, place, other) for one, other in self._found.get(place, ())])

    def names_another(self, index: int) -> bool:
        """Whether the avoidable work of an instruction names another kernel."""
        return any(other is not None for _, other in self._found.get(self.place(index), ()))

    def _renamed(self, one: Avoidable, index: int, place: int, other: int) -> Avoidable:
        if self._is_near(place, other):
            other += index - place
        elif other >= self._layers.left_out_places.start:
            other += self._layers.left_out
        return replace(one, facts={**one.facts, KERNEL: self._whole.instructions[other].name})

    def _is_near(self, place: int, other: int) -> bool:
        """Whether the named kernel is in the same layer, or in one just before it."""
        return other >= self._layers.start and place - other <= REACH * self._layers.period

    def are_equal(self) -> bool:
        """Whether each middle layer has the same findings."""
        first, period = self._layers.left_out_places.start, self._layers.period
        compared = range(first, first + period * (len(MIDDLE) - 1))
        return all(self._seen_from(place) == self._seen_from(place + period) for place in compared)

    def _seen_from(self, place: int) -> list[tuple[Avoidable, int]]:
        """The avoidable work of a kernel, with the kernel it names as a distance, or as an index if all layers name the same one."""
        return [
            (one, 0)
            if other is None
            else (replace(one, facts={**one.facts, KERNEL: ""}), place - other if self._is_near(place, other) else ~other)
            for one, other in self._found.get(place, ())
        ]
