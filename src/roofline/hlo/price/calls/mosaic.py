"""Pallas kernels through Mosaic: TPU custom calls, which carry their author's cost estimate, and Mosaic GPU, which does not."""

from base64 import b64decode

from ...read.backend_config import backend_config
from ..types import Price, Site
from .estimates import FIELDS, estimated
from .registry import call
from .settings import Config, section, word
from .traffic import unpriced

_HIGHEST = b"contract_precision<fp32>"  # an attribute of tpu.matmul and vector.contract
_NO_ESTIMATE = "bytes from its shapes; FLOP unknown: give pallas_call a cost_estimate"


@call("tpu_custom_call", "tpu_custom_call_*")
def tpu(site: Site) -> Price:
    """A kernel at its author's estimate (``custom_call_config.cost_estimate``), or with its arithmetic unknown."""
    config = backend_config(site.instruction)
    estimate = section(config, "custom_call_config", "cost_estimate") or section(config, "cost_estimate")
    if any(name in estimate for name in FIELDS):
        return estimated(site, estimate, "custom call", "highest" if _asks_for_fp32(config) else "default")
    return unpriced(site, _NO_ESTIMATE)


def _asks_for_fp32(config: Config) -> bool:
    """Whether a product in the kernel's code requests the highest precision; Mosaic has that and the default one."""
    body = word(section(config, "custom_call_config"), "body")
    try:
        return _HIGHEST in b64decode(body, validate=True)
    except ValueError:
        return _HIGHEST.decode() in body


@call("mosaic_gpu", "mosaic_gpu_v2")
def gpu(site: Site) -> Price:
    """A Mosaic GPU kernel: its code is in the program, but no cost estimate."""
    return unpriced(site, "bytes from its shapes; FLOP unknown: Mosaic GPU kernels have no cost estimate")
