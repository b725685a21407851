"""Small JAX programs with one decision each: `python tests/data/rules/small.py [NAME …]` lowers them for an H200 again.

`small.toml` says of each what the rules tell, and nothing else: the faults of some, and of others, which look alike, that they have none.
"""

import gzip
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

FOLDER = Path(__file__).parent / "small"
BF16, FP32, INT32 = "bfloat16", "float32", "int32"


def of(*dims: int, dtype: str = BF16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


wide = partial(of, dtype=FP32)
ids = partial(of, dtype=INT32)
PROGRAMS: dict[str, tuple[Any, ...]] = {}


def program(*args: Any, name: str = "", **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a function, with the shapes of its arguments and the options that it is called with."""

    def added(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[name or function.__name__] = (partial(function, **options) if options else function, *args)
        return function

    return added


def one_hot(numbers, count):
    return jax.nn.one_hot(numbers, count, dtype=BF16)


# One-hot matrices.


@program(ids(8192), of(32000, 2048))
def embedding_by_one_hot_rows(ids, table):
    return one_hot(ids, 32000) @ table


@program(ids(8192, 20), of(32000, 512), name="bag_summed", used=jnp.sum)
@program(ids(8192, 20), of(32000, 512), name="bag_maximum", used=jnp.max)
def bag(ids, table, *, used):
    return used(one_hot(ids, 32000), axis=1) @ table


@program(of(16, 4096, 128), ids(4096, 16))
def tables_as_long_as_the_batch(tables, ids):
    def total(tables, ids):
        return jnp.einsum("bfv,fvd->bfd", one_hot(ids, 4096), tables).astype(FP32).sum()

    return jax.value_and_grad(total)(tables, ids)


@program(of(8, 1024, 512), ids(8, 1024), ids(8, 1024), of(8, 1024))
def tokens_put_into_slots_by_masks(x, expert, slot, gate):
    """8 groups of 1024 tokens; a mask has a one for each token at its expert (of 16) and its slot there (of 128)."""
    mask = one_hot(expert, 16)[..., None] * one_hot(slot, 128)[:, :, None]
    slots = jnp.einsum("gtec,gtd->egcd", mask, x)
    return jnp.einsum("egcd,gtec->gtd", jnp.tanh(slots), mask * gate[..., None, None])


@program(of(16, 1024, 512), ids(1024), of(1024, 16), name="gates_of_one_expert", factor=1.0)
@program(of(16, 1024, 512), ids(1024), of(1024, 16), name="scaled_gates_of_one_expert", factor=2.0)
def gates(x, expert, gate, *, factor):
    return jnp.einsum("te,etd->td", one_hot(expert, 16) * gate * factor, x)


@program(of(32000, 2048), ids(8192), of(2048, 2048))
def gradient_of_a_one_hot_product(table, ids, weights):
    return jax.grad(lambda table, weights: ((one_hot(ids, 32000) @ table) @ weights).astype(FP32).sum(), (0, 1))(table, weights)


@program(of(512, 512), of(512, 512), of(512, 512))
def comparison_that_is_no_one_hot_matrix(x, y, w):
    return (x == y).astype(BF16) @ w


@program(of(512, 128), of(128, 256), ids(512))
def rows_that_a_scatter_overwrote(rows, w, ids):
    """The gradient compares the place of each row with the row that was written last, and multiplies what is left."""
    return jax.grad(lambda rows, w: (jnp.zeros((512, 256), BF16).at[ids].set(rows @ w) ** 2).astype(FP32).sum(), (0, 1))(rows, w)


@program(ids(16384), of(8192, 1024))
def rows_of_the_identity(ids, table):
    return jnp.eye(8192, dtype=BF16)[ids] @ table


# Attention.


def attention(q, k, v, causal=False):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(FP32) / 11.3
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


HEADS = (of(4, 16, 2048, 128),) * 3
NARROW_HEADS = (of(4, 16, 2048, 64),) * 3
program(*HEADS, name="attention_that_stores_scores")(attention)
program(*HEADS, name="causal_attention_that_stores_scores", causal=True)(attention)
program(of(16, 32, 1, 128), of(16, 32, 4096, 128), of(16, 32, 4096, 128), name="decoding_one_token")(attention)


@program(of(8, 4, 4, 512, 64), of(8, 4, 512, 64), of(8, 4, 512, 64))
def grouped_heads(q, k, v):
    """One product makes the scores of all 4 query heads that share a head of keys: its 2048 rows are 4 x 512 in the arrays behind it."""
    scores = jnp.einsum("bgrqd,bgkd->bgrqk", q, k).astype(FP32)
    turned = jnp.swapaxes(jnp.swapaxes(scores, 2, 3), 3, 4).astype(q.dtype)
    weights = jax.nn.softmax(jnp.moveaxis(lax.optimization_barrier(turned), -1, 2).astype(FP32), -1).astype(q.dtype)
    return jnp.einsum("bgrqk,bgkd->bgrqd", weights, v)


@program(of(4, 4, 16, 512, 128), of(4, 16, 2048, 128), of(4, 16, 2048, 128))
def queries_in_chunks(q, k, v):
    return lax.map(lambda part: attention(part, k, v), q)


@program(of(4, 16, 512, 64), of(4, 16, 4096, 64), of(4, 16, 4096, 64))
def causal_mask_over_more_keys_than_queries(q, k, v):
    """The last of 512 queries sees all of 4096 keys, the first 3585: 15/16 of the pairs."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(FP32)
    seen = jnp.arange(512)[:, None] + 3584 >= jnp.arange(4096)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(seen, scores, -1e9), -1).astype(q.dtype), v)


BIASES = {
    "other_than_self": lambda queries, keys: jnp.where(queries != keys, 0, -jnp.inf),
    "by_distance": lambda queries, keys: jnp.where(queries < keys, queries - keys, 0.0) * 0.1,
    "in_window": lambda queries, keys: jnp.where(jnp.abs(queries - keys) < 256, 0, -1e9),
    "causal_bias": lambda queries, keys: jnp.where(queries >= keys, (keys - queries) * 0.1, -jnp.inf),
}


def biased(q, k, v, *, bias):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(FP32) + bias(jnp.arange(2048)[:, None], jnp.arange(2048)[None])
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


for kind, bias in BIASES.items():
    program(*NARROW_HEADS, name=f"attention_{kind}", bias=bias)(biased)


@program(*NARROW_HEADS)
def attention_that_returns_its_weights(q, k, v):
    weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(FP32), -1).astype(q.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v), weights


@program(of(8, 4096, 64), of(8, 64, 256), of(8, 256, 64))
def norm_between_products(x, up, down):
    hidden = jnp.einsum("end,edf->enf", x, up).astype(FP32)
    hidden = hidden / (1 + jnp.exp(-hidden))
    hidden = hidden / jnp.sqrt((hidden**2).mean(-1, keepdims=True) + 1e-6)
    return jnp.einsum("enf,efd->end", hidden.astype(x.dtype), down)


@program(of(4096, 1024), of(32000, 1024), ids(4096))
def logits_of_a_loss(x, table, ids):
    def loss(x, table):
        return -jnp.take_along_axis(jax.nn.log_softmax((x @ table.T).astype(FP32)), ids[:, None], -1).mean()

    return jax.grad(loss, (0, 1))(x, table)


