"""Tables of a machine file, read key by key; every error names the file, table and key, what is wrong and what to do."""

import re
from collections.abc import Mapping

from msgspec import Struct

from ..errors import MachineError, RooflineError, UnitError
from ..machine import PROVENANCES
from ..units import parse
from .citations import resolve


class Table(Struct, frozen=True):
    """One TOML table with its ``file`` and its ``path`` inside the file, such as ``compute[0]``."""

    file: str
    path: str
    data: Mapping[str, object]

    def error(self, key: str, message: str) -> MachineError:
        place = f"{self.path}.{key}" if self.path and key else self.path or key
        return MachineError(f"{self.file}: {place}: {message}" if place else f"{self.file}: {message}")

    def only(self, *known: str) -> None:
        """Raise an error for unknown keys."""
        for key in self.data:
            if key not in known:
                from difflib import get_close_matches  # only needed for a wrong name

                close = get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
                raise self.error(key, f"unknown key; {hint}")

    def text(self, key: str, default: str = "") -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"{value!r} is not text; write it in quotes")
        return value

    def need(self, key: str, example: str) -> str:
        """A text that must be there."""
        if not self.text(key):
            raise self.error(key, f"missing; write it like {key} = {example!r}")
        return self.text(key)

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(key, default)
        if value not in (*choices, default):
            raise self.error(key, f"{value!r} is not one of {', '.join(choices)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, f"{value!r} is not a list of strings; write it like {key} = ['…']")
        return tuple(value)

    def citations(self, key: str = "source") -> tuple[str, ...]:
        """The sources under a key, as written."""
        value = self.data.get(key)
        return (value,) if isinstance(value, str) else self.texts(key)

    def citation(self, key: str = "source") -> str:
        """The sources under a key, as readable text."""
        return "; ".join(map(resolve, self.citations(key)))

    def provenance(self, key: str = "provenance") -> str:
        return self.choice(key, tuple(PROVENANCES), "user")

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"{value!r} is neither true nor false")
        return value

    def whole(self, key: str) -> int | None:
        """A count, from 1 on."""
        value = self.data.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.error(key, f"{value!r} is not a count; write a whole number of 1 or more, without quotes")
        return value

    def fraction(self, key: str) -> float | None:
        """A share in (0, 1]."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise self.error(key, f"{value!r} is not a fraction in (0, 1]; write it like {key} = 0.8")
        return float(value)

    def quantity(self, key: str, dimension: str) -> float | None:
        """A quantity in base units. A number without a unit is an error, because its prefix would be unclear."""
        value = self.data.get(key)
        if value is None:
            return None
        try:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                parse(f"{value} {dimension}", dimension)  # a negative or invalid number is reported first
                raise UnitError(f"{value!r} has no unit; write it like '{value} {dimension}'")
            number = parse(value, dimension)  # type: ignore[arg-type]
            if isinstance(value, str) and re.fullmatch(r"[\s\d.,_eE+-]*", value):
                raise UnitError(f"{value!r} has no unit; write it like '{value} {dimension}'")
        except UnitError as error:
            raise self.error(key, str(error)) from None
        return number

    def plain(self, key: str) -> str | int | float:
        """A text or a number, as written."""
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.error(key, f"{value!r} is neither text nor a number")
        return value

    def table(self, key: str) -> "Table | None":
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, f"{value!r} is not a table; write it under [{key}]")
        return Table(self.file, f"{self.path}.{key}" if self.path else key, value)

    def tables(self, key: str) -> "tuple[Table, ...]":
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"not a list of tables; write each under its own [[{key}]]")
        prefix = f"{self.path}.{key}" if self.path else key
        return tuple(Table(self.file, f"{prefix}[{index}]", item) for index, item in enumerate(value))

    def wrap(self, error: RooflineError, key: str = "") -> MachineError:
        """An error of another module, prefixed with the location in this file."""
        return self.error(key, str(error))
