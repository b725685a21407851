"""Work of PyTorch programs that nothing uses: rows of products, gradients of frozen weights, forward passes that run twice, fp64."""

from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.units import percent
from torch_writer import BACKWARD, MAIN, Kernels, TorchTrace, findings_on, steps_of

BATCH, LONG, WIDTH, WORDS = 8, 512, 1024, 32000


@pytest.mark.parametrize(
    ("how", "used"),
    [
        ("last", BATCH),  # logits[:, -1]
        ("one batch", 1),  # logits[0, -1], of a batch of one
        ("picked", 400),  # logits[mask]
        ("loop", 0),  # logits[:, t] for every t
        ("shifted", 0),  # logits[:, :-1]
        ("all", 0),  # the loss of all of them, beside the choice of the last
    ],
)
def test_logits_of_all_positions_of_which_few_are_used(tmp_path: Path, how: str, used: int) -> None:
    rows = BATCH * LONG

    def prefill(kernels: Kernels) -> None:
        kernels.op("aten::mm", [(rows, WIDTH), (WIDTH, WORDS)], strides=[(WIDTH, 1), (1, WIDTH)])
        if how == "one batch":
            kernels.op("aten::argmax", [(1, WORDS)], strides=[(rows * WORDS, 1)])
        if how in ("last", "all"):
            kernels.op("aten::argmax", [(BATCH, WORDS)], strides=[(LONG * WORDS, 1)])
        if how == "picked":
            kernels.op("aten::index", [(BATCH, LONG, WORDS), (BATCH, LONG)])
            kernels.op("aten::_log_softmax", [(400, WORDS)], values=["1", "False"])
        if how == "loop":
            for _ in range(20):  # of 512: all that fits in a step of this test
                kernels.op("aten::argmax", [(LONG // 2, WORDS)], strides=[(BATCH * 2 * WORDS, 1)])
        if how == "shifted":
            kernels.op("aten::copy_", [(BATCH, LONG - 1, WORDS)] * 2, strides=[((LONG - 1) * WORDS, WORDS, 1), (LONG * WORDS, WORDS, 1)])
        if how == "all":
            kernels.op("aten::_log_softmax", [(rows, WORDS)], values=["1", "False"])

    found = findings_on(steps_of(prefill), tmp_path, "unused-results")
    assert bool(found) == bool(used)
    if used:
        assert f"computes results of which {percent(used / rows)} are used" in found[0].message
        # What is left is at least the time to read the weights: 64 MB take 14 of the 56 µs that the product needs.
        left = max(used / rows, 13.7 / 271)
        assert found[0].saving_per_step_s == pytest.approx(100e-6 * (1 - left), rel=0.1)


@pytest.mark.parametrize("updated", ["head", "all", "unknown"])
def test_gradients_of_weights_that_the_optimizer_does_not_update(tmp_path: Path, updated: str) -> None:
    rows, weight, head = 4096, (WIDTH, WIDTH), (1000, WIDTH)
    lists = {"head": [head], "all": [head, weight], "unknown": []}[updated]

    def step(kernels: Kernels) -> None:
        kernels.op("aten::mm", [(rows, WIDTH), weight], sequence_number=1)
        kernels.op("aten::mm", [(rows, WIDTH), (WIDTH, 1000)], sequence_number=2)
        for number, shape in ((2, head), (1, weight)):
            kernels.node("MmBackward0", 2, sequence_number=number)
            kernels.op("aten::mm", [(shape[0], rows), (rows, WIDTH)], strides=[(1, shape[0]), (WIDTH, 1)], thread=BACKWARD)
            kernels.op("aten::mm", [(rows, shape[0]), shape], thread=BACKWARD)
            kernels.trace.op("torch::autograd::AccumulateGrad", kernels.at + 1, 2, [shape], thread=BACKWARD)
            kernels.at += 10
        kernels.trace.annotation("Optimizer.step#SGD.step", kernels.at - 1, 9)
        given = {"Input Dims": [list(map(list, lists))] * 2, "Input type": ["TensorList"] * 2}
        kernels.trace.add("cpu_op", "aten::_fused_sgd_", kernels.at, 5, 100, 1, {"External id": 1, **(given if lists else {})})
        kernels.trace.run("multi_tensor_apply_kernel", launched=kernels.at + 1, start=kernels.ran, dur=10)

    found = findings_on(steps_of(step), tmp_path, "unused-results")
    assert bool(found) == (updated == "head")
    if found:
        assert "gradients of weights that the optimizer does not update" in found[0].message
        assert "requires_grad_(False)" in found[0].levers[0]
        # Both products of the first layer's gradient; that of the head's input is computed before the head's own gradient is taken.
        assert found[0].saving_per_step_s == pytest.approx(200e-6, rel=0.01)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_gradients_that_no_step_drops_beside_those_that_each_drops(tmp_path: Path, is_frozen: bool) -> None:
    """Of a teacher that is not frozen, where the trace left out which weights an optimizer updates."""
    rows, student, teacher = 4096, (WIDTH, WIDTH), (1000, WIDTH)

    def backward(kernels: Kernels, shape: tuple[int, int], number: int, *, is_added: bool) -> None:
        kernels.node("MmBackward0", 3, sequence_number=number)
        kernels.op("aten::mm", [(shape[0], rows), (rows, WIDTH)], strides=[(1, shape[0]), (WIDTH, 1)], thread=BACKWARD)
        kernels.trace.op("torch::autograd::AccumulateGrad", kernels.at, 8, [shape], thread=BACKWARD)
        kernels.at += 1
        if is_added:
            kernels.op("aten::add_", [shape, shape], values=["1"], thread=BACKWARD)
        kernels.at += 9

    def step(kernels: Kernels) -> None:
        for number, shape in enumerate((teacher, student)):
            kernels.op("aten::mm", [(rows, WIDTH), shape[::-1]], sequence_number=number)
        backward(kernels, student, 1, is_added=False)
        if not is_frozen:
            backward(kernels, teacher, 0, is_added=True)
        kernels.trace.annotation("Optimizer.step#Adam.step", kernels.at - 1, 9)
        kernels.trace.add("cpu_op", "aten::_fused_adam_", kernels.at, 5, 100, 1, {"External id": 1})
        kernels.run("multi_tensor_apply_kernel")

    told = "gradients of weights that the optimizer does not update"
    found = [one for one in findings_on(steps_of(step), tmp_path, "unused-results") if told in one.message]
    assert bool(found) != is_frozen
    if found:
        assert found[0].saving_per_step_s == pytest.approx(200e-6, rel=0.01), "the product and the addition, 100 µs each"


@pytest.mark.parametrize(
    ("how", "unneeded"),
    [
        (
            "zeroed",
            3,
        ),  # the generator's gradients for the discriminator's loss, and those of the discriminator's weights for the other loss
        ("detached", 1),  # only the latter
        ("added", 0),  # both losses train both models: gradients add up until their weights are updated
        ("unknown", 0),  # which weights an optimizer updates
    ],
)
def test_gradients_of_weights_that_another_optimizer_updates(tmp_path: Path, how: str, unneeded: int) -> None:
    rows, generator, discriminator = 4096, (WIDTH, WIDTH), (1000, WIDTH)

    def backward(kernels: Kernels, shape: tuple[int, int], number: int) -> None:
        kernels.node("MmBackward0", 3, sequence_number=number)
        kernels.op("aten::mm", [(rows, shape[0]), shape], thread=BACKWARD)
        kernels.op("aten::mm", [(shape[0], rows), (rows, WIDTH)], strides=[(1, shape[0]), (WIDTH, 1)], thread=BACKWARD)
        kernels.trace.op("torch::autograd::AccumulateGrad", kernels.at, 8, [shape], thread=BACKWARD)
        kernels.at += 1
        if how == "added":
            kernels.op("aten::add_", [shape, shape], values=["1"], thread=BACKWARD)
        kernels.at += 9

    def update(kernels: Kernels, shape: tuple[int, int]) -> None:
        kernels.trace.annotation("Optimizer.step#Adam.step", kernels.at - 1, 9)
        given = {} if how == "unknown" else {"Input Dims": [[list(shape)]] * 2, "Input type": ["TensorList"] * 2}
        kernels.trace.add("cpu_op", "aten::_fused_adam_", kernels.at, 5, 100, 1, {"External id": 1, **given})
        kernels.run("multi_tensor_apply_kernel")

    def step(kernels: Kernels) -> None:
        for number, shape in enumerate((generator, discriminator) * 2):
            kernels.op("aten::mm", [(rows, WIDTH), shape[::-1]], sequence_number=number)
        backward(kernels, discriminator, 1)
        if how != "detached":
            backward(kernels, generator, 0)
        update(kernels, discriminator)
        backward(kernels, discriminator, 3)
        backward(kernels, generator, 2)
        update(kernels, generator)

    found = findings_on(steps_of(step), tmp_path, "unused-results")
    assert bool(found) == bool(unneeded)
    if found:
        assert "computes gradients that are zeroed before an optimizer uses them" in found[0].message
        assert any("detach()" in lever for lever in found[0].levers)
        # Of the generator both products, of the discriminator the one for its weights; that for its input leads to the generator.
        assert found[0].saving_per_step_s == pytest.approx(unneeded * 100e-6, rel=0.01)


@pytest.mark.parametrize(("module", "graded", "twice"), [("Net_0", False, True), ("Teacher_0", False, False), ("Net_0", True, False)])
def test_a_forward_pass_that_runs_again_without_gradients(tmp_path: Path, module: str, graded: bool, twice: bool) -> None:
    def forward(kernels: Kernels, module: str, graded: bool) -> None:
        kernels.trace.frame(f"nn.Module: {module}", kernels.at - 0.5, 60)
        kernels.trace.frame("net.py(7): forward", kernels.at - 0.4, 58)
        for number in range(5):
            kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, WIDTH)], **({"sequence_number": number + 1} if graded else {}))
        kernels.op("aten::relu", [(4096, WIDTH)], **({"sequence_number": 6} if graded else {}))

    def step(kernels: Kernels) -> None:
        kernels.trace.frame("train.py(20): main", kernels.at - 0.9, 300)
        forward(kernels, "Net_0", graded=True)
        kernels.at += 5
        kernels.trace.frame("train.py(12): accuracy", kernels.at - 3, 80)
        forward(kernels, module, graded=graded)
        kernels.at += 30
        kernels.node("MmBackward0", 1, sequence_number=5)
        kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, WIDTH)], thread=BACKWARD)

    found = findings_on(steps_of(step), tmp_path, "duplicated-work")
    assert bool(found) == twice
    if found:
        assert "runs a forward pass a second time, without gradients, called from train.py:12" in found[0].message
        assert found[0].saving_per_step_s == pytest.approx(600e-6, rel=0.01)


