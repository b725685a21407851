"""PyTorch modules and functions on the roofline, without a device.

    import roofline.torch
    report = roofline.torch.analyze(model, chip="h100")(tokens)

The function runs on tensors that have shapes and no data: nothing is allocated, nothing is computed. Every operator that it calls, its
backward pass included, is priced by the table that prices profiler traces. Build large models under ``torch.device("meta")``.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from inspect import isfunction
from typing import Any

from msgspec import Struct

from .. import analysis
from ..errors import MissingExtra, UsageError
from ..formulas.network import network_of
from ..machine import Machine
from ..machines import load
from ..peak_memory import PeakMemory
from ..placement import IDEAL, Corrections
from ..report import Report
from ..rule_failures import RuleFailures
from ..workload import Recording, Workload
from .arguments import tensors_in
from .autocasts import NOTE as AUTOCAST
from .autocasts import ignored_autocasts
from .fusion import fused
from .recorder import Kept, Recorder, Seen, WithoutSize
from .trace_files import handler as handler
from .workload import WHERE, ops_of

EAGER = "estimate: the operators as eager PyTorch runs them, one kernel each, on tensors without data"
COMPILED = "estimate: operators fused by roofline's model of torch.compile, not by Inductor for {chip}"
MASKED = (
    "{count} a mask, whose values are not known without data: all scores count. A causal model computes half of them "
    "if it passes is_causal=True and no mask"
)
_ATTENTION, _MASK = "aten::_scaled_dot_product_efficient_attention", 3


class Traced(Struct, frozen=True, kw_only=True):
    """The calls of one execution, what is live when it ends (``kept``), its peak memory, and what was ignored."""

    calls: tuple[Seen, ...]
    kept: Kept
    memory: PeakMemory
    has_backward: bool
    notes: tuple[str, ...]


def analyze(
    function: Callable[..., Any],
    *,
    chip: str | Machine | None = None,
    backward: bool = False,
    compile: bool | None = None,
    link: str | None = None,
    corrections: Corrections = IDEAL,
) -> Callable[..., Report]:
    """A function of the same arguments that returns the report on one call of a module or function.

    ``chip`` is a name of the catalogue or a machine, by default the GPU that PyTorch runs on. ``backward`` adds the gradients of the
    function's results; a function that calls ``backward()`` itself, such as a training step, does not need it. ``compile`` fuses operators
    as torch.compile would; it is on for modules that are compiled already.
    """

    def report(*args: Any, **kwargs: Any) -> Report:
        machine = _machine(chip)
        recording = record(function, machine, backward=backward, compile=compile, link=link)(*args, **kwargs)
        return analysis.analyze(recording, machine, corrections)

    return report


def record(
    function: Callable[..., Any], machine: Machine, *, backward: bool = False, compile: bool | None = None, link: str | None = None
) -> Callable[..., Recording]:
    """A function of the same arguments that returns the priced ops of one call of it."""

    def recording(*args: Any, **kwargs: Any) -> Recording:
        wants_fusion = hasattr(function, "_orig_mod") if compile is None else compile
        traced = trace(function, backward=backward)(*args, **kwargs)
        network = network_of(machine, link)
        failures = RuleFailures(WHERE)
        ops, graphs = (fused if wants_fusion else ops_of)(traced.calls, traced.kept, network, failures)
        note = COMPILED.format(chip=machine.name) if wants_fusion else EAGER
        notes = (note, *traced.notes, *_masked(traced.calls), *failures.notes)
        return Recording(workload=Workload(tuple(ops)), format="torch", memory=traced.memory, graphs=graphs, notes=notes)

    return recording


def _masked(calls: Sequence[Seen]) -> Iterator[str]:
    """A note on attention calls with a mask: without data, a program may build a mask that it would not build otherwise."""
    count = sum(seen.call.op == _ATTENTION and seen.call.args[_MASK] is not None for seen in calls)
    if count:
        yield MASKED.format(count=f"{count} calls of attention have" if count > 1 else "1 call of attention has")


def trace(function: Callable[..., Any], *, backward: bool = False) -> Callable[..., Traced]:
    """A function of the same arguments that returns the operators of one call, without running them on data."""
    torch = require_torch()
    fake = import_module("torch._subclasses.fake_tensor")
    own: Any = getattr(function, "_orig_mod", function)

    def traced(*args: Any, **kwargs: Any) -> Traced:
        mode = fake.FakeTensorMode()
        is_module = isinstance(own, torch.nn.Module)
        name = type(own).__name__ if is_module else getattr(own, "__name__", "function")
        weights = dict((*own.named_parameters(), *own.named_buffers())) if is_module else {}
        reached = _reached(torch, own, args, kwargs)
        tensors = tensors_in(torch, [args, kwargs, weights]) or reached
        device = next((tensor.device for tensor in tensors if tensor.device.type != "meta"), torch.device("meta"))
        recorder = Recorder(torch, mode, device)
        with _restored(recorder, reached), mode, ignored_autocasts(device.type) as ignored:
            try:
                arguments, options = torch.utils._pytree.tree_map_only(torch.Tensor, recorder.stand_in, (args, kwargs))
                call = own
                if is_module:
                    recorder.name_modules(own)
                    call = _called(torch, own, {key: recorder.stand_in(weight) for key, weight in weights.items()})
                # Tensors that the function makes without naming a device would be on the CPU, and a program on meta elsewhere.
                with recorder.watching(), device if device.type == "meta" else nullcontext():
                    result = call(*arguments, **options)
                    if backward:
                        _gradients(torch, recorder, result, name)
            except (
                fake.DataDependentOutputException,
                fake.DynamicOutputShapeException,
                WithoutSize,
                NotImplementedError,
                ValueError,
            ) as error:
                if reason := _why_not(error, fake):
                    raise UsageError(f"{name}: {reason}") from None
                raise
            left = tensors_in(torch, [result, recorder.gradients(), [dict(optimizer.state) for optimizer in recorder.optimizers]])
            memory = recorder.memory.peak(name, recorder.storages_of(left))
            return Traced(
                calls=tuple(recorder.calls),
                kept=recorder.kept(left),
                memory=memory,
                has_backward=recorder.has_backward,
                notes=tuple(AUTOCAST.format(named=device_type, device=device.type) for device_type in sorted(ignored)),
            )

    return traced


def _called(torch: Any, module: Any, swapped: dict[str, Any]) -> Callable[..., Any]:
    """A function that calls a module with other tensors as its parameters and buffers."""
    return lambda *args, **kwargs: torch.func.functional_call(module, swapped, args, kwargs)


def _gradients(torch: Any, recorder: Recorder, result: Any, name: str) -> None:
    """Computes the gradients of all differentiable results of a function."""
    wanted = [tensor for tensor in tensors_in(torch, result) if tensor.requires_grad]
    if not wanted:
        raise UsageError(f"{name}: nothing that it returns requires a gradient; leave out backward=True")
    with recorder.paused():
        given = [torch.empty_like(tensor) for tensor in wanted]
    torch.autograd.backward(wanted, given)


def _reached(torch: Any, function: Any, args: Any, kwargs: Any) -> list[Any]:
    """The weights that a function reaches: those of modules and optimizers among its arguments, its closure and its globals."""
    values = [function, *args, *kwargs.values(), *(_used_by(function) if isfunction(function) else ())]
    modules = [value for value in values if isinstance(value, torch.nn.Module)]
    optimizers = [value for value in values if isinstance(value, torch.optim.Optimizer)]
    weights = [weight for module in modules for weight in module.parameters()]
    weights += [weight for optimizer in optimizers for group in optimizer.param_groups for weight in group["params"]]
    return [*weights, *(value for value in values if isinstance(value, torch.Tensor) and value.is_leaf)]


def _used_by(function: Any) -> Iterator[Any]:
    """The values of a function's closure and globals; a variable of its closure may have none, set in a branch that did not run."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            yield cell.cell_contents
    names = function.__code__.co_names
    yield from (function.__globals__[name] for name in names if name in function.__globals__)


