"""The programs of this folder: Pallas kernels compiled for TPUs, without a TPU. python make.py FOLDER [NAME…]

It needs jax[tpu] 0.10.2 (libtpu 0.0.42), and without a TPU TPU_SKIP_MDS_QUERY=1 JAX_PLATFORMS=cpu ALLOW_MULTIPLE_LIBTPU_LOAD=1.
Folders of the computer that compiled them are replaced by paths of the same length, so that the files stay valid.
"""

import base64
import gzip
import re
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.pallas.mosaic import tpu_info
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import flash_attention as flash
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.paged_attention.paged_attention_kernel import paged_attention
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

BF16, F32, I32 = jnp.bfloat16, jnp.float32, jnp.int32
PROGRAMS = {}


@cache
def devices(chip):
    return topologies.get_topology_desc(platform="tpu", topology_name=chip).devices


def mesh_of(name):
    sizes, axes = SHARDED[name]
    return Mesh(np.array(devices("v5e:2x2")).reshape(sizes), axes)


def array(*shape, dtype=BF16):
    return shape, dtype


def program(*arrays):
    def register(function):
        PROGRAMS[function.__name__] = (function, arrays)
        return function

    return register


def product(x, y, *, blocks, accumulator=F32, out=BF16, precision=None):
    """A product whose grid ends with its inner dimension."""
    (m, k), n, (bm, bk, bn) = x.shape, y.shape[1], blocks

    def kernel(a, b, o, acc):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += jnp.dot(a[...], b[...], preferred_element_type=accumulator, precision=precision)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = acc[...].astype(o.dtype)

    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)), pl.BlockSpec((bk, bn), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), out),
        scratch_shapes=[pltpu.VMEM((bm, bn), accumulator)],
    )(x, y)


@program(array(1024, 2048), array(2048, 512))
def tiled(x, y):
    return product(x, y, blocks=(256, 512, 256))


@program(array(9000, 4096), array(4096, 4000))
def ragged(x, y):
    return product(x, y, blocks=(512, 1024, 512))


@program(array(1024, 2048, dtype=F32), array(2048, 512, dtype=F32))
def highest(x, y):
    return product(x, y, blocks=(256, 512, 256), out=F32, precision=lax.Precision.HIGHEST)


@program(array(1024, 2048, dtype=jnp.int8), array(2048, 512, dtype=jnp.int8))
def int8(x, y):
    return product(x, y, blocks=(256, 512, 256), accumulator=I32, out=I32)


