"""roofline's FLOP compared with those of other counters for one PyTorch function, with the reason for each difference. Nothing is run."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from ..cost import NOTHING, Cost
from ..dtypes import DType, dtype
from ..errors import UsageError
from ..formulas import transformer_block
from . import EAGER, Traced, require_torch, trace
from .flop_counters import PEERS, CounterResult, Peer, count_with, installed
from .recorder import whole_attention
from .workload import priced

BATCH, LENGTH, WIDTH, HEADS = 2, 512, 512, 8
BLOCK = f"one transformer block: batch {BATCH}, sequence {LENGTH}, width {WIDTH}, causal"
Shape = tuple[str, tuple[int, ...]]  # a number format, or none, and sizes


class Count(Struct, frozen=True, kw_only=True):
    """One way of counting one program: FLOP, ``None`` if there is no answer, and why it differs from roofline's."""

    way: str
    flops: float | None
    why: str = ""


class TorchComparison(Struct, frozen=True, kw_only=True):
    """The whole comparison as JSON. ``flops`` are those that run on the matrix unit, by roofline's count."""

    schema: str = "roofline.torch-comparison/1"
    function: str
    format: str
    flops: float | None
    counts: tuple[Count, ...]
    notes: tuple[str, ...] = ()


def hand_counts() -> tuple[Count, ...]:
    """The FLOP of the block by formula, with causal attention as half and as the full square."""
    counts = []
    for causal, words in ((True, "causal half"), (False, "full square")):
        ledger = transformer_block(BATCH, LENGTH, WIDTH, HEADS, 4 * WIDTH, gated=False, causal=causal)
        counts.append(Count(way=f"by hand: matrix work, {words}", flops=_matrix(ledger.cost)))
    return tuple(counts)


def compare_block(number: DType, backward: bool = False) -> TorchComparison:
    """The block of `hand_counts`, counted by every available counter."""
    torch = require_torch()
    kind = torch_format(torch, number)
    with torch.device("meta"):
        module = _block(torch).to(kind)
        args = (torch.empty(BATCH, LENGTH, WIDTH, dtype=kind),)
    return _compared(torch, module, args, BLOCK, number, backward, () if backward else hand_counts())


def compare_function(function: Callable[..., Any], name: str, shapes: Sequence[Shape], number: DType, backward: bool) -> TorchComparison:
    """A module or function of tensors of these shapes; ``number`` is the default number format."""
    torch = require_torch()
    if isinstance(function, type):
        raise UsageError(f"validate torch: {name} is a class; name one of its objects, or a function")
    formats = [torch_format(torch, dtype(fixed) if fixed else number) for fixed, _ in shapes]
    args = tuple(torch.empty(sizes, dtype=kind, device="meta") for (_, sizes), kind in zip(shapes, formats, strict=True))
    module = function.to("meta", torch_format(torch, number)) if isinstance(function, torch.nn.Module) else _as_module(torch, function)
    return _compared(torch, module, args, name, number, backward, ())


def _compared(
    torch: Any, module: Any, args: tuple[Any, ...], name: str, number: DType, backward: bool, theory: Sequence[Count]
) -> TorchComparison:
    try:
        traced = trace(module, backward=backward)(*args)
    except UsageError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise UsageError(f"validate torch: {name}: {(str(error).splitlines() or [type(error).__name__])[0]}") from None
    ours = _our_counts(traced)
    flops, both = _matrix(ours.ran), None if ours.ran.flops is None else float(ours.ran.flops)
    counts = [
        *theory,
        Count(way="roofline: matrix work, what ran", flops=flops),
        Count(way="roofline: matrix work, full square", flops=ours.full_square, why="counts what a causal mask leaves out too"),
        Count(way="roofline: matrix and vector work", flops=both, why="adds elementwise work, norms and softmax"),
    ]
    if backward:
        counts.append(
            Count(way="roofline: matrix work, needed", flops=_matrix(ours.needed), why="excludes recomputed scores and activations")
        )
    notes = [EAGER]
    for peer in PEERS:
        if not installed(peer):
            notes.append(f"{peer.name}: not installed")
            continue
        if backward and not peer.within:
            notes.append(f"{peer.name}: counts no backward pass")
            continue
        result = _count_with(torch, peer, module, args, backward)
        counts.append(Count(way=peer.name, flops=result.flops, why=_why(peer, result, flops, ours)))
    return TorchComparison(function=name, format=number.name, flops=flops, counts=tuple(counts), notes=tuple(notes))


