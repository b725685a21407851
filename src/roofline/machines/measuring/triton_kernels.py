"""Triton kernels for measurements: streams that read their working set repeatedly in one launch, and arithmetic in registers.

A stream visits the blocks of its buffer in turn and bypasses the L1 caches, each program starting at another block in each pass, so that
the shared memory level is measured.
"""

import triton
import triton.language as tl

UNROLLED = tl.constexpr(16)
RUNTIME = ["blocks", "passes"]  # otherwise a kernel would be compiled again for counts that are multiples of 16


@triton.jit(do_not_specialize=RUNTIME)  # type: ignore[untyped-decorator]
def read(source, target, blocks, passes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up every block."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(passes):
        for block in range((program + turn * 7) % programs, blocks, programs):
            total += tl.load(source + block * BLOCK + offsets, cache_modifier=".cg")
    tl.store(target + program, tl.sum(total))


@triton.jit(do_not_specialize=RUNTIME)  # type: ignore[untyped-decorator]
def per_core(source, target, blocks, passes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up each program's own share of the blocks, which may fit in its core's L1."""
    program = tl.program_id(0)
    share = blocks // tl.num_programs(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(passes):
        for block in range(program * share, (program + 1) * share):
            total += tl.load(source + block * BLOCK + offsets, cache_modifier=".ca")
    tl.store(target + program, tl.sum(total))


@triton.jit(do_not_specialize=RUNTIME)  # type: ignore[untyped-decorator]
def write(source, target, blocks, passes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Fill every block of the target."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    offsets = tl.arange(0, BLOCK)
    for turn in range(passes):
        value = tl.zeros((BLOCK,), tl.float32) + turn
        for block in range((program + turn * 7) % programs, blocks, programs):
            tl.store(target + block * BLOCK + offsets, value)


@triton.jit(do_not_specialize=RUNTIME)  # type: ignore[untyped-decorator]
def copy(source, target, blocks, passes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copy every block."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    offsets = tl.arange(0, BLOCK)
    for turn in range(passes):
        for block in range((program + turn * 7) % programs, blocks, programs):
            value = tl.load(source + block * BLOCK + offsets, cache_modifier=".cg")
            tl.store(target + block * BLOCK + offsets, value)


@triton.jit  # type: ignore[untyped-decorator]
def multiply_adds(source, target, repeats, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Chains of fused multiply-adds in registers, several independent ones in each thread."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + offsets)
    factor = value * 0.5 + 0.25
    for _ in range(repeats):
        for _ in tl.static_range(UNROLLED):
            value = value * factor + factor
    tl.store(target + offsets, value)


@triton.jit  # type: ignore[untyped-decorator]
def exponentials(source, target, repeats, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Chains of base-2 exponentials in registers."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + offsets)
    for _ in range(repeats):
        for _ in tl.static_range(UNROLLED):
            value = tl.exp2(-value)
    tl.store(target + offsets, value)
