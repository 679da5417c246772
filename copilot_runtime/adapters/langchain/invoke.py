"""Chunks of a model that is a Python object or a function, their time limits and their errors."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from copilot_runtime.adapters.errors import Service, build_error, find_request_id
from copilot_runtime.adapters.streaming import FirstTokenLimit
from copilot_runtime.api.events import Event
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import CopilotError, NetworkError, RunStalled
from copilot_runtime.http.retries import parse_retry_after

_END = object()


async def read_in_time(
    chunks: AsyncGenerator[Any, None],
    read: Callable[[Any], Sequence[Event]],
    name: str,
    first: float | None,
    idle: float,
) -> AsyncGenerator[Event, None]:
    """Yield the events that `read` makes of the chunks. Raises `RunStalled` for a silence.

    `first` is the time for the first event, `idle` that for each chunk, in seconds.
    """
    limit = FirstTokenLimit(f"{name} error", first)
    try:
        while True:
            silence = asyncio.timeout(idle)
            try:
                async with silence:
                    chunk = await limit.within_deadline(anext(chunks))
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                if not silence.expired():  # the model's own
                    raise
                raise RunStalled(
                    f"{name} error: No answer for {idle:g} seconds.",
                    kind="APIConnectionTimeoutError",
                    hint="Raise idle_timeout if the model may think that long.",
                ) from error
            for event in read(chunk):
                limit.has_event = True
                yield event
    finally:
        await chunks.aclose()


async def call_function(function: Callable[..., Any], question: Any) -> AsyncGenerator[Any, None]:
    """Yield what a function returns: one answer, or its pieces."""
    answer = (
        function(question)
        if inspect.isasyncgenfunction(function)
        else await call(function, question)
    )
    if isinstance(answer, AsyncIterable):
        async for piece in cast("AsyncIterable[Any]", answer):
            yield piece
    elif isinstance(answer, Iterator):
        pieces = cast("Iterator[Any]", answer)
        while (piece := await asyncio.to_thread(next, pieces, _END)) is not _END:
            yield piece
    else:
        yield answer


def read_client_error(error: Exception, service: Service) -> CopilotError | None:
    """Return our error for one of a provider's client, or None if there is none."""
    response: Any = getattr(error, "response", None)
    code: Any = getattr(error, "code", None)
    status: Any = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    match response:
        case {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}:
            pass  # botocore's
        case _ if status is None:
            status = code  # Google's
        case _:
            pass
    if isinstance(status, int) and 400 <= status < 600:
        return build_error(
            service,
            str(error),
            status,
            request_id=find_request_id(headers),
            retry_after=parse_retry_after(headers),
            codes=[code],
        )
    kind = type(error).__name__
    message = f"{service.name} error: {error}"
    if isinstance(error, TimeoutError) or "Timeout" in kind:
        return RunStalled(message, kind=kind)
    if isinstance(error, OSError) or "Connect" in kind or "RemoteProtocol" in kind:
        return NetworkError(message, kind=kind)
    return None
