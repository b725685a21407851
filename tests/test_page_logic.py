"""The page's modules against Python: the same law, the same numbers, the same chart, on shared vectors and on real captures."""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from browser.programs import NO_NODE, node
from page_vectors import AMOUNTS, FILE, FILTERS, LAUNCHES, LEVELS, RATES, RESOURCES, TIMES, placed, text
from roofline.analysis import analyze, describe
from roofline.comparison import compare
from roofline.cost import Cost
from roofline.grouping import KEYS, group
from roofline.grouping.op_filter import filtered
from roofline.machine import Machine
from roofline.machines.catalogue import catalogue, load
from roofline.render.chart import chart
from roofline.render.export import to_json
from roofline.render.page.data import GROUPINGS, catalogue_json, vocabulary_json
from roofline.render.plot.style import THEMES, Theme
from roofline.report import Report
from roofline.resource import Resource
from roofline.selection import narrow, per_step
from roofline.sources import read
from roofline.workload import Device, Op, Recording, Share, Step, Workload

HERE = Path(__file__).parent
STATIC = HERE.parent / "src" / "roofline" / "render" / "page" / "static"
CAPTURES = (
    *("h200/jax_train.xplane.pb.gz", "h200/jax_mix.xplane.pb.gz", "h200/jax_offload.xplane.pb.gz", "h200/jax_custom.xplane.pb.gz"),
    *(
        "h200/jax_attention.xplane.pb.gz",
        "h200/jax_scan.xplane.pb.gz",
        "cpu/jax_four.xplane.pb.gz",
        "ncu_torch_eager.csv.gz",
        "ncu_jax_fusion.csv.gz",
    ),
)
# Of the TPU compiler: copies run beside products, which wait for none of them, for a part, or for all.
PROGRAMS = ("hidden_gathers_v5e_2x2", "matmul_v5e", "layer_v5e_2x2")
TESTS = sorted(path.name for path in (HERE / "page").glob("*.test.mjs"))


@cache
def report_of(name: str) -> Report:
    recording = read(HERE / "data" / name)
    return analyze(recording, load("h200-sxm"))


def odd() -> Report:
    """What captures rarely have: unknown work and bytes, two hosts, feeds, links with hops, ops above their roof, nothing at all."""
    machine = Machine.of(
        "odd",
        {"matrix/bf16": 100, "matrix/fp16": 100, "vector/fp32": 20, "hbm": 10, "vmem.read": 50, "vmem.write": 40, "ici": 1, "ici/hop": 4},
    )
    halves = tuple(Share(key=key, count=2, time_s=seconds) for key, seconds in ((0, 3.0), (1, 5.0)))

    def op(name: str, cost: dict[str, float | None], time_s: float | None, **more: Any) -> Op:
        shares = halves if time_s else ()
        return Op(name=name, cost=Cost.of(cost), time_s=time_s, count=4, by_step=shares, by_device=shares, **more)

    ops = (
        op("matmul.1", {"matrix/bf16": 300, "hbm": 20, "vmem.read": 100, "vmem.write": 30}, 8.0, category="dot", scope="model/layer0/attn"),
        op("matmul.2", {"matrix/fp16": 300, "hbm": 20}, 2.0, category="dot", scope="model/layer0/mlp", phase="backward"),  # above its roof
        op("mystery", {"matrix/bf16": None, "hbm": None}, 8.0, category="custom call"),
        op("half known", {"matrix/bf16": 50, "hbm": None}, 8.0),
        op("copy", {"hbm": 40}, 8.0, category="copy", self_time_s=6.0),
        op("infeed", {"hbm": 8}, 8.0, category="infeed"),
        op("all-reduce.3", {"ici": 6, "ici/hop": 4, "vector/fp32": 6}, 8.0, category="all-reduce"),
        op("nothing", {}, 8.0),
        op("untimed", {"vector/fp32": 10, "hbm": 10}, None, location='a "quoted", line'),
        op("unrated", {"matrix/int4": 10}, 8.0),
        op('=SUM(A1) </script> "x"\nü', {"vector/fp32": 10, "hbm": 1}, 1e-7, category="loop fusion"),
    )
    devices = (Device(id=0, name="odd", host="left"), Device(id=1, name="odd", host="right"))
    steps = tuple(Step(step=key, name="train", number=10 + key, time_s=60.0, busy_s=50.0) for key in (0, 1))
    return analyze(Recording(workload=Workload(ops), format="table", devices=devices, steps=steps), machine)


