"""Builds a program from StableHLO operations, in HLO's form: several results are a tuple and its elements, loops carry one tuple, regions
are computations, values that a region captures become operands, and constants that it captures are copied into it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain

from msgspec import Struct, field

from ...ir.amending import MappedDialect
from ...ir.attributes import Alias
from ...ir.consistency import consistent
from ...ir.malformed import Malformed, excerpt
from ...ir.module import Call, Computation, HloModule, Instruction
from ...ir.shapes import Shape, tuple_of
from ..mlir.locations import Locations
from ..mlir.operations import Operation, Region
from .conversion import attributes_of, opcode_of
from .operations import (
    FUNCTIONS,
    callees,
    captured_values,
    carried_values,
    constant_value,
    mesh_text,
    result_shardings,
)

MAX_DEPTH = 100  # of nested regions and calls
_RETURNS = ("return", "func.return", "stablehlo.return", "mhlo.return", "sdy.return")


class Source(Struct, frozen=True):
    """The source of operations: text, where a place is a character position, or bytecode, where it is an operation's number."""

    where: str
    unit: str
    newlines: list[int] = field(default_factory=list)

    def number(self, place: int) -> int:
        """The line of a place in text; in bytecode the place itself."""
        return bisect_left(self.newlines, place) + 1 if self.unit == "line" else place


