"""Parts of composite formulas: ledgers whose tensors carry the name of the part they belong to."""

from msgspec.structs import replace

from ..ledger import Ledger, Row

# The last word of the names of tensors that are trained.
PARAMETERS = frozenset({"weights", "scale", "shift", "table"})


def part(name: str, ledger: Ledger) -> Ledger:
    """A ledger as part of a larger one: its tensors become ``name.tensor``."""
    rows = tuple(replace(row, tensor=f"{name}.{row.tensor}") for row in ledger.rows)
    return replace(ledger, name=name, rows=rows)


def is_parameter(row: Row) -> bool:
    """Whether a row reads a tensor that training updates."""
    return row.access == "read" and row.tensor.rpartition(".")[2] in PARAMETERS
