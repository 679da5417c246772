"""A real A2A agent of the package `a2a-sdk` on loopback, whose words a test writes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Task,
)
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Event, TextMessageContent
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.a2a.client import A2aAgent
from tests.wire_agui.server import serving

Script = Callable[["Remote", TaskUpdater, RequestContext], Awaitable[None]]


@dataclass(slots=True)
class Remote:
    """The agent, and what it was asked. `script` is what it does with a task."""

    script: Script
    answers_with_message: str = ""
    """Answers with this message at once, without a task."""
    url: str = ""
    asked: list[Message] = field(default_factory=list[Message])
    headers: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    requests: list[str] = field(default_factory=list[str])
    canceled: list[str] = field(default_factory=list[str])
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    was_canceled: asyncio.Event = field(default_factory=asyncio.Event)


class _Executor(AgentExecutor):
    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        self._remote.asked.append(context.message)
        if self._remote.answers_with_message:
            from a2a.helpers import new_text_message

            await event_queue.enqueue_event(new_text_message(self._remote.answers_with_message))
            return
        task: Task = context.current_task or new_task_from_user_message(context.message)
        if context.current_task is None:
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await self._remote.script(self._remote, updater, context)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None and context.context_id is not None
        self._remote.canceled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
        self._remote.was_canceled.set()


@asynccontextmanager
async def serve_remote(
    script: Script | None = None,
    *,
    streaming: bool = True,
    binding: str = "JSONRPC",
    version: str = "1.0",
    card_url: str = "",
    extensions: Sequence[str] = (),
    **options: Any,
) -> AsyncGenerator[Remote, None]:
    """Serve an agent with its card; `card_url` is where the card says that it is."""
    remote = Remote(script or say_hello, **options)
    card = AgentCard(
        name="Remote",
        description="An agent of a test.",
        version="1",
        capabilities=AgentCapabilities(
            streaming=streaming, extensions=[AgentExtension(uri=uri) for uri in extensions]
        ),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, protocol_version=version, url=card_url or "-")
        ],
    )
    handler = DefaultRequestHandler(_Executor(remote), InMemoryTaskStore(), card)
    app = Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True),
        ]
    )

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            pairs = [(k.decode(), v.decode()) for k, v in scope["headers"]]
            remote.headers.append(dict(pairs))
            remote.requests.append(scope["path"])
        await app(scope, receive, send)

    async with serving(note) as port:
        remote.url = f"http://127.0.0.1:{port}"
        if not card_url:
            path = "/rpc" if binding == "JSONRPC" else "/rest"
            card.supported_interfaces[0].url = f"{remote.url}{path}"
        yield remote


async def say_hello(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
    """Answer as an artifact in three pieces."""
    await task.start_work()
    for number, word in enumerate(["Hel", "lo ", "there"]):
        await task.add_artifact(
            [Part(text=word)], "answer", append=number > 0, last_chunk=number == 2
        )
    await task.complete()


def data_part(value: Any, media_type: str = "", mime_type: str = "") -> Part:
    """Return a part with data; `mime_type` is that of its metadata, as before 1.0."""
    part = Part(media_type=media_type)
    ParseDict(value, part.data)
    if mime_type:
        part.metadata["mimeType"] = mime_type
    return part


def asked(content: str = "Hi", **more: Any) -> RunInput:
    fields: dict[str, Any] = {"messages": [TextMessage(id="u-1", role="user", content=content)]}
    fields = {"thread_id": "thread-1", "run_id": "r", "agent": "remote"} | fields | more
    return RunInput(**fields)


async def hear(agent: A2aAgent, run: RunInput | None = None) -> list[Event]:
    """Return everything that came of a run that ended well."""
    async with aclosing(agent.run(run or asked())) as events:
        return [event async for event in events]


async def hear_failure(
    agent: A2aAgent, run: RunInput | None = None
) -> tuple[list[Event], CopilotError]:
    """Return what came of a run before it failed, and how it failed."""
    heard: list[Event] = []
    try:
        async with aclosing(agent.run(run or asked())) as events:
            async for event in events:
                heard.append(event)
    except CopilotError as error:
        return heard, error
    raise AssertionError(f"the run ended well: {heard}")


def text_of(events: Sequence[Event]) -> str:
    """Return all texts, one after the other."""
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))
