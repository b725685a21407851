"""A report in a notebook: its page in a frame of its own, a figure where scripts may not run, text in a terminal."""

import html
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from browser.programs import PATIENCE_MS, chromium
from own_thread import in_own_thread
from roofline.analysis import analyze
from roofline.cost import Cost
from roofline.integrations import notebook
from roofline.machine import Machine
from roofline.machines.detection import of_device
from roofline.report import Report
from roofline.sources import read
from roofline.workload import Op, Recording, Workload
from toys import toy

DATA = Path(__file__).parent / "data" / "h200"
CODE = {"VSCODE_PID": "17"}


@cache
def fusion() -> Report:
    recording = read(DATA / "jax_fusion.xplane.pb")
    return analyze(recording, of_device(recording.devices[0]))


def _report(*names: str, machine: Machine | None = None) -> Report:
    ops = [Op(name=name, cost=Cost.of({"matrix/bf16": 50, "hbm": 10}), time_s=2.0) for name in names]
    return analyze(Recording(workload=Workload(tuple(ops)), format="table"), machine or toy())


def _document(cell: str) -> str:
    """The page in the frame of an output cell."""
    (found,) = re.findall(r"srcdoc='([^']*)'", cell)
    return html.unescape(found)


def _embedded(cell: str) -> dict:
    (data,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', _document(cell), re.DOTALL)
    return json.loads(data)


def _elements(text: str) -> list[str]:
    """The elements that a browser sees."""
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append(tag)  # type: ignore[method-assign]
    parser.feed(text)
    return found


def test_a_report_shows_itself_as_page_and_as_text() -> None:
    shown = notebook.bundle(fusion())
    assert set(shown) == {"text/html", "text/plain"}
    assert "jax_programs.py:109  mul bf16[32,2048,4096]" in shown["text/plain"]
    assert len(shown["text/plain"].splitlines()) < 80  # not the repr of every op


def test_the_frame_is_closed_off_and_holds_the_very_report() -> None:
    cell = notebook.to_html(fusion(), {})
    assert cell.startswith("<iframe ")
    (sandbox,) = re.findall(r"sandbox='([^']*)'", cell)
    # With the notebook's own origin a page could act in the reader's name.
    assert "allow-same-origin" not in sandbox
    assert "allow-scripts" in sandbox
    assert len(_embedded(cell)["ops"]) == len(fusion().ops)


def test_hostile_names_cannot_leave_the_attribute_or_the_table() -> None:
    name = "a'b\"c</script></iframe><img src=x onerror=alert(1)>&amp;"
    report = _report(name)
    cell = notebook.to_html(report, {})
    assert _elements(cell) == ["iframe"]
    assert _embedded(cell)["ops"][0]["name"] == name
    assert "img" not in _elements(notebook.to_html(report, CODE))


def test_where_scripts_may_not_run_a_figure_and_a_table_stand_in() -> None:
    cell = notebook.to_html(fusion(), CODE)
    assert "<iframe" not in cell
    assert "<script" not in cell
    assert "<svg" in cell
    assert "jax_programs.py:109  mul bf16[32,2048,4096]" in cell.partition("<table>")[2]


@pytest.mark.browser
def test_the_figure_has_the_colours_of_the_editor(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    from roofline.render.plot.style import DARK, LIGHT

    cell = notebook.to_html(fusion(), CODE)
    assert set(re.findall(r"(?<!, )#[0-9a-f]{6}", cell.partition("<table>")[0].partition("<svg")[2])) == set(), (
        "a colour of one theme alone"
    )
    expected = {}
    for kind, theme in (("vscode-light", LIGHT), ("vscode-dark", DARK), ("vscode-high-contrast", DARK)):
        file = tmp_path / f"{kind}.html"
        file.write_text(f"<!doctype html><meta charset=utf-8><body class={kind}>{cell}", "utf-8")
        expected[file.as_uri()] = f"rgb{tuple(int(theme.background[at : at + 2], 16) for at in (1, 3, 5))}"
    browser = _chromium()
    assert in_own_thread(lambda: _fills(playwright, browser, expected, "#patch_1 path")) == expected


@contextmanager
def _page(playwright: Any, chromium: str) -> Iterator[Any]:
    """A page of a browser."""
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, timeout=PATIENCE_MS)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page
        browser.close()


def _fills(playwright: Any, chromium: str, addresses: Iterable[str], selector: str) -> dict[str, str]:
    """The colour that an element is filled with, by the page's address."""
    found = {}
    with _page(playwright, chromium) as page:
        for address in addresses:
            page.goto(address)
            found[address] = str(page.locator(selector).first.evaluate("one => getComputedStyle(one).fill"))
    return found


def _chromium() -> str:
    found = in_own_thread(chromium)
    return str(found or pytest.skip("no chromium"))


def test_large_reports_keep_their_longest_ops_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "MOST_OPS", 3)
    cell = notebook.to_html(fusion(), {})
    kept = _embedded(cell)
    assert [op["rank"] for op in kept["ops"]] == [1, 2, 3]
    ids = {op["id"] for op in kept["ops"]}
    assert {share["op"] for share in kept["by_step"]} <= ids
    assert all(set(finding["ops"]) <= ids for finding in kept["findings"])
    assert f"The longest 3 of {len(fusion().ops)} ops" in cell


def test_a_value_imports_no_view_until_it_is_shown() -> None:
    import subprocess
    import sys

    code = "import roofline.report, sys; assert not {'roofline.integrations.notebook', 'roofline.render', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.browser
def test_the_page_works_inside_its_frame(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    browser = _chromium()
    (tmp_path / "cell.html").write_text(f"<!doctype html><meta charset=utf-8><body>{notebook.to_html(fusion(), {})}", "utf-8")
    assert in_own_thread(lambda: _faults(playwright, browser, (tmp_path / "cell.html").as_uri())) == []


def _faults(playwright: Any, chromium: str, address: str) -> list[str]:
    """What a browser complains about while the page is opened and a choice is made in it."""
    faults: list[str] = []
    with _page(playwright, chromium) as page:
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.goto(address)
        frame = page.frame_locator("iframe")
        frame.get_by_text("loop_multiply_fusion").first.wait_for()
        frame.get_by_text("Program", exact=True).first.click()  # a choice that a page of its own would note in its address
        page.wait_for_timeout(400)
    return faults
