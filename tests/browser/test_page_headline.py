"""The first screen: the sentence, the time by cause, the device, and that all of it follows what is chosen."""

import re
import runpy
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from reading import Opener, at, column, count, hover, report, state


def widths(page: Page) -> dict[str, float]:
    """The width of each part of the bar, in percent."""
    found: dict[str, float] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('[data-testid=time-bar] .stack-part')]
            .map(part => [part.dataset.cause, parseFloat(part.style.width)]))"""
    )
    return found


def test_the_picture_in_the_readme_is_of_this_page(show: Opener) -> None:
    taking = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "page_picture.py"))
    page = show("timeline", viewport={"width": taking["WIDTH"], "height": taking["HEIGHT"]})
    with Image.open(taking["PICTURE"]) as picture:
        kept = str(picture.info["headings"])
    # The title differs: the picture is of the sample, which is the same profile.
    assert taking["headings"](page).split(" | ")[1:] == kept.split(" | ")[1:], "take it again: python docs/page_picture.py"


def test_the_first_screen_has_sentence_bar_device_and_chart_in_this_order(show: Opener) -> None:
    page = show("train", viewport={"width": 1440, "height": 900})
    expect(at(page, "sentence")).to_have_text(report(page)["summary"])
    tops = []
    for name in ("sentence", "time-bar", "device-line", "figures", "chart"):
        box = at(page, name).bounding_box()
        assert box is not None
        tops.append(box["y"])
    assert tops == sorted(tops)
    assert tops[-1] < 500, "the chart begins on the first screen"
    for word in ("H200", "989.4 TFLOP/s", "4.814 TB/s", "ridge point"):
        expect(at(page, "device-line")).to_contain_text(word)


def test_the_bar_is_the_step_by_cause(show: Opener) -> None:
    page = show("train")
    average = next(point for point in report(page)["points"] if point["scope"] == "average")
    found = widths(page)
    assert found["needed"] == pytest.approx(100 * average["at_roof_s"] / average["time_s"], rel=1e-3)
    assert found["memory"] == pytest.approx(100 * average["lost"]["memory"] / average["time_s"], rel=1e-3)
    assert sum(found.values()) == pytest.approx(100, abs=0.1)
    expect(at(page, "time-bar")).to_contain_text("lost to memory")


def test_sentence_bar_figures_and_findings_follow_the_step(show: Opener) -> None:
    page = show("train")
    step = next(point for point in report(page)["points"] if point["step"] == 1)
    at(page, "step").fill("2")
    expect(at(page, "sentence")).to_have_text(re.compile(r"^Step 1\strain$"))
    expect(at(page, "figure-time")).to_contain_text(f"{1000 * step['time_s']:.3g} ms")
    expect(at(page, "findings-about")).to_be_visible()


def test_time_lost_by_cause_is_that_of_the_bar_above_it(show: Opener) -> None:
    page = show("train", "tab=program")
    points = report(page)["points"]
    average = next(point for point in points if point["scope"] == "average")
    expect(at(page, "causes").first).to_contain_text("per step")
    expect(at(page, "causes").first).to_contain_text(f"{1000 * average['lost']['memory']:.4g} ms")
    page = show("train", "tab=program&step=1")
    step = next(point for point in points if point["step"] == 1)
    expect(at(page, "causes").first).to_contain_text(f"{1000 * step['lost']['memory']:.4g} ms")


def test_another_chip_has_its_own_minimum_time_and_no_share_above_100(show: Opener) -> None:
    page = show("train", "chip=v100-sxm2")
    expect(at(page, "sentence")).to_have_text(re.compile(r"^On NVIDIA .*V100"))
    expect(at(page, "figure-floor")).to_contain_text("measured: 28.2 ms")
    expect(at(page, "figure-efficiency")).to_have_count(0)
    for part in ("sentence", "time-bar", "figures", "findings"):
        shares = [float(one) for one in re.findall(r"([\d.]+)%", at(page, part).inner_text())]
        assert all(share <= 100 for share in shares), part
    expect(at(page, "findings-about")).to_contain_text("V100")
    expect(at(page, "findings")).to_contain_text("layers")  # equal work is one line


def test_ops_are_called_by_their_labels_with_the_compilers_name_second(show: Opener) -> None:
    page = show("train", "folded=0")
    longest = report(page)["ops"][0]
    assert longest["label"] != longest["name"]
    assert column(page, "name")[0] == longest["name"]
    assert column(page, "label")[0].split("…")[0] in re.sub(r"\s+", " ", longest["label"])
    card = hover(page, longest["id"]).inner_text()
    assert card.index(re.sub(r"\s+", " ", longest["label"])) < card.index(longest["name"])
    at(page, "filter").fill("layer0/mlp")
    assert 0 < count(page) < 231, "a filter finds labels"


def test_the_glossary_is_one_click_away_and_every_figure_has_its_meaning(show: Opener) -> None:
    page = show("train")
    at(page, "glossary").click()
    expect(at(page, "glossary-panel")).to_contain_text("model FLOP utilization")
    page.keyboard.press("Escape")
    expect(at(page, "glossary-panel")).to_be_hidden()
    for name in ("floor", "mfu", "hfu", "efficiency", "bound", "intensity", "work"):
        assert at(page, f"figure-{name}").get_attribute("title"), name
    heads = page.locator("[data-testid=table] [role=columnheader] button")
    assert all(head.get_attribute("title") for head in heads.all())
    assert state(page)["selected"] == []


def test_a_phone_shows_sentence_bar_times_and_chart_before_any_control(show: Opener) -> None:
    page = show("timeline", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tops = {}
    for name in ("sentence", "time-bar", "figure-time", "chart", "chart-controls", "filter", "timeline"):
        box = at(page, name).bounding_box()
        assert box is not None
        tops[name] = box["y"]
    assert list(tops.values()) == sorted(tops.values())
    assert tops["chart"] < 844


def test_the_first_window_leaves_outliers_at_its_edge_where_they_can_be_hovered(show: Opener) -> None:
    page = show("train")
    ops = {op["id"]: op for op in report(page)["ops"]}
    outside = [id for id in ops if (page.evaluate("id => window.roofline.spot(id)", id) or {}).get("outside")]
    assert 0 < len(outside) < 30
    assert sum(ops[id]["time_s"] for id in outside) < 0.01 * sum(op["time_s"] for op in ops.values())
    assert re.search("µs|ns", hover(page, outside[0]).inner_text())
    at(page, "filter").fill(ops[outside[0]]["name"])
    page.wait_for_function("id => window.roofline.spot(id)?.outside === false", arg=outside[0])


def test_steps_are_bars_by_cause_and_choose_their_step(show: Opener) -> None:
    page = show("train", "tab=program")
    steps = report(page)["steps"]
    bars = at(page, "step-bars").get_by_role("button")
    expect(bars).to_have_count(len(steps))
    bars.nth(1).click()
    assert state(page)["step"] == steps[1]["step"]
    expect(bars.nth(1)).to_have_attribute("aria-pressed", "true")


def test_devices_and_hosts_are_bars_and_the_slower_one_is_a_straggler(show: Opener) -> None:
    page = show("hosts", "tab=program")
    # The op that both ran takes 10 ms on device 0 and 16 ms on device 1: more than 1.05 times the median of 13 ms.
    expect(at(page, "device-bars").get_by_role("button").nth(0)).not_to_contain_text("straggler")
    expect(at(page, "device-bars").get_by_role("button").nth(1)).to_contain_text("straggler")
    expect(at(page, "host-bars").get_by_role("button")).to_have_count(2)


def test_counted_ops_have_twins_a_legend_levels_and_a_table(show: Opener) -> None:
    page = show("counted")
    expect(at(page, "legend")).to_contain_text("modelled and counted")
    at(page, "columns").click()
    at(page, "columns-panel").get_by_label("HBM counted / modelled").check()
    assert column(page, "ratio_hbm") == ["1.5x"]  # 6 GB counted, 4 GB modelled
    page.keyboard.press("Escape")
    at(page, "tab-program").click()
    assert column(page, "ratio_hbm", "counters-table") == ["1.5x"]
