"""REST routes with models for `/docs`; the endpoint itself parses requests and responds.

It does not use the models; a test compares them with its responses.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.api.user_memories import Kind, Scope
from copilot_runtime.transports.rest_route import declare_routes, describe_body, describe_stream


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Thread(_Model):
    """A conversation of one user."""

    id: str = Field(examples=["thread-1"])
    name: str | None = Field(examples=["A trip to Paris"])
    agent_id: str = Field(alias="agentId", examples=["default"])
    organization_id: str = Field(alias="organizationId", examples=[""])
    created_by_id: str = Field(alias="createdById", examples=["ada"])
    archived: bool = Field(examples=[False])
    created_at: str = Field(alias="createdAt", examples=["2026-01-01T12:00:00.000Z"])
    updated_at: str = Field(alias="updatedAt", examples=["2026-01-01T12:00:05.000Z"])
    running: bool = Field(description="Whether it is being answered.", examples=[False])
    last_run_at: str | None = Field(
        default=None, alias="lastRunAt", examples=["2026-01-01T12:00:00.000Z"]
    )


class ThreadPage(_Model):
    """A page of threads, latest first; `nextCursor` is the cursor of the next page."""

    threads: list[Thread]
    next_cursor: str | None = Field(alias="nextCursor", examples=[None])
    join_code: str | None = Field(
        default=None,
        alias="joinCode",
        description="Names the topic of the caller for POST threads/subscribe.",
        examples=["75b8-1f2e3d4c-7hQ"],
    )


class ThreadChange(_Model):
    """The changes to a thread: its name, its archived flag, or both."""

    name: str | None = Field(default=None, examples=["A trip to Rome"])
    archived: bool | None = Field(default=None, examples=[False])


class ThreadMessages(_Model):
    """The messages of a thread, in the format of CopilotKit's inspector."""

    messages: list[dict[str, Any]] = Field(
        examples=[[{"id": "m1", "role": "user", "content": "Hello!"}]]
    )


class ThreadEvents(_Model):
    """The AG-UI events of a thread."""

    events: list[dict[str, Any]] = Field(
        examples=[[{"type": "RUN_STARTED", "threadId": "thread-1", "runId": "run-1"}]]
    )


class ThreadState(_Model):
    """The latest state of the thread's agent; null if there is none."""

    state: Any = Field(examples=[{"city": "Paris"}])


class ThreadDeletion(_Model):
    """The id of the deleted thread."""

    thread_id: str = Field(alias="threadId", examples=["thread-1"])
    deleted: Literal[True]


class ThreadArchival(_Model):
    """The id of the archived thread."""

    thread_id: str = Field(alias="threadId", examples=["thread-1"])
    archived: Literal[True]


class MemoryContent(BaseModel):
    """What is to be remembered."""

    content: str = Field(examples=["Ann prefers the morning ferry."])
    kind: Kind = Field(default="topical")
    scope: Scope = Field(default="user", description="Whose it is: the user's, or everybody's.")
    source_thread_ids: list[str] = Field(default=[], alias="sourceThreadIds", examples=[[]])


class Memory(_Model):
    """A memory; `score` is its relevance to a query, `retiredId` that of the one it replaces."""

    id: str = Field(examples=["ck-1"])
    kind: Kind
    scope: Scope
    content: str = Field(examples=["Ann prefers the morning ferry."])
    source_thread_ids: list[str] = Field(alias="sourceThreadIds", examples=[[]])
    invalidated_at: None = Field(alias="invalidatedAt")
    score: float | None = None
    retired_id: str | None = Field(default=None, alias="retiredId")


class MemoryList(_Model):
    """Memories, the latest or the most relevant first."""

    memories: list[Memory]


class MemoryQuery(BaseModel):
    """What to look for among memories."""

    query: str = Field(examples=["ferry"])
    limit: int = Field(default=10, ge=1)
    scope: Scope | None = None


class Resume(BaseModel):
    """A person's answer to an interrupt."""

    interrupt_id: str = Field(alias="interruptId", examples=["interrupt-1"])
    status: Literal["resolved", "cancelled"] = Field(
        default="resolved", description="cancelled if the person did not answer."
    )
    payload: Any = Field(
        default=None,
        description="The answer, as the agent that asked expects it.",
        examples=[{"approved": True}],
    )


