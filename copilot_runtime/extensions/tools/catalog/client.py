"""An HTTP client for tools, with size limits and errors that quote the service."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.action import ActionContext
from copilot_runtime.base.errors import CopilotError, NetworkError
from copilot_runtime.base.jsontext import loads
from copilot_runtime.http.client import Exchange, Upstream
from copilot_runtime.http.errors import get_origin, is_retryable, parse_retry_after
from copilot_runtime.telemetry.span import inject_context

MAX_BODY = 4 * 1024 * 1024
"""Maximum size of a response, in bytes; a tool can select a part of it as its result."""

_LONGEST_SNIPPET = 300


class ServiceUnavailable(NetworkError):
    """A temporary failure, with the seconds to wait if the service states them."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete response with a status below 300."""

    content_type: str
    content: bytes

    @property
    def is_json(self) -> bool:
        """True if the content type is JSON."""
        return self.content_type == "application/json" or self.content_type.endswith("+json")

    @property
    def is_text(self) -> bool:
        """True if the content type is text, or absent."""
        return not self.content_type or self.content_type.startswith("text/")

    def parse_json(self) -> Any:
        """Return the decoded body. Raises `CopilotError` if it is no JSON."""
        try:
            return loads(self.content)
        except ValueError:
            raise CopilotError("The service answered with what is no JSON.") from None


class HttpClient:
    """The connections of one tool. `timeout` is the maximum silence, in seconds."""

    def __init__(self, name: str, timeout: float) -> None:
        # no retries here: `Tool` knows whether a call is idempotent
        self._upstream = Upstream(name, idle_timeout=timeout, max_retries=0)

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        context: ActionContext | None = None,
    ) -> HttpReply:
        """Send a request, and return the response.

        Raises `NetworkError` for temporary failures, and `CopilotError` if the request is refused.
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
        """Send an OPTIONS request to a URL, and return a description of the response."""
        origin = get_origin(url)
        async with Exchange(self._upstream, "OPTIONS", f"{origin}/", None, {}):
            return f"{origin} answers"

    async def aclose(self) -> None:
        await self._upstream.aclose()


def _cut(content: bytes) -> str:
    """Return the start of a response as one line."""
    text = " ".join(content[: 4 * _LONGEST_SNIPPET].decode(errors="replace").split())
    return text if len(text) <= _LONGEST_SNIPPET else f"{text[:_LONGEST_SNIPPET]}…"
