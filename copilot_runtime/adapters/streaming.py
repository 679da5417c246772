"""Sends one request to a provider over HTTP, and yields the events of its streamed response.

An adapter provides a `JSONReader`, which translates its provider's payloads into events. This
module does the rest: timeouts, error responses, interrupted responses, retries, and closing the
connection when the events are no longer read.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from itertools import count
from typing import Any, NamedTuple, Protocol

import orjson

from copilot_runtime.adapters.errors import (
    ProviderHealth,
    Service,
    find_body_error,
    find_request_id,
    read_response_error,
)
from copilot_runtime.adapters.first_token import FirstTokenLimit
from copilot_runtime.adapters.invalid_answers import CONTENT
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.api.budget import Budget
from copilot_runtime.api.events import Event, Events, Usage
from copilot_runtime.base.errors import CopilotError, InvalidAnswer, NetworkError, RateLimited
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.http.client import ERROR_BODY_TIMEOUT
from copilot_runtime.http.errors import MAX_WAIT, backoff, parse_retry_after
from copilot_runtime.http.sse import PAYLOADS_AT_ONCE
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span

_NO_STREAM = (b"{", b"[", b"<")
"""First bytes of a body without events: the JSON of a proxy that does not stream, an error that
Google sends between two events, the HTML page at a wrong base URL."""


class StreamResponse(Protocol):
    """A response whose body is still arriving.

    The reader sets `finished` when no relevant data follows, so that the connection can be reused.
    """

    status: int
    headers: Mapping[str, str]
    finished: bool

    def check_silence(self, since: float | None) -> float:
        """Return since when no block has completed an event. Raises `RunStalled` after too long."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def text(self) -> bytes: ...


class FrameDecoder(Protocol):
    """Finds the payloads in a stream of bytes, as `sse.SSEDecoder` does."""

    is_event_stream: bool
    """True once the stream has shown that it is of the expected kind."""
    other_text: bytes
    """The beginning of a response that is of another kind."""

    @property
    def is_between_events(self) -> bool:
        """True when the stream is between two payloads, where plain JSON may occur."""
        ...

    def feed(self, block: bytes) -> list[bytes]: ...

    def finish(self) -> list[bytes]: ...


class ProviderRequest(NamedTuple):
    """A request that is ready to be sent.

    `exchange` sends it each time that it is entered. `new_reader` returns the reader and the
    decoder of one response.
    """

    exchange: AbstractAsyncContextManager[StreamResponse, bool | None]
    service: Service
    new_reader: Callable[[], tuple[JSONReader, FrameDecoder]]
    content: JsonObject
    """The body before encoding, for the span of the request."""
    max_retries: int = 0
    """How often it is sent again when a response breaks off before its first event."""
    accepts_json: bool = True
    """Whether the reader also accepts one JSON text in place of a stream."""
    on_usage: Callable[[Usage], None] = lambda _: None
    """Called with the tokens of a complete response, before their event is yielded."""
    on_close: Callable[[], None] = lambda: None
    """Called when the response has ended, or is no longer read."""


