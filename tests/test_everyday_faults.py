"""Small JAX programs with one everyday fault each: the first finding with a saving names it; of the cure nothing of its kind is said."""

from collections.abc import Callable
from typing import Any

import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from every import every  # noqa: E402
from roofline.jax import analyze  # noqa: E402
from roofline.report import Finding  # noqa: E402

BF16, FP32 = "bfloat16", "float32"


def of(*dims: int, dtype: str = BF16) -> Any:
    return jax.ShapeDtypeStruct(dims, dtype)


def layers(x: Any, *weights: Any) -> Any:
    for weight in weights:
        x = jax.nn.silu(x @ weight)
    return x


def cast(x: Any, *weights: Any) -> Any:
    return layers(x, *(weight.astype(BF16) for weight in weights))


def updated(x: Any, *weights: Any) -> Any:
    gradients = jax.grad(lambda weights: cast(x, *weights).astype(FP32).mean())(weights)
    return [weight - gradient for weight, gradient in zip(weights, gradients, strict=True)]


def patches(images: Any, weight: Any) -> Any:
    """Images are data: new in every call."""
    return layers(images.astype(BF16).reshape(-1, 768), weight)


def cumulated(x: Any) -> Any:
    return jnp.tril(jnp.ones((x.shape[0], x.shape[0]), x.dtype)) @ x


def last_of_each(x: Any, head: Any, lengths: Any) -> Any:
    return jax.nn.log_softmax((jnp.tanh(x) @ head).astype(FP32))[jnp.arange(16), lengths]


def one_of_each(x: Any, head: Any, lengths: Any) -> Any:
    return jax.nn.log_softmax((jnp.tanh(x)[jnp.arange(16), lengths] @ head).astype(FP32))


def loss(x: Any, head: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax((jnp.tanh(x) @ head).astype(FP32)), labels[..., None], -1).mean()


def long_convolution(x: Any, kernel: Any) -> Any:
    size = 2 * x.shape[-1]
    return jnp.fft.irfft(jnp.fft.rfft(x, size) * jnp.fft.rfft(kernel, size), size)[..., : x.shape[-1]]


def complex_convolution(x: Any, kernel: Any) -> Any:
    size = 2 * x.shape[-1]
    return jnp.fft.ifft(jnp.fft.fft(x, size) * jnp.fft.fft(kernel, size)).real[..., : x.shape[-1]]


def distances(x: Any, y: Any) -> Any:
    return jnp.sum((x[:, None] - y[None]) ** 2, -1)


