"""Training steps: what forward, backward and the update cost."""

import pytest

from every import every
from roofline.errors import FormulaError
from roofline.formulas import (
    backward,
    copy,
    count_parameters,
    ffn,
    layernorm,
    matmul,
    optimizer_update,
    sharded_matmul,
    training,
    training_step,
    transformer_block,
)


@every(("optimizer", "flops", "roots", "state"), [("sgd", 2, 0, 0), ("momentum", 4, 0, 1), ("adam", 12, 1, 2), ("adamw", 13, 1, 2)])
def test_an_update_reads_and_writes_its_state(optimizer: str, flops: int, roots: int, state: int) -> None:
    # bf16 gradient read, bf16 weight read and written: 6 B; each fp32 state tensor read and written: 8 B.
    cost = optimizer_update(1000, optimizer=optimizer).cost  # type: ignore[arg-type]
    assert (cost.flops, cost["vector/transcendental"]) == (1000 * flops, 1000 * roots)
    assert cost.bytes() == 1000 * (6 + 8 * state)


def test_master_weights_are_read_and_written_and_the_weights_only_written() -> None:
    # gradient 2, two moments 16, master 8, weight 2.
    assert optimizer_update(1000, master="fp32").cost.bytes() == 1000 * (2 + 16 + 8 + 2)
    assert optimizer_update(1000, master="fp32").footprint() == 1000 * (2 + 8 + 4 + 2)


def test_formats_of_gradients_and_state_are_their_own() -> None:
    assert optimizer_update(1000, gradients="fp32", state="bf16", weights="fp32").cost.bytes() == 1000 * (4 + 8 + 8)


@every("forward", [matmul(64, 128, 256), ffn(64, 32, 128), layernorm(8, 64), sharded_matmul(64, 128, 256)])
def test_backward_is_twice_forward(forward: object) -> None:
    assert backward(forward).cost == 2 * forward.cost  # type: ignore[arg-type,attr-defined]


def test_backward_of_a_product_is_two_products() -> None:
    # dX[m,k] = dZ[m,n]·Wᵀ and dW[k,n] = Xᵀ·dZ.
    m, k, n = 64, 128, 256
    assert backward(matmul(m, k, n)).cost == matmul(m, n, k).cost + matmul(k, m, n).cost


def test_gradients_of_weights_may_be_wider() -> None:
    plain, wide = backward(matmul(64, 128, 256)), backward(matmul(64, 128, 256), gradients="fp32")
    assert wide.cost.bytes() - plain.cost.bytes() == 2 * 128 * 256  # type: ignore[operator]
    written = [row.tensor for row in wide.rows if row.access == "write"]
    assert written == ["gradient of activations", "gradient of weights"]
    assert [row.tensor for row in wide.rows if row.note == "saved by forward"] == ["activations"]


def test_a_step_is_forward_backward_and_update() -> None:
    forward = matmul(64, 128, 256)
    step = training_step(forward)
    assert step.cost == 3 * forward.cost + optimizer_update(128 * 256).cost
    assert count_parameters(forward) == 128 * 256


def test_recomputing_runs_forward_once_more() -> None:
    forward = transformer_block(1, 128, 256, 4, 512)
    once, again = training_step(forward), training_step(forward, recompute=True)
    assert again.cost == once.cost + forward.cost


def test_micro_batches_share_one_update() -> None:
    forward = matmul(64, 128, 256)
    step = training_step(8 * forward, parameters=128 * 256, optimizer="sgd")
    assert step.cost == 24 * forward.cost + optimizer_update(128 * 256, optimizer="sgd").cost


def test_a_step_without_weights_needs_a_number_of_parameters() -> None:
    with pytest.raises(FormulaError, match="training_step: copy reads no weights; give the number"):
        training_step(copy(1000))


def test_a_model_trains_at_six_flop_a_parameter_and_token() -> None:
    step = training(1000, 50)
    assert step.cost["matrix/bf16"] == 6 * 1000 * 50
    # Weights read forward and backward, gradients written, then the update.
    assert step.cost.bytes() == 2000 + 2000 + 2000 + optimizer_update(1000).cost.known("hbm")


def test_saved_activations_are_written_and_read() -> None:
    bare, kept = training(1000, 50), training(1000, 50, saved=34)
    assert kept.cost.bytes() - bare.cost.bytes() == 2 * 2 * 50 * 34  # type: ignore[operator]
    assert any("saved activations are not counted" in note for note in bare.notes)
    assert not any("saved activations are not counted" in note for note in kept.notes)


def test_recomputing_a_model_is_eight_flop_and_one_more_read() -> None:
    cost = training(1000, 50, recompute=True).cost
    assert cost["matrix/bf16"] == 8 * 1000 * 50
    assert cost.bytes() == training(1000, 50).cost.known("hbm") + 2000


def test_the_memory_of_mixed_precision_adam_is_sixteen_bytes_a_parameter() -> None:
    # bf16 weights and gradients, fp32 master weights and two fp32 moments: 2 + 2 + 4 + 4 + 4.
    assert training(1000, 50, master="fp32").footprint() == 16_000


def test_a_step_holds_weights_and_gradients_once() -> None:
    forward = matmul(64, 32, 128)
    # Both passes: x, W, y and a gradient of each, in 2 bytes; two fp32 moments of every weight.
    assert training_step(forward).footprint() == 2 * 2 * (64 * 32 + 32 * 128 + 64 * 128) + 8 * 32 * 128
    # Two weights and their gradients, the input, both hidden tensors and all gradients of activations, in 2 bytes.
    assert backward(ffn(64, 32, 128)).footprint() == 2 * (4 * 32 * 128 + 3 * 64 * 32 + 4 * 64 * 128)
    # The forward pass adds its result.
    step = training_step(ffn(64, 32, 128))
    assert step.footprint() == 2 * (4 * 32 * 128 + 4 * 64 * 32 + 4 * 64 * 128) + 8 * 2 * 32 * 128