@program(of(512, 512), of(8192, 512), of(8192, 512))
def contrastive_loss(w, x, y):
    return jax.grad(lambda w: jnp.log(jnp.diagonal(jax.nn.softmax(((x @ w) @ (y @ w).T).astype(FP32)))).sum())(w)


@program(of(512, 512), of(8192, 512), of(8192, 512))
def attention_to_other_data(w, x, y):
    return jax.grad(lambda w: jnp.tanh(jax.nn.softmax(((x @ w) @ (y @ w).T).astype(FP32)).astype(BF16) @ y).sum())(w)


@program(of(512, 512), of(8192, 512), of(8192, 512))
def gradients_of_attention_without_its_result(w, x, towards):
    def mixed(q, k, v):
        return ((jax.nn.softmax((q @ k.T).astype(FP32)).astype(BF16) @ v) * towards).sum()

    return jax.grad(mixed)(x @ w, x @ w, x @ w)


# What is computed again.


def tanh_layer(x, w):
    return jnp.tanh(x @ w)


@program([of(1024, 1024)] * 3, of(4096, 1024), name="checkpointed_layers", wrapped=jax.checkpoint(tanh_layer))
@program([of(1024, 1024)] * 3, of(4096, 1024), name="plain_layers", wrapped=tanh_layer)
def layers_trained(ws, x, *, wrapped):
    def total(ws, x):
        for w in ws:
            x = wrapped(x, w)
        return x.astype(FP32).sum()

    return jax.value_and_grad(total)(ws, x)


@program((of(4, 512, 512), of(4, 512, 512)), of(4096, 512), name="shallow_layers_recomputed_in_a_loop")
@program((of(4, 16384, 512), of(4, 512, 16384)), of(4096, 16384), name="deep_layers_recomputed_in_a_loop")
def recomputed_in_a_loop(ws, x):
    """To keep a result of bf16 takes 12 passes over it, 24 B/element; 2·depth FLOP compute one: on an H200 5 against 0.002·depth ps."""

    def layer(x, ws):
        return jnp.tanh(jnp.tanh(x @ ws[0]) @ ws[1]), None

    return jax.grad(lambda ws: lax.scan(jax.checkpoint(layer), x, ws)[0].astype(FP32).sum())(ws)


@program(wide(4096, 4096))
def buffers_that_are_filled_alike(x):
    return lax.fori_loop(0, 3, lambda _, sums: (sums[0] + x, sums[1] - x), (jnp.zeros_like(x), jnp.zeros_like(x)))


# Operands that are repeated.


@program(of(16, 32, 128), of(16, 4, 4096, 128), name="keys_repeated_for_query_heads", repeats=8)
@program(of(16, 4, 128), of(16, 4, 4096, 128), name="keys_of_each_head", repeats=1)
def scores_of_heads(q, k, *, repeats):
    return (q[:, :, None, :] * jnp.repeat(k, repeats, axis=1)).astype(FP32).sum(-1)


@program(wide(2**22), wide(16))
def powers_of_an_array(x, factors):
    return (x[:, None] ** jnp.arange(16, dtype=FP32) * factors).sum(-1)


@program(of(4096, 1024), ids(4096), of(64, 1024, 4096))
def matrices_gathered_for_each_row(x, chosen, weights):
    """64 matrices of 8 MB; 4096 tokens gather 34 GB of them."""
    return jnp.einsum("td,tdf->tf", x, weights[chosen])


@program(of(8192, 1024), of(16, 1024, 4096))
def tokens_repeated_for_their_experts(x, weights):
    return lax.optimization_barrier(jnp.repeat(x, 2, 0)).reshape(16, 1024, 1024) @ weights


@program(ids(8192), of(8192, 1024), of(1024, 1024))
def rows_looked_up_and_multiplied(ids, table, up):
    return table[ids] @ up


@program(of(8, 32, 256, 128), of(8, 8, 8192, 128))
def keys_stored_for_each_query_head(q, k):
    return jnp.einsum("bhqd,bhkd->bhqk", q, lax.optimization_barrier(jnp.repeat(k, 4, 1)))


ROWS = of(1024, 1024), of(1024, 1024), of(16384, 1024), ids(16384)
REPEATED_ROWS = {
    "repeated": lambda x, w, other, ids: jnp.repeat(x, 16, 0) @ w * other,
    "repeated_for_two_layers": lambda x, w, other, ids: jax.nn.relu(jax.nn.relu(jnp.repeat(x, 16, 0) @ w) @ w) * other,
    "features_of_nodes_for_each_edge": lambda x, w, other, ids: jnp.tanh(x @ w)[ids] @ w,
    "repeated_after_the_product": lambda x, w, other, ids: jnp.repeat(x @ w, 16, 0) * other,
    "repeated_and_added_to_others": lambda x, w, other, ids: (jnp.repeat(x, 16, 0) + other) @ w,
    "gathered_no_more_than_there_are": lambda x, w, other, ids: jnp.tanh(x @ w)[ids[:1024]] @ w,
    "summed_by_ones": lambda x, w, other, ids: jnp.ones((16, 1024), BF16) @ x,
    "repeated_above_others": lambda x, w, other, ids: (
        jnp.concatenate([jnp.repeat(x, 16, 0), other[:, :512]], 1) @ jnp.concatenate([w, w[:512]])
    ),
    "a_part_repeated_beside_others": lambda x, w, other, ids: (
        jnp.concatenate([jnp.repeat(x[:, :512], 16, 0), other], 1) @ jnp.concatenate([w, w[:512]])
    ),
    "gathered_and_repeated": lambda x, w, other, ids: (
        jnp.concatenate([jnp.tanh(x)[ids], jnp.repeat(x, 16, 0)], 1) @ jnp.concatenate([w, w])
    ),
    "repeated_through_layers": lambda x, w, other, ids: jnp.tanh(jnp.repeat(x, 16, 0) @ w) @ w,
    "looked_up_more_often_than_there_are": lambda x, w, other, ids: x[ids] @ w,
    "looked_up_as_often_as_there_are": lambda x, w, other, ids: other[ids] @ w,
    "graph_of_two_layers": lambda x, w, other, ids: jax.nn.relu((x[ids] @ w).reshape(1024, 16, 1024).sum(1))[ids] @ w,
}
for kind, function in REPEATED_ROWS.items():
    program(*ROWS, name=f"rows_{kind}")(function)


@program(
    {name: of(1024, 1024) for name in ("own", "a", "b")}, of(1024, 1024), of(16384, 1024), ids(16384), name="gradients_of_repeated_rows"
)
@program(
    {name: of(1024, 1024) for name in ("own", "a", "b")},
    of(1024, 1024),
    of(16384, 1024),
    ids(16384),
    name="gradients_of_gathered_rows",
    gathered=True,
)
def gradients_of_rows(weights, x, other, ids, *, gathered=False):
    """Told are two products forward, two of weights and two of rows; not those of the rows before they were repeated."""

    def loss(weights):
        h = jnp.tanh(x @ weights["own"])
        rows = h[ids] if gathered else jnp.repeat(h, 16, 0)
        return jnp.sum((jax.nn.relu(jax.nn.relu(rows @ weights["a"]) @ weights["b"]) * other).astype(FP32) ** 2)

    return jax.grad(loss)(weights)


