"""Runs the kernels of ncu_faults.cu, each once inside the profiled range; what ncu_faults.csv.gz was captured from on an H200.

    ncu --profile-from-start off --set full --csv --page raw --log-file ncu_faults.csv python ncu_faults.py

The file is cut to the columns that matter here. Needs PyTorch 2.9 or later, whose NVRTC compiles the kernels.
"""

from pathlib import Path

import torch

SOURCE = (Path(__file__).parent / "ncu_faults.cu").read_text()
LARGE = 200 * 1024  # bytes of shared memory: one block per SM


def main() -> None:
    device, n, rows = "cuda", 1 << 24, 8192
    x, y = torch.rand(1 << 26, device=device), torch.empty(1 << 26, device=device)
    ids = torch.randint(0, 8, (n,), device=device, dtype=torch.int32)
    sums, total = torch.zeros(8, device=device, dtype=torch.int32), torch.zeros(1, device=device)
    uneven = torch.where(torch.rand(1 << 22, device=device) < 1 / 32, 4000, 40).to(torch.int32)
    even = torch.full((1 << 22,), 164, device=device, dtype=torch.int32)
    octets, copied = torch.zeros(1 << 28, device=device, dtype=torch.uint8), torch.empty(1 << 28, device=device, dtype=torch.uint8)
    launches = [  # kernel, grid, block, arguments, bytes of shared memory
        ("transpose_conflicts", (rows // 32, rows // 32, 1), (32, 8, 1), (x, y, rows), 0),
        ("transpose_padded", (rows // 32, rows // 32, 1), (32, 8, 1), (x, y, rows), 0),
        ("shared_conflicts", (1056, 1, 1), (256, 1, 1), (y, 2000), 0),
        ("shared_plain", (1056, 1, 1), (256, 1, 1), (y, 2000), 0),
        ("spilled", (2048, 1, 1), (1024, 1, 1), (x, y, 1 << 20), 0),
        ("unspilled", (8192, 1, 1), (256, 1, 1), (x, y, 1 << 20), 0),
        ("dynamic_array", (4096, 1, 1), (256, 1, 1), (x, y, 1 << 20), 0),
        ("few_warps", (132, 1, 1), (128, 1, 1), (x, y, n), LARGE),
        ("few_warps", (132 * 16, 1, 1), (128, 1, 1), (x, y, n), 0),
        ("divergent", (1 << 14, 1, 1), (256, 1, 1), (uneven, y, 0), 0),
        ("divergent", (1 << 14, 1, 1), (256, 1, 1), (even, y, 0), 0),
        ("two_waves", (133, 1, 1), (1024, 1, 1), (y, 100_000), LARGE),
        ("two_waves", (132, 1, 1), (1024, 1, 1), (y, 100_000), LARGE),
        ("narrow", (1 << 20, 1, 1), (256, 1, 1), (octets, copied, 1 << 28), 0),
        ("wide", (1 << 16, 1, 1), (256, 1, 1), (octets, copied, n), 0),
        ("hist_global", (n // 256, 1, 1), (256, 1, 1), (ids, sums, n), 0),
        ("hist_shared", (132 * 8, 1, 1), (256, 1, 1), (ids, sums, n), 0),
        ("sum_atomics", ((1 << 22) // 256, 1, 1), (256, 1, 1), (x, total, 1 << 22), 0),
        ("structs", ((1 << 23) // 256, 1, 1), (256, 1, 1), (x, y, 1 << 23), 0),
        ("fields", ((1 << 23) // 256, 1, 1), (256, 1, 1), (x, y, 1 << 23), 0),
        ("uneven", (132 * 16, 1, 1), (128, 1, 1), (ids, y, 5000), 0),
        ("doubles", (n // 256, 1, 1), (256, 1, 1), (x, y, n), 0),
        ("floats", (n // 256, 1, 1), (256, 1, 1), (x, y, n), 0),
        ("slow_math", (n // 256, 1, 1), (256, 1, 1), (x, y, n), 0),
    ]
    kernels = {name: torch.cuda._compile_kernel(SOURCE, name) for name, *_ in launches}
    for profiled in (False, True):
        if profiled:
            torch.cuda.cudart().cudaProfilerStart()
        for name, grid, block, arguments, shared in launches:
            if shared:
                kernels[name].set_shared_memory_config(shared)
            kernels[name](grid=grid, block=block, args=arguments, shared_mem=shared)
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
