"""The guard: access checks before a path is handled, and the security headers of every answer.

The server is for one user on one machine. Other users of the machine do not know the token, which is in the address that the server prints:
a browser that opens it gets a cookie, scripts send it with each request. Requests that a foreign page makes the browser send (through a
name that resolves to 127.0.0.1, from its scripts, or for an image) are rejected by their ``Host``, ``Origin`` or ``Sec-Fetch-Site``. Only
GET and HEAD are accepted, and POST to cancel or retry a job.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[str, list[str]]

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

    def __init__(self, app: App, port: int, token: str | None = None) -> None:
        self._app, self._token, self._ticket = app, token, ""
        self._cookie = f"roofline-{port}"  # cookies are shared by all ports of a host
        self._hosts = {f"{name}:{port}" for name in NAMES}
        if port == 80:  # browsers omit the default port
            self._hosts |= set(NAMES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            given = _headers(scope)
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            words = [value for name, value in query if name == "token"]
            named = self._is_token(words) or self._redeem(words)
            refusal = self._refusal(scope, given, named)
            if refusal is not None:
                await _refuse(_with_headers(send), *refusal)
            elif named and "text/html" in ",".join(given.get("accept", [])):
                await self._enter(scope, query, _with_headers(send))
            else:
                await self._app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, given: Headers, named: bool) -> tuple[int, str] | None:
        """Why a request is rejected; ``named`` is whether its address contains the token."""
        hosts = given.get("host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 403, "this server accepts only 127.0.0.1 and localhost on its own port"
        if any(value.lower().removeprefix("http://") not in self._hosts for value in given.get("origin", [])):
            return 403, "this server accepts requests from its own pages only"
        # A link from a mail or a notebook is accepted if it contains the token, which a foreign page cannot know.
        opened = named and given.get("sec-fetch-mode") == ["navigate"] and given.get("sec-fetch-dest") == ["document"]
        if not opened and any(value.lower() not in OWN_SITE for value in given.get("sec-fetch-site", [])):
            return 403, "this server accepts requests from its own pages only; paste its address into the browser"
        if scope["method"] not in METHODS and not (scope["method"] == "POST" and scope["path"].endswith(ACTIONS)):
            return 405, "this server accepts GET and HEAD only"
        if self._token is not None and not named and not self._is_token([*self._cookies(given), *_authorizations(given)]):
            return 403, WITHOUT_TOKEN
        return None

    def _is_token(self, words: list[str]) -> bool:
        return self._token is not None and any(secrets.compare_digest(word.encode(), self._token.encode()) for word in words)

    def ticket(self) -> str:
        """A single-use token: the command line with which a browser is started is visible to every user of the machine."""
        self._ticket = new_token()
        return self._ticket

    def _redeem(self, words: list[str]) -> bool:
        good = bool(self._ticket) and any(secrets.compare_digest(word.encode(), self._ticket.encode()) for word in words)
        if good:
            self._ticket = ""
        return good

    def _cookies(self, given: Headers) -> list[str]:
        try:
            jar = SimpleCookie("; ".join(given.get("cookie", [])))
        except CookieError:
            return []
        return [jar[self._cookie].value] if self._cookie in jar else []

    async def _enter(self, scope: Scope, query: list[tuple[str, str]], send: Send) -> None:
        """Set the browser's cookie, and reload the address without the token, which would stay in its history.

        This uses a page instead of a redirect, because after a link from another site the redirect would count as cross-site too.
        """
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + scope.get("raw_path", b"/").decode("latin-1").lstrip("/")  # two slashes would be parsed as a host
        where = escape(f"{path}?{rest}" if rest else path)
        body = f'<!doctype html><title>roofline</title><meta http-equiv="refresh" content="0;url={where}"><a href="{where}">runs</a>\n'
        cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 200, body, "text/html", ("set-cookie", cookie))


def new_token() -> str:
    """A random token."""
    return secrets.token_hex(24)


def _headers(scope: Scope) -> Headers:
    found: Headers = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _authorizations(given: Headers) -> list[str]:
    pairs = [value.partition(" ") for value in given.get("authorization", [])]
    return [word.strip() for scheme, _, word in pairs if scheme.lower() in ("token", "bearer")]


async def _refuse(send: Send, status: int, words: str) -> None:
    await _answer(send, status, f"{words}\n", "text/plain", *([("allow", ", ".join(METHODS))] if status == 405 else []))


async def _answer(send: Send, status: int, text: str, kind: str, *more: tuple[str, str]) -> None:
    body = text.encode()
    headers = [("content-type", f"{kind}; charset=utf-8"), ("content-length", str(len(body))), *more]
    await send({"type": "http.response.start", "status": status, "headers": [(name.encode(), value.encode()) for name, value in headers]})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return sending