# Number formats.


@program(wide(2048, 2048), wide(2048, 2048), name="fp32_at_highest_precision", precision="highest")
@program(wide(2048, 2048), wide(2048, 2048), name="fp32", precision=None)
def multiplied(x, w, *, precision):
    return jnp.dot(x, w, precision=precision)


@program(wide(512, 96, 64), wide(512, 64, 64), name="matrices_that_are_factorised", solved=True)
@program(wide(512, 96, 64), wide(512, 64, 64), name="matrices_that_are_multiplied", solved=False)
def normal_equations(j, r, *, solved):
    matrix = jnp.einsum("bij,bik->bjk", j, j) + 1e-3 * jnp.eye(64)
    return jnp.linalg.cholesky(matrix) if solved else jnp.tanh(matrix) @ r


@program(of(8192, 4096), of(4096, 4096))
def bf16_widened_before_a_product(x, w):
    return jnp.dot(x.astype(FP32), w.astype(FP32), precision="highest")


program(of(1024, 1024, dtype="complex64"), of(1024, 1024, dtype="complex64"), name="complex_product")(jnp.matmul)
program(wide(2**24), wide(2**24), name="inner_product")(jnp.vdot)


@program(of(8192, 1024), wide(1024, 64), of(1024, 1024), name="router_alone_in_fp32", layers=0)
@program(of(8192, 1024), wide(1024, 64), of(1024, 1024), name="router_in_fp32_among_layers", layers=3)
def routed(x, router, weights, *, layers):
    for _ in range(layers):
        x = jax.nn.relu(x @ weights)
    return x.astype(FP32) @ router


# Shapes.

program(wide(100_000, 8, 8), name="tiny_factorisations")(jnp.linalg.cholesky)
program(wide(100_000, 9, 9), name="small_factorisations")(jnp.linalg.cholesky)
program(wide(100, 8, 8), name="few_tiny_factorisations")(jnp.linalg.cholesky)
program(of(4097, 4097), of(4097, 4097), name="product_of_odd_sizes")(jnp.matmul)
program(of(4096, 4096), of(4096, 4096), name="product_of_even_sizes")(jnp.matmul)
program(wide(2**20, 3, 3), wide(2**20, 3, 3), name="tiny_matrices")(jnp.matmul)
program(wide(2, 2), wide(2, 2**24), name="one_tiny_matrix")(jnp.matmul)
program(of(2**20, 3), of(3, 64), name="coordinates_into_features")(jnp.matmul)
program(of(8192, 1024), of(1024, 4), name="narrow_result")(jnp.matmul)
program(of(1, 4096), of(4096, 16384), name="one_row")(jnp.matmul)
program(of(512, 4096), of(4096, 16384), name="many_rows")(jnp.matmul)


def stencil(field, weights):
    return lax.conv_general_dilated(field, weights, (1, 1, 1), "SAME")


program(wide(1, 1, 320, 320, 320), wide(1, 1, 3, 3, 3), name="stencil")(stencil)
program(of(8, 8, 64, 64, 64), of(8, 8, 3, 3, 3), name="convolution_of_channels")(stencil)
program(of(1, 1, 320, 320, 320), of(1, 1, 9, 9, 9), name="stencil_of_many_sums")(stencil)


