"""What if: a program after changes, or replaced by another function."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import jax, torch
from ..analysis.changes.replaced_program import replaced
from ..analysis.what_if import measured_source, path_of
from ..analysis.what_if import what_if as change_words
from ..errors import UsageError
from ..machine import Machine
from ..report import Report
from ..sources.embedded import programs_behind


def what_if(
    source: Report | str | Path,
    changes: Sequence[str] | str = (),
    machine: Machine | str | None = None,
    *,
    program: Callable[..., Any] | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
) -> Report:
    """The report on a profile or program after changes (as text), or replaced by a JAX or PyTorch function.

    ``what_if("run.xplane.pb", "scale batch=x4 dtype fp8")`` changes the program of a profile; see `docs/whatif.md` for the words. With
    ``program``, one call of that function, on arguments or their shapes, is a step of the changed program: its ops are matched to the
    measured ones by scope and kind. ``backward`` adds the gradients of a PyTorch function.

    Every ``time_s`` is predicted, ``before_s`` is the time before; the average step (or the whole run) has a 90% interval as ``expected``.
    For a report, the file that it was made from is used.
    """
    if program is None:
        return change_words(source, changes, machine)
    if changes:
        raise UsageError("what_if: give changes or a program, not both")
    before, chip = measured_source(source, machine)
    name, named = getattr(program, "__name__", type(program).__name__), dict(kwargs or {})
    if _is_torch(program, (*args, *named.values())):
        return replaced(before, torch.record(program, chip, backward=backward)(*args, **named), chip, name)
    programs = {} if jax.is_compiled_for(chip) else programs_behind(before, chip, path_of(source))
    return replaced(before, jax.record(program, chip, copies=True)(*args, **named), chip, name, programs)


def _is_torch(program: Callable[..., Any], values: Sequence[Any]) -> bool:
    """Whether a function uses PyTorch: a module, or called on tensors."""
    loaded = sys.modules.get("torch")
    if loaded is None:
        return False
    return isinstance(program, loaded.nn.Module) or any(isinstance(value, loaded.Tensor) for value in values)
