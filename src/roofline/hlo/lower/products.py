"""Products in compiled programs: dots, and the library calls that are one."""

from collections.abc import Mapping
from functools import lru_cache
from math import prod

from ...errors import SourceError
from ..ir.attributes import DotDimensions
from ..ir.module import Instruction
from ..price.calls.products import dimensions, precision_of
from ..price.calls.settings import section, word, words
from ..read.backend_config import parse_config

LIBRARY = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__cublas$lt$matmul$mx")
DOTS = ("dot", "ragged-dot", "scaled-dot")


@lru_cache(maxsize=256)  # a program repeats its products for each layer
def product_sizes(dims: DotDimensions, ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Batch, rows, depth and columns of a product; ``None`` if its dimension numbers do not match its operands."""
    named = [(axis, ours) for axis in (*dims.lhs_contracting, *dims.lhs_batch)]
    named += [(axis, theirs) for axis in (*dims.rhs_contracting, *dims.rhs_batch)]
    if any(axis >= len(sizes) for axis, sizes in named):
        return None
    return (
        prod(ours[axis] for axis in dims.lhs_batch),
        prod(size for axis, size in enumerate(ours) if axis not in (*dims.lhs_contracting, *dims.lhs_batch)),
        prod(ours[axis] for axis in dims.lhs_contracting),
        prod(size for axis, size in enumerate(theirs) if axis not in (*dims.rhs_contracting, *dims.rhs_batch)),
    )


def product_dimensions(instruction: Instruction) -> DotDimensions | None:
    """The dimension numbers of a product, as a dot or as a library call; ``None`` for other instructions."""
    if instruction.opcode in DOTS:
        return instruction.dot
    if instruction.opcode != "custom-call" or instruction.custom_call_target not in LIBRARY:
        return None
    try:
        return _library_dimensions(instruction.backend_config_text)
    except SourceError:
        return None


def product_precision(instruction: Instruction) -> str:
    """The precision that a product requests: ``highest``, ``high`` or ``default``."""
    requested = instruction.operand_precision
    if not requested and instruction.opcode == "custom-call":
        try:
            requested = words(precision_of(_settings(instruction.backend_config_text)), "operand_precision")
        except SourceError:
            requested = ()
    return next((precision for precision in ("highest", "high") if precision in [word.lower() for word in requested]), "default")


def is_linear(instruction: Instruction) -> bool:
    """Whether a product is linear in its operands: a library call may apply an activation to its result."""
    if instruction.opcode != "custom-call":
        return True
    try:
        parts = _epilogue(instruction.backend_config_text).split("_")
    except SourceError:
        return False
    return not {"RELU", "GELU", "SILU"} & {*parts}


@lru_cache(maxsize=256)  # a program repeats its products for each layer
def _library_dimensions(text: str) -> DotDimensions:
    return dimensions(section(_settings(text), "dot_dimension_numbers"))


@lru_cache(maxsize=256)
def _epilogue(text: str) -> str:
    return word(_settings(text), "epilogue", "DEFAULT")


def _settings(text: str) -> Mapping[str, object]:
    config: Mapping[str, object] = parse_config(text)
    return section(config, "gemm_backend_config") if "gemm_backend_config" in config else config
