"""Pallas kernels through Mosaic: TPU custom calls, which carry their author's cost estimate, and Mosaic GPU, which does not."""

from ...read.backend_config import backend_config
from ..types import Price, Site
from .estimates import FIELDS, estimated
from .registry import call
from .settings import section
from .traffic import unpriced

_NO_ESTIMATE = "bytes from its shapes; FLOP unknown: give pallas_call a cost_estimate"


@call("tpu_custom_call", "tpu_custom_call_*")
def tpu(site: Site) -> Price:
    """A kernel at its author's estimate (``custom_call_config.cost_estimate``), or with its arithmetic unknown."""
    config = backend_config(site.instruction)
    estimate = section(config, "custom_call_config", "cost_estimate") or section(config, "cost_estimate")
    if any(name in estimate for name in FIELDS):
        return estimated(site, estimate, "custom call")
    return unpriced(site, _NO_ESTIMATE)


@call("mosaic_gpu", "mosaic_gpu_v2")
def gpu(site: Site) -> Price:
    """A kernel of which the program holds machine-readable code and no estimate."""
    return unpriced(site, "bytes from its shapes; FLOP unknown: Mosaic GPU kernels have no cost estimate")
