"""The one way in: a kernel of Triton or Pallas, its arguments and a chip give ranked configurations."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError
from .pool import Progress
from .results import Blocks
from .triton.compiling import is_triton
from .triton.predicting import predict_triton


def predict(
    kernel: Any,
    args: Sequence[Any] | Mapping[str, Any],
    *,
    grid: Any,
    chip: str,
    space: Any,
    progress: Progress | None = None,
    named: Mapping[str, Any] | None = None,
) -> Blocks:
    """The configurations of a kernel on a chip, the best first."""
    names = {**(args if isinstance(args, Mapping) else {}), **(named or {})}
    places = () if isinstance(args, Mapping) else tuple(args)
    if is_triton(kernel):
        if grid is None:
            raise UsageError("grid: give the number of blocks, as a function of a configuration or as sizes")
        return predict_triton(kernel, places, names, grid, chip, space, progress)
    raise UsageError(f"{kernel!r} is not a kernel that can be compiled: give a triton.jit function")
