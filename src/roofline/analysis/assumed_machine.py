"""The chip that a recording is compared with: whether it can have run on an assumed one, and how long operators take to start on it."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..machine import Machine
from ..units import approximate, parse
from ..workload import Op, Recording

IMPOSSIBLE = 2.0  # times the peak: more than a boost clock, or an estimate of the peak, can be off
COMPUTE_BOUND = 0.5  # of an op's time: at least this much would be compute on the assumed chip
DISPATCH_S = parse("5 us", "s")  # about 1 µs of PyTorch's dispatcher, and 4 µs of its profiler (see `recording_cost`)
NAMES = {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU"}


def plausible_machine(machine: Machine, ops: Sequence[Op]) -> Machine:
    """The machine; if it is assumed, and most of the time in compute-bound ops is too short for it, one of its kind without rates."""
    if not machine.assumed:
        return machine
    times = [(op.time_s, _compute_s(op, machine), op.name) for op in ops if op.time_s]
    bound = [(time_s, least_s, name) for time_s, least_s, name in times if least_s >= COMPUTE_BOUND * time_s]
    too_fast = [one for one in bound if one[1] > IMPOSSIBLE * one[0]]
    if not bound or sum(time_s for time_s, _, _ in too_fast) <= sum(time_s for time_s, _, _ in bound) / 2:
        return machine
    time_s, least_s, name = max(too_fast, key=lambda one: one[0])
    kind = NAMES.get(machine.kind, "chip")
    note = (
        f"the input does not name its {kind}, and it is not {machine.title or machine.name}, on which {name} would take at least "
        f"{approximate(least_s / time_s, 2)} times as long: choose the chip with --chip, or check times and FLOP; if a profile's ops "
        "ran on another device, record its activity as well"
    )
    return replace(
        machine, name=f"unknown-{kind.lower()}", title=f"unknown {kind}", ceilings=(), capacities=(), limits=(), aliases=(), notes=(note,)
    )


def machine_as_it_ran(machine: Machine, recording: Recording) -> Machine:
    """The machine as a recording uses it: one device of it for a program, its rates if they are plausible, and PyTorch's time to call an
    operator on the host in place of that of a task on its threads.
    """
    ran = plausible_machine(device_of_program(machine, recording.format), recording.workload.ops)
    if recording.format != "torch" or not recording.is_on_host or ran.launch_latency_s >= DISPATCH_S:
        return ran
    return replace(ran, launch_latency_s=DISPATCH_S)


def device_of_program(machine: Machine, format: str) -> Machine:
    """One framework device of a TPU where the input is a program: it is compiled for a device, of which some chips are two."""
    return machine.per_device() if format == "hlo" and machine.kind == "tpu" and machine.devices > 1 else machine


def _compute_s(op: Op, machine: Machine) -> float:
    """The least time of an op's arithmetic on a machine, at rates that the user did not set."""
    work = ((amount, machine.resolve(resource)) for resource, amount in op.cost.amounts if resource.is_compute)
    return sum((float(amount / ceiling.rate) for amount, ceiling in work if ceiling and ceiling.provenance != "user"), 0.0)