@pytest.mark.parametrize(("number", "is_wide"), [("double", True), ("float", False)])
def test_elementwise_work_in_fp64_is_in_a_wide_format(tmp_path: Path, number: str, is_wide: bool) -> None:
    edges = (600_000, 128)

    def scaled(kernels: Kernels) -> None:
        kernels.op("aten::mul", [edges, edges], dtype=number)
        args = {"Input Dims": [list(edges)] * 2, "Input type": ["float", number], "Input Strides": [[128, 1]] * 2}
        kernels.trace.add("cpu_op", "aten::copy_", kernels.at, 5, 100, 1, {"External id": 1, **args, "Concrete Inputs": ["", ""]})
        kernels.trace.run("cast", launched=kernels.at + 1, start=kernels.ran, dur=300)

    found = findings_on(steps_of(scaled), tmp_path, "wide-format")
    assert bool(found) == is_wide
    if found:
        assert "computes in fp64" in found[0].message
        assert (found[0].saving_per_step_s or 0) >= 300e-6, "the cast at least"
        assert len(found[0].ops) == 2 or found[0].saving_per_step_s == pytest.approx(300e-6)


@pytest.mark.parametrize(
    ("copied", "operand", "is_repeated"),
    [
        ((32768, 4096, 0, 64, 1), (32, 8, 512, 64), True),  # keys of 2 heads, stored for the 8 query heads
        ((131072, 65536, 16384, 64, 1), (32, 8, 512, 64), False),  # nothing is expanded
        ((32768, 4096, 0, 64, 1), (32, 8, 128, 64), False),  # the product takes something else
    ],
)
def test_keys_that_are_stored_for_each_query_head(
    tmp_path: Path, copied: tuple[int, ...], operand: tuple[int, ...], is_repeated: bool
) -> None:
    shape = (32, 2, 4, 512, 64)

    def decode(kernels: Kernels) -> None:
        kernels.op("aten::copy_", [shape, shape], strides=[(262144, 131072, 32768, 64, 1), copied])
        kernels.op("aten::_scaled_dot_product_flash_attention", [(32, 8, 1, 64), operand, operand], values=["0.0", "False"])

    mine = findings_on(steps_of(decode), tmp_path, "repeated-operand")
    assert bool(mine) == is_repeated
    if is_repeated:
        assert "stores an array several times over" in mine[0].message
        assert len(mine[0].ops) == 2
        assert (mine[0].saving_per_step_s or 0) > 130e-6  # all of the copy, and three eighths of the attention


