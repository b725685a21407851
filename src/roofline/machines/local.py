"""This computer as a machine: as it was measured and kept in the user's data folder, else as estimated from its description.

It is never measured here: an analysis gives the same answer every time. A measurement is used only on the CPU it was made on, so that
computers that share a home folder each have their own.
"""

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import MachineError, UsageError
from ..files.user_folders import user_folder
from .chip_specs import Card
from .reading import build, parse_file

if TYPE_CHECKING:
    from .cpu import Cpu

FOLDER_VARIABLE = "ROOFLINE_DATA"
GPU_NAME = "local-gpu"  # this computer's GPU, once it was measured
MEASURED = "-measured"  # ends the name of a measured GPU, after the catalogue's name of its chip
NAMES = ("local", "cpu")  # what this computer is called by people and by JAX


def data_folder() -> Path:
    """Where measurements are kept: ``$ROOFLINE_DATA``, or the folder that this system keeps users' data in."""
    return user_folder(FOLDER_VARIABLE, "data")


def local_file(cpu: "Cpu") -> Path:
    """Where the measurement of a CPU is kept."""
    return data_folder() / "machines" / f"{cpu.name}-{cpu.cores}-cores-{cpu.threads}-threads.toml"


def local_gpu_file() -> Path:
    """Where the measurement of this computer's GPU is kept; computers that share a home folder have one each."""
    return data_folder() / "machines" / f"gpu-{platform.node() or 'here'}.toml"


def local_card(cpu: "Cpu | None" = None) -> Card:
    """This computer: measured, if there is a measurement of this very CPU, else estimated, with a note."""
    from .cpu import this_cpu  # what describes a CPU is needed for no other machine
    from .cpu_estimate import MEASURE, estimate

    mine = cpu or this_cpu()
    problem = ""
    try:
        if (kept := kept_card(mine)) is not None:
            return kept
    except MachineError as error:
        problem = f"the saved measurement cannot be read ({error}): measure again with: {MEASURE}"
    machine = estimate(mine)
    notes = (problem, *machine.notes) if problem else machine.notes
    return Card(machine=replace(machine, notes=notes), where=machine.name)


def kept_card(cpu: "Cpu") -> Card | None:
    """The measurement of this CPU; ``None`` when there is none."""
    try:
        path = local_file(cpu)
    except UsageError:  # a user without a home has kept nothing
        return None
    if not path.is_file():
        return None
    card = build(parse_file(path))
    said = dict(card.machine.conditions)
    same = (said.get("cpu"), said.get("cores"), said.get("threads")) == (cpu.model, str(cpu.cores), str(cpu.threads))
    return card if same else None
