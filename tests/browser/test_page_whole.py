"""The page as a thing that is passed around: from disk, without a network, whatever its words, in any light, on any width, by any hand."""

import re
from pathlib import Path

import pytest
from material import HOSTILE, capture
from playwright.sync_api import Page, expect
from reading import (
    Opener,
    at,
    column,
    count,
    download,
    hover,
    kept,
    report,
    rows,
    settled,
    spot,
    state,
    ticks,
    violations,
    written,
)
from watching import Watch

from roofline.render.export import to_json

REAL = ("train", "scan", "attention", "custom", "fusion", "cpu", "compare", "feeds")


@pytest.mark.parametrize("name", REAL)
def test_every_capture_opens_from_disk_in_silence(show: Opener, watch: Watch, name: str) -> None:
    page = show(name)
    assert page.url.startswith("file://")
    assert count(page) == len(report(page)["ops"])
    assert all(url.startswith(("file:", "data:", "blob:")) for url in watch.requests)
    # A value that was not made into words shows as one of these.
    assert not re.search(r"\[object |undefined|NaN|null", page.locator("body").inner_text())


def test_the_page_gives_back_the_json_it_holds(show: Opener, tmp_path: Path) -> None:
    assert download(show("scan"), "export-json", tmp_path).read_bytes() == to_json(capture("jax_scan"))


def test_hostile_names_are_text(show: Opener) -> None:
    page = show("hostile")
    assert page.title() == "hostile"  # nobody's script ran
    assert page.locator("img").count() == 0
    assert count(page) == len(HOSTILE)
    shown = column(page, "name")
    assert any("</script>" in name for name in shown)
    for op in report(page)["ops"]:
        if window_has(page, op["id"]):
            expect(hover(page, op["id"])).to_be_visible()
    at(page, "columns").click()
    for label in ("scope", "location", "program"):
        at(page, "columns-panel").get_by_label(label, exact=True).check()
    page.keyboard.press("Escape")
    for group in ("category", "scope", "location"):
        at(page, "group").select_option(group)
        expect(at(page, "count")).to_contain_text("groups")
    assert page.title() == "hostile"
    assert page.evaluate("() => document.scripts.length") == page.evaluate(
        "() => document.querySelectorAll('script[type=importmap], script[type=module], script[type=\"application/json\"]').length"
    )


def window_has(page: Page, op: int) -> bool:
    return bool(page.evaluate("id => window.roofline.spot(id) !== null", op))


def test_no_character_that_reorders_or_hides_text_is_shown(show: Opener) -> None:
    page = show("hostile")
    assert any("\u202e" in op["name"] for op in report(page)["ops"])
    shown = page.evaluate("() => document.documentElement.outerHTML")
    assert not any(character in shown for character in "\x1b\x07\u202e\u2067\u200b\ufeff")


def test_a_name_of_ten_thousand_letters_breaks_nothing(show: Opener) -> None:
    page = show("hostile")
    longest = max(report(page)["ops"], key=lambda op: len(op["name"]))
    assert len(longest["name"]) > 9_000
    page.locator(f"[data-testid=table] [role=row][data-id='{longest['id']}']").click()
    expect(at(page, "selected-name")).to_contain_text("cutlass")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("fragment", "what"),
    [
        ("filter=time%3E1%25", lambda page: (count(page), column(page, "name"))),
        ("colour=category", lambda page: at(page, "legend").inner_text()),
        ("sort=name&descending=0", lambda page: column(page, "name")),
        ("group=category", lambda page: column(page, "name")),
        ("columns=name,scope,time_s", lambda page: page.locator("[data-testid=table] [role=columnheader]").all_inner_texts()),
        ("selected=0-3", lambda page: (at(page, "count").inner_text(), page.locator("[data-testid=table] .row.selected").count())),
        ("tab=program", lambda page: column(page, "name", "program-table")),
        ("chip=tpu-v5e&factors=compute:0.5", lambda page: at(page, "notice").inner_text()),
        ("step=2", lambda page: column(page, "time_s")),
    ],
)
def test_the_fragment_is_the_state(show: Opener, fragment: str, what: object) -> None:
    assert callable(what)
    plain = what(show("scan"))
    page = show("scan", fragment)
    seen, again = kept(page, what)
    assert seen == again
    assert seen != plain