@pytest.mark.parametrize(
    ("expanded", "mask", "is_told"),
    [
        (True, (8, 4, 512, 512), True),  # a row of 512 keys for each of 8 sequences, stored for 4 heads and 512 queries
        (False, (8, 4, 512, 512), False),  # nothing is expanded
        (True, (8, 1, 1, 512), False),  # attention takes a mask that broadcasts
    ],
)
def test_a_mask_that_is_stored_for_each_head_and_query(tmp_path: Path, expanded: bool, mask: tuple[int, ...], is_told: bool) -> None:
    heads, whole = (8, 4, 512, 64), (4, 512, 8, 512)  # as repeat() orders the sizes

    def layers(kernels: Kernels) -> None:
        strides = [(262144, 512, 1048576, 1), (0, 0, 512, 1) if expanded else (262144, 512, 1048576, 1)]
        kernels.op("aten::copy_", [whole, whole], strides=strides)
        for _ in range(2):
            kernels.op("aten::_scaled_dot_product_efficient_attention", [heads, heads, heads, mask], values=["False"])

    mine = findings_on(steps_of(layers), tmp_path, "repeated-operand")
    assert bool(mine) == is_told
    if mine:
        assert "stores an attention mask several times over" in mine[0].message
        # All of the copy. Attention reads and writes 25.2 MB in 5.24 µs; without the mask it needs 2.17 µs for 4·64·8·4·512² FLOP.
        assert mine[0].saving_per_step_s == pytest.approx(100e-6 + 2 * 100e-6 * (1 - 2.17 / 5.24), rel=0.01)
        assert "expand" in mine[0].levers[0]


