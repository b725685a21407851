"""Two runs on one chart: arrows from before to after, and a table of what became of each op."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from msgspec import convert
from playwright.sync_api import expect
from reading import Opener, at, column, count, download, report, rows, settled, state

from roofline.comparison.values import Figure
from roofline.render.comparison import figure_cells


def test_the_svg_has_an_arrow_for_each_op_that_moved(show: Opener, tmp_path: Path) -> None:
    page = show("slower")

    def lines() -> int:
        svg = ElementTree.fromstring(download(page, "export-svg", tmp_path).read_text())
        return sum(1 for element in svg.iter() if element.tag.endswith(("line", "path")))

    with_arrows = lines()
    at(page, "arrows").uncheck()
    settled(page)
    matched = sum(1 for delta in report(page, "comparison")["deltas"] if delta["before"]["ops"] and delta["after"]["ops"])
    assert 0 < with_arrows - lines() <= 3 * matched  # a shaft and at most two strokes of a head


def test_the_differences_are_those_of_the_command(show: Opener) -> None:
    page = show("compare")
    at(page, "tab-compare").click()
    found = report(page, "comparison")
    figures = at(page, "difference-summary").locator("tbody tr")
    expect(figures.locator("th")).to_have_text([figure_cells(convert(figure, Figure), found["per"])[0] for figure in found["figures"]])
    expect(figures.first.locator("td").last).to_contain_text("+" if found["figures"][0]["change"] > 0 else "−")
    expect(rows(page, "difference-table").first).to_be_visible()
    # What became slower comes first.
    changes = [delta for delta in found["deltas"] if (delta["change_s"] or 0) > 0] or found["deltas"]
    first = column(page, "name", "difference-table")[0].split("…")[0]
    assert first
    assert max(changes, key=lambda one: abs(one["change_s"] or 0))["name"].startswith(first)
    assert len(found["deltas"]) == int(page.locator("[data-testid=difference-table]").get_attribute("aria-rowcount") or 0) - 1


def test_figures_come_before_how_ops_were_matched_and_names_have_room(show: Opener) -> None:
    page = show("compare", "tab=compare")
    headings = page.locator("[data-testid=difference-table] [role=columnheader] button")
    keys = [one.get_attribute("data-column") for one in headings.all()]
    assert keys[0] == "label"
    assert keys[-4:] == ["name", "category", "module", "matched"]
    table = at(page, "difference-table").bounding_box()
    name = page.locator("[data-testid=difference-table] [role=columnheader]").first.bounding_box()
    assert table is not None
    assert name is not None
    assert name["width"] >= min(0.3 * table["width"], 420)


def test_a_difference_selects_its_op(show: Opener) -> None:
    page = show("compare", "tab=compare")
    found = report(page, "comparison")
    index, delta = next((number, delta) for number, delta in enumerate(found["deltas"]) if delta["after"]["ops"])
    page.locator(f"[data-testid=difference-table] [role=row][data-id='{index}']").click()
    assert state(page)["selected"] == delta["after"]["ops"]


def test_both_reports_stand_in_the_page(show: Opener, tmp_path: Path) -> None:
    page = show("compare")
    before, after = (json.loads(download(page, f"export-{name}", tmp_path).read_text()) for name in ("before", "json"))
    assert (before["schema"], after["schema"]) == ("roofline.report/1", "roofline.report/1")
    assert before != after
    assert count(page) == len(after["ops"])


def test_every_figure_is_before_and_after_and_the_verdict_is_above_the_fold(show: Opener) -> None:
    page = show("slower", viewport={"width": 1440, "height": 900})
    box = at(page, "verdict").bounding_box()
    assert box is not None
    assert box["y"] < 200
    expect(at(page, "verdict")).to_contain_text("→")
    old, new = (
        next(point for point in report(page, id)["points"] if point["scope"] in ("average", "total")) for id in ("before", "report")
    )
    expect(at(page, "figure-time")).to_contain_text(f"{1000 * old['time_s']:.3g} → {1000 * new['time_s']:.3g} ms")
    expect(at(page, "figure-hfu")).to_contain_text(" → ")
    expect(page.locator("[data-testid=time-bar] .stack")).to_have_count(2)
    figures = page.locator("[data-testid=figures] > div").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert len(set(figures)) == 1, "all in one row"


def test_arrows_have_a_legend_and_a_threshold(show: Opener) -> None:
    expect(at(show("compare"), "legend")).not_to_contain_text("changes above")  # no op of these two changed by 1% of the time
    page = show("slower")
    expect(at(page, "legend")).to_contain_text("changes above 1% of the time")
    at(page, "arrows").uncheck()
    expect(at(page, "legend")).not_to_contain_text("changes above")


def test_a_page_of_one_run_has_nothing_to_compare(show: Opener) -> None:
    page = show("scan")
    assert at(page, "tab-compare").count() == 0
    assert at(page, "arrows").count() == 0
    assert not re.search("before", at(page, "chart-controls").inner_text())