def test_what_a_hand_does_is_in_the_address(show: Opener) -> None:
    page = show("train")
    at(page, "filter").fill("efficiency<0.5")
    at(page, "colour").select_option("dtype")
    at(page, "zoom-in").click()
    rows(page).first.click()
    for word in ("filter=", "colour=dtype", "window=", "selected="):
        expect(page).to_have_url(re.compile(word))
    seen, again = kept(page, lambda one: (ticks(one), column(one, "name"), state(one)["selected"]))
    assert seen == again


def test_back_undoes_one_choice_at_a_time(show: Opener) -> None:
    page = show("train")
    at(page, "colour").select_option("category")
    at(page, "group").select_option("category")
    at(page, "filter").fill("custom-call")
    expect(page).to_have_url(re.compile("filter="))
    rows(page).first.click()  # selects, shows the details, and may move the chart: one choice
    expect(page).to_have_url(re.compile("selected="))
    undone = [
        lambda: (state(page)["selected"], state(page)["panel"]) == ([], "findings"),
        lambda: state(page)["filter"] == "",
        lambda: state(page)["group"] == "",
        lambda: state(page)["colour"] == "bound",
    ]
    for done, check in enumerate(undone):
        assert not check(), done
        page.go_back()
        assert check(), done


def test_nonsense_in_the_fragment_is_passed_over(show: Opener) -> None:
    page = show(
        "train", "filter=%E0%A4%A&window=1,2&selected=x&colour=purple&zzz=1&step=nine&factors=compute:-1&tab=__proto__&sort=nothing"
    )
    assert count(page) == 231
    written(page, "HBM 4.814 TB/s")


def test_reset_goes_back_to_the_beginning(show: Opener) -> None:
    page = show("train", "filter=time%3E1%25&colour=category&group=category&factors=compute:0.5")
    at(page, "reset").click()
    expect(at(page, "count")).to_contain_text("231 ops")
    expect(at(page, "notice")).to_be_hidden()


def background(page: Page) -> tuple[int, ...]:
    found: str = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return tuple(int(part) for part in re.findall(r"\d+", found)[:3])


def test_light_and_dark_follow_the_system_and_the_choice(show: Opener) -> None:
    light, dark = show("scan", color_scheme="light"), show("scan", color_scheme="dark")
    assert min(background(light)) > 200
    assert max(background(dark)) < 80
    at(light, "theme").click()
    at(light, "theme-panel").get_by_label("Dark").check()
    light.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    assert max(background(light)) < 80


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("name", "fragment", "part"),
    [
        ("scan", "", None),
        ("scan", "tab=program", "#view"),
        ("scan", "panel=device", ".side"),
        ("scan", "panel=lost", ".side"),
        ("scan", "selected=0&panel=details", ".side"),
        ("slower", "tab=compare", None),
        ("hostile", "selected=0&panel=details", ".side"),
        ("empty", "", None),
    ],
)
def test_axe_finds_nothing(show: Opener, name: str, fragment: str, part: str | None, scheme: str) -> None:
    assert violations(show(name, fragment, color_scheme=scheme), scheme, part) == []


def test_everything_is_reached_and_worked_by_keyboard(show: Opener) -> None:
    page = show("train", "folded=0")
    page.keyboard.press("/")
    expect(at(page, "filter")).to_be_focused()
    page.keyboard.type("matmul")
    page.keyboard.press("Escape")
    # The chart: arrows go from op to op, longest first, and say them; Enter selects.
    at(page, "filter").fill("")
    at(page, "chart").focus()
    page.keyboard.press("ArrowRight")
    expect(at(page, "card")).to_be_visible()
    longest = report(page)["ops"][0]
    expect(page.locator("#announce")).to_contain_text(longest["name"])
    page.keyboard.press("Enter")
    assert state(page)["selected"] == [longest["id"]]
    page.keyboard.press("+")
    page.wait_for_function("() => window.roofline.state().window !== null")
    page.keyboard.press("0")
    page.keyboard.press("Escape")
    page.wait_for_function("() => window.roofline.state().selected.length === 0")
    # The table: arrows move, Space selects.
    at(page, "table").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert state(page)["selected"] == [report(page)["ops"][2]["id"]]  # two down from the one that the chart was on
    # Tabs by arrows.
    at(page, "tab-ops").focus()
    page.keyboard.press("ArrowRight")
    expect(at(page, "tab-program")).to_be_focused()
    expect(at(page, "tab-program")).to_have_attribute("aria-selected", "true")


def test_tab_goes_through_every_control_and_out_again(show: Opener) -> None:
    page = show("train")
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("() => document.activeElement.dataset.testid ?? document.activeElement.id ?? document.activeElement.tagName")
        )
    for name in ("skip", "filter", "category", "group", "level", "colour", "zoom-in", "chart", "panel-findings", "columns", "table"):
        assert name in seen


