"""Which of a program's work could be avoided, and what its kernels are called, on functions with one such decision each."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from every import every
from evidence import reviewed_program
from program_texts import program_text
from reviewed import H200, of_shape, ops_of
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read import parse
from roofline.hlo.review import Review
from roofline.jax import lower
from roofline.resource import HBM
from roofline.workload import Op

jax = pytest.importorskip("jax")
jnp = jax.numpy


def reasons(ops: list[Op]) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {}
    for op in ops:
        for reason in op.avoidable:
            found.setdefault(reason.kind, []).append(op)
    return found


def attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype("float32") / 11.3
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


def test_a_softmax_of_a_library_between_two_products_is_one_of_scores() -> None:
    heads, scores = "f32[16,512,64]{2,1,0}", "f32[16,512,512]{2,1,0}"
    text = program_text("needed/a_softmax_of_a_library_between_two_products_is_one_of_scores.hlo", heads=heads, scores=scores)
    stored = reasons(list(reviewed_program(parse(text), "cpu")))["stored-attention"]
    assert [op.name for op in stored] == ["scores", "weights", "mixed"]


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


THRESHOLD = program_text("needed/threshold.hlo")


@every(("start", "factor"), [(0, 16), (1, 8), (3, 4), (14, 8), (15, 16)])
def test_the_threshold_among_sorted_scores_says_how_many_are_chosen(start: int, factor: int) -> None:
    text = THRESHOLD.replace("FROM", str(start)).replace("TO", str(start + 1))
    (reason,) = [one for op in reviewed_program(parse(text), "gpu") for one in op.avoidable if one.kind == "dense-experts"]
    assert reason.factor == factor


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
