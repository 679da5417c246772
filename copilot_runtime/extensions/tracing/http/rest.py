"""The routes of traces as `/docs` describes them; the endpoint reads and answers the requests."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from copilot_runtime.transports.rest_route import declare_routes, describe_body, describe_stream

_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class TraceSummaryModel(BaseModel):
    """A trace summary. Tokens and dollars are those of requests to models."""

    trace_id: str = Field(examples=[_TRACE])
    name: str = Field(examples=["invoke_agent default"])
    agent: str = Field(examples=["default"])
    user: str = Field(examples=["ann"])
    question: str = Field(
        description="Its beginning, if content is stored.", examples=["What time is it?"]
    )
    thread_id: str = Field(examples=["thread-1"])
    run_id: str = Field(examples=["run-1"])
    start_time_unix_nano: int = Field(examples=[1767268800000000000])
    end_time_unix_nano: int = Field(examples=[1767268802310000000])
    duration: float = Field(description="Seconds.", examples=[2.31])
    spans: int = Field(examples=[4])
    errors: int = Field(examples=[0])
    error_type: str = Field(examples=[""])
    outcome: str = Field(
        description="finished, failed, stopped, refused, or interrupted: it asked a person.",
        examples=["finished"],
    )
    rating: str = Field(description="up, down, or nothing.", examples=["down"])
    model_calls: int = Field(examples=[2])
    tool_calls: int = Field(examples=[1])
    models: list[str] = Field(examples=[["gpt-4o"]])
    input_tokens: int = Field(examples=[1204])
    output_tokens: int = Field(examples=[88])
    dollars: float = Field(examples=[0.0039])
    unpriced: int = Field(description="Requests to models without a known price.", examples=[0])


class TracePage(BaseModel):
    """Traces, the newest first; `next` is the `before` of the next page."""

    traces: list[TraceSummaryModel]
    next: str | None = Field(examples=[None])


class Trace(BaseModel):
    """A trace with its spans by their start."""

    trace: TraceSummaryModel
    spans: list[dict[str, Any]] = Field(
        examples=[[{"trace_id": _TRACE, "span_id": "00f067aa0ba902b7", "name": "chat gpt-4o"}]]
    )


class ShownTrace(Trace):
    """A trace, and whether the caller may open its thread."""

    is_own: bool = Field(description="Whether it is of a run of the caller.", examples=[True])


class QueryResult(BaseModel):
    """Whole traces, the newest first."""

    traces: list[Trace]


class GroupStatsModel(BaseModel):
    """Statistics over the spans of one agent, model or tool, or the traces of a user or time."""

    name: str = Field(examples=["gpt-4o"])
    count: int = Field(examples=[12])
    errors: int = Field(examples=[1])
    p50: float = Field(description="Seconds.", examples=[0.8])
    p95: float = Field(description="Seconds.", examples=[2.4])
    input_tokens: int = Field(examples=[14000])
    output_tokens: int = Field(examples=[900])
    dollars: float = Field(examples=[0.044])
    unpriced: int = Field(examples=[0])


class TraceStatsModel(BaseModel):
    """Statistics over traces, grouped by agent, model, tool, user, and minute, hour or day."""

    traces: int = Field(examples=[6])
    failed: int = Field(description="Traces with a failed span.", examples=[1])
    spans: int = Field(examples=[40])
    agents: list[GroupStatsModel]
    models: list[GroupStatsModel]
    tools: list[GroupStatsModel]
    users: list[GroupStatsModel]
    times: list[GroupStatsModel]


class TraceDeletion(BaseModel):
    """The id of the deleted trace."""

    trace_id: str = Field(examples=[_TRACE])
    deleted: Literal[True]


class ImportResult(BaseModel):
    """The numbers of stored and rejected spans."""

    spans: int = Field(examples=[4])
    rejected: int = Field(examples=[0])
    reason: str = Field(description="Why the first span was rejected.", examples=[""])


class FeedbackRequest(BaseModel):
    """A user's feedback on an answer, identified by its trace or its run."""

    rating: Literal["up", "down"]
    trace_id: str | None = Field(default=None, examples=[_TRACE])
    run_id: str | None = Field(default=None, examples=[None])
    comment: str = Field(
        default="", description="Stored if content is stored.", examples=["Just what I needed."]
    )


