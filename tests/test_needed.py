"""Which of a program's work could be avoided, and what its kernels are called, on functions with one such decision each."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from every import every
from evidence import reviewed_program
from program_texts import program_text
from reviewed import H200, of_shape, ops_of
from roofline.cost import NOTHING
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.hlo.review import Review
from roofline.jax import lower
from roofline.machines import load
from roofline.resource import HBM, matrix
from roofline.rules.words import observed
from roofline.workload import Op

jax = pytest.importorskip("jax")
jnp = jax.numpy


def reasons(ops: list[Op]) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {}
    for op in ops:
        for reason in op.avoidable:
            found.setdefault(reason.kind, []).append(op)
    return found


def test_an_embedding_by_one_hot_rows_could_be_a_gather() -> None:
    def embed(ids: Any, table: Any) -> Any:
        return jax.nn.one_hot(ids, 32000, dtype="bfloat16") @ table

    (op,) = [op for op in ops_of(embed, of_shape(8192, dtype="int32"), of_shape(32000, 2048)) if op.category == "matmul"]
    (reason,) = [one for one in op.avoidable if one.kind == "one-hot-product"]
    assert reason.unneeded == "dense"
    assert reason.instead[HBM] == 2 * 8192 * 2048 * 2, "rows are read and written once"
    assert reason.instead.flops == 0


@every("used", ["sum", "max"])
def test_a_bag_of_rows_could_be_a_sum_of_gathered_ones(used: str) -> None:
    def embed(ids: Any, table: Any) -> Any:
        return getattr(jax.nn.one_hot(ids, 32000, dtype="bfloat16"), used)(1) @ table

    ops = ops_of(embed, of_shape(8192, 20, dtype="int32"), of_shape(32000, 512))
    found = [one for op in ops for one in op.avoidable if one.kind == "one-hot-product" and op.category == "matmul"]
    assert [one.instead[HBM] for one in found] == ([21 * 8192 * 512 * 2] if used == "sum" else [])


def test_one_hot_rows_are_found_where_other_dimensions_have_the_size_of_the_table() -> None:
    def total(tables: Any, ids: Any) -> Any:
        return jnp.einsum("bfv,fvd->bfd", jax.nn.one_hot(ids, 4096, dtype="bfloat16"), tables).astype("float32").sum()

    found = reasons(ops_of(jax.value_and_grad(total), of_shape(16, 4096, 128), of_shape(4096, 16, dtype="int32")))
    words = {
        observed(reason).rpartition("where ")[2]
        for op in found["one-hot-product"]
        for reason in op.avoidable
        if "multiplies" in observed(reason)
    }
    assert words == {"a gather would do", "a scatter-add would do"}


def test_tokens_put_into_slots_of_experts_by_masks_could_be_written_by_index() -> None:
    # 8 groups of 1024 tokens; a mask has a one for each token at its expert (of 16) and its slot there (of 128).
    def moved(x: Any, expert: Any, slot: Any, gate: Any) -> Any:
        mask = jax.nn.one_hot(expert, 16, dtype="bfloat16")[..., None] * jax.nn.one_hot(slot, 128, dtype="bfloat16")[:, :, None]
        slots = jnp.einsum("gtec,gtd->egcd", mask, x)
        return jnp.einsum("egcd,gtec->gtd", jnp.tanh(slots), mask * gate[..., None, None])

    ids = of_shape(8, 1024, dtype="int32")
    ops = ops_of(moved, of_shape(8, 1024, 512), ids, ids, of_shape(8, 1024))
    found = {one.group: observed(one).rpartition("where ")[2] for op in ops for one in op.avoidable if one.kind == "one-hot-product"}
    words = {observed(one).rpartition("where ")[2] for op in ops for one in op.avoidable if op.category == "matmul"}
    assert found.keys() == {"slots"}
    assert words == {"a gather would do", "a scatter-add would do"}


@every("factor", [1.0, 2.0])
def test_one_hot_rows_of_one_index_times_others_may_be_gates_of_experts(factor: float) -> None:
    def gated(x: Any, expert: Any, gate: Any) -> Any:
        return jnp.einsum("te,etd->td", jax.nn.one_hot(expert, 16, dtype="bfloat16") * gate * factor, x)

    ops = ops_of(gated, of_shape(16, 1024, 512), of_shape(1024, dtype="int32"), of_shape(1024, 16))
    assert "slots" not in {one.group for op in ops for one in op.avoidable}


def test_the_gradient_of_a_one_hot_product_could_be_a_scatter() -> None:
    def total(table: Any, ids: Any, weights: Any) -> Any:
        return ((jax.nn.one_hot(ids, 32000, dtype="bfloat16") @ table) @ weights).astype("float32").sum()

    args = of_shape(32000, 2048), of_shape(8192, dtype="int32"), of_shape(2048, 2048)
    found = reasons(ops_of(jax.grad(total, argnums=(0, 2)), *args))
    words = {observed(reason) for op in found["one-hot-product"] for reason in op.avoidable}
    assert any("scatter-add" in word for word in words)


@every(("batch", "order", "told"), [(100_000, 8, True), (100_000, 9, False), (100, 8, False)])
def test_factorisations_of_many_tiny_matrices_could_be_written_out(batch: int, order: int, told: bool) -> None:
    ops = ops_of(jnp.linalg.cholesky, of_shape(batch, order, order, dtype="float32"))
    found = [one for op in ops for one in op.avoidable if one.group == "tiny solves"]
    assert [observed(one) for one in found] == ([f"factorises or solves {batch:,} matrices of 8×8 with a library"] if told else [])


@every(("precision", "group", "into"), [("highest", "full fp32", "tf32"), (None, "fp32", "bf16")])
def test_matmuls_for_which_tf32_is_ruled_out_are_told_to_use_it(precision: str | None, group: str, into: str) -> None:
    def multiplied(x: Any, w: Any) -> Any:
        return jnp.dot(x, w, precision=precision)

    ops = ops_of(multiplied, of_shape(2048, 2048, dtype="float32"), of_shape(2048, 2048, dtype="float32"))
    (found,) = [one for op in ops for one in op.avoidable if one.kind == "wide-format"]
    assert (found.group, found.instead.known(matrix(into))) == (group, 2 * 2048**3)


@every("solved", [True, False])
def test_matrices_that_are_factorised_keep_their_format(solved: bool) -> None:
    def normal_equations(j: Any, r: Any) -> Any:
        matrix = jnp.einsum("bij,bik->bjk", j, j) + 1e-3 * jnp.eye(64)
        return jnp.linalg.cholesky(matrix) if solved else jnp.tanh(matrix) @ r

    ops = ops_of(normal_equations, of_shape(512, 96, 64, dtype="float32"), of_shape(512, 64, 64, dtype="float32"))
    told = [op.category for op in ops for one in op.avoidable if "96" in observed(one) or one.kind == "wide-format"]
    assert (len(told), told.count("matmul")) == ((0, 0) if solved else (3, 2)), "and tanh between the matmuls"


def test_a_comparison_that_is_no_one_hot_matrix_stays() -> None:
    def masked(x: Any, y: Any, w: Any) -> Any:
        return (x == y).astype("bfloat16") @ w

    assert "one-hot-product" not in reasons(ops_of(masked, of_shape(512, 512), of_shape(512, 512), of_shape(512, 512)))


def test_rows_that_a_scatter_overwrote_are_masked_and_not_one_hot() -> None:
    """The gradient of ``at[].set`` compares the place of each row with the row that was written last, and multiplies what is left."""

    def total(rows: Any, w: Any, ids: Any) -> Any:
        return (jnp.zeros((512, 256), "bfloat16").at[ids].set(rows @ w) ** 2).astype("float32").sum()

    args = of_shape(512, 128), of_shape(128, 256), of_shape(512, dtype="int32")
    assert "one-hot-product" not in reasons(ops_of(jax.grad(total, argnums=(0, 1)), *args))


def attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype("float32") / 11.3
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


@every("causal", [True, False])
def test_attention_that_stores_its_scores(causal: bool) -> None:
    shape = of_shape(4, 16, 2048, 128)
    found = reasons(ops_of(lambda q, k, v: attention(q, k, v, causal=causal), shape, shape, shape))
    stored = found["stored-attention"]
    assert {op.category for op in stored} >= {"matmul"}, "both products and what lies between"
    for op in stored:
        reason = next(one for one in op.avoidable if one.kind == "stored-attention")
        assert reason.instead[HBM] < op.cost[HBM] / 2, "scores are most of what it moves"
    assert ("masked-attention" in found) == causal
    if causal:
        (first, *_) = found["masked-attention"]
        half = next(one for one in first.avoidable if one.kind == "masked-attention")
        assert 2 * half.instead["matrix/bf16"] == first.cost["matrix/bf16"]


def test_scores_of_grouped_heads_are_found_in_every_shape_that_they_are_stored_in() -> None:
    # One product makes the scores of all 4 query heads that share a head of keys: its 2048 rows are 4 x 512 in the arrays behind it.
    def grouped(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bgrqd,bgkd->bgrqk", q, k).astype("float32")
        turned = jnp.swapaxes(jnp.swapaxes(scores, 2, 3), 3, 4).astype(q.dtype)
        weights = jax.nn.softmax(jnp.moveaxis(jax.lax.optimization_barrier(turned), -1, 2).astype("float32"), -1).astype(q.dtype)
        return jnp.einsum("bgrqk,bgkd->bgrqd", weights, v)

    keys = of_shape(8, 4, 512, 64)
    ops = ops_of(grouped, of_shape(8, 4, 4, 512, 64), keys, keys)
    stored = reasons(ops)["stored-attention"]
    large = [op for op in ops if float(op.cost[HBM]) > 8 * 16 * 512 * 512 * 2]
    assert large
    assert all(op in stored for op in large)


def test_a_softmax_of_a_library_between_two_products_is_one_of_scores() -> None:
    heads, scores = "f32[16,512,64]{2,1,0}", "f32[16,512,512]{2,1,0}"
    text = program_text("needed/a_softmax_of_a_library_between_two_products_is_one_of_scores.hlo", heads=heads, scores=scores)
    stored = reasons(list(reviewed_program(parse(text), "cpu")))["stored-attention"]
    assert [op.name for op in stored] == ["scores", "weights", "mixed"]


def test_scores_of_queries_in_chunks_are_stored_too() -> None:
    def chunked(q: Any, k: Any, v: Any) -> Any:
        return jax.lax.map(lambda part: attention(part, k, v, causal=False), q)

    keys = of_shape(4, 16, 2048, 128)
    stored = reasons(ops_of(chunked, of_shape(4, 4, 16, 512, 128), keys, keys))["stored-attention"]
    assert [op.count for op in stored if op.category == "matmul"] == [4, 4]


def test_a_causal_mask_over_more_keys_than_queries_removes_less_than_half() -> None:
    def continued(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype("float32")
        seen = jnp.arange(512)[:, None] + 3584 >= jnp.arange(4096)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(seen, scores, -1e9), -1).astype(q.dtype), v)

    keys = of_shape(4, 16, 4096, 64)
    for op in reasons(ops_of(continued, of_shape(4, 16, 512, 64), keys, keys))["masked-attention"]:
        (instead,) = [one.instead for one in op.avoidable if one.kind == "masked-attention"]
        assert instead["matrix/bf16"] == op.cost["matrix/bf16"] * 15 / 16, "the last of 512 queries sees all of 4096 keys, the first 3585"


def other_than_self(queries: Any, keys: Any) -> Any:
    return jnp.where(queries != keys, 0, -jnp.inf)


def by_distance(queries: Any, keys: Any) -> Any:
    return jnp.where(queries < keys, queries - keys, 0.0) * 0.1


def in_window(queries: Any, keys: Any) -> Any:
    return jnp.where(jnp.abs(queries - keys) < 256, 0, -1e9)


def causal_bias(queries: Any, keys: Any) -> Any:
    return jnp.where(queries >= keys, (keys - queries) * 0.1, -jnp.inf)


@every(("bias", "masked"), [(other_than_self, False), (by_distance, False), (in_window, True), (causal_bias, True)])
def test_a_bias_masks_scores_where_it_removes_those_of_some_distances(bias: Callable[..., Any], masked: bool) -> None:
    def attended(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype("float32")
        scores += bias(jnp.arange(2048)[:, None], jnp.arange(2048)[None])
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(q.dtype), v)

    shape = of_shape(4, 16, 2048, 64)
    assert ("masked-attention" in reasons(ops_of(attended, shape, shape, shape))) == masked


@every("returned", [True, False])
def test_scores_that_the_program_returns_have_to_be_stored(returned: bool) -> None:
    def attended(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k).astype("float32"), -1).astype(q.dtype)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, v)
        return (mixed, weights) if returned else mixed

    shape = of_shape(4, 16, 2048, 64)
    assert ("stored-attention" in reasons(ops_of(attended, shape, shape, shape))) == (not returned)


def test_layers_with_a_norm_between_their_products_are_no_attention() -> None:
    def experts(x: Any, up: Any, down: Any) -> Any:
        hidden = jnp.einsum("end,edf->enf", x, up).astype("float32")
        hidden = hidden / (1 + jnp.exp(-hidden))
        hidden = hidden / jnp.sqrt((hidden**2).mean(-1, keepdims=True) + 1e-6)
        return jnp.einsum("enf,efd->end", hidden.astype(x.dtype), down)

    ops = ops_of(experts, of_shape(8, 4096, 64), of_shape(8, 64, 256), of_shape(8, 256, 64))
    assert "stored-attention" not in reasons(ops)


def test_decoding_one_token_stores_no_large_scores() -> None:
    q, cache = of_shape(16, 32, 1, 128), of_shape(16, 32, 4096, 128)
    assert "stored-attention" not in reasons(ops_of(lambda q, k, v: attention(q, k, v, causal=False), q, cache, cache))


def test_logits_of_a_loss_are_no_attention() -> None:
    def loss(x: Any, table: Any, ids: Any) -> Any:
        chosen = jax.nn.log_softmax((x @ table.T).astype("float32"))
        return -jnp.take_along_axis(chosen, ids[:, None], -1).mean()

    args = of_shape(4096, 1024), of_shape(32000, 1024), of_shape(4096, dtype="int32")
    assert "stored-attention" not in reasons(ops_of(jax.grad(loss, argnums=(0, 1)), *args))


def test_rematerialised_products_are_recomputed() -> None:
    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    def total(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jax.checkpoint(layer)(x, w)
        return x.astype("float32").sum()

    args = [of_shape(1024, 1024)] * 3, of_shape(4096, 1024)
    plain = lambda ws, x: layer(layer(layer(x, ws[0]), ws[1]), ws[2]).astype("float32").sum()  # noqa: E731
    matrix = [sum(op.cost["matrix/bf16"] for op in ops_of(jax.value_and_grad(one), *args)) for one in (total, plain)]
    again = reasons(ops_of(jax.value_and_grad(total), *args))["recomputation"]
    extra = sum(op.cost["matrix/bf16"] for op in again)
    assert extra == matrix[0] - matrix[1]


@every("used", [jax.grad, jax.value_and_grad])
def test_what_a_compiler_computes_only_once_is_not_recomputed(used: Any) -> None:
    """XLA joins, on a CPU, what ``jax.checkpoint`` computes again with what was computed before."""

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    def total(ws: Any, x: Any, wrapped: Any) -> Any:
        for w in ws:
            x = wrapped(x, w)
        return x.sum()

    def products(wrapped: Any) -> tuple[float, float]:
        args = [of_shape(64, 64, dtype="float32")] * 3, of_shape(32, 64, dtype="float32")
        compiled = jax.jit(lambda ws, x: used(total)(ws, x, wrapped)).lower(*args).compile().as_text()
        ops = list(reviewed_program(parse(compiled), "cpu"))
        again = reasons(ops).get("recomputation", [])
        return tuple(sum(op.cost.known("matrix/fp32") for op in some) for some in (ops, again))

    (needed, none), (done, extra) = products(layer), products(jax.checkpoint(layer))
    assert (none, extra) == (0, done - needed)


FORWARD, BACKWARD = "jit(f)/jvp()/dot_general", "jit(f)/transpose(jvp())/dot_general"
RECOMPUTED = "jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general"
SHARDED = program_text("needed/sharded.hlo")


@every(("last", "told"), [(BACKWARD, {"y2"}), (RECOMPUTED, {"w2", "y2"})])
def test_weights_that_a_gradient_needs_too_are_gathered_without_a_checkpoint_as_well(last: str, told: set[str]) -> None:
    text = SHARDED.replace("FORWARD", FORWARD).replace("RECOMPUTED", RECOMPUTED).replace("LAST", last)
    assert {op.name for op in reasons(list(reviewed_program(parse(text), "tpu")))["recomputation"]} == told


@every(("depth", "pays"), [(512, False), (16384, True)])
def test_what_a_loop_computes_again_it_would_have_to_store_else(depth: int, pays: bool) -> None:
    def layer(x: Any, ws: Any) -> tuple[Any, None]:
        return jnp.tanh(jnp.tanh(x @ ws[0]) @ ws[1]), None

    def total(ws: Any, x: Any) -> Any:
        return jax.lax.scan(jax.checkpoint(layer), x, ws)[0].astype("float32").sum()

    args = (of_shape(4, depth, 512), of_shape(4, 512, depth)), of_shape(4096, depth)
    again = [op for op in reasons(ops_of(jax.grad(total), *args))["recomputation"] if op.cost["matrix/bf16"]]
    # Keeping a result of bf16 takes 12 passes over it, 24 B/element; 2·depth FLOP compute one. On an H200 that is 5 against 0.002·depth ps.
    wide = max(again, key=lambda op: op.cost["matrix/bf16"] / op.cost[HBM])
    machine = load("h200")
    stored = next(one for one in wide.avoidable if one.kind == "recomputation").instead[HBM] / machine.rate("hbm")
    assert (stored < wide.cost["matrix/bf16"] / wide.count / machine.rate("matrix/bf16")) == pays


@every("repeats", [8, 1])
def test_keys_that_are_repeated_for_query_heads(repeats: int) -> None:
    def scores(q: Any, k: Any) -> Any:
        return (q[:, :, None, :] * jnp.repeat(k, repeats, axis=1)).astype("float32").sum(-1)

    q, k = of_shape(16, 4 * repeats, 128), of_shape(16, 4, 4096, 128)
    found = reasons(ops_of(scores, q, k))
    assert ("repeated-operand" in found) == (repeats > 1)
    if repeats > 1:
        (op,) = found["repeated-operand"]
        assert "reads an array 8 times" in next(observed(one) for one in op.avoidable if one.kind == "repeated-operand")


def test_powers_of_an_array_are_no_matmul_with_it() -> None:
    def polynomial(x: Any, factors: Any) -> Any:
        return (x[:, None] ** jnp.arange(16, dtype="float32") * factors).sum(-1)

    assert "repeated-operand" not in reasons(ops_of(polynomial, of_shape(2**22, dtype="float32"), of_shape(16, dtype="float32")))


def test_bf16_widened_before_a_product() -> None:
    def wide(x: Any, w: Any) -> Any:
        return jnp.dot(x.astype("float32"), w.astype("float32"), precision="highest")

    (op,) = [op for op in ops_of(wide, of_shape(8192, 4096), of_shape(4096, 4096)) if op.category == "matmul"]
    (reason,) = [one for one in op.avoidable if one.kind == "wide-format"]
    assert reason.instead["matrix/bf16"] == 2 * 8192 * 4096 * 4096
    assert reason.unneeded == "wide"


def test_fp32_that_was_always_fp32_could_be_bf16_but_is_needed() -> None:
    args = of_shape(1024, 1024, dtype="float32"), of_shape(1024, 1024, dtype="float32")
    (op,) = ops_of(lambda a, b: a @ b, *args)
    (reason,) = op.avoidable
    assert (reason.kind, reason.unneeded) == ("wide-format", "")
    assert reason.instead["matrix/bf16"] == 2 * 1024**3


@every(("is_attention", "kinds"), [(True, {"stored-attention"}), (False, set())])
def test_the_logits_of_a_contrastive_loss_are_no_attention(is_attention: bool, kinds: set[str]) -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        pairs = jax.nn.softmax(((x @ w) @ (y @ w).T).astype("float32"))
        return jnp.tanh(pairs.astype("bfloat16") @ y).sum() if is_attention else jnp.log(jnp.diagonal(pairs)).sum()

    found = reasons(ops_of(jax.grad(loss), of_shape(512, 512), of_shape(8192, 512), of_shape(8192, 512)))
    assert set(found) & {"stored-attention"} == kinds


def test_gradients_of_attention_are_attention_where_its_result_is_not_needed() -> None:
    def mixed(q: Any, k: Any, v: Any, towards: Any) -> Any:
        return ((jax.nn.softmax((q @ k.T).astype("float32")).astype("bfloat16") @ v) * towards).sum()

    def gradient(w: Any, x: Any, towards: Any) -> Any:
        return jax.grad(mixed)(x @ w, x @ w, x @ w, towards)

    assert "stored-attention" in reasons(ops_of(gradient, of_shape(512, 512), of_shape(8192, 512), of_shape(8192, 512)))


def test_complex_numbers_have_no_narrow_format() -> None:
    args = of_shape(1024, 1024, dtype="complex64"), of_shape(1024, 1024, dtype="complex64")
    assert "wide-format" not in reasons(ops_of(lambda a, b: a @ b, *args))


def test_an_inner_product_reads_no_weights_and_may_be_fp32() -> None:
    vector = of_shape(2**24, dtype="float32")
    assert not {"wide-format", "low-batch"} & set(reasons(ops_of(jnp.vdot, vector, vector)))


def test_results_of_which_an_eighth_is_used() -> None:
    def few(h: Any, table: Any) -> Any:
        return jax.nn.log_softmax((h @ table.T).astype("float32"), -1)[::8].sum()

    (op,) = [op for op in ops_of(few, of_shape(4096, 2048), of_shape(128256, 2048)) if op.category == "matmul"]
    (reason,) = [one for one in op.avoidable if one.kind == "unused-results"]
    assert reason.instead["matrix/bf16"] == op.cost["matrix/bf16"] / 8


def test_few_rows_read_all_weights() -> None:
    few = reasons(ops_of(lambda x, w: x @ w, of_shape(1, 4096), of_shape(4096, 16384)))
    many = reasons(ops_of(lambda x, w: x @ w, of_shape(512, 4096), of_shape(4096, 16384)))
    assert "low-batch" in few
    assert "low-batch" not in many


# One row times weights in sixteen parts of the depth, as XLA compiles it; then the same parts, each a head of its own.
SPLIT = program_text("needed/split.hlo")


def test_a_product_that_was_split_along_its_depth_reads_weights_too() -> None:
    summed = reasons(list(reviewed_program(parse(SPLIT.replace("DIMENSION", "0")), "gpu")))
    assert [op.name for op in summed["low-batch"]] == ["gemm"]
    heads = SPLIT.replace("DIMENSION", "1").replace("f32[4096] reduce", "f32[16] reduce").replace("bf16[4096]", "bf16[16]")
    assert "low-batch" not in reasons(list(reviewed_program(parse(heads), "gpu"))), "parts that are not summed are products of their own"


def test_a_product_that_was_split_is_labelled_as_the_one_it_is() -> None:
    def label(text: str) -> str:
        return next(op.label for op in reviewed_program(parse(text), "gpu") if op.name == "gemm")

    assert label(SPLIT.replace("DIMENSION", "0")) == "split  dot 1×16384×4096 bf16, depth split in 16"
    heads = SPLIT.replace("DIMENSION", "1").replace("f32[4096] reduce", "f32[16] reduce").replace("bf16[4096]", "bf16[16]")
    assert label(heads) == "split  dot 16×(1×1024×4096) bf16"


def test_products_of_odd_sizes() -> None:
    odd = reasons(ops_of(lambda a, b: a @ b, of_shape(4097, 4097), of_shape(4097, 4097)))
    even = reasons(ops_of(lambda a, b: a @ b, of_shape(4096, 4096), of_shape(4096, 4096)))
    assert "odd-sizes" in odd
    assert "odd-sizes" not in even


@every(("channels", "dtype", "kinds"), [(128, "bfloat16", set()), (129, "bfloat16", {"odd-sizes"}), (128, "float32", {"wide-format"})])
def test_convolutions_in_fp32_or_with_odd_channels(channels: int, dtype: str, kinds: set[str]) -> None:
    def net(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    args = of_shape(64, 56, 56, channels, dtype=dtype), of_shape(3, 3, channels, channels, dtype=dtype)
    assert set(reasons(ops_of(net, *args))) == kinds


def stencil(field: Any, weights: Any) -> Any:
    return jax.lax.conv_general_dilated(field, weights, (1, 1, 1), "SAME")


@every(
    ("function", "args", "why"),
    [
        (jnp.matmul, [of_shape(2**20, 3, 3, dtype="float32")] * 2, "multiplies by tiny matrices (1048576×(3×3×3))"),
        (jnp.matmul, [of_shape(2, 2, dtype="float32"), of_shape(2, 2**24, dtype="float32")], "multiplies by tiny matrices (2×2×16777216)"),
        (stencil, [of_shape(1, 1, 320, 320, 320, dtype="float32"), of_shape(1, 1, 3, 3, 3, dtype="float32")], "with a window of 3×3×3"),
    ],
)
def test_matrices_of_a_few_elements_and_stencils_are_elementwise_work(function: Callable[..., Any], args: list[Any], why: str) -> None:
    (reason,) = [one for op in ops_of(function, *args) for one in op.avoidable]
    assert reason.kind == "odd-sizes"
    assert why in observed(reason)


@every(
    ("function", "args"),
    [
        (jnp.matmul, [of_shape(2**20, 3), of_shape(3, 64)]),  # coordinates into features
        (jnp.matmul, [of_shape(8192, 1024), of_shape(1024, 4)]),
        (stencil, [of_shape(8, 8, 64, 64, 64), of_shape(8, 8, 3, 3, 3)]),
        (stencil, [of_shape(1, 1, 320, 320, 320), of_shape(1, 1, 9, 9, 9)]),  # too many sums for elementwise code
    ],
)
def test_other_narrow_matmuls_and_convolutions_stay_as_they_are(function: Callable[..., Any], args: list[Any]) -> None:
    assert "odd-sizes" not in reasons(ops_of(function, *args))


@every(("between", "names"), [(lambda s: s / 8192, 2), (lambda s: s, 2), (lambda s: jnp.exp(s), 0), (lambda s: jnp.tril(s), 0)])
def test_linear_attention_in_the_order_that_makes_it_quadratic(between: Callable[[Any], Any], names: int) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return jnp.einsum("hqk,khe->qhe", between(jnp.einsum("qhd,khd->hqk", q, k)), v)

    head = of_shape(8192, 16, 64)
    assert len(reasons(ops_of(attend, head, head, head)).get("product-order", ())) == names


@every(("layers", "told"), [(0, True), (3, False)])
def test_a_few_products_in_fp32_among_narrow_ones_are_wide_on_purpose(layers: int, told: bool) -> None:
    def routed(x: Any, router: Any, weights: Any) -> Any:
        for _ in range(layers):
            x = jax.nn.relu(x @ weights)
        return x.astype("float32") @ router

    found = reasons(ops_of(routed, of_shape(8192, 1024), of_shape(1024, 64, dtype="float32"), of_shape(1024, 1024)))
    assert ("wide-format" in found) == told


@every(("tokens", "told"), [(1, True), (1024, False)])
def test_logits_of_the_last_token_are_no_small_batch(tokens: int, told: bool) -> None:
    def prefill(x: Any, weights: Any, head: Any) -> Any:
        return (x @ weights).reshape(8, tokens, 1024)[:, -1] @ head

    found = reasons(ops_of(prefill, of_shape(8 * tokens, 1024), of_shape(1024, 1024), of_shape(1024, 32768)))
    assert ("low-batch" in found) == told


def test_the_gradients_of_results_that_are_not_used_are_zeros() -> None:
    def loss(table: Any, x: Any, where: Any) -> Any:
        logits = (x @ table.T)[where]
        return jax.nn.logsumexp(logits.astype("float32"), -1).sum()

    args = of_shape(32000, 1024), of_shape(8192, 1024), of_shape(1024, dtype="int32")
    found = [op for op in reasons(ops_of(jax.grad(loss, argnums=(0, 1)), *args))["unused-results"] if op.category == "matmul"]
    assert len(found) == 3
    assert {reason.factor for op in found for reason in op.avoidable} == {8}


def test_one_triangle_of_the_products_of_all_pairs_needs_every_row_and_column() -> None:
    def loss(x: Any) -> Any:
        i, j = jax.numpy.tril_indices(32, -1)
        return jax.numpy.einsum("bsd,btd->bst", x, x)[:, i, j].astype("float32").sum()

    assert "unused-results" not in reasons(ops_of(jax.value_and_grad(loss), of_shape(8192, 32, 64)))


TAKEN = program_text("needed/taken.hlo")


@every(("second", "factor"), [("i", 8), ("j", 4)])
def test_what_two_kernels_take_at_the_same_places_is_used_once(second: str, factor: int) -> None:
    dims = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"
    program = parse(TAKEN.replace("DIMS", dims).replace("SECOND", second))
    (op,) = reasons(list(reviewed_program(program, "gpu")))["unused-results"]
    assert [reason.factor for reason in op.avoidable] == [factor]


COPIED = program_text("needed/copied.hlo")


@pytest.mark.parametrize(
    ("alias", "layout", "kinds"),
    [
        ("", "3,2,1,0", {"missing-donation"}),
        (", input_output_alias={ {}: (0, {}, may-alias) }", "3,2,1,0", {"missing-donation"}),
        (", input_output_alias={ {}: (0, {}, may-alias) }", "3,1,2,0", {"layout-copies"}),
    ],
)
def test_an_argument_copied_for_want_of_donation_or_to_change_its_layout(alias: str, layout: str, kinds: set[str]) -> None:
    program = COPIED.replace("ALIAS", alias).replace("{3,2,1,0} parameter(0)\n  %new", f"{{{layout}}} parameter(0)\n  %new")
    found = reasons(list(reviewed_program(parse(program), "gpu")))
    assert {(kind, op.name) for kind, ops in found.items() for op in ops} == {(kind, "copy.1") for kind in kinds}
    if "missing-donation" in kinds:
        assert found["missing-donation"][0].avoidable[0].group == ("donated" if alias else "")


def test_a_donated_argument_whose_old_value_is_used_later_is_copied_all_the_same() -> None:
    # One copy keeps the old value, which is read later, another is updated.
    twice = COPIED.replace("ALIAS", ", input_output_alias={ {}: (0, {}, may-alias) }").replace(
        "fusion(%copy.1, %new)", "fusion(%copy.2, %new)"
    )
    copies = twice.replace("  ROOT %fusion", "  %copy.2 = bf16[16,32,4096,128]{3,2,1,0} copy(%copy.1)\n  ROOT %fusion")
    found = reasons(list(reviewed_program(parse(copies), "gpu")))
    assert [op.name for op in found["missing-donation"]] == ["copy.1", "copy.2"]


@every(
    ("function", "told"),
    [
        (lambda cache, new: jnp.concatenate([cache[:, 1:], new], 1), True),
        (lambda cache, new: jnp.concatenate([cache, new], 1), True),
        (lambda cache, new: jnp.roll(cache, -1, 1).at[:, -1:].set(new), True),
        (lambda cache, new: jnp.concatenate([cache, new], 1).sum(1), False),  # an input that is read once
        (lambda cache, new: jnp.roll(cache, 1, 1) + jnp.roll(cache, -1, 1) - 2 * cache, False),  # a stencil
        (lambda cache, new: jnp.roll(cache, 1, 1), False),  # nothing is added
        (lambda cache, new: jnp.concatenate([cache[:, :2048], jnp.repeat(new, 2048, 1)], 1), False),
        (lambda cache, new: jax.lax.dynamic_update_slice(cache, new, (0, 7, 0)), False),
    ],
)
def test_a_cache_that_is_put_together_again_for_each_position(function: Callable[..., Any], told: bool) -> None:
    found = reasons(ops_of(function, of_shape(16, 4096, 1024), of_shape(16, 1, 1024)))
    shifted = [one for ops in found.values() for op in ops for one in op.avoidable if one.group == "shifted"]
    assert bool(shifted) == told
    for one in shifted:
        assert one.instead[HBM] < 16 * 4096 * 1024 * 2 / 100, "what is new is written, the rest stays where it is"


@every(
    ("function", "told"),
    [
        (lambda x, d: x @ jnp.diag(d), True),
        (lambda x, d: jnp.diag(d) @ x.T, True),
        (lambda x, d: x @ (jnp.eye(1024, dtype="bfloat16") * d), True),
        (lambda x, d: x @ jnp.where(jnp.eye(1024, dtype=bool), d, x[:1024]), False),  # another matrix with a diagonal of its own
        (lambda x, d: x @ jnp.tril(x[:1024]), False),
    ],
)
def test_a_product_with_a_diagonal_matrix(function: Callable[..., Any], told: bool) -> None:
    found = [one for op in ops_of(function, of_shape(4096, 1024), of_shape(1024)) for one in op.avoidable if one.group == "diagonal"]
    assert bool(found) == told


@every(
    ("function", "factor"),
    [
        (lambda x, w: (x @ w).mean(1), 4096),
        (lambda x, w: (2 * (x @ w)).sum((0, 1)), 16 * 4096),
        (lambda x, w: (x @ w).sum(-1), 2048),
        (lambda x, w: jnp.tanh(x @ w).mean(1), None),
        (lambda x, w: (x @ w).max(1), None),
        (lambda x, w: (y := x @ w) - y.mean(-1, keepdims=True), None),  # a layer norm
        (lambda x, w: (x + (x @ w)[..., :1024]).mean(1), None),
    ],
)
def test_a_product_that_is_added_up_afterwards(function: Callable[..., Any], factor: float | None) -> None:
    found = reasons(ops_of(function, of_shape(16, 4096, 1024), of_shape(1024, 2048))).get("product-order", [])
    factors = [one.factor for op in found for one in op.avoidable if one.kind == "product-order" and one.factor]
    assert factors == ([factor] if factor else [])


@every(
    ("function", "factors"),
    [
        (lambda x, w, other, ids: jnp.repeat(x, 16, 0) @ w * other, [16]),
        (lambda x, w, other, ids: jax.nn.relu(jax.nn.relu(jnp.repeat(x, 16, 0) @ w) @ w) * other, [16, 16]),
        (lambda x, w, other, ids: jnp.tanh(x @ w)[ids] @ w, [16]),  # features of nodes for each edge
        (lambda x, w, other, ids: jnp.repeat(x @ w, 16, 0) * other, []),
        (lambda x, w, other, ids: (jnp.repeat(x, 16, 0) + other) @ w, []),
        (lambda x, w, other, ids: jnp.tanh(x @ w)[ids[:1024]] @ w, []),  # no more rows than there are
        (lambda x, w, other, ids: jnp.ones((16, 1024), "bfloat16") @ x, []),  # a sum
        (lambda x, w, other, ids: jnp.concatenate([jnp.repeat(x, 16, 0), other[:, :512]], 1) @ jnp.concatenate([w, w[:512]]), [3]),
        (lambda x, w, other, ids: jnp.concatenate([jnp.repeat(x[:, :512], 16, 0), other], 1) @ jnp.concatenate([w, w[:512]]), []),
        (lambda x, w, other, ids: jnp.concatenate([jnp.tanh(x)[ids], jnp.repeat(x, 16, 0)], 1) @ jnp.concatenate([w, w]), [16]),
        (lambda x, w, other, ids: jnp.tanh(jnp.repeat(x, 16, 0) @ w) @ w, []),  # data that is repeated for a test
        (lambda x, w, other, ids: x[ids] @ w, [16]),  # a table that is looked up more often than it has rows
        (lambda x, w, other, ids: other[ids] @ w, []),  # no more rows than there are
        (lambda x, w, other, ids: jax.nn.relu((x[ids] @ w).reshape(1024, 16, 1024).sum(1))[ids] @ w, [16, 16]),  # a graph
    ],
)
def test_rows_that_are_repeated_before_they_are_multiplied(function: Callable[..., Any], factors: list[float]) -> None:
    x, w, other, ids = of_shape(1024, 1024), of_shape(1024, 1024), of_shape(16384, 1024), of_shape(16384, dtype="int32")
    found = [one for op in ops_of(function, x, w, other, ids) for one in op.avoidable if one.group == "rows" and one.factor]
    assert [round(one.factor or 0) for one in found] == factors


def test_matrices_that_are_gathered_for_each_row_of_a_product() -> None:
    # 64 matrices of 8 MB; 4096 tokens gather 34 GB of them.
    x, chosen, weights = of_shape(4096, 1024), of_shape(4096, dtype="int32"), of_shape(64, 1024, 4096)
    found = reasons(ops_of(lambda x, e, w: jnp.einsum("td,tdf->tf", x, w[e]), x, chosen, weights))["repeated-operand"]
    gather, product = (next(op for op in found if (op.category == "matmul") == multiplies) for multiplies in (False, True))
    assert gather.avoidable[0].instead == NOTHING
    assert product.avoidable[0].instead[HBM] < product.cost[HBM] / 50


def test_tokens_that_are_repeated_for_each_of_their_experts_are_no_repeated_matrices() -> None:
    def experts(x: Any, weights: Any) -> Any:
        return jax.lax.optimization_barrier(jnp.repeat(x, 2, 0)).reshape(16, 1024, 1024) @ weights

    assert "repeated-operand" not in reasons(ops_of(experts, of_shape(8192, 1024), of_shape(16, 1024, 4096)))


def test_rows_that_are_looked_up_are_no_repeated_matrices() -> None:
    ids, table, up = of_shape(8192, dtype="int32"), of_shape(8192, 1024), of_shape(1024, 1024)
    assert "repeated-operand" not in reasons(ops_of(lambda ids, table, up: table[ids] @ up, ids, table, up))


def test_keys_that_are_stored_for_each_query_head() -> None:
    def scores(q: Any, k: Any) -> Any:
        return jnp.einsum("bhqd,bhkd->bhqk", q, jax.lax.optimization_barrier(jnp.repeat(k, 4, 1)))

    found = reasons(ops_of(scores, of_shape(8, 32, 256, 128), of_shape(8, 8, 8192, 128)))
    assert {op.category == "matmul" for op in found["repeated-operand"]} == {True, False}


def test_both_branches_of_a_condition_for_each_example() -> None:
    def layer(which: Any, x: Any, a: Any, b: Any) -> Any:
        return jax.vmap(lambda w, x: jax.lax.cond(w, lambda: jax.nn.gelu(x @ a), lambda: jax.nn.relu(x @ b)))(which, x)

    found = reasons(ops_of(layer, of_shape(8, dtype="bool"), of_shape(8, 1024, 2048), of_shape(2048, 8192), of_shape(2048, 8192)))
    told = [one for op in found["unused-results"] for one in op.avoidable if one.kind == "unused-results"]
    assert [(one.factor, observed(one)) for one in told] == [(2, "computes 2 branches for every row, of which it uses 1")] * 2


def test_layers_that_some_rows_skip_are_no_branches_of_each_other() -> None:
    def layers(hard: Any, x: Any, weights: Any) -> Any:
        for weight in weights:
            x = x + jnp.where(hard[:, None], x @ weight, 0.5 * x)
        return x

    assert "unused-results" not in reasons(ops_of(layers, of_shape(4096, dtype="bool"), of_shape(4096, 2048), of_shape(4, 2048, 2048)))


def test_experts_one_after_another_with_the_rows_of_the_others_set_to_zero() -> None:
    def mixture(x: Any, chosen: Any, weights: Any) -> Any:
        return sum(jnp.where((chosen == i)[:, None], x @ weights[i], 0) for i in range(8))

    found = reasons(ops_of(mixture, of_shape(8192, 2048), of_shape(8192, dtype="int32"), of_shape(8, 2048, 2048)))
    assert [one.factor for op in found["dense-experts"] for one in op.avoidable if one.kind == "dense-experts"] == [8] * 8


def test_all_products_of_such_experts_are_told_and_their_gradients() -> None:
    def loss(weights: Any, x: Any, chosen: Any) -> Any:
        x, out = jnp.tanh(x @ weights["trunk"]), 0
        for up, down, i in zip(weights["up"], weights["down"], range(8), strict=True):
            out = jnp.where((chosen == i)[:, None], jax.nn.gelu(x @ up) @ down, out)
        return jnp.mean(out.astype("float32") ** 2)

    weights = {"trunk": of_shape(1024, 1024), "up": [of_shape(1024, 2048)] * 8, "down": [of_shape(2048, 1024)] * 8}
    ops = ops_of(jax.grad(loss), weights, of_shape(4096, 1024), of_shape(4096, dtype="int32"))
    found = [one.factor for op in ops for one in op.avoidable if one.kind == "dense-experts" and op.category == "matmul"]
    assert found == [8] * 48, "two forward and four backward; the trunk is everybody's"


@every(
    "function",
    [
        lambda x, keep, a, b: jnp.where(keep[:, None], x @ a, 0),  # a mask
        lambda x, keep, a, b: jnp.where((x @ a) > 0, x @ a, 0.1 * (x @ a)),  # an activation
        lambda x, keep, a, b: jnp.where((x @ a) > 0, x @ a, x @ b),  # element by element
        lambda x, keep, a, b: jnp.where(keep[:, None], x @ a, 0) + x @ b,
        lambda x, keep, a, b: jnp.where((keep.astype(int) == 1)[:, None], x @ a, 0) + jnp.where((keep.astype(int) == 1)[:, None], x @ b, 0),
    ],
)
def test_selects_of_one_product_or_of_single_elements_leave_nothing_out(function: Callable[..., Any]) -> None:
    found = reasons(ops_of(function, of_shape(4096, 1024), of_shape(4096, dtype="bool"), of_shape(1024, 2048), of_shape(1024, 2048)))
    assert not {"unused-results", "dense-experts"} & set(found)


@every("choose", ["argmax", "top_k"])
def test_experts_whose_results_are_gathered_after_all_were_computed(choose: str) -> None:
    def switch(x: Any, router: Any, up: Any, down: Any) -> Any:
        scores = x @ router
        choice = jnp.argmax(scores, -1) if choose == "argmax" else jax.lax.top_k(scores, 1)[1][:, 0]
        every = jax.vmap(lambda u, d: jax.nn.relu(x @ u) @ d)(up, down)
        return jnp.take_along_axis(every, choice[None, :, None], 0)[0]

    found = reasons(ops_of(switch, of_shape(4096, 1024), of_shape(1024, 16), of_shape(16, 1024, 2048), of_shape(16, 2048, 1024)))
    assert [reason.factor for op in found["dense-experts"] for reason in op.avoidable if reason.kind == "dense-experts"] == [16, 16]


def test_a_switch_that_sorts_its_tokens_is_not_dense() -> None:
    def switch(x: Any, router: Any, up: Any) -> Any:
        order = jnp.argsort(jnp.argmax(x @ router, -1))
        made = jnp.einsum("etd,edf->etf", x[order].reshape(16, 256, 1024), up).reshape(4096, 2048)
        return jnp.zeros_like(made).at[order].set(made)

    assert "dense-experts" not in reasons(ops_of(switch, of_shape(4096, 1024), of_shape(1024, 16), of_shape(16, 1024, 2048)))


EXPERTS = program_text("needed/experts.hlo")


def test_a_ragged_product_over_all_experts_is_dense() -> None:
    ops = {op.name: op for op in reviewed_program(parse(EXPERTS), "gpu")}
    (reason,) = [one for one in ops["dot"].avoidable if one.kind == "dense-experts"]
    assert reason.factor == 8
    assert reason.instead["matrix/bf16"] == 2 * 4096 * 1024 * 2048
    assert [one.kind for one in ops["fusion.1"].avoidable] == ["dense-experts"]


def test_a_fourier_transform_is_no_stream_of_elements() -> None:
    (op,) = [op for op in ops_of(lambda x: jnp.fft.rfft(x), of_shape(64, 4096, dtype="float32")) if op.category == "fft"]
    assert op.operation is None


@every("name", ["(jit(step)/reduce_sum:jit(step)/mlp/dot_general)", "jit(step)/jit(silu)/mul", ""])
def test_collectives_are_called_what_they_are(name: str) -> None:
    # XLA names one after the op whose result it adds up, and one that it combined after all of theirs.
    program = f"""HloModule step, num_partitions=8
