"""The experiments that measure a GPU or a TPU, the most important first, and their execution."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...units import parse
from .finished_experiments import FinishedExperiments
from .gpu_conditions import conditions
from .gpu_worker import Accelerator
from .kernel_shapes import LARGEST, largest_set

FORMATS = ("bf16", "fp16", "tf32", "fp8", "int8", "fp32", "fp64", "fp4")
TPU_FORMATS = ("bf16", "int8", "fp8")  # of its matrix unit; wider formats are rounded to bf16 or computed in several passes
VECTOR_FORMATS, TPU_VECTOR_FORMATS = ("fp32", "fp64", "transcendental"), ("fp32", "bf16", "transcendental")
SIDES = (4096, 8192)
TILE = (128, 256)  # part of the result that one core of a GPU computes
SMALLEST = parse("1 MiB", "B")
PATTERNS = {  # sizes per doubling, the smallest and the largest working set
    "read": (4, SMALLEST, LARGEST),
    "write": (1, SMALLEST, LARGEST),
    "copy": (1, SMALLEST, LARGEST),
    "per_core": (2, parse("256 KiB", "B"), parse("64 MiB", "B")),
}
BEYOND_VMEM = parse("256 MiB", "B")  # working sets larger than a TPU's VMEM, which is no cache: XLA decides what it holds
BIG = parse("1 GiB", "B")  # working sets larger than any cache
SMALL = ("product", "add", "norm")
ALL_REDUCED = tuple(int(parse(size, "B")) for size in ("64 KiB", "8 MiB", "256 MiB"))  # bytes per device
LOADED = 0.6  # of the time of a sustained product, after which clock and power are read
LAUNCHES = ("graph", "stream", "sync", "round trip")
JAX_LAUNCHES = ("graph", "stream", "sync", "dispatch", "program round trip")  # the host dispatches programs, not kernels
TPU_LAUNCHES = JAX_LAUNCHES[2:]  # a core runs the ops of a program one after the other: there are no kernels to launch
QUICK_S = parse("17 s", "s")  # after which a quick measurement starts only the required experiments
LATE = "no time left"
NEEDED = ("product/bf16/burst/random", "small/", "launch/", "vector/fp32")  # required experiments, which a quick measurement runs first
NEEDED_READS = 3  # of the largest working sets, also required

Plan = dict[str, dict[str, Any]]
Tell = Callable[[int, int], None]


def plan(device: Mapping[str, Any], quick: bool) -> Plan:
    """Every experiment by its key, with what the worker needs to know."""
    through_jax = str(device.get("framework", "")).startswith("jax")
    is_tpu = _is_tpu(device)
    few = quick and through_jax  # JAX compiles each shape of product separately
    found = _products(device, quick, few)
    brief = 0.05 if quick else 0.4
    for number in TPU_VECTOR_FORMATS if is_tpu else VECTOR_FORMATS:
        found[f"vector/{number}"] = {"name": "vector", "number": number, "seconds": brief}
    found |= _streams(device, quick, few)
    for kind in TPU_LAUNCHES if is_tpu else JAX_LAUNCHES if through_jax else LAUNCHES:
        found[f"launch/{kind}"] = {"name": "launch", "kind": kind, "seconds": brief}
    for kind in SMALL:
        found[f"small/{kind}"] = {"name": "small", "kind": kind, "seconds": brief}
    for direction in ("in", "out"):
        for pinned in (True, False):
            words = f"host/{direction}/{'pinned' if pinned else 'pageable'}"
            found[words] = {"name": "host", "direction": direction, "pinned": pinned, "seconds": brief / 2}
    if device.get("count", 1) > 1:
        found["peer"] = {"name": "peer", "seconds": brief}
        for size in ALL_REDUCED:
            found[f"all-reduce/{size}"] = {"name": "all-reduce", "size": size, "seconds": brief}
    needed = _needed(found)
    return found if not quick else dict(sorted(found.items(), key=lambda each: each[0] not in needed))


def _is_tpu(device: Mapping[str, Any]) -> bool:
    return device.get("platform") == "tpu"


def _products(device: Mapping[str, Any], quick: bool, few: bool) -> Plan:
    """Matmuls of each format, in bursts and held for seconds, of random numbers and of zeros."""
    found: Plan = {}
    all_shapes = shapes(device["cores"]) if "memory" in device else [[256, 256, 256]]
    chosen = {"shapes": all_shapes[-2:][: 1 if few else 2], "layout": "NT"} if quick else {"shapes": all_shapes}
    formats = TPU_FORMATS if _is_tpu(device) else FORMATS
    for number in formats:
        burst: dict[str, Any] = {"name": "product", "number": number, **chosen}
        found[f"product/{number}/burst/random"] = {**burst, "seconds": 0.2 if quick else 0.8}
        if not quick or number == formats[0]:
            found[f"product/{number}/held/random"] = {**burst, "seconds": 1.0 if quick else 4.0, "held": True}
            found[f"product/{number}/burst/zeros"] = {**burst, "seconds": 0.2 if quick else 0.5, "zeros": True}
        if not quick:
            found[f"product/{number}/held/zeros"] = {**burst, "seconds": 1.5, "held": True, "zeros": True}
    return found


def _streams(device: Mapping[str, Any], quick: bool, few: bool) -> Plan:
    """Reads, writes and copies of working sets of many sizes; on a TPU those that VMEM does not hold, by all of its one core."""
    found: Plan = {}
    largest = largest_set(device.get("memory"))
    for pattern, (steps, first, limit) in PATTERNS.items():
        for size in sizes(first, min(largest, limit), steps / 2 if few and pattern != "per_core" else steps):
            if _is_tpu(device) and (size < BEYOND_VMEM or pattern == "per_core"):
                continue
            seconds = (0.2 if size >= BIG else 0.03) / (4 if quick else 1)
            request = {"name": "stream", "pattern": pattern, "size": size, "seconds": seconds, "few_kernels": quick}
            found[f"stream/{pattern}/{size}"] = request
    return found


def _needed(wanted: Plan) -> set[str]:
    """The experiments that a machine file requires."""
    reads = sorted((key for key in wanted if key.startswith("stream/read/")), key=lambda key: wanted[key]["size"])
    return {*(key for key in wanted if key.startswith(NEEDED)), *reads[-NEEDED_READS:]}


def shapes(cores: int) -> list[list[int]]:
    """Shapes of products to try, the smallest first: cubes, and shapes whose tiles fill whole waves of the cores."""
    wide = max(part for part in range(1, math.isqrt(cores) + 1) if cores % part == 0)
    tall = cores // wide
    m, n = (TILE[0] * tall, TILE[1] * wide) if tall <= 4 * wide else (TILE[0] * cores, TILE[1])
    scale = max(1, round(SIDES[1] / max(m, n)))
    waves = [[m * scale, n * scale, side] for side in SIDES]
    return sorted([*([side] * 3 for side in SIDES), *waves], key=math.prod)


def sizes(first: float, last: float, steps: float) -> list[int]:
    """Sizes from the first to the last, ``steps`` per doubling."""
    count = int(math.log2(last / first) * steps + 0.5)
    return [int(first * 2 ** (step / steps)) for step in range(count + 1)]


def run_plan(worker: Accelerator, kept: FinishedExperiments, wanted: Plan, tell: Tell, until: float = math.inf) -> dict[str, Any]:
    """The answers of all experiments, including stored ones; ``conditions`` has the driver's values before and under load.

    ``until`` is the time (`time.monotonic`) after which only required experiments are started.
    """
    before = conditions()
    under_load: dict[str, str] = {}
    late: dict[str, dict[str, Any]] = {}
    needed = _needed(wanted)
    for done, (key, request) in enumerate(wanted.items()):
        if key not in kept.answers and time.monotonic() > until and key not in needed:
            late[key] = {"absent": LATE}
        elif key not in kept.answers and (reason := _lacking(key, kept.answers)):
            kept.add(key, {"absent": reason})
        elif key not in kept.answers:
            worker.ask(_with_best_shape(key, request, kept.answers))
            if request.get("held") and not under_load:
                time.sleep(request["seconds"] * LOADED)
                under_load = conditions()
            kept.add(key, worker.answer())
        tell(done + 1, len(wanted))
    return {"conditions": before, "under load": under_load, "answers": {**kept.answers, **late}}


def _with_best_shape(key: str, request: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """The request; for products after the first burst in a format, with the shape that was fastest there."""
    with_shape = dict(request)
    kind, _, rest = key.partition("/")
    if kind == "product" and not rest.endswith("/burst/random"):
        number = rest.partition("/")[0]
        if shape := answers.get(f"product/{number}/burst/random", {}).get("shape"):
            with_shape |= {"shapes": [shape], "layout": answers[f"product/{number}/burst/random"].get("layout")}
    return with_shape


def _lacking(key: str, answers: Mapping[str, Any]) -> str:
    """The reason to skip an experiment: the device has no products in this format; else empty."""
    kind, number, *_ = (*key.split("/"), "")
    return str(answers.get(f"product/{number}/burst/random", {}).get("absent", "")) if kind == "product" else ""


def rates(answers: Mapping[str, Any], start: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The successful answers whose key begins with ``start``, by the rest of the key."""
    for key, found in answers.items():
        if key.startswith(start) and "absent" not in found:
            yield key.removeprefix(start), found
