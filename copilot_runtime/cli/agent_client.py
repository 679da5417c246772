"""AG-UI client for an agent of a running server."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urlsplit

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.agui.outcome import decode_refusal
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, NetworkError, RunStalled
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.cli.options import SIGN_IN_HINT
from copilot_runtime.http.client import StreamResponse, Upstream
from copilot_runtime.http.sse import SSEDecoder

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STOP_TIMEOUT = 10.0
"""Timeout of a request to stop a run, in seconds."""
_BROKE_OFF = "The runtime broke off in the middle of the answer."


class AgentClient:
    """Runs an agent of a server.

    Args:
        url: The same URL as the `runtimeUrl` of `<CopilotKit>`.
        agent: The name of the agent.
        headers: Lines such as `Name: value`, sent with each request.

    Raises `ConfigurationFailed` for a malformed URL or header.
    """

    def __init__(self, url: str, agent: str, headers: Sequence[str] = ()) -> None:
        self.url = parse_url(url)
        self.agent = agent
        self.headers: Mapping[str, str] = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            **dict(map(parse_header, headers)),
        }
        self._upstream = Upstream("Runtime", idle_timeout=600, max_retries=0)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._upstream.aclose()

    async def run(self, run: RunInput, state: Any) -> Events:
        """Yield the events of a run. `state` is the agent's state before the run.

        Raises `NetworkError` for a runtime that cannot be reached or does not know the agent,
        `IncompleteStream` for a malformed or incomplete answer, and `AgentFailed` or `Cancelled`
        for a run that failed or was stopped. The run continues if the caller stops reading.
        """
        frames, decoder = SSEDecoder(), EventDecoder(self.agent, state, run)
        body = dumps(run_agent_input(run, state))
        async with self._upstream.post(self._build_url("run"), body, self.headers) as response:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                raise await _read_refusal(response, self.url, self.headers)
            async with aclosing(_read_blocks(response)) as blocks:
                async for block in blocks:
                    for event in decoder.read(frames.feed(block)):
                        yield event
                    if decoder.ended or decoder.finished:
                        break
        for event in decoder.finish():
            yield event
        if decoder.failure is not None:
            raise decoder.failure
        if not decoder.ended:
            raise NetworkError(_BROKE_OFF)

    async def stop(self, thread_id: str) -> None:
        """Stop the run of a thread; connection errors are ignored."""
        url = self._build_url("stop", thread_id)
        with contextlib.suppress(CopilotError, TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._upstream.request_json("POST", url, {}, self.headers)

    def _build_url(self, *parts: str) -> str:
        path = "/".join(quote(part, safe="") for part in ("agent", self.agent, *parts))
        return f"{self.url.rstrip('/')}/{path}"


def parse_url(url: str) -> str:
    """Return the URL of a runtime, with the default path if it has none.

    Raises `ConfigurationFailed` for a malformed URL.
    """
    url = url if "://" in url else f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationFailed(f"{url!r} is not the URL of a runtime (http://127.0.0.1:8000).")
    return url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/graphql"


def parse_header(text: str) -> tuple[str, str]:
    """Return the name and the value of a header line.

    Raises `ConfigurationFailed` if it is malformed.
    """
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or _HEADER_NAME.fullmatch(name) is None or not value.isprintable():
        raise ConfigurationFailed(f"{text!r} is not a header; write 'Name: value'.")
    return name.lower(), value


def find_sign_in_hint(status: int, headers: Mapping[str, str]) -> str | None:
    """Return a hint about the option for credentials if the request lacked them, or `None`."""
    if status == 401 and "authorization" not in headers:
        return SIGN_IN_HINT
    return None


async def _read_blocks(response: StreamResponse) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of the response.

    Raises `NetworkError` if the connection breaks or times out.
    """
    try:
        async for block in response:
            yield block
    except RunStalled:
        raise
    except NetworkError as error:
        raise NetworkError(_BROKE_OFF, hint=error.hint) from error


async def _read_refusal(
    response: StreamResponse, url: str, headers: Mapping[str, str]
) -> NetworkError:
    """Return the error for a response that is not a stream, with the server's reason if given."""
    refusal = decode_refusal(await response.text())
    if refusal is not None:
        hint = f"Known: {', '.join(refusal.agents)}." if refusal.agents else None
        hint = hint or find_sign_in_hint(response.status, headers)
        return NetworkError(refusal.message, status_code=response.status, hint=hint)
    return NetworkError(
        f"{url} does not speak the protocol of CopilotKit: it answered {response.status}.",
        hint="The URL is the one that <CopilotKit runtimeUrl> gets, such as /graphql.",
    )