def answers(report: Report) -> dict[str, Any]:
    """Python's chart, groups, CSV and filters of a report."""
    drawn = chart(report)
    return {
        "report": json.loads(to_json(report)),
        "chart": json.loads(to_json(drawn)),
        "caption": drawn.caption,
        "groups": {by: json.loads(to_json(group(report.ops, by=by))) for by in KEYS},
        "scopes": json.loads(to_json(group(report.ops, by="scope", depth=2))),
        "each": [[op.id, op.time_s] for op in per_step(report) or ()],
        "filters": {text: [op.id for op in filtered(report.ops, text)] for text in FILTERS},
        "parts": [[choice, json.loads(to_json(narrow(report, **_as_given(choice))))] for choice in _choices(report)],
    }


def _choices(report: Report) -> list[dict[str, int | str]]:
    """Two steps, the devices, their hosts, and a step on a device where a report has the times of both at once."""
    steps = [0, 1] if report.by_step else []
    devices = sorted({share.device for share in report.by_device})[:2]
    hosts = dict.fromkeys(one.host for one in report.input.devices if one.host and report.by_device)
    both = [{"step": step, "device": device} for step in steps for device in devices] if report.by_step_and_device else []
    return [*({"step": step} for step in steps), *({"device": id} for id in devices), *({"host": host} for host in hosts), *both]


def _as_given(choice: dict[str, int | str]) -> dict[str, Any]:
    return {key: value if key == "host" else [value] for key, value in choice.items()}


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of reports with Python's answers, for node."""
    folder = tmp_path_factory.mktemp("page_cases")
    for name, report in [*((name, report_of(name)) for name in CAPTURES), ("odd", odd())]:
        (folder / f"report-{Path(name).name}.json").write_text(json.dumps(answers(report)))
    others = [
        path for kind in ("h200/*.xplane.pb*", "cpu/*.xplane.pb*", "ncu_probe_*.csv.gz") for path in sorted((HERE / "data").glob(kind))
    ]
    for name in (str(path.relative_to(HERE / "data")) for path in others):
        if name not in CAPTURES:
            (folder / f"capture-{Path(name).name}.json").write_text(json.dumps({"report": json.loads(to_json(report_of(name)))}))
    pairs = [("jax_train", "jax_custom"), ("jax_attention", "jax_attention"), ("jax_mix", "jax_train")]
    for number, (before, after) in enumerate(pairs):
        both = [report_of(f"h200/{name}.xplane.pb.gz") for name in (before, after)]
        made = {
            "before": json.loads(to_json(both[0])),
            "after": json.loads(to_json(both[1])),
            "comparison": json.loads(to_json(compare(*both))),
        }
        (folder / f"pair-{number}.json").write_text(json.dumps(made))
    (folder / "law-hypothesis.json").write_text(json.dumps({"found": _found()}))
    for name in PROGRAMS:
        on = {chip: analyze(HERE / "data" / "tpu" / f"{name}.hlo.gz", load(chip)) for chip in ("v5e", "v5p")}
        # On its own chip the schedule was played, so the needed work has a share of a time; on another its minimum is known alone.
        minimum = {"v5e": on["v5e"].points[0].at_roof_s, "v5p": on["v5p"].points[0].floors_s}
        made = {"report": json.loads(to_json(on["v5e"])), "minimum": minimum}
        (folder / f"program-{name}.json").write_text(json.dumps(made))
    everything = json.loads(catalogue_json(describe(one) for one in catalogue()))
    (folder / "catalogue-all.json").write_text(json.dumps({"packed": everything}))
    (folder / "themes-all.json").write_text(json.dumps({"themes": [_colours(theme) for theme in THEMES.values()]}))
    (folder / "vocabulary.json").write_bytes(vocabulary_json())
    return folder


