"""The best plans of a slice of TPUs beside their programs: the user's function for each mesh, compiled for the slice and played."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...errors import RooflineError, UsageError
from ...plan.plans import Compiled, Plan, Plans
from ...plan.question import Question
from ..output import write_message

OF_DEVICES = ("tp", "pp", "cp", "fsdp", "data")  # axes that devices are divided among


def with_programs(plans: Plans, question: Question, function: Callable[..., Any], most: int) -> Plans:
    """The plans with the first ``most`` of them compiled, each mesh once."""
    if not question.chips.is_tpu:
        raise UsageError(f"--program: compiled for slices of TPUs, not for {plans.chip}")
    chips = question.chips
    place = f"{chips.slices}x {chips.machine.chip_name}:{chips.axes}" if chips.slices > 1 else f"{chips.machine.chip_name}:{chips.axes}"
    programs: dict[tuple[tuple[str, int], ...], Compiled] = {}
    shown = []
    for plan in plans.plans:
        axes = tuple((axis, plan.mesh[axis]) for axis in OF_DEVICES if plan.mesh[axis] > 1) or (("fsdp", 1),)
        if axes not in programs and len(programs) < most:
            write_message(f"compiling {plan.name} for {place}")
            programs[axes] = _compiled(plan, function, place, dict(axes))
            shown.append(replace(plan, compiled=programs[axes]))
        else:
            shown.append(plan)
    return replace(plans, plans=tuple(shown))


def _compiled(plan: Plan, function: Callable[..., Any], place: str, axes: dict[str, int]) -> Compiled:
    """The played program of a mesh: the function takes the mesh and gives the step and its arguments."""
    from ...jax import analyze

    try:
        step, arguments = function(axes)
    except RooflineError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise UsageError(f"--program: {type(error).__name__} for the mesh {plan.name}: {error}; it gives (step, arguments)") from None
    report = analyze(step, chip=place, mesh=axes)(*arguments)
    expected = next(point.expected for point in report.points if point.scope == "average")
    if expected is None:
        raise UsageError(f"--program: no time can be predicted for the program of {plan.name}")
    return Compiled(step_s=expected.time_s, low_s=expected.low_s, high_s=expected.high_s, terms=dict(expected.terms))
