"""One way to train a model: the mesh, batch, format and options of a step."""

from msgspec import Struct

from .mesh import Mesh
from .words import GRAPHS, STACKS, UNKNOWN_GRAPHS, Format, Recompute, Stack


class Run(Struct, frozen=True, kw_only=True):
    """A mesh with the options that change its time or memory; ``batch`` and ``microbatch`` count sequences of ``length`` tokens, a
    microbatch per device. ``routing`` is the rows of the busiest expert over the mean.
    """

    mesh: Mesh
    batch: int
    microbatch: float
    length: int
    format: Format
    recompute: Recompute
    stack: Stack = STACKS["megatron"]
    graphs: str = "unknown"
    pipelined: bool | None = None
    expert_overlap: bool = False
    offload: bool = False
    routing: float = 1.0

    @property
    def tokens(self) -> float:
        """Tokens of a microbatch on a device, before tensor ranks split them."""
        return self.microbatch * self.length / self.mesh.context

    @property
    def microbatches(self) -> int:
        """Microbatches of a step on each rank."""
        return max(1, round(self.batch / (self.microbatch * self.mesh.replicas)))

    @property
    def hides_tensor_exchange(self) -> bool:
        """Whether tensor exchanges run in pieces inside the products."""
        return self.stack.pipelined if self.pipelined is None else self.pipelined

    @property
    def host_share(self) -> float:
        """The share of the host's launches that CUDA graphs leave."""
        share = GRAPHS[self.graphs]
        return UNKNOWN_GRAPHS if share is None else share
