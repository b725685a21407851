"""A product sharded over chips, with the collective that the sharded dimension requires."""

from typing import Literal, Unpack

from ..errors import FormulaError
from ..ledger import Ledger
from .collective import NO_MEMORY, hop_work, route, sends
from .dense import ProductFormats, matmul
from .notation import Algorithm, Dim, Link, ProductOptions, ratio
from .registry import formula

# The tensors that may be stored sharded and gathered, by the split dimension: not the operand that stays split.
GATHERS = {"m": ("none", "weights", "out"), "k": ("none",), "n": ("none", "activations", "out")}


@formula("sharded_matmul", group="dense", example=(4096, 16384, 4096), aliases=("collective_matmul",))
def sharded_matmul(
    m: Dim,
    k: Dim,
    n: Dim,
    *,
    over: Dim = 2,
    shard: Literal["m", "k", "n"] = "k",
    reduce: Literal["all-reduce", "reduce-scatter"] = "all-reduce",
    gather: Literal["none", "activations", "weights", "out"] = "none",
    algorithm: Algorithm = "ring",
    links: int = 1,
    link: Link = "ici",
    latency: bool = False,
    **options: Unpack[ProductOptions],
) -> Ledger:
    """One chip's part of Z[m, n] = X[m, k] · W[k, n] with one dimension split over p chips: 2mkn/p FLOP, and its communication.

    Splitting k gives partial sums of all of Z, which are exchanged: 2(p−1)/p of Z over each link in a ring all-reduce, half of that in a
    reduce-scatter. Two chips all-reduce by sending each other all their partial sums: k·m·n FLOP and 2mn bytes of bf16 per chip.
    Splitting m (or n) exchanges nothing, unless `gather` names a tensor that is stored sharded and gathered: (p−1)/p of it. An uneven
    split is priced at its average. Hops are counted only with `latency`: the crossover depends on the bytes alone.
    """
    way = route("sharded_matmul", over, 1, 1, algorithm, links)
    formats = ProductFormats.of(**options)
    if gather not in GATHERS[shard]:
        raise FormulaError(f"sharded_matmul: gather is {gather!r} with {shard} split; choose one of {', '.join(GATHERS[shard])}")
    sizes = {"m": m, "k": k, "n": n, shard: ratio({"m": m, "k": k, "n": n}[shard], over)}
    local = matmul(
        sizes["m"],
        sizes["k"],
        sizes["n"],
        activations=formats.activations.name,
        weights=formats.weights.name,
        out=formats.out.name,
        accumulator=options["accumulator"],
        compute=formats.compute.name,
    )
    if shard == "k":
        phases = 2 if reduce == "all-reduce" else 1
        rows = sends("partial sums", (m, n), formats.out.name, phases * way.gathered, link)
        exchanged = f"partial sums, by {reduce}"
    elif gather == "none":
        phases, rows, exchanged = 0, (), "nothing"
    else:
        phases = 1
        shape = {"activations": (m, k), "weights": (k, n), "out": (m, n)}[gather]
        rows = sends(gather, shape, getattr(formats, gather).name, way.gathered, link)
        exchanged = f"{gather}, by all-gather"
    work = local.work + hop_work(link, phases * way.hops if latency else 0)
    notes = (f"one of {over} chips, {shard} split; exchanged: {exchanged}", *((NO_MEMORY,) if rows else ()), *formats.notes)
    return Ledger("sharded_matmul", work, local.rows + rows, notes)
