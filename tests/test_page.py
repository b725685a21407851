"""The page: one file that holds exactly the report, asks the network for nothing, and shows names as text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline import chip, compare
from roofline.analysis import analyze, price
from roofline.cli import main
from roofline.cost import Cost
from roofline.formulas import matmul
from roofline.render.export import to_json
from roofline.render.page import large_reports
from roofline.render.page.html import Live, escaped, live_policy, modules, page, part
from roofline.render.page.report_page import catalogue, comparison_page, report_page, title_of
from roofline.report import InputInfo, MachineInfo, OpInfo, Report
from roofline.workload import Op, Recording, Workload

HOSTILE = ["</script><script>alert(1)</script>", "<!--<script>", "\"'`", "\u202eleft\u202c", "x" * 10_000, "]]>", "\u2028"]


class Elements(HTMLParser):
    """What a browser would make of a page: its scripts by id and the attributes of every element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.started: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.started.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.started and self.started[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)

    def block(self, name: str) -> str:
        return next(text for attributes, text in self.scripts if attributes.get("id") == name)

    def policy(self) -> str:
        return next(
            str(one["content"]) for tag, one in self.started if tag == "meta" and one.get("http-equiv") == "Content-Security-Policy"
        )


def matmuls(*names: str) -> Report:
    """A report with ops of these names."""
    found = price([matmul(64, 64, 64)], chip("h100"))
    ops = tuple(OpInfo(id=number, rank=number + 1, name=name, category=name) for number, name in enumerate(names))
    return Report(input=InputInfo(format="table", files=names), machine=found.machine, ops=ops)


@every("report", [matmuls("fusion.1"), matmuls(*HOSTILE), matmuls()])
def test_the_page_holds_exactly_the_bytes_of_the_json_report(report: Report) -> None:
    held = Elements(report_page(report)).block("report")
    assert json.loads(held) == json.loads(to_json(report))
    # The escapes are JSON's own, so that a browser reads the same values without undoing them.
    assert json.loads(held) == json.loads(to_json(report))


@every("character", ["\x7f", "\x9b", "\u061c", "\u200b", "\u202e", "\u2067", "\ufeff"])
def test_characters_that_reorder_or_hide_text_are_not_in_the_page(character: str) -> None:
    report = matmuls(f"a{character}b")
    for made in (report_page(report, title=f"a{character}b"), comparison_page(report, report)):
        assert character not in made
    assert json.loads(Elements(report_page(report)).block("report"))["ops"][0]["name"] == f"a{character}b"


@given(st.text() | st.lists(st.sampled_from(["<", "/", "!--", "\\", "a"])).map("".join))
def test_any_text_survives_the_escape(text: str) -> None:
    written = to_json({"name": text})
    assert json.loads(escaped(written)) == json.loads(written)
    assert "</" not in escaped(written)
    assert "<!--" not in escaped(written)


def test_hostile_names_open_no_element() -> None:
    # Every element of the page stands in the template or is one of its scripts; names add none, in the title or anywhere.
    plain, hostile = (Elements(report_page(report, title=report.ops[0].name)) for report in (matmuls("a"), matmuls(*HOSTILE)))
    assert [tag for tag, _ in hostile.started] == [tag for tag, _ in plain.started]


def test_the_page_stays_below_410_kb_plus_its_data() -> None:
    report = matmuls("fusion.1")
    assert len(report_page(report).encode()) - len(to_json(report)) < 410_000


def test_the_policy_of_the_file_allows_its_own_parts_by_hash_and_no_network() -> None:
    found = Elements(report_page(matmuls("fusion.1")))
    policy = found.policy()
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    for attributes, text in found.scripts:
        if attributes["type"] in ("importmap", "module"):
            assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy, attributes
    style = part("page.css")
    assert f"style-src 'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" in policy


def test_nothing_in_the_page_points_outside_it() -> None:
    for tag, attributes in Elements(report_page(matmuls("fusion.1"))).started:
        for name in ("src", "href"):
            # The icon is an empty data URL and the link to the chart a fragment: neither is fetched.
            assert attributes.get(name) in (None, "data:,", "#main"), (tag, attributes)
        assert "style" not in attributes, "an inline style would need a weaker policy"


