"""PyTorch modules and functions priced without a device: forward, backward, scopes, memory, fusion, and beside other counters."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import roofline as rl  # noqa: E402
from every import every  # noqa: E402
from roofline.cli import main  # noqa: E402
from roofline.dtypes import dtype  # noqa: E402
from roofline.report import Report  # noqa: E402
from roofline.torch import trace  # noqa: E402
from roofline.torch.comparison import compare_block, compare_function  # noqa: E402
from roofline.torch.recorder import whole_attention  # noqa: E402
from roofline.torch_prices import Call, price  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Block(nn.Module):
    """A transformer block with grouped keys and values."""

    def __init__(self, width: int = 32, heads: int = 4, kv_heads: int = 4, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.causal = heads, kv_heads, causal
        head = width // heads
        self.norm, self.q, self.kv = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, 2 * kv_heads * head)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        y = self.norm(x)
        q = self.q(y).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(y).view(batch, length, 2, self.kv_heads, -1).permute(2, 0, 3, 1, 4)
        gqa = self.heads != self.kv_heads
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=gqa)
        return x + self.mlp(heads.transpose(1, 2).reshape(batch, length, width))


def meta(*shape: int, of: Any = torch.float32) -> Any:
    return torch.empty(shape, dtype=of, device="meta")


def matrix_flops(report: Report) -> float:
    return sum(amount or 0 for op in report.ops for name, amount in op.work.items() if name.startswith("matrix/"))


def test_the_block_has_the_flop_of_the_formula() -> None:
    found = compare_block(rl.dtype("bf16"))
    # 24·tokens·width² of products, and 2·batch·length²·width of causal attention, twice that for the full square
    products, square = 24 * 1024 * 512**2, 4 * 2 * 512**2 * 512
    assert found.flops == products + square / 2 == 6_979_321_856
    said = {one.way: one.flops for one in found.counts}
    assert said["by hand: matrix work, causal half"] == found.flops
    assert said["roofline: matrix work, full square"] == said["FlopCounterMode"] == products + square
    assert said["torch.profiler with_flops"] is not None
    assert said["torch.profiler with_flops"] < found.flops  # it has no count for attention
    assert all(one.why for one in found.counts if one.flops != found.flops and not one.way.startswith("by hand"))


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    "linear": (lambda: nn.Linear(16, 24), ((8, 16),)),
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)), ((2, 8, 16),)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), ((2, 4, 16),)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3, padding=1, stride=2), ((2, 3, 17, 17),)),
    "grouped conv2d": (lambda: nn.Conv2d(8, 8, 3, groups=4, dilation=2), ((2, 8, 15, 15),)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2), ((1, 2, 5, 6, 7),)),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1), ((2, 6, 7, 7),)),
    "block": (Block, ((2, 16, 32),)),
    "full block": (lambda: Block(causal=False), ((2, 16, 32),)),
    "grouped heads": (lambda: Block(kv_heads=2), ((2, 16, 32),)),
    "multihead": (lambda: _Attending(), ((2, 16, 32),)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1), ((2, 16, 32),)),
    "gru": (lambda: nn.GRUCell(8, 16), ((4, 8),)),
}


class _Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


# FlopCounterMode counts the gradient of the weights of a grouped convolution as if it had one group.
FORWARD = [(name, False) for name in MODULES]
BACKWARD = [(name, True) for name in MODULES if name != "grouped conv2d"]


@every(("name", "backward"), FORWARD + BACKWARD)
def test_flop_counter_mode_says_the_same_by_its_convention(name: str, backward: bool) -> None:
    make, shapes = MODULES[name]
    with torch.device("meta"):
        module = make()
    args = [meta(*shape) for shape in shapes]
    with whole_attention(torch), FlopCounterMode(display=False) as peer:
        out = module(*args)
        if backward:
            out.backward(torch.empty_like(out))
    found = trace(module, backward=backward)(*args)
    assert sum(price(seen.call).by_convention.get("flop_counter", 0) for seen in found.calls) == peer.get_total_flops()
    assert all(price(seen.call).is_priced for seen in found.calls), [s.call.op for s in found.calls if not price(s.call).is_priced]


def test_ops_have_their_module_line_and_phase() -> None:
    report = rl.torch.analyze(nn.Sequential(Block(), Block()), chip="h100", backward=True)(meta(2, 16, 32))
    products = [op for op in report.ops if op.category == "matmul"]
    assert {op.scope for op in products} == {f"{layer}/{part}" for layer in (0, 1) for part in ("q", "kv", "mlp/0", "mlp/2")}
    forward = {(op.scope, op.location) for op in products if op.phase == "forward"}
    backward = {(op.scope, op.location) for op in products if op.phase == "backward"}
    assert forward == backward
    assert all(location.startswith("test_torch.py:") for _, location in forward)


def test_a_training_step_is_analysed_and_leaves_everything_as_it_was() -> None:
    model = Block()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(2, 16, 32)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step(x)
    weights = [one.detach().clone() for one in model.parameters()]
    gradients = [one.grad for one in model.parameters()]
    state = {key: dict(values) for key, values in optimizer.state.items()}
    report = rl.torch.analyze(step, chip="h100")(x)
    assert {op.phase for op in report.ops} == {"forward", "backward"}
    assert any(op.name == "addcdiv_" for op in report.ops)
    assert all(torch.equal(before, now) for before, now in zip(weights, model.parameters(), strict=True))
    assert all(before is now.grad for before, now in zip(gradients, model.parameters(), strict=True))
    assert {key: dict(values) for key, values in optimizer.state.items()} == state
    step(x)  # still runs


def test_a_function_may_have_a_variable_that_is_set_in_another_branch() -> None:
    def made(wide: bool) -> Any:
        if wide:
            extra = torch.ones(8)
        x = torch.ones(8)
        return lambda: x + extra if wide else x + 1

    (op,) = rl.torch.analyze(made(wide=False), chip="h100")().ops
    assert op.bytes["hbm"] == 2 * 8 * 4  # reads and writes 8 fp32


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@every(("device", "named", "wide"), [("cpu", "cuda", True), ("meta", "cuda", True), ("cpu", "cpu", False)])
def test_a_note_says_where_autocast_casts_nothing(device: str, named: str, wide: bool) -> None:
    linear, x = nn.Linear(16, 32, bias=False).to(device), torch.ones(8, 16, device=device)

    def step(x: Any) -> Any:
        with torch.autocast(named, torch.bfloat16), torch.autocast("cuda", enabled=False):
            return linear(x)

    report = rl.torch.analyze(step, chip="h100")(x)
    assert any(f"torch.autocast({named!r}) does not cast tensors on {device}" in one for one in report.input.notes) == wide
    assert ("matrix/bf16" in {unit for op in report.ops for unit in op.work}) != wide
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.ones(2, 2).mm(torch.ones(2, 2)).dtype is torch.bfloat16  # as before


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_threads_that_trace_at_once_leave_each_other_and_pytorch_alone() -> None:
    attention, init = functional.scaled_dot_product_attention, torch.autocast.__init__
    inside, left = threading.Event(), threading.Event()
    reports: list[Report] = []

    def first(x: Any) -> Any:
        inside.set()
        assert left.wait(60)
        return functional.scaled_dot_product_attention(x, x, x)

    def second(x: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            left.set()
            thread.join()
            return functional.scaled_dot_product_attention(x, x, x)

    x = torch.ones(1, 2, 8, 4)
    thread = threading.Thread(target=lambda: reports.append(rl.torch.analyze(first, chip="h100")(x)))
    thread.start()
    assert inside.wait(60)
    assert torch.equal(functional.scaled_dot_product_attention(x, x, x), attention(x, x, x))  # another thread computes as ever
    reports.append(rl.torch.analyze(second, chip="h100")(x))  # the first thread ends while this one is traced
    for report, wide in zip(reports, (False, True), strict=True):
        assert [op.name for op in report.ops] == ["_scaled_dot_product_flash_attention"]
        assert any("torch.autocast" in note for note in report.input.notes) == wide
    assert (functional.scaled_dot_product_attention, torch.autocast.__init__) == (attention, init)


def test_an_error_in_the_function_leaves_pytorch_as_it_was() -> None:
    before = functional.scaled_dot_product_attention, torch.autocast.__init__

    def fails(x: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        rl.torch.analyze(fails, chip="h100")(meta(2))
    assert (functional.scaled_dot_product_attention, torch.autocast.__init__) == before


HEADS = [(8, 16, 2048, 64)] * 3
FEW_HEADS = [(8, 32, 2048, 128), (8, 8, 2048, 128), (8, 8, 2048, 128)]
SCORES, PROMPT = [(4096, 32768)], [(16, 1024, 1024), (1024, 65536)]


def written_attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def repeated_heads(q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))


def looked_up_by_product(ids: Any, table: Any) -> Any:
    return functional.one_hot(ids.long(), 32000).to(table.dtype) @ table


@pytest.mark.parametrize(
    ("function", "shapes", "kind", "words"),
    [
        (written_attention, HEADS, "stored-attention", "stores attention scores in memory"),
        (functional.scaled_dot_product_attention, HEADS, "stored-attention", ""),
        (lambda q, k, v: (q @ k.transpose(-1, -2)) @ v, [(16, 8192, 64)] * 3, "product-order", "needs 128 times fewer FLOP"),
        (lambda q, k, v: q @ (k.transpose(-1, -2) @ v), [(16, 8192, 64)] * 3, "product-order", ""),
        (looked_up_by_product, [(8192,), (32000, 512)], "one-hot-product", "multiplies by one-hot rows (8192×32000×512)"),
        (lambda ids, table: functional.embedding(ids.long(), table), [(8192,), (32000, 512)], "one-hot-product", ""),
        (lambda x: torch.sort(x, -1).values[:, -8:].sum(), SCORES, "unused-results", "sorts rows of 32,768 elements, of which it uses 8"),
        (lambda x: torch.topk(x, 8).values.sum(), SCORES, "unused-results", ""),
        (lambda x, w: (x @ w)[:, -1].softmax(-1), PROMPT, "unused-results", "computes results of which 0.098% are used"),
        (lambda x, w: (made := x @ w, made[:, -1].softmax(-1)), PROMPT, "unused-results", ""),  # the caller gets all of them
        (repeated_heads, FEW_HEADS, "repeated-operand", "stores an array several times over"),
        (
            lambda x, w: w @ functional.unfold(x, 3, padding=1),
            [(32, 128, 64, 64), (128, 1152)],
            "repeated-operand",
            "each element of an array 9",
        ),
        (lambda x, w: functional.conv2d(x, w, padding=1), [(32, 128, 64, 64), (128, 128, 3, 3)], "repeated-operand", ""),
    ],
)
def test_the_faults_of_traces_are_found_without_running(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], kind: str, words: str
) -> None:
    found = rl.torch.analyze(function, chip="h200")(*(meta(*shape, of=torch.bfloat16) for shape in shapes)).findings
    mine = [one for one in found if one.kind == kind and one.saving_s]
    assert bool(mine) == bool(words)
    assert all(words in one.message for one in mine)


def test_gradients_of_a_costly_order_are_costly_too() -> None:
    heads = [meta(16, 8192, 64, of=torch.bfloat16).requires_grad_() for _ in range(3)]
    report = rl.torch.analyze(lambda q, k, v: (q @ k.transpose(-1, -2)) @ v, chip="h200", backward=True)(*heads)
    (found,) = [one for one in report.findings if one.kind == "product-order"]
    assert sum(report.ops[id].count for id in found.ops) == 6  # two products, and two for the gradients of each


def test_a_checkpoint_computes_forward_again_and_the_model_did_not_need_it() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.block, x, use_reentrant=False)

    plain = rl.torch.analyze(Block(), chip="h100", backward=True)(meta(2, 16, 32))
    report = rl.torch.analyze(Checkpointed(), chip="h100", backward=True)(meta(2, 16, 32))
    forward = rl.torch.analyze(Block(), chip="h100")(meta(2, 16, 32))
    last = 2 * 2 * 16 * 128 * 32  # checkpointing stops before the last product, whose result nothing needs
    assert matrix_flops(report) == matrix_flops(plain) + matrix_flops(forward) - last
    again = [op for op in report.ops if "recomputed" in op.unneeded]
    assert sum(op.unneeded["recomputed"] for op in again) > 0
    assert plain.memory is not None
    assert report.memory is not None


def test_peak_memory_is_what_is_live_at_once() -> None:
    def three(x: Any) -> Any:
        y = x + 1  # x and y
        z = y * 2  # x, y and z: the peak
        del y
        return z.sum()

    memory = rl.torch.analyze(three, chip="h100")(meta(1024)).memory
    assert memory is not None
    assert memory.peak_bytes == 3 * 4096
    assert memory.arguments == 4096


def test_checking_for_errors_after_a_factorisation_costs_nothing() -> None:
    report = rl.torch.analyze(torch.linalg.inv, chip="h100")(meta(4, 8, 8))
    assert [(op.name, op.bytes["hbm"]) for op in report.ops] == [("linalg_inv_ex", 2 * 4 * 4 * 8 * 8 + 4 * 4)]  # and a code for each matrix


def test_an_operand_that_is_given_twice_is_read_once() -> None:
    (op,) = rl.torch.analyze(lambda x: x * x, chip="h100")(meta(1024)).ops
    assert op.bytes["hbm"] == 2 * 4096
    (half,) = rl.torch.analyze(lambda x: x[:512] * x[512:], chip="h100")(meta(1024)).ops
    assert half.bytes["hbm"] == 3 * 2048


def test_compiling_fuses_a_norm_into_one_kernel_that_reads_and_writes_once() -> None:
    weight = torch.ones(1024, dtype=torch.bfloat16)

    def norm(x: Any) -> Any:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * wide.to(torch.bfloat16)

    x = meta(4096, 1024, of=torch.bfloat16)
    (kernel,) = rl.torch.analyze(norm, chip="h100", compile=True)(x).ops
    assert kernel.bytes["hbm"] == 2 * (2 * 4096 * 1024 + 1024)
    eager = rl.torch.analyze(norm, chip="h100")(x)
    assert len(eager.ops) == 8
    assert sum(op.work.get("vector/fp32") or 0 for op in eager.ops) == kernel.work["vector/fp32"]


def test_fusion_keeps_what_is_used_elsewhere_and_never_runs_a_product_inside() -> None:
    def forked(x: Any, w: Any) -> Any:
        y = torch.relu(x)
        return y @ w + y  # the product needs y, so y is written, and the sum comes after the product

    x, w = meta(64, 64), meta(64, 64)
    ops = rl.torch.analyze(forked, chip="h100", compile=True)(x, w).ops
    assert sorted(op.name for op in ops) == ["add", "mm", "relu"]


def test_messages_that_are_compiled_take_what_the_finding_about_them_says() -> None:
    def layer(x: Any, w: Any, sources: Any, targets: Any) -> Any:
        return torch.zeros_like(x).index_add_(0, targets, (x @ w)[sources])

    arguments = meta(10_000, 128), meta(128, 128), meta(500_000, of=torch.int64), meta(500_000, of=torch.int64)
    eager, compiled = (rl.torch.analyze(layer, chip="h100", compile=compile)(*arguments) for compile in (False, True))
    (told,) = (finding for finding in eager.findings if finding.kind == "unfused-chain")
    before_s, after_s = (report.points[0].floors_s or 0 for report in (eager, compiled))
    assert before_s - after_s == pytest.approx(told.saving_s, rel=0.01)
    assert sorted(op.name for op in compiled.ops) == ["fused index index_add_", "mm", "zeros_like"]  # the zeros are there before


def test_two_reductions_over_different_rows_are_two_kernels() -> None:
    def both(x: Any) -> Any:
        y = torch.relu(x)
        return y.sum(0), y.sum(1)

    ops = rl.torch.analyze(both, chip="h100", compile=True)(meta(64, 32)).ops
    assert sorted(op.name for op in ops) == ["fused relu sum", "sum"]


def test_each_step_of_a_compiled_stencil_reads_and_writes_its_array() -> None:
    def smoothed(u: Any) -> Any:
        for _ in range(4):
            u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        return u

    kernels = rl.torch.analyze(smoothed, chip="h100", compile=True)(meta(1024, 1024)).ops
    assert sum(op.bytes["hbm"] or 0 for op in kernels) == pytest.approx(4 * 2 * 4 * 1024 * 1024, rel=0.01)


def test_a_compiled_optimizer_reads_four_lists_and_writes_three() -> None:
    weight = torch.nn.Parameter(meta(1024, 1024))
    weight.grad = meta(1024, 1024)
    optimizer = torch.optim.AdamW([weight], foreach=True)

    def update(unused: Any) -> None:
        optimizer.step()

    kernels = rl.torch.analyze(update, chip="h100", compile=True)(meta(1)).ops
    chain = max(kernels, key=lambda op: op.bytes["hbm"] or 0)
    assert chain.bytes["hbm"] == 7 * 4 * 1024 * 1024
    assert "_foreach_addcdiv_" in chain.name


def test_what_needs_data_is_one_line() -> None:
    with pytest.raises(rl.UsageError, match=r"a value is read \(.item\(\), bool\(tensor\)\)"):
        rl.torch.analyze(lambda x: x * x.sum().item(), chip="h100")(meta(8))


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (lambda x: x[x > 0], lambda: torch.ones(8), "how much nonzero returns depends on data"),
        (torch.unique, lambda: torch.ones(8), "how much _unique2 returns depends on data"),
        (lambda x: x.to_sparse() * 2, lambda: torch.ones(8, 8), "depends on data"),
        (lambda x: x * 2, lambda: torch.eye(8).to_sparse(), "a sparse tensor: how much it holds depends on data"),
        (lambda x: x * 2, lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]), "a nested tensor"),
        (lambda x: torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y * 3, (x,)), lambda: torch.ones(8), "cond calls functions of yours"),
        (lambda x: flex_attention(x, x, x), lambda: meta(1, 1, 16, 16), "FlexAttention calls functions of yours"),
    ],
)
def test_what_has_no_size_without_data_is_refused_in_one_line(function: Callable[..., Any], given: Callable[[], Any], said: str) -> None:
    with pytest.raises(rl.RooflineError, match=said) as refused:
        rl.torch.analyze(function, chip="h100")(given())
    assert "\n" not in str(refused.value)


def test_sparse_gradients_are_refused_and_leave_the_weights_alone() -> None:
    table = nn.EmbeddingBag(100, 8, mode="sum", sparse=True)
    with pytest.raises(rl.RooflineError, match=r"EmbeddingBag: a sparse tensor.*sparse=False"):
        rl.torch.analyze(table, chip="h100", backward=True)(torch.arange(16), torch.arange(0, 16, 4))
    assert table.weight.grad is None
    dense = rl.torch.analyze(nn.EmbeddingBag(100, 8, mode="sum"), chip="h100", backward=True)(torch.arange(16), torch.arange(0, 16, 4))
    assert any(op.phase == "backward" for op in dense.ops)


class Positions(nn.Module):
    """Embeddings of tokens and of positions, which are made without naming a device."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.head = nn.Embedding(50, 8), nn.Embedding(16, 8), nn.Linear(8, 50)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))


