"""The guard: what the server refuses before it looks at a path, and what every answer carries.

It answers one person on one machine. A page elsewhere that makes the browser ask this server (by a name that points to 127.0.0.1, or
from its own scripts) is refused by its ``Host`` or ``Origin``; there is little to change here, so only GET and HEAD are let in, and POST
where a job is cancelled or tried again.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

METHODS = ("GET", "HEAD")
ACTIONS = ("/cancel", "/retry")
NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# An answer that says otherwise keeps its own word, as pages with a nonce in their policy do.
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
    """An application behind the guard, listening on ``port`` of this machine."""

    def __init__(self, app: App, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in NAMES}
        if port == 80:  # the port that a browser leaves out
            self._hosts |= set(NAMES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, receive, _with_headers(send))
            else:
                await _refuse(_with_headers(send), *refusal)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        given = [(name.decode("latin-1").lower(), value.decode("latin-1").lower()) for name, value in scope["headers"]]
        hosts = [value for name, value in given if name == "host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 403, "this server accepts only 127.0.0.1 and localhost on its own port"
        if any(name == "origin" and value.removeprefix("http://") not in self._hosts for name, value in given):
            return 403, "this server accepts requests from its own pages only"
        if scope["method"] not in METHODS and not (scope["method"] == "POST" and scope["path"].endswith(ACTIONS)):
            return 405, "this server accepts GET and HEAD only"
        return None


async def _refuse(send: Send, status: int, words: str) -> None:
    body = f"{words}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if status == 405:
        headers.append((b"allow", ", ".join(METHODS).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return sending