class _Draft(Struct):
    """A computation while it is being built; ``values`` maps SSA names to instructions."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    parameters: list[int] = field(default_factory=list)


class Builder:
    """Builds computations from a tree of operations; ``at`` is the current operation."""

    def __init__(self, source: Source, locations: Locations) -> None:
        self.at = 0
        self.depth = 0
        self.source = source
        self.dialect = MappedDialect(source.where, source.unit)
        self.locations = locations
        self.names: dict[str, int] = {}  # how often each was used for an instruction
        self.regions: dict[str, int] = {}  # how often each was used for a computation
        self.functions: dict[str, Operation] = {}
        self.declared: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.computations: list[Computation] = []
        self.open: list[str] = []

    def module(self, name: str, given: dict[str, object], operations: list[Operation], entry: str) -> HloModule:
        """The program that begins with one function of a module."""
        for operation in operations:
            if operation.name in FUNCTIONS:
                self.at = operation.place
                if operation.attributes["sym_name"] in self.functions:
                    raise Malformed(f"a second function named {operation.attributes['sym_name']}")
                if operation.regions:
                    self.functions[str(operation.attributes["sym_name"])] = operation
                else:
                    self.declared.add(str(operation.attributes["sym_name"]))
        meshes = [mesh_text(operation) for operation in operations if operation.name == "sdy.mesh"]
        number = self.function(entry, is_entry=True)
        computations = consistent(self.computations)
        computation = computations[number]
        return HloModule(
            name=name or entry,
            computations=computations,
            entry=number,
            replica_count=_count(given, "num_replicas"),
            num_partitions=_count(given, "num_partitions"),
            aliases=self.aliases(self.functions[entry], computation),
            frontend_attributes={"xla.sdy.meshes": f"{{{', '.join(meshes)}}}"} if meshes else {},
            frames=self.locations.frames(),
        )

    def aliases(self, function: Operation, computation: Computation) -> tuple[Alias, ...]:
        """Donated arguments: ``tf.aliasing_output = 1 : i32`` names the result that reuses the memory.

        For ``jax.buffer_donor = true`` the compiler chooses: the first result of the same shape that has no alias yet.
        """
        marks = [given for _, _, given in function.regions[0].arguments]
        outputs = {number: output for number, given in enumerate(marks) if isinstance(output := given.get("tf.aliasing_output"), int)}
        result = computation.root_instruction.shape
        results = result.parts if result.is_tuple else (result,)
        for number, given in enumerate(marks):
            if given.get("jax.buffer_donor") is True and number not in outputs:
                shape = computation[computation.parameters[number]].shape
                free = [
                    place for place, shape_of_result in enumerate(results) if shape_of_result == shape and place not in outputs.values()
                ]
                if free:
                    outputs[number] = free[0]
        return tuple(Alias((output,), number) for number, output in sorted(outputs.items()))

    def function(self, name: str, *, is_entry: bool = False) -> int:
        """The computation of a function, built when first called."""
        if name in self.numbers:
            return self.numbers[name]
        if name not in self.functions:
            raise Malformed(f"no function is named {excerpt(name)}")
        if name in self.open:
            raise Malformed(f"the function {excerpt(name)} calls itself")
        self.open.append(name)
        region = self.functions[name].regions[0]
        draft = _Draft(name)
        for argument, kind, given in region.arguments:
            self.parameter(draft, argument, kind.shape, given)
        marks = result_shardings(self.functions[name]) if is_entry else []
        self.numbers[name] = self.close(draft, self.body(draft, region, marks))
        self.open.pop()
        return self.numbers[name]

    def parameter(self, draft: _Draft, name: str, shape: Shape, given: dict[str, object]) -> int:
        raw: dict[str, object] = {"parameter_number": len(draft.parameters)}
        sharding = given.get("mhlo.sharding", given.get("sdy.sharding"))
        if sharding is not None:
            raw["sharding"] = str(sharding)
        metadata = self.locations.metadata(str(given["loc"])) if "loc" in given else None
        if metadata is not None:
            raw["metadata"] = metadata
        index = self.emit(draft, name.lstrip("%"), "parameter", shape, (), raw)
        draft.parameters.append(index)
        if name:
            self.define(draft, name, index)
        return index

    def define(self, draft: _Draft, name: str, index: int) -> None:
        if name in draft.values:
            raise Malformed(f"a second value named {excerpt(name)}")
        draft.values[name] = index

    def emit(
        self,
        draft: _Draft,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[int, ...],
        raw: dict[str, object],
        calls: tuple[Call, ...] = (),
    ) -> int:
        """Appends an instruction under a name that the module does not have yet."""
        uses = self.names.get(name, 0)
        self.names[name] = uses + 1
        unique = f"{name}.{uses}" if uses else name
        while uses and unique in self.names:
            uses += 1
            unique = f"{name}.{uses}"
        self.names[name] = uses + 1  # lower numbers are taken: the next search begins here
        self.names.setdefault(unique, 1)
        place = self.source.number(self.at)
        draft.instructions.append(Instruction(unique, opcode, shape, operands, calls, (), place, raw, self.dialect))
        return len(draft.instructions) - 1

    def close(self, draft: _Draft, root: int) -> int:
        self.computations.append(
            Computation(name=draft.name, instructions=tuple(draft.instructions), root=root, parameters=tuple(draft.parameters))
        )
        return len(self.computations) - 1

    def body(self, draft: _Draft, region: Region, marks: Sequence[str] = ()) -> int:
        """Builds a region's operations; returns the index of its result. ``marks`` are the shardings of its results."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Malformed(f"regions and calls nested deeper than {MAX_DEPTH}")
        returned: list[str] = []
        for operation in region.operations:
            self.at = operation.place
            if operation.name in _RETURNS:
                returned = operation.operands
                break
            self.operation(draft, operation)
        self.depth -= 1
        return self.pack(draft, self.marked(draft, [self.value(draft, name) for name in returned], marks))

    def marked(self, draft: _Draft, values: list[int], marks: Sequence[str]) -> list[int]:
        """Values with the shardings that a function declares for its results, as sharding annotations."""
        for place, text in enumerate(marks[: len(values)]):
            if text:
                raw: dict[str, object] = {"custom_call_target": "Sharding", "sharding": text}
                values[place] = self.emit(draft, "result", "custom-call", draft.instructions[values[place]].shape, (values[place],), raw)
        return values

    def pack(self, draft: _Draft, values: list[int], even_one: bool = False) -> int:
        """One value from several."""
        if len(values) == 1 and not even_one:
            return values[0]
        shape = tuple_of(tuple(draft.instructions[value].shape for value in values))
        return self.emit(draft, "tuple", "tuple", shape, tuple(values), {})

    def value(self, draft: _Draft, name: str) -> int:
        index = draft.values.get(name)
        if index is None:
            index = draft.values.get(f"{name}#0")
        if index is None:
            raise Malformed(f"the value {excerpt(name)} is not defined here")
        return index

    def operation(self, draft: _Draft, operation: Operation) -> None:
        """Builds one operation."""
        opcode = opcode_of(operation.name)
        shapes = [kind.shape for kind in operation.result_types] if operation.results else []
        if len(shapes) < len(operation.results):
            raise Malformed(f"{operation.name} has {len(operation.results)} results and {len(shapes)} types")
        if opcode == "constant" and "value" not in operation.attributes:
            operation.attributes["value"] = constant_value(operation)
            shapes = [operation.result_types[-1].shape] if operation.result_types else shapes
        operands = [self.value(draft, name) for name in operation.operands]
        raw = attributes_of(operation, opcode, [draft.instructions[index].shape for index in operands], shapes)
        metadata = self.locations.metadata(operation.location) if operation.location else None
        if metadata is not None:
            raw["metadata"] = metadata
        name = _name(operation, opcode)
        if opcode == "call" and self.declared.intersection(callees(operation, opcode)):
            # A function that is only declared: another library defines it.
            raw["custom_call_target"] = callees(operation, opcode)[0]
            opcode = "custom-call"
        if opcode == "while":
            index = self.loop(draft, operation, operands, raw, name)
        elif opcode == "conditional":
            index = self.conditional(draft, operation, operands, shapes, raw, name)
        else:
            calls, extra = self.calls(draft, operation, opcode)
            if opcode == "opt-barrier" and len(operands) > 1:
                operands = [self.pack(draft, operands)]
            shape = shapes[0] if len(shapes) == 1 else tuple_of(tuple(shapes))
            index = self.emit(draft, name, opcode, shape, (*operands, *extra), raw, calls)
        if len(operation.results) == 1 and draft.instructions[index].shape == shapes[0]:
            self.define(draft, operation.results[0], index)
        else:
            self.elements(draft, operation.results, index, raw)

    def elements(self, draft: _Draft, results: list[str], index: int, raw: dict[str, object]) -> None:
        """Names the elements of a tuple."""
        parts = draft.instructions[index].shape.parts
        if len(results) > len(parts):
            raise Malformed(f"{draft.instructions[index].opcode} has {len(parts)} results, but {len(results)} are named")
        for number, name in enumerate(results):
            given: dict[str, object] = {"index": number, **({"metadata": raw["metadata"]} if "metadata" in raw else {})}
            part = self.emit(draft, f"{draft.instructions[index].name}.{number}", "get-tuple-element", parts[number], (index,), given)
            self.define(draft, name, part)

    def captures(self, draft: _Draft, regions: list[Region]) -> tuple[list[str], list[str]]:
        """The values that regions capture: those to pass as operands, and constants to copy."""
        outer = list(dict.fromkeys(chain.from_iterable([captured_values(region) for region in regions])))
        values = {name: draft.instructions[self.value(draft, name)] for name in outer}
        constants = [name for name in outer if values[name].opcode == "constant"]
        return [name for name in outer if name not in constants], constants

    def copy_constants(self, draft: _Draft, into: _Draft, names: list[str]) -> None:
        for name in names:
            source = draft.instructions[self.value(draft, name)]
            assert isinstance(source.raw, dict)
            self.define(into, name, self.emit(into, source.name, "constant", source.shape, (), source.raw))

    def region(self, draft: _Draft, region: Region, name: str) -> tuple[int, list[int]]:
        """A computation with a parameter for each argument of a region, then for each value it captures."""
        inner = _Draft(self.fresh(name))
        captured, constants = self.captures(draft, [region])
        for argument, kind, given in region.arguments:
            self.parameter(inner, argument, kind.shape, given)
        extra = [self.value(draft, value) for value in captured]
        for outer, index in zip(captured, extra, strict=True):
            self.parameter(inner, outer, draft.instructions[index].shape, {})
        self.copy_constants(draft, inner, constants)
        return self.close(inner, self.body(inner, region)), extra

    def fresh(self, name: str) -> str:
        """A name that no computation has."""
        number = self.regions.get(name, 0)
        while f"{name}.{number}" in self.functions:
            number += 1
        self.regions[name] = number + 1
        return f"{name}.{number}"

    def calls(self, draft: _Draft, operation: Operation, opcode: str) -> tuple[tuple[Call, ...], list[int]]:
        """The computations an operation calls, and the additional operands that they need."""
        at = self.at
        calls: list[Call] = []
        extra: list[int] = []
        if opcode in ("call", "custom-call"):
            role = "to_apply" if opcode == "call" else "called_computations"
            for name in callees(operation, opcode):
                if opcode == "call" or name in self.functions:
                    calls.append(Call(role, self.function(name)))
        for position, region in enumerate(operation.regions):
            role = ("select", "scatter")[min(position, 1)] if opcode == "select-and-scatter" else "to_apply"
            number, taken = self.region(draft, region, f"region_{opcode}")
            calls.append(Call(role, number))
            # Only a call gets additional operands for captured values; elsewhere they are not passed.
            extra += taken if opcode == "call" else []
        self.at = at
        if opcode == "reduce" and not operation.regions:
            calls.append(Call("to_apply", self.reducer(operation)))
        return tuple(calls), extra

    def reducer(self, operation: Operation) -> int:
        """The computation of ``applies stablehlo.add``."""
        name = next((word for word in operation.words if "." in word), "")
        if not name or not operation.result_types:
            raise Malformed("a reduce without a reducer")
        opcode = opcode_of(name)
        scalar = Shape(operation.result_types[0].shape.dtype)
        draft = _Draft(self.fresh(f"region_{opcode}"))
        left, right = (self.parameter(draft, f"%{opcode}.{side}", scalar, {}) for side in ("lhs", "rhs"))
        return self.close(draft, self.emit(draft, opcode, opcode, scalar, (left, right), {}))

    def loop(self, draft: _Draft, operation: Operation, operands: list[int], raw: dict[str, object], name: str) -> int:
        """A while over one tuple: the carried values, then the values that its regions capture."""
        if len(operation.regions) != 2:
            raise Malformed("a while without a condition and a body")
        for region in operation.regions:
            if not region.arguments:
                # The pretty form names the carried values once, for both regions.
                region.arguments = [(word, kind, {}) for word, kind in zip(carried_values(operation), operation.types, strict=False)]
            if len(region.arguments) != len(operands):
                raise Malformed(f"a while that carries {len(operands)} values into a region of {len(region.arguments)}")
        captured, constants = self.captures(draft, operation.regions)
        carried = self.pack(draft, operands + [self.value(draft, value) for value in captured], even_one=True)
        shape = draft.instructions[carried].shape
        numbers = []
        at = self.at
        for region, role in zip(operation.regions, ("condition", "body"), strict=True):
            inner = _Draft(self.fresh(f"{role}.{name}"))
            parameter = self.parameter(inner, "", shape, {})
            for position, taken in enumerate([argument for argument, _, _ in region.arguments] + captured):
                part = self.emit(inner, taken.lstrip("%"), "get-tuple-element", shape.parts[position], (parameter,), {"index": position})
                self.define(inner, taken, part)
            self.copy_constants(draft, inner, constants)
            numbers.append(self.close(inner, self.loop_body(inner, region, len(operands), captured, role)))
        self.at = at
        calls = (Call("condition", numbers[0]), Call("body", numbers[1]))
        return self.emit(draft, name, "while", shape, (carried,), raw, calls)

    def loop_body(self, inner: _Draft, region: Region, count: int, captured: list[str], role: str) -> int:
        root = self.body(inner, region)
        if role == "condition":
            return root
        returned = next((operation.operands for operation in region.operations if operation.name in _RETURNS), [])
        if len(returned) != count:
            raise Malformed(f"a loop's body returns {len(returned)} values where {count} are carried")
        if count > 1:
            inner.instructions.pop()  # the tuple without the captured values
        return self.pack(inner, [self.value(inner, value) for value in [*returned, *captured]], even_one=True)

    def conditional(
        self, draft: _Draft, operation: Operation, operands: list[int], shapes: list[Shape], raw: dict[str, object], name: str
    ) -> int:
        """A conditional whose branches each have one operand: the values that they capture."""
        if not operation.regions:
            raise Malformed("a conditional without branches")
        taken, calls = list(operands[:1]), []
        at = self.at
        for region in operation.regions:
            inner = _Draft(self.fresh(f"branch.{name}"))
            captured, constants = self.captures(draft, [region])
            taken.append(self.pack(draft, [self.value(draft, value) for value in captured]))
            shape = draft.instructions[taken[-1]].shape
            parameter = self.parameter(inner, captured[0] if len(captured) == 1 else "", shape, {})
            for position, outer in enumerate(captured if len(captured) > 1 else ()):
                part = self.emit(inner, outer.lstrip("%"), "get-tuple-element", shape.parts[position], (parameter,), {"index": position})
                self.define(inner, outer, part)
            self.copy_constants(draft, inner, constants)
            calls.append(Call("branch_computations", self.close(inner, self.body(inner, region))))
        self.at = at
        shape = shapes[0] if len(shapes) == 1 else tuple_of(tuple(shapes))
        return self.emit(draft, name, "conditional", shape, tuple(taken), raw, tuple(calls))


def _count(given: dict[str, object], name: str) -> int:
    value = given.get(f"mhlo.{name}", 1)
    return value if isinstance(value, int) else 1


def _name(operation: Operation, opcode: str) -> str:
    """The name of an instruction: ``%12 = stablehlo.dot_general`` is ``dot.12``, ``%cst_3`` keeps its name."""
    if not operation.results:
        return opcode
    name = operation.results[0].lstrip("%").partition("#")[0]
    return f"{opcode}.{name}" if name.isdecimal() else name
