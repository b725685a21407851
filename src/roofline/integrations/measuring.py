"""Functions measured on the local device: a few steps under the framework's profiler, after one that compiles."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..analysis import analyze
from ..capture.session import Capture
from ..machines import load
from ..report import Report
from .functions import framework_of

STEPS = 3
NO_DEVICE = "measured conditions need an accelerator, and there is none here"


def measured_report(function: Callable[..., Any], chip: str, options: dict[str, Any], args: tuple[Any, ...], kwargs: Any) -> Report | str:
    """The report on some steps of a function on the local device; the reason as text if there is no device or it is another chip."""
    measure = _torch if framework_of(function, args) == "torch" else _jax
    found = measure(function, options, args, kwargs)
    if isinstance(found, Report) and found.machine.name != load(chip).name:
        return f"the device here is {found.machine.name}, not {load(chip).name}"
    return found


def _jax(function: Callable[..., Any], options: dict[str, Any], args: tuple[Any, ...], kwargs: Any) -> Report | str:
    from ..jax import require_jax

    jax = require_jax()
    if jax.default_backend() == "cpu":
        return NO_DEVICE
    own = {name: value for name, value in options.items() if name not in ("compiled", "link", "trips", "corrections")}
    call = function if hasattr(function, "lower") and not own else jax.jit(function, **own)

    def filled(value: Any) -> Any:
        if isinstance(value, jax.ShapeDtypeStruct):
            return jax.numpy.zeros(value.shape, value.dtype)
        return jax.numpy.array(value) if isinstance(value, jax.Array) else value  # a copy, because the function may donate it

    donates = any(one.donated for one in jax.tree.leaves(call.lower(*args, **kwargs).args_info))
    once = [jax.tree.map(filled, (args, kwargs)) for _ in range(STEPS + 1 if donates else 1)]
    first, *others = jax.block_until_ready(once if donates else once * (STEPS + 1))
    jax.block_until_ready(call(*first[0], **first[1]))
    with Capture() as captured:
        for number, (mine, named) in enumerate(others):
            with jax.profiler.StepTraceAnnotation("roofline", step_num=number):
                result = call(*mine, **named)
        jax.block_until_ready(result)
    return captured.report


def _torch(function: Callable[..., Any], options: dict[str, Any], args: tuple[Any, ...], kwargs: Any) -> Report | str:
    from ..torch import require_torch

    torch = require_torch()
    if not torch.cuda.is_available():
        return NO_DEVICE
    weights = list(function.parameters()) if isinstance(function, torch.nn.Module) else []
    leaves = torch.utils._pytree.tree_leaves((args, kwargs, weights))
    if not all(one.is_cuda for one in leaves if isinstance(one, torch.Tensor)):
        return "measured conditions need arguments and weights on the GPU"
    call = torch.compile(function) if options.get("compile") else function

    def step() -> None:
        result = call(*args, **kwargs)
        if options.get("backward"):
            wanted = [one for one in torch.utils._pytree.tree_leaves(result) if one.requires_grad]
            torch.autograd.backward(wanted, [torch.ones_like(one) for one in wanted])

    step()
    torch.cuda.synchronize()
    # One cycle of steps, of which the first is the profiler's warm-up; PyTorch discards a cycle when another begins.
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with warnings.catch_warnings(), torch.profiler.profile(record_shapes=True, schedule=schedule) as profile:
        warnings.simplefilter("ignore")  # it also warns about that
        for number in range(STEPS + 1):
            step()
            if number == STEPS:
                torch.cuda.synchronize()
            profile.step()
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        return analyze(str(path))
