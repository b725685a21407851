"""Billing: which unit of hardware, in which number format, the work of a formula goes to."""

from ..cost import Cost
from ..dtypes import DType, dtype
from ..resource import TRANSCENDENTAL, Resource, matrix, vector
from .notation import Dim, Format, Level, tidy

DEFAULT = "bf16"
VECTOR = "fp32"
# Levels whose reads and writes have ports, and rates, of their own.
PORTED = ("vmem", "cmem")


def number(*names: Format) -> DType:
    """The first format that is named, or bf16."""
    return dtype(next((name for name in names if name is not None), DEFAULT))


def wider(*formats: DType) -> DType:
    """The format a product of these is computed in: the one with the most bits, a float before an integer, then the first.

    >>> wider(dtype("bf16"), dtype("int8")).name, wider(dtype("int8"), dtype("fp8")).name
    ('bf16', 'fp8')
    """
    return max(formats, key=lambda one: (one.bits, "int" not in one.rate))


def arithmetic(compute: Format, *operands: DType) -> DType:
    """The format that is asked for, or the wider of the operands'."""
    return number(compute) if compute else wider(*operands)


def matrix_work(flops: Dim, compute: DType) -> Cost:
    """FLOP on the matrix unit."""
    return Cost.of({matrix(compute): tidy(flops)})


def vector_work(flops: Dim, transcendentals: Dim, compute: Format, *operands: DType) -> Cost:
    """FLOP and transcendentals on the vector unit, which widens everything to fp32, or to fp64 for fp64 operands."""
    widest = next((one for one in operands if one.rate == "fp64"), dtype(VECTOR))
    return Cost.of({vector(compute or widest): tidy(flops), TRANSCENDENTAL: tidy(transcendentals)})


def port(level: Level, access: str) -> Resource:
    """The resource that an access to a level is billed to.

    >>> str(port("hbm", "read")), str(port("vmem", "write"))
    ('hbm', 'vmem.write')
    """
    return Resource(f"{level}.{access}" if level in PORTED else level)
