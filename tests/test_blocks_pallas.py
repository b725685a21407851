"""Bundles of Pallas kernels: what they execute, by loops and predicates, and how long the matrix units are kept."""

import json
from pathlib import Path

import pytest

import roofline as rl
import tpu_compiler
from roofline.blocks.pallas.bundles import read_bundles
from roofline.errors import SourceError
from roofline.jax.tpu import compiling
from roofline.jax.tpu.blocks import bundles_of, reason

# One bundle before a loop of 10 trips, which has four: a product on each unit, a branch that skips one, and the exit test.
TEXT = """
     0   :  { %s0 = smov 1 }
   0x1 LB: > { %v1 = vmatmul.bf16.gmra.mxu0 %v0  ;;  %v2 = vmatmul.bf16.gmra.mxu1 %v0 }
   0x2   : > { %9 = sbr.rel (%p8) target = $region28 }
   0x3   : > { %v3 = vadd.f32 %v1, %v2  ;;  %v4 = vld [vmem:[#allocation2_spill] sm:$0xff] }
   0x4 PF: > { %p3 = scmp.ge.s32.totalorder %s1, 10 /* loop exit test */ }
   0x5   : > { %20 = sbr.rel (!%p3) target = $region94 }
"""


def test_bundles_of_a_loop_count_its_trips() -> None:
    found = read_bundles(TEXT, "v5e")
    assert (found.written, found.executed, found.spilled) == (6, 1 + 5 * 10, 1)
    assert found.always == 1 + 4 * 10  # one bundle of five is behind a predicate
    # A product of 16 rows keeps its unit 16 cycles on v5e: 160 in all, longer than the bundles; 8 on v6e.
    assert (found.matrix, found.cycles) == (160, 160)
    assert read_bundles(TEXT, "v6e").cycles == max(51, 80)
    assert (found.slots["matrix"], found.slots["load"], found.slots["vector"]) == (20, 10, 10)


def test_what_conditions_skip_takes_nothing() -> None:
    found = read_bundles(TEXT, "v5e").of_active(0.5)
    # Half of the ten bundles behind a condition, and half of the products.
    assert (found.executed, found.always, found.matrix) == (46, 41, 80)


def test_generations_without_a_known_matrix_unit_are_refused() -> None:
    with pytest.raises(SourceError, match="bundles of v9"):
        read_bundles(TEXT, "v9")


def test_files_of_a_dump_are_read_by_instruction(tmp_path: Path) -> None:
    for name in ("1-matmul.1-01-final_bundles.txt", "1-TLP-01-final_bundles.txt", "1-matmul.1-00-schedule-analysis_final_bundles.txt"):
        (tmp_path / name).write_text(TEXT)
    assert list(bundles_of(tmp_path, "v6e")) == ["matmul.1"]


def test_a_refusal_says_what_is_missing() -> None:
    text = (
        "RESOURCE_EXHAUSTED: E1001: %a = custom-call(). Scoped allocation with size 33.83M and limit 32.00M exceeded it by 1.83M. It (see)"
    )
    assert reason(text) == "out of VMEM: Scoped allocation with size 33.83M and limit 32.00M exceeded it by 1.83M."
    assert reason("something else") == "something else"


@pytest.mark.tpu
def test_blocks_of_a_product_are_ordered_by_their_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiling.PYTHON_VARIABLE, str(tpu_compiler.PYTHON))
    pytest.importorskip("jax")
    import jax
    import jax.numpy as jnp

    from pallas_products import product

    shape = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    found = rl.blocks(product, (shape, shape), chip="v6e", space={"block": (256, 512, 2048)})
    assert found.best.config["block"] == 512
    assert json.loads(rl.to_json(found))["configs"][0]["limit"] in ("bundles", "matrix", "dma")
    # Two buffers of each window of 512 x 512, in bf16 and fp32. It waits for operands that it reads again: not all of the roofline.
    assert found.best.memory == 2 * 512 * 512 * (2 + 2 + 4)
    assert found.best.bytes["hbm"] > 2048 * 2048 * (2 + 2 + 4)
    assert found.best.share == pytest.approx(2048 * 2048 * (2 + 2 + 4) / 1638e9 / found.best.time_s, rel=0.01)


@pytest.mark.jax
def test_the_ir_of_a_kernel_for_gpus_names_lines_of_its_source() -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("jaxlib.triton.dialect")
    import jax.numpy as jnp
    from jax.experimental.pallas import triton as pallas_triton

    from pallas_products import whole_product
    from roofline.blocks.triton.addresses import evaluate, whole
    from roofline.blocks.triton.ir import read_ir
    from roofline.blocks.triton.traffic import tile_bytes
    from roofline.jax.gpu_blocks import kernels_of

    shape = jax.ShapeDtypeStruct((256, 64), jnp.float32)
    settings = pallas_triton.CompilerParams(num_warps=8, num_stages=2)
    program = jax.jit(lambda a, b: whole_product(a, b, 64, settings)).trace(shape, shape).lower(lowering_platforms=("cuda",))
    (kernel,) = kernels_of(program)
    assert [kernel[name] for name in ("grid_x", "grid_y", "grid_z", "num_warps", "num_stages")] == [4, 4, 1, 8, 2]
    code = read_ir(kernel["ir"])
    product = next(operation for operation in code.everything() if operation.name == "tt.dot")
    assert Path(product.file).name == "pallas_products.py"
    # Two blocks come in and one goes out; JAX also reads what it replaces, which the compiler leaves out.
    assert {tile_bytes(access) for access in evaluate(code, {}, (4, 4, 1), [0], whole).accesses} == {64 * 64 * 4}


def test_a_gpu_takes_one_pallas_kernel() -> None:
    pytest.importorskip("jax")
    with pytest.raises(rl.RooflineError, match="calls 0 Pallas kernels"):
        rl.blocks(lambda: 1.0, (), chip="h200", space=[{}])
