"""Send requests to an application in this process (with its lifespan) or to a URL."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message

from copilot_runtime.base.errors import Misuse, NetworkError
from copilot_runtime.base.jsontext import loads
from copilot_runtime.http.client import Exchange, Upstream


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    """The headers by lower-case name."""
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """Return the parsed body. Raises `ValueError` if it is malformed."""
        return loads(self.body)


class Connection(Protocol):
    """Sends requests."""

    async def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Response: ...


class UrlConnection:
    """Sends requests to the server at an origin, such as `http://127.0.0.1:8000`."""

    def __init__(self, origin: str, timeout: float) -> None:
        self._origin = origin
        self._upstream = Upstream("Runtime", idle_timeout=timeout, max_retries=0)

    async def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Response:
        """Return the response to a request. Raises `NetworkError`."""
        exchange = Exchange(self._upstream, method, self._origin + path, body or None, headers)
        async with exchange as response:
            text = await response.text()
            names = {name.lower(): value for name, value in response.headers.items()}
            return Response(response.status, names, text)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()


class AppConnection:
    """Calls an ASGI application without sockets."""

    def __init__(self, app: ASGIApp, timeout: float) -> None:
        self._app = app
        self._timeout = timeout
        self.state: dict[str, Any] = {}
        """The lifespan state of the application."""

    async def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Response:
        """Return the response to a request. Errors of the application propagate.

        Raises `NetworkError` after a timeout.
        """
        exchange = _Exchange(body)
        scope = self._scope(method, path, body, headers)
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            if not limit.expired():
                raise
            raise NetworkError(
                f"{method} {path!r} was not answered within {self._timeout:g} s.",
                hint="What does the application wait for? Client(timeout=...) waits longer.",
            ) from None
        return exchange.response()

    def _scope(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        path, _, query = target.partition("?")
        length = {"content-length": str(len(body))} if body else {}
        fields = {"host": "localhost", **headers, **length}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in fields.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("localhost", 80),
            "state": dict(self.state),
        }


@dataclass(slots=True)
class _Exchange:
    """A request and its response as ASGI messages."""

    body: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    blocks: list[bytes] = field(default_factory=list[bytes])
    is_sent: bool = False

    async def receive(self) -> Message:
        if self.is_sent:
            await (
                asyncio.Event().wait()
            )  # the client stays connected until the response is complete
        self.is_sent = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in message.get("headers", ())
            }
        elif message["type"] == "http.response.body":
            self.blocks.append(message.get("body", b""))

    def response(self) -> Response:
        return Response(self.status, self.headers, b"".join(self.blocks))


def refuse_running_loop(what: str, way_out: str) -> None:
    """Raise `Misuse` in an async function, where no second event loop can run."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Misuse(f"{what} cannot be used in an async function. Write {way_out} there.")


@asynccontextmanager
async def connect(
    target: ASGIApp | str, timeout: float
) -> AsyncGenerator[UrlConnection | AppConnection, None]:
    """Yield a connection to an application, whose lifespan is entered, or to a URL."""
    if isinstance(target, str):
        parts = urlsplit(target)
        async with aclosing(UrlConnection(f"{parts.scheme}://{parts.netloc}", timeout)) as remote:
            yield remote
        return
    connection = AppConnection(target, timeout)
    async with _run_lifespan(target, connection.state, timeout):
        yield connection


@asynccontextmanager
async def _run_lifespan(
    app: ASGIApp, state: dict[str, Any], timeout: float
) -> AsyncGenerator[None, None]:
    """Start an application and shut it down afterwards. Raises its startup and shutdown errors."""
    lifespan = _Lifespan()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}
    # its own task: context managers must exit in the task that entered them
    task = asyncio.create_task(_call(app, scope, lifespan), name="lifespan")
    try:
        try:
            async with asyncio.timeout(timeout):
                await lifespan.started.wait()
        except TimeoutError:
            raise NetworkError(f"The application did not start within {timeout:g} s.") from None
        if lifespan.failure is not None:
            await task  # raises the startup error
            raise RuntimeError(f"The application did not start: {lifespan.failure}")
        yield
    finally:
        lifespan.ending.set()
        await asyncio.wait((task,), timeout=timeout)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    await task
    if lifespan.failure is not None:
        raise RuntimeError(f"The application did not end well: {lifespan.failure}")


class _Lifespan:
    """The lifespan messages of ASGI."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ending = asyncio.Event()
        self.failure: str | None = None
        self._is_asked = False

    async def receive(self) -> Message:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "lifespan.startup"}
        await self.ending.wait()
        return {"type": "lifespan.shutdown"}

    async def send(self, message: Message) -> None:
        if message["type"].endswith(".failed"):
            self.failure = message.get("message", "")
        self.started.set()


async def _call(app: ASGIApp, scope: dict[str, Any], lifespan: _Lifespan) -> None:
    try:
        await app(scope, lifespan.receive, lifespan.send)
    except Exception:
        if lifespan.started.is_set():
            raise
        # ASGI lets applications without a lifespan raise for its scope
    finally:
        lifespan.started.set()