def test_every_module_is_in_the_import_map_and_every_import_finds_one() -> None:
    imports = json.loads(
        next(text for attributes, text in Elements(page(b"{}", words=b"{}", title="")).scripts if attributes["type"] == "importmap")
    )["imports"]
    assert sorted(imports) == [f"#page/{name}" for name in modules()]
    for name in modules():
        for wanted in re.findall(r'from "([^"]+)"', part(name)):
            assert wanted in imports, f"{name} imports {wanted}"


def test_no_module_makes_markup_out_of_text() -> None:
    for name in modules():
        assert not re.search(r"\binnerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\b", part(name)), name
        assert not re.search(r'setAttribute\("style"', part(name)), f"{name}: a strict policy forbids it; use element.style"


def test_no_text_in_a_module_runs_over_several_lines() -> None:
    # The file carries the modules without whole lines of comment; a text over several lines that looked like one would be cut.
    for name in modules():
        for number, line in enumerate(part(name).splitlines(), start=1):
            code = re.sub(r"^\s*(/?\*|//).*", "", line)
            assert code.count("`") % 2 == 0, f"{name}:{number} opens a text and does not close it"


def test_the_colours_of_the_stylesheet_are_those_of_the_figures() -> None:
    from roofline.render.plot.style import DARK, LIGHT

    light, dark = part("page.css").split('[data-theme="dark"]', 1)
    for sheet, theme in ((light, LIGHT), (dark.split("}", 1)[0], DARK)):
        for colour in (theme.background, theme.ink, theme.muted, theme.grid, theme.memory, theme.compute, theme.good):
            assert colour in sheet


def test_a_live_page_loads_its_parts_from_the_server_and_says_where_that_is() -> None:
    live = Live(nonce="abc", twin="/runs/one.json", events="/events")
    found = Elements(page(b"{}", words=b"{}", title="one", live=live))
    scripts = [attributes for attributes, _ in found.scripts if attributes["type"] in ("importmap", "module")]
    assert [one["nonce"] for one in scripts] == ["abc", "abc"]
    assert json.loads(found.scripts[0][1])["imports"]["#page/app.js"] == "/static/app.js"
    told = next(one for tag, one in found.started if tag == "meta" and one.get("name") == "roofline-live")
    assert (told["data-home"], told["data-twin"], told["data-events"]) == ("/", "/runs/one.json", "/events")
    assert not any(one.get("http-equiv") == "Content-Security-Policy" for _, one in found.started), "the server's header says it"
    assert "unsafe" not in live_policy("abc")


def test_two_runs_stand_in_one_page_with_their_comparison() -> None:
    before, after = matmuls("a", "b"), matmuls("b", "c")
    found = Elements(comparison_page(before, after))
    assert json.loads(found.block("report")) == json.loads(to_json(after))
    assert json.loads(found.block("before")) == json.loads(to_json(before))
    ways = {(tuple(one["before"]["ops"]), tuple(one["after"]["ops"])) for one in json.loads(found.block("comparison"))["deltas"]}
    assert ways == {(delta.before.ops, delta.after.ops) for delta in compare(before, after).deltas}
    assert ((1,), (0,)) in ways, "b is op 1 before and op 0 after"


def test_the_catalogue_in_the_page_has_every_chip_with_its_roofs() -> None:
    from roofline.machines import names

    packed = json.loads(catalogue())
    assert [one["name"] for one in packed["chips"]] == list(names())
    assert all(rate > 0 and packed["sources"][source][0] for one in packed["chips"] for _, rate, source in one["ceilings"])


def test_a_page_is_called_after_its_file_or_its_machine() -> None:
    machine = MachineInfo(name="toy", title="A toy", ceilings=())
    profiler = ("gpt/plugins/profile/2026_01_01/host0.pb", "gpt/plugins/profile/2026_01_01/host1.pb")
    named = {("run/a.pb",): "a.pb", ("a.pb", "b.pb", "c.pb"): "a.pb and 2 more", profiler: "gpt", (): "A toy"}
    for files, title in named.items():
        assert title_of(Report(input=InputInfo(format="table", files=files), machine=machine)) == title


