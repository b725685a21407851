"""The kernels of a computation, and the products among them: dots, fusions around one, and library calls."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from math import prod

from msgspec import Struct

from ...cost import NOTHING, Cost
from ...errors import FormulaError, SourceError
from ...graph.operators import Sizes
from ..ir.attributes import DotDimensions
from ..ir.module import Computation, Instruction
from ..ir.values import RENAMED, Value, Values
from ..lower.products import DOTS, product_dimensions, product_sizes
from ..price.contractions import convolution_sizes
from ..price.pricing import FREE, Pricer
from ..price.types import Site

_RUN = ("while", "conditional", "call")  # their work is that of instructions in other computations
_MAY_MULTIPLY = frozenset((*DOTS, "custom-call"))


class Product(Struct, frozen=True, kw_only=True):
    """A product of matrices: ``batch`` of them, rows times depth by depth times columns.

    With ``groups`` it is a ragged product: its rows, or its depth, are that many groups, each multiplied by its own matrix.
    """

    left: Value
    right: Value
    result: Value
    dims: DotDimensions
    batch: int
    rows: int
    depth: int
    columns: int
    groups: int = 0

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.depth * self.columns

    def __str__(self) -> str:
        whole = Sizes(self.batch, self.rows, self.depth, self.columns)
        return f"{whole} in {self.groups:,} groups" if self.groups else str(whole)


class Kernels:
    """The kernels of one computation: the cost of one execution of each, and its product.

    For the shortened entry of a program of equal layers, ``times`` is the number of layers that a kernel of the middle layer represents.
    """

    def __init__(self, pricer: Pricer, values: Values, number: int, times: Mapping[int, int] | None = None) -> None:
        self.times = times or {}
        self.pricer, self.values, self.number = pricer, values, number
        self.module, self.platform = pricer.module, pricer.platform
        self.computation = self.module.computations[number]
        self.costs = dict(self._priced())
        self._places = {id(instruction): index for index, instruction in enumerate(self.computation.instructions)}
        self._products: dict[int, Product | None] = {}
        self._inside: dict[str, tuple[int, ...]] = {}  # fused body -> instructions that may be products
        self._splits: dict[int, bool] = {}

    def product(self, index: int) -> Product | None:
        """The product that a kernel computes; the largest if there are several, and none if a convolution in it computes more."""
        if index not in self._products:
            self._products[index] = self._product(index)
        return self._products[index]

    def _product(self, index: int) -> Product | None:
        instruction = self.computation.instructions[index]
        body = self.values.body(instruction)
        if body is None:
            return product(self.values, Value(self.computation, index)) if instruction.opcode in _MAY_MULTIPLY else None
        places = self._inside.get(body.name)
        if places is None:
            places = tuple([place for place, member in enumerate(body.instructions) if member.opcode in _MAY_MULTIPLY])
            self._inside[body.name] = places
        inside = ((self.computation, instruction),)
        products = [inner for place in places if (inner := product(self.values, Value(body, place, inside)))]
        largest = max(products, key=lambda inner: inner.flops, default=None)
        return largest if largest is None or self._convolved(body) <= largest.flops else None

    def _convolved(self, body: Computation) -> int:
        """The FLOP of the largest convolution in a body that is no product."""
        flops = [0]
        for instruction in body.instructions:
            if instruction.opcode == "convolution":
                with suppress(FormulaError, IndexError, ValueError):
                    flops.append(2 * prod(convolution_sizes(Site(self.module, body, instruction, self.platform))))
        return max(flops)

    def is_split(self, index: int) -> bool:
        """Whether a kernel computes a product whose depth was split: the batch of its result is summed right after."""
        if index not in self._splits:
            product = self.product(index)
            self._splits[index] = product is not None and product.batch > 1 and self._is_summed(index, product.batch)
        return self._splits[index]

    def _is_summed(self, index: int, parts: int) -> bool:
        users = self.values.users(self.computation, index)
        reductions = (self.values.reductions(self.computation, user) for user in users)
        summed = (any(self._sums(reduction, index, parts) for reduction in inside) for inside in reductions)
        return bool(users) and all(summed)

    def _sums(self, reduction: Value, index: int, parts: int) -> bool:
        """Whether a reduction sums a kernel's result over the parts, which are its first dimension."""
        if reduction.instruction.dimensions[:1] != (0,):
            return False
        summed = self.values.operand(reduction, 0)
        while summed.opcode in RENAMED and summed.shape.dims[:1] == (parts,):
            summed = self.values.operand(summed, 0)
        return self.holding(self.values.made_by(summed)) == index

    @cached_property
    def products(self) -> dict[int, Product]:
        """The kernels that cost something and compute a product."""
        return {index: of_kernel for index in self.costs if (of_kernel := self.product(index)) is not None}

    @cached_property
    def convolutions(self) -> frozenset[int]:
        """The kernels that cost something and are a convolution."""
        return frozenset([index for index in self.costs if _is_convolution(self.computation[index])])

    def holding(self, value: Value) -> int | None:
        """The kernel that computes a value, inside or as its result."""
        if value.inside and value.inside[0][0] is self.computation:
            return self._places[id(value.inside[0][1])]
        return value.index if value.computation is self.computation else None

    def _priced(self) -> Iterator[tuple[int, Cost]]:
        for index, instruction in enumerate(self.computation.instructions):
            if instruction.opcode in FREE or instruction.opcode in _RUN:
                continue
            try:
                cost = self.pricer.price(Site(self.module, self.computation, instruction, self.platform)).cost
            except SourceError:
                continue
            if cost != NOTHING:
                yield index, cost


def product(values: Values, result: Value) -> Product | None:
    """The product that an instruction computes; ``None`` for other instructions, and for one of empty arrays, which computes nothing."""
    instruction = result.instruction
    dims = product_dimensions(instruction)
    if dims is None or len(instruction.operands) < 2:
        return None
    left, right = values.operand(result, 0), values.operand(result, 1)
    sizes = product_sizes(dims, left.shape.dims, right.shape.dims)
    if sizes is None:
        return None
    batch, rows, depth, columns = sizes
    groups = 0
    if instruction.opcode == "ragged-dot" and len(instruction.operands) > 2:
        groups = values.operand(result, 2).shape.dims[-1]
        columns //= max(prod(right.shape.dims[axis] for axis in instruction.integers("rhs_group_dims")), 1)
    if min(batch, rows, depth, columns) < 1:
        return None
    return Product(left=left, right=right, result=result, dims=dims, batch=batch, rows=rows, depth=depth, columns=columns, groups=groups)


def _is_convolution(instruction: Instruction) -> bool:
    return instruction.opcode in ("convolution", "custom-call") and len(instruction.operands) > 1 and instruction.convolution is not None
