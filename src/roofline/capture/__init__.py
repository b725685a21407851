"""Run a program under its profiler, and analyze the profile."""

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..machine import Machine
    from .session import Capture


def capture(
    folder: "str | PathLike[str] | None" = None,
    *,
    chip: "str | Machine | None" = None,
    name: str | None = None,
    framework: str | None = None,
) -> "Capture":
    """Profile the code inside a ``with`` block, into this folder or a temporary one.

    ``chip`` is the machine of the report, by default the device itself. ``name`` is the run's folder below ``folder/plugins/profile``, by
    default the time; processes with the same name are the hosts of one run. ``framework`` is ``"jax"`` or ``"torch"``, by default the
    one that is imported.
    """
    from .session import Capture

    return Capture(folder, chip=chip, name=name, framework=framework)
