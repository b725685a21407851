"""Which operators or kernels one kernel could replace: those that pass arrays to each other, unless something else has to run in between.

>>> grouped({0: (), 1: (0,), 2: (1,), 3: (1, 2)}, lambda makers, users: 2 not in (*makers, *users))
[[0, 1], [2], [3]]
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from ..units import parse

MOST = 64  # that one kernel replaces, as many as Inductor fuses (torch._inductor.config.max_fusion_size)
SMALL = parse("1 MB", "B")  # a choice: what moves less neither breaks a chain nor makes one worth it
ROW = 200 << 10  # bytes of the longest fp32 row that fits into the on-chip memory of one core: 227 KiB on H100, less what is in flight


def grouped(makers: Mapping[int, Collection[int]], are_alike: Callable[[Sequence[int], Sequence[int]], bool]) -> list[list[int]]:
    """Groups of nodes, each of which joins those of its producers, the latest first, if these ``are_alike`` and nothing runs in between.

    ``makers`` has the producers of each node, in the order in which they run.
    """
    groups = _Groups(makers)
    for node in makers:
        for maker in sorted(makers[node], reverse=True):
            first, second = groups.of.get(maker), groups.of[node]
            if first is None or first == second or len(groups.members[first]) + len(groups.members[second]) > MOST:
                continue
            if are_alike(groups.members[first], groups.members[second]) and not groups.are_apart(first, second):
                groups.join(first, second)
    return list(groups.members.values())


class _Groups:
    """The group of each node, by a number, and its members in order."""

    def __init__(self, makers: Mapping[int, Collection[int]]) -> None:
        self.of = {node: node for node in makers}
        self.members = {node: [node] for node in makers}
        self._users: dict[int, list[int]] = {}
        for node, producers in makers.items():
            for maker in producers:
                self._users.setdefault(maker, []).append(node)

    def join(self, first: int, second: int) -> None:
        self.members[first] = sorted(self.members[first] + self.members.pop(second))
        self.of |= dict.fromkeys(self.members[first], first)

    def are_apart(self, first: int, second: int) -> bool:
        """Whether another group depends on the first, and the second on it."""
        end, seen = self.members[second][-1], {first}
        waiting = [user for node in self.members[first] for user in self._users.get(node, ()) if self.of[user] != second]
        while waiting:
            group = self.of[waiting.pop()]
            if group == second:
                return True
            if group in seen or self.members[group][0] > end:
                continue
            seen.add(group)
            waiting += [user for node in self.members[group] for user in self._users.get(node, ())]
        return False
