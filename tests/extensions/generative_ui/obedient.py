"""Agents of every kind whose model does what a person writes: `call NAME {arguments}`."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents import Agent as SdkAgent
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from copilot_runtime import ChatRequest, RunInput
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Adapter
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.assistants.folder import AssistantFolder
from tests.agents.remote import frame, text
from tests.extensions.frameworks.sdk_model import PlayingModel
from tests.extensions.frameworks.sdk_model import call as sdk_call
from tests.extensions.frameworks.sdk_model import text as sdk_text
from tests.wire_agui.server import serving

Answer = tuple[str, str] | str
"""The name of a tool and its arguments, or a text."""


def decide(said: str, offered: Collection[str], results: Sequence[str]) -> Answer:
    """Return what the model does: call what it is told to, or say which results it has read."""
    if not results and said.startswith("call "):
        _, name, arguments = said.split(" ", 2)
        return (name, arguments) if name in offered else f"There is no {name}."
    return f"I read: {' | '.join(results)}"


def _read_messages(messages: Sequence[Message]) -> tuple[str, list[str]]:
    said = [one.content for one in messages if isinstance(one, TextMessage) and one.role == "user"]
    return said[-1], [one.result for one in messages if isinstance(one, ResultMessage)]


class ObedientAdapter:
    """A model of ours."""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Any, None]:
        said, results = _read_messages(request.messages)
        answer = decide(said, [action.name for action in request.actions], results)
        for event in _play(answer, f"{request.run_id}-{len(request.messages)}"):
            yield event


def _play(answer: Answer, id: str) -> Sequence[Any]:
    if isinstance(answer, str):
        return say(answer, id=f"m-{id}")
    return call(answer[0], json.loads(answer[1]), id=f"c-{id}")


async def obedient_function(run: RunInput) -> AsyncGenerator[Any, None]:
    said, results = _read_messages(run.messages)
    answer = decide(said, [action.name for action in run.actions], results)
    for event in _play(answer, f"{run.run_id}-{len(run.messages)}"):
        yield event


async def _play_pydantic(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    said = [str(part.content) for part in parts if isinstance(part, UserPromptPart)][-1]
    results = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
    answer = decide(said, [tool.name for tool in info.function_tools], results)
    if isinstance(answer, str):
        yield answer
    else:
        id = f"c-{len(messages)}"
        yield {0: DeltaToolCall(name=answer[0], json_args=answer[1], tool_call_id=id)}


class _SdkModel(PlayingModel):
    def __init__(self) -> None:
        self.offered: list[str] = []
        super().__init__(self._decide)

    def stream_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        self.offered = [tool.name for tool in args[1]]
        return super().stream_response(system_instructions, input, *args, **kwargs)

    def _decide(self, heard: list[Any]) -> Sequence[Any]:
        said = [item["content"] for item in heard if item.get("role") == "user"][-1]
        results = [it["output"] for it in heard if it.get("type") == "function_call_output"]
        answer = decide(said, self.offered, results)
        if isinstance(answer, str):
            return [sdk_text(answer)]
        return [sdk_call(*answer, id=f"c-{len(heard)}")]


async def _reply(request: Request) -> Response:
    """Answer as an AG-UI agent of somebody else."""
    body = await request.json()
    messages = body["messages"]
    said = [one["content"] for one in messages if one["role"] == "user"][-1]
    results = [one["content"] for one in messages if one["role"] == "tool"]
    answer = decide(said, [tool["name"] for tool in body["tools"]], results)
    ids = {"threadId": body["threadId"], "runId": body["runId"]}
    id = f"{body['runId']}-{len(messages)}"
    events = [{"type": "RUN_STARTED", **ids}]
    if isinstance(answer, str):
        events += text(f"m-{id}", answer)
    else:
        name, arguments = answer
        events += [
            {"type": "TOOL_CALL_START", "toolCallId": f"c-{id}", "toolCallName": name},
            {"type": "TOOL_CALL_ARGS", "toolCallId": f"c-{id}", "delta": arguments},
            {"type": "TOOL_CALL_END", "toolCallId": f"c-{id}"},
        ]
    events.append({"type": "RUN_FINISHED", **ids})
    frames = [frame(event) for event in events]
    return StreamingResponse(iter(frames), media_type="text/event-stream")


@asynccontextmanager
async def _remote() -> AsyncGenerator[Any]:
    async with serving(Starlette(routes=[Route("/", _reply, methods=["POST"])])) as port:
        yield AguiAgent(f"http://127.0.0.1:{port}/")


@asynccontextmanager
async def _local(agent: Any) -> AsyncGenerator[Any]:
    yield agent


def _make_pydantic() -> Any:
    return PydanticAgent(FunctionModel(stream_function=_play_pydantic))


@asynccontextmanager
async def _assistant(tools: str = "show_*") -> AsyncGenerator[Any]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "it.agent.md").write_text(f"---\ntools: [{tools}]\n---\nObey.\n")
        assistants = AssistantFolder(folder)
        assistants.load()
        yield AssistantAgent("it", assistants, complete(Adapter, ObedientAdapter()))


KINDS: dict[str, Callable[[], Any]] = {
    "a model": lambda: _local(DirectAgent(complete(Adapter, ObedientAdapter()))),
    "an assistant": _assistant,
    "a function": lambda: _local(obedient_function),
    "AG-UI": _remote,
    "pydantic-ai": lambda: _local(_make_pydantic()),
    "Agents SDK": lambda: _local(SdkAgent(name="Desk", model=_SdkModel())),
}
"""Makes an agent of each kind; those of LangGraph are in the tests of LangGraph."""