async def stream_response(
    prepare: Callable[[], Awaitable[tuple[ProviderRequest, Sequence[Event]]]],
    *,
    first_token_timeout: float | None,
    span: Span,
    budget: Budget | None,
    health: ProviderHealth,
    leave_out: Callable[[CopilotError], bool],
) -> Events:
    """Prepare a request, yield its warnings, send it, and yield the events of its response.

    After an error that is `retryable`, by its class in `ERROR_CLASSES`, the request is sent again,
    as long as no event has been yielded; after an `InvalidAnswer`, once. `first_token_timeout`
    limits the seconds until the first event, retries included.
    The `span` of the request gets the parameters, the attributes of the response and an event per
    retry, which the `budget` counts; `health` gets the outcome. A request that was refused is
    prepared and sent again if `leave_out` returns `True` for the error: the next one is without the
    files of that error.
    Raises the error of the response's status or body, `RunStalled` at a timeout, `NetworkError`
    for a response that ended too early, and `InvalidAnswer` for one without content.
    """
    is_first = True
    while True:
        request, warnings = await prepare()
        if span.is_recording and (parameters := describe_body(request.content)):
            span.set_attributes(parameters)
        if is_first:
            for warning in warnings:
                yield warning
        is_first = is_answered = False
        waited = 0.0
        reader: JSONReader | None = None
        limit = FirstTokenLimit(f"{request.service.name} API error", first_token_timeout)
        try:
            for attempt in count():
                reader, frames = request.new_reader()
                error: CopilotError | None = None
                async with limit.enter(request.exchange) as response:
                    if not 200 <= response.status < 300:
                        error = await _read_error(response, request.service)
                        if not isinstance(error, InvalidAnswer):  # the client has repeated others
                            raise error
                    else:
                        reading = _read_events(request, response, limit, reader, frames)
                        try:
                            async for events in reading:
                                for event in events:
                                    if not is_answered:
                                        limit.has_event = True
                                        is_answered = type(event) in CONTENT
                                    yield event
                        except NetworkError as broken:
                            if not reader.finished:  # else the response is complete
                                error = find_body_error(request.service, frames.other_text)
                                error = error or broken
                        finally:
                            await reading.aclose()
                        response.finished = reader.done
                error = error or _find_error(reader, frames, request.service, response.headers)
                if error is None:
                    ending = reader.end()
                    is_answered = is_answered or not CONTENT.isdisjoint(map(type, ending))
                    error = None if is_answered else reader.find_empty_answer()
                    for event in ending:
                        if isinstance(event, Usage):
                            request.on_usage(event)
                        if error is None or isinstance(event, Usage):
                            yield event
                    if error is None:
                        health.record_success()
                        return
                wait = _find_wait(error, attempt, request.max_retries)
                if wait is None or waited + wait > MAX_WAIT or limit.has_event:
                    raise error
                if budget is not None:
                    await budget.repeat_request()
                span.add_event(semconv.EVENT_RETRY, {semconv.ERROR_TYPE: error.code})
                await limit.within_deadline(asyncio.sleep(wait))
                waited += wait
        except CopilotError as error:
            health.record_failure(error)
            if limit.has_event or not leave_out(error):
                raise
            if budget is not None:
                await budget.repeat_request()
            span.add_event(semconv.EVENT_RETRY, {semconv.ERROR_TYPE: error.code})
        finally:
            if span.is_recording and reader is not None:
                reader.describe(span)
            request.on_close()


def _find_wait(error: CopilotError, attempt: int, max_retries: int) -> float | None:
    """Return the seconds until a request is sent again after an error, or `None` if it is not."""
    once = isinstance(error, InvalidAnswer) and attempt > 0
    if once or attempt >= max_retries or not error.retryable:
        return None
    return (isinstance(error, RateLimited) and error.retry_after) or backoff(attempt)


def encode_body(value: Any) -> bytes:
    """Return the JSON to send; lone surrogates become question marks."""
    try:
        # a copy: orjson returns up to ten times the memory, and a body lives as long as its stream
        return bytes(memoryview(orjson.dumps(value, default=_plain)))
    except TypeError:
        return json.dumps(value, ensure_ascii=False, default=_plain).encode(errors="replace")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {**value}
    if isinstance(value, Sequence | set | frozenset):
        return list(value)
    raise TypeError(f"{value!r} cannot be written as JSON.")


async def _read_events(
    request: ProviderRequest,
    response: StreamResponse,
    limit: FirstTokenLimit,
    reader: JSONReader,
    frames: FrameDecoder,
) -> AsyncGenerator[list[Event], None]:
    """Yield the events of each block of bytes, then those that remain at the end."""
    can_be_json = request.accepts_json
    silent_since: float | None = None
    async for block in limit.read(response):
        if can_be_json and block.lstrip().startswith(_NO_STREAM) and frames.is_between_events:
            frames.is_event_stream = True
            payloads = [block + await response.text()]
        else:
            payloads = frames.feed(block)
        silent_since = None if payloads else response.check_silence(silent_since)
        while len(payloads) > PAYLOADS_AT_ONCE:
            yield reader.read(payloads[:PAYLOADS_AT_ONCE])
            if reader.done or reader.failure:
                return
            del payloads[:PAYLOADS_AT_ONCE]
            await asyncio.sleep(0)  # others run, and the run can be stopped
        yield reader.read(payloads)
        if reader.done or reader.failure:
            return
    yield reader.read(frames.finish())


