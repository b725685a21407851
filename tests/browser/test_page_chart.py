"""The chart: what it writes, what it says on hover, how it zooms, and how roofs follow the machine."""

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from reading import Opener, at, centre, column, count, download, hover, report, rows, settled, spot, state, ticks, words, written


def window(page: Page) -> list[float]:
    """The part of the plane that is shown, once it is not all of it: the state follows the hand with a small delay."""
    page.wait_for_function("() => window.roofline.state().window !== null")
    found: list[float] = state(page)["window"]
    return found


def op_named(page: Page, name: str) -> int:
    return int(next(op["id"] for op in report(page)["ops"] if op["name"] == name))


def test_axes_and_roofs_are_written_with_their_units(show: Opener) -> None:
    said = words(show("train"))
    assert "Arithmetic intensity (FLOP per byte of HBM)" in said
    assert "Achieved FLOP/s" in said
    assert "HBM 4.814 TB/s" in said  # what the device says of itself
    assert "matrix bf16 989.4 TFLOP/s" in said


def test_the_change_of_a_finding_is_shown_beside_the_measured_ops_and_taken_back(show: Opener) -> None:
    page = show("train")
    number = next(index for index, one in enumerate(report(page)["findings"]) if one.get("predicted", {}).get("ops"))
    button, legend = at(page, f"what-if-{number}"), at(page, "legend")
    at(page, f"finding-{number}").click()
    expect(at(page, f"predicted-{number}")).to_contain_text("predicted (")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(legend).to_contain_text("predicted after the change")
    assert f"whatif={number}" in page.url
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(legend).not_to_contain_text("predicted after the change")


def test_hovering_says_everything_about_an_op(show: Opener) -> None:
    page = show("train")
    longest = report(page)["ops"][0]
    card = hover(page, longest["id"])
    expect(card).to_contain_text(longest["name"])
    expect(card).to_contain_text(longest["category"])
    said = card.inner_text()
    assert f"{1000 * longest['time_s']:.4g} ms" in said
    assert f"{100 * longest['efficiency']:.0f}%" in said
    for word in ("Time", "Minimum time", "Roofline efficiency", "Achieved", "Intensity", "Executions", "HBM"):
        assert word in said
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()


def test_hovering_over_a_roof_says_where_it_comes_from(show: Opener) -> None:
    page = show("train")
    ceiling = next(one for one in report(page)["machine"]["ceilings"] if one["resource"] == "matrix/bf16")
    page.mouse.move(*at_point(page, 3000, ceiling["rate"]))  # right of every dot
    card = at(page, "card")
    expect(card).to_contain_text("989.4 TFLOP/s")
    expect(card).to_contain_text(ceiling["provenance"])
    expect(card).to_contain_text(ceiling["citation"])


def at_point(page: Page, intensity: float, rate: float) -> tuple[float, float]:
    """Where a point of the plane is in the window, from where two ops are (their logarithms lie on a line)."""
    found: list[list[float]] = page.evaluate(
        """() => JSON.parse(document.getElementById('report').textContent).ops
            .filter(op => op.flops > 0 && op.bytes.hbm > 0 && op.time_s > 0)
            .map(op => [op, window.roofline.spot(op.id)])
            .filter(([op, spot]) => spot && !spot.outside)
            .map(([op, spot]) => [Math.log(op.flops / op.bytes.hbm), Math.log(op.flops / op.time_s), spot.x, spot.y])"""
    )
    left, right = min(found, key=lambda one: one[0]), max(found, key=lambda one: one[0])
    low, high = min(found, key=lambda one: one[1]), max(found, key=lambda one: one[1])
    x = left[2] + (right[2] - left[2]) * (math.log(intensity) - left[0]) / (right[0] - left[0])
    y = low[3] + (high[3] - low[3]) * (math.log(rate) - low[1]) / (high[1] - low[1])
    at(page, "chart").scroll_into_view_if_needed()
    box = at(page, "chart").bounding_box()
    assert box is not None
    return box["x"] + x, box["y"] + y


def test_the_wheel_zooms_about_the_mouse(show: Opener) -> None:
    page = show("train")
    before = ticks(page)
    op = report(page)["ops"][0]["id"]
    x, y = spot(page, op)
    page.mouse.move(x, y)
    for _ in range(5):
        page.mouse.wheel(0, -300)
    settled(page)
    now = spot(page, op)
    # What is under the mouse stays there, and the axes cover less of the plane.
    assert math.dist((x, y), now) < 4  # the mouse is on a whole pixel, and its distance from the dot is zoomed too
    assert ticks(page) != before
    held = window(page)
    assert held[1] / held[0] < 1000


def test_dragging_pans_and_moves_every_dot_alike(show: Opener) -> None:
    page = show("train")
    at(page, "zoom-in").click()
    at(page, "zoom-in").click()
    settled(page)
    one, other = (op["id"] for op in report(page)["ops"][:2])
    before = spot(page, one), spot(page, other)
    x, y = centre(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 30, y + 20, steps=3)
    page.mouse.move(x - 60, y + 40, steps=3)
    page.mouse.up()
    settled(page)
    after = spot(page, one), spot(page, other)
    for was, now in zip(before, after, strict=True):
        assert now[0] - was[0] == pytest.approx(-60, abs=1.5)
        assert now[1] - was[1] == pytest.approx(40, abs=1.5)