class FeedbackResult(BaseModel):
    """The trace on which the feedback was recorded."""

    trace_id: str = Field(examples=[_TRACE])
    rating: Literal["up", "down"]


class TraceAccessModel(BaseModel):
    """The permissions of the caller."""

    may_read: bool = Field(examples=[True])


class TraceQueryRequest(BaseModel):
    """A JMESPath, evaluated on the list of the spans of each trace, and a filter."""

    query: str = Field(
        default="", examples=["[?attributes.\"gen_ai.tool.name\"=='get_time']"], max_length=4000
    )
    limit: int = Field(default=20, examples=[20])
    trace_id: str = ""
    resource_id: str = ""
    thread_id: str = ""
    run_id: str = ""
    agent: str = ""
    user: str = ""
    model: str = ""
    since: str = Field(default="", examples=["24h"])
    until: str = ""
    has_error: bool | None = None
    min_duration: float = 0
    rating: Literal["", "up", "down"] = ""
    text: str = ""


class TraceFilterQuery(BaseModel):
    """A filter for traces; omitted fields match every trace."""

    trace_id: str = Field("", description="Only this trace.")
    resource_id: str = Field("", description="Traces with a span of this resource or thread.")
    thread_id: str = Field("", description="Traces of a thread.")
    run_id: str = Field("", description="The trace of a run.")
    agent: str = Field("", description="Traces in which this agent acted.")
    user: str = Field("", description="Traces of runs that this person asked for.")
    model: str = Field("", description="Traces with a request to this model.")
    since: str = Field("", description="A time ago such as 15m, 2h or 7d, or a time by ISO 8601.")
    until: str = Field("", description="The same, for when they began.")
    has_error: str = Field("", description="true or false: whether a span failed.")
    min_duration: str = Field("", description="Seconds, such as 2.5.")
    rating: str = Field("", description="up or down: the user's rating of the answer.")
    text: str = Field(
        "",
        description="Part of the name of a span, a model, a tool, an error or a stored answer; "
        "or a prefix of the trace id.",
    )
    limit: str = Field("", description="Maximum number of traces.")


class TraceListQuery(TraceFilterQuery):
    """A trace filter with a page position."""

    before: str = Field("", description="The `next` of the previous page.")
    format: str = Field("json", description="scenario: a file of scenarios, without pages.")


_EVENTS = describe_stream("The server-sent events span_start and span_end, each with a span.")
TraceId = Annotated[str, Path(examples=[_TRACE])]


@declare_routes("traces", "/traces")
def rest_routes(traces: APIRouter) -> None:
    """Declare the routes of traces."""

    @traces.get("", response_model=TracePage)
    async def list_traces(query: Annotated[TraceListQuery, Query()]) -> None:
        """List traces, the newest first. For operators only."""

    @traces.get("/stats", response_model=TraceStatsModel)
    async def show_stats(query: Annotated[TraceFilterQuery, Query()]) -> None:
        """Count the newest traces by agent, model, tool, user and time: errors, times and cost."""

    @traces.get("/stream", response_class=Response, responses=_EVENTS)
    async def stream(trace_id: str = "", thread_id: str = "") -> None:
        """Watch spans as they start and end. A reader that falls behind is disconnected."""

    @traces.post(
        "/query", response_model=QueryResult, openapi_extra=describe_body(TraceQueryRequest)
    )
    async def query() -> None:
        """Find whole traces by JMESPath."""

    @traces.post("/import", response_model=ImportResult, status_code=201)
    async def import_spans() -> None:
        """Store spans that another program exported as OTLP JSON: `resourceSpans`."""

    @traces.post(
        "/feedback",
        response_model=FeedbackResult,
        status_code=201,
        openapi_extra=describe_body(FeedbackRequest),
    )
    async def take_feedback() -> None:
        """Rate a run up or down, as its user or as an operator."""

    @traces.get("/access", response_model=TraceAccessModel)
    async def show_access() -> None:
        """Return whether you may read traces. For all users."""

    @traces.get("/{trace}", response_model=ShownTrace)
    async def show(
        trace: TraceId,
        format: Annotated[
            str, Query(description="json, otlp, mermaid, scenario or text.")
        ] = "json",
    ) -> None:
        """Read a trace as spans, a diagram of Mermaid, a scenario, or a waterfall in text."""

    @traces.delete("/{trace}", response_model=TraceDeletion)
    async def delete(trace: TraceId) -> None:
        """Delete a trace permanently."""