def test_a_model_on_meta_may_make_tensors_without_naming_a_device() -> None:
    tokens = torch.zeros(4, 16, dtype=torch.int64)
    real, without = (rl.torch.analyze(Positions().to(one), chip="h100", backward=True)(tokens.to(one)) for one in ("cpu", "meta"))
    assert [(op.name, op.flops, op.bytes) for op in without.ops] == [(op.name, op.flops, op.bytes) for op in real.ops]
    found = compare_function(Positions(), "Positions", [("int64", (4, 16))], dtype("bf16"), backward=True)
    counted = {one.way: one.flops for one in found.counts}
    assert counted["FlopCounterMode"] == found.flops == 3 * 2 * 4 * 16 * 8 * 50
    with pytest.raises(rl.RooflineError, match="Positions is a class"):
        compare_function(Positions, "Positions", [("int64", (4, 16))], dtype("bf16"), backward=True)


def test_an_error_of_the_function_itself_stays_what_it_is() -> None:
    def unfinished(x: Any) -> Any:
        raise NotImplementedError("to be written")

    with pytest.raises(NotImplementedError, match="to be written"):
        rl.torch.analyze(unfinished, chip="h100")(torch.ones(8))


def test_fp32_runs_as_tf32_where_the_program_allows_it() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        for precision, resource in (("highest", "matrix/fp32"), ("high", "matrix/tf32")):
            torch.set_float32_matmul_precision(precision)
            (op,) = rl.torch.analyze(torch.mm, chip="h100")(meta(8, 8), meta(8, 8)).ops
            assert op.work == {resource: 1024}
    finally:
        torch.set_float32_matmul_precision(before)