def _find_error(
    reader: JSONReader, frames: FrameDecoder, service: Service, headers: Mapping[str, str]
) -> CopilotError | None:
    """Return the error of a response that has ended, or `None` if it is complete."""
    if error := reader.failure:
        if isinstance(error, RateLimited) and error.retry_after is None:
            error.retry_after = parse_retry_after(headers)
        if request_id := find_request_id(headers):  # for the provider's support
            error.hint = " ".join(filter(None, [error.hint, f"Request id: {request_id}."]))
        return error
    if reader.finished or reader.done:  # some gateways send the end without a reason
        return None
    if not frames.is_event_stream:
        return service.body_error(frames.other_text)
    return find_body_error(service, frames.other_text) or NetworkError(
        f"{service.name} API error: Premature close",
        kind=f"{service.name}Error",
        hint="The answer ended before the model had finished.",
    )


async def _read_error(response: StreamResponse, service: Service) -> CopilotError:
    """Return the error of a response whose status is not 2xx."""
    body = b""
    with suppress(CopilotError, TimeoutError):  # the status says enough without the body
        async with asyncio.timeout(ERROR_BODY_TIMEOUT):
            body = await response.text()
    return read_response_error(service, response.status, body, response.headers)


_NUMBERS: Mapping[str, tuple[type[int] | type[float], tuple[str, ...]]] = {
    semconv.REQUEST_TEMPERATURE: (float, ("temperature",)),
    semconv.REQUEST_TOP_P: (float, ("top_p", "topP")),
    semconv.REQUEST_TOP_K: (int, ("top_k", "topK")),
    semconv.REQUEST_MAX_TOKENS: (
        int,
        (
            *("max_tokens", "max_completion_tokens", "max_output_tokens"),
            *("maxTokens", "maxOutputTokens"),
        ),
    ),
    semconv.REQUEST_SEED: (int, ("seed", "random_seed")),
    semconv.REQUEST_FREQUENCY_PENALTY: (float, ("frequency_penalty", "frequencyPenalty")),
    semconv.REQUEST_PRESENCE_PENALTY: (float, ("presence_penalty", "presencePenalty")),
    semconv.REQUEST_CHOICE_COUNT: (int, ("n", "candidateCount")),
}
"""Attribute → its type, and the names of the field in the bodies of all providers."""
_STOPS = ("stop", "stop_sequences", "stopSequences")
_PREVIOUS = "previous_response_id"
_CONFIGS = ("generationConfig", "inferenceConfig")
"""The objects in which Gemini and Bedrock have the parameters."""
_EFFORTS = (
    ("reasoning_effort",),
    ("reasoning", "effort"),
    ("output_config", "effort"),
    ("thinkingConfig", "thinkingLevel"),
)
_DESCRIBED = frozenset(
    {
        *(name for _, names in _NUMBERS.values() for name in names),
        *(*_STOPS, *_CONFIGS, _PREVIOUS, *(path[0] for path in _EFFORTS)),
    }
)
"""The fields of bodies that are described. Most bodies have none of them."""


def describe_body(body: JsonObject) -> dict[str, Any]:
    """Return the span attributes of the parameters in a request body, of any provider.

    The client's parameters are no substitute: adapters have defaults, and omit unsupported ones.
    """
    if _DESCRIBED.isdisjoint(body):
        return {}
    fields = {**body}
    for name in _CONFIGS:
        fields |= as_object(body.get(name))
    found: dict[str, Any] = {}
    for attribute, (convert, names) in _NUMBERS.items():
        for name in names:
            value = fields.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[attribute] = convert(value)
    if found.get(semconv.REQUEST_CHOICE_COUNT) == 1:
        del found[semconv.REQUEST_CHOICE_COUNT]
    for name in _STOPS:
        if stops := fields.get(name):
            found[semconv.REQUEST_STOP_SEQUENCES] = [stops] if isinstance(stops, str) else [*stops]
    for path in _EFFORTS:
        if effort := _find_text(fields, path):
            found[semconv.REQUEST_REASONING_LEVEL] = effort
    if previous := _find_text(fields, (_PREVIOUS,)):
        found[semconv.REQUEST_PREVIOUS_RESPONSE_ID] = previous
    return found


def _find_text(value: Any, path: tuple[str, ...]) -> str:
    for name in path:
        value = as_object(value).get(name)
    return value if isinstance(value, str) else ""
