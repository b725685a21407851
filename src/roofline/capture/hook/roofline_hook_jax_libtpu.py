"""Notices a libtpu with which starting JAX's profiler ends the process by a segmentation fault, also where the program runs on a CPU.

`jax[tpu]` pins libtpu, and JAX's profiler cannot use the interface of a much newer one. With jax 0.10.2, which pins 0.0.42, versions 0.0.45
to 0.0.51 crash ("Unexpected PLUGIN_Profiler_Api size: expected 80, got 104"), and 0.0.30 to 0.0.43 record (tried in November 2026).
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

_PIN = re.compile(r"(libtpu *== *(\d+(?:\.\d+)*)(?:\.\*)?) *;")  # libtpu==0.0.42.*; extra == "tpu"
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_MAPPED = "/proc/self/maps"  # the files that this process has loaded; libtpu is published for Linux alone


class CrashingProfiler(Exception):
    """JAX's profiler would end this process. The message says why, and what to install."""


def check_libtpu(jax: Any) -> None:
    """Raise an error if a libtpu is loaded that is newer than the one that this JAX pins. ``JAX_PLATFORMS=cpu`` leaves it unloaded."""
    try:
        libtpu, framework = distribution("libtpu"), distribution("jax")
    except PackageNotFoundError:
        return
    pin = next(filter(None, map(_PIN.match, framework.requires or ())), None)
    if pin is None or not _is_newer(libtpu.version, pin[2]):
        return
    jax.default_backend()  # loads libtpu, as starting the profiler does
    if _is_loaded(libtpu):
        raise CrashingProfiler(
            f"libtpu {libtpu.version} crashes the profiler of jax {framework.version}, which pins {pin[1]}; run: pip install '{pin[1]}'"
        )


def _is_newer(version: str, pinned: str) -> bool:
    """Whether a version is newer than a pinned one, in the places that the pin has: 0.0.42.1 is 0.0.42."""
    release = _RELEASE.match(version)
    parts = pinned.split(".")
    return release is not None and [int(part) for part in release[0].split(".")][: len(parts)] > [int(part) for part in parts]


def _is_loaded(libtpu: Distribution) -> bool:
    """Whether this process has loaded the library of this distribution, and not another one that ``TPU_LIBRARY_PATH`` names."""
    library = str(libtpu.locate_file("libtpu/libtpu.so"))
    try:
        with open(_MAPPED, encoding="utf-8", errors="replace") as lines:
            return any(line.rstrip("\n").endswith(f" {library}") for line in lines)
    except OSError:
        return False
