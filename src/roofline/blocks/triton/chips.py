"""Chips as the model of Triton kernels needs them, from the catalogue."""

from collections.abc import Mapping

from msgspec import Struct

from ...errors import MachineError, UsageError
from ...machine import Machine
from ...machines.architectures import architecture, capability_of, clock_of
from ...machines.calibrations import calibration_for
from ...machines.catalogue import card
from ...machines.cores import Core, core_of

SUSTAINED = 0.8  # of main memory's rate, where no calibration says it
FORMATS = ("bf16", "fp16", "tf32", "fp64", "fp8", "int8")


class Chip(Struct, frozen=True, kw_only=True):
    """A chip: its cores, their clock in Hz, FLOP of a core's matrix unit in a cycle by format, and sustained rates."""

    core: Core
    cores: int
    clock: float
    matrix_flops: Mapping[str, float]
    l2_bytes: float
    hbm: float
    launch_s: float

    @property
    def capability(self) -> int:
        """The compute capability as compilers write it: 90."""
        return int(self.core.capability[0].replace(".", ""))


def chip_for(name: str) -> tuple[Chip, Machine]:
    """The chip of this name, and its machine."""
    found = card(name)
    machine = found.machine
    capability = capability_of(machine)
    known = architecture(machine.vendor, capability) if capability else None
    clock = found.spec("clock")
    if machine.vendor != "NVIDIA" or known is None or found.cores is None or clock is None:
        raise UsageError(f"{name}: Triton kernels are predicted for NVIDIA GPUs with a machine file that has their SMs and clock")
    calibration = calibration_for(machine)
    hertz = clock_of(clock) * known.matrix_clock
    rates = {number: machine.resolve(f"matrix/{number}") for number in FORMATS}
    stream = calibration.family("pointwise", "elementwise")
    l2 = machine.capacity("l2")
    if l2 is None:
        raise MachineError(f"{name}: its machine file has no capacity of L2")
    chip = Chip(
        core=core_of(capability),
        cores=found.cores,
        clock=hertz,
        # Of one architecture some chips run products that add up in fp32 at half the rate.
        matrix_flops={
            number: min(float(rate), ceiling.rate / found.cores / hertz)
            for number, ceiling in rates.items()
            if (rate := known.rates.get(f"matrix/{number}")) and ceiling
        },
        l2_bytes=l2,
        hbm=machine.rate("hbm") * (stream.values["memory"] if stream else SUSTAINED),
        launch_s=stream.values.get("timer", 0.0) if stream else machine.launch_latency_s,
    )
    return chip, machine
