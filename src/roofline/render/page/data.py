"""What the page embeds beside reports: the catalogue, so that it can put the same work under another chip's roof."""

from collections.abc import Iterable

from ...report import CeilingInfo, MachineInfo

LONGEST_CITATION = 48  # letters: the page says where a figure comes from, the catalogue says it in full


def catalogue_json(machines: Iterable[MachineInfo]) -> bytes:
    """The machines as compact JSON: names, launch latency, and every ceiling with its provenance and the first of its sources.

    The objects have the shape of a report's ``machine``, so that the page reads both with one function.
    """
    import msgspec

    return msgspec.json.encode([_machine(one) for one in machines])


def _machine(one: MachineInfo) -> dict[str, object]:
    return {
        "name": one.name,
        "title": one.title,
        "launch_latency_s": one.launch_latency_s,
        "ceilings": [_ceiling(each) for each in one.ceilings],
    }


def _ceiling(one: CeilingInfo) -> dict[str, object]:
    return {"resource": one.resource, "rate": one.rate, "provenance": one.provenance, "citation": _short(one.citation)}


def _short(citation: str) -> str:
    """The name of the first source, without the place in it."""
    first = citation.split(";")[0].split(",")[0].strip()
    return first if len(first) <= LONGEST_CITATION else f"{first[: LONGEST_CITATION - 1].rstrip()}…"
