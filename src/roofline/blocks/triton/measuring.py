"""Configurations of a Triton kernel measured on the GPU of this machine, beside what was predicted for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import UsageError
from ..results import Blocks
from .compiling import module
from .predicting import Grid, grid_of

MILLI = 1e-3  # the unit of Triton's timer is a thousandth of a second


def require_device() -> None:
    """Raises where PyTorch finds no GPU."""
    if not module("torch").cuda.is_available():
        raise UsageError("measure: PyTorch finds no GPU here; leave it out to predict alone")


def measured(blocks: Blocks, most: int, kernel: Any, args: Sequence[Any], named: Mapping[str, Any], grid: Grid) -> Blocks:
    """The same with what the first ``most`` configurations that can run take; tensors on ``meta`` become random ones on the device."""
    torch, testing = module("torch"), module("triton.testing")
    while hasattr(kernel, "configs"):  # an autotuned kernel would choose itself
        kernel = kernel.fn
    there = [_on_device(torch, value) for value in args]
    by_name = {name: _on_device(torch, value) for name, value in named.items()}
    places = {name: value for name, value in zip(kernel.arg_names, there, strict=False) if isinstance(value, int | float)}
    configs = list(blocks.configs)
    for number, config in enumerate(configs[:most]):
        if config.time_s is not None:
            launched = kernel[grid_of(grid, {**by_name, **places, **config.config})]
            keywords = {**by_name, **config.config}
            median = testing.do_bench(lambda run=launched, keywords=keywords: run(*there, **keywords), return_mode="median")
            configs[number] = replace(config, measured_s=median * MILLI)
    return replace(blocks, configs=tuple(configs))


def _on_device(torch: Any, value: Any) -> Any:
    """A tensor on the GPU: of normal numbers, or of zeros if it has whole numbers, which may be indices."""
    if not isinstance(value, torch.Tensor) or value.device.type == "cuda":
        return value
    if value.device.type != "meta":
        return value.cuda()
    made = torch.empty(value.shape, dtype=value.dtype, device="cuda")
    return made.normal_() if made.is_floating_point() else made.zero_()
