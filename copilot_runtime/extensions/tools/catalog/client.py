"""Requests over HTTP for tools: bounded answers, and errors that say what the service said."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.action import ActionContext
from copilot_runtime.base.errors import CopilotError, NetworkError
from copilot_runtime.base.jsontext import loads
from copilot_runtime.http.client import Exchange, Upstream
from copilot_runtime.http.errors import get_origin
from copilot_runtime.http.retries import is_retryable, parse_retry_after
from copilot_runtime.telemetry.propagation import inject_context

MAX_BODY = 4 * 1024 * 1024
"""Bytes of the largest answer that is read; of it, a tool may select what is its result."""

_LONGEST_SNIPPET = 300


class ServiceUnavailable(NetworkError):
    """The service may answer later: after so many seconds, if it says how many."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole answer, of a status below 300."""

    content_type: str
    content: bytes

    @property
    def is_json(self) -> bool:
        """Whether it says that it is JSON."""
        return self.content_type == "application/json" or self.content_type.endswith("+json")

    @property
    def is_text(self) -> bool:
        """Whether it says that it is text, or nothing about it."""
        return not self.content_type or self.content_type.startswith("text/")

    def parse_json(self) -> Any:
        """Return the value of the JSON. Raises `CopilotError` for what is none."""
        try:
            return loads(self.content)
        except ValueError:
            raise CopilotError("The service answered with what is no JSON.") from None


class HttpClient:
    """The connections of one tool. `timeout` is the longest silence, in seconds."""

    def __init__(self, name: str, timeout: float) -> None:
        # a tool is called again, if at all, by what knows whether that does harm
        self._upstream = Upstream(name, idle_timeout=timeout, max_retries=0)

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        context: ActionContext | None = None,
    ) -> HttpReply:
        """Send a request, and return the answer.

        Raises `NetworkError` for what may pass by itself, and `CopilotError` for a refusal.
        """
        trace = {} if context is None else inject_context(context.span)
        exchange = Exchange(self._upstream, method, url, body, {**headers, **trace})
        async with exchange as reply:
            content = await reply.text(MAX_BODY)
            status, received = reply.status, reply.headers
        if status < 300:
            kind = received.get("content-type", "").partition(";")[0].strip().lower()
            return HttpReply(kind, content)
        if status < 400:
            raise CopilotError(
                f"The service answered with a redirection ({status}), which is not followed.",
                hint=f"To {received.get('location', 'nowhere')!r}: write that address.",
            )
        message = f"HTTP {status}: {_cut(content)}".removesuffix(": ")
        if is_retryable(status, received):
            raise ServiceUnavailable(message, parse_retry_after(received))
        raise CopilotError(message)

    async def reach(self, url: str) -> str:
        """Ask the server of an address what it allows, and return what was seen."""
        origin = get_origin(url)
        async with Exchange(self._upstream, "OPTIONS", f"{origin}/", None, {}):
            return f"{origin} answers"

    async def aclose(self) -> None:
        await self._upstream.aclose()


def _cut(content: bytes) -> str:
    """Return the beginning of an answer, in one line."""
    text = " ".join(content[: 4 * _LONGEST_SNIPPET].decode(errors="replace").split())
    return text if len(text) <= _LONGEST_SNIPPET else f"{text[:_LONGEST_SNIPPET]}…"
