"""What a compiler or a library multiplies in on a platform, and what it does in the same kernel.

>>> backend = Backend(formats={"fp32": "tf32"})
>>> backend.unit("fp32").name, backend.unit("bf16").name
('matrix/tf32', 'matrix/bf16')
"""

from collections.abc import Mapping

from msgspec import Struct

from ..resource import Resource, matrix
from .operators import Operator

# Formats of products that take longer than those of 16 bits. A format such as bf16x3 takes several passes.
WIDE = frozenset(("fp64", "fp32", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16x9"))


class Backend(Struct, frozen=True):
    """``formats`` are those that operands of other formats are multiplied in, unless a program asks for more precision. Products in a
    format that is ``wide`` could take less time in another.

    Operators ``in_tf32`` multiply fp32 numbers in tf32 unless a program asks for more, where others do only for programs that ask for it.

    Of ``biased`` formats a product adds a bias in its own kernel, of others a kernel after it does: empty, if that is not known.
    """

    formats: Mapping[str, str] = {}
    wide: frozenset[str] = WIDE
    biased: frozenset[str] = frozenset()
    in_tf32: frozenset[Operator] = frozenset()

    def unit(self, rate: str) -> Resource:
        """The unit that multiplies operands of this rate, unless a program asks for another."""
        return matrix(self.formats.get(rate, rate))

    def fuses_less_in(self, number: str) -> bool:
        """Whether it adds biases in the kernels of products in some formats, but not in this one."""
        return bool(self.biased) and number not in self.biased


# It multiplies matrices in tf32 only for programs that ask for it, and convolves in tf32 unless a program asks for more.
GPU_BY_REQUEST = Backend(wide=WIDE - {"tf32"}, in_tf32=frozenset((Operator.CONVOLUTION, Operator.CONVOLUTION_GRADIENT)))
CPU = Backend(wide=frozenset(("fp64",)))  # it multiplies fp32 as fast as bf16
