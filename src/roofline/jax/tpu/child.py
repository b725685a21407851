"""The process that compiles a function for a slice: `compiling` starts it, with a folder that holds `job.json`.

It answers in the folder: the compiler's dump, and `answer.json` with what was compiled, or why it was not. It runs in the environment of
the user's program, with JAX and libtpu and without this package, so it prints nothing that the user should see.
"""

import ctypes
import importlib
import importlib.util
import json
import os
import pickle
import signal
import sys
import time
from contextlib import nullcontext, suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from changes import NoEffect, changed, prepare  # type: ignore[import-not-found]
from lowering import (  # type: ignore[import-not-found]
    Misfit,
    Portable,
    exported,
    is_mapped,
    jitted,
    lowered_again,
    mesh_axes,
    placed,
    replicated,
    typed_mesh,
    unmapped,
)

sys.path.pop(0)

LIBRARIES = ("jax", "jaxlib", "libtpu")
COMPILED = "after_codegen.hlo.pb"  # a part of the names of files in a TPU compiler's dump
REFUSED = "RESOURCE_EXHAUSTED"
PR_SET_PDEATHSIG = 1  # of prctl(2): the signal to this process when the thread that started it ends


def main(folder: Path) -> None:
    job = json.loads((folder / "job.json").read_text())
    answer: dict[str, Any] = {}
    try:
        compile_job(job, folder, answer)
    except Misfit as misfit:
        answer["misfit"] = str(misfit)
    except NoEffect as reason:
        answer["without_effect"] = str(reason)
    except Exception as error:  # of the user's function, JAX or the compiler
        answer["refused" if REFUSED in str(error) else "failed"] = f"{type(error).__name__}: {error}"
        if "refused" not in answer:
            import traceback

            traceback.print_exc()
    (folder / "answer.json").write_text(json.dumps(answer))


def compile_job(job: dict[str, Any], folder: Path, answer: dict[str, Any]) -> None:
    """Compiles what a job describes, and writes into the answer what is known of it, step by step."""
    if missing := [library for library in LIBRARIES if importlib.util.find_spec(library) is None]:
        raise Misfit(f"{missing[0]} is not installed")
    topologies = importlib.import_module("jax.experimental.topologies")
    answer["versions"] = {library: version_of(library) for library in LIBRARIES}
    topology = topologies.get_topology_desc(platform="tpu", **job["topology"])
    answer["devices"], answer["device_kind"] = len(topology.devices), topology.devices[0].device_kind
    began = time.monotonic()
    lowered, axes = lowered_for(job, topology, answer)
    answer["mesh"], answer["lowering_s"] = axes, time.monotonic() - began
    options = {name: typed(value) for name, value in job["options"].items()}
    text = lowered.as_text(debug_info=True)
    answer["key"] = key_of(text, answer, job, axes, options)
    answer["plain_key"] = key_of(text, answer, job, axes, {}) if options else ""
    if job["cache"] and Path(job["cache"], answer["key"], "answer.json").is_file():
        answer["cached"] = True
        return
    (folder / "compiling").write_text(answer["key"])  # from here on the compiler's files come
    began = time.monotonic()
    dump = {"xla_dump_to": str(folder / "dump"), "xla_dump_hlo_as_proto": True}
    compiled = lowered.compile(compiler_options={**options, **dump})
    answer["compile_s"] = time.monotonic() - began
    if not list(folder.glob(f"dump/*{COMPILED}")):
        raise Misfit("it was compiled for the CPU, not for the TPU: a mesh or a sharding in it is of devices here")
    memory = compiled.memory_analysis()
    answer["memory"] = {name: getattr(memory, name) for name in sorted(dir(memory)) if name.endswith("_in_bytes")}


def key_of(text: str, answer: dict[str, Any], job: dict[str, Any], axes: dict[str, int], options: dict[str, Any]) -> str:
    """The key of a program that is compiled with these options."""
    facts = [answer["versions"], job["topology"], axes, sorted(options.items()), os.environ.get("LIBTPU_INIT_ARGS", "")]
    return sha256("\0".join([text, *map(repr, facts)]).encode()).hexdigest()


