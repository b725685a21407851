"""Wide number formats: products of bf16 values converted to fp32 or fp64, products of fp32 values, and anything in fp64."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

from ...cost import NOTHING, Cost
from ...dtypes import dtype
from ...resource import HBM, Resource, matrix, vector
from ...workload import Avoidable, Facts, Saves, source_line
from ..ir.module import Computation, HloModule
from ..ir.shapes import Shape
from ..price.bodies import reads_target
from ..price.contractions import default_unit
from .fused_biases import FusedBiases
from .kernels import Convolution, Kernels, Product
from .values import LAYOUT, Value, Values
from .wide_neighbours import WideArrays

KIND, CLASS = "wide-format", "wide"
DOUBLE, SINGLE = "fp64", "fp32"  # groups of kernels whose operands have these formats in the program itself
BESIDE_SUMS = "fp32 beside sums"  # the same as fp32, in a program that adds fp32 numbers by index
FULL = "full fp32"  # the group of GPU products of fp32 operands for which the program rules out tf32
DOUBLE_ARGUMENTS = "fp64 arguments"  # the group of a program whose arguments are all fp64
_WIDE = ("fp64", "fp32", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16x9")
_ACCELERATORS = ("gpu", "tpu")
_STOP = frozenset(("dot", "convolution", "custom-call", "parameter", "constant", "while"))
_SOLVES = ("cholesky", "triangular-solve")
_SOLVERS = ("cusolver_", "hipsolver_", "lapack_", "cublas_", "hipblas_", "__cublas$triangularSolve")
_MOST_CHANGES = 3  # kernels between a product and the solve of its result
_MOST_VISITED = 20  # values that an operand depends on


def wide_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products and convolutions that run in a wide format, the kernels between them, and those that only widen their operands."""
    products = _WideProducts(kernels)
    reasons = {index: reason for index in products.units if (reason := products.reason(index)) is not None}
    yield from reasons.items()
    single = [index for index, reason in reasons.items() if reason.group == products.single]
    for index, instead in WideArrays.around(kernels, single).neighbours(products.biases.functions) if single else ():
        yield index, Avoidable(kind=KIND, instead=instead, cause="between", group=products.single)
    for index in products.widening():
        users = kernels.values.users(kernels.computation, index)
        if index in kernels.costs and users and all(user in reasons for user in users):
            yield index, Avoidable(kind=KIND, instead=NOTHING, cause="widens", unneeded=CLASS)


class _WideProducts:
    """The products and convolutions of a computation that run in a wide format; ``units`` are those they run on.

    A few products of fp32 numbers among many of narrow ones, such as the router of experts, are assumed to be wide on purpose, and so are
    products of tiny matrices or of vectors, and those of which a factorisation or solve is computed. Complex numbers have no narrow format.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._found: dict[int, Product | Convolution] = {**kernels.convolutions, **kernels.products}
        formats = _WIDE if kernels.platform in _ACCELERATORS else ("fp64",)  # a CPU multiplies fp32 as fast as bf16
        self.units = {index: unit for index in self._found if (unit := _wide_unit(kernels.costs[index], formats)) is not None}
        self.biases = FusedBiases(kernels)
        self._are_exceptions = kernels.are_few(self.units)
        self._converts = "convert" in kernels.module.opcodes

    def reason(self, index: int) -> Avoidable | None:
        """Why a product could run in a narrower format, and its cost in that; ``None`` if it is taken to be wide on purpose."""
        found, unit = self._found[index], self.units[index]
        if narrow := self._narrow(found):
            return self._widened(index, narrow)
        if unit.kind == "fp64":
            instead = self._in_half(index, "fp32")
            return Avoidable(kind=KIND, instead=instead, group=_double_group(self._kernels))
        if self._are_exceptions or _is_elementwise(found) or _is_complex(found.left.shape) or _is_solved(self._kernels, index):
            return None
        if self._kernels.platform == "gpu" and unit.kind == "fp32" and not self._widened_in:
            instead = _instead(self._kernels.costs[index], unit, matrix("tf32"), 0)
            return Avoidable(kind=KIND, instead=instead, group=FULL)
        return None if self.biases.would_compute_functions(index, found) else self._single(index)

    def widening(self) -> Iterable[int]:
        """The kernels that make the operands which were narrower before."""
        sides = [side for index in self.units if self._narrow(found := self._found[index]) for side in (found.left, found.right)]
        return dict.fromkeys([maker for side in sides for maker in _kernels(self._kernels.computation, side)])

    def _narrow(self, found: Product | Convolution) -> list[Value]:
        """Both operands of a product as they were before something widened them; none if one of them was not widened."""
        sides = [_narrow(self._kernels.values, side) for side in (found.left, found.right)] if self._converts else []
        return [side for side in sides if side is not None] if None not in sides else []

    def _widened(self, index: int, narrow: Sequence[Value]) -> Avoidable:
        found, unit = self._found[index], self.units[index]
        name = max((side.shape.number for side in narrow), key=lambda number: number.bits)
        less = found.left.shape.bytes + found.right.shape.bytes - sum(side.shape.bytes for side in narrow)
        instead = _instead(self._kernels.costs[index], unit, default_unit(name, self._kernels.platform), less)
        return Avoidable(kind=KIND, instead=instead, facts={"narrow": name.name, "format": unit.kind}, unneeded=CLASS)

    def _single(self, index: int) -> Avoidable:
        facts = Facts(format=self.units[index].kind, where=self._widened_in)
        instead, besides = self._in_half(index, "bf16", same_bytes=self._stay_wide), self.biases.kernel_in_bf16(index)
        group = "" if self._widened_in else self.single
        return Avoidable(kind=KIND, instead=instead, cause="operands", facts=facts, group=group, besides=besides)

    def _in_half(self, index: int, number: str, *, same_bytes: bool = False) -> Cost:
        """The cost of a product in a format of half the width."""
        cost, into = self._kernels.costs[index], default_unit(dtype(number), self._kernels.platform)
        return _instead(cost, self.units[index], into, 0 if same_bytes else int(cost.known(HBM)) // 2)

    @cached_property
    def single(self) -> str:
        """The group of products of fp32 operands."""
        return BESIDE_SUMS if _adds_by_index(self._kernels.module) else SINGLE

    @cached_property
    def _widened_in(self) -> str:
        return _widened_in(self._kernels, [self._found[index] for index in self.units]) if self._converts else ""

    @cached_property
    def _stay_wide(self) -> bool:
        return WideArrays.around(self._kernels, self.units).are_added


def _adds_by_index(module: HloModule) -> bool:
    """Whether a program has a scatter that adds to fp32 numbers."""
    return "scatter" in module.opcodes and any(
        one.opcode == "scatter" and any(leaf.is_array and leaf.dtype == "f32" for leaf in one.shape.leaves) and reads_target(module, one)
        for computation in module.computations
        for one in computation
    )


def fp64_kernels(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels without products that compute in fp64 or make fp64 arrays, and their cost in fp32."""
    group = _double_group(kernels)
    for index, cost in kernels.costs.items():
        instruction = kernels.computation[index]
        wide = next((resource for resource, _ in cost.amounts if resource.unit == "vector" and resource.kind == "fp64"), None)
        if kernels.product(index) is not None or (wide is None and not any(map(_is_double, instruction.shape.leaves))):
            continue
        shapes = [leaf for one in (instruction, *kernels.computation.operands(instruction)) for leaf in one.shape.leaves]
        less = sum(leaf.bytes for leaf in shapes if _is_double(leaf)) // 2
        instead = _instead(cost, wide or vector("fp64"), vector("fp32"), less)
        multiplies = any(resource.unit == "matrix" for resource, _ in cost.amounts)
        saves = Saves.IN_PROPORTION if multiplies else Saves.GOOD_VECTOR
        yield index, Avoidable(kind=KIND, instead=instead, group=group, saves=saves)


