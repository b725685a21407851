"""The MLIR bytecode beside this script, made from the StableHLO texts in ``../hlo`` by StableHLO's own writer.

    python make.py

Needs jax (0.10.2 made these). ``NAME.mlirbc.gz`` is plain bytecode, ``NAME.VERSION.mlirbc.gz`` the portable artifact for that version of
StableHLO, ``exported.jax`` a function exported with ``jax.export`` and ``exported.stablehlo`` its program as text.
"""

import gzip
import io
import os
from contextlib import suppress
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import export
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import mhlo, sdy, stablehlo

HERE = Path(__file__).parent
TEXTS = HERE.parent / "hlo"
# The oldest version, the last without properties, the first of 1.x, the first with batching in gathers, one with accuracies.
VERSIONS = ("0.9.0", "0.14.0", "1.0.0", "1.1.0", "1.10.0")
OLD = ("scan_layers", "conv_grouped", "scatter_gather", "cond_switch", "locations.located")  # in every version; the others in the last


def keep(name: str, data: bytes) -> None:
    (HERE / f"{name}.mlirbc.gz").write_bytes(gzip.compress(data, mtime=0))


def plain(module: ir.Module) -> bytes:
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def make() -> None:
    context = mlir.make_ir_context()
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    with context:
        for path in sorted(TEXTS.glob("*.stablehlo.gz")):
            name = path.name.removesuffix(".stablehlo.gz")
            module = ir.Module.parse(gzip.decompress(path.read_bytes()).decode())
            keep(name, plain(module))
            for version in VERSIONS if name in OLD else VERSIONS[-1:]:
                with suppress(ValueError):  # that version has no such operations
                    keep(f"{name}.{version}", stablehlo.serialize_portable_artifact(module, version))
    shapes = jax.ShapeDtypeStruct((8, 16), jnp.bfloat16), jax.ShapeDtypeStruct((16, 4), jnp.bfloat16)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    exported = export.export(jax.jit(lambda x, w: jnp.tanh(x @ w).sum(axis=0)))(*shapes)
    (HERE / "exported.jax").write_bytes(exported.serialize())
    (HERE / "exported.stablehlo").write_text(exported.mlir_module())


if __name__ == "__main__":
    make()
