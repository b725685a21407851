"""Kernels in Triton, good ones and some with a fault, and three of PyTorch's; what ncu_triton.csv.gz was captured from on an H200.

    ncu --profile-from-start off --set full --csv --page raw --log-file ncu_triton.csv python ncu_triton.py

The file is cut to the columns that matter here.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, z, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(z + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def add_strided(x, y, z, n, stride, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    j = (i % stride) * (n // stride) + i // stride
    tl.store(z + j, tl.load(x + j, i < n) + tl.load(y + j, i < n), i < n)


@triton.jit
def softmax_rows(x, z, columns, block: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + i, i < columns, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(z + row * columns + i, (value / tl.sum(value, 0)).to(tl.bfloat16), i < columns)


@triton.jit
def softmax_three_pass(x, z, columns, block: tl.constexpr):
    row, most, total = tl.program_id(0), -float("inf"), 0.0
    for c in range(0, columns, block):
        most = tl.maximum(most, tl.max(tl.load(x + row * columns + c + tl.arange(0, block)).to(tl.float32), 0))
    for c in range(0, columns, block):
        total += tl.sum(tl.exp(tl.load(x + row * columns + c + tl.arange(0, block)).to(tl.float32) - most), 0)
    for c in range(0, columns, block):
        i = c + tl.arange(0, block)
        value = tl.exp(tl.load(x + row * columns + i).to(tl.float32) - most) / total
        tl.store(z + row * columns + i, value.to(tl.bfloat16))


@triton.jit
def matmul(a, b, c, m, n, k, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):
    i, j = tl.program_id(0) * rows + tl.arange(0, rows), tl.program_id(1) * columns + tl.arange(0, columns)
    total = tl.zeros((rows, columns), tl.float32)
    for begin in range(0, k, depth):
        inner = begin + tl.arange(0, depth)
        total = tl.dot(tl.load(a + i[:, None] * k + inner[None, :]), tl.load(b + inner[:, None] * n + j[None, :]), total)
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16))


@triton.jit
def hist(x, sums, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(sums + tl.load(x + i, i < n, other=0), 1, i < n)


@triton.jit
def poly(x, z, n, terms: tl.constexpr, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + i)
    total = value
    for _ in tl.static_range(terms):
        total = total * value + 1.0001
    tl.store(z + i, total)


@triton.jit
def serial(x, z, n, block: tl.constexpr):
    total = tl.zeros((block,), tl.float32)
    for begin in range(0, n, block):
        total += tl.load(x + begin + tl.arange(0, block))
    tl.store(z + tl.arange(0, block), total)


def main() -> None:
    device, n, rows, columns, m = "cuda", 1 << 26, 16384, 8192, 4096
    x, y, z = (torch.randn(n, device=device) for _ in range(3))
    wide, normal = (torch.randn(rows, columns, device=device, dtype=torch.bfloat16) for _ in range(2))
    a, b, c = (torch.randn(m, m, device=device, dtype=torch.bfloat16) for _ in range(3))
    ids, sums = torch.randint(0, 8, (1 << 24,), device=device, dtype=torch.int32), torch.zeros(8, device=device, dtype=torch.int32)
    few = torch.randn(1 << 22, device=device)
    for profiled in (False, True):
        if profiled:
            torch.cuda.cudart().cudaProfilerStart()
        add[(n // 1024,)](x, y, z, n, block=1024)
        add_strided[(n // 1024,)](x, y, z, n, 4096, block=1024)
        softmax_rows[(rows,)](wide, normal, columns, block=8192, num_warps=8)
        softmax_three_pass[(rows,)](wide, normal, columns, block=1024)
        matmul[(m // 128, m // 128)](a, b, c, m, m, m, rows=128, columns=128, depth=64, num_warps=8, num_stages=3)
        matmul[(m // 16, m // 16)](a, b, c, m, m, m, rows=16, columns=16, depth=16, num_warps=1)
        hist[((1 << 24) // 1024,)](ids, sums, 1 << 24, block=1024)
        poly[(n // 1024,)](x, z, n, terms=64, block=1024)
        serial[(1,)](few, z, 1 << 22, block=1024)
        torch.matmul(a, b)
        wide.t().contiguous()
        torch.layer_norm(wide, (columns,))
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