def test_a_box_zooms_to_what_is_in_it_and_reset_shows_everything_again(show: Opener) -> None:
    page = show("train")
    home = ticks(page)
    longest = report(page)["ops"][0]
    at(page, "zoom-box").click()
    expect(at(page, "zoom-box")).to_have_attribute("aria-pressed", "true")
    x, y = spot(page, longest["id"])
    page.mouse.move(x - 25, y - 15)
    page.mouse.down()
    page.mouse.move(x, y, steps=2)
    page.mouse.move(x + 25, y + 15, steps=2)
    page.mouse.up()
    held = window(page)
    assert held[0] < longest["flops"] / longest["bytes"]["hbm"] < held[1]
    assert held[2] < longest["flops"] / longest["time_s"] < held[3]
    assert math.log10(held[1] / held[0]) < 1  # a box of 50 pixels is a small part of eight decades
    assert ticks(page) != home
    at(page, "zoom-reset").click()
    page.wait_for_function("() => window.roofline.state().window === null")
    settled(page)
    assert ticks(page) == home


def test_colours_follow_the_choice_and_the_legend_says_which(show: Opener) -> None:
    page = show("train")
    legend = at(page, "legend")
    expect(legend).to_contain_text("HBM")
    at(page, "colour").select_option("category")
    expect(legend).to_contain_text("matmul")
    at(page, "colour").select_option("dtype")
    expect(legend).to_contain_text("bf16")
    expect(legend).not_to_contain_text("matmul")
    at(page, "colour").select_option("bound")
    expect(legend).to_contain_text("matrix")
    # The dot itself has the colour that the legend and the row show for its group.
    swatch = page.locator("[data-testid=table] .row[data-id] .swatch").first
    assert swatch.evaluate("one => getComputedStyle(one).backgroundColor") == legend.locator("li", has_text="matrix").locator(
        ".swatch"
    ).evaluate("one => getComputedStyle(one).backgroundColor")


