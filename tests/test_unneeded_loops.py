"""What of a program's work could be avoided, in loops and around them, and in products that several others use."""

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from every import every
from evidence import reviewed_program
from program_texts import program_text
from reviewed import of_shape, ops_of
from roofline.cost import NOTHING
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.hlo.review import Review
from roofline.operation import Product, Streamed
from roofline.resource import HBM
from roofline.rules.words import observed
from roofline.workload import Op

jax = pytest.importorskip("jax")
jnp = jax.numpy


@every("carried", [False, True])
def test_a_cache_that_a_scan_over_layers_gives_back_slice_by_slice(carried: bool) -> None:
    def decode(caches: Any, x: Any, at: Any) -> Any:
        def layer(x: Any, cache: Any) -> Any:
            cache = jax.lax.dynamic_update_slice(cache, x[:, None], (0, at, 0))
            return jnp.tanh(cache.sum(1)), cache

        def in_place(number: Any, carry: Any) -> Any:
            x, caches = carry
            caches = jax.lax.dynamic_update_slice(caches, x[None, :, None], (number, 0, at, 0))
            return jnp.tanh(caches[number].sum(1)), caches

        if carried:
            return jax.lax.fori_loop(0, 4, in_place, (x, caches))
        return jax.lax.scan(layer, x, caches)

    ops = ops_of(decode, of_shape(4, 16, 4096, 1024), of_shape(16, 1024), of_shape(dtype="int32"))
    found = [one for op in ops for one in op.avoidable if one.group == "rebuilt"]
    assert bool(found) == (not carried)
    for one in found:
        assert one.instead[HBM] < 16 * 4096 * 1024 * 2 / 100, "one position of each layer is written"


