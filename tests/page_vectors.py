"""Cases that Python and the page's modules must answer alike, with Python's answers.

``python tests/page_vectors.py`` writes the file of vectors that pytest checks and node reads.
"""

import json
import random
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from roofline.causes import cause_of
from roofline.cost import Cost
from roofline.errors import UnitError
from roofline.grouping.op_filter import FilterError, parse_filter
from roofline.machine import Machine
from roofline.placement import place_op
from roofline.render.geometry import linear_ticks, log_ticks, rate_title, title
from roofline.report import InputInfo, MachineInfo, Report, Step
from roofline.resource import Resource, bound_words
from roofline.selection import stem
from roofline.units import parse, percent, plain, show
from roofline.workload import averaged

FILE = Path(__file__).parent / "data" / "law_vectors.json"

# fmt: off
RATES = {
    "toy": {"matrix/bf16": 100.0, "matrix/fp8": 200.0, "vector/fp32": 20.0, "hbm": 10.0, "ici": 1.0, "ici/hop": 4.0},
    "tpu": {
        "matrix/bf16": 9.18e14, "matrix/int8": 1.836e15, "hbm": 1.638e12, "vmem.read": 2.33e13, "vmem.write": 1.61e13,
        "ici": 9e10, "ici/hop": 1e6, "pcie": 3.2e10, "dcn": 1.25e10,
        "vector/fp32": 7.168e12, "vector/transcendental": 1.792e12, "xlu": 7.168e12,
    },
    "gpu": {
        "matrix/bf16": 9.894e14, "matrix/tf32": 4.945e14, "matrix/fp8": 1.979e15, "matrix/fp64": 6.7e13, "vector/fp32": 6.7e13,
        "vector/fp16": 1.338e14, "vector/int32": 3.3e13, "vector/transcendental": 4.2e12, "hbm": 4.8e12, "l2": 9.7e12, "l1": 3.34e13,
        "nvlink": 2.06e10, "nvlink.package": 1e11, "pcie": 6.3e10, "host": 5e11,
    },
    "memory only": {"hbm": 1.0},
    "vector only": {"vector/fp32": 20.0, "hbm": 10.0},
    "pascal": {"vector/fp32": 20.0, "hbm": 10.0},
    "amx": {"vector/fp32": 20.0, "hbm": 10.0},
    "cpu": {"vector/fp32": 20.0, "vector/fp64": 10.0, "hbm": 10.0},
    "volta": {"matrix/fp16": 100.0, "vector/fp32": 20.0, "hbm": 10.0},
}
MATRIX_UNIT = {"pascal": False, "amx": True}  # what is said of it; of the others nothing is
RESOURCES = sorted({
    *(name for rates in RATES.values() for name in rates),
    "matrix/fp16", "matrix/fp32", "matrix/int4", "matrix/bf16x3", "vector/bf16", "vector/int8", "vector/int64", "vector/fp64",
    "compute", "cmem.read", "psum",
})
LEVELS = ("hbm", "vmem", "vmem.read", "l2", "ici", "nvlink", "pcie")
AMOUNTS = (0, 1, 3, 50, 0.1, 1e-30, 1e30, 2**53 + 2, 6442450944000, 4133486592.5, None)
TIMES = (None, 0, 1e-12, 1.9e-6, 2e-6, 9.99e-6, 1e-5, 0.5, 8.163343e-3, 1e6)
LAUNCHES = (1, 0, 6, 12, 400, 0.5)
VALUES = (
    0, 1, -1, 0.5, 1.5, 2.5, 0.25, 0.125, 9.95, 9.949999, 9.96, 99.95, 999.95, 999.96, 999.949, 1000, 1234.5, 1235.5, 12345, -0.25, -3e9,
    0.00012345, 0.0001, 0.00009999, 1e-5, 3.1e-3, 1e-12, 5e-13, 1e-15, 41943040, 17179869184, 989.4e12, 3.35e12, 1e15, 9.99951e14,
    1e18, 1e21, 1.5e25, 123456789012345, 999999999999999, 1e300, 5e-324, 0.922, 0.005, 0.0995, 0.09949, 1 / 3, 2 / 3, 4.5, 5.5, 100.5,
)
DIMENSIONS = ("s", "B", "B/s", "FLOP", "FLOP/s", "FLOP/B", "hop", "hop/s", "1")
WRITTEN = (
    "3.35 TB/s", "3.35TB/s", "12 GiB", "400 Gbit/s", "3.1 ms", "10us", "5 µs", "2 min", "1 h", "85%", "1_000", "1,000", "1e3", "1.5e-3 s",
    "", "abc", "-1", "1 parsec", "3 GHz", "240 FLOP/B", "3 hops", "1 kFLOP", "2.2 TFLOP", "989 TFLOPS", "1 KB", "1 Kb", "nan", "1e-3000",
    ".5", "5.", "+3", "0x10", "1 G", "2 x", "7 MiB/s", "1 ks", "1 mB", "1 kmin",
)
NAMES = ("fusion.12", "loop_add_fusion.3.clone.1", "conv2d", "fusion", "a.remat2.7", "_1", ".1", "", "x_clone", "dot.1.2.3", "dot.1a")
FILTERS = (
    "", "fusion", "DOT", "layer0", '"matmul.1"', "layer*/attn", "*", "model/layer?*", "model/layer[!1]*/mlp", "*/[ab]*", "[*", "/attn*/",
    "/^fusion/", "/FUSION/i", "-fusion", "not (fusion or bound=hbm)", "fusion or bound=matrix count<5", "(copy or dot) time>1%",
    "efficiency<0.5", "efficiency<50%", "efficiency!=0.9", "efficiency=none", "time>1%", "time>=10us", "self>1%", "self=none",
    "minimum>1%", "minimum=0", "serial>5%", "lost>1%", "lost>1us", "share>=2%", "intensity>=1", "intensity=none", "ridge>100", "flops>1G",
    "flops=none", "flops>1%", "bytes<2MB", "bytes>1MiB", "bytes=none", "bytes>1%", "achieved>1T", "attainable=none", "bandwidth<1G",
    "bandwidth=none", "count>1", "count>5%", "kernels>1k", "kernels=none", "rank<=5", "id=3", "id!=3", "floor>1us", "rate>1 GFLOP/s",
    "name:.1", "category:fusion", "category=none", 'category="loop fusion"', "bound=HBM,latency", "bound!=hbm", "bound=none", "dtype=bf16",
    "format=none", "unit=matrix", "scope:attn", "phase=backward", "phase=none", "program:jit", "module:jit", "location=none", "source:py",
    "level:hbm", "level=l2,vmem.read", "level=none", "note=none", "roof:hbm", "roof=hbm,ici", "unrated=none", "unrated!=none",
)
BROKEN_FILTERS = (
    "(fusion", "fusion)", "()", "/[/", "/open", '"open', "/a/g", "colour=red", "time>", "time>fast", "time>3MB", "time>-1", "achieved>5%",
    "share>1s", "bound<3", "or", "fusion or", "fusion and", "not", "-", "bound=,", "count>1e999", "(" * 60, "not " * 60 + "x",
    "Colour=red", "effciency>3", "time>1 tme>2", "lvel=hbm", "ban=3", "count>1s", "count>x%", "id>5%", "/(/", "name:/a{2,1}/", "/a/zgz",
    'time>"2 ms"', "intensity>5%", "intensity>2s", "efficiency>5s", "bytes>1Kb", "achieved>x%", "flops>1parsec", "time>it's",
)
SPANS = ((0.1, 1000.0), (1.0, 2.0), (1.2, 9.0), (3e-5, 5e3), (1e4, 7e15), (0.9, 11.0), (1.5, 1.6), (1e-9, 1e9), (2.0, 40.0), (1e-3, 1e15))
# fmt: on


