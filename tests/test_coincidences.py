"""PyTorch functions that do two unrelated things with tensors of equal sizes: no finding takes one for the other."""

from collections.abc import Callable
from typing import Any

import pytest

from every import every

BF16, FP32, INT64, INT8, BOOL, COMPLEX = "bfloat16", "float32", "int64", "int8", "bool", "complex64"
SQUARE = (2048, 2048)
Tensor = tuple[tuple[int, ...], str]


def of(*shape: int, dtype: str = BF16) -> Tensor:
    return shape, dtype


# What each does, and the shapes and formats of its arguments.
FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "positions beside a product": (
        lambda t, ids, x, w: (ids[:, None] == t.arange(3072, device=ids.device), x @ w),
        of(6144, dtype=INT64),
        of(6144, 3072),
        of(3072, 768),
    ),
    "a scatter of ones beside a product": (
        lambda t, ids, x, w: (t.zeros_like(x).scatter_(1, ids, 1.0), x @ w),
        of(6144, 1, dtype=INT64),
        of(6144, 3072),
        of(3072, 768),
    ),
    "the identity beside a product": (lambda t, x, w: (t.eye(2048, dtype=x.dtype, device=x.device), x @ w), of(*SQUARE), of(2048, 512)),
    "a diagonal matrix beside a product": (lambda t, d, x, w: (t.diag_embed(d), x @ w), of(2048), of(*SQUARE), of(2048, 512)),
    "two products of equal sizes": (lambda t, a, b, c, d: (a @ b, c @ d), *[of(*SQUARE)] * 4),
    "a wide product and a narrow one": (lambda t, a, b, c, d: (a @ b, c @ d), of(3072, 48), of(48, 3072), of(3072, 3072), of(3072, 48)),
    "a softmax beside two products": (
        lambda t, q, k, z, p, v: (q @ k, t.softmax(z, -1), p @ v),
        of(8, 1024, 64),
        of(8, 64, 1024),
        *[of(8, 1024, 1024)] * 2,
        of(8, 1024, 64),
    ),
    "a triangle beside a softmax": (lambda t, a, z: (t.tril(a), t.softmax(z, -1)), of(*SQUARE), of(*SQUARE)),
    "rows that are gathered beside a product": (
        lambda t, table, ids, x, w: (table.index_select(0, ids), x @ w),
        of(5000, 384),
        of(60000, dtype=INT64),
        of(60000, 384),
        of(384, 384),
    ),
    "rows that are gathered beside others that are added up": (
        lambda t, table, ids, sums, at, rows: (table.index_select(0, ids), sums.index_add(0, at, rows)),
        of(5000, 384, dtype=FP32),
        of(60000, dtype=INT64),
        of(5000, 384, dtype=FP32),
        of(60000, dtype=INT64),
        of(60000, 384, dtype=FP32),
    ),
    "keys that are repeated beside a product": (
        lambda t, k, q, p: (k.repeat_interleave(8, 1), q @ p),
        of(4, 4, 1024, 64),
        of(4, 32, 1024, 1024),
        of(4, 32, 1024, 64),
    ),
    "a mask that is stored beside attention": (
        lambda t, mask, q, other: (mask[:, None].expand(4, 16, 1024, 1024).contiguous(), q @ other),
        of(4, 1024, 1024),
        of(4, 16, 1024, 1024),
        of(4, 16, 1024, 64),
    ),
    "patches beside a product": (
        lambda t, image, x, w: (t.nn.functional.unfold(image, 3, padding=1), x @ w),
        of(8, 64, 32, 32),
        of(8, 576, 1024),
        of(8, 1024, 64),
    ),
    "a sort beside a part": (lambda t, a, b: (t.sort(a, -1).values, b[:, :16] * 2), of(1024, 16384), of(1024, 16384)),
    "a sorted running sum beside a draw": (
        lambda t, a, p: (t.cumsum(t.sort(a, -1).values, -1), t.multinomial(p, 1)),
        of(256, 16384, dtype=FP32),
        of(256, 16384, dtype=FP32),
    ),
    "padding beside a product": (
        lambda t, a, x, w: (t.nn.functional.pad(a, (0, 0, 0, 3072)), x @ w),
        of(1024, 1024),
        of(4096, 1024),
        of(1024, 1024),
    ),
    "two halves that are joined beside a product": (
        lambda t, a, b, x, w: (t.cat([a, b]), x @ w),
        of(2048, 1024),
        of(2048, 1024),
        of(4096, 1024),
        of(1024, 1024),
    ),
    "a cast beside a product": (lambda t, a, x, w: (a.to(x.dtype), x @ w), of(*SQUARE, dtype=FP32), of(64, 2048), of(*SQUARE)),
    "bytes that are widened beside a product": (
        lambda t, a, x, w: (a.to(x.dtype), x @ w),
        of(*SQUARE, dtype=INT8),
        of(2048, 2048),
        of(*SQUARE),
    ),
    "a sum beside a product": (lambda t, a, x, w: (a.sum(0), x @ w), of(8192, 2048), of(8192, 2048), of(2048, 2048)),
    "rows joined beside attention": (
        lambda t, x, w, new, k: (t.cat([x @ w, new], 1), t.softmax(k, -1)),
        of(16, 1024, 512),
        of(512, 512),
        of(16, 1, 512),
        of(16, 1025, 512),
    ),
    "a rolled image beside one that is written": (
        lambda t, x, w, y, new: (t.roll(x @ w, -1, 1), y.slice_scatter(new, 1, 1023, 1024)),
        of(16, 1024, 512),
        of(512, 512),
        of(16, 1024, 512),
        of(16, 1, 512),
    ),
    "a spectrum beside the real part of another": (
        lambda t, x, z: (t.fft.fft(x), z.real.sum()),
        of(1024, 4096, dtype=COMPLEX),
        of(1024, 4096, dtype=COMPLEX),
    ),
    "the best scores beside all experts": (
        lambda t, scores, x, up: (scores.topk(2, -1).values, t.bmm(x, up)),
        of(4096, 8),
        of(8, 4096, 512),
        of(8, 512, 512),
    ),
}

