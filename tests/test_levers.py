"""Every function that a lever names runs on a small program of its kind, in both frameworks.

What only a device runs (Pallas kernels of TPUs and GPUs, CUDA graphs, cuDNN) is looked up; `rules/words/needs.toml` has its restrictions.
"""

import re
from collections.abc import Callable, Iterator
from functools import reduce
from importlib import import_module
from itertools import chain
from typing import Any

import pytest

from roofline.rules.words import Replaced, Section, kinds, page
from roofline.rules.words.needs import needs

NAMES = re.compile(r"\b((?:jax|jnp|lax|torch|nn|F)\.[A-Za-z_][\w.]*)")
JAX_ROOTS = {"jax": "jax", "jnp": "jax.numpy", "lax": "jax.lax"}
TORCH_ROOTS = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional"}
# Looked up, not run: they need an accelerator, change the process, or are no functions.
NOT_RUN = re.compile(
    r"jax\.experimental\.(pallas|layout|checkify)|jax\.checkpoint_policies|jnp\.(inf|bfloat16)$|lax\.reduce_window"
    r"|torch\.(cuda|backends|_inductor|_grouped_mm|channels_last|bfloat16|float32|utils)|torch\.(compile|set_|autograd)"
)
Run = Callable[[], Any]


def levers() -> Iterator[str]:
    """Every lever of the catalogue."""
    for kind in kinds():
        sections: list[Section | Replaced] = [page(kind), *page(kind).groups.values()]
        for section in sections[:]:
            sections += section.on.values() if isinstance(section, Section) else ()
        for section in sections:
            yield from chain(section.levers or (), *(section.cases or {}).values())


def named(roots: dict[str, str]) -> list[str]:
    """The functions of some modules that levers name."""
    found = {name.rstrip(".") for lever in levers() for name in NAMES.findall(lever)}
    return sorted(name for name in found if name.partition(".")[0] in roots)


def found_in(name: str, roots: dict[str, str]) -> object:
    """What a name refers to: an attribute, or else a module."""
    root, *rest = name.split(".")
    try:
        return reduce(getattr, rest, import_module(roots[root]))
    except AttributeError:
        return import_module(".".join([roots[root], *rest]))