@program(of(64, 56, 56, 128), of(3, 3, 128, 128), name="convolution")
@program(of(64, 56, 56, 129), of(3, 3, 129, 129), name="convolution_of_odd_channels")
@program(wide(64, 56, 56, 128), wide(3, 3, 128, 128), name="convolution_in_fp32")
def convolved(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


# Orders of products.

BETWEEN = {"scaled": lambda s: s / 8192, "alone": lambda s: s, "exponential": jnp.exp, "masked": jnp.tril}
for kind, between in BETWEEN.items():

    @program(*(of(8192, 16, 64),) * 3, name=f"linear_attention_{kind}", between=between)
    def linear_attention(q, k, v, *, between):
        return jnp.einsum("hqk,khe->qhe", between(jnp.einsum("qhd,khd->hqk", q, k)), v)


program(of(8192, 8192), of(8192, 8192), of(8192, 64), name="large_matrices_before_a_narrow_one")(lambda a, b, c: (a @ b) @ c)
program(of(8192, 8192), of(8192, 8192), of(8192, 64), name="a_narrow_matrix_first")(lambda a, b, c: a @ (b @ c))
program(of(8192, 8192), of(8192, 8192), of(8192, 64), name="an_activation_between")(lambda x, a, b: jax.nn.relu(x @ a) @ b)
DIAGONAL = {
    "right": lambda x, d: x @ jnp.diag(d),
    "left": lambda x, d: jnp.diag(d) @ x.T,
    "of_the_identity": lambda x, d: x @ (jnp.eye(1024, dtype=BF16) * d),
    "of_another_matrix": lambda x, d: x @ jnp.where(jnp.eye(1024, dtype=bool), d, x[:1024]),
    "and_below": lambda x, d: x @ jnp.tril(x[:1024]),
}
for kind, function in DIAGONAL.items():
    program(of(4096, 1024), of(1024), name=f"diagonal_{kind}")(function)
ADDED_UP = {
    "mean_of_rows": lambda x, w: (x @ w).mean(1),
    "sum_of_all_rows": lambda x, w: (2 * (x @ w)).sum((0, 1)),
    "sum_of_columns": lambda x, w: (x @ w).sum(-1),
    "mean_of_tanh": lambda x, w: jnp.tanh(x @ w).mean(1),
    "maximum": lambda x, w: (x @ w).max(1),
    "layer_norm": lambda x, w: (y := x @ w) - y.mean(-1, keepdims=True),
    "residual": lambda x, w: (x + (x @ w)[..., :1024]).mean(1),
}
for kind, function in ADDED_UP.items():
    program(of(16, 4096, 1024), of(1024, 2048), name=f"added_up_{kind}")(function)


@program({"a": of(4096, 16), "b": of(16, 4096)}, of(4096, 4096), of(16384, 4096))
def gradients_of_narrow_factors(p, frozen, x):
    return jax.grad(lambda p: jnp.tanh(x @ frozen + x @ (p["a"] @ p["b"])).astype(FP32).sum())(p)


# Results that are not used.


@program(of(4096, 2048), of(128256, 2048))
def results_of_which_an_eighth_is_used(h, table):
    return jax.nn.log_softmax((h @ table.T).astype(FP32), -1)[::8].sum()


@program(of(8192, 1024), of(1024, 4096))
def results_of_which_a_thousandth_is_used(x, up):
    return lax.optimization_barrier(x @ up)[-8:]


@program(of(8, 1024), of(1024, 1024), of(1024, 32768), name="logits_of_the_last_of_one_token", tokens=1)
@program(of(8192, 1024), of(1024, 1024), of(1024, 32768), name="logits_of_the_last_token", tokens=1024)
def prefill(x, weights, head, *, tokens):
    return (x @ weights).reshape(8, tokens, 1024)[:, -1] @ head


@program(of(32000, 1024), of(8192, 1024), ids(1024))
def gradients_of_results_that_are_not_used(table, x, where):
    return jax.grad(lambda table, x: jax.nn.logsumexp((x @ table.T)[where].astype(FP32), -1).sum(), (0, 1))(table, x)


@program(of(8192, 32, 64))
def one_triangle_of_all_pairs(x):
    i, j = jnp.tril_indices(32, -1)
    return jax.value_and_grad(lambda x: jnp.einsum("bsd,btd->bst", x, x)[:, i, j].astype(FP32).sum())(x)


program(wide(8192, 4096), name="place_of_the_largest")(lambda x: x.argmax(-1))


@program(of(8, dtype="bool"), of(8, 1024, 2048), of(2048, 8192), of(2048, 8192))
def both_branches_for_each_example(which, x, a, b):
    return jax.vmap(lambda w, x: lax.cond(w, lambda: jax.nn.gelu(x @ a), lambda: jax.nn.relu(x @ b)))(which, x)


@program(of(4096, dtype="bool"), of(4096, 2048), of(4, 2048, 2048))
def layers_that_some_rows_skip(hard, x, weights):
    for weight in weights:
        x = x + jnp.where(hard[:, None], x @ weight, 0.5 * x)
    return x


SELECTS = {
    "a_mask": lambda x, keep, a, b: jnp.where(keep[:, None], x @ a, 0),
    "an_activation": lambda x, keep, a, b: jnp.where((x @ a) > 0, x @ a, 0.1 * (x @ a)),
    "element_by_element": lambda x, keep, a, b: jnp.where((x @ a) > 0, x @ a, x @ b),
    "one_of_a_sum": lambda x, keep, a, b: jnp.where(keep[:, None], x @ a, 0) + x @ b,
    "the_same_rows": lambda x, keep, a, b: (
        jnp.where((keep.astype(int) == 1)[:, None], x @ a, 0) + jnp.where((keep.astype(int) == 1)[:, None], x @ b, 0)
    ),
}
for kind, function in SELECTS.items():
    program(of(4096, 1024), of(4096, dtype="bool"), of(1024, 2048), of(1024, 2048), name=f"select_of_{kind}")(function)
SCORES_USED = {"last": lambda scores: scores[-1], "half": lambda scores: scores[3:], "all": lambda scores: scores}
for kind, take in SCORES_USED.items():

    @program(of(6, 512, 512), of(512, 8192), of(4096, 512), name=f"scores_of_every_layer_{kind}_used", take=take)
    def detect(weights, head, x, *, take):
        def layer(h, w):
            h = jnp.tanh(h @ w)
            return h, h @ head

        h, scores = lax.scan(layer, x, weights)
        return h, jax.nn.sigmoid(take(scores))


DIAGONALS = {
    "taken": lambda a, b: (a @ b.T)[jnp.arange(8192), jnp.arange(8192)],
    "traced": lambda a, b: jnp.trace(a @ b.T),
    "in_a_softmax": lambda a, b: jax.nn.softmax(a @ b.T),
    "beside_sums": lambda a, b: (scores := a @ b.T).sum(1) - scores[jnp.arange(8192), jnp.arange(8192)],
}
for kind, function in DIAGONALS.items():
    program(of(8192, 512), of(8192, 512), name=f"diagonal_of_a_product_{kind}")(function)


# Caches.

APPENDED = {
    "shifted": lambda cache, new: jnp.concatenate([cache[:, 1:], new], 1),
    "grown": lambda cache, new: jnp.concatenate([cache, new], 1),
    "rolled": lambda cache, new: jnp.roll(cache, -1, 1).at[:, -1:].set(new),
    "grown_and_read_once": lambda cache, new: jnp.concatenate([cache, new], 1).sum(1),
    "a_stencil": lambda cache, new: jnp.roll(cache, 1, 1) + jnp.roll(cache, -1, 1) - 2 * cache,
    "nothing_added": lambda cache, new: jnp.roll(cache, 1, 1),
    "half_of_it_new": lambda cache, new: jnp.concatenate([cache[:, :2048], jnp.repeat(new, 2048, 1)], 1),
    "updated": lambda cache, new: lax.dynamic_update_slice(cache, new, (0, 7, 0)),
}
for kind, function in APPENDED.items():
    program(of(16, 4096, 1024), of(16, 1, 1024), name=f"cache_{kind}")(function)


@program(of(4, 16, 4096, 1024), of(16, 1024), ids(), name="caches_of_a_scan_over_layers", carried=False)
@program(of(4, 16, 4096, 1024), of(16, 1024), ids(), name="caches_carried_through_layers", carried=True)
def decoded_layers(caches, x, at, *, carried):
    def layer(x, cache):
        cache = lax.dynamic_update_slice(cache, x[:, None], (0, at, 0))
        return jnp.tanh(cache.sum(1)), cache

    def in_place(number, carry):
        x, caches = carry
        caches = lax.dynamic_update_slice(caches, x[None, :, None], (number, 0, at, 0))
        return jnp.tanh(caches[number].sum(1)), caches

    return lax.fori_loop(0, 4, in_place, (x, caches)) if carried else lax.scan(layer, x, caches)


STATES = {"cache_for_each_token": ("cache", 1), "cache_of_many_new_rows": ("cache", 32), "row_for_each_token": ("row", 1)}
for kind, (returned, new) in STATES.items():

    @program(of(4096), of(256, 4096), name=f"stacked_{kind}", returned=returned, new=new)
    def generate(x, cache, *, returned, new):
        def token(state, at):
            x, cache = state
            row = jnp.tanh(x)
            cache = lax.dynamic_update_slice(cache, jnp.broadcast_to(row, (new, 4096)), (at, 0))
            x = x + cache.sum(0)
            return (x, cache), cache if returned == "cache" else row

        return lax.scan(token, (x, cache), jnp.arange(16))


for how in ("whole", "updated in a loop", "new positions", "shuffled"):

    @program(of(2, 64, 512, 128), of(8, 64, 128), ids(8, 64), name=f"beams_{how.replace(' ', '_')}", how=how)
    def beams(cache, keys, orders, *, how):
        """A cache of two layers, 64 beams and 512 positions, to which a loop adds a key of each beam; then it follows the beams."""

        def step(cache, token):
            place, keys, order = token
            if how == "updated in a loop":
                cache = lax.scan(lambda cache, layer: (cache.at[layer, :, place].set(keys), None), cache, jnp.arange(2))[0]
            elif how != "shuffled":
                cache = cache.at[:, :, place].set(keys)
            if how == "new positions":
                return lax.dynamic_update_slice(cache, cache[:, :, 256:][:, order], (0, 0, 256, 0)), None
            return cache[:, order], None

        return lax.scan(step, cache, (jnp.arange(8) + 256, keys, orders))[0]


# Mixtures of experts.


@program(of(8192, 2048), ids(8192), of(8, 2048, 2048))
def experts_with_rows_of_others_zero(x, chosen, weights):
    return sum(jnp.where((chosen == i)[:, None], x @ weights[i], 0) for i in range(8))


@program({"trunk": of(1024, 1024), "up": [of(1024, 2048)] * 8, "down": [of(2048, 1024)] * 8}, of(4096, 1024), ids(4096))
def gradients_of_experts_with_rows_of_others_zero(weights, x, chosen):
    """Two products forward and four backward of each expert; the trunk is everybody's."""

    def loss(weights):
        rows, out = jnp.tanh(x @ weights["trunk"]), 0
        for up, down, i in zip(weights["up"], weights["down"], range(8), strict=True):
            out = jnp.where((chosen == i)[:, None], jax.nn.gelu(rows @ up) @ down, out)
        return jnp.mean(out.astype(FP32) ** 2)

    return jax.grad(loss)(weights)


@program(of(4096, 1024), of(1024, 16), of(16, 1024, 2048), of(16, 2048, 1024), name="experts_gathered_by_argmax", choose="argmax")
@program(of(4096, 1024), of(1024, 16), of(16, 1024, 2048), of(16, 2048, 1024), name="experts_gathered_by_top_k", choose="top_k")
def switch(x, router, up, down, *, choose):
    scores = x @ router
    choice = jnp.argmax(scores, -1) if choose == "argmax" else lax.top_k(scores, 1)[1][:, 0]
    every = jax.vmap(lambda u, d: jax.nn.relu(x @ u) @ d)(up, down)
    return jnp.take_along_axis(every, choice[None, :, None], 0)[0]


@program(of(4096, 1024), of(1024, 16), of(16, 1024, 2048))
def switch_that_sorts_its_tokens(x, router, up):
    order = jnp.argsort(jnp.argmax(x @ router, -1))
    outputs = jnp.einsum("etd,edf->etf", x[order].reshape(16, 256, 1024), up).reshape(4096, 2048)
    return jnp.zeros_like(outputs).at[order].set(outputs)


MIXTURE = of(4096, 1024), of(1024, 8), of(8, 1024, 4096), of(8, 4096, 1024)


def chosen_experts(x, router):
    scores = jax.nn.softmax((x @ router).astype(FP32), -1)
    return scores, *lax.top_k(scores, 2)


def all_experts(x, up, down):
    return jnp.einsum("etf,efd->etd", jax.nn.silu(jnp.einsum("td,edf->etf", x, up)), down)


@program(*MIXTURE)
def experts_by_one_hot(x, router, up, down):
    _, weights, chosen = chosen_experts(x, router)
    gate = (jax.nn.one_hot(chosen, 8) * weights[..., None]).sum(1).astype(x.dtype)
    return jnp.einsum("etd,te->td", all_experts(x, up, down), gate)


@program(*MIXTURE)
def experts_by_threshold(x, router, up, down):
    scores, weights, _ = chosen_experts(x, router)
    gate = jnp.where(scores >= weights[:, -1:], scores, 0).astype(x.dtype)
    return jnp.einsum("etd,te->td", all_experts(x, up, down), gate)


@program(*MIXTURE)
def experts_one_after_another(x, router, up, down):
    scores, weights, chosen = chosen_experts(x, router)
    gate = jnp.zeros_like(scores).at[jnp.arange(4096)[:, None], chosen].set(weights).astype(x.dtype)
    return sum(gate[:, e : e + 1] * (jax.nn.silu(x @ up[e]) @ down[e]) for e in range(8))


@program(*MIXTURE)
def gradients_of_experts_by_threshold(x, router, up, down):
    """The first product, the gradient of its result, and those of both weights."""
    return jax.grad(lambda up, down: experts_by_threshold(x, router, up, down).astype(FP32).sum(), (0, 1))(up, down)


@program(*MIXTURE)
def experts_with_tokens_of_their_own(x, router, up, down):
    scores, weights, _ = chosen_experts(x, router)
    gate = jnp.where(scores >= weights[:, -1:], scores, 0).astype(x.dtype)
    own = jnp.concatenate([x, x]).reshape(8, 1024, 1024)  # in place of a real dispatch
    h = jnp.einsum("etf,efd->etd", jax.nn.silu(jnp.einsum("etd,edf->etf", own, up)), down)
    return h.reshape(2, 4096, 1024).sum(0) * gate.sum(-1, keepdims=True)


@program(*MIXTURE)
def experts_that_are_all_weighed(x, router, up, down):
    gate = jax.nn.softmax((x @ router).astype(FP32), -1).astype(x.dtype)
    return jnp.einsum("etd,te->td", all_experts(x, up, down), gate)


for how in ("scan", "sum", "layers"):

    @program(of(4096, 1024), of(1024, 16), of(16, 1024, 2048), of(16, 2048, 1024), name=f"experts_weighted_in_a_{how}", how=how)
    def weighted(x, router, up, down, *, how):
        top, chosen = lax.top_k((x @ router).astype(FP32), 2)
        if how == "sum":
            gates = [jnp.sum(jnp.where(chosen == e, jax.nn.softmax(top), 0), -1).astype(x.dtype) for e in range(16)]
            return sum(gates[e][:, None] * (jax.nn.relu(x @ up[e]) @ down[e]) for e in range(16))
        gates = jnp.zeros((4096, 16), x.dtype).at[jnp.arange(4096)[:, None], chosen].set(top.astype(x.dtype))

        def added(total, expert):
            up, down, gate = expert
            return total + gate[:, None] * (jax.nn.relu(x @ up) @ down), None

        def layer(h, weights):  # as many layers as there are experts
            return h + jax.nn.relu(h @ weights[0]) @ weights[1], None

        if how == "layers":
            return lax.scan(layer, x, (up, down))[0] * gates.sum(1)[:, None]
        return lax.scan(added, jnp.zeros_like(x), (up, down, gates.T))[0]


@program(of(512, 256), [(of(256, 256), of(256, 256))] * 7, name="seven_members")
@program(of(512, 256), [(of(256, 256), of(256, 256))] * 8, name="eight_members")
def ensemble(x, weights):
    return sum(jnp.tanh(jnp.tanh(x @ first) @ second) for first, second in weights)


@program(of(512, 256), [of(256, 256)] * 16)
def layers_after_each_other(x, weights):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return x


# What was filled up.


@program(of(8, 512, 1024), of(8, 1024, 4096), of(8, 4096, 1024))
def capacity_that_is_filled_up(x, up, down):
    h = jnp.pad(x, ((0, 0), (0, 1536), (0, 0)))
    return (jax.nn.silu(h @ up) @ down)[:, :512].sum(0)


@program(of(1, 1024), of(1024, 1024), of(1024, 4096))
def filled_rows_and_what_makes_them_whole(x, rest, up):
    """The gradient of the last token's logits is zero but for one row; what other tokens add to it is not."""
    return (jnp.pad(x, ((0, 1023), (0, 0))) + rest) @ up, (jnp.pad(x, ((0, 1023), (0, 0))) * rest) @ up


FILLED = {
    "with_zeros": lambda x: jnp.concatenate([x, jnp.zeros((16, 768, 1024), x.dtype)], axis=1),
    "by_an_update": lambda x: jnp.zeros((16, 1024, 1024), x.dtype).at[:, :256].set(x),
    "of_sevens": lambda x: lax.dynamic_update_slice(jnp.full((16, 1024, 1024), 7, x.dtype), x, (0, 0, 0)),
}
for kind, fill in FILLED.items():

    @program(of(16, 256, 1024), of(1024, 2048), of(2048, 1024), name=f"frames_filled_{kind}", fill=fill)
    def acoustic(frames, up, down, *, fill):
        h = jax.nn.relu(fill(frames).reshape(-1, 1024) @ up).reshape(16, 8, 128, 2048)
        return (h @ down)[:, :2].sum(1)


GROUPS = of(8192, 2048), of(16, 2048, 4096), of(16, 4096, 2048), ids(8192), ids(8192)


@program(*GROUPS, name="room_for_as_many_rows", capacity=640)
@program(*GROUPS, name="room_for_more_rows", capacity=2048)
def experts_with_room(x, up, down, expert, place, *, capacity):
    """Every product is told once, of the backward pass too; 8192 rows leave room for 1.25 times as many."""

    def loss(x, up, down):
        room = jnp.zeros((16, capacity, 2048), x.dtype).at[expert, place].set(x, mode="drop")
        hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", room, up))
        return jnp.einsum("ecf,efd->ecd", hidden, down)[expert, place].astype(FP32).sum()

    return jax.grad(loss, (0, 1, 2))(x, up, down)


@program(of(64, 512, 1024), ids(64), of(1024, 4096))
def gradients_of_single_rows(x, lengths, up):
    return jax.grad(lambda x, up: jnp.square((x @ up)[jnp.arange(64), lengths].astype(FP32)).sum(), (0, 1))(x, up)


@program(of(4096, 50257), of(50257, 1024))
def a_little_padding(x, w):
    return jnp.pad(x, ((0, 0), (0, 47))) @ jnp.pad(w, ((0, 47), (0, 0)))


for shift in (512, 256, 0):

    @program(of(4096, 512), of(4096, 512), of(1024, 1024), name=f"halves_shifted_by_{shift}", shift=shift)
    def halves(a, b, w, *, shift):
        """Each half is padded to the whole, as in the gradient of rotary embeddings: of 1024 columns 512 + shift are data."""
        zero = jnp.zeros((), a.dtype)
        left = lax.pad(a, zero, ((0, 0, 0), (0, 512, 0)))
        right = lax.pad(b, zero, ((0, 0, 0), (shift, 512 - shift, 0)))
        return lax.optimization_barrier(left + right) @ w


@program(of(16, 2048, 1024), of(1024, 1024))
def interleaved_arrays(u, w):
    even, odd, zero = u[:, ::2], u[:, 1::2], jnp.zeros((), u.dtype)
    both = lax.pad(even, zero, ((0, 0, 0), (0, 1, 1), (0, 0, 0))) + lax.pad(odd * 2, zero, ((0, 0, 0), (1, 0, 1), (0, 0, 0)))
    return lax.optimization_barrier(both).reshape(-1, 1024) @ w


# Loops.


def gradient_of_part(w, part):
    return jax.grad(lambda w: (jnp.tanh(part @ w).astype(FP32) ** 2).mean())(w)


@program(of(4096, 4096), of(32, 32, 4096))
def gradients_of_parts_of_the_rows(w, x):
    return lax.scan(lambda total, part: (total + gradient_of_part(w, part), None), jnp.zeros_like(w), x)[0]


@program(of(4096, 4096), of(32, 4096))
def recurrence(w, h):
    """Each iteration needs the one before."""
    return lax.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, 32)[0]


