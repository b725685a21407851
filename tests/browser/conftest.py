"""A real browser: one for each worker, a fresh context for each test, and nothing on a page goes unnoticed.

Every test here fails when its pages complain on the console, throw, or ask for anything but the file, the data in it, or the server on
this machine.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from material import PAGES, made
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from programs import NO_CHROMIUM, chromium

LOCAL = re.compile(r"(file:|data:|blob:|about:|http://127\.0\.0\.1:\d+/)")
# Writes down what is drawn on canvases, so that tests read the words of a chart as they would those of an element.
LISTENING = """
const context = CanvasRenderingContext2D.prototype;
const { fillText, clearRect } = context;
context.fillText = function (text, ...rest) {
  (this.canvas.texts ??= []).push(String(text));
  return fillText.call(this, text, ...rest);
};
context.clearRect = function (...rest) {
  this.canvas.texts = [];
  return clearRect.apply(this, rest);
};
const width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "width");
Object.defineProperty(HTMLCanvasElement.prototype, "width", {
  ...width,
  set(value) {
    this.texts = []; // a new size empties a canvas
    width.set.call(this, value);
  },
});
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


# While Playwright is at work a loop runs in this thread, in which other tests could not start their own: so it ends with this folder.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser of this worker."""
    path = chromium()
    assert path, NO_CHROMIUM
    with sync_playwright() as playwright:
        # Tests may run as root in a container, where Chromium's own sandbox cannot work.
        made_browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield made_browser
        made_browser.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of a name in `material.PAGES`, as a file; built once for all workers."""
    shared = tmp_path_factory.getbasetemp().parent / "pages"

    def built(name: str) -> Path:
        assert name in PAGES, f"no page called {name}"
        return made(shared, name)

    return built


class Watch:
    """Pages whose complaints and requests are written down."""

    def __init__(self, browser: Browser) -> None:
        self._browser, self._contexts = browser, list[BrowserContext]()
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def page(self, **options: Any) -> Page:
        """A new page in a context of its own; the options are those of a context."""
        context = self._browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options})
        self._contexts.append(context)
        context.set_default_timeout(10_000)
        context.on("request", lambda request: self.requests.append(request.url))
        context.add_init_script(LISTENING)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"thrown: {error}"))
        page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}") if said.type in ("error", "warning") else None)
        return page

    def close(self) -> None:
        """Close the pages, as before their server goes: a live page would complain that it is gone."""
        while self._contexts:
            self._contexts.pop().close()

    def strangers(self) -> list[str]:
        """Requests that leave this machine."""
        return [url[:200] for url in self.requests if not LOCAL.match(url)]


@pytest.fixture
def watch(browser: Browser) -> Iterator[Watch]:
    """Fresh pages, held to silence at the end of the test."""
    made_watch = Watch(browser)
    yield made_watch
    made_watch.close()
    assert made_watch.complaints == []
    assert made_watch.strangers() == []


@pytest.fixture
def show(watch: Watch, pages: Callable[[str], Path]) -> Callable[..., Page]:
    """Open a page by name, from disk, in a state given by a fragment; wait until its chart stands."""

    def opened(name: str, fragment: str = "", **options: Any) -> Page:
        page = watch.page(**options)
        page.goto(pages(name).as_uri() + (f"#{fragment}" if fragment else ""))
        page.locator("html[data-ready=true]").wait_for()
        return page

    return opened
