"""Compiles the programs of this folder again: `.venv/bin/python tests/data/tpu/freeze.py [NAME@TOPOLOGY …]`, by default all of them."""

import gzip
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from tpu_compiler import ENVIRONMENT, ROOT, Refused, compile_program, hbm_bytes  # noqa: E402

FROZEN = (
    "matmul@v5e:2x2",
    "int8_matmul@v5e:2x2",
    "convolution@v5e:2x2",
    "layer@v5e:2x2",
    "layer_gradient@v5e:2x2",
    "hidden_gathers@v5e:2x2",
    "sharded_mlp@v6e:4x4",
    "decode@v6e:2x2",
    "embedding@v6e:2x2",
)


def freeze(name: str, topology: str) -> None:
    """Write the text of a program, without the paths of this machine, and what the compiler states of it."""
    compiled = compile_program(name, topology)
    if isinstance(compiled, Refused):
        sys.exit(f"{name}@{topology}: {compiled.reason}")
    file = f"{name}_{topology.replace(':', '_')}"
    text = compiled.text.replace(f"{ENVIRONMENT}/", "").replace(f"{ROOT}/", "")
    (HERE / f"{file}.hlo.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    facts = {**compiled.facts, "hbm_bytes": hbm_bytes(compiled.buffer_assignment)}
    (HERE / f"{file}.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    for job in sys.argv[1:] or FROZEN:
        freeze(*job.split("@"))
