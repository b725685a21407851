"""Tracing cuDNN's attention where cuDNN is not installed.

JAX refuses to trace `jax.nn.dot_product_attention(implementation="cudnn")` where it does not find the library. Tracing for a GPU that is
not here needs its version alone, so a recent one is assumed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

_MODULE, _FOUND = "jax._src.cudnn.fused_attention_stablehlo", "cuda_versions"  # JAX 0.10: None without CUDA
_VERSION = 91000  # cuDNN 9.10


@contextmanager
def assumed_cudnn() -> Iterator[None]:
    """While it lasts, JAX finds cuDNN; nothing changes where it does anyway, or in a version of JAX that looks for it elsewhere."""
    try:
        module = import_module(_MODULE)
    except ImportError:
        module = None
    if getattr(module, _FOUND, True) is not None:
        yield
        return
    setattr(module, _FOUND, SimpleNamespace(cudnn_get_version=lambda: _VERSION))
    try:
        yield
    finally:
        setattr(module, _FOUND, None)
