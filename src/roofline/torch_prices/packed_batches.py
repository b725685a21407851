"""Packed batches: sequences one after another in one tensor, with their cumulative lengths in another, which recordings do not hold.

What a recording says of them: how many there are, how many queries and keys they have together, and the longest of each. A longer
sequence needs no less attention per token, so that equal lengths need the least.
"""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

Group = tuple[int, int, int]  # how many sequences, and the queries and keys of each


class PackedBatch(Struct, frozen=True, kw_only=True):
    """The number of sequences, all their queries and keys, and the longest of each; 0 where that is not recorded."""

    sequences: int
    queries: int
    keys: int
    longest_queries: int = 0
    longest_keys: int = 0

    def equal(self) -> Iterator[Group]:
        """Sequences of equal lengths, as nearly as whole numbers allow."""
        (queries, more_queries), (keys, more_keys) = divmod(self.queries, self.sequences), divmod(self.keys, self.sequences)
        for begin, end in pairwise(sorted({0, more_queries, more_keys, self.sequences})):
            yield end - begin, queries + (begin < more_queries), keys + (begin < more_keys)

    def unequal(self) -> Iterator[Group]:
        """As many of the longest sequences as there can be, and one with the rest."""
        count, rest = divmod(self.queries, self.longest_queries)
        yield count, self.longest_queries, self.longest_queries
        yield 1, rest, rest

    @property
    def is_equal(self) -> tuple[bool, bool]:
        """Whether all sequences have the same number of queries, and of keys."""
        return self.queries == self.sequences * self.longest_queries, self.keys == self.sequences * self.longest_keys

    @property
    def attends_itself(self) -> bool:
        """Whether queries and keys appear to be of the same tokens."""
        return (self.queries, self.longest_queries) == (self.keys, self.longest_keys)
