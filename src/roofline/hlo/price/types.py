"""The price of one instruction, and the site that is priced: an instruction in its program, on a platform."""

from msgspec import Struct

from ...cost import Cost
from ...operation import MatrixWork
from ..ir.module import Computation, HloModule, Instruction
from ..ir.platforms import Platform


class Price(Struct, frozen=True):
    """The cost of one execution of an instruction.

    ``category`` is shown to users (matmul, convolution, loop fusion, …). ``least`` is the cheapest branch of a conditional, whose
    cost is that of the most expensive. ``products`` are its products on a TPU's matrix unit. ``beside`` says that it only starts work,
    which goes on beside the instructions that follow, ``towards`` which way round the rings of a slice a permute goes, ``axes`` over the
    links of which of its axes a collective goes, by number, where that is known. An amount that cannot be computed is unknown in the cost,
    and a note says why.
    """

    cost: Cost
    category: str
    notes: tuple[str, ...] = ()
    least: Cost | None = None
    products: tuple[MatrixWork, ...] = ()
    beside: bool = False
    towards: str = ""
    axes: tuple[int, ...] = ()


class Site(Struct, frozen=True, gc=False):
    """An instruction to price: with its computation, its module and the platform that this is compiled for."""

    module: HloModule
    computation: Computation
    instruction: Instruction
    platform: Platform = "gpu"

    @property
    def operands(self) -> tuple[Instruction, ...]:
        """The instructions whose values it takes."""
        return self.computation.operands(self.instruction)