def _colours(theme: Theme) -> dict[str, Any]:
    """The colours of a theme of the figures, and those of hardware units in it."""
    units = (None, "latency", *sorted({Resource(name).unit for name in RESOURCES}))
    same = {key: getattr(theme, key) for key in ("name", "background", "ink", "muted", "grid", "series")}
    return {**same, "units": [(unit, theme.of_unit(unit)) for unit in units]}


def _found() -> list[dict[str, Any]]:
    """Cases of the law that hypothesis thinks of: it likes edges."""
    found: list[dict[str, Any]] = []
    amounts = st.sampled_from(AMOUNTS) | st.none() | st.floats(0, 1e20) | st.integers(0, 2**53)
    machines, costs = st.sampled_from(sorted(RATES)), st.dictionaries(st.sampled_from(RESOURCES), amounts, max_size=6)
    times = st.sampled_from(TIMES) | st.none() | st.floats(0, 1e9)

    @settings(max_examples=250, phases=[Phase.generate], derandomize=True, database=None)
    @given(st.tuples(machines, costs, times, st.sampled_from(LAUNCHES), st.sampled_from(LEVELS)))
    def collect(case: tuple[Any, ...]) -> None:
        found.append(placed(*case))

    collect()
    return found


def _node() -> str:
    return node() or pytest.fail(NO_NODE)


@pytest.mark.parametrize("name", TESTS)
def test_the_pages_modules_say_what_python_says(name: str, cases: Path) -> None:
    ran = _run(cases, "--test", "--test-reporter=spec", str(HERE / "page" / name))
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def _run(cases: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [_node(), "--import", str(HERE / "page" / "document.mjs"), *words]
    env = {**os.environ, "ROOFLINE_PAGE_CASES": str(cases), "NODE_OPTIONS": ""}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_every_module_of_the_pages_logic_has_a_test() -> None:
    tested = {name.removesuffix(".test.mjs") for name in TESTS}
    assert tested >= {"chart_model", "chosen", "colours", "csv", "filter", "law", "rows", "scale", "state", "svg", "units"}


def test_the_vectors_are_what_python_says() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: PYTHONPATH=tests python tests/page_vectors.py"


def test_the_catalogue_on_the_page_is_small_and_has_every_ceiling() -> None:
    machines = [view for one in catalogue() for view in ([one] if one.devices == 1 else [one, one.per_device()])]
    made = catalogue_json(describe(one) for one in machines)
    assert len(made) < 70_000  # bytes: a page is 400 KB beside its data
    packed = json.loads(made)
    found = {one["name"]: one for one in packed["chips"]}
    assert set(found) == {one.name for one in machines}
    for one in machines:
        assert {name: rate for name, rate, _ in found[one.name]["ceilings"]} == {c.resource.name: c.rate for c in one.ceilings}
    assert all(provenance and len(citation) <= 48 for provenance, citation in packed["sources"])


def test_the_pages_logic_is_small() -> None:
    whole = re.compile(r"^\s*(?:/\*\*.*?\*/|//[^\n]*)\n", re.MULTILINE | re.DOTALL)  # comments, which the page leaves out
    names = {name.removesuffix(".test.mjs") for name in TESTS}
    assert sum(len(whole.sub("", (STATIC / f"{name}.js").read_text()).encode()) for name in names) < 110_000


def test_the_words_of_the_page_cover_what_python_has() -> None:
    assert {key for key, _ in GROUPINGS} == set(KEYS)


def test_every_filter_on_the_doc_page_can_be_read(cases: Path) -> None:
    page = (HERE.parent / "docs" / "filter.md").read_text()
    written = [code for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for code in re.findall(r"`([^`]+)`", row)]
    assert len(written) > 12
    script = f"""import {{ parse }} from {json.dumps(str(STATIC / "filter.js"))};
    for (const text of {json.dumps(written)}) if (parse(text).problem) throw new Error(text + ": " + parse(text).problem.message);"""
    ran = _run(cases, "--input-type=module", "-e", script)
    assert ran.returncode == 0, ran.stderr