def placed(machine: str, cost: Mapping[str, float | None], time_s: float | None, launches: float, level: str) -> dict[str, Any]:
    """One case of the law with Python's answer."""
    one = Machine.of(machine, RATES[machine], kind=machine, matrix_unit=MATRIX_UNIT.get(machine))
    found = place_op(Cost.of(cost), one, time_s, executions=launches)
    names = ("unit", "bound", "efficiency", "utilization", "attainable", "achieved")
    expected = {name: getattr(found, name) for name in names}
    expected |= {
        "floor_s": None if found.is_unknown else found.floor_s,
        "serial_s": None if found.is_unknown else found.serial_s,
        "times": dict(found.times),
        "intensity": found.intensity(level),
        "ridge": found.ridge(level),
        "compute": found.compute.name if found.compute else None,
        **{name: [one.name for one in getattr(found, name)] for name in ("roofs", "unrated", "unknown")},
    }
    return {"machine": machine, "cost": dict(cost), "time_s": time_s, "launches": launches, "level": level, "expected": expected}


def law_cases() -> Iterator[dict[str, Any]]:
    """Cases chosen by hand, at ridges and at the edges of latency, then many at random."""
    for time_s in (None, 0.0, 1.0, 2.0):
        yield placed("toy", {}, time_s, 1, "hbm")
        yield placed("toy", {"matrix/bf16": 50, "hbm": 10}, time_s, 1, "hbm")
        yield placed("toy", {"matrix/bf16": 100, "hbm": 10, "vector/fp32": 20}, time_s, 1, "hbm")  # three units at one ridge
        yield placed("toy", {"ici": 1, "ici/hop": 4, "hbm": 20}, time_s, 1, "ici")  # a link's bytes and hops share its unit
        yield placed("toy", {"matrix/bf16": None, "hbm": 10}, time_s, 1, "hbm")
        yield placed("tpu", {"vmem.read": 1e9, "vmem.write": 1e9, "matrix/bf16": 1e12, "hbm": 0}, time_s, 1, "vmem")
        yield placed("tpu", {"pcie.in": 3.2e10, "pcie.out": 1.6e10, "hbm": 1}, time_s, 1, "pcie")  # two directions of one link
        yield placed("toy", {"matrix/bf16x3": 50, "matrix/fp8": 50, "matrix/tf32x3": 20, "hbm": 10}, time_s, 1, "hbm")  # several passes
        yield placed("tpu", {"matrix/fp32": 1e12, "matrix/bf16x6": 1e12, "hbm": 1}, time_s, 1, "hbm")  # rounded to bf16
        yield placed("tpu", {"vector/fp32": 1.4e13, "vector/transcendental": 7e12, "xlu": 7e12, "hbm": 1}, time_s, 1, "hbm")  # three units
        yield placed("tpu", {"host": 3.2e10, "pcie": 3.2e10}, time_s, 1, "pcie")  # host memory is behind the bus
        yield placed("memory only", {"matrix/bf16": 5}, time_s, 1, "hbm")  # nothing is rated for it
        for machine in ("vector only", "pascal", "amx", "cpu", "volta"):  # where products without a rate of their own go
            yield placed(machine, {"matrix/bf16": 50, "matrix/fp16": 5, "hbm": 10}, time_s, 1, "hbm")
            yield placed(machine, {"matrix/fp32": 50, "matrix/bf16x3": 5, "hbm": 10}, time_s, 1, "hbm")
    for time_s in TIMES[2:8]:
        yield placed("gpu", {"hbm": 4.8e6, "vector/fp32": 67}, time_s, 1, "hbm")  # a floor of 1 µs, below one launch
    chosen = random.Random(5)
    for _ in range(300):
        machine = chosen.choice(list(RATES))
        cost = {name: chosen.choice(AMOUNTS) for name in chosen.sample(RESOURCES, chosen.randrange(7))}
        yield placed(machine, cost, chosen.choice(TIMES), chosen.choice(LAUNCHES), chosen.choice(LEVELS))