@program(wide(4096, 8192), of(4, 512, 4096), name="weights_cast_in_every_trip", cast_before=False)
@program(wide(4096, 8192), of(4, 512, 4096), name="weights_cast_before_the_loop", cast_before=True)
def accumulated(weight, batches, *, cast_before):
    """Rows of each batch times computed fp32 weights: those that are arguments could be stored in the narrow format."""
    before = (2 * weight).astype(BF16) if cast_before else 2 * weight

    def add(total, batch):
        return total + (batch @ before.astype(BF16)).sum(0), None

    return lax.scan(add, jnp.zeros(weight.shape[1], BF16), batches)[0]


def residual_layer(x, w):
    return x + jax.nn.gelu(x @ w[0]) @ w[1].T, None


@program(of(6, 2, 1024, 4096), of(8192, 1024), name="few_layers_in_a_scan")
@program(of(6, 2, 1024, 4096), of(8192, 1024), name="few_layers_in_an_unrolled_scan", unroll=True)
@program(of(200, 2, 1024, 4096), of(8192, 1024), name="many_layers_in_a_scan")
@program(of(6, 2, 1024, 4096), of(8192, 1024), name="few_layers_recomputed_in_a_scan", layer=jax.checkpoint(residual_layer))
@program(of(200, 2, 1024, 4096), of(8192, 1024), name="many_layers_recomputed_in_a_scan", layer=jax.checkpoint(residual_layer))
def trained(weights, x, *, layer=residual_layer, **how):
    return jax.grad(lambda weights: lax.scan(layer, x, weights, **how)[0].astype(FP32).sum())(weights)