%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %both = f32[] add(%a, %b)
}}
ENTRY %main (x: f32[1024,256]) -> f32[1024,256] {{
  %x = f32[1024,256]{{1,0}} parameter(0)
  ROOT %all = f32[1024,256]{{1,0}} all-reduce(%x), replica_groups=[1,8]<=[8], to_apply=%sum, metadata={{op_name="{name}"}}
}}
"""
    (op,) = reviewed_program(parse(program), "gpu")
    assert op.label.endswith("  all-reduce fp32[1024,256]")


@every(
    ("name", "word"),
    [
        ("jit(f)/jit(fft)/fft", "fft"),
        ("jit(f)/jit(fft)/convert_element_type", "fft convert"),  # of its operand to complex numbers, which is no transform
        ("jit(f)/jit(silu)/mul", "silu"),
    ],
)
def test_what_is_done_for_an_op_is_not_called_that_op(name: str, word: str) -> None:
    program = f"""HloModule step
ENTRY %main (x: f32[1024,256]) -> f32[1024,256] {{
  %x = f32[1024,256]{{1,0}} parameter(0)
  ROOT %y = f32[1024,256]{{1,0}} negate(%x), metadata={{op_name="{name}"}}
}}
"""
    (op,) = reviewed_program(parse(program), "gpu")
    assert op.label.endswith(f"  {word} fp32[1024,256]")


def test_labels_say_scope_operation_sizes_and_format() -> None:
    def mlp(x: Any, up: Any) -> Any:
        with jax.named_scope("layer0"), jax.named_scope("mlp"):
            return jax.nn.gelu(x @ up)

    labels = {op.label for op in ops_of(mlp, of_shape(8192, 2048), of_shape(2048, 8192))}
    assert any(label.startswith("layer0/mlp  dot 8192×2048×8192 bf16") for label in labels), labels


LAYOUT = """HloModule m
ENTRY e {
  a = bf16[64,32] parameter(0)
  ROOT KERNEL, metadata={op_name="jit(f)/mlp/dot_general"}
}
"""


@every(
    ("kernel", "what"),
    [
        ("c = f32[64,32] convert(a)", "convert fp32[64,32]"),
        ("d = bf16[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}", "dot 64×32×64 bf16"),
    ],
)
def test_only_products_are_labelled_as_products(kernel: str, what: str) -> None:
    (op,) = reviewed_program(parse(LAYOUT.replace("KERNEL", kernel)), "gpu")
    assert op.label == f"mlp  {what}"


def test_a_label_without_scope_is_its_source_line() -> None:
    (op,) = ops_of(lambda x: x.T.reshape(-1) * 2, of_shape(64, 32))
    assert op.label.startswith("test_needed.py:"), op.label


MIXTURE = of_shape(4096, 1024), of_shape(1024, 8), of_shape(8, 1024, 4096), of_shape(8, 4096, 1024)


def routed(x: Any, router: Any) -> tuple[Any, Any, Any]:
    scores = jax.nn.softmax((x @ router).astype("float32"), -1)
    return scores, *jax.lax.top_k(scores, 2)


def all_experts(x: Any, up: Any, down: Any) -> Any:
    return jnp.einsum("etf,efd->etd", jax.nn.silu(jnp.einsum("td,edf->etf", x, up)), down)


def by_one_hot(x: Any, router: Any, up: Any, down: Any) -> Any:
    _, weights, chosen = routed(x, router)
    gate = (jax.nn.one_hot(chosen, 8) * weights[..., None]).sum(1).astype(x.dtype)
    return jnp.einsum("etd,te->td", all_experts(x, up, down), gate)


def by_threshold(x: Any, router: Any, up: Any, down: Any) -> Any:
    scores, weights, _ = routed(x, router)
    gate = jnp.where(scores >= weights[:, -1:], scores, 0).astype(x.dtype)
    return jnp.einsum("etd,te->td", all_experts(x, up, down), gate)


def one_by_one(x: Any, router: Any, up: Any, down: Any) -> Any:
    scores, weights, chosen = routed(x, router)
    gate = jnp.zeros_like(scores).at[jnp.arange(4096)[:, None], chosen].set(weights).astype(x.dtype)
    return sum(gate[:, e : e + 1] * (jax.nn.silu(x @ up[e]) @ down[e]) for e in range(8))


@every("function", [by_one_hot, by_threshold, one_by_one])
def test_experts_that_gates_remove_are_dense(function: Callable[..., Any]) -> None:
    found = reasons(ops_of(function, *MIXTURE))["dense-experts"]
    reason = [one for op in found for one in op.avoidable if one.kind == "dense-experts"]
    assert {one.factor for one in reason} == {4}
    assert sum(one.instead["matrix/bf16"] for one in reason) == 2 * 2 * 4096 * 2 * 1024 * 4096, "two experts for each token"


def test_gradients_of_experts_that_gates_remove_are_dense_too() -> None:
    def loss(up: Any, down: Any, x: Any, router: Any) -> Any:
        return by_threshold(x, router, up, down).astype("float32").sum()

    x, router, up, down = MIXTURE
    found = reasons(ops_of(jax.grad(loss, argnums=(0, 1)), up, down, x, router))["dense-experts"]
    assert len(found) == 4, "the first product, the gradient of its result, and those of both weights"


def test_experts_with_tokens_of_their_own_are_not_dense() -> None:
    def dispatched(x: Any, router: Any, up: Any, down: Any) -> Any:
        scores, weights, _ = routed(x, router)
        gate = jnp.where(scores >= weights[:, -1:], scores, 0).astype(x.dtype)
        own = jnp.concatenate([x, x]).reshape(8, 1024, 1024)  # in place of a real dispatch
        h = jnp.einsum("etf,efd->etd", jax.nn.silu(jnp.einsum("etd,edf->etf", own, up)), down)
        return h.reshape(2, 4096, 1024).sum(0) * gate.sum(-1, keepdims=True)

    assert "dense-experts" not in reasons(ops_of(dispatched, *MIXTURE))


THRESHOLD = program_text("needed/threshold.hlo")


@every(("start", "factor"), [(0, 16), (1, 8), (3, 4), (14, 8), (15, 16)])
def test_the_threshold_among_sorted_scores_says_how_many_are_chosen(start: int, factor: int) -> None:
    text = THRESHOLD.replace("FROM", str(start)).replace("TO", str(start + 1))
    (reason,) = [one for op in reviewed_program(parse(text), "gpu") for one in op.avoidable if one.kind == "dense-experts"]
    assert reason.factor == factor


def test_a_mixture_that_weighs_every_expert_needs_all_of_them() -> None:
    def soft(x: Any, router: Any, up: Any, down: Any) -> Any:
        gate = jax.nn.softmax((x @ router).astype("float32"), -1).astype(x.dtype)
        return jnp.einsum("etd,te->td", all_experts(x, up, down), gate)

    assert "dense-experts" not in reasons(ops_of(soft, *MIXTURE))


def test_products_of_what_was_filled_up() -> None:
    def capacity(x: Any, up: Any, down: Any) -> Any:
        h = jnp.pad(x, ((0, 0), (0, 1536), (0, 0)))
        return (jax.nn.silu(h @ up) @ down)[:, :512].sum(0)

    args = of_shape(8, 512, 1024), of_shape(8, 1024, 4096), of_shape(8, 4096, 1024)
    ops = ops_of(capacity, *args)
    found = [one for op in ops for one in op.avoidable if one.kind == "padding" and one.factor]
    assert [(one.factor, one.unneeded) for one in found] == [(4, "padded"), (4, "padded")]
    assert found[0].instead["matrix/bf16"] == 2 * 8 * 512 * 1024 * 4096
    assert "padded in test_needed.py:" in observed(found[0])
    # What lies between reads and writes as much padding as the products: three quarters.
    (between,) = [op for op in ops if op.category == "loop fusion" and float(op.cost[HBM]) > 8 * 2048 * 4096 * 2]
    (reason,) = [one for one in between.avoidable if one.kind == "padding"]
    assert reason.instead[HBM] == between.cost[HBM] / 4


def test_what_is_added_to_a_filled_array_makes_it_whole() -> None:
    # The gradient of the last token's logits is zero but for one row; what other tokens add to it is not.
    def both(x: Any, rest: Any, up: Any) -> Any:
        return (jnp.pad(x, ((0, 1023), (0, 0))) + rest) @ up, (jnp.pad(x, ((0, 1023), (0, 0))) * rest) @ up

    found = ops_of(both, of_shape(1, 1024), of_shape(1024, 1024), of_shape(1024, 4096))
    assert [one.factor for op in found for one in op.avoidable if one.factor and one.kind == "padding"] == [1024]


@every(
    "fill",
    [
        lambda x: jnp.concatenate([x, jnp.zeros((16, 768, 1024), x.dtype)], axis=1),
        lambda x: jnp.zeros((16, 1024, 1024), x.dtype).at[:, :256].set(x),
        lambda x: jax.lax.dynamic_update_slice(jnp.full((16, 1024, 1024), 7, x.dtype), x, (0, 0, 0)),
    ],
)
def test_what_was_filled_up_stays_so_in_other_dimensions(fill: Callable[[Any], Any]) -> None:
    def acoustic(frames: Any, up: Any, down: Any) -> Any:
        full = fill(frames)
        h = jax.nn.relu(full.reshape(-1, 1024) @ up).reshape(16, 8, 128, 2048)
        return (h @ down)[:, :2].sum(1)

    args = of_shape(16, 256, 1024), of_shape(1024, 2048), of_shape(2048, 1024)
    found = [one for op in ops_of(acoustic, *args) for one in op.avoidable if one.kind == "padding" and one.factor]
    assert [one.factor for one in found] == [4, 4]


@every(("capacity", "told"), [(640, False), (2048, True)])
def test_room_for_more_rows_than_groups_have(capacity: int, told: bool) -> None:
    def experts(x: Any, up: Any, down: Any, expert: Any, place: Any) -> Any:
        room = jnp.zeros((16, capacity, 2048), x.dtype).at[expert, place].set(x, mode="drop")
        hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", room, up))
        return jnp.einsum("ecf,efd->ecd", hidden, down)[expert, place].astype(jnp.float32).sum()

    rows, numbers = of_shape(8192, 2048), of_shape(8192, dtype="int32")
    ops = ops_of(jax.grad(experts, (0, 1, 2)), rows, of_shape(16, 2048, 4096), of_shape(16, 4096, 2048), numbers, numbers)
    products = [op for op in ops if op.category == "matmul"]
    # Every product is told once, of the backward pass too; 8192 rows leave room for 1.25 times as many.
    assert [[(one.kind, one.factor) for one in op.avoidable] for op in products] == [[("padding", 4.0)] if told else []] * 5
    if told:
        assert {one.instead.flops / op.cost.flops for op in products for one in op.avoidable} == {1.25 * 8192 / (16 * 2048)}


def test_gradients_of_single_rows_are_no_groups_with_room() -> None:
    def last(x: Any, lengths: Any, up: Any) -> Any:
        return jnp.square((x @ up)[jnp.arange(64), lengths].astype(jnp.float32)).sum()

    ops = ops_of(jax.grad(last, (0, 2)), of_shape(64, 512, 1024), of_shape(64, dtype="int32"), of_shape(1024, 4096))
    assert {one.kind for op in ops for one in op.avoidable if op.category == "matmul"} == {"unused-results"}


@every(("members", "told"), [(7, 0), (8, 16)])
def test_products_of_one_shape_that_run_one_by_one(members: int, told: int) -> None:
    def ensemble(x: Any, weights: Any) -> Any:
        return sum(jnp.tanh(jnp.tanh(x @ first) @ second) for first, second in weights)

    weights = [(of_shape(256, 256), of_shape(256, 256)) for _ in range(members)]
    found = [one for op in ops_of(ensemble, of_shape(512, 256), weights) for one in op.avoidable if one.group == "one by one"]
    assert len(found) == told
    assert all(observed(one).startswith("runs 8 matmuls of one shape one by one") for one in found)


def test_layers_after_each_other_are_not_run_one_by_one_in_vain() -> None:
    def layers(x: Any, weights: Any) -> Any:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x

    ops = ops_of(layers, of_shape(512, 256), [of_shape(256, 256)] * 16)
    assert sum(op.category == "matmul" for op in ops) == 16
    assert not [one for op in ops for one in op.avoidable if one.group == "one by one"]


def test_a_little_padding_pays() -> None:
    def aligned(x: Any, w: Any) -> Any:
        return jnp.pad(x, ((0, 0), (0, 47))) @ jnp.pad(w, ((0, 47), (0, 0)))

    assert "padding" not in reasons(ops_of(aligned, of_shape(4096, 50257), of_shape(50257, 1024)))


def test_large_matrices_before_a_narrow_one() -> None:
    large, narrow = of_shape(8192, 8192), of_shape(8192, 64)
    ops = reasons(ops_of(lambda a, b, c: (a @ b) @ c, large, large, narrow))["product-order"]
    assert len(ops) == 2
    # (A B) C multiplies n² (n + 64) numbers, A (B C) 2 · 64 n²: of n = 8192 64.5 times fewer.
    assert all("64.5 times fewer" in observed(reason) for op in ops for reason in op.avoidable)
    flop = [reason.instead[matrix("bf16")] for op in ops for reason in op.avoidable]
    assert sum(flop) == pytest.approx(2 * 2 * 64 * 8192**2)
    assert "product-order" not in reasons(ops_of(lambda a, b, c: a @ (b @ c), large, large, narrow))
    assert "product-order" not in reasons(ops_of(lambda x, a, b: jax.nn.relu(x @ a) @ b, large, large, narrow)), "not the same value"


def test_a_loop_that_reads_the_same_weights_for_parts_of_the_rows() -> None:
    def gradient(w: Any, part: Any) -> Any:
        return jax.grad(lambda w: (jnp.tanh(part @ w).astype("float32") ** 2).mean())(w)

    def accumulated(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda held, part: (held + gradient(w, part), None), jnp.zeros_like(w), x)[0]

    def recurrent(w: Any, h: Any) -> Any:
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, 32)[0]

    found = reasons(ops_of(accumulated, of_shape(4096, 4096), of_shape(32, 32, 4096)))["low-batch"]
    words = " ".join(observed(reason) for op in found for reason in op.avoidable)
    assert "of weights for 32 rows in each iteration of a loop" in words
    assert "of gradients for 32 rows in each iteration of a loop" in words
    assert "low-batch" not in reasons(ops_of(recurrent, of_shape(4096, 4096), of_shape(32, 4096))), "each iteration needs the one before"


def test_kernels_in_fp64_could_be_fp32() -> None:
    with jax.enable_x64(True):
        (op,) = ops_of(lambda x: jnp.tanh(x) * 2, of_shape(4096, 4096, dtype="float64"))
    (reason,) = op.avoidable
    assert reason.kind == "wide-format"
    assert 2 * reason.instead[HBM] == op.cost[HBM]


DOUBLES = program_text("needed/doubles.hlo")


@every("platform", ["cpu", "gpu"])
def test_products_in_fp64_are_wide_on_any_chip_and_so_is_what_feeds_them(platform: Any) -> None:
    found = reasons(list(reviewed_program(parse(DOUBLES), platform)))["wide-format"]
    assert [op.name for op in found] == ["wide", "dot"]
    single = DOUBLES.replace("f64", "f32").replace("convert", "copy")
    assert ("wide-format" in reasons(list(reviewed_program(parse(single), platform)))) == (platform == "gpu")


AGAIN = program_text("needed/again.hlo")


@every(("name", "kinds"), [("max", set()), ("head/max", {"duplicated-work"})])
def test_what_the_compiler_computes_again_rather_than_keep_is_not_the_authors(name: str, kinds: set[str]) -> None:
    assert set(reasons(list(reviewed_program(parse(AGAIN.replace("OTHER", name)), "gpu")))) == kinds


def test_a_copy_that_the_compiler_makes_twice_is_not_the_authors() -> None:
    copies = AGAIN.replace("fusion(%x), kind=kLoop, calls=%relu", "copy(%x)")
    assert set(reasons(list(reviewed_program(parse(re.sub(r", metadata=.*", "", copies)), "gpu")))) == set()
    assert "duplicated-work" in reasons(list(reviewed_program(parse(copies), "gpu")))


def test_buffers_that_are_filled_alike_are_not_the_same_work() -> None:
    def zeros(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, held: (held[0] + x, held[1] - x), (jnp.zeros_like(x), jnp.zeros_like(x)))

    assert "duplicated-work" not in reasons(ops_of(zeros, of_shape(4096, 4096)))


def test_the_place_of_the_largest_needs_its_value_too() -> None:
    found = reasons(ops_of(lambda x: x.argmax(-1), of_shape(8192, 4096, dtype="float32")))
    assert "unused-results" not in found


def test_a_share_below_a_percent_is_not_called_nothing() -> None:
    def last(x: Any, up: Any) -> Any:
        return jax.lax.optimization_barrier(x @ up)[-8:]

    (reason,) = [one for op in ops_of(last, of_shape(8192, 1024), of_shape(1024, 4096)) for one in op.avoidable if one.unneeded == "unused"]
    assert "0.098% are used" in observed(reason)


def fingerprints(function: Callable[..., Any], *args: Any) -> list[str]:
    """Of the products of a function."""
    found = lower(function, H200)(*args)
    review = Review(Pricer(found.module, found.platform, Network.of(None, found.platform), {}))
    entry = found.module.entry
    values = [review.value(entry, index) for index in range(len(found.module.entry_computation))]
    return [value for value in values if value]


def test_programs_that_compute_the_same_from_the_same_arguments_are_found() -> None:
    def forward(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w["a"]) @ w["b"]

    shape = of_shape(2048, 2048)
    args = {"a": shape, "b": shape}, shape
    score = fingerprints(lambda w, x: (forward(w, x).astype("float32") ** 2).mean(), *args)
    right = fingerprints(lambda w, x: forward(w, x).argmax(-1), *args)
    assert len(score) == 2
    assert score == right
    gradient = fingerprints(jax.grad(lambda w, x: (forward(w, x).astype("float32") ** 2).mean()), *args)
    assert set(score) < set(gradient), "the forward pass of training is found too"
    assert not set(score) & set(fingerprints(lambda w, y: forward(w, y).sum(), *args)), "an argument of another name"
    smaller = {"a": shape, "b": shape}, of_shape(512, 2048)
    assert not set(score) & set(fingerprints(lambda w, x: forward(w, x).sum(), *smaller)), "or shape"


TILED = """HloModule step, is_scheduled=true