@pytest.mark.parametrize(
    ("how", "filled", "other_rows", "is_padded"),
    [
        ("pad", 300, 64, True),
        ("cat", 300, 64, True),
        ("pad", 500, 64, False),  # to a multiple, of which 98% is data
    ],
)
def test_products_of_tokens_that_were_filled_up(tmp_path: Path, how: str, filled: int, other_rows: int, is_padded: bool) -> None:
    rows = BATCH * LONG

    def encode(kernels: Kernels) -> None:
        kernels.op("aten::mm", [(other_rows, WIDTH), (WIDTH, WIDTH)])
        if how == "pad":
            kernels.op("aten::fill_", [(BATCH, LONG, WIDTH)], values=["0"])
            part = (BATCH, filled, WIDTH)
            kernels.op("aten::copy_", [part, part], strides=[(LONG * WIDTH, WIDTH, 1), (filled * WIDTH, WIDTH, 1)])
        else:
            kernels.op("aten::fill_", [(BATCH, LONG - filled, WIDTH)], values=["0"])
            kernels.joined([(BATCH, filled, WIDTH), (BATCH, LONG - filled, WIDTH)])
        kernels.op("aten::mm", [(rows, WIDTH), (WIDTH, 4 * WIDTH)])
        kernels.op("aten::gelu", [(BATCH, LONG, 4 * WIDTH)], values=["none"])

    mine = findings_on(steps_of(encode), tmp_path, "padding")
    assert bool(mine) == is_padded
    if is_padded:
        assert f"padded ({rows}×{WIDTH}×{4 * WIDTH}, of which 59% is data)" in mine[0].message
        # 41% of the product and of gelu
        assert mine[0].saving_per_step_s == pytest.approx((0.41 + 0.41) * 100e-6, rel=0.1)


