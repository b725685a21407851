"""Kernel names and the order of launches: matching the launches of one recording with those of another.

Tools spell one kernel in many ways. CUPTI writes ``void at::native::reduce_kernel<512, 1, …>(at::native::ReduceOp<…>)``, Nsight Compute
``void native::reduce_kernel<512, 1, …>(T3)``, a compiler numbers its fusions anew each time. `spellings` returns a name in spellings from
exact to loose, and `align` aligns two sequences of launches.

    >>> spellings("void at::native::fill<4, c10::BFloat16>(int, float)")
    ('void at::native::fill<4, c10::BFloat16>(int, float)', 'fill<4,BFloat16>', 'fill', 'fill')
    >>> named("_ZN2at6native4fillILi4EEEvif"), named("loop_add_fusion_12")
    ('fill', 'loop_add_fusion_12')
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from math import inf

Grid = tuple[int, ...] | None

# Costs of deviating from the profile's order: skipping launches, or going back (a loop, the next step). The next launch in order costs
# nothing, so long runs in order win over scattered matches.
SKIP, BACK = 2, 3

_ANONYMOUS = r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous class\))(?:::)?"
_NAMESPACES = r"(?:\b\w+::)+"
_CAST = r"\((?:\w|\s)+\)(?=-?\d)"  # (int)8, (bool)1 in template arguments
_INTEGER = r"(?i)(?<=\d)(?:ull|ul|u|l)\b"
_NUMBERED = r"(?:[._](?:clone|\d+|kd))+\Z"
_LITERALS = {"true": "1", "false": "0"}
_PIECE = re.compile(r"(\d+)")


def named(name: str) -> str:
    """The function's own name: no return type, namespaces, template arguments or parameters."""
    return spellings(name)[2]


def spellings(name: str) -> tuple[str, str, str, str]:
    """A kernel's name from exact to loose: as it is; without namespaces and parameters; without template arguments; without number."""
    bare = _demangled(name) if name.startswith("_Z") else name.strip()
    bare = _without_parameters(re.sub(_CAST, "", re.sub(_ANONYMOUS, "", bare)))
    bare = re.sub(_NAMESPACES, "", bare).removeprefix("void ")
    plain = re.sub(_INTEGER, "", re.sub(r"\b(?:true|false)\b", lambda word: _LITERALS[word[0]], bare)).replace(" ", "")
    base = plain.partition("<")[0] or plain
    return name, plain, base, re.sub(_NUMBERED, "", base) or base


def _without_parameters(name: str) -> str:
    """The name up to its parameter list: the first parenthesis outside of template arguments."""
    depth = 0
    for place, letter in enumerate(name):
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif letter == "(" and depth <= 0 and place:
            return name[:place]
    return name


def _demangled(name: str) -> str:
    """The last plain identifier of an Itanium-mangled name, which is the function's: ``_ZN2at4fillILi4EEEvv`` is ``fill``."""
    at, found = (3 if name.startswith("_ZN") else 2), ""
    while match := _PIECE.match(name, at):
        at = match.end() + int(match[0][:4])
        found = name[match.end() : at]
    return found or name


def align(launches: Sequence[tuple[str, Grid]], uses: Sequence[tuple[str, Grid]]) -> list[int | None]:
    """For each launch the index of its kernel in ``uses``, or ``None``: the assignment that follows their order best.

    ``uses`` are the kernels of a program in order, each once; launches may run through them several times, begin or end anywhere, and
    miss some. Candidates are the uses with the closest spelling, of the same grid if there are such. The cheapest path through the
    candidates wins: the next use in order costs 0, a later one `SKIP`, an earlier or the same one `BACK`.
    """
    candidates = _candidates(launches, uses)
    # Only uses that match some launch are part of the path: memsets and uncounted kernels do not break the order.
    steps = {place: rank for rank, place in enumerate(sorted({place for some in candidates for place in some}))}
    path: list[tuple[list[int], list[int]]] = []  # for each launch with candidates: the candidates, and the predecessor of each
    ranks: list[int] = []
    costs: list[float] = []
    for some in candidates:
        if not some:
            continue
        now = [steps[place] for place in some]
        costs, origins = _advance(ranks, costs, now) if path else ([0.0] * len(now), [0] * len(now))
        path.append((some, origins))
        ranks = now
    chosen = _walk_back(path, costs)
    found = iter(chosen)
    return [next(found) if some else None for some in candidates]


def _advance(before: list[int], costs: list[float], now: list[int]) -> tuple[list[float], list[int]]:
    """The cheapest cost of each candidate in ``now`` (sorted), and the index of its predecessor in ``before`` (sorted)."""
    cheapest_until: list[tuple[float, int]] = []
    best = (inf, 0)
    for place, cost in enumerate(costs):
        best = min(best, (cost, place))
        cheapest_until.append(best)
    cheapest_from = cheapest_until[:]
    best = (inf, 0)
    for place in range(len(costs) - 1, -1, -1):
        best = min(best, (costs[place], place))
        cheapest_from[place] = best
    reached, origins = [], []
    for step in now:
        place = bisect_left(before, step)
        ways = []
        if place:
            cost, origin = cheapest_until[place - 1]
            ways.append((cost + SKIP, origin))
            if before[place - 1] == step - 1:
                ways.append((costs[place - 1], place - 1))
        if place < len(before):
            cost, origin = cheapest_from[place]
            ways.append((cost + BACK, origin))
        cost, origin = min(ways)
        reached.append(cost)
        origins.append(origin)
    return reached, origins


def _walk_back(path: list[tuple[list[int], list[int]]], costs: list[float]) -> list[int]:
    """The indices along the cheapest path, first launch first."""
    if not path:
        return []
    at = min(range(len(costs)), key=costs.__getitem__)
    chosen = []
    for places, origins in reversed(path):
        chosen.append(places[at])
        at = origins[at]
    return chosen[::-1]


def _candidates(launches: Sequence[tuple[str, Grid]], uses: Sequence[tuple[str, Grid]]) -> list[list[int]]:
    """For each launch the indices of the uses that match it, in order."""
    spelled: list[dict[str, list[int]]] = [{}, {}, {}, {}]
    for place, (name, _) in enumerate(uses):
        for table, spelling in zip(spelled, spellings(name), strict=True):
            table.setdefault(spelling, []).append(place)
    known: dict[tuple[str, Grid], list[int]] = {}
    for name, grid in launches:
        if (name, grid) not in known:
            alike = next((found for table, word in zip(spelled, spellings(name), strict=True) if (found := table.get(word))), [])
            known[name, grid] = [place for place in alike if uses[place][1] == grid] or alike if grid else alike
    return [known[launch] for launch in launches]
