"""Notices that a PostgreSQL has gone silent while a statement is awaited, however long that takes.

A statement that takes hours and a database that hangs look the same on their own connection. But
a database that lives answers a stranger at once: before any login it says whether it encrypts by
GSSAPI, also without room for another session, and so does a pooler.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import Any

from copilot_runtime.base.errors import StoreFailed

_INTERVAL = 10.0
"""Seconds without the end of a statement after which the database is asked."""

_ANSWER_TIMEOUT = 5.0

_MOST_SILENT = 3
"""How often in a row the database may say nothing."""

_QUESTION = b"\0\0\0\x08\x04\xd2\x16\x30"
"""A GSSENCRequest: its length, and 80877104."""


class ConnectionWatch:
    """Ends a connection of asyncpg to a database that is silent: who waits there gets an error."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._address: tuple[str, int] | str = connection._addr  # asyncpg has no other name for it
        self._has_news = False
        self.is_silent = False
        """Whether the database has said nothing for so long that the connection was ended."""

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Watch the connection for the length of a block."""
        self._connection.add_query_logger(self._note_statement)
        task = asyncio.create_task(self._watch(), name="watch a connection")
        try:
            yield
        finally:
            task.cancel()

    def build_failure(self, address: str) -> StoreFailed:
        """Return what to raise for a database that is silent; `address` is its name for people."""
        return StoreFailed(
            f"{address} cannot be used: it went silent in the middle, and was given up.",
            hint="See whether it, its machine and any pooler before it still run, and begin anew.",
        )

    def _note_statement(self, _: Any) -> None:
        self._has_news = True

    async def _watch(self) -> None:
        silent = 0
        while silent < _MOST_SILENT:
            self._has_news = False
            await asyncio.sleep(_INTERVAL)
            # in a thread of its own, as large objects may keep this one busy for seconds
            if self._has_news or not await asyncio.to_thread(_is_silent, self._address):
                silent = 0
            else:
                silent += 1
        self.is_silent = True
        self._connection.terminate()


def _is_silent(address: tuple[str, int] | str) -> bool:
    """Return whether nothing answers at an address: a host with its port, or a socket's path."""
    try:
        with closing(_open(address)) as link:
            link.sendall(_QUESTION)
            link.recv(1)
    except (ConnectionError, socket.gaierror):  # somebody says no, or names are not known now
        return False
    except OSError:
        return True
    return False


def _open(address: tuple[str, int] | str) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, _ANSWER_TIMEOUT)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(_ANSWER_TIMEOUT)
        link.connect(address)
    except BaseException:
        link.close()
        raise
    return link
