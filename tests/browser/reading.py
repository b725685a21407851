"""Reading a page as a person would: the words on its chart, its rows, its card, its downloads."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

Opener = Callable[..., Page]
TEXTS = "[...document.querySelectorAll(`[data-testid=${id}] canvas`)].flatMap(canvas => canvas.texts ?? [])"


def at(page: Page, testid: str) -> Locator:
    """The part of a page that has this name for tests."""
    return page.get_by_test_id(testid)


def words(page: Page, chart: str = "chart") -> list[str]:
    """Everything written on a chart."""
    found: list[str] = page.evaluate(f"id => {TEXTS}", chart)
    return found


def settled(page: Page) -> None:
    """Two frames later: whatever was going to be drawn has been."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def written(page: Page, word: str, chart: str = "chart", *, present: bool = True) -> None:
    """Wait until a word is (or is no longer) on a chart."""
    page.wait_for_function(
        f"([id, word, present]) => {TEXTS}.some(text => text.includes(word)) === present",
        arg=[chart, word, present],
    )


def ticks(page: Page) -> list[str]:
    """The labels along the axis of rates: numbers with a prefix and FLOP/s, such as 100 TFLOP/s or 1 T."""
    return [text for text in words(page) if re.fullmatch(r"[\d.,]+ ?[pnµmkMGTPE]?(FLOP/s)?|10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", text)]


def picture(page: Page, chart: str = "chart") -> str:
    """Everything drawn on a chart, as one word that changes with any pixel."""
    found: str = page.evaluate(
        """id => [...document.querySelectorAll(`[data-testid=${id}] canvas`)]
            .map(one => `${one.style.transform} ${one.toDataURL()}`).join()""",
        chart,
    )
    return found


def still(page: Page) -> str:
    """The picture of the chart once it changes no more: names find their places a moment after the dots."""
    while True:
        before = picture(page)
        page.wait_for_timeout(100)
        settled(page)
        if picture(page) == before:
            return before


def spot(page: Page, op: int) -> tuple[float, float]:
    """Where the dot of an op is in the window."""
    at(page, "chart").scroll_into_view_if_needed()
    found: dict[str, float] = page.evaluate("id => window.roofline.spot(id)", op)
    box = at(page, "chart").bounding_box()
    assert box is not None
    return box["x"] + found["x"], box["y"] + found["y"]


def centre(page: Page, testid: str = "chart") -> tuple[float, float]:
    """The middle of a part of the page."""
    at(page, testid).scroll_into_view_if_needed()
    box = at(page, testid).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def hover(page: Page, op: int) -> Locator:
    """The card that comes with the mouse on an op's dot."""
    page.mouse.move(*spot(page, op))
    expect(at(page, "card")).to_be_visible()
    return at(page, "card")


def rows(page: Page, table: str = "table") -> Locator:
    """The rows of a table that exist at the moment."""
    return page.locator(f"[data-testid={table}] .rows > [role=row]")


def column(page: Page, key: str, table: str = "table") -> list[str]:
    """A column of a table from its first row on, as far as rows exist, in the order they are seen."""
    found: list[str] = page.evaluate(
        """([id, key]) => [...document.querySelectorAll(`[data-testid=${id}] .rows > [role=row]`)]
            .sort((one, other) => one.getAttribute('aria-rowindex') - other.getAttribute('aria-rowindex'))
            .map(row => row.querySelector(`[data-column=${key}]`)?.textContent)""",
        [table, key],
    )
    return found


def count(page: Page) -> int:
    """How many rows the table says it has."""
    return int(re.sub(r"\D", "", at(page, "count").inner_text().split(" ")[0]))


def state(page: Page) -> dict[str, Any]:
    """What the page believes it shows."""
    found: dict[str, Any] = page.evaluate("() => window.roofline.state()")
    return found


def report(page: Page, id: str = "report") -> dict[str, Any]:
    """The report that stands in the page."""
    # As one text: a value of many parts takes Playwright a while to carry over.
    found: dict[str, Any] = json.loads(page.evaluate("id => document.getElementById(id).textContent", id))
    return found


def kept(page: Page, what: Callable[[Page], Any]) -> Any:
    """What was there before and after the page was loaded again from its address; the two have to be equal."""
    seen = what(page)
    page.reload()
    page.locator("html[data-ready=true]").wait_for()
    return seen, what(page)


def download(page: Page, testid: str, folder: Path) -> Path:
    """A file that the page exports."""
    at(page, "export").click()
    with page.expect_download() as coming:
        at(page, testid).click()
    target = folder / coming.value.suggested_filename
    coming.value.save_as(target)
    return target


def table_of(path: Path) -> list[dict[str, str]]:
    """A downloaded CSV."""
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))


def violations(page: Page, scheme: str, part: str | None = None) -> list[tuple[str, str, list[str]]]:
    """What axe finds wrong on a page or a part of it; of a dark page, which has the elements of the light one, only its colours."""
    found = Axe().run(page, context=part, options={"runOnly": ["color-contrast"]} if scheme == "dark" else {}).response["violations"]
    return [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
