"""The live server in a browser: the list, its keyboard, a profile that appears, one that changes, two that are compared."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from reading import at, count, violations
from watching import Watch

from live import SCAN, client, held_back

TABLE = "name,category,time,flops,bytes\nmatmul,dot,2 ms,1 TFLOP,10 MB\nadd,loop,1 ms,1 MFLOP,2 GB\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "before.csv").write_text(TABLE)
    (tmp_path / "after.csv").write_text(TABLE.replace("2 ms", "1500 us"))
    return tmp_path


@pytest.fixture
def server(folder: Path, watch: Watch) -> Iterator[httpx.Client]:
    with client(folder) as made:
        yield made
        watch.close()


def home(watch: Watch, server: httpx.Client, **options: object) -> Page:
    page = watch.page(**options)
    page.goto(str(server.base_url))
    expect(page.locator("#runs table")).to_be_visible()
    return page


def names(page: Page) -> list[str]:
    return page.locator("#runs tbody a").all_inner_texts()


def test_the_list_shows_every_run_and_opens_one(watch: Watch, server: httpx.Client) -> None:
    page = home(watch, server)
    assert sorted(names(page)) == ["after.csv", "before.csv"]
    expect(page.locator("#count")).to_have_text("2 runs")
    page.get_by_role("link", name="before.csv").click()
    page.locator("html[data-ready=true]").wait_for()
    assert count(page) == 2
    page.get_by_role("link", name="All runs").click()
    # What was read is known from now on: 3 ms.
    expect(page.locator("tr", has_text="before.csv")).to_contain_text("3 ms")


def test_the_live_page_obeys_its_policy(watch: Watch, server: httpx.Client) -> None:
    page = home(watch, server)
    page.get_by_role("link", name="before.csv").click()
    page.locator("html[data-ready=true]").wait_for()
    # A script put into the page by whatever way does not run: the policy has no unsafe-inline, and the nonce is used up.
    ran = page.evaluate(
        """() => {
            const made = document.createElement('script');
            made.textContent = 'window.taken = 1';
            document.body.append(made);
            return window.taken;
        }"""
    )
    assert ran is None
    watch.complaints[:] = [said for said in watch.complaints if "Content Security Policy" not in said]  # it says so, rightly
    expect(at(page, "twin")).to_have_attribute("href", re.compile(r"/run/[0-9a-f]{16}\.json"))


def test_two_runs_are_ticked_and_compared(watch: Watch, server: httpx.Client) -> None:
    page = home(watch, server)
    page.get_by_label("compare before.csv").check()
    expect(page.locator("#pair")).to_contain_text("before: before.csv")
    page.get_by_label("compare after.csv").check()
    expect(page.locator("#pair")).to_have_text("before: before.csv → after: after.csv")
    page.get_by_role("button", name="Swap").click()
    expect(page.locator("#pair")).to_have_text("before: after.csv → after: before.csv")
    page.get_by_role("button", name="Swap").click()
    page.get_by_role("link", name="Compare").click()
    at(page, "tab-compare").click()
    expect(at(page, "difference-summary")).to_contain_text("−500 µs")


def test_a_run_that_is_written_appears_by_itself(watch: Watch, server: httpx.Client, folder: Path) -> None:
    page = home(watch, server)
    shutil.copy(SCAN, folder / "new.xplane.pb.gz")
    expect(page.get_by_role("link", name="new.xplane.pb.gz")).to_be_visible()


def test_a_page_whose_run_changes_loads_itself_again_and_keeps_its_view(watch: Watch, server: httpx.Client, folder: Path) -> None:
    page = home(watch, server)
    page.get_by_role("link", name="before.csv").click()
    page.locator("html[data-ready=true]").wait_for()
    at(page, "colour").select_option("category")
    expect(page).to_have_url(re.compile("colour=category"))
    (folder / "before.csv").write_text(TABLE + "more,loop,1 ms,1 MFLOP,1 GB\n")
    expect(at(page, "count")).to_contain_text("3 rows")
    expect(at(page, "colour")).to_have_value("category")


def test_a_profile_that_is_being_read_says_how_far_it_is_and_then_shows_itself(watch: Watch, folder: Path) -> None:
    with client(folder / "before.csv", read=held_back) as slow:
        page = watch.page()
        page.goto(f"{slow.base_url}/run/{slow.get('/index.json').json()['runs'][0]['id']}")
        expect(page.locator("#word")).to_have_text("reading… 43%")
        expect(page.locator("#progress")).to_have_js_property("value", 0.43)
        assert "before.csv" in page.title()
        watch.close()


def test_a_link_with_the_token_opens_the_list_from_anywhere(watch: Watch, folder: Path) -> None:
    with client(folder, token="0" * 48) as server:
        page = watch.page()
        page.goto(f"data:text/html,<a href='{server.base_url}/?token={'0' * 48}'>runs</a>")
        page.get_by_role("link").click()
        expect(page.locator("#runs table")).to_be_visible()
        expect(page).to_have_url(f"{server.base_url}/")  # the token is in a cookie now
        page.get_by_role("link", name="before.csv").click()
        page.locator("html[data-ready=true]").wait_for()
        assert count(page) == 2
        watch.close()


def test_a_damaged_profile_says_so_and_recovers(watch: Watch, folder: Path) -> None:
    broken = folder / "host.csv"
    broken.write_text("name,time\n")
    with client(broken) as server:
        page = watch.page()
        run = server.get("/index.json").json()["runs"][0]
        page.goto(f"{server.base_url}{run['page']}")
        expect(page.get_by_role("alert")).to_contain_text("host.csv")
        broken.write_text(TABLE)
        expect(at(page, "count")).to_contain_text("2 rows")
        watch.close()
    watch.complaints[:] = [said for said in watch.complaints if "422" not in said]  # the browser says that the page was an error


def test_the_list_is_worked_by_keyboard(watch: Watch, server: httpx.Client) -> None:
    page = home(watch, server)
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.keyboard.type("bef")
    expect(page.locator("#count")).to_have_text("1 of 2 runs")
    page.locator("#filter").fill("")
    page.keyboard.press("ArrowDown")
    expect(page.locator("tbody a").first).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.locator("#compare")).to_be_visible()
    page.keyboard.press("Enter")
    page.locator("html[data-ready=true]").wait_for()


def test_the_list_sorts_and_filters(watch: Watch, server: httpx.Client) -> None:
    page = home(watch, server)
    heading = page.get_by_role("button", name="Run", exact=True)
    heading.click()
    assert names(page) == ["after.csv", "before.csv"]
    heading.click()
    assert names(page) == ["before.csv", "after.csv"]
    page.locator("#filter").fill("nothing")
    expect(page.get_by_text("No runs match this filter.")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_list(watch: Watch, server: httpx.Client, scheme: str) -> None:
    assert violations(home(watch, server, color_scheme=scheme), scheme) == []


def test_the_list_fits_a_phone(watch: Watch, server: httpx.Client) -> None:
    page = home(watch, server, viewport={"width": 360, "height": 700})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_hostile_file_names_are_text(watch: Watch, folder: Path) -> None:
    (folder / "<img src=x onerror=alert(1)>.csv").write_text(TABLE)
    with client(folder) as server:
        page = home(watch, server)
        expect(page.get_by_role("link", name="<img src=x onerror=alert(1)>.csv")).to_be_visible()
        assert page.locator("img").count() == 0
        watch.close()


def test_thousands_of_runs_are_listed_a_part_at_a_time(watch: Watch, tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / f"{number:04}.csv").write_text(TABLE)
    with client(tmp_path) as server:
        page = home(watch, server)
        expect(page.locator("#count")).to_have_text("1200 runs")
        assert page.locator("tbody tr").count() == 200
        page.get_by_role("button", name="Show more").click()
        assert page.locator("tbody tr").count() == 400
        page.locator("#filter").fill("1199")
        assert names(page) == ["1199.csv"]
        watch.close()