def lowered_for(job: dict[str, Any], topology: Any, answer: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    """The function of a job, lowered for a topology, and the axes of its mesh."""
    jax: Any = importlib.import_module("jax")
    devices = len(topology.devices)
    if job["portable"]:
        portable = pickle.loads(Path(job["portable"]).read_bytes())
        axes = dict(job["mesh"])
        lowered, axes = lowered_again(Portable(*portable), slice_mesh(topology, axes))
        return lowered, axes
    prepare(job["changes"])
    function = load(job["function"])
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    if job["args"]:
        arguments = (tuple(jax.ShapeDtypeStruct(tuple(sizes), kind) for kind, sizes in job["args"]), {})
    elif not hasattr(function, "lower"):
        function, arguments = planned(function(), job["function"])
    if not callable(function):  # lowered already
        return function, dict(job["mesh"] or {})
    if is_mapped(function):
        function, arguments = unmapped(function, arguments)
    axes = mesh_axes(arguments, devices, job["mesh"])
    mesh = typed_mesh(slice_mesh(topology, axes), arguments)
    shapes = placed(arguments, mesh, job["batch_args"], job["shard"])
    answer["assumed"], answer["replicated"] = list(shapes.assumed), replicated((shapes.args, shapes.kwargs), mesh)
    ready = jitted(function)
    try:
        with jax.set_mesh(mesh) if hasattr(jax, "set_mesh") else nullcontext():
            if job["changes"]:
                ready, arrays = changed(ready, shapes.args, shapes.kwargs, job["changes"])
                shapes = shapes._replace(args=arrays, kwargs={})
            lowered = ready.lower(*shapes.args, **shapes.kwargs)
        if not is_for_cpu(lowered):
            return lowered, axes
    except ValueError as error:
        try:  # its own shardings may be of devices that are here
            portable = exported(ready, *arguments)
        except Exception:
            raise error from None
    else:
        portable = exported(ready, *arguments)
    if job["changes"]:
        raise Misfit("its own shardings are of devices that are here: no change can be tried")
    answer["assumed"], answer["replicated"] = [], {}
    lowered, axes = lowered_again(portable, mesh)
    return lowered, axes


def slice_mesh(topology: Any, axes: dict[str, int]) -> Any:
    """A mesh of all devices of a topology, along the slice's own axes where its sizes allow it, as `jax.make_mesh` does there.

    Several slices are along the first axis that their number divides: the data-centre network joins them.
    """
    topologies, utils = importlib.import_module("jax.experimental.topologies"), importlib.import_module("jax.experimental.mesh_utils")
    sizes, devices = list(axes.values()), topology.devices
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        try:
            return topologies.make_mesh(topology, tuple(sizes), tuple(axes))
        except NotImplementedError:  # an axis of the slice has to be split
            arranged = utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    else:
        across = [slices if place == axis_across(sizes, slices) else 1 for place in range(len(sizes))]
        within = [size // parts for size, parts in zip(sizes, across, strict=True)]
        arranged = utils.create_hybrid_device_mesh(within, across, devices, allow_split_physical_axes=True)
    return importlib.import_module("jax.sharding").Mesh(arranged, tuple(axes))


def axis_across(sizes: list[int], slices: int) -> int:
    """The place of the axis of a mesh along which there are several slices."""
    for place, size in enumerate(sizes):
        if size % slices == 0:
            return place
    raise Misfit(f"no axis of the mesh can be divided by {slices} slices")


def planned(found: Any, name: str) -> tuple[Any, tuple[tuple[Any, ...], dict[str, Any]]]:
    """The function and its arguments that a function without arguments returned; a lowered function has none."""
    if hasattr(found, "compile") and hasattr(found, "as_text"):
        return found, ((), {})
    if isinstance(found, tuple) and len(found) in (2, 3) and callable(found[0]):
        args = found[1] if isinstance(found[1], tuple | list) else (found[1],)
        return found[0], (tuple(args), dict(found[2]) if len(found) > 2 else {})
    raise Misfit(f"{name}() returned a {type(found).__name__}; without --args it returns (function, arguments), or a lowered function")


def is_for_cpu(lowered: Any) -> bool:
    """Whether a function was lowered for devices that are here, because its own shardings name them."""
    for sharding in getattr(getattr(lowered, "_lowering", None), "compile_args", {}).get("in_shardings", ()):
        with suppress(AttributeError, ValueError):  # unspecified, or of no devices
            return any(device.platform == "cpu" for device in sharding.device_set)
    return False


def load(name: str) -> Any:
    """The function that FILE.py:FUNCTION or MODULE:FUNCTION names."""
    where, _, path = name.rpartition(":")
    if where.endswith(".py"):
        file = Path(where).resolve()
        sys.path.insert(0, str(file.parent))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None:
            raise Misfit(f"{where}: not a Python file")
        found: Any = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = found
        spec.loader.exec_module(found)
    else:
        sys.path.insert(0, str(Path.cwd()))
        found = importlib.import_module(where)
    for part in path.split("."):
        if not hasattr(found, part):
            raise Misfit(f"{name}: no {part!r} in {getattr(found, '__name__', where)}")
        found = getattr(found, part)
    return found


def typed(value: str) -> bool | int | str:
    """A compiler option in the type that the compiler expects."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.removeprefix("-").isdecimal() else value


def version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    if sys.platform == "linux":  # it does not outlive the one that waits for it, however that one ends
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    main(Path(sys.argv[1]))