def scaled_cases() -> Iterator[dict[str, Any]]:
    """Machines with some rates scaled: by resource, else by unit, else all arithmetic and all bytes."""
    for name, rates in RATES.items():
        for factors in (
            {"compute": 2.0},
            {"bandwidth": 0.5},
            {"compute": 0.25, "bandwidth": 3.0, "hbm": 2.0},
            {"matrix": 1.5, "vector/fp32": 0.1},
            {},
        ):
            yield {"machine": name, "factors": factors, "expected": {key: rate * _factor(key, factors) for key, rate in rates.items()}}


def _factor(name: str, factors: Mapping[str, float]) -> float:
    resource = Resource(name)
    whole = factors.get("compute", 1) if resource.is_compute else factors.get("bandwidth", 1) if resource.measure == "B" else 1
    return factors.get(name, factors.get(resource.unit, whole))


def _parsed(text: str, dimension: str) -> float | None:
    try:
        return parse(text, dimension)
    except UnitError:
        return None


def step_cases() -> Iterator[list[Any]]:
    """Steps that are complete, steady and followed or not, with those that the average is of."""
    for flags in product((True, False), repeat=6):
        steps = [
            dict(zip(("complete", "steady", "followed"), part, strict=True), step=step) for step, part in enumerate((flags[:3], flags[3:]))
        ]
        report = Report(input=InputInfo(format=""), machine=MachineInfo(name="", ceilings=()), steps=tuple(Step(**one) for one in steps))
        yield [steps, [one.step for one in averaged(report.steps)]]


