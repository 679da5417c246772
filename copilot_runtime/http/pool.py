"""The connection pool of one event loop, with keep-alive.

Connecting tries IPv6 and IPv4 in parallel (RFC 8305). Certificates and host names are verified.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from aiohappyeyeballs import start_connection

from copilot_runtime.http.connection import Connection, Response, ServerDisconnected
from copilot_runtime.http.errors import ConnectionFailed, find_failure

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[a-z0-9._~!$&'()*+,;=:@%/-]*)?"
    r"(?P<query>\?[a-z0-9._~!$&'()*+,;=:@%/?-]*)?",
    re.IGNORECASE | re.ASCII,
)
"""An address of which each character means itself."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_BREAK = re.compile(r"[\r\n\0]")
_FRAMING = {"content-length", "transfer-encoding"}
_BODILESS = {"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """The endpoint of a connection."""

    is_tls: bool
    host: str
    port: int


class Target(NamedTuple):
    """A parsed URL, in the parts that a request needs."""

    origin: Origin
    authority: str
    path: str


@lru_cache(maxsize=256)
def parse_target(url: str) -> Target | None:
    """Parse a URL; return `None` if it needs quoting, decoding or credentials."""
    match = _URL.fullmatch(url)
    if match is None:
        return None
    scheme, host = match["scheme"].lower(), match["host"].lower()
    default = _DEFAULT_PORTS[scheme]
    port = int(match["port"] or default)
    if not 0 < port < 65536:
        return None
    authority = host if port == default else f"{host}:{port}"
    origin = Origin(scheme == "https", host.strip("[]"), port)
    return Target(origin, authority, (match["path"] or "/") + (match["query"] or ""))


def encode_head(method: str, target: Target, headers: Mapping[str, str], size: int | None) -> bytes:
    """Return the request line and the headers; `size` is the length of the body, or `None`.

    `headers` replace the default ones, except for those that frame the body. Raises `ValueError`
    for names and values with invalid characters, such as line breaks (header injection).
    """
    if isinstance(headers, FixedHeaders):
        fields = headers.encode(target.authority)
    else:
        fields = _encode_fields(target.authority, headers)
    length = b""
    if size is not None or method not in _BODILESS:
        length = b"content-length: %d\r\n" % (size or 0)
    return b"%b%b%b\r\n" % (f"{method} {target.path} HTTP/1.1\r\n".encode(), fields, length)


class FixedHeaders(dict[str, str]):
    """The headers of every request to a service, which are checked and encoded only once.

    They stay in memory, so they must not contain the credentials of a user.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self._encoded: dict[str, bytes] = {}

    def encode(self, authority: str) -> bytes:
        """Return the lines of the headers for one server."""
        if authority not in self._encoded:
            self._encoded[authority] = _encode_fields(authority, self)
        return self._encoded[authority]


def _encode_fields(authority: str, headers: Mapping[str, str]) -> bytes:
    """Return the lines of all headers but the length."""
    fields = {
        "host": authority,
        "accept": "*/*",
        "accept-encoding": "identity",  # a compressing proxy would hold chunks back
        "user-agent": "copilot-runtime",
    }
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _BREAK.search(value):
            raise ValueError(f"The header {name!r} has a character that headers cannot have")
        fields[name.lower()] = value
    for name in _FRAMING:
        fields.pop(name, None)
    return "".join([f"{name}: {value}\r\n" for name, value in fields.items()]).encode()


KEEP_ALIVE = 15.0
"""Keep-alive timeout of idle connections, in seconds. Servers use 5 to 75."""

_MOST_FREE = 256  # of one server
_DNS_TIME = 10.0
_FALLBACK_DELAY = 0.25


class ConnectionPool:
    """Connections to any number of servers. `connect_timeout` includes the DNS and TLS."""

    def __init__(self, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        self._free: dict[Origin, list[Connection]] = {}  # the longest free first
        self._lookups: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def send(
        self, origin: Origin, head: bytes, body: bytes, *, timeout: float, is_idempotent: bool
    ) -> Response:
        """Send a request; return its response once the headers have arrived.

        A server may close a connection at the moment of its reuse. An idempotent request is then
        retried on a new connection; any other may already have been processed. Raises
        `ConnectionFailed`, and the errors of `Connection.send`.
        """
        if (connection := self._take(origin)) is not None:
            try:
                return await connection.send(head, body, timeout)
            except (ServerDisconnected, ConnectionResetError, BrokenPipeError):
                if not is_idempotent:
                    raise
        connection = await self._connect(origin)
        return await connection.send(head, body, timeout)

    async def aclose(self) -> None:
        """Close all connections, also active ones, unless their event loop is closed."""
        if self._loop.is_closed():
            return
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._free.clear()
        for connection in [*self._open]:
            connection.abort()
        await asyncio.sleep(0)  # sockets close in the next step of the loop

    def _take(self, origin: Origin) -> Connection | None:
        """Return the connection that was used last."""
        free = self._free.get(origin)
        while free:
            connection = free.pop()
            if not connection.is_closing:
                return connection
        return None

    def _put(self, origin: Origin, connection: Connection) -> None:
        free = self._free.setdefault(origin, [])
        if len(free) >= _MOST_FREE:
            free.pop(0).abort()
        connection.free_since = self._loop.time()
        free.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(KEEP_ALIVE, self._sweep)

    def _forget(self, origin: Origin, connection: Connection) -> None:
        self._open.discard(connection)
        free = self._free.get(origin, [])
        if connection in free:
            free.remove(connection)

    def _sweep(self) -> None:
        """Close connections that were idle for too long; reschedule while idle ones remain."""
        self._sweep_timer = None
        now = self._loop.time()
        for origin, free in [*self._free.items()]:
            while free and now - free[0].free_since >= KEEP_ALIVE:
                free.pop(0).abort()
            if not free:
                del self._free[origin]
        if self._free:
            oldest = min(free[0].free_since for free in self._free.values())
            self._sweep_timer = self._loop.call_at(oldest + KEEP_ALIVE, self._sweep)

    async def _connect(self, origin: Origin) -> Connection:
        limit = asyncio.timeout(self._connect_timeout)
        try:
            async with limit:
                return await self._open_connection(origin)
        except (OSError, ssl.CertificateError) as error:
            failure = "connect timeout" if limit.expired() else find_failure(error)
            raise ConnectionFailed(failure, error) from error

    async def _open_connection(self, origin: Origin) -> Connection:
        infos = await self._look_up(origin.host, origin.port)
        sock = await start_connection(infos, happy_eyeballs_delay=_FALLBACK_DELAY, interleave=1)
        connection = Connection(partial(self._put, origin), partial(self._forget, origin))
        self._open.add(connection)
        try:
            await self._loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=create_tls_context() if origin.is_tls else None,
                server_hostname=origin.host if origin.is_tls else None,
            )
        except BaseException:
            self._open.discard(connection)
            sock.close()
            raise
        return connection

    async def _look_up(self, host: str, port: int) -> Any:
        """Return the addresses of a host; concurrent lookups share one DNS query."""
        lookup = self._lookups.get((host, port))
        if lookup is None:
            is_address = ":" in host or host[-1].isdigit()
            # the flag hides families that this machine has only on loopback, also `::1` itself
            flags = 0 if is_address else socket.AI_ADDRCONFIG
            lookup = asyncio.ensure_future(
                self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
            )
            self._lookups[host, port] = lookup
            lookup.add_done_callback(partial(self._expire_lookup, host, port))
        return await asyncio.shield(lookup)

    def _expire_lookup(self, host: str, port: int, lookup: "asyncio.Future[Any]") -> None:
        if lookup.cancelled() or lookup.exception() is not None:
            self._lookups.pop((host, port), None)
        else:
            self._loop.call_later(_DNS_TIME, self._lookups.pop, (host, port), None)


@cache
def create_tls_context() -> ssl.SSLContext:
    """Return a TLS context with the system's CA certificates, or those of SSL_CERT_FILE."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
