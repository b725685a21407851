"""The registry of custom calls: which function of this package prices which target. Each library's file fills it."""

from collections.abc import Callable

from ....ops.registry import Registry
from ..types import Price, Site

LIBRARIES = (
    *("annotations", "cublas", "cudnn", "fmha", "lapack", "mosaic", "onednn", "random_numbers", "sorting", "sparse"),
    *("tpu_linear_algebra", "transformer_engine", "triton"),
)
BEGINNINGS = {"__cublas$": "cublas", "__cudnn$conv": "cudnn", "__cudnn$fmha": "fmha", "__onednn$": "onednn", "tpu_custom_call": "mosaic"}
call: Registry[Callable[[Site], Price | None]] = Registry("custom call", __package__, LIBRARIES, BEGINNINGS)
