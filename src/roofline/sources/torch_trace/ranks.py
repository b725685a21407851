"""Waiting in collectives: the rank that arrives last waits least, so what other ranks take longer than the fastest one is waiting."""

from collections.abc import Sequence

from msgspec.structs import replace

from ...units import percent, show
from ..parts import PICOSECOND, Part, Subject, Tally

INCLUDED = "times of collectives include waiting for other ranks"


def waiting_included(world: int | None) -> str:
    """The note on collectives in the trace of one rank."""
    others = f" of all {world} ranks" if world else " of all ranks"
    return f"{INCLUDED}; read the traces{others} together to separate it"


def with_waiting(parts: Sequence[Part]) -> list[Part]:
    """The parts of a run; if it has several ranks, with a note on how much of their collectives is waiting."""
    if len(parts) < 2:
        return list(parts)
    tallies: dict[Subject, list[Tally]] = {}
    for part in parts:
        for device in part.devices:
            for subject, tally in device.rows.items():
                if "collective" in subject.category and tally.executions:
                    tallies.setdefault(subject, []).append(tally)
    total = sum(tally.time_ps for of_rank in tallies.values() for tally in of_rank)
    waiting = sum(_waited(of_rank) for of_rank in tallies.values() if len(of_rank) > 1)
    without_note = [replace(part, notes=tuple(note for note in part.notes if not note.startswith(INCLUDED))) for part in parts]
    if not total:
        return without_note
    note = (
        f"collectives take {show(total * PICOSECOND, 's')} on all ranks together, of which {show(waiting * PICOSECOND, 's')} "
        f"({percent(waiting / total)}) is waiting: longer than on the rank that took least"
    )
    return [replace(without_note[0], notes=(*without_note[0].notes, note)), *without_note[1:]]


def _waited(tallies: Sequence[Tally]) -> int:
    shortest = min(tally.time_ps // tally.executions for tally in tallies)
    return sum(max(0, tally.time_ps - shortest * tally.executions) for tally in tallies)
