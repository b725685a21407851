"""The programs that tests of the page need: Chromium and Node. As a command it finds them, installs what is missing, and says what it does.

Chromium is ``$ROOFLINE_CHROMIUM``, else one on the path, else Playwright's own. On Debian, as root, the missing ones come from its
packages; elsewhere Chromium comes from Playwright.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
NODE = ("node", "nodejs")
NO_CHROMIUM = "no Chromium: install one (apt-get install chromium, or playwright install chromium), or name it in ROOFLINE_CHROMIUM"
NO_NODE = "no Node: install version 20 or newer (apt-get install nodejs)"
PATIENCE_MS = 120_000  # with a browser: a busy machine is slow, not wrong


def chromium() -> str | None:
    """The browser, if there is one."""
    named = os.environ.get("ROOFLINE_CHROMIUM")
    if named:
        return named
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    return found or _playwrights_own()


def node() -> str | None:
    """Node, if it is there."""
    return next((path for name in NODE if (path := shutil.which(name))), None)


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def main() -> int:
    """Find both, or install what is missing; 1 when that did not work."""
    missing = [name for name, found in (("chromium", chromium()), ("nodejs", node())) if not found]
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        _say(f"installing {' and '.join(missing)} with apt-get, for the tests of the page")
        _run("apt-get", "update", "-q")
        _run("apt-get", "install", "-q", "-y", "--no-install-recommends", *missing)
    if not chromium():
        _say("installing Chromium with Playwright, for the tests of the page")
        _run(sys.executable, "-m", "playwright", "install", "chromium")
    wrong = [words for words, found in ((NO_CHROMIUM, chromium()), (NO_NODE, node())) if not found]
    for words in wrong:
        _say(words)
    if not wrong:
        _say(f"tests of the page use {chromium()} and {node()}")
    return 1 if wrong else 0


def _run(*command: str) -> None:
    # A failure shows in what is found afterwards.
    subprocess.run(command, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
