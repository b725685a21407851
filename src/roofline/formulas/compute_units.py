"""Compute units: on which unit of the hardware, and in which number format, the work of a formula runs."""

from ..cost import Cost, tidy
from ..dtypes import DType, dtype, wider
from ..resource import TRANSCENDENTAL, Resource, matrix, vector
from .notation import Dim, Format, Level

DEFAULT = "bf16"
VECTOR = "fp32"
# Levels with separate ports, and so separate rates, for reads and writes.
PORTED = ("vmem", "cmem")


def number(*names: Format) -> DType:
    """The first format that is not None, or bf16."""
    return dtype(next((name for name in names if name is not None), DEFAULT))


def arithmetic(compute: Format, *operands: DType) -> DType:
    """The requested format, or the wider of the operands' formats."""
    return number(compute) if compute else wider(*operands)


def matrix_work(flops: Dim, compute: DType) -> Cost:
    """FLOP on the matrix unit."""
    return Cost.of({matrix(compute): tidy(flops)})


def vector_work(flops: Dim, transcendentals: Dim, compute: Format, *operands: DType) -> Cost:
    """FLOP and transcendentals on the vector unit, which widens everything to fp32, or to fp64 for fp64 operands."""
    widest = next((one for one in operands if one.rate == "fp64"), dtype(VECTOR))
    return Cost.of({vector(compute or widest): tidy(flops), TRANSCENDENTAL: tidy(transcendentals)})


def port(level: Level, access: str) -> Resource:
    """The resource that an access to a memory level uses.

    >>> str(port("hbm", "read")), str(port("vmem", "write"))
    ('hbm', 'vmem.write')
    """
    return Resource(f"{level}.{access}" if level in PORTED else level)
