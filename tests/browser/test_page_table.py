"""The table and what narrows it: selection in step with the chart, filters, order, columns, groups, findings, bars, steps, CSV."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from reading import Opener, at, column, count, download, picture, report, rows, settled, spot, state, table_of

PREFIX = {"": 1.0, "m": 1e-3, "µ": 1e-6, "n": 1e-9}


def seconds(text: str) -> float:
    """A time as the page writes it."""
    number, unit = text.split(" ")
    return float(number.replace(",", "")) * PREFIX[unit.removesuffix("s")]


def test_a_click_on_a_dot_lights_its_row_and_brings_it_into_sight(show: Opener) -> None:
    page = show("train")
    # Far down the table, and no other dot near it.
    chosen = next(one for one in report(page)["ops"][40:] if one["flops"] and alone(page, one["id"]))
    page.mouse.click(*spot(page, chosen["id"]))
    row = page.locator("[data-testid=table] [role=row].selected")
    expect(row).to_have_count(1)
    expect(row).to_have_attribute("data-id", str(chosen["id"]))
    expect(row).to_have_attribute("aria-selected", "true")
    box, table = row.bounding_box(), at(page, "table").bounding_box()
    assert box is not None
    assert table is not None
    assert table["y"] <= box["y"] <= table["y"] + table["height"] - box["height"] + 1
    assert 0 <= box["y"] <= 900 - box["height"], "in the window, not only in the table"
    expect(at(page, "selected-name")).to_have_text(re.sub(r"\s+", " ", chosen["label"]))
    expect(at(page, "compiler-name")).to_have_text(chosen["name"])


def alone(page: Page, op: int) -> bool:
    """Whether no other dot is near an op's."""
    return bool(
        page.evaluate(
            """id => { const own = window.roofline.spot(id);
                return Boolean(own) && JSON.parse(document.getElementById('report').textContent).ops.every(({ id: other }) => {
                    const spot = other === id ? null : window.roofline.spot(other);
                    return !spot || Math.hypot(spot.x - own.x, spot.y - own.y) > spot.r + 9; }); }""",
            op,
        )
    )


def test_the_time_above_the_table_counts_overlapping_ops_once(show: Opener) -> None:
    page = show("cpu")
    ops = report(page)["ops"]
    own, all_of = (sum(op[key] for op in ops) for key in ("self_time_s", "time_s"))
    assert own < 0.9 * all_of, "ops of several threads overlap"
    shown = re.search(r"· ([\d.]+ \S+s)", at(page, "count").inner_text())
    assert shown
    assert seconds(shown[1]) == pytest.approx(own, rel=1e-3)


def test_a_click_on_a_row_lights_its_dot(show: Opener) -> None:
    page = show("train")
    second = report(page)["ops"][1]
    plain = picture(page)
    row = page.locator(f"[data-testid=table] [role=row][data-id='{second['id']}']")
    row.click()
    expect(row).to_have_class(re.compile("selected"))
    assert state(page)["selected"] == [second["id"]]
    settled(page)
    assert picture(page) != plain  # a ring on the canvas above the chart
    row.click()
    expect(row).not_to_have_class(re.compile("selected"))


def test_several_ops_can_be_selected_and_are_summed(show: Opener) -> None:
    page = show("train", "folded=0")
    ops = report(page)["ops"]
    rows(page).nth(0).click()
    rows(page).nth(2).click(modifiers=["Control"])
    expect(at(page, "selected-name")).to_have_text("2 ops selected")
    total = ops[0]["time_s"] + ops[2]["time_s"]
    expect(at(page, "details")).to_contain_text(f"{1000 * total:.4g} ms")
    rows(page).nth(4).click(modifiers=["Shift"])  # from the last one on: three rows
    expect(at(page, "selected-name")).to_have_text("3 ops selected")
    at(page, "clear-selection").click()
    expect(page.locator("[data-testid=table] [role=row].selected")).to_have_count(0)


def test_a_box_with_alt_selects_the_dots_in_it(show: Opener) -> None:
    page = show("feeds")
    x, y = spot(page, next(op["id"] for op in report(page)["ops"] if op["name"] == "dot.1"))
    page.keyboard.down("Alt")
    page.mouse.move(x - 30, y - 30)
    page.mouse.down()
    page.mouse.move(x + 30, y + 30, steps=4)
    page.mouse.up()
    page.keyboard.up("Alt")
    expect(at(page, "selected-name")).to_have_text("dot.1")


