"""Refuses connections of this process, so that a test shows that it needs none."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from socket import AF_INET, AF_INET6
from typing import Any

from copilot_runtime.base.errors import NetworkError

_EVENTS = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}


class _Network:
    """Whether connections are refused. A hook of the interpreter can never be taken away."""

    is_refused = False
    is_watched = False


@contextmanager
def refuse_network() -> Generator[None]:
    """Let every connection to another address fail; those to files, such as of SQLite, do not.

    Code that makes its connections without Python's sockets, such as gRPC's, is not seen.
    """
    if not _Network.is_watched:
        sys.addaudithook(_refuse)
        _Network.is_watched = True
    _Network.is_refused = True
    try:
        yield
    finally:
        _Network.is_refused = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _Network.is_refused or event not in _EVENTS:
        return
    if event in ("socket.connect", "socket.sendto"):
        if arguments[0].family not in (AF_INET, AF_INET6):
            return
        address = ":".join(map(str, arguments[1][:2]))
    else:
        address = str(arguments[0])
    raise NetworkError(f"A connection to {address} was refused: --offline allows none.")
