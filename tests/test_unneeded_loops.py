"""What of a program's work could be avoided, in loops and around them, and in products that several others use."""

from math import prod
from typing import Any

import pytest

from every import every
from evidence import reviewed_program
from program_texts import program_text
from reviewed import of_shape, ops_of
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.hlo.review import Review
from roofline.operation import Product, Streamed
from roofline.resource import HBM

jax = pytest.importorskip("jax")
jnp = jax.numpy


LOOKED_UP = program_text("unneeded_loops/looked_up.hlo")


@every(("rows", "names"), [(1, ["dot", "wrapped_slice"]), (1024, [])])
def test_weights_that_are_cut_out_for_a_few_rows_are_read_for_them_too(rows: int, names: list[str]) -> None:
    ops = reviewed_program(parse(LOOKED_UP.replace("ROWS", str(rows))), "gpu")
    assert sorted(op.name for op in ops if any(one.kind == "low-batch" for one in op.avoidable)) == names


@every(("window", "same"), [("size=3x3 pad=1_1x1_1", True), ("size=3x3 pad=1_1x1_1 rhs_reversal=1x1", False)])
def test_a_convolution_that_two_programs_compute(window: str, same: bool) -> None:
    program = """HloModule one
ENTRY %main (x: bf16[8,56,56,64], w: bf16[64,3,3,64]) -> bf16[8,56,56,64] {
  %x = bf16[8,56,56,64]{3,2,1,0} parameter(0), metadata={op_name="x"}
  %w = bf16[64,3,3,64]{3,2,1,0} parameter(1), metadata={op_name="w"}
  ROOT %conv = bf16[8,56,56,64]{3,2,1,0} convolution(%x, %w), window={WINDOW}, dim_labels=b01f_o01i->b01f
}
"""
    values = []
    for said in ("size=3x3 pad=1_1x1_1", window):
        module = parse(program.replace("WINDOW", said))
        values.append(Review(Pricer(module, "gpu", Network.of(None, "gpu"), {})).value(module.entry, 2))
    assert all(values)
    assert (values[0] == values[1]) == same


def test_rows_that_are_looked_up_and_used_in_one_kernel_do_not_stream() -> None:
    (op,) = ops_of(lambda x, ids: jnp.tanh(x[ids]) * 2, of_shape(4096, 1024), of_shape(16384, dtype="int32"))
    assert op.operation == Streamed(kind="gathered")


def test_arrays_that_are_interleaved_are_no_padding_and_do_not_stream() -> None:
    def mixed(u: Any, w: Any) -> Any:
        even, odd = u[:, ::2], u[:, 1::2]
        widths = (0, 0, 0), (0, 0, 0)
        both = jax.lax.pad(even, jnp.zeros((), u.dtype), (widths[0], (0, 1, 1), widths[1]))
        both += jax.lax.pad(odd * 2, jnp.zeros((), u.dtype), (widths[0], (1, 0, 1), widths[1]))
        return jax.lax.optimization_barrier(both).reshape(-1, 1024) @ w

    ops = ops_of(mixed, of_shape(16, 2048, 1024), of_shape(1024, 1024))
    assert not [one for op in ops for one in op.avoidable if one.kind == "padding"]
    assert any(op.operation == Streamed(kind="interleaved") for op in ops)


@every(("levels", "kind"), [(1, "fusion"), (2, "interleaved")])
def test_a_kernel_of_several_levels_of_a_scan_over_pairs_does_not_stream(levels: int, kind: str) -> None:
    def paired(x: Any) -> Any:
        for _ in range(levels):
            x = x[:, ::2] * x[:, 1::2]
        return x

    (op,) = ops_of(paired, of_shape(4096, 4096))
    assert op.operation == Streamed(kind=kind)


def test_a_token_that_is_sent_to_two_experts_is_not_multiplied_twice_by_one() -> None:
    def mixture(x: Any, router: Any, up: Any, down: Any) -> Any:
        chosen = jax.lax.top_k(x @ router, 2)[1].reshape(-1)
        order = jnp.argsort(chosen)
        sizes = jnp.bincount(chosen, length=8).astype("int32")
        hidden = jax.nn.relu(jax.lax.ragged_dot(x[order // 2], up, sizes))
        return jnp.zeros_like(x).at[order // 2].add(jax.lax.ragged_dot(hidden, down, sizes))

    ops = ops_of(mixture, of_shape(4096, 1024), of_shape(1024, 8), of_shape(8, 1024, 2048), of_shape(8, 2048, 1024))
    assert not [one for op in ops for one in op.avoidable if one.kind == "repeated-operand"]
    products = [op for op in ops if isinstance(op.operation, Product) and op.operation.groups]
    for op, sizes in zip(products, [(8192, 1024, 2048), (8192, 2048, 1024)], strict=True):
        # Each of the 4096 tokens is multiplied by the matrices of its two experts, not of all eight.
        assert isinstance(op.operation, Product)
        assert (op.operation.m, op.operation.k, op.operation.n, op.operation.groups) == (*sizes, 8)
        assert (op.cost.flops, op.operation.bytes) == (2 * prod(sizes), op.cost[HBM] - 8 * 4)
        assert op.label.endswith("ragged dot {}×{}×{} in 8 groups bf16".format(*sizes))


@every("scanned", [False, True])
def test_a_causal_mask_that_is_made_once_before_a_loop_over_layers(scanned: bool) -> None:
    def layer(x: Any, w: Any) -> Any:
        heads = (x @ w).reshape(4, 512, 8, 64)
        scores = jnp.einsum("bqhd,bkhd->bhqk", heads, heads)
        mask = jnp.tril(jnp.ones((512, 512), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        return x + jnp.einsum("bhqk,bkhd->bqhd", weights, heads).reshape(x.shape), None

    def loss(stack: Any, x: Any) -> Any:
        repeated = jax.checkpoint(layer)
        for number in range(0 if scanned else 3):
            x = repeated(x, stack[number])[0]
        return (jax.lax.scan(repeated, x, stack)[0] if scanned else x).astype("float32").sum()

    ops = ops_of(jax.value_and_grad(loss), of_shape(3, 512, 512), of_shape(4, 512, 512))
    masked = [op.count for op in ops if {"masked"} == {one.unneeded for one in op.avoidable if one.unneeded}]
    # Of each of three layers two products forward and four back; those that are computed again are spared altogether.
    assert sum(masked) == 3 * (2 + 4)
