"""The pages that browser tests open: real captures, and reports made to be hard on a page."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from roofline.analysis import analyze
from roofline.comparison import compare
from roofline.cost import Cost
from roofline.machine import Machine
from roofline.machines import load
from roofline.machines.detection import of_device
from roofline.render.export import to_json
from roofline.render.page.html import page
from roofline.render.page.report_page import catalogue
from roofline.render.page.words import words_json
from roofline.report import Report
from roofline.sources import read
from roofline.workload import Counters, Device, Op, Recording, Share, Workload

DATA = Path(__file__).parent.parent / "data"
HOSTILE = (
    "</script><script>document.title='taken'</script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "quotes \" and ' and ` and &amp; and \\u003c",
    "right to left \u202egnp.exe\u202c and isolates \u2067abc\u2069",
    "<!-- a comment that does not end",
    '=HYPERLINK("http://evil.example","click")',
    "line\nbreak and tab\tand bell\x07",
    "void cutlass::Kernel<" + "cutlass::gemm::threadblock::MmaMultistage<float, 128, 256>, " * 160 + ">",
)


def capture(name: str, *, timeline: bool = False) -> Report:
    """The report on a capture of one H200."""
    path = DATA / "h200" / f"{name}.xplane.pb"
    recording = read(path if path.exists() else path.with_suffix(".pb.gz"), timeline=timeline)
    return analyze(recording, of_device(recording.devices[0]))


def on_cpu() -> Report:
    """The report on a program that ran on the host's own cores."""
    return analyze(read(DATA / "cpu" / "jax_one.xplane.pb.gz"), load("epyc-9654"))


def four_devices() -> Report:
    """The report on four devices of one host, with what each did when."""
    return analyze(read(DATA / "cpu" / "jax_four.xplane.pb.gz", timeline=True), load("epyc-9654"))


def slow_input() -> Report:
    """The report on a program whose device waits for the host, with what each did when."""
    recording = read(DATA.parent.parent / "benchmarks" / "faults" / "captures" / "slow_input.xplane.pb.gz", timeline=True)
    return analyze(recording, of_device(recording.devices[0]))


def hostile() -> Report:
    """Ops whose every word is written to break a page."""
    ops = [
        Op(
            name=name,
            category=name[:60],
            module=name[:60],
            scope=f"{name[:40]}/inner",
            location=f"{name[:40]}.py:1",
            time_s=0.001 * (number + 1),
            cost=Cost.of({"matrix/bf16": 4e10 * (number + 1), "hbm": 1e9}),
            notes=(name[:80],),
        )
        for number, name in enumerate(HOSTILE)
    ]
    return analyze(Recording(workload=Workload(tuple(ops)), format="table", notes=HOSTILE[:3]), load("h200"))


def many(count: int) -> Report:
    """So many ops, spread over the whole chart, in 40 categories and 60 scopes."""
    ops = [
        Op(
            name=f"fusion.{number}",
            category=f"kind {number % 40}",
            module="jit_step",
            scope=f"layer{number % 12}/part{number % 5}",
            time_s=1e-6 * (1 + (number * 7919) % 997),
            cost=Cost.of({"matrix/bf16": 1e6 * (1 + (number * 104729) % 9973), "hbm": 1e3 * (1 + (number * 1299709) % 99991)}),
        )
        for number in range(count)
    ]
    return analyze(Recording(workload=Workload(tuple(ops)), format="table"), load("h200"))


def repeated(given: Report, times: int) -> Report:
    """A report with every op so many times over, each with an id and a time of its own; cheaper to make than to analyze."""
    ops = [replace(op, id=op.id + copy * len(given.ops), time_s=(op.time_s or 0) / (1 + copy)) for copy in range(times) for op in given.ops]
    ranked = sorted(ops, key=lambda op: (-(op.time_s or 0), op.id))
    return replace(given, ops=tuple(replace(op, rank=rank) for rank, op in enumerate(ranked, start=1)))