def test_filters_by_words_regex_and_numbers(show: Opener) -> None:
    page = show("train")
    found = report(page)["ops"]
    all_s = sum(op["time_s"] for op in found)
    filters: dict[str, Callable[[dict[str, Any]], object]] = {
        "/^custom-call\\.\\d$/": lambda op: re.search(r"^custom-call\.\d$", op["name"]),
        "efficiency<0.9 time>1%": lambda op: op["efficiency"] is not None and op["efficiency"] < 0.9 and op["time_s"] > 0.01 * all_s,
        "time>100us": lambda op: op["time_s"] > 1e-4,
        "bound:hbm": lambda op: op["bound"] == "hbm",
    }
    for words, passes in filters.items():
        at(page, "filter").fill(words)
        settled(page)
        expect(at(page, "filter-problem")).to_have_text("")
        assert 0 < count(page) == sum(1 for op in found if passes(op)) < len(found), words


def test_a_filter_that_makes_no_sense_says_so_and_hides_nothing(show: Opener) -> None:
    page = show("scan")
    before = count(page)
    at(page, "filter").fill("/(/")
    expect(at(page, "filter-problem")).to_contain_text("regular expression")
    expect(at(page, "filter")).to_have_attribute("aria-invalid", "true")
    assert count(page) == before
    at(page, "filter").fill("nothing is called this")
    expect(page.get_by_text("No operations match the filters.")).to_be_visible()


def test_the_help_on_filters_is_made_of_examples_that_work(show: Opener) -> None:
    page = show("train")
    at(page, "filter-help").click()
    examples = at(page, "filter-help-panel").get_by_role("button")
    assert examples.count() >= 4
    for number in range(examples.count()):
        if number:
            at(page, "filter-help").click()
        examples.nth(number).click()
        expect(at(page, "filter-problem")).to_have_text("")


def test_filters_by_category_bound_and_format(show: Opener) -> None:
    page = show("train")
    for menu in ("category", "bound", "dtype"):
        at(page, menu).click()
        box = at(page, f"{menu}-panel").get_by_role("checkbox").first
        value = box.input_value()
        box.check()
        expected = sum(1 for op in report(page)["ops"] if op[menu] == value)
        expect(at(page, "count")).to_contain_text(re.compile(rf"^{expected} (rows|ops)"))
        at(page, f"{menu}-all").click()
        expect(at(page, "count")).to_contain_text(re.compile(rf"^{len(report(page)['ops'])} (rows|ops)"))
        page.keyboard.press("Escape")


def test_the_legend_hides_and_shows_its_groups(show: Opener) -> None:
    page = show("train")
    button = at(page, "legend").get_by_role("button", name=re.compile("HBM"))
    hbm = sum(1 for op in report(page)["ops"] if op["bound"] == "hbm")
    button.click()
    expect(at(page, "count")).to_contain_text(re.compile(rf"^{len(report(page)['ops']) - hbm} (rows|ops)"))
    expect(button).to_have_attribute("aria-pressed", "false")


def test_headings_sort_both_ways(show: Opener) -> None:
    page = show("train")
    times = [seconds(text) for text in column(page, "time_s")]
    assert times == sorted(times, reverse=True)  # longest first, without being asked
    heading = page.locator("[data-testid=table] [role=columnheader] button[data-column=time_s]")
    heading.click()
    expect(page.locator("[data-testid=table] [role=columnheader][aria-sort=ascending]")).to_have_count(1)
    times = [seconds(text) for text in column(page, "time_s")]
    assert times == sorted(times)
    page.locator("[data-testid=table] [role=columnheader] button[data-column=name]").click()
    names = column(page, "name")
    assert names == sorted(names, key=str.lower)


def test_columns_can_be_chosen(show: Opener) -> None:
    page = show("scan")
    headings = page.locator("[data-testid=table] [role=columnheader]")
    usual = headings.count()
    at(page, "columns").click()
    at(page, "columns-panel").get_by_label("scope").check()
    at(page, "columns-panel").get_by_label("category").uncheck()
    expect(page.locator("[data-testid=table] button[data-column=scope]")).to_have_count(1)
    expect(page.locator("[data-testid=table] button[data-column=category]")).to_have_count(0)
    assert "mlp" in " ".join(column(page, "scope"))
    at(page, "columns-usual").click()
    expect(headings).to_have_count(usual)


