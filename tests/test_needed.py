"""Which of a program's work could be avoided, and what its kernels are called, on JAX functions with one such decision each."""

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from every import every
from evidence import reviewed_program
from reviewed import H200, of_shape, ops_of
from roofline.hlo.ir import equality
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.hlo.review import Review
from roofline.jax import lower
from roofline.operation import Product, Streamed
from roofline.resource import HBM
from roofline.workload import Op

jax = pytest.importorskip("jax")
jnp = jax.numpy
TILED = """HloModule step, is_scheduled=true

ENTRY main {
  x = f32[4096,256,%(last)d]{2,1,0:T(8,128)} parameter(0)
  ROOT y = f32[4096,256,%(last)d]{2,1,0:T(8,128)} exponential(x)
}
"""


def reasons(ops: list[Op]) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {}
    for op in ops:
        for reason in op.avoidable:
            found.setdefault(reason.kind, []).append(op)
    return found


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


def test_a_fourier_transform_is_no_stream_of_elements() -> None:
    (op,) = [op for op in ops_of(lambda x: jnp.fft.rfft(x), of_shape(64, 4096, dtype="float32")) if op.category == "fft"]
    assert op.operation is None


def test_labels_say_scope_operation_sizes_and_format() -> None:
    def mlp(x: Any, up: Any) -> Any:
        with jax.named_scope("layer0"), jax.named_scope("mlp"):
            return jax.nn.gelu(x @ up)

    labels = {str(op.label) for op in ops_of(mlp, of_shape(8192, 2048), of_shape(2048, 8192))}
    assert any(label.startswith("layer0/mlp  dot 8192×2048×8192 bf16") for label in labels), labels


def test_a_label_without_scope_is_its_source_line() -> None:
    (op,) = ops_of(lambda x: x.T.reshape(-1) * 2, of_shape(64, 32))
    assert str(op.label).startswith("test_needed.py:"), op.label


def test_kernels_in_fp64_could_be_fp32() -> None:
    with jax.enable_x64(True):
        (op,) = ops_of(lambda x: jnp.tanh(x) * 2, of_shape(4096, 4096, dtype="float64"))
    (reason,) = op.avoidable
    assert reason.kind == "wide-format"
    assert 2 * reason.instead[HBM] == op.cost[HBM]


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
        assert str(op.label).endswith("ragged dot {}×{}×{} in 8 groups bf16".format(*sizes))


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


@every(
    "chosen",
    [
        lambda is_due, penalty: jnp.where(is_due, penalty, 0.0),
        lambda is_due, penalty: jnp.where(is_due, 1.0, 0.0) * penalty,
        lambda is_due, penalty: is_due * penalty,
    ],
)
@every("every", [10, 64])
def test_a_penalty_of_few_steps_is_found_before_the_compiler_sees_it(chosen: Callable[[Any, Any], Any], every: int) -> None:
    def step(number: Any, w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.tanh(x @ w).sum() + chosen(number % every == 0, jnp.square(x @ w @ w).sum())

        return jax.value_and_grad(loss)(w)

    shapes = of_shape(1024, 1024, dtype="float32"), of_shape(4096, 1024, dtype="float32")
    ops = ops_of(step, of_shape(dtype="int32"), *shapes)
    products = [op for op in ops if "dot" in op.name]
    waste = [one for op in ops for one in op.avoidable if one.group == "condition"]
    # x @ w and its gradient are the loss's too; (x @ w) @ w, its gradients by both factors and the first one's by w are the penalty's.
    assert (len(products), len(waste)) == (6, 4)
    assert {one.factor for one in waste} == {every}


def test_a_position_that_only_live_rows_update_is_one_position() -> None:
    def decode(cache: Any, new: Any, at: Any, live: Any) -> Any:
        here = (jnp.arange(2048) == at[:, None]) & live[:, None]
        return jnp.where(here[:, :, None], new[:, None], cache)

    shapes = of_shape(16, 2048, 1024), of_shape(16, 1024), of_shape(16, dtype="int32"), of_shape(16, dtype="bool")
    [found] = [one for op in ops_of(decode, *shapes) for one in op.avoidable if one.group == "selected"]
    assert found.kind == "layout-copies"


def test_the_parts_of_a_large_result_are_not_all_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # An optimizer over a thousand arrays takes its arguments out of one tuple. Two of the parts are taken twice.
    parts = 1_000
    taken = [*range(parts), 3, 7]
    lines = "\n".join(f"  g.{place} = f32[8]{{0}} get-tuple-element(t), index={part}" for place, part in enumerate(taken))
    shape = ", ".join(["f32[8]{0}"] * parts)
    program = f"HloModule adam\n\nENTRY main {{\n  t = ({shape}) parameter(0)\n{lines}\n  ROOT sum = f32[8]{{0}} add(g.0, g.1)\n}}\n"
    module = parse(program)
    calls: list[int] = []
    compare = equality.is_equal
    monkeypatch.setattr(equality, "is_equal", lambda *args: (calls.append(1), compare(*args))[1])
    alike = equality.EqualInstructions(module, module.entry_computation)
    found = [alike.first(index, "same key") for index in range(1, 1 + len(taken))]
    assert found == [1 + part for part in taken]
    assert len(calls) < 3 * len(taken)


@every(("dtype", "change", "kind"), [("c64", "multiply", "complex"), ("f32", "multiply", "fusion"), ("c64", "copy", "fusion")])
def test_kernels_that_compute_with_complex_numbers_are_told_apart(dtype: str, change: str, kind: str) -> None:
    program = f"""HloModule spectra
ENTRY %main (x: {dtype}[512,512], y: {dtype}[512,512]) -> {dtype}[512,512] {{
  %x = {dtype}[512,512]{{1,0}} parameter(0)
  %y = {dtype}[512,512]{{1,0}} parameter(1)
  ROOT %made = {dtype}[512,512]{{1,0}} {change}({"%x, %y" if change == "multiply" else "%x"})
}}
"""
    assert [op.operation for op in reviewed_program(parse(program), "gpu")] == [Streamed(kind=kind)]
