"""The same JAX functions priced by jax.experimental.roofline, by XLA's own cost analysis, and by roofline; and why they differ.

pip install 'roofline[jax]' absl-py
python benchmarks/jax_roofline.py
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import roofline.jax

Spec = jax.ShapeDtypeStruct
F32, BF16 = jnp.float32, jnp.bfloat16
WIDTH = 512


def scanned(x: Any, weights: Any) -> Any:
    return lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, weights)[0]


def chosen(flag: Any, x: Any) -> Any:
    return lax.cond(flag, lambda y: y @ y, lambda y: y, x)


def repeated(x: Any) -> Any:
    return lax.fori_loop(0, 10, lambda _, y: y @ y, x)


def convolved(image: Any, kernel: Any) -> Any:
    return lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def attended(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def ragged(tokens: Any, experts: Any, sizes: Any) -> Any:
    return lax.ragged_dot(tokens, experts, sizes)


SQUARE = Spec((WIDTH, WIDTH), F32)
# name, function, arguments, why the others differ
CASES: tuple[tuple[str, Callable[..., Any], tuple[Any, ...], str], ...] = (
    ("matmul", lambda a, b: a @ b, (SQUARE, SQUARE), "all agree: 2mkn"),
    ("matmul + gelu", lambda a, b: jax.nn.gelu(a @ b), (SQUARE, SQUARE), "tanh is a transcendental here and stands apart from FLOP"),
    ("scan of 16 layers", scanned, (SQUARE, Spec((16, WIDTH, WIDTH), F32)), "both others count the loop's body once"),
    ("fori_loop, 10 trips", repeated, (SQUARE,), "both others count the loop's body once, or not at all"),
    ("cond", chosen, (Spec((), jnp.bool_), SQUARE), "the dearest branch counts here; theirs is dropped or taken whole"),
    ("convolution, SAME", convolved, (Spec((8, 28, 28, 64), F32), Spec((3, 3, 64, 64), F32)), "products with padding are not counted here"),
    (
        "attention",
        attended,
        tuple(Spec((2, 256, 8, 64), BF16) for _ in range(3)),
        "all agree on the products; the rest is softmax and mask by each convention",
    ),
    ("sort", lambda x: jnp.sort(x, axis=-1), (SQUARE,), "comparisons are no FLOP here; XLA counts n·log n, theirs nothing"),
    ("top_k", lambda x: lax.top_k(x, 8), (SQUARE,), "comparisons are no FLOP here"),
    ("cumsum", lambda x: jnp.cumsum(x, axis=-1), (SQUARE,), "n − 1 adds a row by definition; XLA counts its expansion"),
    ("reduce_max", lambda x: jnp.max(x, axis=-1), (SQUARE,), "comparisons are no FLOP here"),
    (
        "ragged_dot",
        ragged,
        (Spec((512, 256), BF16), Spec((8, 256, 256), BF16), Spec((8,), jnp.int32)),
        "each row meets one expert; on CPU XLA multiplies by all of them",
    ),
)


def theirs(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, str]:
    """FLOP and bytes by jax.experimental.roofline, or the error it raises."""
    from jax.experimental import roofline as peer

    try:
        _, found = peer.roofline(function)(*arguments)
        return f"{found.flops:,.0f}", f"{found.hbm_bytes:,.0f}"
    except Exception as error:
        return type(error).__name__, "–"


def compilers(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, str]:
    """FLOP and bytes by XLA's cost analysis of the lowered program."""
    said = jax.jit(function).lower(*arguments).cost_analysis() or {}
    said = said[0] if isinstance(said, list) else said
    return f"{said.get('flops', 0):,.0f}", f"{said.get('bytes accessed', 0):,.0f}"


def ours(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, str]:
    """FLOP and bytes by roofline, for an H100."""
    total = roofline.jax.analyze(function, chip="h100")(*arguments).points[0]
    return ("unknown" if total.flops is None else f"{total.flops:,.0f}"), f"{total.bytes.get('hbm') or 0:,.0f}"


def main() -> None:
    print("| function | roofline | jax.experimental.roofline | cost_analysis() | roofline, bytes | theirs | XLA's | why |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for name, function, arguments, why in CASES:
        (flops, moved), (peer, peer_moved), (xla, xla_moved) = (way(function, arguments) for way in (ours, theirs, compilers))
        print(f"| {name} | {flops} | {peer} | {xla} | {moved} | {peer_moved} | {xla_moved} | {why} |")


if __name__ == "__main__":
    main()
