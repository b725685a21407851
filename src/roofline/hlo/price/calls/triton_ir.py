"""The arithmetic of a Triton kernel, from its IR: that of one program, times the programs of the grid.

Counted: floating-point arithmetic, transcendentals, products (``tt.dot``) and reductions, for every element of their blocks, including
masked lanes. Integer arithmetic computes addresses and is not counted. An operation that is not in the tables, a branch, or a loop whose
bounds are not constants makes the whole kernel's arithmetic unknown.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from ....cost import NOTHING, Cost
from ....dtypes import dtype
from ....ops.elementwise import FUNCTIONS, MLIR
from ....resource import TRANSCENDENTAL, Resource, matrix, vector
from ...ir.malformed import Malformed
from ...read.mlir.bytecode import Cursor
from ...read.mlir.bytecode import read_bytecode as read_tables
from ...read.mlir.bytecode_entries import Entries
from ..mosaic.code import Block, Operation, Type, read_block
from .traffic import Misfit

_FLOATS = ("bf16", "f16", "f32", "f64")
_INTEGERS = ("i1", "i8", "i16", "i32", "i64", "index")
_COMPUTING = MLIR | {"tt.precise_sqrt": FUNCTIONS["sqrt"]}
_CONVERSIONS = "extf truncf extsi extui trunci sitofp uitofp fptosi fptoui index_cast index_castui bitcast"
_COMPARISONS = "constant negf maximumf minimumf maxnumf minnumf cmpf cmpi select"
_WHOLE_NUMBERS = (
    "addi subi muli divsi divui remsi remui andi ori xori shli shrsi shrui maxsi minsi maxui minui ceildivsi ceildivui floordivsi"
)
_ROUNDING = "absf absi floor ceil round roundeven trunc copysign"
_MOVES = (
    "func return get_program_id get_num_programs make_range splat unsplat addptr advance load store expand_dims broadcast trans reshape"
    " view cat join split bitcast fp_to_fp int_to_ptr ptr_to_int make_tensor_ptr assert gather reduce.return scan.return clampf"
)


def _names(dialect: str, names: str) -> frozenset[str]:
    return frozenset(f"{dialect}.{name}" for name in names.split())


_FREE = (
    _names("arith", f"{_CONVERSIONS} {_COMPARISONS} {_WHOLE_NUMBERS}") | _names("math", _ROUNDING) | _names("tt", _MOVES) | {"scf.yield"}
)
_LIBRARY = re.compile(r"__(?:nv_(?:fast_)?|ocml_)(\w+?)(?:f|_f32|_f64|_f16)?")  # the device libraries of CUDA and ROCm
_KNOWN = _COMPUTING.keys() | _FREE
# TF32, TF32x3, IEEE, BF16x3 and BF16x6 of tt.dot's input precision, for operands of fp32.
_PRECISIONS = {0: "tf32", 1: "tf32x3", 2: "fp32", 3: "bf16x3", 4: "bf16x6"}
_FOLDS: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": lambda a, b: a // b,
    "arith.divui": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.minsi": min,
    "arith.maxsi": max,
}
_CASTS = ("arith.index_cast", "arith.extsi", "arith.extui", "arith.trunci", "arith.index_castui")
_EFFECTS = ("tt.store", "tt.return", "scf.yield", "tt.reduce.return", "tt.scan.return", "tt.assert")
_OLDEST = 5  # of bytecode: before, properties were attributes


def _settings(entries: Entries, properties: bytes) -> Mapping[str, object]:
    """The integer ``constants`` among an operation's properties, in order, and its ``words``.

    ``options`` are the same bytes read as optional properties, whose encoding differs: twice the index of an attribute plus one.
    """
    cursor, numbers = Cursor(properties), list[int]()
    while not cursor.is_done:
        numbers.append(cursor.number())
    required = [_attribute(entries, number) for number in numbers]
    optional = [_attribute(entries, number >> 1) if number & 1 else None for number in numbers]
    return {
        "constants": [value if isinstance(value, int) else None for value in required],
        "options": [value if isinstance(value, int) else None for value in optional],
        "words": [value for value in required if isinstance(value, str) and value],
    }


def _attribute(entries: Entries, number: int) -> object:
    """A number or a string; ``None`` for other attributes, or if there is none."""
    table = entries.bytecode.attributes
    return entries.attribute(number) if number < len(table) and table[number].custom else None


def read_triton(code: bytes) -> tuple[Block, Mapping[int, Type]]:
    """The operations of a module, and the types of its values."""
    try:
        tables = read_tables(code)
        if tables.version < _OLDEST:
            raise Malformed(f"MLIR bytecode of version {tables.version}")
        block, types, _ = read_block(tables, _settings)
    except Malformed as error:
        raise Misfit(str(error)) from None
    return block, types


class _Program(Struct):
    """The state of a pass over a kernel: the types of its values, the integers known so far and the values that are used."""

    types: Mapping[int, Type]
    known: dict[int, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    masked: bool = False

    def mark(self, block: Block) -> None:
        """Marks the values that are used, last operation first: the compiler drops the others."""
        for operation in reversed(block.operations):
            inner = [block for region in operation.regions for block in region]
            if not inner and operation.name not in _EFFECTS and self.used.isdisjoint(operation.results):
                continue
            for nested in inner:
                self.mark(nested)
            self.used.update(operation.operands)

    def cost(self, block: Block) -> Cost:
        total = NOTHING
        for operation in block.operations:
            total += self._operation(operation)
        return total

    def _operation(self, operation: Operation) -> Cost:
        self._fold(operation)
        name = operation.name
        if operation.results and not operation.regions and self.used.isdisjoint(operation.results):
            return NOTHING
        if name in ("tt.load", "tt.store"):
            self.masked |= len(operation.operands) > (1 if name == "tt.load" else 2)
        if name == "scf.for":
            return self._trips(operation) * self._inside(operation)
        if name in ("tt.reduce", "tt.scan"):
            return self._combined(operation)
        if name == "tt.dot":
            return _product(operation, [self.type(value) for value in operation.operands[:3]])
        if name == "tt.extern_elementwise":
            words = operation.attributes.get("words")
            name = _library_function(map(str, words) if isinstance(words, list) else ())
        if (facts := _COMPUTING.get(name)) is not None:
            kind = self.only(operation.results)
            if kind.element not in _FLOATS:
                raise Misfit(f"{name} of {kind.element}")
            return kind.elements * Cost.of({vector(kind.element): facts.flops, TRANSCENDENTAL: facts.transcendentals})
        if name not in _FREE:
            raise Misfit(f"the kernel runs {name}, whose cost is unknown")
        return NOTHING

    def _fold(self, operation: Operation) -> None:
        """Evaluates an integer operation on known integers, to find the bounds of loops."""
        if len(operation.results) != 1 or self.type(operation.results[0]).shape:
            return
        (number,), constant = operation.results, _first(operation, "constants")
        inputs = [self.known[operand] for operand in operation.operands if operand in self.known]
        self.known.pop(number, None)
        if operation.name == "arith.constant" and self.type(number).element in _INTEGERS and constant is not None:
            self.known[number] = constant
        elif len(inputs) == len(operation.operands) == 2 and operation.name in _FOLDS and (inputs[1] or "div" not in operation.name):
            self.known[number] = _FOLDS[operation.name](*inputs)
        elif len(inputs) == len(operation.operands) == 1 and operation.name in _CASTS:
            self.known[number] = inputs[0]

    def _trips(self, operation: Operation) -> int:
        bounds = [self.known.get(number) for number in operation.operands[:3]]
        if len(bounds) < 3 or any(bound is None for bound in bounds):
            raise Misfit("the kernel has a loop without constant bounds")
        low, high, step = (bound or 0 for bound in bounds)
        if step < 1:
            raise Misfit("the kernel has a loop with step 0")
        return max(0, -(-(high - low) // step))

    def _inside(self, operation: Operation) -> Cost:
        return sum((self.cost(block) for region in operation.regions for block in region), NOTHING)

    def _combined(self, operation: Operation) -> Cost:
        """A reduction or scan: its region once for each element of a row but the first."""
        source = self.type(operation.operands[0]) if operation.operands else Type("?")
        if operation.name == "tt.reduce":
            rows = self.only(operation.results[:1]).elements
        else:
            axis = _first(operation, "constants")
            if axis is None or not 0 <= axis < len(source.shape):
                raise Misfit("a scan along no dimension of its operand")
            rows = source.elements // max(1, source.shape[axis])
        return max(0, source.elements - rows) * self._inside(operation)

    def type(self, value: int) -> Type:
        return self.types.get(value, Type("?"))

    def only(self, values: tuple[int, ...]) -> Type:
        if len(values) != 1:
            raise Misfit("an operation with several results, or none")
        return self.type(values[0])


def _first(operation: Operation, name: str) -> int | None:
    """The first of some settings, if it is a number."""
    settings = operation.attributes.get(name)
    return settings[0] if isinstance(settings, list) and settings and isinstance(settings[0], int) else None


def _library_function(words: Iterable[str]) -> str:
    """The operation of the math dialect that a function of the device library computes: ``__nv_expf`` is ``math.exp``."""
    names = [match[1] for word in words if (match := _LIBRARY.fullmatch(word))]
    if len(names) != 1:
        raise Misfit("the kernel calls a library function without a name")
    name = {"pow": "powf", "fabs": "absf"}.get(names[0], names[0])
    return next((f"math.{known}" for known in (name, f"{name}f") if f"math.{known}" in _KNOWN), f"the library's {names[0]}")


def _product(operation: Operation, kinds: Sequence[Type]) -> Cost:
    """2 · m · n · k, and the batch, on the matrix unit in the format of the operands."""
    if len(kinds) < 3:
        raise Misfit("a product without three operands")
    left, right, result = kinds
    if len(left.shape) < 2 or len(right.shape) < 2 or left.shape[-1] != right.shape[-2]:
        raise Misfit("a product of blocks with different inner dimensions")
    return Cost.of({_unit(operation, left.element, right.element): 2 * result.elements * left.shape[-1]})


def _unit(operation: Operation, left: str, right: str) -> Resource:
    if left == right == "f32":
        precision = _first(operation, "options")
        if precision is None or precision not in _PRECISIONS:
            raise Misfit("an fp32 product of unknown precision")
        return matrix(_PRECISIONS[precision])
    names = {_number(left), _number(right)}
    if len(names) > 1:
        raise Misfit(f"a product of {left} and {right}")
    return matrix(names.pop())


def _number(element: str) -> str:
    """The rate of an element type; MLIR spells 8-bit floats ``f8E4M3FN``."""
    return "int8" if element == "i8" else dtype(element).rate


def kernel_work(module: Block, types: Mapping[int, Type], programs: int) -> tuple[Cost, bool]:
    """The arithmetic of a kernel that runs as ``programs`` Triton programs, and whether some of its lanes are masked."""
    functions = [operation for top in module.operations for region in top.regions for block in region for operation in block.operations]
    kernels = [function for function in functions if function.name == "tt.func"]
    if len(kernels) != 1 or len(functions) != 1 or len(kernels[0].regions) != 1 or len(kernels[0].regions[0]) != 1:
        raise Misfit("a module of several functions, or one that branches")
    body = kernels[0].regions[0][0]
    program = _Program(types)
    program.mark(body)
    work = program.cost(body)
    if not work.amounts:
        raise Misfit("a kernel without floating-point arithmetic; integer arithmetic is not counted")
    return programs * work, program.masked