def jax_programs() -> dict[str, Run]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    x, w = jnp.ones((8, 16)), jnp.ones((16, 16))
    spd, key, taps = jnp.eye(16) * 2, jax.random.key(0), jnp.ones((8, 1, 3))
    q = jnp.ones((1, 16, 2, 8), jnp.bfloat16)

    @jax.custom_vjp
    def square(v: Any) -> Any:
        return v * v

    square.defvjp(lambda v: (v * v, v), lambda v, g: (2 * v * g,))
    a, b, v = (jax.random.normal(key, shape) for shape in ((4, 3), (2, 5), (15, 7)))

    def by_factors() -> Any:
        result = jnp.einsum("ij,kl,jln->ikn", a, b, v.reshape(a.shape[1], b.shape[1], -1)).reshape(-1, v.shape[-1])
        assert jnp.allclose(result, jnp.kron(a, b) @ v, atol=1e-5)
        return result

    def ranks() -> None:
        order = jnp.argsort(jax.random.normal(key, (3, 8)), -1)
        found = jnp.put_along_axis(jnp.zeros_like(order), order, jnp.broadcast_to(jnp.arange(8), order.shape), -1, inplace=False)
        assert (found == jnp.argsort(order, -1)).all()

    return {
        "jax.checkpoint": lambda: jax.grad(jax.checkpoint(lambda v: (v @ w).sum()))(x),
        "jax.custom_vjp": lambda: jax.grad(lambda v: square(v).sum())(x),
        "jax.device_get": lambda: jax.device_get(x),
        "jax.device_put": lambda: jax.device_put(x),
        "jax.grad": lambda: jax.grad(lambda v: v.sum())(x),
        "jax.jacfwd": lambda: jax.jacfwd(lambda v: v.sum(0))(x),
        "jax.jacrev": lambda: jax.jacrev(lambda v: v.sum(0))(x),
        "jax.jit": lambda: jax.jit(lambda v: v + 1, donate_argnums=())(x),
        "jax.jvp": lambda: jax.jvp(lambda v: v.sum(), (x,), (x,)),
        "jax.lax.approx_max_k": lambda: lax.approx_max_k(x, 4),
        "jax.lax.conv_general_dilated": lambda: lax.conv_general_dilated(x[None], taps, (1,), "SAME", feature_group_count=8),
        "jax.lax.dot": lambda: lax.dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
        "jax.lax.dot_general": lambda: lax.dot_general(x, w, (((1,), (1,)), ((), ()))),
        "jax.lax.dynamic_update_slice": lambda: lax.dynamic_update_slice(x, x[:1], (0, 0)),
        "jax.lax.ragged_dot": lambda: lax.ragged_dot(x, jnp.ones((2, 16, 4)), jnp.array([3, 5])),
        "jax.lax.top_k": lambda: lax.top_k(x, 4),
        "jax.nn.dot_product_attention": lambda: jax.nn.dot_product_attention(q, q, q, is_causal=True),
        "jax.nn.logsumexp": lambda: jax.nn.logsumexp(x, -1),
        "jax.nn.one_hot": lambda: jax.nn.one_hot(jnp.arange(4), 8),
        "jax.ops.segment_sum": lambda: jax.ops.segment_sum(x, jnp.arange(8) % 2, 2),
        "jax.random.bits": lambda: jax.random.bits(key, (8,)),
        "jax.random.permutation": lambda: jax.random.permutation(key, 8),
        "jax.tree.map": lambda: jax.tree.map(lambda v: v.astype(jnp.bfloat16), {"w": w}),
        "jax.vmap": lambda: jax.vmap(lambda v: v @ w)(x),
        "lax.associative_scan": lambda: lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x)),
        "lax.cond": lambda: lax.cond(x.sum() > 0, lambda v: v, lambda v: -v, x),
        "lax.dynamic_update_slice": lambda: lax.dynamic_update_slice(x, x[:1], (0, 0)),
        "lax.fori_loop": lambda: lax.fori_loop(0, 3, lambda _, v: v + 1, x, unroll=True),
        "lax.scan": lambda: lax.scan(lambda c, v: (c + v, c), x[0], x, unroll=2),
        "lax.while_loop": lambda: lax.while_loop(lambda v: v.sum() < 0, lambda v: v + 1, x),
        "jnp.arange": lambda: jnp.arange(4),
        "jnp.argsort": lambda: jnp.argsort(x),
        "jnp.bincount": lambda: jnp.bincount(jnp.arange(4), length=8),
        "jnp.concatenate": lambda: jnp.concatenate([w, w], 1),
        "jnp.broadcast_to": ranks,
        "jnp.cumsum": lambda: jnp.cumsum(x, 0),
        "jnp.dot": lambda: jnp.dot(x, w),
        "jnp.einsum": lambda: jnp.einsum("ij,jk->ik", x, w),
        "jnp.fft.ifft": lambda: jnp.fft.ifft(x),
        "jnp.fft.irfft": lambda: jnp.fft.irfft(jnp.fft.rfft(x, 16), 16),
        "jnp.fft.rfft": lambda: jnp.fft.rfft(x, 16),
        "jnp.isfinite": lambda: jnp.isfinite(x),
        "jnp.kron": by_factors,
        "jnp.linalg.cholesky": lambda: jnp.linalg.cholesky(spd),
        "jnp.linalg.inv": lambda: jnp.linalg.inv(spd),
        "jnp.linalg.multi_dot": lambda: jnp.linalg.multi_dot([x, w, w]),
        "jnp.linalg.solve": lambda: jnp.linalg.solve(spd, w),
        "jnp.nonzero": lambda: jnp.nonzero(x, size=4),
        "jnp.outer": lambda: jnp.outer(x[0], x[1]) @ w,
        "jnp.pad": lambda: jnp.pad(x, ((0, 0), (0, 8))),
        "jnp.put_along_axis": ranks,
        "jnp.quantile": lambda: jnp.quantile(x, 0.5),
        "jnp.repeat": lambda: jnp.repeat(x, 2, 0),
        "jnp.roll": lambda: jnp.roll(x, 1),
        "jnp.stack": lambda: jnp.stack([w, w]),
        "jnp.take": lambda: jnp.take(w, jnp.arange(4), 0),
        "jnp.where": lambda: jnp.where(x > 0, x, 0),
        "jnp.zeros_like": ranks,
        "jnp.zeros": lambda: jnp.zeros(4, jnp.bfloat16),
    }