@pytest.mark.parametrize(("menu", "label"), [("category", "matmul"), ("bound", "HBM"), ("dtype", "bf16")])
def test_a_click_on_a_label_ticks_its_box_and_leaves_the_menu_open(show: Opener, menu: str, label: str) -> None:
    page = show("train")
    at(page, menu).click()
    words = at(page, f"{menu}-panel").locator("label.option bdi").filter(has_text=re.compile(f"^{label}$"))
    words.click()
    expect(at(page, f"{menu}-panel")).to_be_visible()
    assert 0 < count(page) < 231
    words.click()
    assert count(page) == 231


def test_menus_open_inside_the_window(show: Opener) -> None:
    page = show("train")
    for width, height in ((1440, 900), (1280, 640), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for folded in page.locator("details.more:not([open]) > summary").all():
            folded.click()
        for name in ("export", "theme", "filter-help", "category", "bound", "dtype", "roofs", "machine", "columns"):
            at(page, name).click()
            box = at(page, f"{name}-panel").bounding_box()
            assert box is not None
            assert (box["x"] >= 0, box["y"] >= 0) == (True, True), (name, width)
            assert box["x"] + box["width"] <= width, (name, width)
            assert box["y"] + box["height"] <= height, (name, width)
            page.keyboard.press("Escape")


def test_the_chart_and_the_table_have_names_for_screen_readers(show: Opener) -> None:
    page = show("train")
    chart = at(page, "chart")
    expect(chart).to_have_attribute("aria-label", re.compile(r"Roofline of \d+ operations"))
    expect(page.get_by_role("grid", name="Operations")).to_have_count(1)
    for button in page.get_by_role("button").all():
        assert button.evaluate("one => (one.getAttribute('aria-label') ?? one.textContent).trim()")


@pytest.mark.parametrize("name", ["train", "slower", "hostile", "empty"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(show: Opener, name: str) -> None:
    page = show(name, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        settled(page)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        box = at(page, "chart").bounding_box()
        assert box is not None
        assert box["width"] > 0.8 * width
        expect(at(page, "filter")).to_be_visible()
        tabs = page.get_by_role("tablist", name="Views").get_by_role("tab").all()
        for tab in (*tabs, tabs[0]):
            tab.click()
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_a_tap_shows_the_card_of_a_dot(show: Opener) -> None:
    page = show("train", viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    longest = report(page)["ops"][0]
    page.touchscreen.tap(*spot(page, longest["id"]))
    expect(at(page, "card")).to_contain_text(longest["name"])


def test_paper_has_what_is_shown_in_light_colours_without_controls(show: Opener) -> None:
    page = show("train", color_scheme="dark")
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    settled(page)
    assert min(background(page)) > 200  # light, whatever the screen is
    for name in ("filter", "zoom-in", "export", "columns", "folded"):
        expect(at(page, name)).to_be_hidden()
    for name in ("chart", "table", "findings"):
        expect(at(page, name)).to_be_visible()
    page.emulate_media(media="screen")
    page.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    expect(at(page, "filter")).to_be_visible()
    assert max(background(page)) < 60


def test_nothing_at_all_is_shown_as_nothing(show: Opener) -> None:
    page = show("empty")
    expect(page.get_by_text("No operations in this report.")).to_be_visible()
    assert count(page) == 0


def test_many_ops_are_drawn_and_can_be_moved(show: Opener) -> None:
    page = show("five_thousand")
    assert count(page) == 5_000
    at(page, "chart").scroll_into_view_if_needed()
    box = at(page, "chart").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    # Frames, not seconds: the loop of the page is never held up for long while a hand pans.
    page.evaluate("() => { window.frames_seen = 0; (function count() { window.frames_seen += 1; requestAnimationFrame(count); })(); }")
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(20):
        page.mouse.move(x + 4 * step, y + 2 * step)
        settled(page)
    page.mouse.up()
    assert page.evaluate("() => window.frames_seen") >= 20
    at(page, "filter").fill("efficiency<0.2")
    settled(page)
    assert count(page) < 5_000


def test_the_address_of_the_page_can_be_copied(show: Opener) -> None:
    page = show("scan", permissions=["clipboard-read", "clipboard-write"])
    at(page, "copy-link").click()
    expect(page.get_by_text(re.compile("Link copied|Copy the link"))).to_be_visible()