@program(array(1024, 2048), array(2048, 512))
def copies(x, y):
    """A loop with double buffering by hand."""

    def kernel(x_hbm, y_hbm, o, x_buffer, y_buffer, semaphores):
        row, steps = pl.program_id(0), x_hbm.shape[1] // 256

        def started(step, slot):
            source = x_hbm.at[pl.ds(row * 256, 256), pl.ds(step * 256, 256)]
            first = pltpu.make_async_copy(source, x_buffer.at[slot], semaphores.at[slot, 0])
            return first, pltpu.make_async_copy(y_hbm.at[pl.ds(step * 256, 256), :], y_buffer.at[slot], semaphores.at[slot, 1])

        for copy in started(0, 0):
            copy.start()
        o[...] = jnp.zeros_like(o)

        def body(step, carry):
            slot = lax.rem(step, 2)

            @pl.when(step + 1 < steps)
            def _():
                for copy in started(step + 1, 1 - slot):
                    copy.start()

            for copy in started(step, slot):
                copy.wait()
            o[...] += jnp.dot(x_buffer[slot], y_buffer[slot], preferred_element_type=F32)
            return carry

        lax.fori_loop(0, steps, body, 0)

    return pl.pallas_call(
        kernel,
        grid=(4,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
        out_specs=pl.BlockSpec((256, 512), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((1024, 512), F32),
        scratch_shapes=[pltpu.VMEM((2, 256, 256), BF16), pltpu.VMEM((2, 256, 512), BF16), pltpu.SemaphoreType.DMA((2, 2))],
    )(x, y)


@program(array(256, 512, dtype=F32))
def lanes(x):
    """A transposition, a roll along lanes and one along sublanes."""

    def kernel(x, turned, along, across):
        turned[...] = x[...].T
        along[...] = pltpu.roll(x[...], 1, 1)
        across[...] = pltpu.roll(x[...], 1, 0)

    return pl.pallas_call(kernel, out_shape=[jax.ShapeDtypeStruct(shape, F32) for shape in ((512, 256), (256, 512), (256, 512))])(x)


@program(array(1024, 1024), array(1024, 512))
def triangle(x, y):
    """A loop as long as the step of the grid."""

    def kernel(x, y, o):
        o[...] = jnp.zeros_like(o)

        def body(step, carry):
            here = pl.ds(step * 128, 128)
            o[...] += jnp.dot(x[:, here], y[here, :], preferred_element_type=F32)
            return carry

        lax.fori_loop(0, pl.program_id(0) + 1, body, 0)

    return pl.pallas_call(
        kernel,
        grid=(8,),
        in_specs=[pl.BlockSpec((128, 1024), lambda i: (i, 0)), pl.BlockSpec((1024, 512), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((128, 512), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((1024, 512), F32),
    )(x, y)


@program(array(512, 512, dtype=F32))
def counted(x):
    def kernel(x, o):
        _, o[...] = lax.while_loop(lambda state: state[0] < 5, lambda state: (state[0] + 1, jnp.exp(state[1]) * 0.5), (0, x[...]))

    block = pl.BlockSpec((128, 512), lambda i: (i, 0))
    return pl.pallas_call(kernel, grid=(4,), in_specs=[block], out_specs=block, out_shape=jax.ShapeDtypeStruct(x.shape, F32))(x)


@program(array(1, dtype=I32), array(1024, 512, dtype=F32))
def either(number, x):
    """One of two branches, by data: one exponential, or one and two additions and multiplications."""

    def kernel(number, x, o):
        o[...] = lax.cond(number[0] > 3, jnp.exp, lambda v: jnp.exp(v * 2) + 1, x[...])

    block = pl.BlockSpec((128, 512), lambda i, number: (i, 0))
    grid = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(8,), in_specs=[block], out_specs=block)
    return pl.pallas_call(kernel, grid_spec=grid, out_shape=jax.ShapeDtypeStruct(x.shape, F32))(number, x)


LENGTHS = [array(8, dtype=I32), array(8, 2048, 128)]


def rows_of(sum_rows):
    """For each sequence the sum of its rows, 256 at a time, as far as its length says."""

    def kernel(lengths, x, o):
        steps = pl.cdiv(lengths[pl.program_id(0)], 256)
        o[...] = sum_rows(steps, lambda step: x[pl.ds(step * 256, 256), :].astype(F32))

    def call(lengths, x):
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(8,),
            in_specs=[pl.BlockSpec((None, 2048, 128), lambda i, lengths: (i, 0, 0))],
            out_specs=pl.BlockSpec((None, 256, 128), lambda i, lengths: (i, 0, 0)),
        )
        return pl.pallas_call(kernel, grid_spec=grid, out_shape=jax.ShapeDtypeStruct((8, 256, 128), F32))(lengths, x)

    return call


@program(*LENGTHS)
def lengths_for(lengths, x):
    def sum_rows(steps, rows):
        return lax.fori_loop(0, steps, lambda step, total: total + rows(step), jnp.zeros((256, 128), F32))

    return rows_of(sum_rows)(lengths, x)


@program(*LENGTHS)
def lengths_while(lengths, x):
    def sum_rows(steps, rows):
        return lax.while_loop(
            lambda state: state[0] < steps, lambda state: (state[0] + 1, state[1] + rows(state[0])), (0, jnp.zeros((256, 128), F32))
        )[1]

    return rows_of(sum_rows)(lengths, x)


@program(array(1, dtype=I32), array(4096, 512, dtype=F32))
def lengths_grid(length, x):
    def kernel(x, o):
        o[...] = x[...] * 2

    block = pl.BlockSpec((256, 512), lambda i: (i, 0))
    return pl.pallas_call(kernel, grid=(length[0],), in_specs=[block], out_specs=block, out_shape=jax.ShapeDtypeStruct(x.shape, F32))(x)


@program(array(1, dtype=I32), array(4096, 512, dtype=F32))
def lengths_copies(length, x):
    """As many parts of an array as a length says, copied by hand."""

    def kernel(length, x, o, part, semaphore):
        o[...] = jnp.zeros_like(o)

        def body(step, carry):
            copy = pltpu.make_async_copy(x.at[pl.ds(step * 256, 256), :], part, semaphore)
            copy.start()
            copy.wait()
            o[...] += part[...]
            return carry

        lax.fori_loop(0, length[0], body, 0)

    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(1,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((256, 512), lambda i, length: (0, 0)),
        scratch_shapes=[pltpu.VMEM((256, 512), F32), pltpu.SemaphoreType.DMA],
    )
    return pl.pallas_call(kernel, grid_spec=grid, out_shape=jax.ShapeDtypeStruct((256, 512), F32))(length, x)


@program(array(512, 512, dtype=F32))
def logsumexp(x):
    """The sum of exponentials by rows; JAX tests its result for numbers that are not finite."""

    def kernel(x, o):
        o[...] = jnp.broadcast_to(jax.nn.logsumexp(x[...], -1, keepdims=True), o.shape)

    block = pl.BlockSpec((128, 512), lambda i: (i, 0))
    return pl.pallas_call(kernel, grid=(4,), in_specs=[block], out_specs=block, out_shape=jax.ShapeDtypeStruct(x.shape, F32))(x)


@program(array(1024, 2048), array(2048, 512))
def pipeline(x, y):
    """A pipeline inside of a kernel, whose copies JAX writes as a loop with indices that it carries."""

    def kernel(x_hbm, y_hbm, o_hbm):
        def inner(x, y, o):
            @pl.when(pl.program_id(2) == 0)
            def _():
                o[...] = jnp.zeros_like(o)

            o[...] += jnp.dot(x[...], y[...], preferred_element_type=F32)

        pltpu.emit_pipeline(
            inner,
            grid=(4, 2, 4),
            in_specs=[pl.BlockSpec((256, 512), lambda i, j, k: (i, k)), pl.BlockSpec((512, 256), lambda i, j, k: (k, j))],
            out_specs=[pl.BlockSpec((256, 256), lambda i, j, k: (i, j))],
        )(x_hbm, y_hbm, o_hbm)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(kernel, in_specs=[anywhere] * 2, out_specs=anywhere, out_shape=jax.ShapeDtypeStruct((1024, 512), F32))(x, y)


def gradient(attention):
    return jax.grad(lambda q, k, v: attention(q, k, v).astype(F32).sum(), (0, 1, 2))


def flash_attention(*, causal):
    names = (
        "block_q block_k_major block_k block_q_major_dkv block_k_major_dkv block_k_dkv block_q_dkv block_k_major_dq block_k_dq block_q_dq"
    )
    sizes = flash.BlockSizes(block_b=1, **dict.fromkeys(names.split(), 256))
    return lambda q, k, v: flash.flash_attention(q, k, v, causal=causal, sm_scale=0.09, block_sizes=sizes)


HEADS = [array(1, 2, 2048, 128)] * 3


@program(*HEADS)
def flash_full(q, k, v):
    return flash_attention(causal=False)(q, k, v)


@program(*HEADS)
def flash_causal(q, k, v):
    return gradient(flash_attention(causal=True))(q, k, v)


def splash_attention(mask, *, fused):
    kinds = {"use_fused_bwd_kernel": True} if fused else {"block_q_dq": 256, "block_kv_dq": 256}
    names = "block_q block_kv block_kv_compute block_q_dkv block_kv_dkv block_kv_dkv_compute"
    sizes = splash.BlockSizes(**dict.fromkeys(names.split(), 256), **kinds)
    return jax.vmap(splash.make_splash_mha(masks.MultiHeadMask([mask] * 2), block_sizes=sizes, head_shards=1, q_seq_shards=1))


@program(*HEADS)
def splash_causal(q, k, v):
    return gradient(splash_attention(masks.CausalMask((2048, 2048)), fused=False))(q, k, v)


@program(*HEADS)
def splash_fused(q, k, v):
    return gradient(splash_attention(masks.CausalMask((2048, 2048)), fused=True))(q, k, v)


@program(*HEADS)
def splash_local(q, k, v):
    return splash_attention(masks.LocalMask((2048, 2048), (512, 0), 0), fused=False)(q, k, v)


@program(*[array(1, 2, 8192, 128)] * 3)
def splash_long(q, k, v):
    """A table of 32 x 32 blocks."""
    return splash_attention(masks.CausalMask((8192, 8192)), fused=False)(q, k, v)


@program(*[array(2, 2048, 128, dtype=BF16)] * 3)
def splash_scan(q, k, v):
    """Layers in a loop, which carries the tables of blocks."""
    attention = splash_attention(masks.CausalMask((2048, 2048)), fused=False)
    return lax.scan(lambda x, _: (attention(x[None], k[None], v[None])[0], None), q, length=3)[0]


@program(*[array(2, 4, 2048, 128)] * 3)
def splash_sharded(q, k, v):
    """Two of four heads on a device: each takes its part of a table that is the same for all heads."""
    mesh = mesh_of("splash_sharded")
    sizes = splash.BlockSizes(block_q=256, block_kv=256)
    kernel = splash.make_splash_mha(
        masks.MultiHeadMask([masks.CausalMask((2048, 2048))] * 4), block_sizes=sizes, head_shards=2, q_seq_shards=1
    )
    tables, arrays = kernel.manual_sharding_spec(NamedSharding(mesh, P("heads", None))), P("data", "heads")
    attention = jax.shard_map(
        lambda kernel, q, k, v: jax.vmap(kernel)(q, k, v), mesh=mesh, in_specs=(tables, *[arrays] * 3), out_specs=arrays, check_vma=False
    )
    return attention(kernel, q, k, v)


@program(array(4096, 1024))
def neighbours(x):
    """Each device sends its part to the next one."""

    def kernel(source, target, sent, received):
        following = lax.rem(lax.axis_index("x") + 1, 4)
        copy = pltpu.make_async_remote_copy(source, target, sent, received, (following,), device_id_type=pl.DeviceIdType.MESH)
        copy.start()
        copy.wait()

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    scratch = [pltpu.SemaphoreType.DMA] * 2
    part = jax.ShapeDtypeStruct((1024, 1024), BF16)
    sends = pl.pallas_call(kernel, in_specs=[anywhere], out_specs=anywhere, out_shape=part, scratch_shapes=scratch)
    mesh = mesh_of("neighbours")
    return jax.shard_map(sends, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)(x)


SHARDED = {"splash_sharded": ((2, 2), ("data", "heads")), "neighbours": ((4,), ("x",))}
PAGES = [array(8, 16, 128), array(8, 256, 32, 128), array(8, 256, 32, 128), array(8, dtype=I32), array(8, 32, dtype=I32)]


@program(*PAGES)
def paged_grid(q, k, v, lengths, pages):
    return paged_attention(q, k, v, lengths, pages, pages_per_compute_block=4, inline_seq_dim=False)


@program(*PAGES)
def paged_loop(q, k, v, lengths, pages):
    return paged_attention(q, k, v, lengths, pages, pages_per_compute_block=4, inline_seq_dim=True)


@program(array(64, 8, 128), array(256, 16, 4, 128), array(4, dtype=I32), array(4, 30, dtype=I32), array(5, dtype=I32), array(1, dtype=I32))
def paged_ragged(q, pages, lengths, tables, starts, count):
    return ragged_paged_attention(q, pages, lengths, tables, starts, count, num_kv_pages_per_block=8, num_queries_per_block=32)


@program(array(2048, 512), array(8, 512, 1024), array(8, dtype=I32))
def experts(x, w, sizes):
    """No Pallas: the compiler writes two kernels as text, one for the tables of tiles and groups, and a product whose grid they steer."""
    return lax.ragged_dot(x, w, sizes)


@program(array(2048, 512), array(8, 512, 1024), array(8, dtype=I32))
def groups(x, w, sizes):
    return gmm(x, w, sizes, preferred_element_type=F32, tiling=(256, 256, 256))


@program(array(2, 8, 2048, 2048), array(2, 8, 2048, 128))
def online_softmax(scores, v):
    """No Pallas: the compiler replaces it by a kernel of its own, whose code is text."""
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores * 0.09, -1), v)


FOLDERS = re.compile(rb"/[\w./\-]*?/(?=(?:site-packages/)?jax/|make\.py)")


def neutral(data):
    """Paths without folders, of the same length."""
    return FOLDERS.sub(lambda match: b"./" * (len(match[0]) // 2) + b"/" * (len(match[0]) % 2), data)


def stripped(module):
    """A serialized module whose paths, also those in the kernels' code, say nothing of the computer."""
    encoded = re.compile(rb'(?<="body":")[A-Za-z0-9+/=]+')
    return neutral(encoded.sub(lambda match: base64.b64encode(neutral(base64.b64decode(match[0]))), module))


def main(folder, *names):
    tpu_info.get_device_kind, tpu_info.get_num_device_cores = (lambda: "TPU v5 lite"), (lambda: 1)
    for name in names or PROGRAMS:
        function, arrays = PROGRAMS[name]
        chip = {"online_softmax": "v6e:2x2", "experts": "v5p:2x2x1"}.get(name, "v5e:2x2")
        placed = SingleDeviceSharding(devices(chip)[0])
        if name in SHARDED:
            mesh = mesh_of(name)
            placed = NamedSharding(mesh, P(*mesh.axis_names))
        arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=placed) for shape, dtype in arrays]
        compiled = jax.jit(function).lower(*arguments).compile()
        module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
        Path(folder, f"{name}.pb.gz").write_bytes(gzip.compress(stripped(module), 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
