"""The guard: access checks before a path is handled, and the security headers of every answer.

The server is for one user on one machine. Other users of the machine do not know the token, which is in the address that the server prints:
a browser that opens it gets a cookie, scripts send it with each request. Requests that a foreign page makes the browser send (through a
name that resolves to 127.0.0.1, from its scripts, or for an image) are rejected by their ``Host``, ``Origin`` or ``Sec-Fetch-Site``. Only
GET and HEAD are accepted, and POST to cancel or retry a job.
"""

import secrets
from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD")
ACTIONS = ("/cancel", "/retry")
NAMES = ("127.0.0.1", "localhost", "[::1]")
OWN_SITE = ("same-origin", "none")  # from one of the server's own pages, or typed by the user
WITHOUT_TOKEN = "open the address with the token that roofline serve printed, or send the header 'Authorization: token TOKEN'"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Headers that an answer sets itself are kept, such as the policy of pages with a nonce.
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Guard:
    """An application protected by the guard, on ``port`` of this machine; without a ``token`` for every local user."""

    def __init__(self, app: ASGIApp, port: int, token: str | None = None) -> None:
        self._app, self._token, self._ticket = app, token, ""
        self._cookie = f"roofline-{port}"  # cookies are shared by all ports of a host
        self._hosts = {f"{name}:{port}" for name in NAMES}
        if port == 80:  # browsers omit the default port
            self._hosts |= set(NAMES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        words = request.query_params.getlist("token")
        named = _is_among(self._token, words) or self._redeem(words)
        refusal = self._refusal(request, named)
        answer: ASGIApp = self._app
        if refusal is not None:
            answer = refusal
        elif named and "text/html" in request.headers.get("accept", ""):
            answer = self._entrance(request)
        await answer(scope, receive, _with_headers(send))

    def _refusal(self, request: Request, named: bool) -> Response | None:
        """The answer to a request that is rejected; ``named`` is whether its address contains the token."""
        hosts, sites = request.headers.getlist("host"), request.headers.getlist("sec-fetch-site")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return _refused("this server accepts only 127.0.0.1 and localhost on its own port")
        if any(origin.lower().removeprefix("http://") not in self._hosts for origin in request.headers.getlist("origin")):
            return _refused("this server accepts requests from its own pages only")
        # A link from a mail or a notebook is accepted if it contains the token, which a foreign page cannot know.
        navigates = request.headers.get("sec-fetch-mode") == "navigate" and request.headers.get("sec-fetch-dest") == "document"
        if not (named and navigates) and any(site.lower() not in OWN_SITE for site in sites):
            return _refused("this server accepts requests from its own pages only; paste its address into the browser")
        if request.method not in METHODS and not (request.method == "POST" and request.scope["path"].endswith(ACTIONS)):
            return PlainTextResponse("this server accepts GET and HEAD only\n", 405, {"allow": ", ".join(METHODS)})
        if self._token is not None and not named and not _is_among(self._token, self._sent_tokens(request)):
            return _refused(WITHOUT_TOKEN)
        return None

    def _sent_tokens(self, request: Request) -> list[str]:
        """What a request gives as the token in its cookie and headers."""
        pairs = [header.partition(" ") for header in request.headers.getlist("authorization")]
        in_headers = [word.strip() for scheme, _, word in pairs if scheme.lower() in ("token", "bearer")]
        return [request.cookies.get(self._cookie, ""), *in_headers]

    def ticket(self) -> str:
        """A single-use token: the command line with which a browser is started is visible to every user of the machine."""
        self._ticket = new_token()
        return self._ticket

    def _redeem(self, words: Sequence[str]) -> bool:
        good = _is_among(self._ticket, words)
        if good:
            self._ticket = ""
        return good

    def _entrance(self, request: Request) -> Response:
        """Sets the browser's cookie, and reloads the address without the token, which would stay in its history.

        This is a page instead of a redirect, because after a link from another site the redirect would count as cross-site too.
        """
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = "/" + request.scope.get("raw_path", b"/").decode("latin-1").lstrip("/")  # two slashes would be parsed as a host
        where = escape(f"{path}?{rest}" if rest else path)
        answer = HTMLResponse(
            f'<!doctype html><title>roofline</title><meta http-equiv="refresh" content="0;url={where}"><a href="{where}">runs</a>\n'
        )
        answer.set_cookie(self._cookie, self._token or "", httponly=True, samesite="strict")
        return answer


def new_token() -> str:
    """A random token."""
    return secrets.token_hex(24)


def _is_among(token: str | None, words: Sequence[str]) -> bool:
    """Whether one of these words is the token, if there is one."""
    return bool(token) and any(secrets.compare_digest(word.encode(), str(token).encode()) for word in words)


def _refused(words: str) -> Response:
    return PlainTextResponse(f"{words}\n", 403)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