def test_only_rows_in_sight_exist_and_the_last_can_be_reached(show: Opener) -> None:
    page = show("five_thousand")
    assert count(page) == 5_000
    assert 0 < rows(page).count() < 100
    table = at(page, "table")
    expect(table).to_have_attribute("aria-rowcount", "5001")
    table.focus()
    page.keyboard.press("End")
    last = page.locator("[data-testid=table] [role=row][aria-rowindex='5001']")
    expect(last).to_be_visible()
    assert rows(page).count() < 100
    shortest = min(op["time_s"] for op in report(page)["ops"])
    assert seconds(last.locator("[data-column=time_s]").inner_text()) == pytest.approx(shortest, rel=1e-3)


def test_groups_sum_their_ops(show: Opener) -> None:
    page = show("train")
    at(page, "group").select_option("category")
    expect(at(page, "count")).to_contain_text("groups")
    sums: dict[str, float] = {}
    for op in report(page)["ops"]:
        sums[op["category"]] = sums.get(op["category"], 0.0) + op["time_s"]
    assert dict(zip(column(page, "name"), map(seconds, column(page, "time_s")), strict=True)) == pytest.approx(sums, rel=1e-3)


def test_scopes_can_be_grouped_to_a_depth(show: Opener) -> None:
    page = show("thousand")
    at(page, "group").select_option("scope")
    assert count(page) == 60  # 12 layers of 5 parts, together
    at(page, "depth").fill("1")
    expect(at(page, "count")).to_contain_text("12 groups")


def test_findings_select_their_ops(show: Opener) -> None:
    page = show("train")
    findings = report(page)["findings"]
    index = next(number for number, finding in enumerate(findings) if finding["ops"])
    summary, message = at(page, f"finding-{index}"), page.get_by_text(findings[index]["message"])
    expect(message).to_be_hidden()
    summary.click()
    expect(message).to_be_visible()
    assert sorted(state(page)["selected"]) == sorted(findings[index]["ops"])
    expect(page.locator("[data-testid=table] [role=row].selected").first).to_be_visible()
    summary.click()
    expect(message).to_be_hidden()
    assert state(page)["selected"] == []


def test_bars_show_which_ops_lose_most_time(show: Opener) -> None:
    page = show("train")
    at(page, "panel-lost").click()
    bars = page.locator("[data-testid=lost] button.bar-row")
    assert bars.count() >= 5
    losses = sorted((op["lost_s"] for op in report(page)["ops"] if op["lost_s"] is not None), reverse=True)
    figures = [seconds(text) for text in bars.locator(".bar-figure").all_inner_texts()]
    assert figures == pytest.approx(losses[: len(figures)], rel=1e-3)
    widths = bars.locator(".bar-fill").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert widths[1] / widths[0] == pytest.approx(losses[1] / losses[0], rel=0.03)
    bars.first.click()
    expect(page.locator("[data-testid=table] [role=row].selected")).to_have_count(1)


def test_the_step_slider_shows_one_step(show: Opener) -> None:
    page = show("train", "folded=0")
    shares = report(page)["by_step"]
    step = at(page, "step")
    step.focus()
    page.keyboard.press("ArrowRight")
    number = min(share["step"] for share in shares)
    expect(at(page, "step-shown")).to_contain_text(str(number))
    longest = max((share for share in shares if share["step"] == number), key=lambda share: share["time_s"])
    assert seconds(column(page, "time_s")[0]) == pytest.approx(longest["time_s"], rel=1e-3)
    page.keyboard.press("Home")
    expect(at(page, "step-shown")).to_have_text("all")


def test_devices_and_hosts_can_be_chosen(show: Opener) -> None:
    page = show("hosts")
    shares = report(page)["by_device"]
    devices = report(page)["input"]["devices"]
    at(page, "device").select_option(str(devices[1]["id"]))
    mine = [share["time_s"] for share in shares if share["device"] == devices[1]["id"]]
    assert seconds(column(page, "time_s")[0]) == pytest.approx(max(mine), rel=1e-3)
    at(page, "device").select_option("")
    at(page, "host").select_option(devices[0]["host"])
    mine = [share["time_s"] for share in shares if share["device"] == devices[0]["id"]]
    assert seconds(column(page, "time_s")[0]) == pytest.approx(max(mine), rel=1e-3)


