"""The compiled programs beside this script, and how they were made: JAX functions over every family of HLO opcodes.

    python make.py FOLDER            every program, in every form, uncompressed
    python make.py FOLDER --keep     only those kept beside this script, gzipped

Needs jax (0.10.2 made these, on CPU with eight devices forced); nothing else in the project does. One function gives
``NAME.before.hlo`` (unoptimised HLO text), ``NAME.stablehlo`` (what ``lower().as_text()`` prints), ``NAME.located.stablehlo``
(the same with source locations), ``NAME.hlo`` (compiled text) and ``NAME.pb`` (the compiled HloModuleProto).
"""

import gzip
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)

PROGRAMS: dict[str, tuple[Callable, tuple, dict]] = {}
KEEP = {
    "attention": ("hlo", "pb"),
    "conv_grouped": ("hlo", "pb", "stablehlo"),
    "scan_layers": ("before.hlo", "hlo", "pb", "stablehlo"),
    "cond_switch": ("before.hlo", "hlo", "pb", "stablehlo"),
    "sort_topk": ("hlo", "pb", "stablehlo"),
    "scatter_gather": ("hlo", "pb", "stablehlo"),
    "shard_map_collectives": ("hlo", "pb", "stablehlo"),
    "pjit_mlp": ("before.hlo", "hlo", "pb", "stablehlo"),
    "fp8_int4": ("hlo", "pb", "stablehlo"),
    "linear_algebra": ("hlo", "pb", "stablehlo"),
    "fft_complex": ("hlo", "pb", "stablehlo"),
    "random": ("hlo", "pb", "stablehlo"),
    "donate": ("hlo", "pb"),
    "literals": ("before.hlo", "hlo", "pb", "stablehlo"),
    "ragged_dot": ("hlo", "pb", "stablehlo"),
    "symbolic_shapes": ("stablehlo",),
    "callback": ("hlo", "pb", "stablehlo"),
    "locations": ("hlo", "pb", "located.stablehlo"),
    "pooling": ("before.hlo", "stablehlo"),
    "elementwise_unary": ("before.hlo", "stablehlo"),
}


def shape(*dims: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.dtype(dtype))


def program(*args: object, **options: object) -> Callable[[Callable], Callable]:
    """Registers a function under its name, to be lowered for these arguments."""

    def register(function: Callable) -> Callable:
        PROGRAMS[function.__name__] = (function, args, options)
        return function

    return register


@program(shape(64, 128), shape(128, 32))
def matmul(a, b):
    return a @ b


@program(shape(4, 8, 16, 32, dtype="bfloat16"), shape(4, 32, 8, 24, dtype="bfloat16"))
def batched_dot(a, b):
    return lax.dot_general(a, b, (((3,), (1,)), ((0, 1), (0, 2))), preferred_element_type=jnp.float32)


@program(shape(3, 5), shape(5, 3, 7))
def tensordot(a, b):
    return jnp.tensordot(a, b, axes=[(1, 0), (0, 1)])


@program(shape(64, 64), shape(64, 64))
def dot_precision(a, b):
    with jax.default_matmul_precision("BF16_BF16_F32_X3"):
        first = a @ b
    return first + jnp.dot(a, b, precision=lax.Precision.HIGHEST)


@program(shape(2, 16, 4, 8), shape(2, 16, 4, 8), shape(2, 16, 4, 8))
def attention(q, k, v):
    with jax.named_scope("attention"):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@program(shape(2, 9, 9, 8), shape(3, 3, 4, 12))
