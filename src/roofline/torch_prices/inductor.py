"""Inductor's Triton kernels, ``triton_KIND_fused_OPS_N``: recorded bytes, or else an upper bound; the FLOP of templates.

``poi`` are pointwise, ``red`` and ``per`` reductions, ``for`` foreach kernels, ``tem`` templates (products, attention). ``addmm`` or
``convolution`` in the name of a pointwise kernel or reduction is only the epilogue of a product that ran elsewhere. Without recorded bytes,
each tensor is read or written at most once for each of the kernel's positions. A tensor that is updated in place would count twice, but a
trace shows that only if the kernel has no other tensors: hence the interval.
"""

import re
from itertools import pairwise
from math import prod

from ..cost import Cost
from ..formulas.compute_units import matrix_work
from ..resource import HBM
from ..units import DECIMAL
from .attention import flex
from .call import KERNEL_METADATA, Call, Priced, Tensor
from .gathers import SCATTER
from .op_table import op
from .product_formats import product_format
from .traffic import format_name, traffic

FUSED = "fused"
COMPILED_KERNELS = "inductor::compiled kernels "  # followed by the beginning of their graph's hash
_NAME = re.compile(r"triton_(poi|red|per|for|tem|spl|sca|mix)_")
_WORDS = {"poi": "pointwise fusion", "red": "reduction fusion", "per": "reduction fusion", "for": "foreach fusion", "tem": "template"}
_SCATTERS = re.compile(r"_(?:index_put|index_add|scatter|scatter_add|scatter_reduce|embedding_dense_backward)(?:_|$)")
_MAKES = re.compile(r"_(?:zeros?|ones|full|fill|empty|arange|iota|linspace|eye|scalar|rand\w*|bernoulli|normal|uniform)(?:_|$)")
_BLOCK = re.compile(r"\b([XYZ])BLOCK=(\d{1,9})\b")
VECTOR_UNKNOWN = "FLOP of its pointwise part are not recorded"
RECORDED = "bytes as Inductor recorded them"
CAP = "bytes from the shapes of its arguments, at most one element of each per position of the kernel's grid"


@op("triton_*")
def triton(call: Call) -> Priced | None:
    found = _NAME.match(call.op)
    kind = found.group(1) if found else ""
    if kind == "tem":
        return _template(call)
    category = SCATTER if _SCATTERS.search(call.op) and len(call.all_tensors) > 1 else _WORDS.get(kind, FUSED)
    number = format_name(next(iter(call.all_tensors), None))
    if (recorded := recorded_bytes(call)) is not None:
        return Priced(cost=Cost.of({HBM: recorded}), category=category, dtype=number, notes=(RECORDED, VECTOR_UNKNOWN))
    moved = capped(call)
    if moved is None:
        return None if not call.args else Priced(cost=None, category=category, missing=KERNEL_METADATA)
    least, most = moved
    return Priced(
        cost=Cost.of({HBM: least}),
        category=category,
        dtype=number,
        interval=(least, most) if most > least else None,
        notes=(CAP, VECTOR_UNKNOWN),
        missing=KERNEL_METADATA,
    )


@op(f"{COMPILED_KERNELS}*")
def compiled_for_cpu(call: Call) -> Priced:
    """The kernels of one compiled graph on the CPU, of which a trace has only the time."""
    return Priced(cost=None, category=FUSED, notes=("kernels that Inductor compiled for the CPU: traces do not have their shapes",))


def recorded_bytes(call: Call) -> int | None:
    """The bytes that Inductor computed for a kernel, if the program ran with that option."""
    said = call.extra.get("kernel_num_gb")
    return round(float(said) * DECIMAL["G"]) if isinstance(said, (int, float)) and said > 0 else None


def capped(call: Call) -> tuple[int, int] | None:
    """The least and the most bytes: each argument once, and with the first argument twice, if that is updated in place."""
    tensors = call.all_tensors
    if not tensors:
        return None
    positions = _positions(call)
    sizes = [_at_most(one, positions).bytes for one in tensors]
    if None in sizes:
        return None
    known = [size for size in sizes if size is not None]
    most = sum(known) + known[0]
    is_filled = _MAKES.search(call.op) or _SCATTERS.search(call.op)  # a scatter without indices makes the zeros that another one adds to
    is_updated = len(tensors) == 1 and not is_filled  # there is nothing else to read
    return (most if is_updated else sum(known)), most


def _positions(call: Call) -> int | None:
    """The positions of a kernel: the product of its numels; without them, for a pointwise kernel, the positions of its blocks."""
    numels = [one for one in call.args if isinstance(one, int) and not isinstance(one, bool)]
    if numels:
        return prod(numels) if min(numels) > 0 else None
    blocks = dict(_BLOCK.findall(str(call.extra.get("kernel_kwargs", ""))))
    grid = call.kernels[0].grid if len(call.kernels) == 1 else None
    if not call.op.startswith("triton_poi_") or "X" not in blocks or not grid:
        return None
    return prod(count * int(blocks.get(axis, 1)) for count, axis in zip(grid, "XYZ", strict=False)) or None


def _at_most(one: Tensor, positions: int | None) -> Tensor:
    return one if positions is None else Tensor((min(one.distinct, positions),), one.dtype)


def _template(call: Call) -> Priced | None:
    """A product from a template: two of its tensors, and the last one as the result. FlexAttention's FLOP stay unknown."""
    if "flex_attention" in call.op:
        return flex(call)
    tensors = call.all_tensors
    if len(tensors) < 3:
        return None
    fitting = {pair: count for pair in pairwise(tensors[:-1]) if (count := _multiplied(*pair, tensors[-1]))}
    number, notes = product_format(call, *next(iter(fitting), tensors[:2]))
    flops = call.extra.get("kernel_flop")
    if not isinstance(flops, (int, float)) or flops <= 0:
        if len(set(fitting.values())) != 1:
            return Priced(cost=None, category="matmul", missing=KERNEL_METADATA)
        flops = next(iter(fitting.values()))
    recorded = recorded_bytes(call)
    moved = Cost.of({HBM: recorded}) if recorded is not None else traffic(tensors[:-1], tensors[-1:])
    return Priced(
        cost=matrix_work(int(flops), number) + moved,
        category="matmul",
        dtype=number.rate,
        by_convention={"flop_counter": int(flops)},
        notes=notes,
    )


def _multiplied(a: Tensor, b: Tensor, out: Tensor) -> int:
    """The FLOP of a product of two tensors with this result, the second one transposed or not; 0 if their shapes do not match.

    Rows may be split over several axes; a second operand with as many axes as the first is a batch.
    """
    if min(len(a.shape), len(b.shape), len(out.shape)) < 2 or a.elements * out.elements == 0:
        return 0
    k, n = a.shape[-1], out.shape[-1]
    batch = prod(b.shape[:-2])
    fits = b.shape[-2:] in ((k, n), (n, k)) and a.elements // k == out.elements // n
    if not fits or (batch > 1 and not a.shape[:-2] == b.shape[:-2] == out.shape[:-2]):
        return 0
    return 2 * a.elements * n