def test_the_gradient_of_a_slice_is_no_padding(tmp_path: Path) -> None:
    whole, part = (BATCH, LONG, WIDTH), (BATCH, 64, WIDTH)

    def train(kernels: Kernels) -> None:
        kernels.op("aten::mul", [part, part], sequence_number=7)
        kernels.node("SliceBackward0", 2, sequence_number=7)
        kernels.op("aten::fill_", [whole], values=["0"], thread=BACKWARD)
        kernels.op("aten::copy_", [part, part], strides=[(LONG * WIDTH, WIDTH, 1), (64 * WIDTH, WIDTH, 1)], thread=BACKWARD)
        kernels.op("aten::mm", [(BATCH * LONG, WIDTH), (WIDTH, WIDTH)], thread=BACKWARD)

    assert not findings_on(steps_of(train), tmp_path, "padding")


@pytest.mark.parametrize(
    ("looked_up", "tied", "is_told"),
    [
        (2048, False, True),
        (2048, True, False),  # the table is the last layer's weight too
        (32768, False, False),  # an eighth at least is looked up
    ],
)
def test_all_rows_of_a_table_are_updated_for_a_few(tmp_path: Path, looked_up: int, tied: bool, is_told: bool) -> None:
    table, other = (200_000, 256), (256, 256)

    def train(kernels: Kernels) -> None:
        trace = kernels.trace
        kernels.node("MmBackward0", 1, sequence_number=2)
        kernels.op("aten::mm", [(256, BATCH), (BATCH, 256)], dtype="float", strides=[(1, 256), (256, 1)], thread=BACKWARD)
        trace.op("torch::autograd::AccumulateGrad", kernels.at + 1, 2, [other], dtype="float", thread=BACKWARD)
        kernels.at += 10
        kernels.node("EmbeddingBackward0", 2 + 2 * tied, sequence_number=1)
        kernels.op("aten::fill_", [table], values=["0"], dtype="float", thread=BACKWARD)
        args = {"Input Dims": [[looked_up, 256], [looked_up], [], [], []], "Input type": ["float", "long int", *["Scalar"] * 3]}
        values = {"Concrete Inputs": ["", "", "200000", "-1", "False"], "Input Strides": [[256, 1], [1], [], [], []]}
        trace.add("cpu_op", "aten::embedding_dense_backward", kernels.at, 5, 100, BACKWARD, {"External id": 1, **args, **values})
        kernels.run("scatter", BACKWARD)
        if tied:
            kernels.op("aten::mm", [(200_000, BATCH), (BATCH, 256)], dtype="float", strides=[(1, 200_000), (256, 1)], thread=BACKWARD)
            kernels.op("aten::add", [table, table], dtype="float", values=["", "", "1"], thread=BACKWARD)
        trace.op("torch::autograd::AccumulateGrad", kernels.at + 1, 2, [table], dtype="float", thread=BACKWARD)
        kernels.at += 10
        trace.annotation("Optimizer.step#Adam.step", kernels.at - 1, 9)
        lists = [[list(table), list(other)]] * 4
        trace.add("cpu_op", "aten::_fused_adam_", kernels.at, 5, 100, MAIN, {"Input Dims": lists, "Input type": ["TensorList"] * 4})
        kernels.run("adam<float>")

    mine = findings_on(steps_of(train), tmp_path, "dense-gradient")
    assert bool(mine) == is_told
    if is_told:
        assert "updates all rows of a table, of which at most 1% have a gradient" in mine[0].message
        # The zeros and 94% of the optimizer, 100 µs each: 6 of 100 rows' worth of bytes are left.
        assert mine[0].saving_per_step_s == pytest.approx(1.94 * 100e-6, rel=0.02)
        assert "sparse=True" in mine[0].levers[0]