def _double_group(kernels: Kernels) -> str:
    entry = kernels.module.entry_computation
    given = [
        leaf for index in entry.parameters for leaf in entry[index].shape.leaves if leaf.is_array and leaf.dtype.startswith(("f", "bf"))
    ]
    return DOUBLE_ARGUMENTS if given and all(map(_is_double, given)) else DOUBLE


def _is_double(shape: Shape) -> bool:
    return shape.is_array and shape.dtype == "f64"


def _is_elementwise(found: Product | Convolution) -> bool:
    """Whether elementwise products and sums would do the same, so that a format of the matrix unit does not help."""
    return found.is_tiny if isinstance(found, Product) else found.is_stencil


def _is_solved(kernels: Kernels, index: int) -> bool:
    """Whether a factorisation or solve takes a kernel's result, perhaps with a few changes: it would magnify the rounding."""
    found = {index}
    for _ in range(_MOST_CHANGES):
        found = {user for one in found for user in kernels.users(one)}
        users = [kernels.computation[one] for one in found]
        if any(one.opcode in _SOLVES or (one.custom_call_target or "").startswith(_SOLVERS) for one in users):
            return True
        found = {one for one in found if one in kernels.costs and one not in kernels.products}
    return False


def _is_complex(shape: Shape) -> bool:
    return shape.is_array and shape.number.name.startswith("complex")


def _wide_unit(cost: Cost, formats: Sequence[str]) -> Resource | None:
    return next((resource for resource, _ in cost.amounts if resource.unit == "matrix" and resource.kind in formats), None)


@lru_cache(maxsize=256)  # a program repeats its products for each layer
def _instead(cost: Cost, unit: Resource, into: Resource, bytes_less: int) -> Cost:
    amounts = {resource: amount for resource, amount in cost.amounts if resource != unit}
    amounts[into] = amounts.get(into, 0) + cost.known(unit)
    amounts[HBM] = max(amounts.get(HBM, 0) - bytes_less, 0)
    return Cost.of(amounts)


def _narrow(values: Values, side: Value) -> Value | None:
    """An operand before it was widened; ``None`` if it was not."""
    made = values.origin(side, LAYOUT)
    if made.opcode != "convert":
        return None
    before = values.operand(made, 0)
    if not before.shape.is_array or before.shape.number.name.startswith(("int", "uint", "bool")):
        return None
    return before if before.shape.number.bits < made.shape.number.bits else None


def _widened_in(kernels: Kernels, multiplying: Iterable[Product | Convolution]) -> str:
    """Where an operand of some products was widened earlier, such as by an fp32 factor; empty if it was cast just for the product."""
    for found in multiplying:
        for side in (found.left, found.right):
            if _narrow(kernels.values, side) is not None:
                continue
            for value in kernels.values.ancestors(side, _STOP, most=_MOST_VISITED):
                alike = value.opcode == "convert" and value.shape.is_array and value.shape.elements == side.shape.elements
                line = source_line(kernels.module.location(value.instruction)) if alike and _narrow(kernels.values, value) else ""
                if line:
                    return line
    return ""


def _kernels(computation: Computation, side: Value) -> Iterator[int]:
    """The kernel of a computation that made an operand."""
    if side.computation is computation:
        index = side.index
        while computation[index].opcode in ("bitcast", "get-tuple-element") and computation[index].operands:
            index = computation[index].operands[0]
        yield index