def distances_by_matmul(x: Any, y: Any) -> Any:
    return (x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * x @ y.T


def absolute_distances(x: Any, y: Any) -> Any:
    """No matmul computes these."""
    return jnp.sum(jnp.abs(x[:, None] - y[None]), -1)


def reordered(cache: Any, new: Any, beams: Any) -> Any:
    """A cache follows its beams after every token."""
    return cache.at[:, 5].set(new)[beams]


def looked_up(cache: Any, new: Any, beams: Any) -> Any:
    """A few rows of an array, as of a table."""
    return cache.at[:, 5].set(new), cache[beams[:4]]


def shifted(image: Any, sizes: range) -> list[Any]:
    _, height, width, _ = image.shape
    filled = jnp.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return [filled[:, row : row + height, column : column + width] for row in sizes for column in sizes]


def convolved_as_patches(image: Any, weight: Any) -> Any:
    return jnp.concatenate(shifted(image, range(3)), -1) @ weight


def shifted_twice(image: Any, weight: Any) -> Any:
    """Two neighbours of each pixel: no patch."""
    return jnp.concatenate(shifted(image, range(3))[:2], -1) @ weight[:256]


def attended(query: Any, keys: Any) -> Any:
    return jnp.einsum("bhd,bkhd->bhk", query, keys)


def attended_in_pages(query: Any, pages: Any, table: Any) -> Any:
    return attended(query, pages[table].reshape(64, -1, 8, 128))


def attended_rows(query: Any, rows: Any, table: Any) -> Any:
    """Rows of a table are looked up, as of an embedding."""
    return jnp.einsum("bd,bkd->bk", query, rows[table])


def step_of_table(table: Any, moment: Any, ids: Any) -> Any:
    gradient = jax.grad(lambda table: jnp.tanh(table[ids]).sum())(table)
    moment = 0.9 * moment + gradient
    return table - 0.1 * moment, moment


def step_of_tied_table(table: Any, moment: Any, ids: Any) -> Any:
    """The table is the output layer too, so that all of its rows have a gradient."""
    gradient = jax.grad(lambda table: jnp.tanh(table[ids] @ table.T).sum())(table)
    moment = 0.9 * moment + gradient
    return table - 0.1 * moment, moment


def step_of_microbatches(table: Any, moment: Any, ids: Any) -> Any:
    """The gradients of the table are summed over the rows of ``ids``."""

    def added(gradient: Any, mine: Any) -> Any:
        return gradient + jax.grad(lambda table: jnp.tanh(table[mine]).sum())(table), None

    gradient, _ = jax.lax.scan(added, jnp.zeros_like(table), ids)
    moment = 0.9 * moment + gradient
    return table - 0.1 * moment, moment


def step_of_rows(table: Any, moment: Any, ids: Any) -> Any:
    gradient = jax.grad(lambda rows: jnp.tanh(rows).sum())(table[ids])
    rows = 0.9 * moment[ids] + gradient
    return table.at[ids].add(-0.1 * rows), moment.at[ids].set(rows)


def recurrent(inputs: Any, weights: Any, state: Any) -> Any:
    """Inputs of each trip are multiplied in it, although they are all known before."""
    return jax.lax.scan(lambda h, x: (jnp.tanh(h + x @ weights), None), state, inputs)[0]


def inverted(matrices: Any, columns: Any) -> Any:
    return jnp.linalg.inv(matrices) @ columns


def counted(ids: Any) -> Any:
    return (ids[:, :, None] == jnp.arange(4096)).sum(1)


def decoded(cache: Any, query: Any, key: Any, position: Any) -> Any:
    """One key is written to a cache, and all keys are read."""
    cache = jax.lax.dynamic_update_slice(cache, key.astype(cache.dtype), (0, 0, position, 0))
    return cache, jnp.einsum("bgad,bgsd->bgas", jnp.tanh(query), cache.astype(query.dtype))


PROMPTS = [of(16, 1024, 1024), of(1024, 65536), of(16, dtype="int32")]
LABELS = [*PROMPTS[:2], of(16, 1024, dtype="int32")]
WIDE = [of(16, 4096), of(4096, 16384, dtype=FP32), of(16384, 4096, dtype=FP32)]
NARROW = [of(16, 4096), of(4096, 16384), of(16384, 4096)]
SIGNALS = [of(512, 16384, dtype=FP32), of(512, 16384, dtype=FP32)]
PIXELS = [of(64, 64, 64, 128), of(9 * 128, 128)]
PAGES = [of(64, 8, 128), of(8192, 16, 8, 128), of(64, 128, dtype="int32")]
POINTS = [of(131072, 128, dtype=FP32), of(1024, 128, dtype=FP32)]
BEAMS = [of(64, 1024, 8, 128), of(64, 8, 128), of(64, dtype="int32")]
TABLE = [of(1_000_000, 64, dtype=FP32), of(1_000_000, 64, dtype=FP32), of(50_000, dtype="int32")]
MICROBATCHES = [*TABLE[:2], of(8, 10_000, dtype="int32")]
CACHED = [of(64, 8, 4096, 128, dtype=FP32), of(64, 8, 4, 128), of(64, 8, 1, 128), of(dtype="int32")]
MATRICES = [of(1024, 128, 128, dtype=FP32), of(1024, 128, 1, dtype=FP32)]
SCORES = [of(4096, 32768, dtype=FP32)]


def permuted(x: Any) -> Any:
    return jax.random.permutation(jax.random.key(0), x)


def told(function: Callable[..., Any], args: list[Any]) -> list[Finding]:
    return [one for one in analyze(function, chip="h200")(*args).findings if one.saving_s]


@every(
    ("function", "args", "kind", "words"),
    [
        (cast, WIDE, "wide-format", "casts fp32 arguments to bf16 in every call"),
        (lambda x: jnp.sort(x, -1)[:, -8:], SCORES, "unused-results", "sorts rows of 32,768 elements, of which it uses 8"),
        (lambda x: jnp.argsort(-x, -1)[:, :8], SCORES, "unused-results", "sorts rows of 32,768 elements, of which it uses 8"),
        (lambda x: jnp.sort(x, -1)[:, ::-1][:, :8], SCORES, "unused-results", "sorts rows of 32,768 elements, of which it uses 8"),
        (lambda x: jnp.quantile(x, 0.99), SCORES, "unused-results", "sorts rows of 134,217,728 elements, of which it uses"),
        (lambda x: jnp.median(x.reshape(64, -1), -1), SCORES, "unused-results", "sorts rows of 2,097,152 elements, of which it uses 2"),
        (
            permuted,
            [of(2**22, dtype=FP32)],
            "duplicated-work",
            "shuffles 4,194,304 elements in several rounds, and sorts all of them in each",
        ),
        (cumulated, [of(8192, 8192)], "one-hot-product", "multiplies by a triangle of ones"),
        (last_of_each, PROMPTS, "unused-results", "times the needed work"),
        (convolved_as_patches, PIXELS, "repeated-operand", "in patches for a matmul"),
        (attended_in_pages, PAGES, "layout-copies", "gathers blocks of an array, such as pages of a cache"),
        (step_of_table, TABLE, "dense-gradient", "updates all rows of a table, of which at most 5% have a gradient"),
        (step_of_microbatches, MICROBATCHES, "dense-gradient", "updates all rows of a table, of which at most 8% have a gradient"),
        (reordered, BEAMS, "layout-copies", "copies arguments in full to put their rows in another order"),
        (distances, POINTS, "repeated-operand", "subtracts all pairs of rows, squares and sums"),
        (jax.jit(decoded, donate_argnums=0), CACHED, "wide-format", "keeps bf16 values in fp32, and casts all of them back in every call"),
        (inverted, MATRICES, "product-order", "inverts matrices of 128×128, and multiplies 1 column by each inverse"),
        (counted, [of(64, 16384, dtype="int32")], "one-hot-product", "compares each of 1,048,576 elements with 4,096 bins"),
        (complex_convolution, SIGNALS, "wide-format", "transforms real numbers as complex ones, 2 times the needed work"),
    ],
)
def test_the_first_finding_names_the_fault(function: Callable[..., Any], args: list[Any], kind: str, words: str) -> None:
    first = told(function, args)[0]
    assert first.kind == kind
    assert words in first.message


def test_a_shuffle_that_sorts_once_is_not_told_of_rounds() -> None:
    assert {one.kind for one in told(lambda x: x[jnp.argsort(jax.random.bits(jax.random.key(0), x.shape))], [of(2**22)])} <= {"memory"}
    assert not [one for one in told(permuted, [of(1024, dtype=FP32)]) if one.kind == "duplicated-work"]  # in one round


def test_rows_that_are_sorted_by_two_keys_need_both_sorts() -> None:
    def by_two_keys(first: Any, second: Any, x: Any) -> Any:
        _, first, x = jax.lax.sort((second, first, x), num_keys=1)
        return jax.lax.sort((first, x), num_keys=1)[1]

    def by_one(first: Any, second: Any, x: Any) -> Any:
        return jax.lax.sort((first, jax.lax.sort((second, x), num_keys=1)[1]), num_keys=1)[1]

    args = [of(2**22, dtype=FP32) for _ in range(3)]
    assert not [one for one in told(by_two_keys, args) if one.kind == "duplicated-work"]
    assert [one for one in told(by_one, args) if one.kind == "duplicated-work"]


def test_a_program_in_fp32_is_not_told_to_drop_a_cast() -> None:
    first = told(layers, [of(8192, 2048, dtype=FP32), of(2048, 8192, dtype=FP32), of(8192, 2048, dtype=FP32)])[0]
    assert first.kind == "wide-format"
    assert not any("drop astype" in lever for lever in first.levers)


def test_what_does_not_depend_on_the_state_of_a_loop_belongs_before_it() -> None:
    first = told(recurrent, [of(128, 64, 4096), of(4096, 4096), of(64, 4096)])[0]
    assert first.kind == "low-batch"
    assert "for 64 rows in each iteration of a loop" in first.message
    assert "Multiply the rows of several iterations at once" in first.message
    assert "in one matmul before it" in first.levers[0]


def test_the_line_that_widens_is_named() -> None:
    def tower(x: Any, scale: Any, *weights: Any) -> Any:
        return layers(jnp.tanh(x) * scale, *weights)  # the fp32 scale widens what it meets

    first = told(tower, [of(8192, 2048), of(2048, dtype=FP32), of(2048, 8192), of(8192, 2048)])[0]
    line = tower.__code__.co_firstlineno + 1
    assert first.kind == "wide-format"
    assert f"widened in test_everyday_faults.py:{line}" in first.message


@every(
    ("function", "args", "kind"),
    [
        (layers, NARROW, "wide-format"),
        (updated, WIDE, "wide-format"),  # weights that change have to be cast again
        (patches, [of(512, 224, 224, 3, dtype=FP32), of(768, 768)], "wide-format"),
        (lambda x: jax.lax.top_k(x, 8), SCORES, "unused-results"),
        (lambda x: jnp.sort(x, -1)[:, -16384:], SCORES, "unused-results"),
        (lambda x: jnp.sort(x, -1)[:, ::8], SCORES, "unused-results"),
        (lambda x: jnp.median(x, -1), SCORES, "unused-results"),  # of rows too short for a sample
        (lambda x: jnp.sort(x, -1)[:, 100:108], SCORES, "unused-results"),  # in the middle, and no quantile: nothing but a sort finds them
        (lambda x: (jnp.sort(x, -1)[:, -8:], jnp.sort(x, -1).mean(-1)), SCORES, "unused-results"),
        (lambda x: jnp.cumsum(x, 0), [of(8192, 8192)], "one-hot-product"),
        (one_of_each, PROMPTS, "unused-results"),
        (long_convolution, SIGNALS, "unused-results"),  # every element of a transform needs all of its input
        (long_convolution, SIGNALS, "wide-format"),
        (shifted_twice, PIXELS, "repeated-operand"),
        (distances_by_matmul, POINTS, "repeated-operand"),
        (absolute_distances, POINTS, "repeated-operand"),
        (looked_up, BEAMS, "layout-copies"),
        (lambda examples, order: examples[order], [BEAMS[0], BEAMS[2]], "layout-copies"),  # a shuffle is for that
        (step_of_rows, TABLE, "dense-gradient"),
        (step_of_table, [*TABLE[:2], of(500_000, dtype="int32")], "dense-gradient"),  # half of the rows
        (step_of_microbatches, [*TABLE[:2], of(8, 50_000, dtype="int32")], "dense-gradient"),  # two fifths of the rows
        (step_of_tied_table, [of(50_000, 64, dtype=FP32), of(50_000, 64, dtype=FP32), of(2_000, dtype="int32")], "dense-gradient"),
        (attended, [of(64, 8, 128), of(64, 2048, 8, 128)], "layout-copies"),
        (attended_rows, [of(64, 1024), of(8192, 1024), of(64, 128, dtype="int32")], "layout-copies"),
        (lambda x: jnp.fft.ifft(jnp.fft.fft(x) * 1j), [of(512, 16384, dtype="complex64")], "wide-format"),
        (loss, LABELS, "unused-results"),  # one element of every row is read, and all of them to normalise it
        (jax.jit(decoded, donate_argnums=0), [of(64, 8, 4096, 128), *CACHED[1:]], "wide-format"),
        (jax.jit(decoded, donate_argnums=0), [*CACHED[:2], of(64, 8, 1, 128, dtype=FP32), CACHED[3]], "wide-format"),  # keys in fp32
        (lambda a, b: jnp.linalg.solve(a, b), MATRICES, "product-order"),
        (lambda a, b: (jnp.linalg.inv(a), b), MATRICES, "product-order"),  # the inverse itself is the result
        (lambda a, b: jnp.linalg.inv(a) @ b, [MATRICES[0], MATRICES[0]], "product-order"),  # as many columns as the inverse has
        (lambda ids: (ids[:, None] == jnp.arange(2)).sum(0), [of(2**24, dtype="int32")], "one-hot-product"),  # reads and adds as fast
        (lambda ids: jnp.bincount(ids, length=4096), [of(2**24, dtype="int32")], "one-hot-product"),
        (cumulated, [of(256, 65536)], "one-hot-product"),  # short sums: a matmul is as fast
    ],
)
def test_nothing_is_said_of_programs_without_it(function: Callable[..., Any], args: list[Any], kind: str) -> None:
    assert not [one.message for one in told(function, args) if one.kind == kind]
