"""A real browser: one for each worker, whose tabs the tests hand on, and nothing on a page goes unnoticed.

Every test here fails when its pages complain on the console, throw, or ask for anything but the file, the data in it, or the server on
this machine.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from material import PAGES, made
from playwright.sync_api import Page, sync_playwright
from programs import NO_CHROMIUM, PATIENCE_MS, chromium
from reading import settled
from watching import Tabs, Watch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


# While Playwright is at work a loop runs in this thread, in which other tests could not start their own: so it ends with this folder.
@pytest.fixture(scope="package")
def tabs() -> Iterator[Tabs]:
    """The tabs of this worker's browser."""
    path = chromium()
    assert path, NO_CHROMIUM
    with sync_playwright() as playwright:
        # Tests may run as root in a container, where Chromium's own sandbox cannot work.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE_MS)
        yield Tabs(browser)
        browser.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of a name in `material.PAGES`, as a file; built once for all workers."""
    own = tmp_path_factory.getbasetemp()
    # Each of several workers has a folder inside that of the run; alone, what is above belongs to other runs.
    shared = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "pages"

    def built(name: str) -> Path:
        assert name in PAGES, f"no page called {name}"
        return made(shared, name)

    return built


@pytest.fixture
def watch(tabs: Tabs) -> Iterator[Watch]:
    """Pages of its own for a test, held to silence at its end."""
    made_watch = Watch(tabs)
    yield made_watch
    made_watch.close(blank=False)
    assert made_watch.complaints == []
    assert made_watch.strangers() == []


@pytest.fixture
def show(watch: Watch, pages: Callable[[str], Path]) -> Callable[..., Page]:
    """Open a page by name, from disk, in a state given by a fragment."""

    def opened(name: str, fragment: str = "", **options: Any) -> Page:
        address = pages(name).as_uri()
        page = watch.page(address, **options)
        if fragment:
            page.goto(f"{address}#{fragment}")
            settled(page)
        return page

    return opened
