"""Connections: a client that sends nothing, sends half a request, or does not read its answer is disconnected, so that it blocks no other.

Uvicorn closes a connection that is idle between two requests, but waits forever for the first request, and for the rest of one.
"""

import asyncio
import errno
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_S = 15.0
SPARE = 64  # file descriptors reserved for other uses: pipes to workers, files, modules being imported
MOST = 4_096
QUEUED = 2_048  # length of the accept queue
RETRY_S = 0.2
STOPPING_S = 3  # to finish answers when the server stops
OUT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}  # errors of accept() for lack of resources, after which it is retried


class Connection(H11Protocol):
    """A connection that is closed after ``idle_s`` without traffic, or when it is the longest idle of too many."""

    idle_s = IDLE_S
    most = MOST
    quiet: "dict[Connection, float]"  # idle since when, longest first; entries with a request since are skipped

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._unsent = 0
        self._rest()
        self._timer = self.loop.call_later(self.idle_s, self._close_if_idle)
        while len(self.connections) > self.most and self._drop_quietest():
            continue

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self.quiet.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._rest()
        super().on_response_complete()

    def _rest(self) -> None:
        self.quiet.pop(self, None)
        self.quiet[self] = self.loop.time()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _close_if_idle(self) -> None:
        """Close the connection if it is idle; else check again later."""
        unsent = self.transport.get_write_buffer_size()
        since = self.quiet.get(self, self.loop.time())
        left = self.idle_s
        if unsent:
            if unsent == self._unsent:
                self.transport.abort()
                return
        elif not self._answering:
            left = since + self.idle_s - self.loop.time()
            if left <= 0:
                self.transport.abort()
                return
        self._unsent = unsent
        self._timer = self.loop.call_later(left, self._close_if_idle)

    def _drop_quietest(self) -> bool:
        """Close the connection that has been idle longest, but not this one."""
        for other in self.quiet:
            if other is not self and not other._answering and not other.transport.get_write_buffer_size():
                del self.quiet[other]
                self.connections.discard(other)
                other.transport.abort()
                return True
        return False


class Server(uvicorn.Server):
    """Uvicorn's server with its own accept loop: when the system is out of descriptors or memory, it retries a moment later.

    Asyncio would retry, and log, once per queued connection.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in sockets or []]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.wait(self._accepting)
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.listen(QUEUED)
        listening.setblocking(False)
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
                await loop.connect_accepted_socket(self._connection, accepted)
            except OSError as error:
                await asyncio.sleep(RETRY_S if error.errno in OUT_OF else 0)

    def _connection(self) -> asyncio.Protocol:
        made: Any = self.config.http_protocol_class
        return made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[no-any-return]


def server(app: Any, *, idle_s: float = IDLE_S, most: int | None = None) -> Server:
    """A server for an application: at most ``most`` connections at a time, by default as many as the system allows, up to `MOST`."""
    settings = {"idle_s": idle_s, "most": _most_connections() if most is None else most, "quiet": {}}
    config = uvicorn.Config(
        app,
        http=type("ServerConnection", (Connection,), settings),
        loop="asyncio",
        log_level="error",  # otherwise invalid requests could flood the terminal with warnings
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=STOPPING_S,
    )
    return Server(config)


def _most_connections() -> int:
    """The possible number of connections, after raising the limit on open files to the user's maximum."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError):  # macOS allows less than it reports
            pass
    return MOST if soft == resource.RLIM_INFINITY else max(SPARE, min(MOST, soft - SPARE))
