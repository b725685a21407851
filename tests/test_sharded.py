"""Sharded JAX functions, compiled here on 8 CPU devices or as written down: one device's formats, FLOP, bytes and link bytes by hand.

Each function is counted three ways: compiled for the CPU and taken back (`roofline.jax.analyze`), from its StableHLO and from its HLO
before optimisation, both partitioned by this project.
"""

import json
import os
import subprocess
import sys
from functools import cache

import pytest

pytest.importorskip("jax")

PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import roofline.jax as rj
from roofline.hlo.price.collectives import network_of
from roofline.hlo.price.collectives import COLLECTIVES
from roofline.hlo.price.program import executed
from roofline.hlo.read import parse
from roofline.machines import load
from roofline.sources.programs import prepared

chip = load("h100-sxm")
grid = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
line = Mesh(np.array(jax.devices()), ("d",))

def spec(shape, *axes, mesh=line, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*axes)))

def mlp(x, up, down):
    return jax.nn.relu(x @ up) @ down

def loss(up, down, x):
    return mlp(x, up, down).astype(jnp.float32).mean()

def attention(x, wq, wk, wv, wo):
    q, k, v = (jnp.einsum("bsd,dhk->bshk", x, w) for w in (wq, wk, wv))
    p = jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q, k).astype(jnp.float32), -1).astype(x.dtype)
    return jnp.einsum("bqhk,hkd->bqd", jnp.einsum("bhqs,bshk->bqhk", p, v), wo)

def mapped(inner, out):
    return lambda x: jax.shard_map(inner, mesh=line, in_specs=P("d"), out_specs=out, check_vma=False)(x)

heads = [spec((512, 8, 64), None, "y", None, mesh=grid)] * 3
weights = spec((512, 2048), "d"), spec((2048, 512), "d")
split = NamedSharding(line, P("d"))
cases = {
    "data-parallel gradient": (jax.grad(loss, (0, 1)), {}, (spec((512, 2048)), spec((2048, 512)), spec((1024, 512), "d"))),
    "tensor-parallel MLP": (
        mlp, {}, (spec((256, 512), "x", mesh=grid), spec((512, 2048), None, "y", mesh=grid), spec((2048, 512), "y", mesh=grid))
    ),
    "sequence-parallel MLP": (
        mlp, {"out_shardings": split}, (spec((1024, 512), "d"), spec((512, 2048), None, "d"), spec((2048, 512), "d"))
    ),
    "fully sharded MLP": (mlp, {}, (spec((1024, 512), "d"), *weights)),
    "attention by heads": (attention, {}, (spec((4, 256, 512), "x", mesh=grid), *heads, spec((8, 64, 512), "y", mesh=grid))),
    "all_gather": (mapped(lambda x: lax.all_gather(x, "d", tiled=True), P()), {}, (spec((1024, 512), "d"),)),
    "reduce_scatter": (mapped(lambda x: lax.psum_scatter(x, "d", tiled=True), P("d")), {}, (spec((1024, 512), "d"),)),
    **{
        f"psum {name}": (mapped(lambda x: lax.psum(x, "d"), P()), {}, (spec((1024, 512), "d", dtype=dtype),))
        for name, dtype in (("bf16", jnp.bfloat16), ("fp16", jnp.float16), ("fp8", jnp.float8_e4m3fn))
    },
}

def counted(module):
    ran = executed(module, "gpu", link=network_of(chip))
    work, sent = {}, {}
    for one in ran:
        for resource, amount in one.op.cost.amounts:
            if resource.unit in ("matrix", "hbm"):
                work[resource.name] = work.get(resource.name, 0) + float(amount)
        instruction = one.site.instruction
        if instruction.opcode in COLLECTIVES:
            name = f"{instruction.opcode} {instruction.replica_groups.size}"
            sent[name] = sent.get(name, 0) + one.runs * sum(operand.shape.bytes for operand in one.site.operands)
    return work, sent

