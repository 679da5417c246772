"""A runtime with actions and agents that others may use, and a person signed in by a token."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import HTTPConnection

from copilot_runtime import ActionContext, Caller, CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.actions.functions import action
from copilot_runtime.adapters.scripted import Gate, call, say
from copilot_runtime.api.agent import SupportsRun
from copilot_runtime.api.events import AgentState, Interrupt
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.base.errors import AuthenticationFailed, NetworkError
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, serving


@action
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@action
def explode() -> None:
    """Always fail."""
    raise ValueError("kaboom")


@action
def who(context: ActionContext) -> dict[str, Any]:
    """Say who asks."""
    return {"user": context.user, "tenant": context.properties.get("tenant")}


class Echo:
    """Repeats the last word, with a state before it and after it."""

    description = "Repeats what you say."

    async def run(self, run: RunInput) -> Events:
        last = run.messages[-1]
        assert isinstance(last, TextMessage)
        yield AgentState(agent="echo", state={"heard": last.content}, running=True)
        for event in say(["You said ", last.content], id="echo-1"):
            yield event
        yield AgentState(agent="echo", state={"done": True}, active=False, running=False)

    async def load_state(self, thread_id: str, caller: Caller) -> tuple[dict[str, Any], list[Any]]:
        return {"thread": thread_id, "tenant": caller.properties.get("tenant")}, []


class Adder:
    """Calls `add`, wherever that is run, then says what came of it."""

    async def run(self, run: RunInput) -> Events:
        last = run.messages[-1]
        said = f"It is {last.result}." if isinstance(last, ResultMessage) else None
        for event in say(said, id="sum") if said else call("add", {"a": 2}, id="call-1"):
            yield event


class Painter:
    """Calls an action that this runtime does not have."""

    async def run(self, run: RunInput) -> Events:
        for event in call("setColor", {"color": "red"}, id="call-1"):
            yield event


class Asker:
    """Waits for a person, and goes on with the answer."""

    async def run(self, run: RunInput) -> Events:
        if run.resume:
            for event in say(f"Hello {run.resume[0].response}", id="hello"):
                yield event
        else:
            yield Interrupt(interrupt_id="i", value="Your name?")


class Choosing:
    """Waits for a person, and says what to show meanwhile."""

    async def run(self, run: RunInput) -> Events:
        shown = [TextMessage(id="shown", role="assistant", content="Red or blue?")]
        yield Interrupt(interrupt_id="i", value="Choose", messages=shown)


class Broken:
    """Says a word, then fails."""

    async def run(self, run: RunInput) -> Events:
        for event in say("Well", id="well"):
            yield event
        raise NetworkError("The model is down.")


class Slow:
    """Says one word, and no other until its gate lets it. `left` tells that it was stopped."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.left = asyncio.Event()

    async def run(self, run: RunInput) -> Events:
        try:
            for event in say(["tick ", "tock"], id="slow"):
                yield event
                if event.type == "text_message_content":
                    await self.gate.wait()
        finally:
            self.left.set()


AGENTS: dict[str, SupportsRun] = {
    "echo": Echo(),
    "adder": Adder(),
    "painter": Painter(),
    "asker": Asker(),
    "choosing": Choosing(),
    "broken": Broken(),
}


def by_token(connection: HTTPConnection) -> str:
    """Return whose token it is: `Bearer ann` is Ann's."""
    _, _, user = connection.headers.get("authorization", "").partition(" ")
    if not user:
        raise AuthenticationFailed("Please sign in.")
    return user


def runtime_of(**options: Any) -> CopilotRuntime:
    """Return a runtime that everybody may use."""
    settings = {"threads": "memory", "serve_remote": True, "serve_mcp": True}
    settings |= options.pop("settings", {})
    options = {"actions": [add, explode, who], "agents": AGENTS, **options}
    return CopilotRuntime(settings=Settings(**settings), **options)


@asynccontextmanager
async def at_work(**options: Any) -> AsyncGenerator[Browser, None]:
    """Serve such a runtime, and yield something to ask it with."""
    async with serving(runtime_of(**options).app(path=PATH)) as port:
        yield Browser(port)
