"""The streams and arithmetic of `triton_kernels` for JAX, which compiles them through Pallas.

The buffer has the same size for every working set: the number of used blocks and of passes are run-time arguments, so that a sweep over
sizes compiles one kernel per pattern.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas
from jax.experimental.pallas import triton

UNROLLED = 16
CLOCKS = 32  # elements of the clock's array: one per thread of a warp
STEP = 7  # programs by which the start position moves from pass to pass

Kernel = Callable[..., Any]
SHAPE: Callable[..., Any] = jax.ShapeDtypeStruct  # has no type annotations in JAX


def _every_block(counts: Any, step: Callable[[Any, Any, Any], Any], start: Any) -> Any:
    """A result carried through all blocks of this program, pass after pass; each pass starts at another block."""
    program, programs = pallas.program_id(0), jnp.int32(pallas.num_programs(0))
    blocks, passes = counts[0], counts[1]

    def one_pass(turn: Any, value: Any) -> Any:
        first = jax.lax.rem(program + turn * STEP, programs)
        mine = jax.lax.div(blocks - first + programs - 1, programs)
        return jax.lax.fori_loop(jnp.int32(0), mine, lambda each, carried: step(first + each * programs, turn, carried), value)

    return jax.lax.fori_loop(jnp.int32(0), passes, one_pass, start)


def stream(pattern: str, words: int, block: tuple[int, int, int], cores: int) -> Kernel:
    """A kernel over a buffer of ``words`` words; its arguments are the buffer, and an array with the numbers of blocks and passes."""
    elements, warps, programs = block
    grid = cores * programs

    def place(number: Any) -> Any:
        return pallas.ds(number * elements, elements)

    def read(source: Any, counts: Any, target: Any) -> None:
        def add(number: Any, _: Any, total: Any) -> Any:
            return total + source[place(number)]

        total = _every_block(counts, add, jnp.zeros((elements,), jnp.float32))
        target[pallas.program_id(0)] = total.sum()

    def write(_: Any, counts: Any, target: Any) -> None:
        def fill(number: Any, turn: Any, carried: Any) -> Any:
            target[place(number)] = jnp.full((elements,), turn.astype(jnp.float32))
            return carried

        _every_block(counts, fill, jnp.int32(0))

    def copy(source: Any, counts: Any, target: Any) -> None:
        def move(number: Any, _: Any, carried: Any) -> Any:
            target[place(number)] = source[place(number)]
            return carried

        _every_block(counts, move, jnp.int32(0))

    kernels: dict[str, Kernel] = {"read": read, "write": write, "copy": copy}
    out = words if pattern in ("write", "copy") else grid
    return _call(kernels[pattern], out, jnp.float32, grid, warps)


def per_core(block: tuple[int, int, int], cores: int) -> Kernel:
    """A kernel in which each program reads its own share of the blocks, which may fit in its core's L1.

    Each thread keeps its own sum: for a sum over a program XLA uses shared memory, which leaves almost nothing for the L1.
    """
    elements, warps, programs = block
    grid = cores * programs

    def read(source: Any, counts: Any, target: Any) -> None:
        program = pallas.program_id(0)
        share = jax.lax.div(counts[0], jnp.int32(grid))

        def add(number: Any, total: Any) -> Any:
            return total + source[pallas.ds((program * share + number) * elements, elements)]

        def one_pass(_: Any, total: Any) -> Any:
            return jax.lax.fori_loop(jnp.int32(0), share, add, total)

        total = jax.lax.fori_loop(jnp.int32(0), counts[1], one_pass, jnp.zeros((elements,), jnp.float32))
        target[pallas.ds(program * elements, elements)] = total

    return _call(read, grid * elements, jnp.float32, grid, warps)


def arithmetic(number: str, programs: int, elements: int, repeats: int) -> Kernel:
    """A kernel with chains of multiply-adds in registers, or of base-2 exponentials (``transcendental``), one element per chain."""

    def chains(source: Any, target: Any) -> None:
        mine = pallas.ds(pallas.program_id(0) * elements, elements)
        value = source[mine]
        factor = value * 0.5 + 0.25

        def step(_: Any, each: Any) -> Any:
            for _ in range(UNROLLED):
                each = jnp.exp2(-each) if number == "transcendental" else _multiply_add(each, factor)
            return each

        target[mine] = jax.lax.fori_loop(jnp.int32(0), jnp.int32(repeats), step, value)

    dtype = jnp.float64 if number == "fp64" else jnp.float32
    return _call(chains, programs * elements, dtype, programs, 4)


def clock() -> Kernel:
    """A kernel that returns the GPU's clock in nanoseconds; placed between others, it records when it ran."""

    def read_clock(source: Any, target: Any) -> None:
        target[...] = _instruction("mov.u64 $0, %globaltimer;", "=l,l", source[...])

    return _call(read_clock, CLOCKS, jnp.int64, 1, 1)


def null() -> Kernel:
    """A kernel that does nothing but return its array, so that several of them run one after the other."""

    def nothing(source: Any, target: Any) -> None:
        pass

    return _call(nothing, CLOCKS, jnp.int64, 1, 1, aliases={0: 0})


def _multiply_add(value: Any, factor: Any) -> Any:
    """``value * factor + factor`` as one FMA instruction, which XLA would compile to two."""
    kind, letter = ("f64", "d") if value.dtype == jnp.float64 else ("f32", "f")
    return _instruction(f"fma.rn.{kind} $0, $1, $2, $2;", f"={letter},{letter},{letter}", value, factor)


def _instruction(asm: str, letters: str, *values: Any) -> Any:
    made = SHAPE(values[0].shape, values[0].dtype)
    return triton.elementwise_inline_asm(asm, args=list(values), constraints=letters, pack=1, result_shape_dtypes=[made])[0]


def _call(kernel: Kernel, out: int, dtype: Any, grid: int, warps: int, aliases: dict[int, int] | None = None) -> Kernel:
    params = triton.CompilerParams(num_warps=warps)
    called: Kernel = pallas.pallas_call(
        kernel, SHAPE((out,), dtype), grid=(grid,), compiler_params=params, input_output_aliases=aliases or {}
    )
    return jax.jit(called)
