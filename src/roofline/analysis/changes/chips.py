"""``chip NAME`` and ``set RESOURCE=…``: the same program on another chip, or on this chip with another rate."""

import re

from ...errors import MachineError, UsageError
from ...machines import load, parse_settings
from ...machines.calibrations import calibration_for
from ...machines.catalogue import is_path
from .change_words import Words
from .state import State


def chip(state: State, words: Words) -> None:
    """Another chip; the time of each op is scaled from its measured time on this one."""
    name = words.need()
    try:
        machine = load(name)
    except MachineError as error:
        if is_path(name):
            raise
        raise UsageError(str(error)) from None
    is_per_device = state.machine.scope == "device" or state.machine.kind == machine.kind == "tpu"  # a program of TPUs is one device's
    state.after_machine = machine.per_device() if is_per_device and machine.devices > 1 else machine
    state.after_calibration = calibration_for(state.after_machine).for_kernels()


def set_rate(state: State, words: Words) -> None:
    """This chip with another rate of one resource."""
    written = words.need()
    resource, _, rate = written.partition("=")
    times = re.fullmatch(r"x(\d+(?:\.\d+)?)", rate)
    machine = state.after_machine
    if times:
        if not machine.resolve(resource):
            raise words.wrong(f"set {written}: {machine.name} has no rate for {resource}")
        state.after_machine = machine.override({resource: machine.rate(resource) * float(times[1])})
        return
    if not rate:
        raise words.wrong(f"set {written}: a rate is missing, as in hbm=x1.5 or hbm=7TB/s")
    state.after_machine = machine.override(parse_settings([written]))
