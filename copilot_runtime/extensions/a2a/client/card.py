"""Fetches the card of a remote agent, and adapts our HTTP client to the package `a2a-sdk`.

https://a2a-protocol.org/latest/specification/
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard, AgentInterface
from a2a.utils.constants import TransportProtocol
from google.protobuf.json_format import ParseError

from copilot_runtime.agents.forwarding import map_network_error, map_refusal
from copilot_runtime.base.errors import ConfigurationFailed, NetworkError
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.http.client import Exchange, StreamResponse, Upstream
from copilot_runtime.http.connection import INFLATABLE
from copilot_runtime.http.errors import get_origin

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Paths of cards below an agent's URL: since version 0.3, and before."""

BINDINGS: Sequence[str] = (TransportProtocol.JSONRPC.value, TransportProtocol.HTTP_JSON.value)
"""Supported protocol bindings, the preferred first."""

MAX_CARD_BYTES = 1024 * 1024

_FIXED = "The address of an agent is that below which its card is, or the address of the card."


async def fetch_card(
    upstream: Upstream, agent: str, url: str, headers: Mapping[str, str], origins: Collection[str]
) -> AgentCard:
    """Return the card of the agent at `url`, reduced to the interfaces of the selected binding.

    Raises `ConfigurationFailed` if there is no valid card or if it refers to other origins than
    these, and the matching error if the server refuses the request or does not answer.
    """
    urls = [url] if url.endswith(".json") else [f"{url}{path}" for path in CARD_PATHS]
    status, value = 0, None
    for one in urls:
        status, value = await _fetch_json(upstream, agent, one, headers)
        if status not in (404, 405):
            break
    where = f"GET {urls[0]} answered with HTTP {status}."
    if not 200 <= status < 300:
        raise map_refusal(agent, status, f"{where} {_FIXED}")
    return _select_interface(agent, _parse_card(agent, value, where), origins)


async def _fetch_json(
    upstream: Upstream, agent: str, url: str, headers: Mapping[str, str]
) -> tuple[int, JsonValue]:
    """Return the status and the decoded JSON body, or None as body if it is no JSON."""
    sent = {"accept": "application/json", "accept-encoding": "identity", **headers}
    try:
        async with Exchange(upstream, "GET", url, None, sent) as reply:
            text = await reply.text(MAX_CARD_BYTES)
    except NetworkError as error:
        raise map_network_error(agent, error) from error
    try:
        return reply.status, loads(text)
    except ValueError:
        return reply.status, None


def _parse_card(agent: str, value: JsonValue, where: str) -> AgentCard:
    if not isinstance(value, dict):
        raise ConfigurationFailed(
            f"The agent {agent!r} has no card.",
            hint=f"{where} Its body is no JSON object. {_FIXED}",
        )
    try:
        return parse_agent_card(value)
    except (ParseError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ConfigurationFailed(
            f"The card of the agent {agent!r} cannot be read.", hint=f"{where} {error}"[:2_000]
        ) from error


def _select_interface(agent: str, card: AgentCard, origins: Collection[str]) -> AgentCard:
    """Return the card, reduced to its best supported binding at one of the origins."""
    offered: list[AgentInterface] = [*card.supported_interfaces]
    compatible = [one for one in offered if one.protocol_binding in BINDINGS]
    allowed = [one for one in compatible if _get_origin(one.url) in origins]
    for binding in BINDINGS:
        if chosen := [one for one in allowed if one.protocol_binding == binding]:
            del card.supported_interfaces[:]
            card.supported_interfaces.extend(chosen)
            return card
    names = ", ".join(f"{one.protocol_binding} at {_get_origin(one.url)}" for one in offered[:10])
    if compatible:  # requests carry credentials, which a card must not redirect
        raise ConfigurationFailed(
            f"The card of the agent {agent!r} leads to another server.",
            hint=f"It offers {names}. If that is right, name the origin: "
            "A2aAgent(url, origins=['https://...']).",
        )
    raise ConfigurationFailed(
        f"The agent {agent!r} offers no way to be asked that is known here.",
        hint=f"Its card offers {names or 'nothing'}; known are {' and '.join(BINDINGS)}.",
    )


def _get_origin(url: str) -> str:
    try:
        return normalize_origin(url)
    except ValueError:
        return "nowhere"


def normalize_origin(url: str) -> str:
    """Return the origin of a URL without its scheme's default port.

    Raises `ValueError` if the URL is malformed.
    """
    origin = get_origin(url).lower()
    for scheme, port in (("http", ":80"), ("https", ":443")):
        if origin.startswith(f"{scheme}://"):
            return origin.removesuffix(port)
    return origin


MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Maximum size of a stream's event, or of a response without a stream, in bytes."""

MAX_EVENT_VALUES = 50_000
"""Maximum number of JSON values in an event, counted by commas: so many take the package up to a
second."""

_HOP_BY_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding"})
_BETWEEN_EVENTS = re.compile(rb"\r?\n\r?\n|\r\r")


class AnswerTooLarge(NetworkError):
    """An event or a response exceeds the size limit."""


@asynccontextmanager
async def open_client(upstream: Upstream) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client for one task; when it closes, all its responses are closed.

    If the server is unreachable, silent or sends too much, requests raise the errors of `Upstream`.
    Redirects are not followed.
    """
    transport = _UpstreamTransport(upstream)
    # without `trust_env`, httpx builds no TLS context of its own; Upstream knows of proxies
    client = httpx.AsyncClient(transport=transport, trust_env=False, timeout=None)  # noqa: S113  # of Upstream
    async with client:
        yield client


class _UpstreamTransport(httpx.AsyncBaseTransport):
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._exchanges = AsyncExitStack()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response once its headers have arrived."""
        body = await request.aread()
        headers = {k.lower(): v for k, v in request.headers.items()}
        headers = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
        headers["accept-encoding"] = "identity"  # a compressing proxy would delay events
        exchange = Exchange(self._upstream, request.method, str(request.url), body or None, headers)
        reply = await self._exchanges.enter_async_context(exchange)
        names = reply.headers.items()
        if reply.headers.get("content-encoding") in INFLATABLE:
            names = [pair for pair in names if pair[0] != "content-encoding"]
        return httpx.Response(reply.status, headers=[*names], stream=_Body(reply))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._exchanges.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of a response. Raises `AnswerTooLarge` if an event is too large."""

    def __init__(self, reply: StreamResponse) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_stream = "event-stream" in self._reply.headers.get("content-type", "")
        size = values = 0
        async for block in self._reply:
            event = block
            if is_stream and (ends := [*_BETWEEN_EVENTS.finditer(block)]):
                _check(size + ends[0].start(), values + block.count(b",", 0, ends[0].start()))
                size = values = 0
                event = block[ends[-1].end() :]
            size += len(event)
            values += event.count(b",")
            _check(size, values)
            yield block

    async def aclose(self) -> None:
        """Return the connection to the pool, or close it if the body was not read to its end."""
        self._reply.release()


def _check(size: int, values: int) -> None:
    if size > MAX_EVENT_BYTES or values > MAX_EVENT_VALUES:
        raise AnswerTooLarge(
            "The agent sent more at once than is read.",
            hint=f"An answer, or an event of a stream, may have {MAX_EVENT_BYTES} bytes and "
            f"{MAX_EVENT_VALUES} values.",
        )
