"""The REST endpoint `traces` below the URL of a runtime, for operators (`access.py`).

Any caller may ask whether they are an operator, and rate the answers of their own runs. Drawing
and statistics are imported on first use, so that they do not slow down the server's start.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.config.loader import find_named_file
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.extensions.tracing.http.feedback import Readers, parse_feedback, store_feedback
from copilot_runtime.extensions.tracing.http.live import LiveReader, ReaderBehind
from copilot_runtime.extensions.tracing.scenario import write_scenarios
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.extensions.tracing.store.traces import (
    NAMES,
    encode_summary,
    parse_filter,
    split_traces,
    summarize_trace,
)
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
from copilot_runtime.transports.transport import Services, Transport, check_method

T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_TRACES = 1_000
"""Maximum number of traces in a response."""
_MOST_COUNTED = 1_000
"""Default number of traces for statistics."""
_FEW = 500
"""Maximum number of spans that are rendered on the event loop: a thread would cost more."""
_PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}


class TracesEndpoint(Transport):
    """The transport for `traces` and the paths below it."""

    paths = ("traces", "traces/{rest:path}")

    def __init__(self, services: Services) -> None:
        self._access = services.parts.get(TraceAccess)
        self._runs = services.runs

    def find_scope(self, request: Request) -> str:
        """Return the scope of feedback; reading traces is authorized by `TraceAccess`."""
        return "data:write" if request.path == "traces/feedback" else ""

    async def accepts(self, request: Request) -> bool:
        return not request.is_websocket

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        """Return the routes as `/docs` describes them."""
        from copilot_runtime.extensions.tracing.http.rest import rest_routes  # brings FastAPI along

        return rest_routes(path, router)

    async def __call__(self, request: Request) -> None:
        view = _View(self._access, self._runs, request)
        match request.path.split("/", 2)[1:]:
            case ["feedback"]:
                check_method(request, "POST")
                await view.take_feedback()
            case ["access"]:
                check_method(request, "GET", "HEAD")
                await view.show_access()
            case below:
                # first: others learn nothing, not even which routes exist
                self._access.require(request.scope, request.headers, request.caller)
                await _answer_operator(view, request, below)


async def _answer_operator(view: "_View", request: Request, below: Sequence[str]) -> None:
    match below:
        case []:
            check_method(request, "GET", "HEAD")
            await view.list_traces()
        case ["stats"]:
            check_method(request, "GET", "HEAD")
            await view.show_stats()
        case ["stream"]:
            check_method(request, "GET")
            await view.stream()
        case ["query"]:
            check_method(request, "POST")
            await view.query()
        case ["import"]:
            check_method(request, "POST")
            await view.import_spans()
        case [trace_id] if request.method == "DELETE":
            await view.delete(unquote(trace_id))
        case [trace_id]:
            check_method(request, "GET", "HEAD", "DELETE")
            await view.show(unquote(trace_id))
        case _:
            raise NotFound(f"There is nothing at {request.path[:100]!r}.")


class _View:
    """The handlers for one authorized request."""

    def __init__(self, access: TraceAccess, runs: Conversations, request: Request) -> None:
        self._access = access
        self._runs = runs
        self._request = request
        self._values = dict(parse_qsl(request.query_string, keep_blank_values=True))

    @property
    def _is_operator(self) -> bool:
        request = self._request
        return self._access.allows(request.scope, request.headers, request.caller)

    @property
    def _store(self) -> TraceStore:
        return self._access.find_store()

    async def list_traces(self) -> None:
        """Respond with a page of trace summaries, the newest first, or with their scenarios."""
        limit = _read_limit(self._values.get("limit", ""), 50)
        filter = parse_filter(self._values)
        if self._values.get("format") == "scenario":
            spans = await self._store.query_spans("", filter, limit=limit)
            await self._send_scenarios(spans)
            return
        found = await self._store.list_traces(
            filter, limit=limit + 1, before=self._values.get("before", "")
        )
        page = found[:limit]
        more = page[-1].trace_id if len(found) > limit else None
        await self._respond({"traces": [*map(encode_summary, page)], "next": more})

    async def show(self, trace_id: str) -> None:
        """Respond with a trace: its spans as JSON, or a waterfall or diagram as text."""
        spans = await self._store.get_trace(trace_id)
        summary = await render_spans(spans, lambda: summarize_trace(spans))
        if summary is None:
            raise NotFound("There is no such trace.")
        match self._values.get("format", "json"):
            case "json":
                is_own = summary.user == (self._request.caller.user or "")
                answer = {"trace": encode_summary(summary), "spans": spans, "is_own": is_own}
                await self._send_json(spans, lambda: dumps(answer))
            case "otlp":
                from copilot_runtime.extensions.tracing.otlp import encode_otlp_json

                await self._send_json(spans, lambda: encode_otlp_json(spans))
            case "mermaid":
                from copilot_runtime.extensions.tracing.mermaid import draw_sequence

                await self._send_text(spans, lambda: draw_sequence(spans))
            case "text":
                from copilot_runtime.extensions.tracing.waterfall import draw_waterfall

                width = _read_limit(self._values.get("width", ""), 100, "width")
                await self._send_text(spans, lambda: draw_waterfall(spans, width=width))
            case "scenario":
                await self._send_scenarios(spans)
            case other:
                names = "json, otlp, mermaid, scenario or text"
                raise BadRequest(f"format is {other[:40]!r}; it is {names}.")

    async def _send_scenarios(self, spans: Sequence[Record]) -> None:
        """Respond with scenarios, which name the settings file for operators alone."""
        config = find_named_file() if self._is_operator else ""
        await self._send_text(spans, lambda: write_scenarios(spans, config))

    async def show_stats(self) -> None:
        """Respond with statistics by agent, model, tool, user and time."""
        from copilot_runtime.extensions.tracing.stats import compute_stats

        limit = _read_limit(self._values.get("limit", ""), _MOST_COUNTED, most=10 * _MOST_COUNTED)
        spans = await self._store.query_spans("", parse_filter(self._values), limit=limit)
        await self._send_json(spans, lambda: dumps(asdict(compute_stats(spans))))

    async def query(self) -> None:
        """Respond with the whole traces that a JMESPath matches, the newest first."""
        body = await self._request.json_object()
        query = body.get("query", "")
        if not isinstance(query, str):
            raise BadRequest("query is a JMESPath, such as [?status.code == `2`].")
        limit = _read_limit(str(body.get("limit", "")), 20)
        filter = parse_filter({name: write_value(body[name]) for name in NAMES if name in body})
        spans = await self._store.query_spans(query, filter, limit=limit)
        await self._send_json(
            spans, lambda: dumps({"traces": [*map(_encode_trace, group_traces(spans))]})
        )

    async def delete(self, trace_id: str) -> None:
        """Delete a trace permanently."""
        if not await self._store.delete_trace(trace_id):
            raise NotFound("There is no such trace.")
        await self._respond({"trace_id": trace_id, "deleted": True})

    async def import_spans(self) -> None:
        """Store the spans of an OTLP JSON request."""
        from copilot_runtime.extensions.tracing.otlp import OtlpError, decode_spans

        telemetry, store = self._access.telemetry, self._store
        body = await self._request.json_object()
        try:
            batch = await call(decode_spans, body, keeps_content=telemetry.keeps_content)
        except OtlpError as error:
            raise BadRequest(f"The request body is no OTLP: {error}") from None
        for span in batch.spans:
            store.add(span)
        answer = {"spans": len(batch.spans), "rejected": batch.rejected, "reason": batch.reason}
        await self._respond(answer, 201)

    async def show_access(self) -> None:
        """Respond with the caller's permission to read traces, for pages that offer links."""
        await self._respond({"may_read": self._is_operator})

    async def take_feedback(self) -> None:
        """Record feedback on an answer, from the user of the run or an operator."""
        feedback = parse_feedback(await self._request.json_object())
        readers = Readers(self._request.caller.user, is_everybody=self._is_operator)
        trace_id = await store_feedback(self._access.telemetry, self._store, feedback, readers)
        await self._respond({"trace_id": trace_id, "rating": feedback.rating}, 201)

    async def stream(self) -> None:
        """Stream span starts and ends until the reader disconnects or falls behind."""
        if not self._access.telemetry.is_recording:
            self._access.find_store()  # raises NotFound: nothing is traced here
        reader = LiveReader(
            self._access.telemetry,
            trace_id=self._values.get("trace_id", ""),
            thread_id=self._values.get("thread_id", ""),
            is_closing=lambda: self._runs.runtime.is_closing,
        )
        await run_until_disconnect(self._write_spans(reader), self._request.receive, None)

    async def _write_spans(self, reader: LiveReader) -> None:
        with reader:
            async with self._request.stream_events() as stream:
                await stream.write(b": spans as they begin and end\n\n")
                try:
                    async for phase, record in reader.read():
                        frame = b"event: span_%b\ndata: %b\n\n" % (phase.encode(), dumps(record))
                        await stream.write(frame)
                except ReaderBehind:
                    logger.warning("Disconnected a reader of live spans that did not keep up")
                    await stream.write(b"event: behind\ndata: {}\n\n")
                await stream.write(b"", last=True)

    async def _respond(self, value: Mapping[str, Any], status: int = 200) -> None:
        await self._send(status, dumps(value), "application/json")

    async def _send_json(self, spans: Sequence[Record], render: Callable[[], bytes]) -> None:
        await self._send(200, await render_spans(spans, render), "application/json")

    async def _send_text(self, spans: Sequence[Record], draw: Callable[[], str]) -> None:
        text = await render_spans(spans, draw)
        await self._send(200, text.encode(errors="replace"), "text/plain; charset=utf-8")

    async def _send(self, status: int, body: bytes, content_type: str) -> None:
        if self._request.method == "HEAD":
            body = b""
        await self._request.respond(status, body, content_type=content_type, headers=_PRIVATE)


async def render_spans(spans: Sequence[Record], render: Callable[[], T]) -> T:
    """Return the result of `render`, called in a thread if there are many spans."""
    return render() if len(spans) <= _FEW else await call(render)


def group_traces(spans: Sequence[Record]) -> list[list[Record]]:
    """Group spans by trace, the newest trace first."""
    traces = split_traces(spans).values()
    return sorted(traces, key=lambda it: it[0]["start_time_unix_nano"], reverse=True)


def _encode_trace(spans: Sequence[Record]) -> dict[str, Any]:
    summary = summarize_trace(spans)
    assert summary is not None
    return {"trace": encode_summary(summary), "spans": spans}


def write_value(value: Any) -> str:
    """Return a JSON value as text for a URL's query string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else str(value)
    raise Misuse("A filter has texts, numbers and booleans.")


def _read_limit(text: str, default: int, name: str = "limit", most: int = MOST_TRACES) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) == 0:
        raise BadRequest(f"{name} is a number from 1 to {most}, such as {default}.")
    return min(int(text), most)