def test_an_operator_of_ones_own_is_unknown_until_it_is_registered() -> None:
    @torch.library.custom_op("roofline_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def report() -> Report:
        return rl.torch.analyze(twice, chip="h100")(meta(8))

    assert report().ops[0].bytes == {"hbm": None}

    def priced(call: Call) -> rl.Cost:
        return rl.Cost.of({"hbm": 2 * call.all_tensors[0].bytes})

    rl.register_op("roofline_test::twice", priced)
    try:
        assert report().ops[0].bytes == {"hbm": 64}
    finally:
        rl.forget_op("roofline_test::twice")


def test_a_function_is_compared_from_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_torch_layers.py").write_text("def layer(x, w):\n    return x @ w\n")
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "torch", "my_torch_layers:layer", "--args", "32x64", "bf16[64,16]", "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "roofline.torch-comparison/1"
    assert answer["flops"] == 2 * 32 * 64 * 16
    assert {one["way"]: one["flops"] for one in answer["counts"]}["FlopCounterMode"] == answer["flops"]


def test_the_backward_pass_of_the_block_recomputes_scores() -> None:
    found = compare_block(rl.dtype("bf16"), backward=True)
    said = {one.way: one.flops for one in found.counts}
    # one more product of the causal half: 2·batch·heads·length²/2·width of a head
    assert said["roofline: matrix work, what ran"] - said["roofline: matrix work, needed"] == 2 * 2 * 512 * 512 / 2 * 512  # type: ignore[operator]
    assert said["FlopCounterMode"] == said["roofline: matrix work, full square"]


@every("masked", [False, True])
def test_a_note_says_where_a_mask_makes_attention_count_all_scores(masked: bool) -> None:
    def attention(q: Any, mask: Any) -> Any:
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=mask is None)

    q = torch.empty(2, 4, 128, 32, dtype=torch.bfloat16, device="meta")
    report = rl.torch.analyze(attention, chip="h100")(q, torch.ones(128, 128, dtype=torch.bool, device="meta") if masked else None)
    (op,) = report.ops
    # Two products of 128 x 32 x 128 for each of 2 x 4 heads; is_causal computes half of the square.
    assert op.work["matrix/bf16"] == 2 * 2 * 8 * 128 * 32 * 128 // (1 if masked else 2)
    assert any(note.startswith("1 call of attention has") for note in report.input.notes) == masked
