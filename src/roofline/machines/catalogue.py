"""The catalogue: one TOML file per chip, found by any of its names.

>>> load("NVIDIA H100 80GB HBM3").name
'h100-sxm'
>>> load("h10")
Traceback (most recent call last):
roofline.errors.MachineError: no machine named 'h10'; did you mean 'h100-sxm'?
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from ..errors import MachineError, excerpt
from ..machine import Machine
from ..units import BINARY
from .chip_specs import Card
from .local import ACCELERATORS as LOCAL_ACCELERATORS
from .local import NAMES as LOCAL
from .local import local_card, local_gpu_file
from .machine_file import MachineFile
from .reading import build
from .toml_files import read_toml

CHIPS = Path(__file__).with_name("chips")
SUFFIX = ".toml"
DEVICE = "/device"
_ALIKE = 0.6
_IGNORED = dict.fromkeys(map(ord, " \t\n\r\f\v_-"))  # characters ignored in names
_AS_GOOD = 0.1
LONGEST_NAME = 200  # characters of a name that are used in errors and compared with chip names
MOST_EXTENDED = 8  # longest chain of machine files that extend one another
# A slice Ng.Mgb of a GPU has N of its 7 compute slices (4 on these) and M GB in eighths of its memory: NVIDIA Multi-Instance GPU User
# Guide, MIG device profiles.
_SLICE = r"(?i)(?P<chip>.+?)[ _-]+MIG[ _-]+(?P<compute>\d)g\.(?P<memory>\d+)gb(\+.*)?"
_SLICES = {"a30": 4}
_MEMORY_SLICES = 8
MOST_SIDE_DIGITS = 6  # no slice is near this long


def load(name: str) -> Machine:
    """The machine with this name: a file's name, a title, an alias, a name that a tool reports, a family, or a path.

    Case, spaces, hyphens and underscores are ignored. ``name/device`` is one framework device of the chip. A name
    with a slash, or that ends in ``.toml``, is the path of a user's file. ``local`` is this computer's CPU.
    """
    return card(name).machine


def card(name: str) -> Card:
    """The `Card` of the machine with this name; ``local`` is this computer, measured or estimated."""
    chip = name.removesuffix(DEVICE)
    if chip.lower() in LOCAL:
        return local_card()
    if chip.lower() in LOCAL_ACCELERATORS:
        if not local_gpu_file().is_file():
            kind = chip.lower().removeprefix("local-")
            raise MachineError(
                f"this computer's {kind.upper()} has not been measured ({chip.lower()}); run: roofline chips measure --device {kind}"
            )
        return read_card(local_gpu_file())
    if not is_path(chip) or _find(chip)[0]:
        return catalogue_card(name)
    found = read_card(chip)
    return replace(found, machine=found.machine.per_device()) if chip != name else found


def catalogue_card(name: str) -> Card:
    """The chip of the catalogue with this name. The name may come from an input file, so it is never treated as a path."""
    chip = name.removesuffix(DEVICE)
    found = _known(chip)
    return replace(found, machine=found.machine.per_device()) if chip != name else found


def read(path: str | Path) -> Machine:
    """The machine that a user's file describes."""
    return read_card(path).machine


@cache
def names() -> tuple[str, ...]:
    """The name of every chip in the catalogue, sorted."""
    return tuple(sorted(file.removesuffix(SUFFIX) for file in os.listdir(CHIPS) if file.endswith(SUFFIX)))


def catalogue() -> tuple[Machine, ...]:
    """Every chip in the catalogue, sorted by name."""
    return tuple(each.machine for each in cards())


@cache
def cards() -> tuple[Card, ...]:
    """The `Card` of every chip in the catalogue."""
    return tuple(_chip(name) for name in names())


def identify(words: str) -> tuple[str, ...]:
    """The chips with this name: one, the members of a family with the default one first, or none."""
    name, family = _find(words)
    if name is None:
        return ()
    members = (each.machine.name for each in cards() if family and each.family == _chip(name).family)
    return (name, *(member for member in members if member != name))


def is_path(name: str) -> bool:
    """Whether a name looks like a path; a title may contain a slash too."""
    return "/" in name or "\\" in name or name.endswith(".toml")


def read_card(path: str | Path, extended_by: tuple[str, ...] = ()) -> Card:
    """The `Card` of a user's file, on top of the machine that it extends. ``extended_by`` are the files that extend this one."""
    file, where = read_toml(path, MachineFile, regular=bool(extended_by)), Path(path).name
    return build(file, where, *([_extended(path, file.extends, where, extended_by)] if file.extends else []))


def _extended(path: str | Path, extends: str, where: str, extended_by: tuple[str, ...]) -> Card:
    """The card that a file extends: a chip's, or that of another file."""
    if is_path(extends) and not _find(extends.removesuffix(DEVICE))[0]:
        beside = os.path.join(os.path.dirname(path), extends)
        chain = (*extended_by, os.path.realpath(path))
        if os.path.realpath(beside) in chain:
            raise MachineError(f"{where}: extends: a machine file cannot extend itself; name a chip of the catalogue")
        if len(chain) > MOST_EXTENDED:
            raise MachineError(f"{where}: extends: more than {MOST_EXTENDED} files extend one another; join some of them")
        return read_card(beside, chain)
    try:
        return card(extends)
    except MachineError as error:
        raise MachineError(f"{where}: extends: {error}") from None


@cache
def _chip(name: str) -> Card:
    return build(read_toml(_file(name), MachineFile), _file(name).name)


