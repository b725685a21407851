"""Autocasts that do nothing here: PyTorch casts on the device that an autocast names, and the analyzed tensors may be on another one."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

NOTE = (
    "torch.autocast({named!r}) does not cast tensors on {device}: ops count in the formats that their tensors have; "
    "pass tensors on {named}, analyze model.bfloat16(), or analyze a trace of the program"
)


@contextmanager
def ignored_autocasts(device: str) -> Iterator[set[str]]:
    """A context that collects the device types, other than ``device``, that the program asks autocast for.

    The call is watched, not the setting: where PyTorch sees no GPU, it switches an autocast for one off.
    """
    autocast = import_module("torch.amp.autocast_mode").autocast
    made = autocast.__init__
    found: set[str] = set()

    def watched(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **kwargs: Any) -> None:
        made(self, device_type, dtype, enabled, *args, **kwargs)
        if enabled and device_type != device:
            found.add(device_type)

    autocast.__init__ = watched
    try:
        yield found
    finally:
        autocast.__init__ = made
