"""The timeline of the page: a strip a device, what ran in a bucket, and a stretch that filters the table and the chart."""

import re

import pytest
from playwright.sync_api import Page, expect
from reading import Opener, at, report, settled, state, violations


def drag(page: Page, begin: float, end: float) -> None:
    """From one place of the strip to another, both as shares of its width."""
    box = at(page, "timeline-plot").bounding_box()
    assert box is not None
    high = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], high)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], high, steps=5)
    page.mouse.up()


def ran(page: Page, first: int, last: int, lane: int = 0) -> set[int]:
    """The ops that a lane of the report lists in some buckets."""
    return {op for bucket in report(page)["timeline"][lane]["ops"][first : last + 1] for op in bucket}


def test_each_device_has_a_strip_with_a_colour_for_each_cause(show: Opener) -> None:
    page = show("timeline")
    lane = report(page)["timeline"][0]
    strips = page.locator("[data-testid=timeline] svg.lane")
    expect(strips).to_have_count(1)
    drawn = strips.locator("path").evaluate_all("paths => paths.map(path => path.dataset.cause)")
    assert sorted(drawn) == sorted(["needed", *(cause for cause in lane["causes"] if cause != "idle")])
    fills = strips.locator("path").evaluate_all("paths => paths.map(path => path.getAttribute('fill'))")
    assert len(set(fills)) == len(fills)
    expect(at(page, "timeline-step")).to_have_attribute("aria-pressed", "true")
    four = show("four_devices")
    expect(four.locator("[data-testid=timeline] svg.lane")).to_have_count(4)
    expect(four.locator(".lane-name")).to_have_text([f"device {number}" for number in range(4)])


def test_the_host_is_above_what_is_idle_in_the_colours_of_its_reasons(show: Opener) -> None:
    page = show("slow_input")
    lane = report(page)["timeline"][0]
    strip = page.locator("[data-testid=timeline] svg.host-lane")
    expect(strip).to_have_count(1)
    drawn = strip.locator("path").evaluate_all("paths => paths.map(path => Number(path.dataset.reason))")
    assert set(drawn) <= {place for place in lane["host"] if place is not None}
    expect(at(page, "timeline-legend")).to_contain_text("programs.py:42")
    bucket = lane["host"].index(0)
    box = at(page, "timeline-plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + (bucket + 0.5) / len(lane["host"]) * box["width"], box["y"] + 4)
    expect(at(page, "timeline-card")).to_contain_text("while idle: host in Python")
    expect(at(page, "timeline-plot")).to_have_attribute("aria-valuetext", re.compile("while idle: host in Python"))
    expect(show("scan").locator("svg.host-lane")).to_have_count(0)


def test_a_report_without_a_timeline_has_no_strip(show: Opener) -> None:
    expect(at(show("scan"), "timeline")).to_be_hidden()


def test_hovering_shows_what_ran_in_the_bucket(show: Opener) -> None:
    page = show("timeline")
    lane = report(page)["timeline"][0]
    bucket = next(place for place, ops in enumerate(lane["ops"]) if len(ops) == 2)
    box = at(page, "timeline-plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + (bucket + 0.5) / len(lane["ops"]) * box["width"], box["y"] + 10)
    ops = {op["id"]: op for op in report(page)["ops"]}
    card = at(page, "timeline-card")
    expect(card).to_be_visible()
    assert card.locator("table bdi").count() == 2
    for op in lane["ops"][bucket]:
        whole = " ".join((ops[op]["label"] or ops[op]["name"]).split())
        assert any(text.split("…")[0] in whole for text in card.locator("table bdi").all_inner_texts())
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()


def test_dragging_over_a_stretch_keeps_the_ops_that_ran_there_until_it_is_cleared(show: Opener) -> None:
    page = show("timeline", "folded=0")
    everything = len(report(page)["ops"])
    drag(page, 0.3, 0.36)
    first, last = state(page)["stretch"]
    assert 295 <= first <= 305
    assert 355 <= last <= 365
    settled(page)
    wanted = ran(page, first, last)
    assert 0 < len(wanted) < everything
    shown = page.locator("[data-testid=table] .rows [role=row]").evaluate_all("rows => rows.map(row => Number(row.dataset.id))")
    assert set(shown) == wanted
    expect(at(page, "timeline-chosen")).to_contain_text(f"{len(wanted)} ops ran")
    expect(at(page, "timeline-stretch")).to_be_visible()
    expect(at(page, "count")).to_contain_text(f"{len(wanted)} rows")
    at(page, "timeline-clear").click()
    assert state(page)["stretch"] is None
    expect(at(page, "timeline-stretch")).to_be_hidden()
    expect(at(page, "count")).to_contain_text(f"{everything} rows")


def test_a_stretch_is_in_the_address_and_goes_with_another_time(show: Opener) -> None:
    page = show("timeline", "stretch=100-200")
    expect(at(page, "timeline-chosen")).to_contain_text(f"{len(ran(page, 100, 200))} ops ran")
    at(page, "timeline-run").click()
    expect(at(page, "timeline-run")).to_have_attribute("aria-pressed", "true")
    assert (state(page)["timeline"], state(page)["stretch"]) == ("run", None)
    expect(at(page, "timeline-clear")).to_be_hidden()


def test_keys_move_select_and_clear(show: Opener) -> None:
    page = show("timeline", "folded=0")
    plot = at(page, "timeline-plot")
    plot.focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("ArrowRight")
    expect(plot).to_have_attribute("aria-valuenow", "52")
    assert "mostly" in (plot.get_attribute("aria-valuetext") or "")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    assert state(page)["stretch"] == [51, 54]
    expect(at(page, "count")).to_contain_text(f"{len(ran(page, 51, 54))} row")
    page.keyboard.press("Escape")
    assert state(page)["stretch"] is None


def test_a_chosen_device_shows_its_lane_alone(show: Opener) -> None:
    page = show("four_devices", "device=2")
    expect(page.locator("[data-testid=timeline] svg.lane")).to_have_count(1)
    assert page.locator("[data-testid=timeline] svg.lane").get_attribute("data-lane") == "device 2"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "fragment"), [("slow_input", "stretch=100-200"), ("four_devices", "timeline=run")])
def test_axe_finds_nothing(show: Opener, name: str, fragment: str, scheme: str) -> None:
    assert violations(show(name, fragment, color_scheme=scheme), scheme, "[data-testid=timeline]") == []


def test_the_strip_fits_a_phone(show: Opener) -> None:
    page = show("timeline", viewport={"width": 390, "height": 844})
    box = at(page, "timeline").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("name", ["timeline", "slow_input"])
def test_the_times_along_a_narrow_strip_have_room(show: Opener, name: str) -> None:
    page = show(name, viewport={"width": 320, "height": 844})
    axis = page.locator(".lane-axis").bounding_box()
    ticks = page.locator(".lane-tick").evaluate_all(
        "ticks => ticks.map(tick => tick.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    assert axis is not None
    assert len(ticks) >= 2
    ends = [left for left, _ in ticks[1:]] + [axis["x"] + axis["width"]]
    assert all(right <= end for (_, right), end in zip(ticks, ends, strict=True))
