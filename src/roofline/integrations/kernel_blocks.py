"""`rl.blocks`: a kernel of Triton or Pallas, its arguments and a chip give ranked configurations."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import blocks as _package
from ..errors import UsageError

if TYPE_CHECKING:
    from ..blocks.results import Blocks

__all__ = ["blocks"]
_PACKAGE = _package.__name__  # imported before the function of the same name takes its place in `roofline`


def blocks(
    kernel: Any,
    args: Sequence[Any] | Mapping[str, Any] = (),
    *,
    grid: Any = None,
    chip: str = "h200",
    space: Any = None,
    measure: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **named: Any,
) -> "Blocks":
    """The configurations of a kernel on a chip, the best first, each with its predicted time or why it cannot run.

    ``kernel`` is a `triton.jit` function, or an autotuned one, whose own configurations are the default ``space``; or a function that
    calls Pallas kernels (for a GPU one, which Triton compiles), with the names of the space among its arguments, and arrays or their
    shapes. ``args`` are its arguments, in order or by name: tensors may be on the ``meta`` device. ``grid`` is a function of a
    configuration (and the arguments by name), or sizes.
    ``space`` has lists of values by name, of which all combinations are tried, or is a list of configurations: ``num_warps``,
    ``num_stages`` and the kernel's own names. ``measure`` is how many of the best to time on the GPU of this machine.
    """
    from ..blocks.triton.compiling import is_triton

    names = {**(args if isinstance(args, Mapping) else {}), **named}
    places = () if isinstance(args, Mapping) else tuple(args)
    if is_triton(kernel):
        from ..blocks.triton.measuring import measured, require_device
        from ..blocks.triton.predicting import predict_triton

        if grid is None:
            raise UsageError("grid: give the number of blocks, as a function of a configuration or as sizes")
        if measure:
            require_device()
        found = predict_triton(kernel, places, names, grid, chip, space, progress)
        return measured(found, measure, kernel, places, names, grid) if measure else found
    if measure:
        raise UsageError("measure: only Triton kernels are measured")
    if not callable(kernel):
        raise UsageError(f"{kernel!r} is not a kernel: give a triton.jit function, or a function that calls Pallas")
    from ..jax.gpu_blocks import predict_pallas_gpu
    from ..jax.tpu.blocks import predict_pallas
    from ..jax.tpu.slices import is_slice
    from ..machines import load

    predict_calls = predict_pallas if is_slice(chip) or load(chip).kind == "tpu" else predict_pallas_gpu
    return predict_calls(kernel, places, names, chip, space, progress)