@pytest.mark.parametrize("how", ["twice", "once", "gradients of gradients"])
def test_a_backward_pass_that_runs_again_through_the_same_ops(tmp_path: Path, how: str) -> None:
    numbers = range(10, 16)

    def step(kernels: Kernels) -> None:
        trace = kernels.trace
        trace.frame("train.py(5): main", kernels.at - 1, 400)
        for number in numbers:
            kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, WIDTH)], sequence_number=number)
        for _ in range(1 if how == "once" else 2):
            for number in numbers:
                kernels.node("MmBackward0", 1, sequence_number=number)
                more = {"sequence_number": 90 + number} if how == "gradients of gradients" else {}
                kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, WIDTH)], thread=BACKWARD, **more)

    mine = findings_on(steps_of(step), tmp_path, "duplicated-work")
    assert bool(mine) == (how == "twice")
    if mine:
        assert "runs the backward pass of the same ops a second time, called from train.py:5" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx(600e-6, rel=0.01)
        assert "(a + b).backward()" in mine[0].levers[0]


@pytest.mark.parametrize(
    ("how", "is_told"),
    [
        ("left out", True),
        ("trained", False),  # its loss is part of the sum
        ("taken", False),  # another op takes the result, as a loss takes a detached target
        ("no backward", False),  # nothing is trained
        ("not yet", False),  # the recording ends before the backward pass of its last step
    ],
)
def test_a_head_whose_loss_was_left_out(tmp_path: Path, how: str, is_told: bool) -> None:
    def step(kernels: Kernels) -> None:
        first = 100 + int(kernels.at)  # number of the step's ops
        kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, WIDTH)], sequence_number=first)
        kernels.op("aten::relu", [(4096, WIDTH)])  # without it, the products of both heads would be in a costly order
        kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, 96)], sequence_number=first + 1)  # the head
        kernels.op("aten::relu", [(4096, 96)], sequence_number=first + 2)
        kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, 64)], sequence_number=first + 3)
        kernels.op("aten::sub", [(4096, 96), (4096, 96)] if how == "taken" else [(4096, 64)] * 2, sequence_number=first + 4)
        is_left_out = how == "no backward" or (how == "not yet" and kernels.at > 2 * 3000)
        graded = (4, 3, 2, 1, 0) if how in ("trained", "not yet") else (4, 3, 0)
        for number in () if is_left_out else graded:
            kernels.node("MmBackward0", 1, sequence_number=first + number)
            kernels.op("aten::mm", [(4096, WIDTH), (WIDTH, WIDTH)], thread=BACKWARD)

    mine = findings_on(steps_of(step), tmp_path, "unused-results")
    assert bool(mine) == is_told
    if is_told:
        assert "computes results that neither the loss nor another op uses" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx(200e-6, rel=0.01)


@pytest.mark.parametrize(
    ("rows", "others", "is_told"),
    [(1, 0, True), (8, 0, True), (64, 0, False), (1, 4096, False)],  # the logits of one of many tokens
)
def test_weights_that_are_read_for_a_few_rows(tmp_path: Path, rows: int, others: int, is_told: bool) -> None:
    def decode(kernels: Kernels) -> None:
        kernels.op("aten::mm", [(rows, 4096), (4096, WORDS)], strides=[(4096, 1), (1, 4096)])
        if others:
            kernels.op("aten::mm", [(others, 4096), (4096, WORDS)], strides=[(4096, 1), (1, 4096)])

    mine = findings_on(steps_of(decode), tmp_path, "low-batch")
    assert bool(mine) == is_told
    if is_told:
        assert f"reads 262.1 MB of weights for {rows} row" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx(100e-6 * 7 / 8, rel=0.01)


@pytest.mark.parametrize(
    ("between", "narrow", "times"),
    [
        ("aten::mul", 64, "16"),  # linear attention, scaled
        ("", 64, "16"),
        ("aten::_softmax", 64, ""),  # attention proper
        ("aten::add", 64, ""),  # with another matrix
        ("", 1024, "8.5"),  # the depth of the first product is narrow: 64·1024² + 1024³ multiplications, or 64·1024·(1024 + 1024)
    ],
)
def test_scores_that_no_softmax_is_taken_of_are_a_costly_order(tmp_path: Path, between: str, narrow: int, times: str) -> None:
    scores = (64, 1024, 1024)

    def attention(kernels: Kernels) -> None:
        kernels.op("aten::bmm", [(64, 1024, 64), (64, 64, 1024)], sequence_number=3)
        if between:
            kernels.op(between, [scores, scores] if between == "aten::add" else [scores], values=["2", "False"])
        kernels.op("aten::bmm", [scores, (64, 1024, narrow)], sequence_number=4)
        kernels.node("BmmBackward0", 2, sequence_number=4)
        kernels.op("aten::bmm", [(64, 1024, 1024), (64, 1024, narrow)], thread=BACKWARD)
        kernels.op("aten::bmm", [(64, 1024, narrow), (64, narrow, 1024)], thread=BACKWARD)

    mine = findings_on(steps_of(attention), tmp_path, "product-order")
    assert bool(mine) == bool(times)
    if times:
        assert f"where the other order needs {times} times fewer FLOP" in mine[0].message
        assert len(mine[0].ops) == (4 if narrow == 64 else 3)  # both gradients of square matrices are one op
        assert (mine[0].saving_per_step_s or 0) > 300e-6


