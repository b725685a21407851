"""Tracing cuDNN's attention where cuDNN is not installed.

JAX refuses to trace `jax.nn.dot_product_attention(implementation="cudnn")` where it does not find the library. Tracing for a GPU that is
not here needs its version alone, so a recent one is assumed. JAX has no setting for it: it asks a module of its own, which is ``None``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from types import SimpleNamespace

_MODULE, _FOUND = "jax._src.cudnn.fused_attention_stablehlo", "cuda_versions"  # JAX 0.10: None without CUDA
_VERSION = 91000  # cuDNN 9.10
_LOCK = Lock()
_inside = 0  # how many threads, or nested calls, assume cuDNN: the last of them to leave restores what JAX had


@contextmanager
def assumed_cudnn() -> Iterator[None]:
    """While it lasts, JAX finds cuDNN; nothing changes where it does anyway, or in a version of JAX that looks for it elsewhere.

    Several threads may be in it. Those that are not find cuDNN too while it lasts; what they trace then fails only when it is compiled.
    """
    global _inside
    try:
        module = import_module(_MODULE)
    except ImportError:
        module = None
    with _LOCK:
        is_missing = _inside > 0 or getattr(module, _FOUND, True) is None
        if is_missing:
            _inside += 1
            setattr(module, _FOUND, SimpleNamespace(cudnn_get_version=lambda: _VERSION))
    try:
        yield
    finally:
        with _LOCK:
            _inside -= is_missing
            if is_missing and not _inside:
                setattr(module, _FOUND, None)