@program(of(6, 512, 512), of(4096, 512))
def states_of_layers_that_are_returned(weights, x):
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, weights)


for rows in (64, 512, 1024):

    @program(of(1024, 1024), of(64, rows, 1024), name=f"gradients_of_a_recurrence_over_{rows}_rows")
    def recurrent_gradients(w, xs):
        def loss(w):
            return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros_like(xs[0]), xs)[0].astype(FP32).sum()

        return jax.grad(loss)(w)


@program(of(1024, 1024), of(1024, 1024), of(64, 64, 1024), name="inputs_multiplied_in_the_loop", before=False)
@program(of(1024, 1024), of(1024, 1024), of(64, 64, 1024), name="inputs_multiplied_before_the_loop", before=True)
def inputs_of_a_recurrence(w, inputs, xs, *, before):
    """The products of inputs and weights, the gradients of these weights, and those of the inputs belong to the loop's neighbours."""

    def loss(w, inputs, xs):
        rows = xs @ inputs if before else xs
        last, _ = lax.scan(lambda h, x: (jnp.tanh(h @ w + (x if before else x @ inputs)), None), jnp.zeros_like(xs[0]), rows)
        return last.astype(FP32).sum()

    return jax.grad(loss, (0, 1, 2))(w, inputs, xs)


@program(of(1024, 1024), of(1024, 1024), of(64, 64, 1024), name="stacked_results_alone", fed_back=False)
@program(of(1024, 1024), of(1024, 1024), of(64, 64, 1024), name="stacked_results_fed_back", fed_back=True)
def outputs(w, head, xs, *, fed_back):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        y = h @ head
        return (y if fed_back else h), y

    return lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]


STEPS = {
    "weighted_sum": lambda a, b, h: a * h + b,
    "relaxation": lambda a, b, h: h - a * h + b,
    "tanh": lambda a, b, h: jnp.tanh(a * h + b),
    "square": lambda a, b, h: a * h * h + b,
    "sum": lambda a, b, h: h + b,
}
for kind, how in STEPS.items():

    @program(of(256, 8, 2048), of(256, 8, 2048), name=f"state_that_is_a_{kind}", how=how)
    def states(a, b, *, how):
        def step(h, ab):
            h = how(*ab, h)
            return h, h

        return lax.scan(step, jnp.zeros_like(b[0]), (a, b))[1]


@program(of(256, 256), of(64, 256, 256))
def microbatches(w, xs):
    def added(total, x):
        return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), None

    return lax.scan(added, jnp.zeros_like(w), xs)[0]


# Everyday faults, and their cures.


