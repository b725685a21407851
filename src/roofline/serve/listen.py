"""Listening: a socket on the loopback address only, and the server loop on it."""

import errno
import socket
from contextlib import suppress

from ..errors import UsageError
from .connections import server
from .guard import Guard

LOOPBACK = "127.0.0.1"
PORT = 7663  # "ROOF" on the keys of a telephone
TRIES = 50  # ports to try after the default one


def bind(port: int | None = None) -> socket.socket:
    """A listening socket on the requested port, or on the first free one from the default port on; 0 is any."""
    ports = range(PORT, PORT + TRIES) if port is None else (port,)
    for one in ports:
        # With an explicit protocol, because only then asyncio sets TCP_NODELAY; otherwise each small answer takes 40 ms.
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((LOOPBACK, one))
            made.listen()
        except (OSError, OverflowError) as error:
            made.close()
            if isinstance(error, OverflowError):
                raise UsageError(f"port {one}: not between 0 and 65535") from None
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UsageError(f"port {one}: {error.strerror}; choose another with --port") from None
        else:
            return made
    if port is not None:
        raise UsageError(f"port {port} is in use or not permitted; leave out --port to use the next free one")
    raise UsageError(f"ports {PORT} to {PORT + TRIES - 1} are all in use; choose another with --port")


def listen(app: Guard, on: socket.socket) -> None:
    """Serve until Ctrl-C or a termination signal."""
    with suppress(KeyboardInterrupt):  # the server has stopped by then, and re-raises the signal for its caller
        server(app).run(sockets=[on])
