"""Traces in GraphQL, for operators, with the same data and permissions as REST.

If no user may read traces, the schema has none of these fields and this module is not imported.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING

import strawberry

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.extensions.tracing.http.endpoint import (
    MOST_TRACES,
    group_traces,
    render_spans,
    write_value,
)
from copilot_runtime.extensions.tracing.http.live import LiveReader, ReaderBehind
from copilot_runtime.extensions.tracing.store import traces as store_traces
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import (
    encode_summary,
    parse_filter,
    summarize_trace,
)
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.errors import hide_details
from copilot_runtime.transports.graphql.schema import CopilotInfo
from copilot_runtime.transports.graphql.types import JSONObject

if TYPE_CHECKING:
    from copilot_runtime.extensions.tracing.stats import GroupStats

_MOST_FIELDS = 5


@strawberry.type(description="A trace summary; tokens and dollars are of requests to models")
class TraceSummary:
    trace_id: str
    name: str
    agent: str
    user: str
    question: str = strawberry.field(description="Its beginning, if content is stored")
    thread_id: str
    run_id: str
    start_time_unix_nano: str
    end_time_unix_nano: str
    duration: float = strawberry.field(description="Seconds")
    span_count: int
    errors: int
    error_type: str
    outcome: str
    rating: str = strawberry.field(description="up, down, or nothing")
    model_calls: int
    tool_calls: int
    models: list[str]
    input_tokens: float
    output_tokens: float
    dollars: float
    unpriced: int = strawberry.field(description="Requests without a known price")


@strawberry.type(description="Traces, the newest first; next is the before of the next page")
class TracePage:
    traces: list[TraceSummary]
    next: str | None


@strawberry.type(description="A trace with its spans by their start")
class Trace:
    summary: TraceSummary
    spans: list[JSONObject]
    records: strawberry.Private[Sequence[Record]]

    @strawberry.field(description="A sequence diagram of Mermaid")
    async def mermaid(self, info: CopilotInfo) -> str:
        _require(info.context)
        from copilot_runtime.extensions.tracing.mermaid import draw_sequence

        return await render_spans(self.records, lambda: draw_sequence(self.records))

    @strawberry.field(description="A bar for each span, in text")
    async def waterfall(self, info: CopilotInfo, width: int = 100) -> str:
        _require(info.context)
        from copilot_runtime.extensions.tracing.waterfall import draw_waterfall

        width = min(width, 1_000)
        return await render_spans(self.records, lambda: draw_waterfall(self.records, width=width))


@strawberry.type(description="Statistics of the spans of one agent, model or tool")
class TraceGroup:
    name: str
    count: int
    errors: int
    p50: float = strawberry.field(description="Seconds")
    p95: float = strawberry.field(description="Seconds")
    input_tokens: float
    output_tokens: float
    dollars: float
    unpriced: int


@strawberry.type(description="Statistics of traces, by agent, model, tool, user and time")
class TraceStats:
    traces: int
    failed: int
    spans: int
    agents: list[TraceGroup]
    models: list[TraceGroup]
    tools: list[TraceGroup]
    users: list[TraceGroup]
    times: list[TraceGroup] = strawberry.field(description="By minute, hour or day")


@strawberry.type(description="A span that has just started (phase start) or ended (phase end)")
class LiveSpan:
    phase: str
    span: JSONObject


@strawberry.input(description="A trace filter, as in REST: since is an age such as 1h, or a time")
class TraceFilterInput:
    trace_id: str = ""
    resource_id: str = ""
    thread_id: str = ""
    run_id: str = ""
    agent: str = ""
    user: str = ""
    model: str = ""
    since: str = ""
    until: str = ""
    has_error: bool | None = None
    min_duration: float = 0.0
    rating: str = ""
    text: str = ""


@strawberry.type
class TraceQuery:
    @strawberry.field(description="Trace summaries, the newest first. A JMESPath disables paging")
    async def traces(
        self,
        info: CopilotInfo,
        filter: TraceFilterInput | None = None,
        query: str = "",
        limit: int = 50,
        before: str = "",
    ) -> TracePage:
        store = _require(info.context).find_store()
        limit, meant = _check_limit(limit), _read_filter(filter)
        if query:
            spans = await store.query_spans(query, meant, limit=limit)
            summaries = await render_spans(
                spans, lambda: [summarize_trace(trace) for trace in group_traces(spans)]
            )
            found = [_build_summary(it) for it in summaries if it is not None]
            return TracePage(traces=found, next=None)
        rows = await store.list_traces(meant, limit=limit + 1, before=before)
        page = rows[:limit]
        more = page[-1].trace_id if len(rows) > limit else None
        return TracePage(traces=[*map(_build_summary, page)], next=more)

    @strawberry.field(description="The trace with this id, or null")
    async def trace(self, info: CopilotInfo, id: str) -> Trace | None:
        spans = await _require(info.context).find_store().get_trace(id)
        summary = await render_spans(spans, lambda: summarize_trace(spans))
        if summary is None:
            return None
        objects = [JSONObject(span) for span in spans]
        return Trace(summary=_build_summary(summary), spans=objects, records=spans)

    @strawberry.field(description="Calls, errors, times and cost of the newest traces")
    async def trace_stats(
        self, info: CopilotInfo, filter: TraceFilterInput | None = None, limit: int = 1000
    ) -> TraceStats:
        from copilot_runtime.extensions.tracing.stats import compute_stats

        store = _require(info.context).find_store()
        spans = await store.query_spans("", _read_filter(filter), limit=_check_limit(limit))
        stats = await render_spans(spans, lambda: compute_stats(spans))
        return TraceStats(
            traces=stats.traces,
            failed=stats.failed,
            spans=stats.spans,
            agents=[*map(_build_group, stats.agents)],
            models=[*map(_build_group, stats.models)],
            tools=[*map(_build_group, stats.tools)],
            users=[*map(_build_group, stats.users)],
            times=[*map(_build_group, stats.times)],
        )


@strawberry.type
class TraceSubscription:
    @strawberry.subscription(
        description="Spans as they start and end, of one trace or thread, or all. A reader that "
        "falls behind is disconnected"
    )
    async def spans(
        self, info: CopilotInfo, trace_id: str = "", thread_id: str = ""
    ) -> AsyncGenerator[LiveSpan, None]:
        try:
            access = _require(info.context)
            runtime = info.context.runs.runtime
            reader = LiveReader(
                access.telemetry,
                trace_id=trace_id,
                thread_id=thread_id,
                is_closing=lambda: runtime.is_closing,
            )
            with reader:
                async with aclosing(reader.read()) as spans:
                    async for phase, record in spans:
                        yield LiveSpan(phase=phase, span=JSONObject(record))
        except ReaderBehind:
            raise hide_details(Misuse("This reader did not keep up with the spans.")) from None
        except Exception as error:  # the client gets it without details
            raise hide_details(error) from None


ROOTS = {"Query": TraceQuery, "Subscription": TraceSubscription}


def _require(context: Context) -> TraceAccess:
    """Return the access to traces, and count one more traces field of the request.

    Raises `TracesForbidden` if the caller may not read traces, and `LimitExceeded` for too many
    fields: each may take as long as a whole query.
    """
    context.count_field("traces", _MOST_FIELDS)
    request, traces = context.request, context.services.parts.find(TraceAccess)
    assert traces is not None
    traces.require(request.scope, request.headers, request.caller)
    return traces


def _read_filter(chosen: TraceFilterInput | None) -> store_traces.TraceFilter:
    if chosen is None:
        return store_traces.TraceFilter()
    values = {name: write_value(value) for name, value in asdict(chosen).items()}
    values["min_duration"] = f"{chosen.min_duration:f}" if chosen.min_duration else ""
    return parse_filter(values)


def _check_limit(limit: int) -> int:
    if not 1 <= limit <= MOST_TRACES:
        raise Misuse(f"limit is {limit}; it is a number from 1 to {MOST_TRACES}.")
    return limit


def _build_summary(summary: store_traces.TraceSummary) -> TraceSummary:
    values = encode_summary(summary)
    for name in ("start_time_unix_nano", "end_time_unix_nano"):
        values[name] = str(values[name])
    return TraceSummary(span_count=values.pop("spans"), **values)


def _build_group(group: "GroupStats") -> TraceGroup:
    return TraceGroup(**asdict(group))
