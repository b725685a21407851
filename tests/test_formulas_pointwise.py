"""Pointwise operations, normalisations, reductions and data movement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import FormulaError
from roofline.formulas import (
    POINTWISE,
    add,
    cast,
    concatenate,
    copy,
    cross_entropy,
    dropout,
    elementwise,
    embedding,
    gather,
    gelu,
    layernorm,
    lookup,
    reduction,
    relu,
    rmsnorm,
    scatter,
    softmax,
    swiglu,
    transpose,
)
from roofline.machine import Machine

ELEMENTS = 32 * 2048 * 4096


def test_layernorm_has_two_intensities() -> None:
    # 10 FLOP an element over 2 B read and 2 B written; a kernel that reads its input twice moves 6.
    assert layernorm(65536, 4096).cost.intensity() == pytest.approx(2.5, abs=0.001)
    twice = layernorm(65536, 4096, reads=2)
    assert twice.cost.intensity() == pytest.approx(1.7, abs=0.05)
    assert twice.cost.bytes() == 2 * (3 * 65536 * 4096 + 2 * 4096)


@every(("peak", "bandwidth", "attainable"), [(4614, "7.2 TB/s", 12), (2307, "7.2 TB/s", 12), (918, "1.6 TB/s", 3), (459, "2.76 TB/s", 5)])
def test_layernorm_reaches_what_the_guides_say(peak: int, bandwidth: str, attainable: int) -> None:
    chip = Machine.of("chip", {"matrix/bf16": f"{peak} TFLOP/s", "hbm": bandwidth})
    intensity = layernorm(65536, 4096, reads=2).cost.intensity()
    assert intensity is not None
    assert round(chip.attainable(intensity, "matrix/bf16") / 10**12) == attainable


def test_layernorm_on_v7x_is_half_a_percent_of_peak() -> None:
    chip = Machine.of("v7x", {"matrix/bf16": "2307 TFLOP/s", "hbm": "7.2 TB/s"})
    intensity = layernorm(65536, 4096, reads=2).cost.intensity()
    assert intensity is not None
    reached = chip.attainable(intensity, "matrix/bf16")
    assert reached / 10**12 == pytest.approx(12.0, abs=0.05)
    assert reached / chip.rate("matrix/bf16") == pytest.approx(0.005, abs=0.0005)
    assert reached / intensity / chip.rate("hbm") == 1


def test_the_guides_chain_of_four() -> None:
    # LayerNorm 10, GELU 8, dropout 1, add 1: 20 FLOP an element; each unfused kernel reads one tensor and writes one.
    names = ("layernorm", "gelu", "dropout", "add")
    assert [POINTWISE[name].flops for name in names] == [10, 8, 1, 1]
    assert [POINTWISE[name].inputs for name in names] == [0, 0, 0, 1]
    assert [POINTWISE[name].reduces for name in names] == [True, False, False, False]
    one_pass = elementwise(ELEMENTS).cost.bytes()
    assert one_pass is not None
    assert [round(kernels * one_pass / 10**9, 2) for kernels in (4, 2, 1)] == [4.29, 2.15, 1.07]
    flops = 20 * ELEMENTS
    assert [flops / (kernels * one_pass) for kernels in (4, 2, 1)] == [1.25, 2.5, 5.0]


def test_a_residual_add_reads_a_second_tensor() -> None:
    # Counting it, the chain moves half a GB more: 4.83, 2.68 and 1.61 GB.
    one_pass, second = 4 * ELEMENTS, 2 * ELEMENTS
    assert add(ELEMENTS).cost.bytes() == one_pass + second
    assert [round((kernels * one_pass + second) / 10**9, 2) for kernels in (4, 2, 1)] == [4.83, 2.68, 1.61]


def test_gelu_is_eight_flop_and_a_tanh() -> None:
    cost = gelu(1000).cost
    assert (cost.flops, cost["vector/transcendental"], cost.bytes()) == (8000, 1000, 4000)


def test_comparisons_are_no_flop_unless_asked_for() -> None:
    assert relu(1000).cost.flops == 0
    assert relu(1000, comparisons=True).cost.flops == 1000
    assert gelu(1000, comparisons=True).cost == gelu(1000).cost


@every("name", [name for name, facts in POINTWISE.items() if not facts.reduces])
def test_every_pointwise_formula_uses_the_one_table(name: str) -> None:
    facts, cost = POINTWISE[name], lookup(name)(1000).cost
    assert cost["vector/bf16"] == 1000 * facts.flops  # in the format of the result
    assert cost["vector/transcendental"] == 1000 * facts.transcendentals
    assert cost.bytes() == 2000 * (facts.inputs + 2)


@every("name", [name for name, facts in POINTWISE.items() if facts.reduces])
def test_every_normalisation_uses_the_one_table(name: str) -> None:
    facts, cost = POINTWISE[name], lookup(name)(10, 100).cost
    assert cost["vector/fp32"] == 1000 * facts.flops
    assert cost["vector/transcendental"] == 1000 * facts.transcendentals + 10 * facts.per_row


@given(st.integers(1, 10**6), st.integers(0, 5), st.integers(1, 5), st.integers(0, 50), st.integers(1, 4))
def test_elementwise_moves_each_tensor(elements: int, inputs: int, outputs: int, flops: int, passes: int) -> None:
    cost = elementwise(elements, inputs=inputs, outputs=outputs, flops=flops, passes=passes, dtype="fp32", out="bf16").cost
    assert cost.flops == elements * flops
    assert cost.bytes() == elements * (4 * inputs * passes + 2 * outputs)


def test_a_cast_moves_two_formats() -> None:
    assert cast(1000, dtype="fp32", out="fp8").cost.bytes() == 5000


def test_work_in_fp64_is_billed_to_fp64() -> None:
    assert swiglu(10, dtype="fp64").work["vector/fp64"] == 40
    assert swiglu(10, dtype="fp64", compute="fp32").work["vector/fp32"] == 40


def test_dropout_may_store_its_mask() -> None:
    assert dropout(1000).cost.bytes() == 4000
    assert dropout(1000, mask="bool").cost.bytes() == 5000
    assert dropout(1000, mask="uint1").cost.bytes() == 4125  # a bit an element


def test_rmsnorm_and_softmax_move_as_much_as_a_copy() -> None:
    assert rmsnorm(8, 1000).cost.bytes() == copy(8000).cost.bytes() + 2000  # type: ignore[operator]
    assert softmax(8, 1000).cost.bytes() == copy(8000).cost.bytes()
    assert softmax(8, 1000, comparisons=True).cost.flops == 4 * 8000


@every(("kind", "flops"), [("sum", 8 * 99), ("mean", 800), ("norm", 8 * 199), ("max", 0), ("argmax", 0)])
def test_reductions_make_one_value_of_a_row(kind: str, flops: int) -> None:
    ledger = reduction(8, 100, kind=kind)  # type: ignore[arg-type]
    assert ledger.cost.flops == flops
    assert ledger.cost.bytes() == 1600 + 8 * (4 if kind == "argmax" else 2)


def test_a_maximum_compares() -> None:
    assert reduction(8, 100, kind="max", comparisons=True).cost.flops == 8 * 99
    assert reduction(8, 100, kind="sum", comparisons=True).cost.flops == 8 * 99


def test_cross_entropy_writes_a_gradient_only_when_asked() -> None:
    loss, both = cross_entropy(10, 1000), cross_entropy(10, 1000, gradient=True)
    assert loss.cost.bytes() == 2 * 10 * 1000 + 4 * 10 + 4 * 10
    assert both.cost.bytes() == loss.cost.bytes() + 2 * 10 * 1000  # type: ignore[operator]
    assert loss.cost["vector/transcendental"] == 10 * 1000 + 10


def test_movement_computes_nothing() -> None:
    for ledger in (copy(1000), transpose(10, 100), concatenate(1000, parts=4)):
        assert (ledger.cost.flops, ledger.cost.bytes()) == (0, 4000)


def test_a_copy_to_the_host_crosses_pcie() -> None:
    cost = copy(1000, target="host").cost
    assert (cost["hbm"], cost["host"], cost["pcie"]) == (2000, 2000, 2000)
    assert copy(1000, target="vmem").cost["vmem.write"] == 2000


def test_gathers_and_scatters_count_what_they_touch() -> None:
    assert gather(10, 100).cost.bytes() == 4 * 10 + 2 * 2000
    assert scatter(10, 100).cost.bytes() == 4 * 10 + 2 * 2000
    adding = scatter(10, 100, accumulate=True).cost
    assert (adding.flops, adding.bytes()) == (1000, 4 * 10 + 3 * 2000)


def test_an_embedding_reads_no_more_than_its_table() -> None:
    assert embedding(1000, 64).cost.bytes() == 4 * 1000 + 2 * 2 * 64 * 1000
    assert embedding(1000, 64, vocabulary=10).cost.bytes() == 4 * 1000 + 2 * 64 * (1000 + 10)


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(FormulaError, match="elementwise: flops is -1; it is 0 or more"):
        elementwise(10, flops=-1)
    with pytest.raises(FormulaError, match="layernorm: reads is 0; it is a positive number"):
        layernorm(10, 10, reads=0)
    with pytest.raises(FormulaError, match="reduction: kind is 'median'; did you mean 'mean' or 'min'"):
        reduction(10, 10, kind="median")  # type: ignore[arg-type]
