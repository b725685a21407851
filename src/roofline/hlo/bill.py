"""What pricing gives: a price for one instruction, where that instruction stands, and on which kind of hardware it runs."""

from ..cost import Cost
from ..machine import Machine
from ..value import value
from .module import Computation, HloModule, Instruction

TYPE_CHECKING = False  # what type checkers take to be true
if TYPE_CHECKING:
    from typing import Literal

    Platform = Literal["gpu", "tpu", "cpu"]
else:
    Platform = str


@value(kw_only=False)
class Price:
    """The cost of one execution of an instruction.

    ``category`` is a word for people (matmul, convolution, loop fusion, …). ``least`` is the cheapest branch of a conditional, whose
    cost is that of the dearest. An amount nobody can work out is unknown in the cost, and a note says why.
    """

    cost: Cost
    category: str
    notes: tuple[str, ...] = ()
    least: Cost | None = None


@value(kw_only=False)
class Site:
    """An instruction where it stands: in a computation, in a module, compiled for a platform."""

    module: HloModule
    computation: Computation
    instruction: Instruction
    platform: Platform = "gpu"

    @property
    def operands(self) -> tuple[Instruction, ...]:
        """The instructions whose values it takes."""
        return self.computation.operands(self.instruction)


def platform_of(machine: Machine) -> Platform:
    """The kind of compiler that a machine's programs come from."""
    kinds: dict[str, Platform] = {"tpu": "tpu", "cpu": "cpu"}
    return kinds.get(machine.kind, "gpu")