# Of which a part is used, and which need all that they read.
PARTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "a column of a softmax": (lambda t, x: t.softmax(x, -1)[:, :8] * 2, of(8192, 4096)),
    "features of a layer norm": (lambda t, x: t.nn.functional.layer_norm(x, (4096,))[:, :8] * 2, of(8192, 4096)),
    "the end of a running sum": (lambda t, x: t.cumsum(x, 1)[:, -8:] * 2, of(8192, 4096, dtype=FP32)),
    "rows of an inverse": (lambda t, x: t.linalg.inv(x)[:, :8] * 2, of(16, 256, 256, dtype=FP32)),
    "unknowns of a system": (lambda t, x, b: t.linalg.solve(x, b)[:, :8] * 2, of(16, 512, 512, dtype=FP32), of(16, 512, 4, dtype=FP32)),
    "rows scaled by the norm of all": (
        lambda t, x, y: (x * t.clamp(1 / t.sqrt((x * x).sum() + (y * y).sum()), max=1))[:8] * 1,
        *[of(4096, 4096, dtype=FP32)] * 2,
    ),
    "singular vectors": (lambda t, x: t.linalg.svd(x)[0][..., :8] * 2, of(16, 256, 256, dtype=FP32)),
}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@every("name", FUNCTIONS)
def test_nothing_is_found_where_sizes_coincide(name: str) -> None:
    torch = pytest.importorskip("torch")
    import roofline.torch

    function, *tensors = FUNCTIONS[name]
    arguments = [torch.empty(shape, dtype=getattr(torch, number), device="meta") for shape, number in tensors]
    for compiles in (False, True):
        report = roofline.torch.analyze(lambda *given: function(torch, *given), chip="h200", compile=compiles)(*arguments)
        assert [(finding.kind, finding.message) for finding in report.findings if finding.saving_s] == []


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@every("name", PARTS)
def test_a_part_is_not_computed_alone_where_it_needs_all(name: str) -> None:
    torch = pytest.importorskip("torch")
    import roofline.torch

    function, *tensors = PARTS[name]
    arguments = [torch.empty(shape, dtype=getattr(torch, number), device="meta") for shape, number in tensors]
    report = roofline.torch.analyze(lambda *given: function(torch, *given), chip="h200", compile=True)(*arguments)
    assert "unused-results" not in [finding.kind for finding in report.findings]
