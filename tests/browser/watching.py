"""Tabs that tests hand on, and what the pages in them complain of, ask for, and write on canvases."""

import json
import re
from typing import Any

from playwright.sync_api import Browser, Page, expect
from programs import PATIENCE_MS

expect.set_options(timeout=PATIENCE_MS)
MOST_TABS = 4  # of a worker; of those with options of their own, such as phones, one
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


# What a page shows and where a hand left it, as one text: equal texts, equal pages.
LOOKS = """() => JSON.stringify([
  document.documentElement.dataset.theme, document.activeElement.tagName, scrollX, scrollY,
  ["top", "main"].map(id => document.getElementById(id)?.innerText),
  [...document.querySelectorAll(
    "input, select, details, [aria-pressed], [aria-expanded], [aria-selected], [aria-invalid], [aria-valuenow]")]
    .filter(one => one.checkVisibility()).map(one => [one.value, one.checked, one.open, [...one.attributes].map(({ value }) => value)]),
  [...document.querySelectorAll("main *")].filter(one => one.scrollTop || one.scrollLeft).length,
])"""
# Back to its first state without loading it again, which takes a browser half a second: the state is in the fragment, and the rest is
# what a hand that leaves the page would do.
CLEARING = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  document.activeElement.blur();
  for (const one of document.querySelectorAll("main *")) if (one.scrollTop || one.scrollLeft) one.scrollTo(0, 0);
  scrollTo(0, 0);
  history.replaceState(null, "", location.pathname);
  dispatchEvent(new PopStateEvent("popstate"));
  await frame();
  await frame();
}"""


class Tab:
    """A tab, which serves one test after another."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.watch: Watch | None = None  # of the test that has it
        self.shows: tuple[str, str] | None = None  # the page that was loaded, and the window it was loaded for
        self.looked = ""  # how the page looked then
        page.on("pageerror", lambda error: self.complain(f"thrown: {error}"))
        page.on("console", lambda said: self.complain(f"{said.type}: {said.text}") if said.type in ("error", "warning") else None)
        page.on("request", lambda request: self.watch.requests.append(request.url) if self.watch else None)

    def complain(self, words: str) -> None:
        """Write down what the page says."""
        if self.watch:
            self.watch.complaints.append(words)

    def load(self, address: str, window: str) -> None:
        """Show the page at this address in its first state: the one that stands there, if it can be brought back to it."""
        if self.shows == (address, window) and self.page.url.split("#")[0] == address:
            self.page.mouse.click(0, 0)  # closes what is open
            self.page.evaluate(CLEARING)
            if self.page.evaluate(LOOKS) == self.looked:
                return
        self.page.mouse.move(0, 0)
        self.page.goto("about:blank")  # or the fragment alone would change
        self.page.goto(address)
        self.page.locator("html[data-ready=true]").wait_for()
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.shows, self.looked = (address, window), self.page.evaluate(LOOKS)


class Tabs:
    """The tabs of a worker's browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._tabs: dict[str, list[Tab]] = {}  # by the options that a tab cannot change; the one used last comes last

    def take(self, watch: "Watch", address: str | None, options: dict[str, Any]) -> Page:
        """A free tab with these options of a context; with an address, one that shows the report there."""
        viewport, scheme = options.pop("viewport", {"width": 1280, "height": 900}), options.pop("color_scheme", "light")
        window = json.dumps([viewport, scheme])
        tabs = self._tabs.setdefault(json.dumps(options), [])
        free = [tab for tab in tabs if tab.watch is None]
        tab = next((tab for tab in free if tab.shows == (address, window)), None)
        tab = tab or (free[0] if free and (options or len(tabs) >= MOST_TABS) else self._new(options))
        tabs[:] = [*(one for one in tabs if one is not tab), tab]
        tab.watch = watch
        tab.page.set_viewport_size(viewport)
        tab.page.emulate_media(media="screen", color_scheme=scheme)
        if address:
            tab.load(address, window)
        return tab.page

    def _new(self, options: dict[str, Any]) -> Tab:
        context = self._browser.new_context(reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(LISTENING)
        return Tab(context.new_page())

    def give_back(self, watch: "Watch", *, blank: bool) -> None:
        """Take back the tabs of a test, after what they still have to say; empty ones, if what they show is about to go."""
        for tab in [one for tabs in self._tabs.values() for one in tabs if one.watch is watch]:
            if blank:
                tab.page.goto("about:blank")
            tab.page.evaluate("0")
            tab.watch = None


class Watch:
    """The pages of one test, whose complaints and requests are written down."""

    def __init__(self, tabs: Tabs) -> None:
        self._tabs = tabs
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def page(self, address: str | None = None, **options: Any) -> Page:
        """A page of its own, with the report at an address; the options are those of a context."""
        return self._tabs.take(self, address, options)

    def close(self, *, blank: bool = True) -> None:
        """Leave the pages, as before their server goes: a live page would complain that it is gone."""
        self._tabs.give_back(self, blank=blank)

    def strangers(self) -> list[str]:
        """Requests that leave this machine."""
        return [url[:200] for url in self.requests if not LOCAL.match(url)]