@every(("take", "factor"), [(lambda scores: scores[-1], 6), (lambda scores: scores[3:], 2), (lambda scores: scores, None)])
def test_scores_of_every_layer_of_which_the_last_are_used(take: Callable[[Any], Any], factor: float | None) -> None:
    def detect(weights: Any, head: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            h = jnp.tanh(h @ w)
            return h, h @ head

        h, scores = jax.lax.scan(layer, x, weights)
        return h, jax.nn.sigmoid(take(scores))

    ops = ops_of(detect, of_shape(6, 512, 512), of_shape(512, 8192), of_shape(4096, 512))
    found = [(op, one) for op in ops for one in op.avoidable if one.kind == "unused-results"]
    assert {one.factor for _, one in found} == ({factor} if factor else set())
    assert len([op for op, _ in found if op.category == "matmul"]) == (1 if factor else 0), "the layer itself is needed"


@every(
    ("function", "told"),
    [
        (lambda a, b: (a @ b.T)[jnp.arange(8192), jnp.arange(8192)], True),
        (lambda a, b: jnp.trace(a @ b.T), True),
        (lambda a, b: jax.nn.softmax(a @ b.T), False),
        (lambda a, b: (scores := a @ b.T).sum(1) - scores[jnp.arange(8192), jnp.arange(8192)], False),
    ],
)
def test_the_diagonal_of_a_product(function: Callable[..., Any], told: bool) -> None:
    ops = ops_of(function, of_shape(8192, 512), of_shape(8192, 512))
    assert [one.factor for op in ops for one in op.avoidable if one.kind == "unused-results"] == ([8192] if told else [])


@every("how", ["scan", "sum", "layers"])
def test_experts_whose_results_are_weighted_one_after_another(how: str) -> None:
    def mixture(x: Any, router: Any, up: Any, down: Any) -> Any:
        top, chosen = jax.lax.top_k((x @ router).astype("float32"), 2)
        if how == "sum":
            gates = [jnp.sum(jnp.where(chosen == e, jax.nn.softmax(top), 0), -1).astype(x.dtype) for e in range(16)]
            return sum(gates[e][:, None] * (jax.nn.relu(x @ up[e]) @ down[e]) for e in range(16))
        gates = jnp.zeros((4096, 16), x.dtype).at[jnp.arange(4096)[:, None], chosen].set(top.astype(x.dtype))

        def one(total: Any, expert: Any) -> Any:
            up, down, gate = expert
            return total + gate[:, None] * (jax.nn.relu(x @ up) @ down), None

        def layer(h: Any, weights: Any) -> Any:  # as many layers as there are experts
            return h + jax.nn.relu(h @ weights[0]) @ weights[1], None

        if how == "layers":
            return jax.lax.scan(layer, x, (up, down))[0] * gates.sum(1)[:, None]
        return jax.lax.scan(one, jnp.zeros_like(x), (up, down, gates.T))[0]

    ops = ops_of(mixture, of_shape(4096, 1024), of_shape(1024, 16), of_shape(16, 1024, 2048), of_shape(16, 2048, 1024))
    factors = [one.factor for op in ops for one in op.avoidable if one.kind == "dense-experts"]
    assert factors == {"scan": [8] * 2, "sum": [8] * 32, "layers": []}[how]


@every("gathered", [False, True])
def test_the_gradients_of_repeated_rows_could_be_added_up_first(gathered: bool) -> None:
    def loss(weights: Any, x: Any, other: Any, ids: Any) -> Any:
        h = jnp.tanh(x @ weights["own"])
        rows = h[ids] if gathered else jnp.repeat(h, 16, 0)
        return jnp.sum((jax.nn.relu(jax.nn.relu(rows @ weights["a"]) @ weights["b"]) * other).astype("float32") ** 2)

    weights = {name: of_shape(1024, 1024) for name in ("own", "a", "b")}
    ops = ops_of(jax.grad(loss), weights, of_shape(1024, 1024), of_shape(16384, 1024), of_shape(16384, dtype="int32"))
    found = [one.factor for op in ops for one in op.avoidable if one.group == "rows" and one.factor]
    assert found == [16] * 6, "two forward, two of weights, two of rows; not those of the rows before they were repeated"


def test_rows_of_the_identity_are_one_hot() -> None:
    ops = ops_of(lambda ids, table: jnp.eye(8192, dtype="bfloat16")[ids] @ table, of_shape(16384, dtype="int32"), of_shape(8192, 1024))
    told = [op for op in ops if any(reason.kind == "one-hot-product" for reason in op.avoidable)]
    assert [op.category for op in told] == ["loop fusion", "matmul"], "that of the rows and the product"


def test_the_gradients_of_a_product_of_two_narrow_factors() -> None:
    def loss(p: Any, frozen: Any, x: Any) -> Any:
        return jnp.tanh(x @ frozen + x @ (p["a"] @ p["b"])).astype("float32").sum()

    weights = {"a": of_shape(4096, 16), "b": of_shape(16, 4096)}
    ops = ops_of(jax.grad(loss), weights, of_shape(4096, 4096), of_shape(16384, 4096))
    large = [op for op in ops if op.category == "matmul" and (op.cost.flops or 0) == 2 * 16384 * 4096 * 4096]
    told = [op for op in large if any(one.kind == "product-order" for one in op.avoidable)]
    assert (len(large), len(told)) == (3, 2), "forward and back: all but the product with the frozen weights"


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


@every(("shift", "factor"), [(512, None), (256, 4 / 3), (0, 2)])
def test_parts_that_are_padded_on_opposite_sides_and_added_fill_an_array(shift: int, factor: float | None) -> None:
    # As in the gradient of rotary embeddings: each half is padded to the whole. Of 1024 columns 512 are data where both begin at 0,
    # 768 where the second begins at 256, and all where it begins at 512.
    def halves(a: Any, b: Any, w: Any) -> Any:
        zero = jnp.zeros((), a.dtype)
        left = jax.lax.pad(a, zero, ((0, 0, 0), (0, 512, 0)))
        right = jax.lax.pad(b, zero, ((0, 0, 0), (shift, 512 - shift, 0)))
        return jax.lax.optimization_barrier(left + right) @ w

    ops = ops_of(halves, of_shape(4096, 512), of_shape(4096, 512), of_shape(1024, 1024))
    factors = [one.factor for op in ops for one in op.avoidable if one.kind == "padding" and one.factor]
    assert factors == ([pytest.approx(factor)] if factor else [])


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


def accumulated(weight: Any, batches: Any, is_cast_before: bool) -> Any:
    """Rows of each batch times fp32 weights, which are cast in the loop or in front of it."""
    before = weight.astype("bfloat16") if is_cast_before else weight

    def add(total: Any, batch: Any) -> Any:
        return total + (batch @ before.astype("bfloat16")).sum(0), None

    return jax.lax.scan(add, jnp.zeros(weight.shape[1], "bfloat16"), batches)[0]


@every("is_cast_before", [False, True])
def test_what_every_trip_of_a_loop_computes_anew(is_cast_before: bool) -> None:
    args = of_shape(4096, 8192, dtype="float32"), of_shape(4, 512, 4096)
    # Computed weights: those that are arguments could be stored in the narrow format.
    ops = ops_of(lambda weight, batches: accumulated(2 * weight, batches, is_cast_before), *args)
    told = [(op, one) for op in ops for one in op.avoidable if one.group == "loop"]
    assert len(told) == (0 if is_cast_before else 1)
    for op, one in told:  # one trip of four is enough
        assert observed(one) == "computes the same in every iteration of a loop"
        assert float(one.instead.known(HBM)) * 4 * 4 == pytest.approx(float(op.cost.known(HBM)))


def trained(layers: int, **how: Any) -> list[Op]:
    """The gradient of a scan over layers, each an MLP with a residual."""

    def layer(x: Any, w: Any) -> Any:
        return x + jax.nn.gelu(x @ w[0]) @ w[1].T, None

    def loss(weights: Any, x: Any) -> Any:
        return jax.lax.scan(layer, x, weights, **how)[0].astype("float32").sum()

    return ops_of(jax.grad(loss), of_shape(layers, 2, 1024, 4096), of_shape(8192, 1024))


def test_activations_that_a_scan_over_layers_stacks_for_its_backward_pass() -> None:
    told = [op for op in trained(6) for one in op.avoidable if one.group == "activations"]
    moved = sum(float(op.cost.known(HBM)) for op in told)
    # The input of each layer and what the gradient of GELU needs, 8192 x 1024 and several times 8192 x 4096, go in and out of stacks.
    assert moved > 2 * 6 * 2 * 8192 * (1024 + 4096)
    assert not any(op.cost.known("matrix/bf16") for op in told)


@every(("layers", "how"), [(6, {"unroll": True}), (200, {})])
def test_unrolled_scans_and_long_ones_stack_nothing_in_vain(layers: int, how: dict[str, Any]) -> None:
    assert not [one for op in trained(layers, **how) for one in op.avoidable if one.group == "activations"]


def test_activations_that_the_program_returns_are_needed_as_a_stack() -> None:
    def states(weights: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, weights)

    ops = ops_of(states, of_shape(6, 512, 512), of_shape(4096, 512))
    assert not [one for op in ops for one in op.avoidable if one.group == "activations"]


def recurrent_gradients(rows: int, steps: int = 64) -> list[Op]:
    """The gradient of the weights of a recurrence over rows of 1024."""

    def loss(w: Any, xs: Any) -> Any:
        last, _ = jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros_like(xs[0]), xs)
        return last.astype("float32").sum()

    return ops_of(jax.grad(loss), of_shape(1024, 1024), of_shape(steps, rows, 1024))


