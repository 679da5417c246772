"""Graphs whose model is behind a gateway on loopback, with CopilotKit's own middleware for headers.

A person writes the address of the gateway, so that each test can look at what arrives there.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from copilotkit import CopilotKitMiddleware
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult

# langgraph has types, but says so in none of its folders
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.runtime import Runtime

from tests.extensions.frameworks.langgraph.graphs import Model


class Gateway(Model):
    """A model over HTTP. The middleware finds its client where LangChain's models have theirs."""

    async_client: Any

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = await self.async_client.post(str(messages[-1].content), json={})
        async for piece in Model(words=[str(reply.json()["word"])])._astream(messages):
            yield piece


# the server has many event loops, and a connection belongs to one
_client = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))

gateway: Any = create_agent(Gateway(async_client=_client), middleware=[CopilotKitMiddleware()])


@dataclass
class Tone:
    tone: str = "plain"


async def speak(state: MessagesState, runtime: Runtime[Tone]) -> dict[str, Any]:
    return {"messages": [AIMessage(f"In a {runtime.context.tone} tone.")]}


strict: Any = (
    StateGraph(MessagesState, context_schema=Tone)
    .add_node("speak", speak)
    .add_edge(START, "speak")
    .compile()
)
"""Knows one value of its context, and is made with no other."""
