"""Autocasts that do nothing here: PyTorch casts on the device that an autocast names, and the analyzed tensors may be on another one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .replacing import replaced

NOTE = (
    "torch.autocast({named!r}) does not cast tensors on {device}: ops count in the formats that their tensors have; "
    "pass tensors on {named}, analyze model.bfloat16(), or analyze a trace of the program"
)


@contextmanager
def ignored_autocasts(device: str) -> Iterator[set[str]]:
    """A context that collects the device types, other than ``device``, that the program asks autocast for.

    The call is watched, not the setting: where PyTorch sees no GPU, it switches an autocast for one off.
    """
    devices: set[str] = set()

    def watched(original: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **kwargs: Any) -> None:
            original(self, device_type, dtype, enabled, *args, **kwargs)
            if enabled and device_type != device:
                devices.add(device_type)

        return init

    with replaced(import_module("torch.amp.autocast_mode").autocast, "__init__", watched):
        yield devices
