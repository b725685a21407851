"""Other FLOP counters for PyTorch functions: PyTorch's own two, and fvcore, thop, calflops and DeepSpeed if installed.

Each gets a module and arguments without data. For PyTorch's two, attention is one operator, as on a GPU.
"""

import copy
import io
import logging
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

MULTIPLY_ADDS = "counts a multiply and an add as 1"


class CounterResult(Struct, frozen=True, kw_only=True):
    """One counter's FLOP, the operators that it reports as not counted, and a message if it failed."""

    flops: float | None = None
    left_out: tuple[str, ...] = ()
    failed: str = ""


def flop_counter_mode(module: Any, args: tuple[Any, ...]) -> CounterResult:
    """`torch.utils.flop_counter.FlopCounterMode`."""
    mode = import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with mode:
        module(*args)
    return CounterResult(flops=mode.get_total_flops())


def torch_profiler(module: Any, args: tuple[Any, ...]) -> CounterResult:
    """`torch.profiler` with ``with_flops``: an operator inside a counted one is not counted again."""
    profiler = import_module("torch.profiler")
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], with_flops=True, record_shapes=True) as profile:
        module(*args)
    outermost = [event for event in profile.events() if event.flops and not any(parent.flops for parent in _parents(event))]
    silent = {event.name for event in profile.events() if "attention" in event.name and not event.flops}
    return CounterResult(flops=sum(event.flops for event in outermost), left_out=tuple(sorted(silent)))


def _parents(event: Any) -> Iterable[Any]:
    while (event := event.cpu_parent) is not None:
        yield event


def fvcore(module: Any, args: tuple[Any, ...]) -> CounterResult:
    analysis = import_module("fvcore.nn").FlopCountAnalysis(module, args)
    analysis.unsupported_ops_warnings(False)
    analysis.uncalled_modules_warnings(False)
    return CounterResult(flops=analysis.total(), left_out=tuple(sorted(analysis.unsupported_ops())))


def thop(module: Any, args: tuple[Any, ...]) -> CounterResult:
    macs, _ = import_module("thop").profile(copy.deepcopy(module), inputs=args, verbose=False)
    return CounterResult(flops=macs, left_out=("functions outside modules",))


def calflops(module: Any, args: tuple[Any, ...]) -> CounterResult:
    flops, _, _ = import_module("calflops").calculate_flops(
        copy.deepcopy(module), args=list(args), print_results=False, print_detailed=False, output_as_string=False
    )
    return CounterResult(flops=flops)


def deepspeed(module: Any, args: tuple[Any, ...]) -> CounterResult:
    profiler = import_module("deepspeed.profiling.flops_profiler")
    flops, _, _ = profiler.get_model_profile(
        copy.deepcopy(module), args=list(args), print_profile=False, detailed=False, warm_up=0, as_string=False
    )
    return CounterResult(flops=flops)


class Peer(Struct, frozen=True, kw_only=True):
    """A counter: its name, its package, the function that runs it, and its conventions."""

    name: str
    package: str
    run: Callable[[Any, tuple[Any, ...]], CounterResult]
    counts: tuple[str, ...] = ()
    within: bool = False  # runs in the mode in which attention is one operator and tensors have no data


PEERS = (
    Peer(
        name="FlopCounterMode",
        package="torch",
        run=flop_counter_mode,
        counts=("counts matmuls, convolutions and attention only",),
        within=True,
    ),
    Peer(
        name="torch.profiler with_flops",
        package="torch",
        run=torch_profiler,
        counts=("counts matmuls, convolutions, and additions and multiplications by element",),
        within=True,
    ),
    Peer(name="fvcore", package="fvcore", run=fvcore, counts=(MULTIPLY_ADDS,)),
    Peer(name="thop", package="thop", run=thop, counts=(MULTIPLY_ADDS,)),
    Peer(name="calflops", package="calflops", run=calflops, counts=("counts elementwise operations of the modules that it knows too",)),
    Peer(name="DeepSpeed", package="deepspeed", run=deepspeed, counts=("counts elementwise operations of the modules that it knows too",)),
)


def installed(peer: Peer) -> bool:
    """Whether the package of a counter can be imported."""
    return find_spec(peer.package) is not None


def count_with(peer: Peer, module: Any, args: tuple[Any, ...]) -> CounterResult:
    """A counter's result; an exception is its result too, since it may not support this program."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()):
            return peer.run(module, args)
    except Exception as error:  # whatever another package raises
        return CounterResult(failed=(str(error).splitlines() or [type(error).__name__])[0])
    finally:
        logging.disable(level)
