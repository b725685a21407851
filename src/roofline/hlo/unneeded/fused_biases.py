"""Biases that XLA fuses into products on GPUs: in fp32 only.

In several hundred profiles from an H200 (JAX 0.11) XLA had fused a bias into 38 products of fp32 numbers, and into none of bf16 numbers: 26
times another kernel added it, which reads and writes the whole result. A function of that result, such as tanh, is then computed in the
kernels that read it, again in each: in bf16 products that read such a result took 69% to 96% of their time in fp32.
"""

from ...cost import NOTHING, Cost
from ...resource import HBM
from ..price.elementwise import TRANSCENDENTALS
from .kernels import Convolution, Kernels, Product
from .values import RENAMED, Value, Values

_BF16_BYTES = 2


class FusedBiases:
    """The products of a computation that add a bias in their own kernel; ``functions`` are those that also compute functions of the sum."""

    def __init__(self, kernels: Kernels) -> None:
        self._values = kernels.values
        self._kernels = kernels
        products = kernels.products.items() if kernels.platform == "gpu" else ()
        self._added = {index: cost for index, found in products if (cost := bias_kernel(kernels.values, found)) != NOTHING}
        self.functions = {index for index in self._added if TRANSCENDENTALS & kernels.values.opcodes(kernels.computation[index])}

    def kernel_in_bf16(self, index: int) -> Cost:
        """The cost of the kernel that would add the bias of a product in bf16; nothing without a bias."""
        return self._added.get(index, NOTHING)

    def would_compute_functions(self, index: int, found: Product | Convolution) -> bool:
        """Whether a product without a function of its own would compute, in bf16, that of a product whose result it reads."""
        if not self.functions or index in self.functions:
            return False
        makers = [self._kernels.holding(self._values.origin(side)) for side in (found.left, found.right)]
        return any(maker in self.functions for maker in makers)


def bias_kernel(values: Values, found: Product) -> Cost:
    """The cost of a kernel that adds a product's bias to its result in bf16; nothing if the product's own kernel adds none."""
    return Cost.of({HBM: 2 * _BF16_BYTES * found.made.shape.elements}) if _adds_bias(values, found.made) else NOTHING


def _adds_bias(values: Values, made: Value) -> bool:
    """Whether a product's own kernel adds an array of lower rank to its result."""
    waiting = [made] if made.inside else []
    while waiting:
        value = waiting.pop()
        for place in values.users(value.computation, value.index):
            use = Value(value.computation, place, value.inside)
            if use.opcode in RENAMED:
                waiting.append(use)
            elif use.opcode == "add" and any(_is_repeated_array(values, one) for one in values.operands(use)):
                return True
    return False


def _is_repeated_array(values: Values, value: Value) -> bool:
    return value.opcode == "broadcast" and 0 < values.operand(value, 0).shape.rank < value.shape.rank
