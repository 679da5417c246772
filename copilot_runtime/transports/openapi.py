"""The routes of an application for its OpenAPI description: what they take, and what they return.

The router answers them, not FastAPI: these models describe the answers, and a test holds them to
it. They are made when somebody reads `/docs` or `/openapi.json`, not at the start.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

_REFERENCE = "#/components/schemas/{model}"


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
    last_run_at: str | None = Field(
        default=None, alias="lastRunAt", examples=["2026-01-01T12:00:00.000Z"]
    )


class ThreadPage(_Model):
    """Threads, the latest first; `nextCursor` leads to the next page."""

    threads: list[Thread]
    next_cursor: str | None = Field(alias="nextCursor", examples=[None])


class ThreadChange(_Model):
    """What is to change of a thread: one of the two, or both."""

    name: str | None = Field(default=None, examples=["A trip to Rome"])
    archived: bool | None = Field(default=None, examples=[False])


class ThreadMessages(_Model):
    """The messages of a thread, as the inspector of CopilotKit reads them."""

    messages: list[dict[str, Any]] = Field(
        examples=[[{"id": "m1", "role": "user", "content": "Hello!"}]]
    )


class ThreadEvents(_Model):
    """What happened in a thread, as AG-UI events."""

    events: list[dict[str, Any]] = Field(
        examples=[[{"type": "RUN_STARTED", "threadId": "thread-1", "runId": "run-1"}]]
    )


class ThreadState(_Model):
    """The state that the agent of a thread had last; null if it never had one."""

    state: Any = Field(examples=[{"city": "Paris"}])


class ThreadDeletion(_Model):
    """The thread that is gone."""

    thread_id: str = Field(alias="threadId", examples=["thread-1"])
    deleted: Literal[True]


class ThreadArchival(_Model):
    """The thread that is archived."""

    thread_id: str = Field(alias="threadId", examples=["thread-1"])
    archived: Literal[True]


class Question(_Model):
    """What an AG-UI client sends to begin a run (`RunAgentInput`)."""

    thread_id: str = Field(alias="threadId", examples=["thread-1"])
    run_id: str = Field(alias="runId", examples=["run-1"])
    messages: list[dict[str, Any]] = Field(
        examples=[[{"id": "m1", "role": "user", "content": "Hello!"}]]
    )
    tools: list[dict[str, Any]] = Field(examples=[[]])
    context: list[dict[str, Any]] = Field(examples=[[]])
    state: Any = Field(default=None, examples=[{}])
    forwarded_props: dict[str, Any] | None = Field(
        default=None, alias="forwardedProps", examples=[{}]
    )


_LIST_PARAMETERS = {
    "agentId": "Only threads of this agent.",
    "limit": "Most threads of the page; 50 if it is not given.",
    "cursor": "The nextCursor of the page before.",
    "includeArchived": "true lists archived threads too.",
}

_OPERATIONS: tuple[tuple[str, str, str, str, type[_Model] | None, type[_Model] | None], ...] = (
    ("get", "/threads", "threads", "List threads", None, ThreadPage),
    ("patch", "/threads/{thread}", "threads", "Rename or archive", ThreadChange, Thread),
    ("delete", "/threads/{thread}", "threads", "Delete a thread", None, ThreadDeletion),
    ("post", "/threads/{thread}/archive", "threads", "Archive a thread", None, ThreadArchival),
    ("get", "/threads/{thread}/messages", "threads", "Read messages", None, ThreadMessages),
    ("get", "/threads/{thread}/events", "threads", "Read events", None, ThreadEvents),
    ("get", "/threads/{thread}/state", "threads", "Read the state", None, ThreadState),
    ("post", "/agent/{agent}/run", "chat", "Run an agent (AG-UI)", Question, None),
    ("get", "/health", "health", "Answer that the server is there", None, None),
)
"""Method, path below the URL, tag, summary, body and answer: None is an empty one, or a stream."""


def describe_routes(base: str) -> Mapping[str, Any]:
    """Return the `paths` and `components` of the routes below the URL `base`."""
    models = {model for *_, body, answer in _OPERATIONS for model in (body, answer) if model}
    _, definitions = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template=_REFERENCE,
    )
    paths: dict[str, dict[str, Any]] = {}
    for method, path, tag, summary, body, answer in _OPERATIONS:
        operation: dict[str, Any] = {"tags": [tag], "summary": summary}
        if parameters := _parameters(method, path):
            operation["parameters"] = parameters
        if body is not None:
            operation["requestBody"] = {"required": True, "content": _content(body)}
        operation["responses"] = {"200": _response(tag, answer)}
        paths.setdefault(f"{base}{path}", {})[method] = operation
    return {"paths": paths, "components": {"schemas": definitions["$defs"]}}


def _parameters(method: str, path: str) -> list[dict[str, Any]]:
    text = {"type": "string"}
    found: list[dict[str, Any]] = [
        {"name": part.strip("{}"), "in": "path", "required": True, "schema": text}
        for part in path.split("/")
        if part.startswith("{")
    ]
    if (method, path) == ("get", "/threads"):
        found += [
            {"name": name, "in": "query", "description": about, "schema": text}
            for name, about in _LIST_PARAMETERS.items()
        ]
    return found


def _response(tag: str, answer: type[_Model] | None) -> Mapping[str, Any]:
    if answer is not None:
        return {"description": (answer.__doc__ or "").strip(), "content": _content(answer)}
    if tag == "chat":
        stream = {"text/event-stream": {"schema": {"type": "string"}}}
        return {"description": "AG-UI events, as server-sent events.", "content": stream}
    return {"description": "The server is there."}


def _content(model: type[_Model]) -> Mapping[str, Any]:
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"application/json": {"schema": schema}}
