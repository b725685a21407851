"""Parts of composite formulas: ledgers whose tensors carry the name of the part they belong to."""

from collections.abc import Mapping

from msgspec.structs import replace

from ..errors import FormulaError
from ..ledger import Ledger


def part(name: str, ledger: Ledger) -> Ledger:
    """A ledger as part of a larger one: its tensors become ``name.tensor``."""
    rows = tuple(replace(row, tensor=f"{name}.{row.tensor}", same_as=f"{name}.{row.same_as}" if row.same_as else "") for row in ledger.rows)
    return replace(ledger, name=name, rows=rows)


def same_tensors(ledger: Ledger, names: Mapping[str, str]) -> Ledger:
    """A composite in which some tensors are those of earlier parts: ``names`` maps the name in a part to the earlier one."""
    unknown = {*names, *names.values()} - {row.tensor for row in ledger.rows}
    if unknown:
        raise FormulaError(f"{ledger.name} has no tensor {', '.join(sorted(unknown))}")
    return replace(ledger, rows=tuple(replace(row, same_as=names.get(row.tensor, row.same_as)) for row in ledger.rows))
