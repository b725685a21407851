"""Acceptance checks of a JAX function that is run here: its time compared with its bounds, and the lever test, a doubled batch."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ..analysis.validation import validate_report
from ..analysis.validation.acceptance import LEVER, TIMES, AcceptanceCheck, Problem, Validation, made_check
from ..analysis.validation.times import BELOW, LONGEST, SUSTAINED
from ..dtypes import dtype
from ..errors import UsageError
from ..machine import Machine
from ..report import Report
from ..units import plain, show
from . import analyze, require_jax
from .comparison import Shape, jax_format

TRIES, LEAST_S, MOST_CALLS = 7, 0.01, 1000
SHORT, SHORT_CALLS = 20, 3  # a time below this many launches, or calls of an empty function, is too short to judge the bound
FACTOR = 1.5  # the largest ratio between the measured and the predicted change of the time


def validate(function: Callable[..., Any], *, chip: str | Machine | None = None, batch: Sequence[int] = (0,)) -> Callable[..., Validation]:
    """A function of the same arguments that runs it and returns its acceptance checks: ``validate(layer)(x, w).holds``.

    ``batch`` are the arguments whose first dimension is doubled in the lever test. ``chip`` is by default the device JAX runs on.
    """

    def checked(*args: Any) -> Validation:
        jax = require_jax()
        run = jax.jit(function)
        report, wider = analyze(function, chip=chip)(*args), _doubled(jax, args, batch)
        more = analyze(function, chip=chip)(*wider)
        smallest, value = jax.jit(lambda x: x + 1), jax.numpy.zeros(())
        first_s, second_s, call_s = seconds(jax, [lambda: run(*args), lambda: run(*wider), lambda: smallest(value)])
        found = validate_report(report, lever=_lever(report, more, first_s, second_s, call_s))
        checks = tuple(_program_time(report, first_s, call_s) if one.name == TIMES else one for one in found.checks)
        return replace(found, source=getattr(function, "__name__", "function"), checks=checks)

    return checked


def validate_function(
    function: Callable[..., Any], name: str, shapes: Sequence[Shape], batch: Sequence[int], machine: Machine | None
) -> Validation:
    """The checks of a function that is run on random arrays of these shapes."""
    jax = require_jax()
    keys = jax.random.split(jax.random.key(0), len(shapes))
    args = []
    for key, (fixed, sizes) in zip(keys, shapes, strict=True):
        number = jax_format(jax, dtype(fixed or "fp32"))
        is_real = jax.numpy.issubdtype(number, jax.numpy.floating)
        args.append(jax.random.normal(key, sizes).astype(number) if is_real else jax.numpy.zeros(sizes, number))
    try:
        return replace(validate(function, chip=machine, batch=batch)(*args), source=name)
    except UsageError:
        raise
    except Exception as error:  # whatever the user's function or the compiler raises
        raise UsageError(f"validate: {name}: {(str(error) or type(error).__name__).splitlines()[0]}") from None


def seconds(jax: Any, works: Sequence[Callable[[], Any]]) -> list[float]:
    """The best time of each function. They are tried in turn, because other load on the computer slows down some of the tries.

    A try is as many calls as take a hundredth of a second.
    """
    calls = []
    for work in works:
        jax.block_until_ready(work())
        began = time.perf_counter()
        jax.block_until_ready(work())
        calls.append(max(1, min(MOST_CALLS, math.ceil(LEAST_S / max(time.perf_counter() - began, LEAST_S / MOST_CALLS)))))
    best = [math.inf] * len(works)
    for _ in range(TRIES):
        for number, (work, times) in enumerate(zip(works, calls, strict=True)):
            began = time.perf_counter()
            for _ in range(times):
                result = work()
            jax.block_until_ready(result)
            best[number] = min(best[number], (time.perf_counter() - began) / times)
    return best


def _doubled(jax: Any, args: Sequence[Any], batch: Sequence[int]) -> list[Any]:
    for number in batch:
        if not 0 <= number < len(args) or not args[number].shape:
            raise UsageError(f"validate: no argument {number} with a first dimension to double; name the batch arguments: --batch 1")
    return [jax.numpy.concatenate([each, each]) if number in batch else each for number, each in enumerate(args)]


def _program_time(report: Report, took: float, call_s: float) -> AcceptanceCheck:
    """The measured time of the whole function compared with its minimum and its serial time; ``call_s`` is the host's time per call."""
    total, launch = report.total, float(report.machine.launch_latency_s or 0.0)
    least, serial = (total.floor_s if total else None) or 0.0, sum((op.serial_s or 0.0) / SUSTAINED + launch for op in report.ops)
    expected = f"between {show(least * BELOW, 's', 3)} and {LONGEST:g} times {show(serial, 's', 3)}"
    problems = []
    estimated = report.machine.kind == "cpu" and any(one.provenance == "derived" for one in report.machine.ceilings)
    if took < BELOW * least and not estimated:
        message = f"{plain(least / took, 3)} times faster than its minimum: counts are too high, or a rate is too low"
        problems.append(Problem(input="counts", message=message))
    notes = []
    if took > LONGEST * serial:
        words = f"{plain(took / serial, 3)} times its serial time: the host's time to call it is included, or bytes are missing"
        if estimated or took < max(SHORT * launch, SHORT_CALLS * call_s):
            notes.append(words)
        else:
            problems.append(Problem(input="clock", message=words))
    if estimated:
        notes.append("the rates of this CPU are estimates, so nothing fails here; run roofline chips measure")
    return made_check(TIMES, expected, show(took, "s", 3), problems, notes)


def _lever(before: Report, after: Report, first_s: float, second_s: float, call_s: float) -> AcceptanceCheck:
    """Whether the time changes as the minimum time does when the batch is doubled; ``call_s`` is the host's time per call."""
    least = [(one.total.floor_s if one.total else None) or 0.0 for one in (before, after)]
    bound = before.total.bound if before.total else None
    saw = f"{plain(second_s / first_s, 3)} times the time ({show(first_s, 's', 3)}, then {show(second_s, 's', 3)})"
    if not all(least):
        return made_check(LEVER, "the time to follow the bound", saw, notes=("the cost is not known",), checked=False)
    factor = least[1] / least[0]
    expected = f"{plain(factor, 3)} times the time with a doubled batch ({bound}-bound)"
    if first_s < SHORT * float(before.machine.launch_latency_s or 0.0):
        return made_check(LEVER, expected, saw, notes=("too short to tell: mostly launches; use a larger batch",), checked=False)
    if first_s < SHORT_CALLS * call_s:
        note = f"too short to tell: any call takes the host {show(call_s, 's', 2)}; use larger arguments"
        return made_check(LEVER, expected, saw, notes=(note,), checked=False)
    if 1 / FACTOR < second_s / first_s / factor < FACTOR:
        return made_check(LEVER, expected, saw)
    slow = second_s / first_s > factor
    cause = (
        "the larger data no longer fit a cache, and the bytes beyond it are not counted"
        if slow
        else "the bound is wrong: FLOP or bytes that do not grow with the batch are not counted"
    )
    return made_check(LEVER, expected, saw, [Problem(input="bytes" if slow else "counts", message=cause)])