@contextmanager
def _restored(recorder: Recorder, weights: list[Any]) -> Iterator[None]:
    """Restores the gradients of weights and the state of optimizers at the end."""
    gradients = [(weight, weight.grad) for weight in weights]
    states: dict[int, tuple[Any, dict[Any, Any]]] = {}

    def enter(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.in_optimizer = True
        if id(optimizer) not in states:
            recorder.optimizers.append(optimizer)
        states.setdefault(id(optimizer), (optimizer, {weight: dict(state) for weight, state in optimizer.state.items()}))

    def leave(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.in_optimizer = False

    module = import_module("torch.optim.optimizer")
    hooks = (module.register_optimizer_step_pre_hook(enter), module.register_optimizer_step_post_hook(leave))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for optimizer, state in states.values():
            optimizer.state.clear()
            optimizer.state.update(state)
        recorder.restore_gradients()
        for weight, gradient in gradients:
            weight.grad = gradient


def _why_not(error: Exception, fake: Any) -> str:
    """Why a function cannot run without data, and what to do; empty if the error is the function's own."""
    operator = (str(error).splitlines() or [type(error).__name__])[0].removesuffix(".default").replace("aten.", "")
    if isinstance(error, fake.DynamicOutputShapeException):
        return (
            f"how much {operator} returns depends on data (x[mask], torch.where(mask), nonzero, unique), and only shapes are known; "
            "choose a fixed number, as topk does, or analyze a trace of the program"
        )
    if isinstance(error, fake.DataDependentOutputException):
        word = "a value is read (.item(), bool(tensor))" if "_local_scalar_dense" in str(error) else operator
        return f"{word}: that needs data, and only shapes are known; pass the value as an argument"
    if isinstance(error, WithoutSize):
        return (
            f"{error}: how much it holds depends on data, and only shapes are known; use dense tensors (sparse=False in embeddings), "
            "or analyze a trace of the program"
        )
    if match := re.search(r"HigherOrderOperator (\w+)|^(FlexAttention) is only supported on", str(error)):
        return f"{match[1] or match[2]} calls functions of yours, which only compiling shows; analyze a trace of the program"
    return ""


def _machine(chip: str | Machine | None) -> Machine:
    """The requested machine, per framework device; by default the GPU that PyTorch runs on."""
    if isinstance(chip, Machine):
        return chip
    if chip is None:
        torch = require_torch()
        if not torch.cuda.is_available():
            raise UsageError("PyTorch sees no GPU here; name a chip: analyze(model, chip='h100')")
        chip = str(torch.cuda.get_device_name())
    machine = load(chip)
    return machine.per_device() if machine.devices > 1 else machine


def require_torch() -> Any:
    """The torch module; raises an error that says how to install it."""
    try:
        return import_module("torch")
    except ImportError:
        raise MissingExtra("torch", "torch") from None