def _filter_error(text: str) -> tuple[int | None, str | None]:
    """Where a filter is wrong, and why."""
    try:
        parse_filter(text)
    except FilterError as error:
        return error.at, error.reason
    return None, None


def vectors() -> dict[str, Any]:
    """Everything in the file."""
    written = [(text, dimension, _parsed(text, dimension)) for text in WRITTEN for dimension in DIMENSIONS]
    return {
        "machines": [[name, rates, MATRIX_UNIT.get(name)] for name, rates in RATES.items()],
        "law": list(law_cases()),
        "scaled": list(scaled_cases()),
        "show": [[value, dimension, show(value, dimension)] for value in (None, *VALUES) for dimension in DIMENSIONS],
        "show3": [[value, dimension, show(value, dimension, 3)] for value in VALUES for dimension in DIMENSIONS],
        "show2": [[value, dimension, show(value, dimension, 2)] for value in VALUES for dimension in DIMENSIONS],
        "plain": [[value, plain(value)] for value in VALUES],
        "percent": [[value, percent(value)] for value in (None, *VALUES)],
        "parse": [[text, dimension, value] for text, dimension, value in written],
        "title": [[name, title(name), rate_title(name, 3.2e12)] for name in (*RESOURCES, "xelink", "xgmi", "nvlink.package", "sbuf")],
        "broken_filters": [[text, *_filter_error(text)] for text in BROKEN_FILTERS],
        "bounds": [
            [name, bound_words(name), cause_of(name)] for name in (None, "latency", *sorted({Resource(one).unit for one in RESOURCES}))
        ],
        "averaged_steps": list(step_cases()),
        "stem": [[name, stem(name)] for name in NAMES],
        "log_ticks": [[low, high, unit, _ticks(log_ticks(low, high, unit))] for low, high in SPANS for unit in ("FLOP/B", "FLOP/s")],
        "linear_ticks": [[0.0, high, "%", _ticks(linear_ticks(0.0, high, "%"))] for high in (1.06, 1.3, 2.0, 7.7)],
    }


def _ticks(ticks: Any) -> list[list[Any]]:
    return [[tick.at, tick.label] for tick in ticks]


def text() -> str:
    """The file: one case a line."""
    parts = []
    for name, cases in vectors().items():
        lines = ",\n".join(json.dumps(case, ensure_ascii=False, allow_nan=False) for case in cases)
        parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
