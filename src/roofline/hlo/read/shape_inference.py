"""Shape inference by XLA's rules, for instructions whose text does not give the shape: from operands and attributes."""

from collections.abc import Mapping, Sequence

from ..ir.axes import READERS, UNFIT
from ..ir.malformed import Malformed, excerpt
from ..ir.module import Instruction
from ..ir.opcodes import OPCODES
from ..ir.shapes import Shape, tuple_of

Called = Mapping[str, Shape]  # the result of a called computation, by its role

# The result has the shape of the first operand, which may be a tuple.
_LIKE_FIRST = (
    *("add-dependency", "all-reduce-done", "batch-norm-inference", "domain", "opt-barrier"),
    *("ragged-all-to-all", "set-dimension-size", "while"),
)
_SCALARS = {"after-all": "token", "send-done": "token", "get-dimension-size": "s32", "partition-id": "u32", "replica-id": "u32"}
_RESULTS = {"call": "to_apply", "fusion": "calls", "conditional": "branch_computations"}  # the called computation that gives the result
_PARTS = {"c64": "f32", "c128": "f64"}  # complex numbers -> their real and imaginary parts
_COMPLEX = {part: number for number, part in _PARTS.items()}
_OF_SECOND = ("clamp", "select", "triangular-solve")  # opcodes whose result is like their second operand
_UNKNOWN = ("bitcast-convert", "convert", "stochastic-convert")  # opcodes whose number format is in the shape alone


def infer_shape(instruction: Instruction, operands: Sequence[Shape], called: Called) -> Shape:
    """The shape of an instruction, whatever shape it has; raises `Malformed` if it cannot be inferred."""
    try:
        shape = _of_tuples(instruction, operands, called) or _of_arrays(instruction, operands, called)
    except (*UNFIT, AttributeError, TypeError):
        shape = None
    if shape is None:
        raise Malformed(f"the shape of {excerpt(instruction.opcode)} cannot be inferred from its operands; write it before the opcode")
    return shape


def _of_tuples(instruction: Instruction, operands: Sequence[Shape], called: Called) -> Shape | None:
    """The shape that is that of an operand, of parts of a tuple or of what is called; ``None`` for opcodes that change axes or numbers."""
    opcode = instruction.opcode
    if opcode in _SCALARS:
        return Shape(_SCALARS[opcode])
    if opcode in _RESULTS:
        return called[_RESULTS[opcode]]
    if opcode == "tuple":
        return tuple_of(tuple(operands))
    first = operands[0]
    if opcode in _LIKE_FIRST:
        return first
    if opcode == "all-reduce":
        return _joined(operands)
    if opcode == "get-tuple-element":
        return first.parts[instruction.integer("index") or 0]
    if opcode in ("batch-norm-training", "batch-norm-grad"):
        return tuple_of((first, operands[1], operands[1]))
    if opcode == "copy-start":
        return tuple_of((first, first, Shape("u32")))
    if opcode == "copy-done":
        return first.parts[0]
    if opcode == "recv-done":
        return tuple_of((first.parts[0], Shape("token")))
    return first.parts[1] if opcode in ("all-gather-done", "collective-permute-done", "async-done") else None


def _of_arrays(instruction: Instruction, operands: Sequence[Shape], called: Called) -> Shape | None:
    """The shapes whose axes follow from those of the operands."""
    opcode = instruction.opcode
    if opcode in _UNKNOWN or opcode not in OPCODES & READERS.keys() or any(shape.is_tuple for shape in operands):
        return None
    mapping = READERS[opcode](instruction, [shape.dims for shape in operands], ())
    results = []
    for place, axes in enumerate(mapping.results):
        source = 1 if opcode in _OF_SECOND else place
        like, number = operands[source], _number(instruction, operands[source].dtype, called, place)
        dims = mapping.dims(axes)
        if (like.dtype, like.dims) == (number, dims) and mapping.axis_of(source) == [*range(len(dims))]:
            results.append(like)
        elif min(dims, default=0) < 0:
            return None
        else:
            results.append(Shape(number, dims))
    return _joined(results)


def _number(instruction: Instruction, number: str, called: Called, place: int) -> str:
    """The number format of a result whose operand has the format ``number``."""
    opcode = instruction.opcode
    if opcode in ("map", "reduce"):
        body = called["to_apply"]
        return (body.parts or (body,))[place].dtype
    if opcode in ("compare", "is-finite"):
        return "pred"
    kind = instruction.word("fft_type") if opcode == "fft" else ""
    if opcode == "complex" or kind == "RFFT":
        return _COMPLEX[number]
    return _PARTS.get(number, number) if opcode in ("abs", "imag", "real") or kind == "IRFFT" else number


def _joined(shapes: Sequence[Shape]) -> Shape | None:
    """One array, or a tuple of several."""
    if not shapes:
        return None
    return shapes[0] if len(shapes) == 1 else tuple_of(tuple(shapes))