class RunAgentInput(BaseModel):
    """The request of an AG-UI client to start a run; unknown fields are ignored."""

    model_config = ConfigDict(extra="allow")

    thread_id: str = Field(alias="threadId", examples=["thread-1"])
    run_id: str = Field(alias="runId", examples=["run-1"])
    messages: list[dict[str, Any]] = Field(
        examples=[[{"id": "m1", "role": "user", "content": "Hello!"}]]
    )
    tools: list[dict[str, Any]] = Field(
        default=[], description="The tools of the page.", examples=[[]]
    )
    context: list[dict[str, Any]] = Field(
        default=[], description="The context that the page provides.", examples=[[]]
    )
    state: Any = Field(default=None, examples=[{}])
    forwarded_props: dict[str, Any] | None = Field(
        default=None, alias="forwardedProps", examples=[{}]
    )
    resume: list[Resume] | None = Field(
        default=None,
        description="Answers to the interrupts with which the last run of the thread ended.",
        examples=[[]],
    )
    protocol_version: str | None = Field(
        default=None,
        alias="protocolVersion",
        description="The version of AG-UI that the client speaks; without it, one before 1.0.",
        examples=["1.0"],
    )
    parent_run_id: str | None = Field(
        default=None, alias="parentRunId", description="The id of the parent run.", examples=[None]
    )
    overrides: dict[str, Any] | None = Field(
        default=None,
        description="Changes of the agent for this run: instructions, parameters, tools. For "
        "operators, and pages of this server.",
        examples=[None],
    )


class AgentInfo(_Model):
    """An agent that the caller may talk to."""

    name: str = Field(examples=["default"])
    description: str = Field(examples=["Plans trips."])
    class_name: str = Field(alias="className", examples=["DirectAgent"])
    capabilities: dict[str, Any] = Field(
        description="What the agent supports, as AG-UI's `AgentCapabilities`.",
        examples=[{"transport": {"streaming": True}}],
    )


class Info(BaseModel):
    """The agents available to the caller by name, and the features of the server."""

    version: str = Field(examples=["0.1.0"])
    agents: dict[str, AgentInfo] = Field(
        examples=[{"default": {"name": "default", "description": "", "className": "DirectAgent"}}]
    )
    transcription: bool = Field(alias="audioFileTranscriptionEnabled", examples=[False])
    mode: Literal["sse"]
    suggestions: bool = Field(examples=[True])


class StopResult(_Model):
    """Whether a run was stopped, with a `message` if none was, or the `interrupt` that ended it."""

    stopped: bool = Field(examples=[True])
    message: str | None = Field(default=None, examples=[None])
    interrupt: dict[str, Any] | None = Field(
        default=None,
        examples=[{"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"}],
    )


class StopRequest(_Model):
    """The run to stop; without a body, the active run of the thread."""

    run_id: str | None = Field(default=None, alias="runId", examples=["run-1"])


class Recording(_Model):
    """A recording as base64. It may also be the file `audio` of a form."""

    audio: str = Field(examples=["UklGRiQAAABXQVZF"])
    mime_type: str = Field(alias="mimeType", examples=["audio/webm"])
    filename: str | None = Field(default=None, examples=["recording.webm"])


class Transcript(_Model):
    """The transcript of a recording of `size` bytes."""

    text: str = Field(examples=["Book a flight to Paris"])
    size: int = Field(examples=[16])
    type: str = Field(examples=["audio/webm"])


class ThreadListQuery(BaseModel):
    """The query parameters of a thread list."""

    agent_id: str = Field("", alias="agentId", description="Only threads of this agent.")
    limit: str = Field("50", description="Maximum number of threads per page.")
    cursor: str = Field("", description="The nextCursor of the previous page.")
    archived: str = Field(
        "false", alias="includeArchived", description="true lists archived threads too."
    )


_EVENTS = describe_stream("AG-UI events, as server-sent events.")
ThreadId = Annotated[str, Path(examples=["thread-1"])]
MemoryId = Annotated[str, Path(examples=["ck-1"])]
AgentId = Annotated[str, Path(examples=["default"])]