def torch_programs() -> dict[str, Run]:
    import torch
    import torch.nn.functional as F
    from torch import nn

    x, w, spd, ids = torch.ones(8, 16), torch.ones(16, 16), 2 * torch.eye(16), torch.arange(4)
    q = torch.ones(1, 2, 16, 8, dtype=torch.bfloat16)

    def autocast() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return x @ w

    def inference() -> Any:
        with torch.inference_mode():
            return x @ w

    def by_factors() -> Any:
        a, b, v = torch.randn(4, 3), torch.randn(2, 5), torch.randn(15, 7)
        result = torch.einsum("ij,kl,jln->ikn", a, b, v.view(a.shape[1], b.shape[1], -1)).reshape(-1, v.shape[-1])
        assert torch.allclose(result, torch.kron(a, b) @ v, atol=1e-5)
        return result

    def ranks() -> None:
        order = torch.randn(3, 8).argsort(-1)
        found = torch.empty_like(order).scatter_(-1, order, torch.arange(8, device=order.device).expand_as(order))
        assert torch.equal(found, order.argsort(-1))

    stacked = [nn.Linear(4, 4) for _ in range(2)]
    return {
        "F.conv2d": lambda: F.conv2d(torch.ones(1, 4, 8, 8), torch.ones(4, 1, 3, 3), groups=4),
        "F.cross_entropy": lambda: F.cross_entropy(x, ids.repeat(2)),
        "F.embedding": lambda: F.embedding(ids, w),
        "F.pad": lambda: F.pad(x, (0, 8)),
        "F.scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "F.unfold": lambda: F.unfold(torch.ones(1, 1, 4, 4), 2),
        "nn.Embedding": lambda: nn.Embedding(8, 4, sparse=True)(ids).sum().backward(),
        "nn.EmbeddingBag": lambda: nn.EmbeddingBag(8, 4, mode="sum", sparse=True)(ids[None]),
        "nn.GRU": lambda: nn.GRU(16, 4)(x),
        "nn.GRUCell": lambda: nn.GRUCell(16, 4)(x),
        "nn.LSTM": lambda: nn.LSTM(16, 4)(x),
        "nn.LSTMCell": lambda: nn.LSTMCell(16, 4)(x),
        "nn.Parameter": lambda: nn.Parameter(torch.stack([w, w])),
        "nn.MultiheadAttention": lambda: nn.MultiheadAttention(16, 2)(x, x, x, need_weights=False),
        "torch.arange": ranks,
        "torch.autocast": autocast,
        "torch.bmm": lambda: torch.bmm(x[None], w[None]),
        "torch.cat": lambda: torch.cat([w, w]),
        "torch.cdist": lambda: torch.cdist(x, w),
        "torch.cholesky_solve": lambda: torch.cholesky_solve(w, torch.linalg.cholesky(spd)),
        "torch.einsum": lambda: torch.einsum("ij,jk->ik", x, w),
        "torch.empty_like": ranks,
        "torch.fft.ifft": lambda: torch.fft.ifft(x),
        "torch.fft.irfft": lambda: torch.fft.irfft(torch.fft.rfft(x, 16), 16),
        "torch.fft.rfft": lambda: torch.fft.rfft(x, 16),
        "torch.func.grad": lambda: torch.func.grad(lambda v: v.sum())(x),
        "torch.func.stack_module_state": lambda: torch.func.stack_module_state(stacked),
        "torch.func.vmap": lambda: torch.func.vmap(lambda v: v @ w)(x),
        "torch.inference_mode": inference,
        "torch.kron": by_factors,
        "torch.linalg.cholesky": lambda: torch.linalg.cholesky(spd),
        "torch.linalg.inv": lambda: torch.linalg.inv(spd),
        "torch.linalg.multi_dot": lambda: torch.linalg.multi_dot([x, w, w]),
        "torch.linalg.solve": lambda: torch.linalg.solve(spd, w),
        "torch.outer": lambda: torch.outer(x[0], x[1]) @ w,
        "torch.randn": lambda: torch.randn(4),
        "torch.repeat_interleave": lambda: torch.repeat_interleave(x, torch.full((8,), 2), 0, output_size=16),
        "torch.searchsorted": lambda: torch.searchsorted(torch.arange(8), ids),
        "torch.stack": lambda: torch.stack([w, w]),
        "torch.tensor": lambda: torch.tensor([1.0, 2.0]),
        "torch.topk": lambda: torch.topk(x, 4),
        "torch.vmap": lambda: torch.vmap(lambda v: v @ w)(x),
        "torch.where": lambda: torch.where(x > 0, x, 0.0),
    }


def check(roots: dict[str, str], programs: dict[str, Run]) -> None:
    names = named(roots)
    for name in names:
        assert found_in(name, roots) is not None, name
        if not NOT_RUN.search(name):
            assert name in programs, f"{name}: a lever names it, and no program here runs it"
            programs[name]()


def test_levers_of_jax_run() -> None:
    pytest.importorskip("jax")
    check(JAX_ROOTS, jax_programs())


@pytest.mark.torch
def test_levers_of_pytorch_run() -> None:
    pytest.importorskip("torch")
    check(TORCH_ROOTS, torch_programs())


def test_attention_of_cudnn_refuses_what_the_catalogue_says() -> None:
    jax = pytest.importorskip("jax")
    from jax._src.cudnn.fused_attention_stablehlo import AttentionLayout, check_layout

    need = needs()["attention kernel"]

    def refuses(dtype: str, size: int) -> bool:
        q = jax.ShapeDtypeStruct((1, 128, 2, size), dtype)
        try:
            check_layout(q, q, q, *[None] * 7, layout=AttentionLayout.BTNH)
        except (NotImplementedError, ValueError):
            return True
        return False

    assert not refuses("bfloat16", need.multiple)
    assert refuses("float32", need.multiple) == (need.bits < 32)
