"""Everyday faults written in JAX and in PyTorch: both are told without running them, and promised about the same."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec import Struct

from every import every
from roofline.report import Report

CHIP = "h200"
APART = 1.25  # savings of one fault: PyTorch runs operators one by one that XLA fuses
BF16, INT32 = "bfloat16", "int32"
Shape = tuple[tuple[int, ...], str]


class Pair(Struct):
    """One fault: its kind, the shapes and formats of its arguments, and the function in each framework, which gets the library first.

    The savings are at most ``apart``.
    """

    kind: str
    arguments: tuple[Shape, ...]
    jax: Callable[..., Any]
    torch: Callable[..., Any]
    apart: float = APART


def of(*shape: int, dtype: str = BF16) -> Shape:
    return shape, dtype


HEADS = (of(4, 16, 2048, 64),) * 3


def swapped(x: Any) -> Any:
    return x.swapaxes(-1, -2)


def jax_attention(jnp: Any, q: Any, k: Any, v: Any) -> Any:
    import jax

    return jax.nn.softmax(q @ swapped(k), -1) @ v


def torch_attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ swapped(k), -1) @ v


def jax_picked(jnp: Any, x: Any, w: Any, chosen: Any) -> Any:
    return jnp.take_along_axis(jnp.einsum("nd,edf->nef", x, w), chosen[:, None, None], 1)[:, 0]


def torch_picked(torch: Any, x: Any, w: Any, chosen: Any) -> Any:
    every = torch.einsum("nd,edf->nef", x, w)
    return every.gather(1, chosen.long()[:, None, None].expand(-1, 1, every.shape[2]))[:, 0]


PAIRS = {
    "matrices before a vector": Pair(
        "product-order", (of(4096, 4096), of(4096, 4096), of(4096, 1)), lambda _, a, b, v: (a @ b) @ v, lambda _, a, b, v: (a @ b) @ v
    ),
    "attention without softmax": Pair(
        "product-order", HEADS, lambda _, q, k, v: (q @ swapped(k)) @ v, lambda _, q, k, v: (q @ swapped(k)) @ v
    ),
    "scores that are stored": Pair("stored-attention", HEADS, jax_attention, torch_attention),
    "keys for each query head": Pair(
        "repeated-operand",
        (of(8, 32, 1, 128), of(8, 8, 8192, 128)),
        lambda jnp, q, k: q @ swapped(jnp.repeat(k, 4, 1)),
        lambda torch, q, k: q @ swapped(k.repeat_interleave(4, 1)),
    ),
    "columns that nothing uses": Pair(
        "unused-results", (of(8192, 4096), of(4096, 8192)), lambda _, x, w: (x @ w)[:, :1024], lambda _, x, w: (x @ w)[:, :1024] * 2
    ),
    "rows that are multiplied again": Pair(
        "repeated-operand",
        (of(1000, 4096), of(65536, dtype=INT32), of(4096, 4096)),
        lambda _, table, ids, w: table[ids] @ w,
        lambda _, table, ids, w: table.index_select(0, ids) @ w,
    ),
    "tokens that are filled up": Pair(
        "padding",
        (of(6000, 4096), of(4096, 4096)),
        lambda jnp, x, w: jnp.pad(x, ((0, 6000), (0, 0))) @ w,
        lambda torch, x, w: torch.nn.functional.pad(x, (0, 0, 0, 6000)) @ w,
    ),
    "a cache that grows": Pair(
        "missing-donation",
        (of(16, 32, 4096, 128), of(16, 32, 1, 128)),
        lambda jnp, cache, new: jnp.concatenate([cache, new], 2),
        lambda torch, cache, new: torch.cat([cache, new], 2),
    ),
    "a position that a select writes": Pair(
        "layout-copies",
        (of(16, 4096, 2048), of(16, 1, 2048), of(dtype=INT32)),
        lambda jnp, cache, new, at: jnp.where((jnp.arange(4096) == at)[:, None], new, cache),
        lambda torch, cache, new, at: torch.where((torch.arange(4096, device=cache.device) == at)[:, None], new, cache),
    ),
    "products that are added up": Pair(
        "product-order",
        (of(64, 2048, 1024), of(64, 1024, 1024)),
        lambda _, x, w: (x @ w).sum(0),
        lambda _, x, w: (x @ w).sum(0),
    ),
    "a diagonal matrix": Pair(
        "one-hot-product",
        (of(4096), of(4096, 8192)),
        lambda jnp, d, x: jnp.diag(d) @ x,
        lambda torch, d, x: torch.diag_embed(d) @ x,
    ),
    "rows of the identity": Pair(
        "one-hot-product",
        (of(8192, dtype=INT32), of(4096, 8192)),
        lambda jnp, ids, x: jnp.eye(4096, dtype=BF16)[ids] @ x,
        lambda torch, ids, x: torch.eye(4096, dtype=x.dtype, device=x.device).index_select(0, ids) @ x,
    ),
    "rows that are picked": Pair(
        "unused-results",
        (of(16384, 4096), of(4096, 4096), of(256, dtype=INT32)),
        lambda jnp, x, w, ids: (x @ w)[ids],
        lambda torch, x, w, ids: (x @ w).index_select(0, ids),
    ),
    "a cache without its oldest position": Pair(
        "missing-donation",
        (of(16, 4096, 2048), of(16, 1, 2048)),
        lambda jnp, cache, new: jnp.concatenate([cache[:, 1:], new], 1),
        lambda torch, cache, new: torch.cat([cache[:, 1:], new], 1),
    ),
    "the mean of a product": Pair(
        "product-order", (of(65536, 4096), of(4096, 4096)), lambda _, x, w: (x @ w).mean(0), lambda _, x, w: (x @ w).mean(0)
    ),
    "a square matrix before a vector": Pair(
        "product-order", (of(16384, 4096), of(4096, 1)), lambda _, a, v: (a.T @ a) @ v, lambda _, a, v: (a.T @ a) @ v
    ),
    "experts of which each token picks one": Pair(
        "dense-experts", (of(4096, 1024), of(8, 1024, 2048), of(4096, dtype=INT32)), jax_picked, torch_picked
    ),
    "a low-rank product": Pair(
        "product-order", (of(32768, 4096), of(4096, 32), of(32, 4096)), lambda _, x, a, b: x @ (a @ b), lambda _, x, a, b: x @ (a @ b)
    ),
    "low-rank factors added for few rows": Pair(
        "product-order",
        (of(8, 4096), of(4096, 4096), of(4096, 16), of(16, 4096)),
        lambda _, x, w, a, b: x @ (w + 0.5 * (a @ b)),
        lambda _, x, w, a, b: x @ (w + 0.5 * (a @ b)),
        apart=3.1,  # XLA adds in the kernel of the product: one matrix is written, not three
    ),
    "averaged products of one array": Pair(
        "product-order",
        (of(8192, 2048), of(8, 2048, 2048)),
        lambda jnp, x, w: jnp.stack([x @ w[number] for number in range(8)]).mean(0),
        lambda torch, x, w: torch.stack([x @ w[number] for number in range(8)]).mean(0),
    ),
    "ranks that are compared": Pair(
        "unused-results",
        (of(256, 65536, dtype="float32"),),
        lambda jnp, x: jnp.where(jnp.argsort(jnp.argsort(-x, -1), -1) < 64, x, 0.0),
        lambda torch, x: torch.where(x.argsort(-1, descending=True).argsort(-1) < 64, x, 0.0),
        apart=1.5,  # positions of 8 bytes, not 4
    ),
}


def in_jax(pair: Pair) -> Report:
    jax = pytest.importorskip("jax")
    import roofline.jax

    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in pair.arguments]
    return roofline.jax.analyze(partial(pair.jax, jax.numpy), chip=CHIP)(*arguments)


def in_torch(pair: Pair, *, compile: bool = False) -> Report:
    torch = pytest.importorskip("torch")
    import roofline.torch

    arguments = [torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for shape, dtype in pair.arguments]

    def program(*given: Any) -> Any:
        return pair.torch(torch, *given)

    return roofline.torch.analyze(program, chip=CHIP, compile=compile)(*arguments)


def promised(report: Report, kind: str) -> float:
    return sum(finding.saving_s or 0 for finding in report.findings if finding.kind == kind)


@pytest.mark.jax
@every("name", PAIRS)
def test_a_fault_is_told_in_jax(name: str) -> None:
    assert promised(in_jax(PAIRS[name]), PAIRS[name].kind) > 0


@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.filterwarnings("ignore")
@every("name", PAIRS)
def test_a_fault_is_told_in_both_frameworks_with_about_the_same_saving(name: str) -> None:
    pair = PAIRS[name]
    savings = sorted((promised(in_jax(pair), pair.kind), promised(in_torch(pair), pair.kind)))
    assert 0 < savings[1] <= pair.apart * savings[0]


@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.filterwarnings("ignore")
@every("name", PAIRS)
def test_a_fault_is_told_in_what_would_be_compiled(name: str) -> None:
    pair = PAIRS[name]
    savings = sorted((promised(in_jax(pair), pair.kind), promised(in_torch(pair, compile=True), pair.kind)))
    assert 0 < savings[1] <= pair.apart * savings[0]