def silu_layers(x, *weights):
    for weight in weights:
        x = jax.nn.silu(x @ weight)
    return x


def cast_layers(x, *weights):
    return silu_layers(x, *(weight.astype(BF16) for weight in weights))


WIDE_WEIGHTS = of(16, 4096), wide(4096, 16384), wide(16384, 4096)
program(*WIDE_WEIGHTS, name="weights_cast_in_every_call")(cast_layers)
program(of(16, 4096), of(4096, 16384), of(16384, 4096), name="weights_in_bf16")(silu_layers)
program(wide(8192, 2048), wide(2048, 8192), wide(8192, 2048), name="layers_in_fp32")(silu_layers)


@program(*WIDE_WEIGHTS)
def weights_that_change(x, *weights):
    gradients = jax.grad(lambda weights: cast_layers(x, *weights).astype(FP32).mean())(weights)
    return [weight - gradient for weight, gradient in zip(weights, gradients, strict=True)]


@program(wide(512, 224, 224, 3), of(768, 768))
def data_cast_in_every_call(images, weight):
    return silu_layers(images.astype(BF16).reshape(-1, 768), weight)


SORTED = {
    "largest_sorted": lambda x: jnp.sort(x, -1)[:, -8:],
    "places_of_the_largest_sorted": lambda x: jnp.argsort(-x, -1)[:, :8],
    "largest_sorted_downwards": lambda x: jnp.sort(x, -1)[:, ::-1][:, :8],
    "quantile_of_all": lambda x: jnp.quantile(x, 0.99),
    "medians_of_long_rows": lambda x: jnp.median(x.reshape(64, -1), -1),
    "largest_by_top_k": lambda x: lax.top_k(x, 8),
    "larger_half_sorted": lambda x: jnp.sort(x, -1)[:, -16384:],
    "every_eighth_sorted": lambda x: jnp.sort(x, -1)[:, ::8],
    "medians_of_short_rows": lambda x: jnp.median(x, -1),
    "middle_sorted": lambda x: jnp.sort(x, -1)[:, 16380:16388],
    "beyond_the_least_sorted": lambda x: jnp.sort(x, -1)[:, 100:108],
    "largest_sorted_and_mean": lambda x: (jnp.sort(x, -1)[:, -8:], jnp.sort(x, -1).mean(-1)),
}
for kind, function in SORTED.items():
    program(wide(4096, 32768), name=kind)(function)


def permuted(x):
    return jax.random.permutation(jax.random.key(0), x)


program(wide(2**22), name="shuffled_in_rounds")(permuted)
program(wide(1024), name="shuffled_in_one_round")(permuted)
program(of(2**22), name="shuffled_by_one_sort")(lambda x: x[jnp.argsort(jax.random.bits(jax.random.key(0), x.shape))])
KEYS = (wide(2**22),) * 3


@program(*KEYS)
def rows_sorted_by_two_keys(first, second, x):
    _, first, x = lax.sort((second, first, x), num_keys=1)
    return lax.sort((first, x), num_keys=1)[1]


@program(*KEYS)
def rows_sorted_twice(first, second, x):
    return lax.sort((first, lax.sort((second, x), num_keys=1)[1]), num_keys=1)[1]


def cumulated(x):
    return jnp.tril(jnp.ones((x.shape[0], x.shape[0]), x.dtype)) @ x


program(of(8192, 8192), name="cumulated_by_a_triangle_of_ones")(cumulated)
program(of(256, 65536), name="short_sums_by_a_triangle_of_ones")(cumulated)
program(of(8192, 8192), name="cumulated")(lambda x: jnp.cumsum(x, 0))
PROMPTS = of(16, 1024, 1024), of(1024, 65536), ids(16)


@program(*PROMPTS)
def logits_of_all_positions(x, head, lengths):
    return jax.nn.log_softmax((jnp.tanh(x) @ head).astype(FP32))[jnp.arange(16), lengths]


@program(*PROMPTS)
def logits_of_one_position(x, head, lengths):
    return jax.nn.log_softmax((jnp.tanh(x)[jnp.arange(16), lengths] @ head).astype(FP32))


@program(*PROMPTS[:2], ids(16, 1024))
def loss_of_all_positions(x, head, labels):
    """One element of every row is read, and all of them to normalise it."""
    return -jnp.take_along_axis(jax.nn.log_softmax((jnp.tanh(x) @ head).astype(FP32)), labels[..., None], -1).mean()


SIGNALS = wide(512, 16384), wide(512, 16384)


@program(*SIGNALS)
def long_convolution(x, kernel):
    size = 2 * x.shape[-1]
    return jnp.fft.irfft(jnp.fft.rfft(x, size) * jnp.fft.rfft(kernel, size), size)[..., : x.shape[-1]]


@program(*SIGNALS)
def long_convolution_of_complex_numbers(x, kernel):
    size = 2 * x.shape[-1]
    return jnp.fft.ifft(jnp.fft.fft(x, size) * jnp.fft.fft(kernel, size)).real[..., : x.shape[-1]]