def test_gradients_of_weights_that_a_recurrent_loop_adds_up_need_one_product_after_it() -> None:
    told = [(op, one) for op in recurrent_gradients(64) for one in op.avoidable if one.group == "carried"]
    assert told
    assert all("adds 2.097 MB of gradients to a sum for 64 rows in each iteration of a loop" in observed(one) for _, one in told)
    (instead,) = [one.instead for op, one in told if op.cost.known("matrix/bf16")]
    # Two operands of 64 x 1024 are stored and read, and 1/64 of the result is written, in each of 64 iterations.
    assert (instead["matrix/bf16"], instead[HBM]) == (2 * 64 * 1024**2, 2 * 2 * 2 * 64 * 1024 + 2 * 1024**2 // 64)


@every("rows", [512, 1024])
def test_a_recurrent_loop_with_many_rows_may_add_up_its_gradients(rows: int) -> None:
    assert not [one for op in recurrent_gradients(rows) for one in op.avoidable if one.group == "carried"]


@every(("before", "groups"), [(False, {"carried": 1, "loop": 3}), (True, {"carried": 1})])
def test_gradients_of_inputs_that_a_loop_multiplies_belong_to_the_product_before_it(before: bool, groups: dict[str, int]) -> None:
    def loss(w: Any, inputs: Any, xs: Any) -> Any:
        rows = xs @ inputs if before else xs
        last, _ = jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + (x if before else x @ inputs)), None), jnp.zeros_like(xs[0]), rows)
        return last.astype("float32").sum()

    weights, xs = of_shape(1024, 1024), of_shape(64, 64, 1024)
    ops = ops_of(jax.grad(loss, (0, 1, 2)), weights, weights, xs)
    multiplied = [op for op in ops if op.cost.known("matrix/bf16")]
    told = [one for op in multiplied for one in op.avoidable if one.kind == "low-batch"]
    # The products of inputs and weights, the gradients of these weights, and the gradients of the inputs.
    assert {name: [one.group for one in told].count(name) for name in {one.group for one in told}} == groups