def dot_colour(page: Page) -> list[int]:
    """The colour in the middle of the longest op's dot, all layers of the chart together."""
    op = report(page)["ops"][0]["id"]
    found: list[int] = page.evaluate(
        """id => {
            const surface = document.querySelector('[data-testid=chart]'), frame = surface.getBoundingClientRect();
            const dot = window.roofline.spot(id);
            const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
            for (const canvas of surface.querySelectorAll('canvas')) {
                const { left, top, width, height } = canvas.getBoundingClientRect();
                if (width) copy.drawImage(canvas, left - frame.left - dot.x, top - frame.top - dot.y, width, height);
            }
            return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        op,
    )
    return found


def test_dots_have_the_colour_of_their_group(show: Opener) -> None:
    page = show("feeds")
    at(page, "names").uncheck()
    settled(page)
    first = dot_colour(page)
    at(page, "colour").select_option("category")
    settled(page)
    assert dot_colour(page) != first


def test_the_area_of_a_dot_is_its_time(show: Opener) -> None:
    page = show("feeds")
    radii = {name: page.evaluate("id => window.roofline.spot(id).r", op_named(page, name)) for name in ("dot.1", "add.2")}
    # 10 ms and 4 ms: areas go as time, so radii as its root.
    assert radii["dot.1"] / radii["add.2"] == pytest.approx(math.sqrt(10 / 4), rel=0.02)
    at(page, "size").select_option("equal")
    settled(page)
    radii = {name: page.evaluate("id => window.roofline.spot(id).r", op_named(page, name)) for name in ("dot.1", "add.2")}
    assert radii["dot.1"] == radii["add.2"]


def test_the_level_on_the_x_axis_can_be_chosen(show: Opener) -> None:
    page = show("attention")
    offered = at(page, "level").locator("option").evaluate_all("all => all.map(one => one.value)")
    assert offered[0] == "hbm"
    assert "bound" in offered
    at(page, "level").select_option("bound")
    written(page, "FLOP per byte of each op's bottleneck")


def test_controls_without_a_choice_are_hidden_until_a_chip_gives_one(show: Opener) -> None:
    page = show("unknown_chip")
    for name in ("level", "roofs"):
        expect(at(page, name)).to_be_hidden()
    expect(at(page, "category")).to_be_visible()
    expect(at(page, "bound")).to_have_count(0)  # no op of the report has one
    at(page, "machine").click()
    at(page, "chip").select_option("h200-sxm")
    for name in ("level", "roofs"):
        expect(at(page, name)).to_be_visible()
    expect(at(page, "level")).to_have_value("hbm")


def test_ops_without_flop_stand_in_their_strip(show: Opener) -> None:
    page = show("feeds")
    said = words(page)
    assert "no FLOP" in said
    assert "efficiency" in said
    copy = next(op for op in report(page)["ops"] if op["name"] == "copy.3")
    card = hover(page, copy["id"])
    # 5 GB in 2 ms are 2.5 TB/s of 4.8.
    expect(card).to_contain_text("52%")
    box = at(page, "chart").bounding_box()
    assert box is not None
    assert spot(page, copy["id"])[0] < box["x"] + 140  # left of the axis


def test_roofs_can_be_switched_on_and_off(show: Opener) -> None:
    page = show("train")
    written(page, "vector fp32 67 TFLOP/s")
    at(page, "roofs").click()
    panel = at(page, "roofs-panel")
    assert len(set(panel.locator("label").evaluate_all("all => all.map(one => Math.round(one.clientHeight))"))) == 1, "one line each"
    panel.get_by_label("vector fp32").uncheck()
    written(page, "vector fp32 67 TFLOP/s", present=False)
    panel.get_by_label("matrix fp8").check()  # no op is bound by it, so it is off until asked for
    written(page, "matrix fp8")
    at(page, "roofs-usual").click()
    written(page, "vector fp32 67 TFLOP/s")
    written(page, "matrix fp8", present=False)


def test_the_work_stands_under_another_chips_roof(show: Opener) -> None:
    page = show("feeds")
    at(page, "machine").click()
    at(page, "chip").select_option("tpu-v5e")
    written(page, "matrix bf16 197 TFLOP/s")
    expect(at(page, "notice")).to_contain_text("v5e")
    # dot.1 has 1 TFLOP, which take 5.076 ms at 197 TFLOP/s; nobody measured it there.
    card = hover_with(page, "dot.1")
    expect(card).to_contain_text("5.076 ms")
    assert "10 ms" not in card.inner_text()
    written(page, "Attainable FLOP/s")
    assert "5.076 ms" in column(page, "floor_s")
    at(page, "notice-reset").click()
    written(page, "matrix bf16 989.4 TFLOP/s")
    expect(at(page, "notice")).to_be_hidden()


def hover_with(page: Page, name: str) -> Locator:
    page.keyboard.press("Escape")
    settled(page)
    return hover(page, op_named(page, name))


def slide(page: Page, testid: str, value: float) -> None:
    at(page, testid).evaluate(
        "(one, value) => { one.value = value; one.dispatchEvent(new Event('input', { bubbles: true })); }", str(value)
    )


def test_ceiling_sliders_redraw_the_roofs_and_every_figure(show: Opener) -> None:
    page = show("feeds")
    at(page, "machine").click()
    slide(page, "factor-compute", -0.3)  # the slider is a power of ten: 0.501
    written(page, "matrix bf16 495.7 TFLOP/s")  # 0.501 times 989.4
    slide(page, "factor-bandwidth", 0.3)
    written(page, "HBM 9.6 TB/s")  # twice 4.8
    expect(at(page, "notice")).to_contain_text("peak compute at 50%")
    # dot.1: 1 TFLOP at 495.7 TFLOP/s takes 2.017 ms of its 10: 20%. add.2: 8 GB at 9.6 TB/s 0.833 ms of its 4: 21%.
    cells = dict(zip(column(page, "name"), column(page, "efficiency"), strict=True))
    assert (cells["dot.1"], cells["add.2"]) == ("20%", "21%")
    at(page, "machine-reset").click()
    written(page, "matrix bf16 989.4 TFLOP/s")


def test_infeed_and_outfeed_can_be_left_out(show: Opener) -> None:
    page = show("feeds")
    assert count(page) == 6
    at(page, "feeds").uncheck()
    expect(rows(page)).to_have_count(4)
    assert not [name for name in column(page, "name") if "feed" in name]
    # 28 ms with them, 19 without.
    expect(at(page, "figure-time")).to_contain_text("19 ms")
    at(page, "panel-findings").click()
    shown = at(page, "findings").text_content() or ""
    feeds = {op["id"] for op in report(page)["ops"] if "feed" in op["category"]}
    about_feeds = [finding["message"] for finding in report(page)["findings"] if finding["ops"] and feeds.issuperset(finding["ops"])]
    assert not [message for message in about_feeds if message in shown]
    at(page, "feeds").check()
    expect(at(page, "figure-time")).to_contain_text("28 ms")


def test_the_svg_has_the_same_words_as_the_screen(show: Opener, tmp_path: Path) -> None:
    page = show("scan")
    svg = ElementTree.fromstring(download(page, "export-svg", tmp_path).read_text())
    assert svg.tag.endswith("svg")
    said = [element.text or "" for element in svg.iter() if element.tag.endswith("text") or element.tag.endswith("tspan")]
    for word in ("HBM 4.814 TB/s", "matrix bf16 989.4 TFLOP/s"):
        assert any(word in text for text in said)
    titles = [element.text for element in svg.iter() if element.tag.endswith("title")]
    assert titles
    # Every op with FLOP and time is a circle.
    circles = [element for element in svg.iter() if element.tag.endswith("circle")]
    assert len(circles) >= sum(1 for op in report(page)["ops"] if op["flops"] and op["time_s"])


def test_the_png_is_a_picture_of_the_chart(show: Opener, tmp_path: Path) -> None:
    picture = download(show("scan"), "export-png", tmp_path).read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (2400, 1440)
    assert len(picture) > 20_000  # not a blank sheet
