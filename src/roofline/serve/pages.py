"""The small pages besides the report's: the list of runs, the progress page while a profile is read, and the error page.

None has inline scripts or styles, so the strict content security policy of `guard` applies unchanged.
"""

import html
from functools import lru_cache
from hashlib import blake2s
from importlib import resources

from msgspec import Struct

from ..errors import clean
from ..render.page import html as report_page
from ..units import percent

TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}


class Asset(Struct, frozen=True, kw_only=True):
    """A static file of pages: its bytes, its content type, and its entity tag."""

    body: bytes
    type: str
    tag: str


@lru_cache(maxsize=1)
def assets() -> dict[str, Asset]:
    """Every script, style and image by name. Only these are served: names are looked up, never joined to a path."""
    found: dict[str, Asset] = {}
    for package, folder in ((report_page.__package__, report_page.STATIC), (__package__, "static")):
        for file in resources.files(package).joinpath(folder).iterdir():
            kind = TYPES.get(file.name.rpartition(".")[2])
            if kind:
                body = file.read_bytes()
                found[file.name] = Asset(body=body, type=kind, tag=tag_of(body))
    return found


def tag_of(body: bytes) -> str:
    """The entity tag of a body."""
    return f'"{blake2s(body, digest_size=12).hexdigest()}"'


def index_page(title: str) -> str:
    """The list of runs: a frame that `live_index.js` fills from `/index.json` and keeps up to date."""
    return _frame(
        f"{title} · roofline",
        f"""
<header class="bar"><h1>{_text(title)}</h1><p id="count" role="status" aria-live="polite">loading…</p></header>
<main>
<form id="tools" role="search">
<label for="filter">Filter</label>
<input id="filter" type="search" autocomplete="off" spellcheck="false" placeholder="name, device or kind" aria-describedby="keys">
<span id="pair" role="status" aria-live="polite">Tick two runs to compare.</span>
<a id="compare" class="button" hidden>Compare</a>
<button id="swap" type="button" hidden>Swap</button>
</form>
<div id="runs"></div>
<p><button id="more" type="button" hidden>Show more</button></p>
<ul id="notes"></ul>
<p id="keys" class="quiet"><kbd>/</kbd> filter, <kbd>↓</kbd> <kbd>↑</kbd> move, <kbd>Enter</kbd> open, <kbd>Space</kbd> tick.
This list as <a href="/index.json">JSON</a>.</p>
<noscript><p>JavaScript is disabled; see the list as <a href="/index.json">JSON</a>.</p></noscript>
</main>""",
        script="live_index.js",
    )


def waiting_page(title: str, *, progress: float | None, address: str) -> str:
    """Shown while a run is read; `live_wait.js` polls `state.json` and reloads the page when it is done."""
    share = 0.0 if progress is None else progress
    word = "queued" if progress is None else "analyzing…" if share >= 1 else f"reading… {percent(share)}"
    return _frame(
        f"{title} · roofline",
        f"""
<header class="bar"><h1>{_text(title)}</h1><p><a href="/">all runs</a></p></header>
<main id="waiting" data-state="{_text(address)}/state.json">
<p role="status" aria-live="polite" id="word">{_text(word)}</p>
<progress id="progress" aria-label="reading progress" max="1" value="{share:.2f}"></progress>
<p><button id="act" type="button" data-address="{_text(address)}/cancel">Cancel</button></p>
<noscript><p>JavaScript is disabled; reload this page in a moment.</p></noscript>
</main>""",
        script="live_wait.js",
    )


def error_page(title: str, message: str, *, events: str = "", retry: str = "", command: str = "") -> str:
    """An error in one line; with ``events`` the page reloads when its run changes, with ``retry`` on demand; ``command`` helps further."""
    after = "".join(
        [
            '<p class="quiet">A file that is still being written is read again when it changes.</p>' if events else "",
            f'<p class="quiet">In a terminal: <code>{_text(command)}</code></p>' if command else "",
        ]
    )
    button = f'<p><button id="act" type="button" data-address="{_text(retry)}">Try again</button></p>' if retry else ""
    return _frame(
        f"{title} · roofline",
        f"""
<header class="bar"><h1>{_text(title)}</h1><p><a href="/">all runs</a></p></header>
<main id="waiting" data-events="{_text(events)}">
<p role="alert" class="wrong">{_text(message)}</p>{after}{button}
</main>""",
        script="live_wait.js",
    )


def _text(text: str) -> str:
    """Text as HTML, safe to show."""
    return html.escape(clean(text))


def _frame(title: str, body: str, *, script: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{_text(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/static/live_icon.svg">
<link rel="stylesheet" href="/static/live.css">
<script type="module" src="/static/{script}"></script>
</head>
<body>{body}
</body>
</html>
"""
