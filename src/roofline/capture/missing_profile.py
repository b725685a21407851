"""Why there is no profile of a program, and what to do about it."""

from collections.abc import Mapping, Sequence
from typing import Any

_MARKS = {"JAX": "jax.profiler.StepTraceAnnotation", "PyTorch": "torch.profiler.record_function"}


def why_no_profile(command: Sequence[str], status: int, messages: Sequence[Mapping[str, Any]], *, delayed: bool, skipping: bool) -> str:
    """The reason in one line, from the messages of the program's processes (``messages``)."""
    program = " ".join(command)
    ended = f"was killed by signal {status - 128}" if status > 128 else f"ended with exit status {status}" if status else "ended"
    if not messages:
        blind = " (Python's options -I, -E and -S disable the profiler hook)" if {"-I", "-E", "-S"} & set(command) else ""
        return f"{program}: {ended} without importing JAX or PyTorch, so nothing was recorded{blind}"
    if any(one["state"] == "recording" for one in messages):
        return f"{program}: {ended} before its profile was written; use --duration to write it while the program runs"
    if failures := [note for one in messages if one["state"] == "failed" for note in one["notes"]]:
        return f"{program}: {failures[0]}"
    if any(one["own_profiles"] for one in messages):
        return f"{program}: the program took its own profile, and no other step was left to record; analyze that one"
    frameworks = {one["framework"] for one in messages}
    if not any(one["ran"] for one in messages):
        if "PyTorch" in frameworks:
            return f"{program}: {ended} without an optimizer step, a call of a module or an annotation; use --from-start to record it all"
        return f"{program}: {ended} without running anything on a device with JAX"
    if delayed:
        return f"{program}: {ended} before the delay was over; use a shorter --delay"
    most = max(messages, key=lambda one: int(one["steps"]))
    if not skipping:
        return f"{program}: {ended} before a step ran without compiling; use --from-start to record everything"
    kind = "annotated steps" if most["framework"] == "JAX" else "steps"
    return f"{program}: {ended} after {most['steps']} {kind}; use a smaller --skip, or mark steps with {_MARKS[most['framework']]}"