@every("fed_back", [False, True])
def test_a_product_for_stacked_results_alone_belongs_after_the_loop(fed_back: bool) -> None:
    def outputs(w: Any, head: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x)
            y = h @ head
            return (y if fed_back else h), y

        return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    ops = ops_of(outputs, of_shape(1024, 1024), of_shape(1024, 1024), of_shape(64, 64, 1024))
    told = [one for op in ops for one in op.avoidable if one.kind == "low-batch" and op.cost.known("matrix/bf16")]
    assert len(told) == (not fed_back)


@every(
    ("returned", "new", "count"),
    [("cache", 1, 2), ("cache", 32, 0), ("row", 1, 0)],
)
def test_a_carried_array_that_is_stacked_in_full_although_little_of_it_changes(returned: str, new: int, count: int) -> None:
    def generate(x: Any, cache: Any) -> Any:
        def token(state: Any, at: Any) -> Any:
            x, cache = state
            row = jnp.tanh(x)
            cache = jax.lax.dynamic_update_slice(cache, jnp.broadcast_to(row, (new, 4096)), (at, 0))
            x = x + cache.sum(0)
            return (x, cache), cache if returned == "cache" else row

        return jax.lax.scan(token, (x, cache), jnp.arange(16))

    ops = ops_of(generate, of_shape(4096), of_shape(256, 4096))
    told = [op for op in ops for one in op.avoidable if one.group == "every state" and one.instead.known(HBM) < 100]
    # Sixteen copies of the cache are read and written, and their stack is filled before the loop.
    assert len(told) == count
    assert sum(float(op.cost.known(HBM)) for op in told) == pytest.approx((2 + 1) * 16 * 256 * 4096 * 2 if told else 0, rel=0.01)