@every(
    ("before", "after", "title"),
    [
        ("one/host.pb", "two/host.pb", "one → two"),
        ("log/plugins/profile/monday/host.pb", "log/plugins/profile/tuesday/host.pb", "monday → tuesday"),
        ("one/plugins/profile/monday/host.pb", "two/plugins/profile/monday/host.pb", "one → two"),
        ("a.pb", "b.pb", "a.pb → b.pb"),
        ("a.pb", "a.pb", "a.pb → a.pb"),
    ],
)
def test_two_runs_on_one_host_have_different_names_in_a_comparison(before: str, after: str, title: str) -> None:
    machine = MachineInfo(name="toy", title="A toy", ceilings=())
    reports = [Report(input=InputInfo(format="table", files=(file,)), machine=machine) for file in (before, after)]
    assert f"<title>{title}</title>" in comparison_page(*reports)


def test_the_command_line_writes_the_page_beside_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html, data = tmp_path / "matmul.html", tmp_path / "matmul.json"
    assert main(["op", "matmul", "64", "64", "64", "--chip", "h100", "-o", str(html), "--json", str(data)]) == 0
    assert "wrote" in capsys.readouterr().err
    assert json.loads(Elements(html.read_text()).block("report")) == json.loads(data.read_bytes())


def test_the_command_line_compares_two_reports_in_one_page(tmp_path: Path) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json", tmp_path / "both.html"]
    for file, size in zip(files, ("64", "128"), strict=False):
        main(["op", "matmul", size, size, size, "--chip", "h100", "--json", str(file)])
    assert main(["compare", *map(str, files[:2]), "-o", str(files[2])]) == 0
    found = Elements(files[2].read_text())
    assert json.loads(found.block("before")) == json.loads(files[0].read_bytes())
    assert json.loads(found.block("report")) == json.loads(files[1].read_bytes())


def test_a_command_without_a_page_refuses_one_before_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "-o", "chips.html"]) == 2
    assert "not a figure format; use .svg, .png, .pdf" in capsys.readouterr().err


def test_a_page_of_very_many_ops_has_the_longest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_reports, "MOST_OPS", 2)
    ops = [Op(name=f"copy.{number}", cost=Cost.of({"hbm": 10.0}), time_s=float(number)) for number in (1, 2, 3, 4)]
    report = analyze(Recording(workload=Workload(tuple(ops)), format="table"), "h100")
    held = json.loads(Elements(report_page(report)).block("report"))
    assert [op["name"] for op in held["ops"]] == ["copy.4", "copy.3"]
    # 4 + 3 of 1 + 2 + 3 + 4 seconds.
    assert held["input"]["notes"][-1].startswith("the page has the longest 2 of 4 ops, 70% of the time of all; --json")
    assert {op for finding in held["findings"] for op in finding["ops"]} <= {2, 3}
    assert all({*fold["ops"]} <= {2, 3} for fold in held["folds"])
    assert held["points"][0]["time_s"] == 10.0  # the program is whole


def test_a_page_of_two_reports_of_very_many_ops_has_the_longest_and_the_largest_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(large_reports, "MOST_OPS", 2)
    for name, times in (("before.csv", (1, 2, 3, 4)), ("after.csv", (1, 2, 9, 5))):
        rows = "".join(f"copy.{number},{time_s},10\n" for number, time_s in enumerate(times))
        (tmp_path / name).write_text(f"name,time,hbm\n{rows}")
    words = [str(tmp_path / name) for name in ("before.csv", "after.csv")]
    assert main(["compare", *words, "-o", str(tmp_path / "both.html")]) == 0
    said = capsys.readouterr().err
    assert f"{words[0]}: the page has the longest 2 of 4 ops" in said
    assert f"{words[1]}: the page has the longest 2 of 4 ops" in said
    found = Elements((tmp_path / "both.html").read_text())
    before, after, comparison = (json.loads(found.block(name)) for name in ("before", "report", "comparison"))
    assert [op["name"] for op in before["ops"]] == ["copy.3", "copy.2"]
    assert [op["name"] for op in after["ops"]] == ["copy.2", "copy.3"]
    assert [(delta["name"], delta["change_s"]) for delta in comparison["deltas"]] == [("copy.2", 6.0), ("copy.3", 1.0)]
    assert comparison["change_s"] == 7.0  # the whole
    assert comparison["notes"][-1].startswith("the page has the largest 2 of 4 changes; --json")


def test_a_page_of_few_ops_has_the_report_as_it_is() -> None:
    report = matmuls("fusion.1")
    assert large_reports.shortened(report) is report
    assert large_reports.left_out(report) == ""
