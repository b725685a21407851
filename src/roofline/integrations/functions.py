"""Reports on a JAX or PyTorch function that are the same on every machine: nothing is compiled for the local device."""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ..dtypes import DType, dtype
from ..errors import RooflineError, UsageError
from ..machine import Machine
from ..report import Report

FRAMEWORKS = ("jax", "torch")
Shape = tuple[str, tuple[int, ...]]  # a number format, or none, and sizes


def function_report(
    function: Callable[..., Any], *, chip: str | Machine, framework: str | None = None, **options: Any
) -> Callable[..., Report]:
    """A function of the same arguments that returns the report on one call of it; ``options`` go to the framework's `analyze`."""

    def report(*args: Any, **kwargs: Any) -> Report:
        if (framework or framework_of(function, args)) == "torch":
            from ..torch import analyze as analyze_torch

            return analyze_torch(function, chip=chip, **options)(*args, **kwargs)
        from ..jax import analyze as analyze_jax

        return analyze_jax(function, chip=chip, **{"compiled": False, **options})(*args, **kwargs)

    return report


def framework_of(function: Any, args: Sequence[Any] = ()) -> str:
    """``torch`` for a module, a function of tensors, or one in a file that imports PyTorch and not JAX; else ``jax``."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "jax"
    if isinstance(function, torch.nn.Module) or any(isinstance(one, torch.Tensor | torch.nn.Module) for one in args):
        return "torch"
    if args:
        return "jax"
    file = sys.modules.get(getattr(function, "__module__", None) or "")
    roots = {_home(value).partition(".")[0] for value in (vars(file).values() if file else ())}
    return "torch" if "torch" in roots and "jax" not in roots else "jax"


def _home(value: Any) -> str:
    """The module that a value is, or comes from."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return name if isinstance(name, str) else ""


def arguments(framework: str, shapes: Sequence[Shape], number: DType) -> list[Any]:
    """Arguments of these shapes without data; ``number`` is the format of shapes that do not give one."""
    formats = [dtype(own) if own else number for own, _ in shapes]
    if framework == "torch":
        from ..torch import require_torch
        from ..torch.comparison import torch_format

        torch = require_torch()
        kinds = [torch_format(torch, one) for one in formats]
        return [torch.empty(sizes, dtype=kind, device="meta") for (_, sizes), kind in zip(shapes, kinds, strict=True)]
    from ..jax import require_jax
    from ..jax.comparison import jax_format

    jax = require_jax()
    kinds = [jax_format(jax, one) for one in formats]
    return [jax.ShapeDtypeStruct(sizes, kind) for (_, sizes), kind in zip(shapes, kinds, strict=True)]


def report_of_shapes(name: str, function: Callable[..., Any], shapes: Sequence[Shape], number: DType, framework: str | None = None) -> Any:
    """A function from a chip to the report on ``function`` with arguments of these shapes; errors are one line about ``name``."""
    chosen = framework or framework_of(function)
    made = arguments(chosen, shapes, number)

    def on(chip: str | Machine) -> Report:
        try:
            return function_report(function, chip=chip, framework=chosen)(*made)
        except RooflineError:
            raise
        except Exception as error:  # whatever the user's function raises
            message = (str(error).splitlines() or [""])[0] or type(error).__name__
            hint = "" if shapes else "; give the shapes of its arguments: --args 512x4096"
            raise UsageError(f"{name}: {message}{hint}") from None

    return on
