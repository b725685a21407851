"""The picture of the page in the README: `python docs/page_picture.py` takes it again, with Playwright and Chromium.

The file keeps the words of the page's headings, by which a test notices when the page has changed.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, PngImagePlugin
from playwright.sync_api import Browser, Page, sync_playwright

import roofline as rl

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "browser"))
from programs import NO_CHROMIUM, chromium

PICTURE = Path(__file__).parent / "figures" / "page.png"
WIDTH, HEIGHT, SCALE = 1440, 1300, 1.25  # of the window, in pixels of CSS, and how many of the picture each of them is
HEADINGS = "h1, h2, dt, th, .tabs button, [role=columnheader]"


def opened(browser: Browser, folder: Path) -> Page:
    """The page of the sample in a light window."""
    report = rl.save(rl.analyze("sample:train", timeline=True), folder / "report.html")
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme="light")
    page.goto(Path(report).as_uri())
    page.locator("html[data-ready=true]").wait_for()
    return page


def headings(page: Page) -> str:
    """The words of the headings that show."""
    shown = page.locator(HEADINGS).locator("visible=true").all_inner_texts()
    return " | ".join(" ".join(text.split()) for text in shown)


def write(target: Path) -> None:
    """Take the picture."""
    path = chromium()
    assert path, NO_CHROMIUM
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = opened(browser, Path(folder))
        page.screenshot(path=target)
        words = PngImagePlugin.PngInfo()
        words.add_itxt("headings", headings(page))
        browser.close()
    with Image.open(target) as taken:
        taken.convert("RGB").save(target, optimize=True, pnginfo=words)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
