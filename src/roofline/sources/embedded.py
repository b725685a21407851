"""The programs of a recording: those embedded in its profile, or those in its program files."""

from pathlib import Path

from msgspec.structs import replace

from ..hlo.ir.module import HloModule
from ..machine import Machine
from ..workload import Recording
from . import PROFILE, PROGRAM, find
from .files import files_of, local_file

MOST_PROGRAMS = 64  # of one profile


def programs_behind(recording: Recording, machine: Machine, path: str) -> dict[str, HloModule]:
    """The programs in the file of a recording, by module name, those with the most time first.

    If several have the same name, the one that ran, else the one with most of the recording's ops.
    """
    spent: dict[str, float] = {}
    names: dict[str, set[str]] = {}
    for op in recording.workload:
        if op.module:
            spent[op.module] = spent.get(op.module, 0.0) + (op.time_s or 0.0)
            names.setdefault(op.module, set()).add(op.name)
    found: dict[str, HloModule] = {}
    ran: set[str] = set()
    for number, module in programs_of(path, machine, frozenset(map(_without_number, spent))):
        numbered = f"{module.name}({number})"  # the module's name in ops if several programs have the same name
        name = numbered if numbered in spent else module.name
        if number and number == recording.programs.get(name):
            found[name] = module
            ran.add(name)
        if name in ran:
            continue
        mine = names.get(name, set())
        has = sum(module.place(one) is not None for one in mine)
        known = found.get(name)
        if has and (known is None or has > sum(known.place(one) is not None for one in mine)):
            found[name] = module if name == module.name else replace(module, name=name)
    return dict(sorted(found.items(), key=lambda item: -spent[item[0]]))


def _without_number(name: str) -> str:
    """The name of a program without its id in parentheses.

    >>> _without_number("jit_f(655170)"), _without_number("jit_f")
    ('jit_f', 'jit_f')
    """
    return name.rpartition("(")[0] if name.endswith(")") else name


def programs_of(path: str | Path, target: Machine | None = None, names: frozenset[str] = frozenset()) -> tuple[tuple[str, HloModule], ...]:
    """The programs of a profile or program file, each with its id in the profile; none for a table or a trace.

    ``names`` selects programs by name; if it is empty, all are returned.
    """
    name = files_of([str(path)])[0]
    with local_file(name) as file:
        source = find(file)
        if source is PROFILE:
            return _embedded(Path(file), names)
        if source is PROGRAM:
            from .hlo_dump import read_modules
            from .programs import prepared

            return tuple(("", prepared(module, target)[0]) for module in read_modules(Path(file)))
        return ()


def _embedded(path: Path, names: frozenset[str]) -> tuple[tuple[str, HloModule], ...]:
    from .xspace.modules import Programs
    from .xspace.scan import open_space

    with open_space(path) as space:
        return tuple(Programs(space, "gpu").modules(names, MOST_PROGRAMS))