def rest_routes(path: str, router: ASGIApp) -> Sequence[BaseRoute]:
    """Return the routes below the URL `path`; `router` handles their requests."""
    declared = (_declare_threads, _declare_memories, _declare_agents)
    return [route for declare in declared for route in declare(path, router)]


@declare_routes("threads")
def _declare_threads(threads: APIRouter) -> None:
    @threads.get("/threads", response_model=ThreadPage)
    async def list_threads(query: Annotated[ThreadListQuery, Query()]) -> None:
        """List threads, latest first."""

    @threads.patch(
        "/threads/{thread}", response_model=Thread, openapi_extra=describe_body(ThreadChange)
    )
    async def change_thread(thread: ThreadId) -> None:
        """Rename, archive or unarchive a thread."""

    @threads.delete("/threads/{thread}", response_model=ThreadDeletion)
    async def delete_thread(thread: ThreadId) -> None:
        """Delete a thread permanently; its active run is stopped."""

    @threads.post("/threads/{thread}/archive", response_model=ThreadArchival)
    async def archive_thread(thread: ThreadId) -> None:
        """Archive a thread."""

    @threads.get("/threads/{thread}/messages", response_model=ThreadMessages)
    async def read_messages(thread: ThreadId) -> None:
        """Read the messages of a thread."""

    @threads.get("/threads/{thread}/events", response_model=ThreadEvents)
    async def read_events(thread: ThreadId) -> None:
        """Read the AG-UI events of a thread."""

    @threads.get("/threads/{thread}/state", response_model=ThreadState)
    async def read_state(thread: ThreadId) -> None:
        """Read the latest state of the thread's agent."""


@declare_routes("memories")
def _declare_memories(memories: APIRouter) -> None:
    written = describe_body(MemoryContent)

    @memories.get("/memories", response_model=MemoryList)
    async def list_memories() -> None:
        """List what is remembered for the caller, latest first."""

    @memories.post("/memories", status_code=201, response_model=Memory, openapi_extra=written)
    async def add_memory() -> None:
        """Remember something."""

    @memories.post(
        "/memories/recall", response_model=MemoryList, openapi_extra=describe_body(MemoryQuery)
    )
    async def recall_memories() -> None:
        """Find the memories that are relevant to a query."""

    @memories.patch("/memories/{memory}", response_model=Memory, openapi_extra=written)
    async def replace_memory(memory: MemoryId) -> None:
        """Replace a memory by another one, which gets an id of its own."""

    @memories.delete("/memories/{memory}", status_code=204)
    async def delete_memory(memory: MemoryId) -> None:
        """Delete a memory permanently."""


@declare_routes("agents")
def _declare_agents(agents: APIRouter) -> None:
    @agents.get("/info", response_model=Info)
    async def info() -> None:
        """List the agents available to the caller, and the features of the server."""

    @agents.post("/transcribe", response_model=Transcript, openapi_extra=describe_body(Recording))
    async def transcribe() -> None:
        """Transcribe a recording."""

    @agents.post(
        "/agent/{agent}/stop/{thread}",
        response_model=StopResult,
        openapi_extra=describe_body(StopRequest, required=False),
    )
    async def stop(agent: AgentId, thread: ThreadId) -> None:
        """Stop the run of a thread."""

    stream: Any = {
        "response_class": Response,
        "responses": _EVENTS,
        "openapi_extra": describe_body(RunAgentInput),
    }

    @agents.post("/agent/{agent}/run", **stream)
    async def run(agent: AgentId) -> None:
        """Start a run, which continues if its client disconnects."""

    @agents.post("/agent/{agent}/connect", **stream)
    async def connect(agent: AgentId) -> None:
        """Replay a thread from its beginning, and stream its active run.

        The body is that of a run, in which `messages` may be empty: only `threadId` is used.
        """

    @agents.post("/agent/{agent}/suggest", **stream)
    async def suggest(agent: AgentId) -> None:
        """Request suggestions, which are not stored."""

    @agents.get("/threads/changes", tags=["threads"], response_class=Response, responses=_EVENTS)
    async def follow_threads(query: Annotated[ThreadListQuery, Query()]) -> None:
        """List threads and stream changes, as the events `threads`, then `thread` and `run`."""

    @agents.post("/agent/{agent}/ask", **stream)
    async def ask(agent: AgentId) -> None:
        """Run an agent for another runtime; the run stops when the connection closes."""
