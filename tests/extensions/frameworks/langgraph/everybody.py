"""One runtime with an agent of every kind; each repeats what it hears, and has it in its state."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ag_ui.core import EventType, StateSnapshotEvent
from agents import Agent as SdkAgent
from copilotkit import CopilotKitRemoteEndpoint
from copilotkit import protocol as spoken
from copilotkit.agent import Agent as RemoteAgent
from copilotkit.integrations.fastapi import add_fastapi_endpoint
from fastapi import FastAPI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, ToolReturn
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.ui import StateDeps

from copilot_runtime import AguiAgent, CopilotRuntime, RunInput, Settings
from copilot_runtime.api.events import AgentState
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from copilot_runtime.extensions.frameworks.pydantic_ai import PydanticAIAgent
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from tests.extensions.frameworks.langgraph import graphs
from tests.extensions.frameworks.sdk_model import Output, PlayingModel, text
from tests.wire_agui.server import browsing, serving

KINDS = (
    "langgraph-platform",
    "langgraph-inprocess",
    "agui",
    "remote-endpoint",
    "pydantic-ai",
    "openai-agents",
    "function",
)
STATELESS = ("openai-agents",)

PATIENT: Any = {"connect_timeout": 600, "idle_timeout": 600}
"""Hundreds ask at once, and whoever they ask shares this process with them."""


@asynccontextmanager
async def everybody(langgraph: str) -> AsyncGenerator[CopilotRuntime, None]:
    """Start the agents that are elsewhere; yield the runtime that knows all of them."""
    async with browsing(agents={"echo": echo}) as far, serving(remote_endpoint()) as remote:
        agents: dict[str, Any] = {
            "langgraph-platform": LangGraphAgent(langgraph, graph="chat", **PATIENT),
            "langgraph-inprocess": graphs.chat.builder.compile(checkpointer=InMemorySaver()),
            "agui": AguiAgent(f"http://127.0.0.1:{far.where}{far.base}/agent/echo/run", **PATIENT),
            "pydantic-ai": PydanticAIAgent(noting_agent(), StateDeps(Noted())),
            "openai-agents": SdkAgent(name="Desk", model=PlayingModel(play)),
            "function": echo,
        }
        yield CopilotRuntime(
            agents=agents,
            remote_endpoints=[
                RemoteEndpoint(
                    f"http://127.0.0.1:{remote}/copilotkit", discovery_timeout=600, **PATIENT
                )
            ],
            authenticate=lambda request: request.headers["authorization"],
            settings=Settings(threads="memory"),
        )


async def echo(run: RunInput) -> AsyncIterator[Any]:
    """Repeats the last message, word by word, and others may speak in between."""
    last = run.messages[-1]
    assert isinstance(last, TextMessage)
    yield AgentState(agent=run.agent or "", state={"topic": last.content})
    yield "You said: "
    for word in last.content.split():
        await asyncio.sleep(0)
        yield f"{word} "


class Crew(RemoteAgent):
    """An agent of the Python package `copilotkit`, in the words of its protocol."""

    def __init__(self) -> None:
        super().__init__(name="remote-endpoint", description="A crew.")

    def dict_repr(self) -> Any:
        return {**super().dict_repr(), "type": "crewai"}

    def execute(self, **asked: Any) -> Any:
        return self._answer(asked)

    async def get_state(self, *, thread_id: str) -> Any:
        return {"threadId": thread_id, "threadExists": False, "state": {}, "messages": []}

    async def _answer(self, asked: dict[str, Any]) -> AsyncIterator[str]:
        heard = asked["messages"][-1]["content"]
        id = f"crew: {heard}"
        yield spoken.emit_runtime_event(spoken.text_message_start(message_id=id))
        for word in ("You said: ", *(f"{word} " for word in heard.split())):
            await asyncio.sleep(0)
            said = spoken.text_message_content(message_id=id, content=word)
            yield spoken.emit_runtime_event(said)
        yield spoken.emit_runtime_event(spoken.text_message_end(message_id=id))
        yield spoken.emit_runtime_event(
            spoken.agent_state_message(
                thread_id=asked["thread_id"],
                agent_name="remote-endpoint",
                node_name="end",
                run_id=id,
                active=False,
                role="assistant",
                state=json.dumps({"topic": heard}),
                running=False,
            )
        )


def remote_endpoint() -> FastAPI:
    app = FastAPI()
    crew: list[Any] = [Crew()]
    add_fastapi_endpoint(app, CopilotKitRemoteEndpoint(agents=crew), "/copilotkit")
    return app


class Noted(BaseModel):
    topic: str = ""


def noting_agent() -> PydanticAgent[Any, Any]:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
        heard = str([part.content for part in parts if isinstance(part, UserPromptPart)][-1])
        if isinstance(parts[-1], ToolReturnPart):
            yield "You said: "
            yield heard
        else:
            yield {0: DeltaToolCall(name="note", json_args=json.dumps({"topic": heard}))}

    agent = PydanticAgent(FunctionModel(stream_function=answer), deps_type=StateDeps[Noted])

    @agent.tool
    async def note(ctx: RunContext[StateDeps[Noted]], topic: str) -> ToolReturn:
        ctx.deps.state.topic = topic
        event = StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot=ctx.deps.state)
        return ToolReturn("noted", metadata=[event])

    return agent


def play(heard: list[Any]) -> list[Output]:
    said = [item["content"] for item in heard if item.get("role") == "user"]
    return [text(f"You said: {said[-1]}")]