def _known(words: str) -> Card:
    name, family = _find(words)
    if name is None and (part := slice_of(words) or torus_slice(words)):
        return part
    if name is None:
        raise MachineError(f"no machine named {excerpt(words, LONGEST_NAME)}{_suggest(words[:LONGEST_NAME])}")
    found = _chip(name)
    if not family:
        return found
    note = f"{words!r} is a family of chips; using {name}"
    return replace(found, machine=replace(found.machine, notes=(*found.machine.notes, note)))


def slice_of(words: str, cores: int | None = None) -> Card | None:
    """The MIG slice of an NVIDIA GPU with this name (``NVIDIA A100-SXM4-40GB MIG 1g.5gb``); ``cores`` is its number of SMs, if known."""
    found = re.fullmatch(_SLICE, words.strip()) if "mig" in words.lower() else None
    name = _find(found["chip"])[0] if found else None
    if found is None or name is None:
        return None
    chip = _chip(name)
    size = chip.machine.capacity() or 0
    memory = min(round(int(found["memory"]) * BINARY["Gi"] / size * _MEMORY_SLICES) or 1, _MEMORY_SLICES) / _MEMORY_SLICES if size else 1.0
    compute = cores / chip.cores if cores and chip.cores else int(found["compute"]) / _SLICES.get(name, 7)
    part = chip.machine.sliced(f"{name}-mig-{found['compute']}g-{found['memory']}gb", words, min(compute, 1.0), memory)
    return replace(chip, machine=part, sustained=(), disagreements=(), power=None)


def torus_slice(words: str) -> Card | None:
    """The chip as part of a slice of this name: by its sides (``v6e:4x4``), or by its number of TensorCores (``v5p-128``, 64 chips)."""
    chip, colon, sides = words.rpartition(":")
    if not colon:
        chip, dash, sides = words.rpartition("-")
        if not dash or not sides.isdecimal():
            return None
    name, _ = _find(chip.strip())
    if name is None:
        return None
    card = _chip(name)
    machine = card.machine
    if machine.torus is None:
        return _no_slices(name, words) if colon else None
    try:
        topology = machine.torus.slice(_sides(sides, machine, counted=not colon), machine.devices)
    except MachineError as error:
        like = machine.torus.usual(4 ** len(machine.torus.largest)) or ()
        raise MachineError(
            f"no slice {excerpt(words, LONGEST_NAME)}: {error}; write it like {card.family}:{'x'.join(map(str, like))}"
        ) from None
    return replace(card, machine=machine.in_slice(topology))


def _no_slices(name: str, words: str) -> NoReturn:
    raise MachineError(f"no slice {excerpt(words, LONGEST_NAME)}: slices of {name} are not known; write them like v6e:4x4")


def _sides(words: str, machine: Machine, counted: bool) -> tuple[int, ...]:
    """The sides of a slice as written, or of the usual slice of so many TensorCores."""
    if not all(side.isdecimal() and len(side) <= MOST_SIDE_DIGITS for side in words.split("x")):
        raise MachineError(f"{excerpt(words)} are not the sides of a slice")
    sides = tuple(map(int, words.split("x")))
    if not counted:
        return sides
    assert machine.torus is not None
    chips, rest = divmod(sides[0], machine.cores)
    usual = machine.torus.usual(chips) if chips and not rest else None
    if usual is None:
        raise MachineError(f"no slice of {machine.name} has {sides[0]:,} TensorCores, {machine.cores} a chip")
    return usual


def _find(words: str) -> tuple[str | None, bool]:
    """The chip's name, and whether the words name its whole family."""
    spelled = "-".join(words.lower().replace("_", " ").split())
    if spelled in names():
        return spelled, False  # common case: read one file only
    key = _key(words)
    # Parsing all heads takes about 30 ms; a text search takes 1 ms and leaves few of them.
    chips, families = _index(tuple(name for name, head in _heads() if key in head))
    return (chips[key], False) if key in chips else (families.get(key), key in families)


@cache
def _index(among: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Every name of these chips, and the default members of their families, from the heads of their files.

    The family of a single chip is another name of it.
    """
    chips: dict[str, str] = {}
    families: dict[str, str] = {}
    heads = {name: tomllib.loads(_head(name)) for name in among}
    members = Counter(head.get("family") for head in heads.values())
    for name, head in heads.items():
        reported = [words for tool, listed in head.get("names", {}).items() if tool not in ("source", "note") for words in listed]
        for words in (name, head["title"], *head.get("aliases", ()), *reported):
            chips.setdefault(_key(words), name)
        if head.get("usual"):
            (families if members[head["family"]] > 1 else chips).setdefault(_key(head["family"]), name)
    return chips, families


def _file(name: str) -> Path:
    return CHIPS / f"{name}{SUFFIX}"


@cache
def _heads() -> tuple[tuple[str, str], ...]:
    """Every chip's name, and the normalized head of its file for text search."""
    return tuple((name, _key(_head(name))) for name in names())


def _head(name: str) -> str:
    """The text before the first table of a chip's file, which has its names."""
    return _file(name).read_text("utf-8").partition("\n[")[0]


def _key(words: str) -> str:
    return words.lower().translate(_IGNORED)


def _suggest(words: str) -> str:
    """The chips with the most similar names."""
    chips, families = _index(names())
    key = _key(words)
    from difflib import SequenceMatcher  # only needed for a wrong name

    scores: dict[str, float] = {}
    for known, name in (*chips.items(), *families.items()):
        scores[name] = max(scores.get(name, 0.0), SequenceMatcher(None, key, known).ratio())
    best = max(scores.values())
    if best < _ALIKE:
        return "; list all with: roofline chips"
    close = sorted((name for name, score in scores.items() if score >= max(_ALIKE, best - _AS_GOOD)), key=lambda name: -scores[name])[:3]
    *others, last = [repr(name) for name in close]
    return f"; did you mean {', '.join(others) + ' or ' if others else ''}{last}?"
