"""This computer as a machine: the measurement in the user's data folder, else an estimate from its description.

Nothing is measured here, so that an analysis always gives the same answer. A measurement is used only on the CPU on which it was made, so
that computers with a shared home folder each have their own.
"""

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import MachineError, UsageError
from ..files.user_folders import user_folder
from .chip_specs import Card
from .machine_file import MachineFile
from .reading import build
from .toml_files import read_toml

if TYPE_CHECKING:
    from .cpu import Cpu

FOLDER_VARIABLE = "ROOFLINE_DATA"
ACCELERATORS = ("local-gpu", "local-tpu")  # this computer's GPU or TPU, after it was measured
MEASURED = "-measured"  # suffix of the name of a measured GPU
NAMES = ("local", "cpu")  # names of this computer for people and in JAX


def data_folder() -> Path:
    """The folder of measurements: ``$ROOFLINE_DATA``, or the system's folder for user data."""
    return user_folder(FOLDER_VARIABLE, "data")


def local_file(cpu: "Cpu") -> Path:
    """The file of a CPU's measurement."""
    return data_folder() / "machines" / f"{cpu.name}-{cpu.cores}-cores-{cpu.threads}-threads.toml"


def local_gpu_file() -> Path:
    """The file of the measurement of this computer's GPU or TPU; computers with a shared home folder have one each."""
    return data_folder() / "machines" / f"gpu-{platform.node() or 'here'}.toml"


def local_card(cpu: "Cpu | None" = None) -> Card:
    """This computer: measured, if there is a measurement of this CPU, else estimated, with a note."""
    from .cpu import this_cpu  # only needed for this machine
    from .cpu_estimate import MEASURE, estimate

    mine = cpu or this_cpu()
    problem = ""
    try:
        if (kept := measured_card(mine)) is not None:
            return kept
    except MachineError as error:
        problem = f"the saved measurement cannot be read ({error}): measure again with: {MEASURE}"
    machine = estimate(mine)
    notes = (problem, *machine.notes) if problem else machine.notes
    return Card(machine=replace(machine, notes=notes), where=machine.name)


def measured_card(cpu: "Cpu") -> Card | None:
    """The measurement of this CPU; ``None`` when there is none."""
    try:
        path = local_file(cpu)
    except UsageError:  # without a home folder there is no measurement
        return None
    if not path.is_file():
        return None
    card = build(read_toml(path, MachineFile), path.name)
    conditions = dict(card.machine.conditions)
    same = (conditions.get("cpu"), conditions.get("cores"), conditions.get("threads")) == (cpu.model, str(cpu.cores), str(cpu.threads))
    return card if same else None
