"""An HTTP client for tools, with size limits and errors that quote the service."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlsplit

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.api.action import ActionContext
from copilot_runtime.base.errors import CopilotError, NetworkError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject
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
        """Return the decoded body. Raises `CopilotError` if it is not valid JSON."""
        try:
            return loads(self.content)
        except ValueError:
            raise CopilotError("The service's response is not valid JSON.") from None


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


_PLACEHOLDER = re.compile(r"(?<!\$)\{(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\}")
_DOTS = {".", ".."}
_NOTHING: Any = object()


def list_placeholders(template: Any) -> list[str]:
    """Return the distinct names in a template."""
    return [*dict.fromkeys(_find(template))]


def fill(template: Any, arguments: Mapping[str, Any], names: frozenset[str]) -> Any:
    """Return a template with the placeholders in `names` replaced by arguments.

    A string that consists of one placeholder becomes the argument itself, with its type. If the
    argument is missing, the member is omitted.
    """
    filled = _fill(template, arguments, names)
    return None if filled is _NOTHING else filled


def fill_url(template: str, arguments: Mapping[str, Any], names: frozenset[str]) -> str:
    """Return a URL in which each argument fills one part of a path or query only.

    Raises `InvalidArguments` if an argument would change the path.
    """

    def substitute(match: re.Match[str]) -> str:
        if match["name"] not in names:
            return match[0]
        value = encode_text(arguments.get(match["name"]))
        if not value and match.start() < query:
            raise InvalidArguments(f"Invalid arguments: {match['name']}: it must not be empty.")
        return quote(value, safe="")

    query = len(template.partition("?")[0])
    url = _PLACEHOLDER.sub(substitute, template)
    before, after = (urlsplit(text).path.split("/") for text in (template, url))
    if any(a in _DOTS and b not in _DOTS for a, b in zip(after, before, strict=True)):
        raise InvalidArguments("Invalid arguments: '.' and '..' are no parts of a path.")
    return url


def encode_query(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return query fields: a list becomes a field per item, and null is omitted."""
    pairs: list[tuple[str, str]] = []
    for name, value in fields.items():
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        pairs += [(name, encode_text(each)) for each in values if each is not None]
    return pairs


def encode_text(value: Any) -> str:
    """Return an argument as text: a string unchanged, null as empty, other values as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


def _find(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield from (match["name"] for match in _PLACEHOLDER.finditer(template))
    elif isinstance(template, Mapping):
        for inner in cast("Mapping[Any, Any]", template).values():
            yield from _find(inner)
    elif isinstance(template, list):
        for inner in cast("list[Any]", template):
            yield from _find(inner)


def _fill(template: Any, arguments: Mapping[str, Any], names: frozenset[str]) -> Any:
    if isinstance(template, Mapping):
        members = cast("Mapping[str, Any]", template).items()
        filled: JsonObject = {key: _fill(inner, arguments, names) for key, inner in members}
        return {key: value for key, value in filled.items() if value is not _NOTHING}
    if isinstance(template, list):
        items = [_fill(inner, arguments, names) for inner in cast("list[Any]", template)]
        return [item for item in items if item is not _NOTHING]
    if not isinstance(template, str):
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None and whole["name"] in names:
        return arguments.get(whole["name"], _NOTHING)
    return _PLACEHOLDER.sub(
        lambda match: (
            encode_text(arguments.get(match["name"])) if match["name"] in names else match[0]
        ),
        template,
    )
