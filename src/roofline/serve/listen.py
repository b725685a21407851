"""Listening: a socket on the loopback address only, and uvicorn on it."""

import errno
import socket
from contextlib import suppress

import uvicorn

from ..errors import UsageError
from .guard import Guard

LOOPBACK = "127.0.0.1"
PORT = 7663  # "ROOF" on the keys of a telephone
TRIES = 50  # ports to try after the default one
STOPPING_S = 3  # to finish answers when the server stops


def bind(port: int | None = None) -> socket.socket:
    """A listening socket on the requested port, or on the first free one from the default port on; 0 is any."""
    for tried in range(PORT, PORT + TRIES) if port is None else (port,):
        # With an explicit protocol, because only then asyncio sets TCP_NODELAY; otherwise each small answer takes 40 ms.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, tried))
            listening.listen()
            return listening
        except OverflowError:
            listening.close()
            raise UsageError(f"port {tried}: not between 0 and 65535") from None
        except OSError as error:
            listening.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UsageError(f"port {tried}: {error.strerror}; choose another with --port") from None
    if port is not None:
        raise UsageError(f"port {port} is in use or not permitted; leave out --port to use the next free one")
    raise UsageError(f"ports {PORT} to {PORT + TRIES - 1} are all in use; choose another with --port")


def server(app: Guard) -> uvicorn.Server:
    """The server for an application."""
    config = uvicorn.Config(
        app,
        log_level="error",  # otherwise invalid requests could flood the terminal with warnings
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=STOPPING_S,
    )
    return uvicorn.Server(config)


def listen(app: Guard, on: socket.socket) -> None:
    """Serve until Ctrl-C or a termination signal."""
    with suppress(KeyboardInterrupt):  # the server has stopped by then, and re-raises the signal for its caller
        server(app).run(sockets=[on])