def test_weights_of_low_rank_are_multiplied_with_the_rows_first(tmp_path: Path) -> None:
    def adapted(kernels: Kernels) -> None:
        kernels.op("aten::mm", [(4096, 16), (16, 4096)])
        kernels.op("aten::mm", [(2048, 4096), (4096, 4096)], strides=[(4096, 1), (1, 4096)])

    (mine,) = findings_on(steps_of(adapted), tmp_path, "product-order")
    assert "where the other order needs 129 times fewer FLOP" in mine.message


@pytest.mark.parametrize(
    ("frozen", "rank", "rows", "is_told"),
    [(True, 16, 8192, True), (False, 16, 8192, False), (True, 2048, 8192, False), (True, 16, 0, False)],
)
def test_gradients_of_whole_weights_for_factors_that_were_added_to_them(
    tmp_path: Path, frozen: bool, rank: int, rows: int, is_told: bool
) -> None:
    # By factors, 4·8192·16·(4096 + 4096) FLOP instead of 2·8192·4096·4096, and both operands of 67 MB read twice: 56 µs instead of a
    # minimum of 278, of a kernel that takes 100. The gradients of both factors are not multiplied by 33.6 MB any more.
    x, weights, down, up = (rows, 4096), (4096, 4096), (rank, 4096), (4096, rank)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::mm", [up, down], sequence_number=1)
        kernels.op("aten::add", [weights, weights], sequence_number=2)
        kernels.op("aten::mm", [x, weights], sequence_number=3)
        kernels.node("MmBackward0", 2, sequence_number=3, fwd_thread_id=1)
        kernels.op("aten::mm", [x[::-1], x], strides=[(1, 4096), (4096, 1)], thread=BACKWARD)
        kernels.op("aten::mm", [x, weights], thread=BACKWARD)
        kernels.node("MmBackward0", 2, sequence_number=1, fwd_thread_id=1)
        kernels.op("aten::mm", [down, weights], thread=BACKWARD)
        kernels.op("aten::mm", [weights, up], thread=BACKWARD)
        if not frozen:
            kernels.trace.op("torch::autograd::AccumulateGrad", kernels.at, 5, [weights], thread=BACKWARD)

    mine = findings_on(steps_of(layer), tmp_path, "product-order")
    assert bool(mine) == is_told
    if mine:
        assert "the gradient of 4096×4096 weights for factors of rank 16" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx((1 - 56 / 278 + 2) * 100e-6, rel=0.02)


@pytest.mark.parametrize(("used", "row", "told"), [(8, 32768, True), (16384, 32768, False), (8, 8, False)])
def test_a_sort_of_which_a_few_elements_are_used(tmp_path: Path, used: int, row: int, told: bool) -> None:
    """A slice of sorted rows has their distance in memory; one that has not may come from anywhere."""
    trace = TorchTrace()
    for step in range(3):
        at = 1000 * step
        trace.annotation(f"ProfilerStep#{step}", at, 900)
        trace.op("aten::sort", at + 1, 5, [(1024, 32768)], dtype="float", values=["-1", "True"])
        trace.run("radix_sort", launched=at + 2, start=at + 20, dur=500)
        trace.op("aten::softmax", at + 10, 5, [(1024, used)], strides=[(row, 1)], dtype="float", values=["-1"])
        trace.run("softmax", launched=at + 11, start=at + 530, dur=5)
    found = [one for one in analyze(trace.write(tmp_path / "trace.json")).findings if one.kind == "unused-results"]
    assert len(found) == told
    if told:
        assert "sorts rows of 32,768 elements, of which it uses 8" in found[0].message
        assert "torch.topk" in found[0].levers[0]
        assert (found[0].saving_per_step_s or 0) > 250e-6


