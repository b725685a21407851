"""Pages that are watched: what they complain of, what they ask for, and what they write on canvases."""

import re
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect

PATIENCE_MS = 60_000  # a busy machine is slow, not wrong
expect.set_options(timeout=PATIENCE_MS)
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
        context.set_default_timeout(PATIENCE_MS)
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
