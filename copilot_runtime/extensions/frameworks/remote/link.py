"""Sends requests to a CopilotKit remote endpoint: routes, headers and error responses.

The protocol is that of the Python package `copilotkit`. A server may have only the routes of its
first version, which all versions of that package answer, or only those of its second.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from copilot_runtime.agents.forwarding import forward_headers, read_refusal, redact
from copilot_runtime.api.identity import Caller
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import as_object
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.http.client import StreamResponse, Upstream
from copilot_runtime.http.errors import get_origin, parse_url
from copilot_runtime.telemetry.span import NO_SPAN, Span, inject_context

if TYPE_CHECKING:
    import httpx

BeforeRequest = Callable[[Caller], Mapping[str, str] | Awaitable[Mapping[str, str] | None] | None]
"""Returns headers for the endpoint by the caller; sync or async."""

_MAX_REASON = 500
_PLAIN = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "identity",  # a compressing proxy would hold lines back
}


class Route(NamedTuple):
    """A route in both versions of the protocol; `again` marks requests that may be repeated."""

    first: str
    second: str
    again: bool = False
    streams: bool = False


INFO: Final = Route("info", "", again=True)
RUN_ACTION: Final = Route("actions/execute", "action/{}")
RUN_AGENT: Final = Route("agents/execute", "agent/{}", streams=True)
STATE: Final = Route("agents/state", "agent/{}/state", again=True)


class Link:
    """The connections to one endpoint. A request that acts is never repeated."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None,
        before_request: BeforeRequest | None,
        connect_timeout: float,
        idle_timeout: float,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        hint = "It looks like https://agents.example.com/copilotkit."
        path = parse_url(url, "remote endpoint", hint).path
        self.url = url.rstrip("/")
        self.safe_url = f"{get_origin(url)}{path}".rstrip("/")
        """The URL without credentials and query, for logs and errors."""
        REDACTOR.learn({"url": url, "headers": headers})
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._before_request = before_request
        upstream = partial(
            Upstream,
            "Remote endpoint",
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
        )
        self._reading = upstream(max_retries=1, http_client=http_client)
        self._acting = upstream(max_retries=0, http_client=http_client)
        self._streaming = upstream(max_retries=0)

    async def headers(self, caller: Caller, span: Span = NO_SPAN) -> dict[str, str]:
        """Return the headers for a caller: those forwarded, ours, and last the hook's.

        Raises `ConfigurationFailed` for a hook that returns anything but headers.
        """
        added = None
        if self._before_request is not None:
            added = await call(self._before_request, caller)
        return {
            **forward_headers(caller.headers),
            **inject_context(span),
            **self._headers,
            **_validate_headers({} if added is None else added),
            **_PLAIN,
        }

    @asynccontextmanager
    async def send(
        self, route: Route, body: Any, headers: Mapping[str, str], name: str = ""
    ) -> AsyncGenerator[StreamResponse, None]:
        """Send a request; the reply may be a refusal."""
        data = dumps(body)
        upstream = self._streaming if route.streams else self._acting
        upstream = self._reading if route.again else upstream
        async with upstream.post(f"{self.url}/{route.first}", data, headers) as reply:
            if reply.status != 404:
                yield reply
                return
        second = route.second.format(quote(name, safe=""))
        async with upstream.post(f"{self.url}/{second}", data, headers) as reply:
            yield reply

    async def json(
        self, route: Route, body: Any, headers: Mapping[str, str], name: str = ""
    ) -> tuple[int, Any]:
        """Send a request; return the status and the decoded body, `None` if it is not JSON."""
        async with self.send(route, body, headers, name) as reply:
            if not is_success(reply.status):
                return reply.status, {"error": await read_reason(reply, headers)}
            text = await reply.text()
        try:
            return reply.status, loads(text)
        except ValueError:
            return reply.status, None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._reading.aclose()
        await self._acting.aclose()
        await self._streaming.aclose()


def is_success(status: int) -> bool:
    return 200 <= status < 300


async def read_reason(reply: StreamResponse, headers: Mapping[str, str]) -> str:
    """Return the reason in the JSON of a refusal, without our keys.

    A page of HTML, or a stack trace, is no reason.
    """
    body: Any = None
    with suppress(ValueError):
        body = loads(await read_refusal(reply))
    texts = [as_object(body).get(key) for key in ("error", "detail", "message")]
    reason = next((text for text in texts if isinstance(text, str)), "").strip()
    REDACTOR.learn({"headers": headers})  # also those of the hook
    return redact(reason, _MAX_REASON)


def _validate_headers(headers: Any) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigurationFailed(
            f"The before_request hook of a remote endpoint returned a {type(headers).__name__}.",
            hint="It returns headers, such as {'authorization': 'Bearer …'}, or None.",
        )
    found: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not value.isprintable():
            raise ConfigurationFailed(
                f"The before_request hook of a remote endpoint returned no text for {name!r}.",
                hint="Names and values of headers are texts of one line.",
            )
        found[name.lower()] = value
    return found
