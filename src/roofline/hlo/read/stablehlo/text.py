"""StableHLO text, as ``jax.jit(f).lower(x).as_text()`` prints it, converted to the same `HloModule` as a compiler's output."""

import re
from collections.abc import Callable

from ....errors import SourceError
from ....files.input_limits import excess, limits
from ...ir.malformed import Malformed, placed
from ...ir.module import HloModule
from ..mlir.locations import Locations
from ..mlir.operations import Operation, OperationReader
from .builder import Builder, Source
from .operations import FUNCTIONS, entries_of, modules_in


def parse_stablehlos(text: str, where: str) -> tuple[HloModule, ...]:
    """The programs that StableHLO text describes: of each module, ``main`` and the functions that nothing in it calls.

    A `SourceError` names the line of what is wrong.
    """
    reader = OperationReader(text)
    source = Source(where, "line", [match.start() for match in re.finditer("\n", text)])
    try:
        operations = reader.operations()
        if reader.skip():
            raise reader.fail("the end of the module")
    except Malformed as error:
        raise placed(error, where, "line", source.number(reader.at)) from None
    except RecursionError:
        raise SourceError(f"{where}: nested too deeply") from None
    return programs(operations, source, lambda: Locations(text))


def programs(operations: list[Operation], source: Source, locations: Callable[[], Locations]) -> tuple[HloModule, ...]:
    """The programs that operations describe: of each module, ``main`` and the functions that nothing in it calls."""
    builder: Builder | None = None
    try:
        modules: list[HloModule] = []
        count = 0
        for name, given, inside in modules_in(operations):
            entries = entries_of(inside)
            if not entries and not any(operation.name in FUNCTIONS for operation in inside):
                raise Malformed(f"no function; is the {'text' if source.unit == 'line' else 'file'} cut off, or not StableHLO?")
            for entry in entries:
                builder = Builder(source, locations())
                modules.append(builder.module(name if len(entries) == 1 else entry, given, inside, entry))
                count += sum(len(computation) for computation in modules[-1])
                if count > limits().instructions:
                    raise Malformed(excess("instructions"))
        return tuple(modules)
    except Malformed as error:
        last = operations[-1].place if operations else 0
        raise placed(error, source.where, source.unit, source.number(builder.at if builder else last)) from None
    except RecursionError:
        raise SourceError(f"{source.where}: nested too deeply") from None
