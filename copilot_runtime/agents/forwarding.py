"""Shared by all remote agents: forwarded headers, the mapping of errors, and cancellation."""

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid5

from copilot_runtime.api.action import Action
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    IncompleteStream,
    NetworkError,
    NotFound,
    PaymentRequired,
    RateLimited,
    RunStalled,
    ThreadBusy,
)
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.http.client import StreamResponse

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_ID_NAMESPACE = UUID("8f6c1f0a-5a0e-4a54-9d0a-5b0a0a0b6d11")
_BLOCKED = frozenset({"connection", "content-length", "cookie", "host", "transfer-encoding"})
_RUNTIME_PREFIX = "x-copilotcloud-"  # between CopilotKit's client and its runtime
_REFUSAL_TIMEOUT = 5.0


def describe_actions(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """Return actions in JSON, as AG-UI, LangGraph and CopilotKit's SDK have tools."""
    return [
        {
            "name": action.name,
            "description": action.description,
            "parameters": dict(action.parameters),
        }
        for action in actions
    ]


def forward_headers(headers: Mapping[str, str], *blocked_prefixes: str) -> dict[str, str]:
    """Return the headers of a client's request that may be forwarded, with lower-case names."""
    prefixes = (_RUNTIME_PREFIX, *blocked_prefixes)
    lower = {name.lower(): value for name, value in headers.items()}
    return {
        name: value
        for name, value in lower.items()
        if name not in _BLOCKED and not name.startswith(prefixes)
    }


async def read_refusal(reply: StreamResponse) -> bytes:
    """Return the body of an error response, or empty bytes if it does not arrive in 5 seconds."""
    with suppress(CopilotError, TimeoutError):  # the status is enough without the text
        async with asyncio.timeout(_REFUSAL_TIMEOUT):
            return await reply.text()
    return b""


def redact(text: str, limit: int) -> str:
    """Return a text without secrets, cut to `limit` characters."""
    text = REDACTOR.redact(text)
    return text if len(text) <= limit else f"{text[:limit]}..."


def map_refusal(agent: str, status: int, hint: str, reason: str = "") -> CopilotError:
    """Return the error for a status that is not 2xx.

    The server's own text, which may be a stack trace, belongs in `hint`, which is for the log. Its
    `reason` is shown if it is about a payment, because only the person can do something about it.
    """
    match status:
        case 402:
            words = f": {reason}" if reason else " (HTTP 402)."
            return PaymentRequired(f"The agent {agent!r} refused the request{words}", hint=hint)
        case 401 | 403:
            return AuthenticationFailed(
                f"The agent {agent!r} may not be asked: its server refused the key or the sign-in.",
                hint=hint,
            )
        case 404:
            return NotFound(f"The agent {agent!r} is not there.", hint=hint)
        case 409:
            return ThreadBusy(f"The agent {agent!r} is still busy in this thread.", hint=hint)
        case 429:
            return RateLimited(f"The agent {agent!r} is asked too often.", hint=hint)
        case _ if status >= 500:
            return NetworkError(f"The agent {agent!r} is not well (HTTP {status}).", hint=hint)
        case _:
            return ConfigurationFailed(
                f"The agent {agent!r} refused the request (HTTP {status}).", hint=hint
            )


def map_network_error(
    agent: str, error: NetworkError, *, before: str | None = None, where: str = ""
) -> CopilotError:
    """Return the error without the address, which is for the log.

    `before` names the expected end of the response; `None` if there was no response.
    """
    _, separator, reason = error.message.partition("API error: ")
    is_stalled = isinstance(error, RunStalled)
    if before is not None and not is_stalled:
        return build_incomplete_stream(agent, error.hint, before)
    if not separator:
        return error  # it names the agent already
    if is_stalled:
        return RunStalled(f"The agent {agent!r} is silent. {reason}", hint=error.hint)
    return NetworkError(
        f"The agent {agent!r} did not answer{where}. {reason}",
        status_code=error.status_code,
        hint=error.hint,
    )


def build_incomplete_stream(
    agent: str, hint: str | None, before: str = "the run ended"
) -> IncompleteStream:
    """Return the error for a response without an end."""
    message = f"The connection to the agent {agent!r} broke off before {before}."
    return IncompleteStream(message, hint=hint)


def derive_thread_ids(thread_id: str) -> Sequence[str]:
    """Return the candidate ids of a thread on a server.

    LangGraph's own servers accept UUIDs only, compatible servers any name.
    """
    try:
        return [str(UUID(thread_id))]
    except ValueError:
        derived = str(uuid5(_ID_NAMESPACE, thread_id))
        return [thread_id, derived] if _SAFE_ID.fullmatch(thread_id) else [derived]


class Cancellations:
    """Cancellation requests, each in a task that survives the cancellation of its caller."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: Coroutine[Any, Any, None], id: str) -> None:
        """Send a cancellation request, which must not hang or raise, and wait for it."""
        task = asyncio.create_task(request, name=f"cancel:{id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def wait(self) -> None:
        """Wait for the pending requests of this event loop."""
        loop = asyncio.get_running_loop()
        if tasks := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)
