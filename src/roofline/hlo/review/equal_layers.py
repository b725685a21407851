"""A program without most of its equal layers: each that is left out is like one that is there."""

from msgspec.structs import replace

from ..ir.layers import shortened
from ..ir.values import Values
from ..price.pricing import Pricer
from .kernels import Kernels


class EqualLayers:
    """The kernels of a program's entry without most of its equal layers."""

    def __init__(self, pricer: Pricer) -> None:
        layers, module, entry = pricer.layers, pricer.module, pricer.module.entry
        assert layers is not None
        computations = list(module.computations)
        computations[entry] = shortened(computations[entry], layers)
        short = replace(module, computations=tuple(computations))
        times = dict.fromkeys(layers.left_out_places[: layers.period], layers.left_out // layers.period + 1)
        self.kernels = Kernels(Pricer(short, pricer.platform, pricer.network, pricer.trips), Values(short), entry, times)
        self._representatives = layers.shortened_places(len(module.entry_computation))

    def place(self, index: int) -> int:
        """The kernel of the shortened entry that represents an instruction of the whole entry."""
        return self._representatives[index]