class Ours(Struct, frozen=True):
    """roofline's counts: what ran, what was needed, products with the full square, and the products that FlopCounterMode does not count."""

    ran: Cost
    needed: Cost
    full_square: float
    uncounted: tuple[str, ...]


def _our_counts(traced: Traced) -> Ours:
    ran, needed, square = NOTHING, NOTHING, 0.0
    uncounted = set()
    for seen in traced.calls:
        cost, price = priced(seen.call)
        ran += cost
        if not seen.again:
            needed += cost if price.needed is None else price.needed
        products = _matrix(cost) or 0
        counted = price.by_convention.get("flop_counter")
        square += float(counted) if counted is not None else products
        if products and counted is None:
            uncounted.add(seen.call.op.removeprefix("aten::"))
    return Ours(ran, needed, square, tuple(sorted(uncounted)))


def _count_with(torch: Any, peer: Peer, module: Any, args: tuple[Any, ...], backward: bool) -> CounterResult:
    """One counter's result. Random numbers and state of the module do not matter: its tensors have no data."""

    def forward_and_backward(*given: Any) -> None:
        result = module(*given)
        if backward:
            wanted = [
                tensor for tensor in torch.utils._pytree.tree_leaves(result) if isinstance(tensor, torch.Tensor) and tensor.requires_grad
            ]
            torch.autograd.backward(wanted, [torch.empty_like(tensor) for tensor in wanted])

    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        try:
            if not peer.within:
                return count_with(peer, module, args)
            with whole_attention(torch):
                return count_with(peer, forward_and_backward, args)
        finally:
            for weight in module.parameters():
                weight.grad = None


def _why(peer: Peer, result: CounterResult, flops: float | None, ours: Ours) -> str:
    """The conventions that explain a difference from what ran, if there is one."""
    if result.failed:
        return f"no answer: {result.failed}"
    if result.flops == flops:
        return ""
    reasons = list(peer.counts)
    if peer.name == "FlopCounterMode":
        if flops is not None and ours.full_square > flops:
            reasons.append("counts the full square of causal attention")
        if ours.uncounted:
            reasons.append(f"has no formula for {', '.join(ours.uncounted)}")
    if result.left_out:
        reasons.append(f"counts 0 for {', '.join(name.removeprefix('aten::') for name in result.left_out)}")
    return "; ".join(reasons)


def _matrix(cost: Cost) -> float | None:
    """FLOP of products, convolutions and attention; ``None`` if any are unknown."""
    if any(resource.is_arithmetic for resource in cost.unknown):
        return None
    return float(sum(amount for resource, amount in cost.amounts if resource.unit == "matrix"))


def torch_format(torch: Any, number: DType) -> Any:
    """The PyTorch dtype of a number format."""
    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64", "bool": "bool"}
    name = names.get(number.name, number.name)
    function = getattr(torch, name, None)
    if not isinstance(function, torch.dtype):
        raise UsageError(f"PyTorch has no number format {number}; try bf16, fp16 or fp32")
    return function


def _as_module(torch: Any, function: Callable[..., Any]) -> Any:
    """A function as a module, which other counters need."""

    class Function(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Function()


def _block(torch: Any) -> Any:
    """A pre-norm transformer block with a GELU of four times its width and no biases."""
    nn = torch.nn

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
            heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(heads.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    return Block()
