"""An agent of pydantic-ai answers, and its model is a function of the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from ag_ui.core import EventType, StateSnapshotEvent
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, ToolReturn, UsageLimits
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingPart,
    DeltaToolCall,
    FunctionModel,
)
from pydantic_ai.ui import StateDeps

from copilot_runtime import RunInput, action
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.frameworks.pydantic_ai import PydanticAIAgent
from tests.agents.pages import (
    PAINT,
    asked_v1,
    failure,
    followed_up,
    page_v1,
    questions,
    results,
    texts_v1,
)
from tests.in_one_test import in_one_test
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

Pieces = AsyncIterator[str | dict[int, Any]]


def agent_of(play: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(FunctionModel(stream_function=play), **options)


def called(name: str, arguments: str, id: str = "c1") -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall(name=name, json_args=arguments, tool_call_id=id)}


def returned(messages: list[ModelMessage]) -> list[Any]:
    """Return what tools returned to the model."""
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


def last_question(messages: list[ModelMessage]) -> str:
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    return str([part.content for part in parts if isinstance(part, UserPromptPart)][-1])


async def greet(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
    yield "You said "
    yield last_question(messages)


async def test_a_pydantic_ai_agent_is_registered_as_it_is() -> None:
    async with browsing(agents={"it": agent_of(greet)}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events) == "You said Hi"
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_v1_page_hears_it_too() -> None:
    async with page_v1(agent_of(greet)) as client:
        assert texts_v1(await asked_v1(client)) == ["You said Hi"]


async def test_thoughts_and_own_tools_are_shown() -> None:
    async def play(messages: list[ModelMessage], info: AgentInfo) -> Any:
        if told := returned(messages):
            yield f"It is {told[0]}"
        else:
            yield {0: DeltaThinkingPart(content="Let me weigh.")}
            yield {1: DeltaToolCall(name="weigh", json_args='{"fruit": "fig"}', tool_call_id="c")}

    agent = agent_of(play)

    @agent.tool_plain
    def weigh(fruit: str) -> str:
        return f"{fruit}: 50 g"

    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == ["fig: 50 g"]
    assert text_of(events) == "It is fig: 50 g"
    thought = [e["delta"] for e in events if e["type"] == "REASONING_MESSAGE_CONTENT"]
    assert thought == ["Let me weigh."]


async def painting(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
    if told := returned(messages):
        yield f"The page says {told[-1]}"
    else:
        yield called("setColor", '{"color": "red"}')


async def test_a_tool_of_the_page_ends_the_run_and_its_result_begins_the_next() -> None:
    async with browsing(agents={"it": agent_of(painting)}) as browser:
        asked = (await browser.run(agent="it", tools=[PAINT])).events()
        messages = followed_up(asked, "painted")
        again = await browser.run(agent="it", run="r2", tools=[PAINT], messages=messages)

    assert results(asked) == []
    assert questions(asked) == []
    assert text_of(again.events()) == "The page says painted"


async def test_an_action_of_a_v1_page_is_its_to_run() -> None:
    async with page_v1(agent_of(painting)) as client:
        answer = await asked_v1(client)

    [call] = [message for message in answer["messages"] if "arguments" in message]
    assert (call["name"], "".join(call["arguments"])) == ("setColor", '{"color": "red"}')


async def test_an_action_of_the_server_is_run_and_the_agent_goes_on() -> None:
    @action
    def setColor(color: str) -> str:  # noqa: N802 - the model calls it so
        return f"{color} it is"

    async with browsing(agents={"it": agent_of(painting)}, actions=[setColor]) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == ["red it is"]
    assert text_of(events) == "The page says red it is"


class Basket(BaseModel):
    fruit: list[str] = []


def shopper() -> Agent[Any, Any]:
    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        if returned(messages):
            yield "Done"
        else:
            yield called("put", json.dumps({"fruit": last_question(messages)}))

    agent = agent_of(play, deps_type=StateDeps[Basket])

    @agent.tool
    async def put(ctx: RunContext[StateDeps[Basket]], fruit: str) -> ToolReturn:
        ctx.deps.state.fruit.append(fruit)
        event = StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot=ctx.deps.state)
        return ToolReturn("put", metadata=[event])

    return agent


async def test_each_run_has_the_state_of_its_page() -> None:
    deps = StateDeps(Basket())
    agent = PydanticAIAgent(shopper(), deps)
    async with browsing(agents={"it": agent}) as browser:
        answers = await asyncio.gather(
            browser.run(agent="it", thread="one", run="r1", state={"fruit": ["fig"]}),
            browser.run(agent="it", thread="two", run="r2", state={"fruit": []}),
        )

    states = [
        [event["snapshot"] for event in answer.events() if event["type"] == "STATE_SNAPSHOT"][-1]
        for answer in answers
    ]
    assert states == [{"fruit": ["fig", "Hi"]}, {"fruit": ["Hi"]}]
    assert deps.state == Basket()


async def test_a_state_that_does_not_fit_is_refused_in_a_sentence() -> None:
    agent = PydanticAIAgent(shopper(), StateDeps(Basket()))
    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it", state={"fruit": "all"})).events()

    assert failure(events).startswith("The state of the page is none that the agent 'it' knows")


async def test_attachments_of_every_age_reach_the_model() -> None:
    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
        [content] = [part.content for part in parts if isinstance(part, UserPromptPart)]
        yield " ".join(one if isinstance(one, str) else type(one).__name__ for one in content)

    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        {"type": "binary", "mimeType": "application/pdf", "url": "https://shop.example/a.pdf"},
        {"type": "binary", "mimeType": "text/plain", "id": "file-1"},
    ]
    async with browsing(agents={"it": agent_of(play)}) as browser:
        events = (await browser.run(agent="it", messages=[user(content)])).events()

    expected = "Look: BinaryContent DocumentUrl (An attached file: file-1)"
    assert text_of(events) == expected


async def test_what_an_agent_depends_on_may_come_of_the_run() -> None:
    @dataclass
    class Desk:
        thread: str

    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        yield info.instructions or ""

    agent = agent_of(play, deps_type=Desk)

    @agent.instructions
    def place(ctx: RunContext[Desk]) -> str:
        return f"You work at {ctx.deps.thread}."

    def desk(run: RunInput) -> Desk:
        return Desk(run.thread_id)

    context = [{"description": "The weather", "value": "rain"}]
    async with browsing(agents={"it": PydanticAIAgent(agent, desk)}) as browser:
        said = text_of((await browser.run(agent="it", context=context)).events())

    assert "You work at t." in said
    assert "The weather:\nrain" in said


async def test_a_function_may_wait_for_what_an_agent_depends_on() -> None:
    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        yield info.instructions or ""

    agent = agent_of(play, deps_type=str)

    @agent.instructions
    def place(ctx: RunContext[str]) -> str:
        return f"You work at {ctx.deps}."

    async def desk(run: RunInput) -> str:
        return run.thread_id

    async with browsing(agents={"it": PydanticAIAgent(agent, desk)}) as browser:
        events = (await browser.run(agent="it", state={"fruit": "fig"})).events()

    assert text_of(events) == "You work at t."


async def test_a_tool_of_its_own_wins_over_one_of_the_page() -> None:
    agent = agent_of(painting)

    @agent.tool_plain
    def setColor(color: str) -> str:  # noqa: N802 - the page calls it so
        return f"own {color}"

    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it", tools=[PAINT])).events()

    assert text_of(events) == "The page says own red"


async def test_an_agent_that_is_not_set_up_says_so() -> None:
    async with browsing(agents={"it": Agent()}) as browser:
        said = failure((await browser.run(agent="it")).events())

    assert said.startswith("The agent 'it' is not set up to answer this.")


async def test_what_an_agent_may_use_in_a_run_is_limited() -> None:
    agent = PydanticAIAgent(agent_of(greet), usage_limits=UsageLimits(input_tokens_limit=1))
    async with browsing(agents={"it": agent}) as browser:
        said = failure((await browser.run(agent="it")).events())

    assert said == "The agent 'it' has used up what it may use in one run."


async def test_a_stopped_agent_stops_its_model() -> None:
    stopped = asyncio.Event()

    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        try:
            yield "Once upon"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    agents = {"it": agent_of(play)}
    async with browsing(agents=agents) as browser, browser.running(agent="it") as answer:
        await answer.until("TEXT_MESSAGE_CONTENT")
        await browser.stop()
        await stopped.wait()


async def test_whoever_leaves_early_waits_until_the_agent_has_stopped() -> None:
    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        yield "Once upon"
        await asyncio.Event().wait()

    agent = PydanticAIAgent(agent_of(play))
    said = [TextMessage(id="u", role="user", content="Hi")]
    before = asyncio.all_tasks()
    events = agent.run(RunInput(thread_id="t", run_id="r", agent="it", messages=said))
    async for event in events:
        if event.type == "text_message_content":
            break
    during = asyncio.all_tasks()
    await events.aclose()

    assert during > before
    assert asyncio.all_tasks() == before


async def breaking(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
    yield "Half"
    raise RuntimeError("password=hunter2")


async def overloaded(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
    raise ModelHTTPError(503, "model-1", body="key=hunter2")
    yield ""


async def calling_on(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
    yield called("again", "{}", id=f"c{len(messages)}")


async def test_an_agent_that_validates_its_output_answers() -> None:
    agent = agent_of(greet)

    @agent.output_validator
    def checked(output: str) -> str:
        return output

    async with browsing(agents={"it": agent}) as browser:
        assert text_of((await browser.run(agent="it")).events()) == "You said Hi"


@in_one_test(
    ("play", "message"),
    [
        (breaking, "The run failed. The server's log says why."),
        (overloaded, "The agent 'it' got no answer from its model."),
        (calling_on, "The agent 'it' has used up what it may use in one run."),
    ],
)
async def test_a_failure_is_a_sentence(play: Any, message: str) -> None:
    agent = agent_of(play)

    @agent.tool_plain
    def again() -> str:
        return "once more"

    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    assert failure(events) == message
    assert "hunter2" not in str(events)