def test_a_matrix_that_the_step_made_is_no_weights(tmp_path: Path) -> None:
    def weighted_sum(kernels: Kernels) -> None:  # of gradients of 64 samples, each an outer product
        kernels.op("aten::bmm", [(64, 1024, 1), (64, 1, 1024)])
        kernels.op("aten::bmm", [(1, 1024 * 1024, 64), (1, 64, 1)])

    assert not findings_on(steps_of(weighted_sum), tmp_path, "low-batch")


@pytest.mark.parametrize(("drawn", "told"), [(1, True), (32768, False)])
def test_a_sort_of_all_words_to_draw_one(tmp_path: Path, drawn: int, told: bool) -> None:
    def top_p(kernels: Kernels) -> None:
        rows = (1024, 32768)
        kernels.op("aten::sort", [rows], dtype="float", values=["-1", "True"])
        kernels.op("aten::cumsum", [rows], dtype="float", values=["-1"])
        kernels.op("aten::gt", [rows], dtype="float", values=["0.9"])
        kernels.op("aten::masked_fill_", [rows] * 2, types=["float", "bool"])
        kernels.op("aten::multinomial", [rows], dtype="float", values=[str(drawn), "False"])
        kernels.op("aten::gather", [rows, (1024, drawn)], dtype="long int", values=["-1"])

    found = [finding for finding in findings_on(steps_of(top_p), tmp_path, "unused-results") if finding.saving_s]
    assert len(found) == told
    if told:
        assert found[0].title == "the sort of the whole vocabulary, to sample one token"
        assert "sorts rows of 32,768 elements, to draw 1 of those above a threshold" in found[0].message
        # A top-k reads what the sort reads, of 4 + 4 + 8 bytes that it moves; the next three ops are gone.
        assert found[0].saving_per_step_s == pytest.approx(375e-6, rel=0.01)


@pytest.mark.parametrize(
    ("passes", "how", "unneeded"),
    [
        (1, "kept", 2),  # the fill and the addition
        (2, "kept", 2),  # the second pass accumulates, so it has to add
        (1, "dropped", 0),  # the gradient is stored as it is
        (2, "dropped", 0),  # the first pass stores it and the second adds to it
        (1, "not filled", 0),  # gradients of several steps are accumulated
    ],
)
def test_gradients_that_are_filled_with_zeros_and_added_to(tmp_path: Path, passes: int, how: str, unneeded: int) -> None:
    rows, weight = 4096, (WIDTH, WIDTH)

    def step(kernels: Kernels) -> None:
        if how == "kept":
            kernels.op("aten::zero_", [weight])
        for number in range(passes):
            kernels.op("aten::mm", [(rows, WIDTH), weight], sequence_number=number + 1)
            kernels.node("MmBackward0", 1, sequence_number=number + 1)
            kernels.op("aten::mm", [(WIDTH, rows), (rows, WIDTH)], strides=[(1, WIDTH), (WIDTH, 1)], thread=BACKWARD)
            kernels.node("torch::autograd::AccumulateGrad", 2)
            kernels.trace.op("torch::autograd::AccumulateGrad", kernels.at - 0.5, 15, [weight], thread=BACKWARD)
            if how != "dropped" or number:
                kernels.op("aten::add_", [weight, weight], thread=BACKWARD)
            kernels.at += 10
            kernels.op("aten::mm", [(rows, WIDTH), (WIDTH, rows)], thread=BACKWARD)  # the gradient of the input

    found = [one for one in findings_on(steps_of(step), tmp_path, "unused-results") if "zeros" in one.message]
    assert bool(found) == bool(unneeded)
    if found:
        assert "fills gradients with zeros, to which the backward pass adds" in found[0].message
        assert "set_to_none=True" in found[0].levers[0]
        assert found[0].saving_per_step_s == pytest.approx(100e-6 * unneeded, rel=0.01)
