"""Block sizes: which configuration of a Triton or Pallas kernel is fastest on a chip, and why, from what its compiler says; nothing is run.

`triton` compiles for GPUs that need not be here and follows the machine code; `pallas` reads the schedule of the TPU compiler. Both give
`results.Blocks`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Blocks


def blocks(
    kernel: Any,
    args: Sequence[Any] | Mapping[str, Any] = (),
    *,
    grid: Any = None,
    chip: str = "h200",
    space: Any = None,
    progress: Callable[[int, int], None] | None = None,
    **named: Any,
) -> "Blocks":
    """The configurations of a kernel on a chip, the best first, each with its predicted time or why it cannot run.

    ``kernel`` is a `triton.jit` function, or an autotuned one, whose own configurations are the default ``space``. ``args`` are its
    arguments, in order or by name: tensors may be on the ``meta`` device. ``grid`` is a function of a configuration (and the arguments by
    name), or sizes.
    ``space`` has lists of values by name, of which all combinations are tried, or is a list of configurations: ``num_warps``,
    ``num_stages`` and the kernel's own names.
    """
    from .door import predict

    return predict(kernel, args, grid=grid, chip=chip, space=space, progress=progress, named=named)