found = {}
for name, (function, options, args) in cases.items():
    jitted = jax.jit(function, **options)
    lowered = jitted.lower(*args)
    compiled = rj.lower(jitted, chip)(*args)
    stable, plain = (prepared(parse(lowered.as_text(dialect=form).encode(), name), chip) for form in ("stablehlo", "hlo"))
    found[name] = {
        "compiled": (*counted(compiled.module), compiled.notes),
        "stablehlo": (*counted(stable[0]), stable[2]),
        "hlo": (*counted(plain[0]), plain[2]),
    }
print(json.dumps(found))
"""
WAYS = ("compiled", "stablehlo", "hlo")


Counted = dict[str, dict[str, tuple[dict[str, float], dict[str, int], list[str]]]]


@cache
def counted() -> Counted:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: Counted = json.loads(run.stdout)
    return found


def product(m: int, k: int, n: int) -> tuple[int, int]:
    """FLOP, and bytes of bf16."""
    return 2 * m * k * n, 2 * (m * k + k * n + m * n)


UP, DOWN = product(128, 512, 2048), product(128, 2048, 512)  # 128 of 1024 rows on each of 8 devices
SMALL = product(128, 512, 512)  # 128 of 256 rows, 512 of 2048 columns on 2 x 4 devices
PARTS = 128 * 512  # elements of a device's rows
HEADS = 3 * product(512, 512, 128)[0] + 2 * 2 * (2 * 2 * 256 * 64 * 256) + product(512, 128, 512)[0]
# What every device does: FLOP of bf16, bytes of main memory where they are plain to see, bytes that enter collectives over so many devices.
EXPECTED: dict[str, tuple[int, int | None, dict[str, int]]] = {
    # Forward, two products for the weights, one for what is between them; both gradients whole on every device.
    "data-parallel gradient": (4 * UP[0], None, {"all-reduce 8": 2 * 2 * 512 * 2048}),
    "tensor-parallel MLP": (2 * SMALL[0], 2 * SMALL[1], {"all-reduce 4": 2 * PARTS}),
    # The rows are gathered, and the partial sums of all 1024 scattered again.
    "sequence-parallel MLP": (
        2 * product(1024, 512, 256)[0],
        2 * product(1024, 512, 256)[1],
        {"all-gather 8": 2 * PARTS, "reduce-scatter 8": 2 * 1024 * 512},
    ),
    "fully sharded MLP": (UP[0] + DOWN[0], UP[1] + DOWN[1], {"all-gather 8": 2 * 2 * 64 * 2048}),
    "attention by heads": (HEADS, None, {"all-reduce 4": 2 * 2 * 256 * 512}),
    "all_gather": (0, 0, {"all-gather 8": 2 * PARTS}),
    "reduce_scatter": (0, 0, {"reduce-scatter 8": 2 * PARTS}),
    "psum bf16": (0, 0, {"all-reduce 8": 2 * PARTS}),
    "psum fp16": (0, 0, {"all-reduce 8": 2 * PARTS}),
    "psum fp8": (0, 0, {"all-reduce 8": PARTS}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EXPECTED)
def test_one_device_of_a_sharded_function(name: str, way: str) -> None:
    flops, size, sent = EXPECTED[name]
    work, found, notes = counted()[name][way]
    assert {kind for kind in work if kind != "hbm"} == ({"matrix/bf16"} if flops else set())
    if flops:
        assert work["matrix/bf16"] == flops
    if size is not None:
        assert work.get("hbm", 0) == pytest.approx(size, rel=0.01)
    assert found == sent
    assert any("one of 8 devices" in note for note in notes)


def test_the_three_ways_move_as_many_bytes() -> None:
    for name in EXPECTED:
        sizes = [counted()[name][way][0].get("hbm", 0) for way in WAYS]
        assert sizes == pytest.approx([sizes[0]] * 3, rel=0.01), name


def test_an_all_reduce_of_which_each_device_keeps_its_part_is_said_to_be_a_reduce_scatter() -> None:
    said = [note for note in counted()["sequence-parallel MLP"]["compiled"][2] if "reduce-scatter" in note]
    assert said == [
        "1 all-reduce whose result is then split between devices: counted as reduce-scatter, as XLA compiles it for GPUs and TPUs"
    ]