def test_the_csv_has_the_ops_that_are_shown(show: Opener, tmp_path: Path) -> None:
    page = show("train", "folded=0")
    at(page, "filter").fill("time>1%")
    settled(page)
    shown = column(page, "name")
    path = download(page, "export-csv", tmp_path)
    table = table_of(path)
    assert len(table) == count(page)
    assert [row["name"] for row in table][: len(shown)] == shown
    longest = report(page)["ops"][0]
    assert float(table[0]["time_s"]) == longest["time_s"]  # base units, all digits
    assert float(table[0]["hbm"]) == longest["bytes"]["hbm"]


def test_the_csv_is_read_back_by_roofline(show: Opener, tmp_path: Path) -> None:
    from roofline.sources import read

    page = show("scan")
    recording = read(download(page, "export-csv", tmp_path))
    assert len(recording.workload) == len(report(page)["ops"])
    assert recording.workload.time_s == pytest.approx(sum(op["time_s"] for op in report(page)["ops"]))


def test_equal_work_is_one_row_that_selects_its_ops(show: Opener) -> None:
    page = show("train", "group=fold")
    found = report(page)
    folds = found["folds"]
    assert count(page) == len(found["ops"]) - sum(len(fold["ops"]) - 1 for fold in folds)
    longest = next(fold for fold in folds if "layers" in fold["label"])
    row = page.locator(f"[data-testid=table] [role=row][data-id='fold:{longest['ops'][0]}']")
    expect(row).to_contain_text("layers")
    row.click()
    assert sorted(state(page)["selected"]) == sorted(longest["ops"])


def test_layers_that_do_the_same_are_one_row_that_opens(show: Opener) -> None:
    page = show("train")
    found = report(page)
    assert count(page) == len(found["ops"])
    spared = sum(len(fold["ops"]) - 1 for fold in found["folds"])
    expect(at(page, "count")).to_contain_text(f"in {len(found['ops']) - spared} rows")
    row = rows(page).filter(has_text="layers").first
    first, row_id = int(re.findall(r"\d+", row.get_attribute("data-id") or "")[0]), row.get_attribute("data-id")
    fold = next(fold for fold in found["folds"] if first in fold["ops"])
    opener = page.locator(f"[data-testid=table] [role=row][data-id='{row_id}'] .opener")
    opener.click()
    assert state(page)["selected"] == [], "opening selects nothing"
    for op in fold["ops"]:
        expect(page.locator(f"[data-testid=table] [role=row][data-id='{op}']")).to_have_count(1)
    expect(opener).to_have_attribute("aria-expanded", "true")
    opener.click()
    expect(page.locator(f"[data-testid=table] [role=row][data-id='{fold['ops'][-1]}']")).to_have_count(0)
    at(page, "folded").uncheck()
    expect(at(page, "count")).to_contain_text(re.compile(rf"^{len(found['ops'])} rows"))
    assert "folded=0" in page.url


def test_the_usual_columns_fit_in_a_window_of_1440_pixels(show: Opener) -> None:
    page = show("train", viewport={"width": 1440, "height": 900})
    assert page.evaluate("() => (g => g.scrollWidth <= g.clientWidth)(document.querySelector('[data-testid=table]'))")


def test_times_and_counts_say_whether_they_are_of_a_step_or_of_the_run(show: Opener) -> None:
    page = show("train")
    head = page.locator("[data-testid=table] [role=columnheader]")
    expect(head.get_by_text("time per step")).to_be_visible()
    expect(head.get_by_text("time in run")).to_be_visible()
    per_step, in_run = (seconds(column(page, key, "table")[0]) for key in ("step_s", "time_s"))
    assert in_run / per_step == pytest.approx(len(report(page)["steps"]), rel=0.05)  # on one device, and all steps are alike
    page = show("train", "step=2")
    expect(page.locator("[data-testid=table] [role=columnheader]").get_by_text("time in run")).to_have_count(0)
    expect(page.locator("[data-testid=table] button[data-column=step_s]")).to_have_count(0)
    expect(page.locator("[data-testid=table] button[data-column=time_s]")).to_have_text("time s")


def test_on_a_phone_times_stand_beside_names(show: Opener) -> None:
    page = show("train", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    cell = page.locator("[data-testid=table] .rows [data-column=step_s]").first.bounding_box()
    assert cell
    assert cell["x"] + cell["width"] <= 390
    names = column(page, "label", "table")
    assert names[0].startswith("layer*/mlp d"), "what it does, beside where it is"