def feeds(dot_s: float = 0.010, add_s: float = 0.004) -> Report:
    """A step with infeed and outfeed, zero-FLOP copies, and an op that nobody can price."""
    ops = (
        Op(name="dot.1", category="convolution fusion", time_s=dot_s, cost=Cost.of({"matrix/bf16": 1e12, "hbm": 4e9})),
        Op(name="add.2", category="loop fusion", time_s=add_s, cost=Cost.of({"vector/fp32": 2e9, "hbm": 8e9})),
        Op(name="copy.3", category="copy", time_s=0.002, cost=Cost.of({"hbm": 5e9})),
        Op(name="infeed.4", category="infeed", time_s=0.008, cost=Cost.of({"hbm": 1e9})),
        Op(name="outfeed.5", category="outfeed", time_s=0.001, cost=Cost.of({"hbm": 1e8})),
        Op(name="mystery.6", category="custom-call", time_s=0.003, cost=Cost.of({"matrix/bf16": None, "hbm": None})),
    )
    return analyze(Recording(workload=Workload(ops), format="table"), load("h200"))


def hosts() -> Report:
    """One op on two hosts with a device each, one of them slower."""
    shares = (Share(key=0, count=1, time_s=0.010), Share(key=1, count=1, time_s=0.016))
    ops = (
        Op(name="dot.1", category="matmul", count=2, time_s=0.026, by_device=shares, cost=Cost.of({"matrix/bf16": 2e12, "hbm": 4e9})),
        Op(
            name="add.2", category="loop fusion", time_s=0.004, by_device=(Share(key=0, count=1, time_s=0.004),), cost=Cost.of({"hbm": 8e9})
        ),
    )
    devices = (Device(id=0, name="NVIDIA H200", host="north"), Device(id=1, name="NVIDIA H200", host="south"))
    recording = Recording(workload=Workload(ops), format="xspace", hosts=("north", "south"), devices=devices)
    return analyze(recording, load("h200"))


def counted() -> Report:
    """Ops whose bytes and work were measured by hardware counters, beside the model's."""
    op = Op(
        name="dot.1",
        category="matmul",
        time_s=0.010,
        cost=Cost.of({"matrix/bf16": 1e12, "hbm": 4e9}),
        counters=Counters(cost=Cost.of({"matrix/bf16": 1e12, "hbm": 6e9}), time_s=0.011),
    )
    return analyze(Recording(workload=Workload((op,)), format="table"), load("h200"))


def untimed() -> Report:
    """A compiled program that nobody ran."""
    return analyze(read(DATA / "h200" / "jax_scan.hlo.txt.gz"), load("h200"))


def unknown_chip() -> Report:
    """An op of a device without any known rate."""
    op = Op(name="dot.1", category="matmul", time_s=0.010, cost=Cost.of({"matrix/bf16": 1e12, "hbm": 4e9}))
    return analyze(Recording(workload=Workload((op,)), format="xspace"), Machine(name="unknown-gpu", ceilings=()))


def empty() -> Report:
    """Nothing at all."""
    return analyze(Recording(workload=Workload(()), format="table"), load("h200"))


PAGES: dict[str, Callable[[], Report]] = {
    "train": lambda: capture("jax_train"),
    "scan": lambda: capture("jax_scan"),
    "attention": lambda: capture("jax_attention"),
    "custom": lambda: capture("jax_custom"),
    "fusion": lambda: capture("jax_fusion"),
    "cpu": on_cpu,
    "timeline": lambda: capture("jax_train", timeline=True),
    "four_devices": four_devices,
    "slow_input": slow_input,
    "hostile": hostile,
    "feeds": feeds,
    "hosts": hosts,
    "counted": counted,
    "untimed": untimed,
    "unknown_chip": unknown_chip,
    "empty": empty,
    "thousand": lambda: many(1_000),
    "five_thousand": lambda: repeated(many(1_000), 5),
    "compare": lambda: capture("jax_attention_plain"),  # after jax_attention, and as fast
    "slower": lambda: feeds(dot_s=0.020, add_s=0.003),  # after feeds
}
BEFORE: dict[str, Callable[[], Report]] = {"compare": lambda: capture("jax_attention"), "slower": feeds}


def html(name: str) -> str:
    """The page of this name."""
    report = PAGES[name]()
    if name not in BEFORE:
        return page(to_json(report), words=words_json(report), title=name, catalogue=catalogue())
    before = BEFORE[name]()
    changes = compare(before, report)
    words = words_json(report, before, changes)
    return page(to_json(report), words=words, title=name, before=to_json(before), comparison=to_json(changes), catalogue=catalogue())


def made(folder: Path, name: str) -> Path:
    """The page as a file in a folder that several workers share: whole or not there."""
    target = folder / f"{name}.html"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as own:
            draft = Path(own) / "draft"
            draft.write_text(html(name), encoding="utf-8")
            os.replace(draft, target)
    return target
