"""Dense products on the matrix unit, and the dot product on the vector unit.

A product's operands, result, accumulator and arithmetic each have a number format; `dtype` is the default, and arithmetic runs in the wider
of the operands' formats.
"""

from typing import Literal, Unpack

from msgspec import Struct

from ..cost import Cost, plain_number
from ..dtypes import DType, passes_note
from ..dtypes import dtype as named
from ..ledger import Ledger, Row, read, write
from ..operation import Product
from ..ops.product import real_flops
from .compute_units import arithmetic, matrix_work, number, port, vector_work
from .notation import Dim, Format, Level, OperandFormats, ProductOptions, tiles
from .registry import formula


class ProductFormats(Struct, frozen=True, kw_only=True):
    """The number formats of a product."""

    activations: DType
    weights: DType
    out: DType
    accumulator: DType | None
    compute: DType

    @classmethod
    def of(
        cls,
        dtype: Format = None,
        activations: Format = None,
        weights: Format = None,
        out: Format = None,
        compute: Format = None,
        accumulator: Format = None,
    ) -> "ProductFormats":
        """Formats from options: `dtype` by default, and the wider operand's for the arithmetic."""
        left, right = number(activations, dtype), number(weights, dtype)
        return cls(
            activations=left,
            weights=right,
            out=number(out, dtype),
            accumulator=named(accumulator) if accumulator else None,
            compute=arithmetic(compute, left, right),
        )

    @property
    def is_complex(self) -> bool:
        return self.activations.is_complex or self.weights.is_complex

    def work(self, multiply_adds: Dim) -> Cost:
        """The work of so many multiplies and adds."""
        return matrix_work(real_flops(multiply_adds, self.activations, self.weights), self.compute)

    def written(self, shape: tuple[Dim, ...]) -> tuple[Row, ...]:
        """The rows of the result, and of the accumulator if it is counted."""
        extra = (write("accumulator", shape, self.accumulator),) if self.accumulator else ()
        return (write("out", shape, self.out), *extra)

    def product(self, m: Dim, k: Dim, n: Dim, batch: Dim = 1, *, out: bool = False) -> Product | None:
        """The product by its sizes, or None for complex numbers; a product of 8-bit floats is in bf16 unless ``out`` is given."""
        if self.is_complex:
            return None
        narrow = self.compute.rate == "fp8" and not out
        return Product(
            m=plain_number(m),
            k=plain_number(k),
            n=plain_number(n),
            batch=plain_number(batch),
            left=self.activations.name,
            right=self.weights.name,
            out="bf16" if narrow else self.out.name,
            compute=self.compute.rate,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.is_complex:
            notes.append("a complex multiply and add is 8 FLOP")
        if self.activations.rate != self.weights.rate:
            notes.append(f"{self.activations} activations times {self.weights} weights, computed in {self.compute}")
        if passes := passes_note(self.compute.rate):
            notes.append(passes)
        if self.accumulator:
            notes.append(f"an accumulator of {self.accumulator} is written in addition to the result")
        return tuple(notes)


@formula("dot", group="dense", example=(2**24,), aliases=("vdot", "inner", "aten::dot"))
def dot(
    n: Dim, *, dtype: Format = "bf16", out: Format = None, compute: Format = None, unit: Literal["vector", "matrix"] = "vector"
) -> Ledger:
    """x · y of two vectors of n elements: n multiplies and n − 1 adds, on the vector unit.

    FLOP = 2n − 1 (8n − 2 between complex numbers); bytes = two vectors read and one number written: 4n + 2 in bf16, so 1/2 FLOP/B at most.
    """
    operand = number(dtype)
    flops = 8 * n - 2 if operand.is_complex else 2 * n - 1
    work = vector_work(flops, 0, compute, operand) if unit == "vector" else matrix_work(flops, number(compute, dtype))
    return Ledger("dot", work, (read("x", (n,), operand), read("y", (n,), operand), write("out", (1,), number(out, dtype))))


@formula("matmul", group="dense", example=(8192, 8192, 8192), aliases=("gemm", "mm", "linear", "dot_general", "aten::mm", "aten::linear"))
def matmul(m: Dim, k: Dim, n: Dim, **options: Unpack[ProductOptions]) -> Ledger:
    """Z[m, n] = X[m, k] · W[k, n]: 2mkn FLOP; each operand is read once, the result is written once.

    bytes = mk + kn + mn elements in their formats; an accumulator, when named, is one more m x n tensor written. Intensity tends to m
    for much larger k and n (bf16).
    """
    formats = ProductFormats.of(**options)
    rows = (read("activations", (m, k), formats.activations), read("weights", (k, n), formats.weights), *formats.written((m, n)))
    product = formats.product(m, k, n, out=options["out"] is not None)
    return Ledger("matmul", formats.work(m * k * n), rows, formats.notes, operation=product)


@formula("batched_matmul", group="dense", example=(64, 2048, 128, 2048), aliases=("bmm", "aten::bmm"))
def batched_matmul(batch: Dim, m: Dim, k: Dim, n: Dim, **options: Unpack[ProductOptions]) -> Ledger:
    """Z[b, m, n] = X[b, m, k] · W[b, k, n]: `batch` independent products, 2·b·m·k·n FLOP.

    bytes = b(mk + kn + mn) elements in their formats, so the intensity is that of one product.
    """
    formats = ProductFormats.of(**options)
    rows = (
        read("activations", (batch, m, k), formats.activations),
        read("weights", (batch, k, n), formats.weights),
        *formats.written((batch, m, n)),
    )
    product = formats.product(m, k, n, batch, out=options["out"] is not None)
    return Ledger("batched_matmul", formats.work(batch * m * k * n), rows, formats.notes, operation=product)


@formula("per_example_weights", group="dense", example=(256, 4096, 4096), aliases=("per_example_matmul",))
def per_example_weights(b: Dim, d: Dim, f: Dim, **options: Unpack[OperandFormats]) -> Ledger:
    """Z[b, f] = X[b, d] · Y[b, d, f]: every example has its own weights, so nothing is reused: 2bdf FLOP.

    bytes = b(d + df + f) elements, so the intensity DF/(D + DF + F) tends to 1 FLOP/B in bf16 whatever the batch.
    """
    formats = ProductFormats.of(**options)
    rows = (
        read("activations", (b, d), formats.activations),
        read("weights of examples", (b, d, f), formats.weights),
        *formats.written((b, f)),
    )
    return Ledger("per_example_weights", formats.work(b * d * f), rows, formats.notes)


@formula("tiled_matmul", group="dense", example=(8192, 8192, 8192))
def tiled_matmul(
    m: Dim,
    k: Dim,
    n: Dim,
    *,
    tile_m: Dim = 128,
    tile_k: Dim = 128,
    tile_n: Dim = 128,
    level: Level = "hbm",
    **options: Unpack[ProductOptions],
) -> Ledger:
    """Z[m, n] = X[m, k] · W[k, n] in tiles: an operand tile is read from `level` once for every output tile that needs it.

    With t = ceil(size/tile) tiles a side: FLOP = 2·t_m·t_n·t_k·b_m·b_k·b_n; bytes = t_m·t_n·t_k(b_m·b_k + b_k·b_n) elements read
    and mn written. The intensity b_m·b_n/(b_m + b_n) of bf16 (writes aside) depends on the tile alone. Edge tiles are done in full.
    If `level` is not hbm, the compulsory traffic of hbm is counted too.
    """
    formats = ProductFormats.of(**options)
    t_m, t_k, t_n = tiles(m, tile_m), tiles(k, tile_k), tiles(n, tile_n)
    source, target = port(level, "read"), port(level, "write")
    rows: tuple[Row, ...] = (
        read("activation tiles", (t_m * tile_m, t_k * tile_k), formats.activations, level=source, passes=t_n),
        read("weight tiles", (t_k * tile_k, t_n * tile_n), formats.weights, level=source, passes=t_m),
        write("out", (m, n), formats.out, level=target),
    )
    if formats.accumulator:
        rows += (write("accumulator", (m, n), formats.accumulator, level=target),)
    if level != "hbm":
        rows += (read("activations", (m, k), formats.activations), read("weights", (k, n), formats.weights), *formats.written((m, n)))
    multiply_adds = t_m * t_n * t_k * tile_m * tile_k * tile_n
    note = f"{t_m} x {t_k} x {t_n} tiles of {tile_m} x {tile_k} x {tile_n}, partial tiles counted as full"
    return Ledger("tiled_matmul", formats.work(multiply_adds), rows, (note, *formats.notes))
