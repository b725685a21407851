"""StableHLO operations before they become instructions: which functions are programs, what each calls, and what regions capture."""

from itertools import chain

from ..mlir.elements import Elements, parse_elements
from ..mlir.operations import Operation, Region
from ..mlir.scanning import symbol
from .conversion import opcode_of

FUNCTIONS = ("func.func", "func")
_MODULES = ("module", "builtin.module")


def modules_in(operations: list[Operation]) -> list[tuple[str, dict[str, object], list[Operation]]]:
    """The name, attributes and operations of each module; functions outside all modules are one without a name."""
    modules: list[tuple[str, dict[str, object], list[Operation]]] = []
    for operation in operations:
        if operation.name in _MODULES:
            inside = list(chain.from_iterable([region.operations for region in operation.regions]))
            deeper = modules_in(inside) if any(inner.name in _MODULES for inner in inside) else []
            if not deeper:
                modules.append((str(operation.attributes.get("sym_name", "")), operation.attributes, inside))
            modules += deeper
    if not modules or any(operation.name in FUNCTIONS for operation in operations):
        modules.insert(0, ("", {}, operations))
    return modules


def entries_of(operations: list[Operation]) -> list[str]:
    """The entry functions of a module: ``main``, and public ones that no other calls; if none is public, all that no other calls."""
    functions = {
        str(operation.attributes["sym_name"]): operation for operation in operations if operation.name in FUNCTIONS and operation.regions
    }
    if "main" in functions and len(functions) == 1:
        return ["main"]
    called = set(chain.from_iterable([_all_callees(operation) - {function} for function, operation in functions.items()]))
    public = [
        function
        for function, operation in functions.items()
        if "private" not in (*operation.words, operation.attributes.get("sym_visibility"))
    ]
    entries = [function for function in public or functions if function not in called] or list(public or functions)[:1]
    return list(dict.fromkeys((["main"] if "main" in functions else []) + entries))


def _all_callees(operation: Operation) -> set[str]:
    """Every function that is named in the regions of an operation."""
    names: set[str] = set()
    for region in operation.regions:
        for inner in region.operations:
            names.update(callees(inner, opcode_of(inner.name)), _all_callees(inner))
    return names


def mesh_text(operation: Operation) -> str:
    """``mesh = #sdy.mesh<["x"=2]>``, from the pretty or the generic form."""
    given = operation.attributes
    text = str(given.get("mesh", given.get("<", "")))
    name = given.get("sym_name") or next((symbol(word) for word in operation.words if word.startswith("@")), "mesh")
    return f"{name} = {text if text.startswith('#') else '#sdy.mesh' + text}"


def result_shardings(function: Operation) -> list[str]:
    """The shardings of a function's results, empty where there is none."""
    listed = function.attributes.get("res_attrs")
    rows = listed if isinstance(listed, list) else []
    return [
        str(attributes.get("mhlo.sharding", attributes.get("sdy.sharding", ""))) if isinstance(attributes, dict) else ""
        for attributes in rows
    ]


def carried_values(operation: Operation) -> list[str]:
    """The values that the pretty form of a loop or region names as carried."""
    return [word for word in operation.words if word.startswith("%")]


def callees(operation: Operation, opcode: str) -> list[str]:
    """The functions that an operation calls itself."""
    if opcode == "custom-call":
        listed = operation.attributes.get("called_computations", [])
        return [symbol(str(name)) for name in listed] if isinstance(listed, list) else []
    for name in ("decomposition", "callee"):
        if name in operation.attributes:
            return [symbol(str(operation.attributes[name]))]
    return [symbol(word) for word in operation.words if word.startswith("@")][:1]


def captured_values(region: Region) -> list[str]:
    """The values a region uses and does not define, in the order of use."""
    defined = {name for name, _, _ in region.arguments}
    captured: dict[str, None] = {}
    for operation in region.operations:
        carried = carried_values(operation)
        inside = chain.from_iterable([captured_values(inner) for inner in operation.regions])
        for name in [*operation.operands, *[name for name in inside if name not in carried]]:
            if name not in defined:
                captured[name] = None
        defined.update(operation.results)
        defined.update(name.partition("#")[0] for name in operation.results)
    return list(captured)


def constant_value(operation: Operation) -> Elements | None:
    """The elements of ``stablehlo.constant``, which the pretty form writes without a name; ``None`` for those in a resource."""
    inside = operation.attributes.get("<")
    if not isinstance(inside, str) or "dense" not in operation.words or not operation.result_types:
        return None
    return parse_elements(inside[1:-1], operation.result_types[-1])
