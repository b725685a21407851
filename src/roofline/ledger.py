"""Ledgers: the cost of an operation written out, one row per tensor.

>>> row = Row("A", (8, 4), dtype("bf16"), "read")
>>> Ledger("demo", work=Cost.of({"matrix/bf16": 100}), rows=(row,)).cost["hbm"]
64
"""

from collections.abc import Iterable
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from .cost import NOTHING, Amount, Cost, tidy
from .dtypes import DType, dtype
from .errors import FormulaError
from .operation import Operation
from .resource import HBM, Resource

ACCESSES = ("read", "write", "send")
PARAMETERS = frozenset({"weights", "scale", "shift", "table"})  # the last word of the names of tensors that are trained


class Row(Struct, frozen=True):
    """One tensor crossing one memory level or link: ``passes`` times its size.

    ``access`` is read, write or send; ``passes`` may be a fraction, as for a collective that sends 2(n−1)/n of its payload. ``same_as`` is
    the name under which another row has the same tensor, as where a part of a composite reads the result of the part before it.
    """

    tensor: str
    shape: tuple[Amount, ...]
    dtype: DType
    access: str
    level: Resource = HBM
    passes: Amount = 1
    note: str = ""
    same_as: str = ""

    def __post_init__(self) -> None:
        if self.access not in ACCESSES:
            raise FormulaError(f"unknown tensor access {self.access!r}; use one of {', '.join(ACCESSES)}")

    @property
    def size(self) -> Amount:
        """Bytes of the tensor itself."""
        return self.dtype.bytes(prod(self.shape))

    @property
    def bytes(self) -> Amount:
        """Bytes that cross the level."""
        moved = self.size * self.passes
        return tidy(moved)

    @property
    def reads_parameter(self) -> bool:
        """Whether it reads a tensor that training updates."""
        return self.access == "read" and self.tensor.rpartition(".")[2] in PARAMETERS


def read(tensor: str, shape: Iterable[Amount], number: str | DType, *, level: Resource = HBM, passes: Amount = 1, note: str = "") -> Row:
    """A tensor read across a level."""
    return Row(tensor, tuple(shape), dtype(number), "read", level=level, passes=passes, note=note)


def write(tensor: str, shape: Iterable[Amount], number: str | DType, *, level: Resource = HBM, passes: Amount = 1, note: str = "") -> Row:
    """A tensor written across a level."""
    return Row(tensor, tuple(shape), dtype(number), "write", level=level, passes=passes, note=note)


def send(tensor: str, shape: Iterable[Amount], number: str | DType, *, level: Resource, passes: Amount = 1, note: str = "") -> Row:
    """A tensor sent over a link: bytes through its busiest one."""
    return Row(tensor, tuple(shape), dtype(number), "send", level=level, passes=passes, note=note)


class Ledger(Struct, frozen=True):
    """An operation priced: the arithmetic it does, the rows of tensors it moves, and the assumptions of both.

    Its cost is their sum. Ledgers add (two operations, one after the other) and scale (a loop). ``operation`` describes it by its sizes,
    for predictions; ``None`` for a sum of several.
    """

    name: str
    work: Cost = NOTHING
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    kernels: Amount = 1
    operation: Operation | None = None

    @property
    def traffic(self) -> Cost:
        """The rows, summed by level."""
        total: Cost = sum((Cost.of({row.level: row.bytes}) for row in self.rows), NOTHING)
        return total

    @property
    def cost(self) -> Cost:
        """Arithmetic and traffic together."""
        return self.work + self.traffic

    def footprint(self, level: Resource | str = HBM) -> Amount:
        """Bytes that the operation needs in one memory: each tensor once, however often it is read or written."""
        sizes: dict[str, Amount] = {}
        for row in self.rows:
            if str(row.level) == str(level):
                name = row.same_as or row.tensor
                sizes[name] = max(sizes.get(name, 0), row.size)
        return sum(sizes.values(), 0)

    def __add__(self, other: "Ledger") -> "Ledger":
        if not isinstance(other, Ledger):
            return NotImplemented
        notes = tuple(dict.fromkeys(self.notes + other.notes))
        return Ledger(f"{self.name} + {other.name}", self.work + other.work, self.rows + other.rows, notes, self.kernels + other.kernels)

    def __mul__(self, times: Amount) -> "Ledger":
        if not isinstance(times, Amount):
            return NotImplemented
        rows = tuple(replace(row, passes=row.passes * times) for row in self.rows)
        return Ledger(self.name, self.work * times, rows, self.notes, self.kernels * times)

    __rmul__ = __mul__

    def named(self, name: str, *notes: str) -> "Ledger":
        """The same ledger under another name, with additional notes."""
        return replace(self, name=name, notes=tuple(dict.fromkeys(self.notes + notes)))
