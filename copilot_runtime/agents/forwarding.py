"""Headers that are forwarded to remote agents, and their refusals without the secrets in these."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from copilot_runtime.errors import CopilotError
from copilot_runtime.http.client import StreamResponse

_BLOCKED = frozenset({"connection", "content-length", "cookie", "host", "transfer-encoding"})
_RUNTIME_PREFIX = "x-copilotcloud-"  # between CopilotKit's client and its runtime
_REFUSAL_TIMEOUT = 5.0
_MIN_SECRET = 8


def forward_headers(headers: Mapping[str, str], *blocked_prefixes: str) -> dict[str, str]:
    """Return the headers of a page's request that may go on, by names in lower case."""
    prefixes = (_RUNTIME_PREFIX, *blocked_prefixes)
    lower = {name.lower(): value for name, value in headers.items()}
    return {
        name: value
        for name, value in lower.items()
        if name not in _BLOCKED and not name.startswith(prefixes)
    }


async def read_refusal(reply: StreamResponse) -> bytes:
    """Return the body of a refusal, or nothing if it has not come within 5 seconds."""
    with suppress(CopilotError, TimeoutError):  # the status is enough without the text
        async with asyncio.timeout(_REFUSAL_TIMEOUT):
            return await reply.text()
    return b""


def redact(text: str, values: Iterable[str], limit: int) -> str:
    """Return a text of at most `limit` characters without values of headers: keys and tokens."""
    for value in values:
        for secret in (value, value.partition(" ")[2]):
            if len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "***")
    return text if len(text) <= limit else f"{text[:limit]}..."