ENTRY main {
  x = f32[4096,256,%(last)d]{2,1,0:T(8,128)} parameter(0)
  ROOT y = f32[4096,256,%(last)d]{2,1,0:T(8,128)} exponential(x)
}
"""


@every(("last", "share"), [(4, 31 / 32), (128, 0.0)])
def test_tiles_that_are_filled_up_are_padding(last: int, share: float) -> None:
    (op,) = reviewed_program(parse(TILED % {"last": last}, "tiled"))
    found = [one for one in op.avoidable if one.kind == "tile-padding"]
    assert bool(found) == bool(share)
    if found:
        # 4 of 128 elements of each row are data.
        assert found[0].unneeded == "padded"
        assert found[0].instead[HBM] == pytest.approx(op.cost[HBM] * (1 - share))
        assert found[0].instead[HBM] == pytest.approx(2 * 4096 * 256 * last * 4)


def test_a_product_whose_result_lacks_a_dimension_is_needed_whole() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY main {
  a = f32[4,8,16]{2,1,0} parameter(0)
  b = f32[16,4]{1,0} parameter(1)
  dot = f32[8,4]{1,0} dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  ROOT part = f32[2,4]{1,0} slice(dot), slice={[0:2], [0:4]}
}"""
    assert len(reviewed_program(parse(text), "gpu").ops)