program(of(512, 16384, dtype="complex64"), name="complex_signals")(lambda x: jnp.fft.ifft(jnp.fft.fft(x) * 1j))
POINTS = wide(131072, 128), wide(1024, 128)
program(*POINTS, name="squares_of_all_differences")(lambda x, y: jnp.sum((x[:, None] - y[None]) ** 2, -1))
program(*POINTS, name="distances_by_a_product")(lambda x, y: (x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * x @ y.T)
program(*POINTS, name="absolute_differences")(lambda x, y: jnp.sum(jnp.abs(x[:, None] - y[None]), -1))
BEAMS = of(64, 1024, 8, 128), of(64, 8, 128), ids(64)
program(*BEAMS, name="cache_that_follows_its_beams")(lambda cache, new, beams: cache.at[:, 5].set(new)[beams])
program(*BEAMS, name="few_rows_looked_up")(lambda cache, new, beams: (cache.at[:, 5].set(new), cache[beams[:4]]))
program(BEAMS[0], BEAMS[2], name="examples_shuffled")(lambda examples, order: examples[order])


def shifted(image, sizes):
    _, height, width, _ = image.shape
    filled = jnp.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return [filled[:, row : row + height, column : column + width] for row in sizes for column in sizes]


PIXELS = of(64, 64, 64, 128), of(9 * 128, 128)
program(*PIXELS, name="patches_for_a_product")(lambda image, weight: jnp.concatenate(shifted(image, range(3)), -1) @ weight)
program(*PIXELS, name="two_neighbours_for_a_product")(
    lambda image, weight: jnp.concatenate(shifted(image, range(3))[:2], -1) @ weight[:256]
)


def attended(query, keys):
    return jnp.einsum("bhd,bkhd->bhk", query, keys)


program(of(64, 8, 128), of(8192, 16, 8, 128), ids(64, 128), name="keys_in_pages")(
    lambda query, pages, table: attended(query, pages[table].reshape(64, -1, 8, 128))
)
program(of(64, 8, 128), of(64, 2048, 8, 128), name="keys_in_one_array")(attended)
program(of(64, 1024), of(8192, 1024), ids(64, 128), name="rows_of_a_table_attended_to")(
    lambda query, rows, table: jnp.einsum("bd,bkd->bk", query, rows[table])
)
TABLE = wide(1_000_000, 64), wide(1_000_000, 64)


def with_momentum(table, moment, gradient):
    moment = 0.9 * moment + gradient
    return table - 0.1 * moment, moment


@program(*TABLE, ids(50_000), name="table_updated_for_a_twentieth")
@program(*TABLE, ids(500_000), name="table_updated_for_a_half")
def step_of_table(table, moment, ids):
    return with_momentum(table, moment, jax.grad(lambda table: jnp.tanh(table[ids]).sum())(table))


@program(wide(50_000, 64), wide(50_000, 64), ids(2_000))
def table_that_is_the_output_layer_too(table, moment, ids):
    return with_momentum(table, moment, jax.grad(lambda table: jnp.tanh(table[ids] @ table.T).sum())(table))


@program(*TABLE, ids(8, 10_000), name="table_updated_for_few_microbatches")
@program(*TABLE, ids(8, 50_000), name="table_updated_for_large_microbatches")
def step_of_microbatches(table, moment, ids):
    def added(gradient, part):
        return gradient + jax.grad(lambda table: jnp.tanh(table[part]).sum())(table), None

    return with_momentum(table, moment, lax.scan(added, jnp.zeros_like(table), ids)[0])


@program(*TABLE, ids(50_000))
def rows_updated_alone(table, moment, ids):
    rows = 0.9 * moment[ids] + jax.grad(lambda rows: jnp.tanh(rows).sum())(table[ids])
    return table.at[ids].add(-0.1 * rows), moment.at[ids].set(rows)


@program(of(128, 64, 4096), of(4096, 4096), of(64, 4096))
def inputs_multiplied_in_every_trip(inputs, weights, state):
    return lax.scan(lambda h, x: (jnp.tanh(h + x @ weights), None), state, inputs)[0]


MATRICES = wide(1024, 128, 128), wide(1024, 128, 1)
program(*MATRICES, name="inverses_for_one_column")(lambda a, b: jnp.linalg.inv(a) @ b)
program(MATRICES[0], MATRICES[0], name="inverses_for_many_columns")(lambda a, b: jnp.linalg.inv(a) @ b)
program(*MATRICES, name="inverses_that_are_the_result")(lambda a, b: (jnp.linalg.inv(a), b))
program(*MATRICES, name="systems_solved")(jnp.linalg.solve)
program(ids(64, 16384), name="counted_by_comparisons")(lambda ids: (ids[:, :, None] == jnp.arange(4096)).sum(1))
program(ids(2**24), name="counted_in_two_bins")(lambda ids: (ids[:, None] == jnp.arange(2)).sum(0))
program(ids(2**24), name="counted")(lambda ids: jnp.bincount(ids, length=4096))


def decoded(cache, query, key, position):
    """One key is written to a cache, and all keys are read."""
    cache = lax.dynamic_update_slice(cache, key.astype(cache.dtype), (0, 0, position, 0))
    return cache, jnp.einsum("bgad,bgsd->bgas", jnp.tanh(query), cache.astype(query.dtype))


in_place = jax.jit(decoded, donate_argnums=0)
program(wide(64, 8, 4096, 128), of(64, 8, 4, 128), of(64, 8, 1, 128), ids(), name="cache_in_fp32")(in_place)
program(of(64, 8, 4096, 128), of(64, 8, 4, 128), of(64, 8, 1, 128), ids(), name="cache_in_bf16")(in_place)
program(wide(64, 8, 4096, 128), of(64, 8, 4, 128), wide(64, 8, 1, 128), ids(), name="cache_of_keys_in_fp32")(in_place)


@program(of(8192, 2048), wide(2048), of(2048, 8192), of(8192, 2048))
def widened_by_a_scale(x, scale, *weights):
    return silu_layers(jnp.tanh(x) * scale, *weights)


@program(of(16, 4096), of(4096, 4096), of(4096, 4096), of(4096, 1024), of(4096, 1024))
def weights_joined_in_each_call(x, embed, *projections):
    return jnp.tanh(x @ embed) @ jnp.concatenate(projections, 1)


@program(of(512, 1024), of(1024, 4096), of(512, 1024))
def rows_joined(x, w, y):
    return jnp.concatenate([x, y]) @ w


def blended(cache, new, position, query):
    """One position of a cache is replaced by products with a one-hot row, and all positions are read."""
    row = one_hot(position, cache.shape[1])[None, :, None, None]
    cache = cache * (1 - row) + new[:, None] * row
    return cache, jnp.einsum("bhd,bshd->bhs", query, cache)


program(of(32, 2048, 8, 128), of(32, 8, 128), ids(), of(32, 8, 128), name="position_blended")(jax.jit(blended, donate_argnums=0))


@program(of(4, 64, 64, 64), of(3, 3, 64, 128), of(3, 3, 128, 128))
def images_repeated_for_convolutions(x, *kernels):
    x = lax.optimization_barrier(jnp.repeat(x, 8, 0))
    for kernel in kernels:
        x = jax.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return x.mean((1, 2))


@program(of(64, 64), of(64, 64), of(4096, 256), name="kronecker_in_a_loop", written_out=jnp.kron)
@program(of(64, 64), of(4096, 4096), of(4096, 256), name="scaled_in_a_loop", written_out=lambda a, b: a.reshape(-1, 1) * b)
def multiplied_again_and_again(a, b, x, *, written_out):
    matrix = written_out(a, b)
    return lax.fori_loop(0, 10, lambda _, x: jnp.tanh(matrix @ x), x)


@program(wide(4096, 4096))
def edges_repeated_around_an_array(u):
    def smoothed(_, u):
        p = jnp.pad(u, 1, mode="edge")
        return u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)

    return lax.fori_loop(0, 8, smoothed, u)


@program(wide(1024, 4096), wide(4096, 64), wide(2048, 1024), name="gradients_times_zero", masks=(0.0, 1.0))
@program(wide(1024, 4096), wide(4096, 64), wide(2048, 1024), name="gradients_times_a_rate_each", masks=(0.1, 1.0))
def masked_updates(body, head, x, *, masks):
    gradients = jax.grad(lambda body, head: jnp.mean(jnp.square(jnp.tanh(x @ body) @ head)), (0, 1))(body, head)
    return [weight - 0.1 * mask * gradient for weight, mask, gradient in zip((body, head), masks, gradients, strict=True)]


@program(of(512, 2048), of(2048, 2048), of(2048, 2048), of(2048, 2048))
def layers_stacked_for_a_scan(x, *layers):
    return lax.scan(lambda x, layer: (x + jnp.tanh(x @ layer), None), x, jnp.stack(layers))[0]


program(wide(256, 256, 256), name="fourier_transform_and_back")(lambda x: jnp.fft.irfftn(jnp.fft.rfftn(x) * 0.5, s=x.shape))


def lowered(name: str) -> str:
    """The text of a program, without the folders of this machine."""
    function, *args = PROGRAMS[name]
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    text = jitted.trace(*args).lower(lowering_platforms=("cuda",)).as_text(debug_info=True)
    return text.replace(f"{Path(__file__).parent}/", "").replace(f"{sys.prefix}/", "")


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        (FOLDER / f"{name}.stablehlo.gz").write_bytes(gzip.compress(lowered(name).encode(), 9, mtime=0))
