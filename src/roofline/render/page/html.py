"""The page: a report as one HTML file that opens anywhere, offline, or as the same page served live.

Callers: the command line and notebooks take `page(...)` as it is, a file that asks the network for nothing; the server adds
`live=Live(nonce=...)` and sends `live_policy(nonce)` as its content security policy. The modules in `static/` import each other by
the names `#page/NAME.js`; an import map in the page says where these are: inside the file, or below the server's static folder.
"""

import base64
import hashlib
import html
import json
import re
from functools import lru_cache
from importlib import resources
from urllib.parse import quote

from msgspec import Struct

from ...errors import UNSAFE, clean
from .data import vocabulary_json

STATIC = "static"  # the folder of the page's parts, beside this file
_MARK = re.compile(r"<!--\{(\w+)\}-->")
# Controls need no spelling: JSON itself has them by their numbers.
_UNSAFE = re.compile(r"(?![\x00-\x1f\ud800-\udfff])" + UNSAFE)
# Comments that take whole lines, which is how ours are written.
_COMMENT = re.compile(r"^[ \t]*(?:/\*\*.*?\*/|//[^\n]*)[ \t]*\n", re.MULTILINE | re.DOTALL)
_INDENT = re.compile(r"^\s+", re.MULTILINE)  # and empty lines
# What a data URL may hold as it is. Not < (it could end the element), nor % and # (they mean something in a URL), nor line ends.
_PLAIN = " !\"$&'()*+,-./:;=>?@[\\]^_`{|}~"
_CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "


class Live(Struct, frozen=True, kw_only=True):
    """What a served page gets besides its report.

    ``nonce`` is the one that `live_policy` allows, fresh for every answer. ``home`` is the page that lists the runs, ``twin`` the
    address of the bytes of this page's JSON, and ``events`` a stream of server-sent events: any message makes the page reload,
    with its state in the fragment.
    """

    nonce: str
    static: str = "/static"
    home: str = "/"
    twin: str | None = None
    events: str | None = None


def page(
    report: bytes,
    *,
    words: bytes,
    title: str,
    before: bytes | None = None,
    comparison: bytes | None = None,
    catalogue: bytes | None = None,
    live: Live | None = None,
) -> str:
    """The page of a report, which has the bytes that ``--json`` writes, unchanged but for `escaped`.

    ``words`` are what `words_json` says of it. Two runs are compared when ``before`` holds the earlier report and ``comparison`` the
    JSON of their comparison (`Comparison` of `roofline.comparison`, or what `roofline compare --json` writes). ``catalogue`` are the
    machines that the page can show the same work on, as `catalogue_json` writes them.
    """
    parts = {
        "title": html.escape(clean(title)),
        "policy": "" if live else _policy_tag(),
        "style": f'<link rel="stylesheet" href="{html.escape(live.static)}/page.css">' if live else f"<style>{_style()}</style>",
        "imports": _script(_imports(live.static if live else None), "importmap", live),
        "live": _live_tag(live),
        "vocabulary": data_element("vocabulary", vocabulary_json()),
        "report": data_element("report", report),
        "before": data_element("before", before),
        "comparison": data_element("comparison", comparison),
        "words": data_element("words", words),
        "catalogue": data_element("catalogue", catalogue),
        "start": _script(_START, "module", live),
    }
    return _MARK.sub(lambda mark: parts[mark[1]], part("page.html"))


def escaped(data: bytes) -> str:
    """JSON that cannot end or open an element of HTML: the same values, spelled ``<\\/`` for ``</`` and ``\\u003c!--`` for ``<!--``.

    Characters that reorder or hide text are spelled by their number; the page shows a dot for each, as the terminal does.

    >>> escaped(b'{"name": "</script><!-- x"}')
    '{"name": "<\\\\/script>\\\\u003c!-- x"}'
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).replace("</", "<\\/").replace("<!--", "\\u003c!--")


def live_policy(nonce: str) -> str:
    """The content security policy for a live page: modules, styles and data from the server itself and from nowhere else."""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@lru_cache(maxsize=1)
def modules() -> tuple[str, ...]:
    """The names of the page's modules."""
    folder = resources.files(__package__).joinpath(STATIC)
    return tuple(sorted(found.name for found in folder.iterdir() if found.name.endswith(".js")))


@lru_cache(maxsize=64)
def part(name: str) -> str:
    """One part of the page, by its file name."""
    return resources.files(__package__).joinpath(STATIC, name).read_text("utf-8")


_START = 'import "#page/app.js";'


def _style() -> str:
    return part("page.css")


def _imports(static: str | None) -> str:
    """The import map: each module where it is, or itself as a data URL."""
    return json.dumps({"imports": {f"#page/{name}": f"{static}/{name}" if static else _data_url(name) for name in modules()}})


@lru_cache(maxsize=64)
def _data_url(name: str) -> str:
    return "data:text/javascript;charset=utf-8," + quote(_INDENT.sub("", _COMMENT.sub("", part(name))), safe=_PLAIN)


def _script(text: str, kind: str, live: Live | None) -> str:
    nonce = f' nonce="{html.escape(live.nonce)}"' if live else ""
    return f'<script type="{kind}"{nonce}>{text}</script>'


def data_element(name: str, data: bytes | None) -> str:
    """JSON in a page, under a name."""
    return "" if data is None else f'<script type="application/json" id="{name}">{escaped(data)}</script>'


def _live_tag(live: Live | None) -> str:
    """Where a live page finds its server, as attributes of one element."""
    if live is None:
        return ""
    addresses = {"home": live.home, "twin": live.twin, "events": live.events}
    attributes = " ".join(f'data-{key}="{html.escape(value)}"' for key, value in addresses.items() if value)
    return f'<meta name="roofline-live" {attributes}>'


def _policy_tag() -> str:
    """The policy of the one-file page: its own inline parts by their hashes, modules from data URLs, and no network at all."""
    hashes = " ".join(f"'{script_hash(text)}'" for text in (_imports(None), _START))
    return closed_policy(f"data: {hashes}", f"'{script_hash(_style())}'")


def closed_policy(scripts: str, styles: str) -> str:
    """The element that allows a page these scripts and styles, and no network."""
    return f'<meta http-equiv="Content-Security-Policy" content="{_CLOSED}script-src {scripts}; style-src {styles}">'


def script_hash(text: str) -> str:
    """The hash by which a policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
