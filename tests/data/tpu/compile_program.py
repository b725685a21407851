"""Compiles a program of `programs.py` for a TPU topology, without a TPU; `tests/tpu_compiler.py` starts it in a process of `.venv-tpu`.

    python compile_program.py PROGRAM TOPOLOGY FOLDER

The compiler's dump and `facts.json` are written to the folder. What the compiler refuses is in the facts, under `refused`.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import programs
from jax.experimental import topologies


def main(name: str, topology: str, folder: Path) -> None:
    facts: dict[str, Any] = {"program": name, "topology": topology}
    facts["versions"] = {library: version(library) for library in ("jax", "jaxlib", "libtpu")}
    try:
        facts.update(compile_for(name, topology, folder))
    except jax.errors.JaxRuntimeError as error:
        facts["refused"] = str(error)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


def compile_for(name: str, topology: str, folder: Path) -> dict[str, Any]:
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    program: programs.Program = getattr(programs, name)(devices)
    lowered = jax.jit(program.function, donate_argnums=program.donated).lower(*program.arguments)
    # `as_text` of the result fails for programs with work on SparseCores; the dump has their text too.
    dump = {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
    compiled = lowered.compile(compiler_options=dump)
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    return {
        "device_kind": devices[0].device_kind,
        "devices": len(devices),
        "matrix_flop": program.matrix_flop,
        "memory": {name: getattr(memory, name) for name in sorted(dir(memory)) if name.endswith("_in_bytes")},
        "cost": {name: cost[name] for name in ("flops", "bytes accessed") if name in cost},
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