def conv_grouped(x, w):
    return lax.conv_general_dilated(
        x, w, (2, 1), [(1, 2), (0, 1)], rhs_dilation=(1, 2), feature_group_count=2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@program(shape(4, 8, 20), shape(6, 8, 3))
def conv_1d_grad(x, w):
    def f(x, w):
        return lax.conv_general_dilated(x, w, (2,), "SAME", dimension_numbers=("NCW", "OIW", "NCW")).sum()

    return jax.grad(f, argnums=(0, 1))(x, w)


@program(shape(4, 6, 6, 8), shape(3, 3, 8, 8))
def conv_batch_groups(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), [(0, 0), (1, 2)], lhs_dilation=(2, 2), batch_group_count=2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@program(shape(2, 5, 5, 5, 3), shape(2, 2, 2, 3, 4))
def conv_3d(x, w):
    return lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


@program(shape(2, 8, 8, 3))
def pooling(x):
    most = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
    return most, jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID").sum())(x)


@program(shape(6, 4, 5), shape(6, 4, 5, dtype="int32"))
def reductions(x, i):
    both = lax.reduce((x, i), (jnp.float32(0), jnp.int32(0)), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (1,))
    return x.sum(), x.max(axis=1), x.prod(axis=(0, 2)), (x > 0).any(), (x > 0).all(axis=0), jnp.argmax(x, axis=2), both


@program(shape(7, 9))
def cumulative(x):
    return jnp.cumsum(x, axis=1), lax.cummax(x, axis=0), lax.cumlogsumexp(x, axis=1), lax.associative_scan(jnp.multiply, x)


@program({"w": shape(6, 16, 16), "b": shape(6, 16)}, shape(4, 16))
def scan_layers(params, x):
    def layer(x, p):
        with jax.named_scope("layer"):
            return jnp.tanh(x @ p["w"] + p["b"]), x.sum()

    return lax.scan(layer, x, params)


@program({"w": shape(3, 8, 8)}, shape(2, 8))
def scan_grad(params, x):
    return jax.grad(lambda p: lax.scan(jax.checkpoint(lambda x, w: (jnp.sin(x @ w), None)), x, p["w"])[0].sum())(params)


@program(shape(16))
def while_dynamic(x):
    return lax.while_loop(lambda c: (c[0] < 100) & (c[1].sum() < 1e6), lambda c: (c[0] + 3, c[1] * 1.5), (jnp.int32(4), x))


@program(shape(16), shape(dtype="int32"))
def fori_nested(x, n):
    def inner(i, x):
        return lax.fori_loop(0, 5, lambda j, y: y + jnp.sin(y) * j, x)

    return lax.fori_loop(0, n, inner, lax.fori_loop(2, 12, inner, x))


@program(shape(8, 8), shape(dtype="bool"), shape(dtype="int32"))
def cond_switch(x, p, i):
    first = lax.cond(p, lambda x: x @ x, lambda x: x + 1.0, x)
    return lax.switch(i, [lambda y: y * 2, lambda y: y @ first, lambda y: jnp.exp(y)], first)


@program(shape(4, 32), shape(4, 32, dtype="int32"))
def sort_topk(x, keys):
    return (
        jnp.sort(x, axis=1),
        lax.sort((keys, x), dimension=1, num_keys=2),
        lax.top_k(x, 5),
        jnp.argsort(x, axis=0),
        lax.approx_max_k(x, 3),
    )


@program(shape(10, 16), shape(5, dtype="int32"), shape(5, 16))
def scatter_gather(table, ids, rows):
    return (
        table[ids],
        table.at[ids].add(rows),
        table.at[ids, 2:4].set(0.0),
        jnp.take_along_axis(table[:5], ids[:, None], axis=1),
        table.at[ids].max(rows),
    )


@program(shape(3, 10, 16), shape(3, 4, 1, dtype="int32"))
def gather_batched(table, ids):
    return jax.vmap(lambda t, i: t[i[:, 0]])(table, ids), jax.grad(lambda t: jax.vmap(lambda t, i: t[i[:, 0]])(t, ids).sum())(table)


@program(shape(12, 16), shape(dtype="int32"), shape(2, 16))
def slices(x, i, u):
    return (
        x[2:10:2, 1:],
        lax.dynamic_slice(x, (i, jnp.int32(0)), (3, 8)),
        lax.dynamic_update_slice(x, u, (i, jnp.int32(0))),
        jnp.pad(x, ((1, 2), (0, 3))),
        lax.pad(x, jnp.float32(0), ((-1, 2, 1), (0, 0, 0))),
        x[::-1],
        jnp.roll(x, 3, axis=0),
    )


@program(shape(4, 6), shape(4, 6))
def shape_changes(a, b):
    return (
        jnp.concatenate([a, b], axis=1),
        a.T.reshape(3, 8),
        jnp.broadcast_to(a[:, None], (4, 5, 6)),
        jnp.tile(a, (2, 1)),
        a.swapaxes(0, 1) + 1,
    )


@program(shape(64))
def elementwise_unary(x):
    functions = [
        jnp.abs, jnp.ceil, jnp.floor, jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.cbrt, jnp.sin, jnp.cos, jnp.tan,
        jnp.tanh, jnp.arcsin, jnp.arccos, jnp.arctan, jnp.sinh, jnp.cosh, jnp.arcsinh, jnp.arccosh, jnp.arctanh, jnp.sign, jnp.round,
        jax.nn.sigmoid, lax.erf, lax.erfc, lax.erf_inv, lax.lgamma, lax.digamma, jnp.isfinite, lambda x: lax.round(x, 0), jnp.negative,
        lambda x: lax.reduce_precision(x, 5, 10), lax.bessel_i1e, jax.nn.gelu, jax.nn.softplus,
    ]  # fmt: skip
    return [f(x) for f in functions]


@program(shape(64), shape(64), shape(64, dtype="int32"), shape(64, dtype="uint8"))
def elementwise_binary(x, y, i, u):
    return (
        x + y, x - y, x * y, x / y, x**y, jnp.maximum(x, y), jnp.minimum(x, y), jnp.arctan2(x, y), lax.rem(x, y), jnp.nextafter(x, y),
        i & 3, i | 1, i ^ 7, ~i, i << 2, i >> 1, lax.shift_right_logical(i, jnp.int32(1)), lax.population_count(u), lax.clz(i), x > y,
        x == y,
        jnp.where(x > y, x, y), jnp.clip(x, -1, 1), i // 3, i % 5, x.astype("bfloat16"), lax.bitcast_convert_type(x, jnp.int32), x**3,
    )  # fmt: skip


@program(shape(8, 16, dtype="complex64"), shape(8, 16))
def fft_complex(z, x):
    return jnp.fft.fft(z), jnp.fft.ifft2(z), jnp.fft.rfft(x), jnp.fft.irfft(z), z * z.conj(), jnp.abs(z), lax.complex(x, x).imag, z @ z.T


@program(shape(3, 8, 8), shape(3, 8, 2))
def linear_algebra(a, b):
    spd = a @ a.swapaxes(1, 2) + jnp.eye(8, dtype=a.dtype)
    chol = lax.linalg.cholesky(spd)
    return (
        chol,
        lax.linalg.triangular_solve(chol, b, left_side=True, lower=True),
        jnp.linalg.qr(a[0]),
        jnp.linalg.eigh(spd[0]),
        jnp.linalg.solve(a[0], b[0]),
    )


@program(shape(2, dtype="uint32"))
def random(key):
    k = jax.random.wrap_key_data(key)
    return jax.random.normal(k, (8, 8)), jax.random.uniform(k, (4,)), jax.random.permutation(k, 16), jax.random.bernoulli(k, 0.3, (9,))


@program(shape(4, dtype="uint32"))
def random_bits(key):
    return lax.rng_bit_generator(key, (8, 3), dtype="uint32"), lax.rng_uniform(0.0, 1.0, (5,))


@program(shape(32, 64, dtype="float8_e4m3fn"), shape(64, 16, dtype="float8_e5m2"), shape(32, 64, dtype="int8"), shape(64, 16, dtype="int4"))
def fp8_int4(a, b, c, d):
    first = lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
    second = lax.dot_general(c, d.astype(jnp.int8), (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    return first, second, d + jnp.int4(1), a.astype(jnp.float32), first.astype("float8_e4m3b11fnuz"), first.astype("float4_e2m1fn")


@program(shape(8, 4), shape(3, 4, 5), shape(3, dtype="int32"))
def ragged_dot(x, w, sizes):
    return lax.ragged_dot(x, w, sizes)


@program()
def literals():
    table = jnp.asarray([[1.5, -2.0, jnp.inf], [jnp.nan, 0.0, 1e-30]], jnp.float32)
    return (
        table,
        jnp.asarray([True, False, True]),
        jnp.arange(24, dtype=jnp.int8).reshape(2, 3, 4) * 2,
        jnp.asarray([1 + 2j, -3j]),
        jnp.asarray([1.5, 2.5], jnp.bfloat16),
        jnp.linspace(0, 1, 300),
        jnp.asarray([2**63, 5], jnp.uint64),
        jnp.full((3, 3), 7),
    )


@program({"w": shape(16, 16), "m": shape(16, 16)}, shape(4, 16), donate_argnums=(0,))
def donate(state, x):
    loss, grads = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(state["w"])
    m = 0.9 * state["m"] + grads
    return {"w": state["w"] - 0.1 * m, "m": m}, loss


@program(shape(8, 4))
def callback(x):
    y = jax.pure_callback(lambda v: v * 2, jax.ShapeDtypeStruct((8, 4), jnp.float32), x)
    return lax.optimization_barrier((y, x)), jax.ffi.ffi_call("roofline_kernel", jax.ShapeDtypeStruct((8,), jnp.float32))(
        x, scale=np.float32(2), name="k"
    )


@program(shape(16, 16), shape(16, 16))
def locations(a, b):
    @jax.jit
    def helper(a):
        return jnp.sin(a) @ a

    with jax.named_scope("outer/inner"):
        return helper(a) + helper(b)


@program(shape(8, 8), shape(8, 8))
def custom_gradients(a, b):
    @jax.custom_vjp
    def f(a, b):
        return jnp.dot(a, b)

    f.defvjp(lambda a, b: (f(a, b), (a, b)), lambda saved, g: (g @ saved[1].T, saved[0].T @ g))
    return jax.value_and_grad(lambda a, b: jax.remat(f)(a, b).sum(), argnums=(0, 1))(a, b)


@program(shape(0, 4), shape())
def empty_and_scalar(a, s):
    return a.sum() + s, jnp.zeros((0,)), jnp.int64(3), a * s


@program(shape(4, 4, dtype="float16"), shape(4, 4, dtype="float64"), shape(4, 4, dtype="int16"), shape(4, 4, dtype="bool"))
def other_dtypes(h, d, s, p):
    return h @ h, d @ d, s * s, p & ~p, h.astype("float64") + d, p.astype("uint16"), jnp.left_shift(s, 1).astype("uint2")


@program(shape(64, 32), shape(8, 4, dtype="int64"), shape(2, 8, 8, 3), shape(3, 3, 3, 8))
def vision_and_text(table, tokens, image, kernel):
    hidden = table[tokens].mean(axis=1)
    features = jax.nn.relu(lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return jax.nn.softmax(hidden @ table.T), jax.nn.log_softmax(features.mean(axis=(1, 2)))


@program(shape(2, 16, 32), shape(4, 32, 64), shape(4, 64, 32), shape(32, 4))
def moe(x, up, down, router):
    weights, chosen = lax.top_k(jax.nn.softmax(x @ router), 2)
    gate = (jax.nn.one_hot(chosen, 4) * weights[..., None]).sum(2)
    return jnp.einsum("bsef,efd,bse->bsd", jax.nn.silu(jnp.einsum("bsd,edf->bsef", x, up)), down, gate)


@program(shape(2, 1, 32), shape(2, 64, 32), shape(32, 32), shape(dtype="int32"))
def decode_loop(x, cache, w, length):
    def step(i, carry):
        x, cache = carry
        cache = lax.dynamic_update_slice(cache, x, (jnp.int32(0), (length + i).astype(jnp.int32), jnp.int32(0)))
        return jax.nn.softmax(x @ cache.swapaxes(1, 2)) @ cache @ w, cache

    return lax.fori_loop(0, 4, step, (x, cache))


def mesh(*shape: int) -> Mesh:
    return jax.make_mesh(shape, ("x", "y")[: len(shape)], axis_types=(jax.sharding.AxisType.Auto,) * len(shape))


@program(shape(16, 32), shape(32, 64), shape(64, 32))
def pjit_mlp(x, up, down):
    m = mesh(2, 4)

    def constrain(v, *spec):
        return lax.with_sharding_constraint(v, NamedSharding(m, P(*spec)))

    hidden = jax.nn.relu(constrain(x, "x", None) @ constrain(up, None, "y"))
    return constrain(hidden @ constrain(down, "y", None), "x", None)


@program(shape(16, 32), shape(8, 16, dtype="bfloat16"))
def shard_map_collectives(x, y):
    @partial(jax.shard_map, mesh=mesh(2, 4), in_specs=(P("x", "y"), P("x", None)), out_specs=P(), check_vma=False)
    def run(x, y):
        gathered = lax.all_gather(x, "y", axis=1, tiled=True)
        scattered = lax.psum_scatter(y, "x", scatter_dimension=0, tiled=True)
        moved = lax.ppermute(x, "y", [(0, 1), (1, 2), (2, 3), (3, 0)])
        swapped = lax.all_to_all(x, "y", split_axis=0, concat_axis=1, tiled=True)
        return lax.psum(gathered, ("x", "y")).sum() + lax.pmax(scattered, "x").sum() + moved.sum() + swapped.sum() + lax.axis_index("y")

    return run(x, y)


@program(shape(32, 32), shape(32, 32))
def pipeline_collectives(x, w):
    @partial(jax.shard_map, mesh=mesh(8), in_specs=(P("x"), P(None)), out_specs=P("x"), check_vma=False)
    def run(x, w):
        def step(i, x):
            return lax.ppermute(x @ w, "x", [(d, (d + 1) % 8) for d in range(8)])

        return lax.fori_loop(0, 7, step, x)

    return run(x, w)


def symbolic_shapes() -> str:
    from jax import export

    sizes = export.symbolic_args_specs((shape(1, 4), shape(1, 3)), ("b, 4", "b, n"))
    return str(export.export(jax.jit(lambda x, y: (x * 2).sum(axis=1), keep_unused=True))(*sizes).mlir_module())


def forms(name: str) -> dict[str, bytes]:
    """One program in every form it can take."""
    if name == "symbolic_shapes":
        return {"stablehlo": symbolic_shapes().encode()}
    function, args, options = PROGRAMS[name]
    lowered = jax.jit(function, **options).lower(*args)
    found = {
        "before.hlo": lowered.as_text(dialect="hlo").encode(),
        "stablehlo": lowered.as_text().encode(),
        "located.stablehlo": lowered.as_text(debug_info=True).encode(),
    }
    if name != "callback":
        executable = lowered.compile().runtime_executable()
        module = executable.hlo_modules()[0]
        found |= {"hlo": module.to_string().encode(), "pb": module.as_serialized_hlo_module_proto()}
    else:
        module = lowered.compiler_ir(dialect="hlo").as_hlo_module()
        found |= {"hlo": module.to_string().encode(), "pb": module.as_serialized_hlo_module_proto()}
    return found


def main() -> None:
    folder, keep = Path(sys.argv[1]), "--keep" in sys.argv
    folder.mkdir(parents=True, exist_ok=True)
    for name in [*PROGRAMS, "symbolic_shapes"]:
        if keep and name not in KEEP:
            continue
        for form, data in forms(name).items():
            # Where the script lies is of no interest; the length stays, as a protobuf counts its bytes.
            here = str(Path(__file__).resolve().parent).encode()
            data = data.replace(here, b"/src".ljust(len(here), b"/"))
            if not keep:
                (folder / f"{name}.{form}").write_bytes(data)
            elif form in KEEP[name]:
                (folder / f"{name}.{form}.gz").write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main()