@every(
    ("how", "is_told"),
    [
        (lambda a, b, h: a * h + b, True),
        (lambda a, b, h: h - a * h + b, True),
        (lambda a, b, h: jnp.tanh(a * h + b), False),
        (lambda a, b, h: a * h * h + b, False),
        (lambda a, b, h: h + b, False),
    ],
)
def test_a_state_that_enters_linearly_could_be_an_associative_scan(how: Callable[..., Any], is_told: bool) -> None:
    def states(a: Any, b: Any) -> Any:
        def step(h: Any, ab: Any) -> Any:
            h = how(*ab, h)
            return h, h

        return jax.lax.scan(step, jnp.zeros_like(b[0]), (a, b))[1]

    ops = ops_of(states, of_shape(256, 8, 2048), of_shape(256, 8, 2048))
    told = [op for op in ops for one in op.avoidable if one.group == "linear"]
    assert bool(told) == is_told
    assert all(one.instead * op.count == op.cost for op in told for one in op.avoidable if one.group == "linear")


def test_microbatches_are_not_recurrent() -> None:
    def gradients(w: Any, xs: Any) -> Any:
        def one(total: Any, x: Any) -> Any:
            return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), None

        return jax.lax.scan(one, jnp.zeros_like(w), xs)[0]

    ops = ops_of(gradients, of_shape(256, 256), of_shape(64, 256, 256))
    assert not [one for op in ops for one in op.avoidable if one.group == "carried"]


def beams(how: str) -> Any:
    """A cache of two layers, 64 beams and 512 positions, to which a loop adds a key of each beam; then it follows the beams."""

    def step(cache: Any, token: Any) -> Any:
        place, keys, order = token
        if how == "updated in a loop":
            cache = jax.lax.scan(lambda cache, layer: (cache.at[layer, :, place].set(keys), None), cache, jnp.arange(2))[0]
        elif how != "shuffled":
            cache = cache.at[:, :, place].set(keys)
        if how == "new positions":
            return jax.lax.dynamic_update_slice(cache, cache[:, :, 256:][:, order], (0, 0, 256, 0)), None
        return cache[:, order], None

    return lambda cache, keys, orders: jax.lax.scan(step, cache, (jnp.arange(8) + 256, keys, orders))[0]


@every(("how", "told"), [("whole", True), ("updated in a loop", True), ("new positions", False), ("shuffled", False)])
def test_a_cache_that_a_loop_reorders_in_every_iteration(how: str, told: bool) -> None:
    args = of_shape(2, 64, 512, 128), of_shape(8, 64, 128), of_shape(8, 64, dtype="int32")
    found = [(op, one) for op in ops_of(beams(how), *args) for one in op.avoidable if one.group == "reordered in a loop"]
    assert bool(found) is told
    for op, one in found:
        assert observed(one) == "copies arrays in full in every iteration of a loop to put their rows in another order"
        saved = float(op.cost.known(HBM)) - 8 * float(one.instead.known(HBM))
        assert saved == 8 * 2 * 2 * 64 * 512 * 128 * 2  # 8 iterations read and write all of it in bf16


@every(("layers", "told"), [(6, True), (200, False)])
def test_what_a_scan_over_few_layers_computes_again_could_be_stored_if_it_were_unrolled(layers: int, told: bool) -> None:
    def layer(x: Any, w: Any) -> Any:
        return x + jax.nn.gelu(x @ w[0]) @ w[1].T, None

    def loss(weights: Any, x: Any) -> Any:
        return jax.lax.scan(jax.checkpoint(layer), x, weights)[0].astype("float32").sum()

    ops = ops_of(jax.grad(loss), of_shape(layers, 2, 1024, 4096), of_shape(8192, 1024))
    again = [op for op in ops if any(one.kind == "recomputation" for one in op.avoidable)]
    assert any(op.cost.known("matrix/bf16") for op in again)
    for op in again:
        in_the_scan, *unrolled = [one for one in op.avoidable if one.kind == "recomputation"]
        assert in_the_scan.instead.known(HBM)  # stored and read again
        assert [(one.group, one.instead, one.unneeded) for one in unrolled] == ([("loop", NOTHING, "")] if told else [])
