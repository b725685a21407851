"""Labels: short descriptions of instructions that the program's author recognises.

``layer0/mlp  dot 8192×2048×8192 bf16``: where it was written (scope, else source line, else program), what it does, its sizes and number
format. The compiler's own name (``custom-call.21``) is shown next to it.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from ...dtypes import dtype, wider
from ...operation import Label
from ...workload import source_line
from ..ir.module import Instruction
from ..ir.shapes import NUMBERS, Shape
from ..price.fused_collectives import exchange_alone, started
from ..price.program import Origin
from .kernels import Product

_NUMBERED = re.compile(r"[._]\d+")
# Prefixes of XLA's names of fusions, and of those that roofline's own model of a compiler makes.
_FUSED = re.compile(r"^(loop|input|output|custom|wrapped|gemm|triton|fused|row|product|update|reduce(?=_reduce))_|_?fusion$")
_FUNCTION = re.compile(r"jit\(_?(\w+)\)")
_PLAIN = {
    "dot_general": "dot",
    "ragged_dot_general": "ragged dot",
    "conv_general_dilated": "convolution",
    "convert_element_type": "convert",
    "add_any": "add",
    "reduce_sum": "sum",
    "reduce_max": "max",
    "broadcast_in_dim": "broadcast",
    "dynamic_update_slice": "update",
    "transpose": "transpose",
}
_PRODUCTS = ("dot_general", "ragged_dot_general", "conv_general_dilated")  # a framework's products
_MULTIPLYING = ("dot", "ragged-dot", "convolution", "custom-call")  # opcodes that may be one of them
_IDLE = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element")  # opcodes that do nothing
_EXCHANGES = frozenset(
    ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast", "ragged-all-to-all")
)
_OPERATIONS = frozenset(("fft", "cholesky", "svd", "eigh", "qr", "sort"))  # functions that are called like the one op that they are for
_QUIET = ("pjit", "jit", "lambda", "main")


class Wording(Struct, frozen=True):
    """The part of a label that equal kernels share: the word for the operation, unless the framework has one, and the sizes."""

    main: str
    sizes: str
    format: str = ""
    split: int = 0
    is_product: bool = False


def wording(instruction: Instruction, product: Product | None, split: bool, parts: Iterable[Instruction]) -> Wording:
    """The words for an instruction; ``parts`` are the instructions of its fused body, ``split`` says that its batch is one split depth."""
    if begun := started(parts):
        instruction = begun
    shape = instruction.shape
    if not shape.is_array:
        shape = next((leaf for leaf in shape.leaves if leaf.is_array), shape)
    if product is None:
        main = _main(instruction, parts)
        return Wording(main, _array(shape.dims), _format(shape.dtype)) if shape.is_array else Wording(main, "")
    number = _multiplied_in(product, shape)
    if split:
        whole = f"{product.rows}×{product.batch * product.depth}×{product.columns}"
        return Wording("dot", whole, number, product.batch, is_product=True)
    return Wording("dot", str(product), number, is_product=True)


def _multiplied_in(product: Product, result: Shape) -> str:
    """The wider format of a product's operands: one-hot rows are of one byte."""
    shapes = [side.shape for side in (product.left, product.right) if side.shape.is_array]
    return wider(*(shape.number for shape in shapes)).name if shapes else _format(result.dtype)


def label(instruction: Instruction, words: Wording, parts: Iterable[Instruction], origin: Origin, program: str) -> Label:
    """The label of an instruction: where it comes from, what it does, and its sizes."""
    where = origin.scope or source_line(origin.location) or program.removeprefix("jit_")
    parts = tuple(parts)
    exchange = exchange_alone(parts) or (started(parts) or instruction).opcode.removesuffix("-start").removesuffix("-done")
    if exchange in _EXCHANGES:  # the framework's name is that of the op that needs it, or the names of several for a combined one
        does = exchange
    elif words.is_product:
        does = _product_word(origin.op_name, words.main)
    elif origin.op_name.endswith(_PRODUCTS) and not any(part.opcode in _MULTIPLYING for part in (instruction, *parts)):
        does = words.main  # a cast or a transpose made for a product
    else:
        does = _word(origin.op_name, words.main)
    return Label(where, does, words.sizes, words.format, words.split)


def _product_word(name: str, otherwise: str) -> str:
    """The framework's word for a product."""
    primitive = name.rpartition("/")[2]
    return _PLAIN.get(primitive, otherwise) if "dot" in primitive or "conv" in primitive else otherwise


@lru_cache(maxsize=10_000)  # a program repeats its names for each layer of a loop, and its kernels in them
def _word(name: str, otherwise: str) -> str:
    """The framework's word: the innermost jitted function (softmax), else the primitive."""
    primitive = name.rpartition("/")[2]
    if name.count("jit(") > 1:  # the first is the program
        functions: list[str] = [word for word in _FUNCTION.findall(name)[1:] if word not in _QUIET]
        if functions and functions[-1] in _OPERATIONS and primitive not in _OPERATIONS:
            return f"{functions[-1]} {_PLAIN.get(primitive, primitive.replace('_', ' '))}"  # what is done to its operand or result
        if functions:
            return functions[-1]
    if not name or "/" not in name:
        return otherwise
    return _PLAIN.get(primitive, primitive.replace("_", " ")) or otherwise


def _main(instruction: Instruction, parts: Iterable[Instruction]) -> str:
    """The word for an instruction without a framework's name: its opcode; for a fusion the compiler's name or else its largest part."""
    if instruction.opcode == "custom-call":
        return instruction.custom_call_target.strip("_").replace("$", " ")
    if instruction.opcode != "fusion":
        return instruction.opcode
    if word := _fused_word(_NUMBERED.sub("", instruction.name)):
        return word
    busy = [part for part in parts if part.opcode not in _IDLE]
    return max(busy, key=lambda part: part.shape.elements).opcode if busy else "copy"


@lru_cache(maxsize=1_000)  # a program repeats its kernels for each layer
def _fused_word(name: str) -> str:
    """The compiler's name of a fusion, without prefixes and numbers."""
    return _FUSED.sub("", _FUSED.sub("", name)).replace("_", " ").strip()


@lru_cache(maxsize=1_000)  # a program has few sizes
def _array(dims: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _format(name: str) -> str:
    return NUMBERS[name].name if name in NUMBERS else dtype(name).name
