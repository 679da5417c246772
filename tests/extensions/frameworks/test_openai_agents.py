"""An agent of OpenAI's Agents SDK answers, and its model is a play of the test."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunContextWrapper,
    function_tool,
    handoff,
)
from openai import OpenAIError
from openai.types.responses.response_output_item import ImageGenerationCall

from copilot_runtime import RunInput, action
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.frameworks.openai_agents import OpenAIAgentsAgent
from tests.agents.pages import (
    GIVEN,
    PAINT,
    answered,
    asked_v1,
    failure,
    followed_up,
    page_v1,
    questions,
    results,
    texts_v1,
)
from tests.extensions.frameworks.sdk_model import Output, Play, PlayingModel, call, text, thought
from tests.in_one_test import in_one_test
from tests.wire.client import user as user_v1
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


def agent_of(play: Play, **options: Any) -> Agent[Any]:
    return Agent(name="Desk", model=PlayingModel(play), **options)


def outputs(heard: list[Any]) -> list[str]:
    return [item["output"] for item in heard if item.get("type") == "function_call_output"]


def greet(heard: list[Any]) -> Sequence[Output]:
    said = [item["content"] for item in heard if item.get("role") == "user"]
    return [text(f"You said {said[-1]}")]


async def test_an_agent_of_the_sdk_is_registered_as_it_is() -> None:
    async with browsing(agents={"it": agent_of(greet)}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events) == "You said Hi"
    assert [event["type"] for event in events] == [
        "RUN_STARTED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]


async def test_a_v1_page_hears_it_too() -> None:
    async with page_v1(agent_of(greet)) as client:
        assert texts_v1(await asked_v1(client)) == ["You said Hi"]


async def test_what_a_v1_page_tells_a_model_is_not_told_to_an_agent() -> None:
    model = PlayingModel(greet)
    system = user_v1("You are a copilot.", "system-1")
    system["textMessage"]["role"] = "system"
    async with page_v1(Agent(name="Desk", model=model)) as client:
        await asked_v1(client, system, user_v1())

    assert [item["content"] for item in model.asked[0]] == ["Hi"]


@in_one_test("whole", [False, True])
async def test_thoughts_and_own_tools_are_shown(whole: bool) -> None:
    def play(heard: list[Any]) -> Sequence[Output]:
        if told := outputs(heard):
            return [text(f"It is {told[0]}")]
        return [thought("Let me weigh."), call("weigh", '{"fruit": "fig"}')]

    @function_tool
    def weigh(fruit: str) -> str:
        return f"{fruit}: 50 g"

    agent = Agent(name="Desk", model=PlayingModel(play, whole=whole), tools=[weigh])
    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == ["fig: 50 g"]
    assert text_of(events) == "It is fig: 50 g"
    arguments = [e["delta"] for e in events if e["type"] == "TOOL_CALL_ARGS"]
    assert "".join(arguments) == '{"fruit": "fig"}'
    thoughts = [e["delta"] for e in events if e["type"] == "REASONING_MESSAGE_CONTENT"]
    assert "".join(thoughts) == "Let me weigh."


async def test_an_image_that_a_hosted_tool_has_made_is_shown() -> None:
    image = ImageGenerationCall(
        id="i", type="image_generation_call", status="completed", result="aGk="
    )
    agent = Agent(name="Desk", model=PlayingModel(lambda _: [image, text("Look")], whole=True))
    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    [shown] = [event["content"] for event in events if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert shown == {"mimeType": "image/png", "data": "aGk="}
    assert text_of(events) == "Look"


def painting(heard: list[Any]) -> Sequence[Output]:
    if told := outputs(heard):
        return [text(f"The page says {told[-1]}")]
    return [call("setColor", '{"color": "red"}')]


async def test_a_tool_of_the_page_ends_the_run_and_its_result_begins_the_next() -> None:
    async with browsing(agents={"it": agent_of(painting)}) as browser:
        asked = (await browser.run(agent="it", tools=[PAINT])).events()
        messages = followed_up(asked, "painted")
        again = await browser.run(agent="it", run="r2", tools=[PAINT], messages=messages)

    assert results(asked) == []
    assert asked[-1]["type"] == "RUN_FINISHED"
    assert text_of(again.events()) == "The page says painted"


async def test_an_action_of_a_v1_page_is_its_to_run() -> None:
    async with page_v1(agent_of(painting)) as client:
        answer = await asked_v1(client)

    [called] = [message for message in answer["messages"] if "arguments" in message]
    assert (called["name"], "".join(called["arguments"])) == ("setColor", '{"color": "red"}')


async def test_an_action_of_the_server_is_run_and_the_agent_goes_on() -> None:
    @action
    def setColor(color: str) -> str:  # noqa: N802 - the model calls it so
        return f"{color} it is"

    async with browsing(agents={"it": agent_of(painting)}, actions=[setColor]) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == ["red it is"]
    assert text_of(events) == "The page says red it is"


async def test_another_agent_that_takes_over_is_a_step_and_has_the_tools_of_the_page() -> None:
    def triage(heard: list[Any]) -> Sequence[Output]:
        return [call("transfer_to_painter")]

    def paint(heard: list[Any]) -> Sequence[Output]:
        return [call("setColor", '{"color": "red"}', id="c2")]

    painter = Agent(name="Painter", model=PlayingModel(paint))
    desk = agent_of(triage, handoffs=[painter])
    painter.handoffs = [desk]  # and back
    async with browsing(agents={"it": desk}) as browser:
        events = (await browser.run(agent="it", tools=[PAINT])).events()

    steps = [event["stepName"] for event in events if event["type"] == "STEP_STARTED"]
    calls = [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"]
    assert (steps, calls) == (["Desk", "Painter"], ["setColor"])
    assert desk.handoffs == [painter]
    assert painter.tools == []


async def test_an_agent_that_a_handoff_names_has_the_tools_of_the_page() -> None:
    def triage(heard: list[Any]) -> Sequence[Output]:
        return [call("transfer_to_painter")]

    def paint(heard: list[Any]) -> Sequence[Output]:
        return [call("setColor", '{"color": "red"}', id="c2")]

    painter = Agent(name="Painter", model=PlayingModel(paint))
    async with browsing(agents={"it": agent_of(triage, handoffs=[handoff(painter)])}) as browser:
        events = (await browser.run(agent="it", tools=[PAINT])).events()

    assert [e["toolCallName"] for e in events if e["type"] == "TOOL_CALL_START"] == ["setColor"]
    assert events[-1]["type"] == "RUN_FINISHED"
    assert painter.tools == []


async def test_what_a_tool_returns_may_be_the_answer() -> None:
    @function_tool
    def weigh(fruit: str) -> str:
        return f"{fruit}: 50 g"

    def play(heard: list[Any]) -> Sequence[Output]:
        return [text("Let me weigh. "), call("weigh", '{"fruit": "fig"}')]

    agent = agent_of(play, tools=[weigh], tool_use_behavior="stop_on_first_tool")
    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events) == "Let me weigh. fig: 50 g"


def careful(*also: Output) -> Agent[Any]:
    @function_tool(needs_approval=True)
    def launch(rocket: str) -> str:
        return f"{rocket} is gone"

    def play(heard: list[Any]) -> Sequence[Output]:
        if told := outputs(heard):
            return [text(f"Then: {', '.join(told)}")]
        return [call("launch", '{"rocket": "A"}'), *also]

    return agent_of(play, tools=[launch])


@in_one_test(
    ("payload", "then"),
    [
        ({"approved": True}, "Then: A is gone"),
        (True, "Then: A is gone"),
        ({"approved": False, "reason": "Too windy"}, "Then: Too windy"),
    ],
)
async def test_a_tool_may_wait_for_a_person(payload: Any, then: str) -> None:
    async with browsing(agents={"it": careful()}) as browser:
        [question] = questions((await browser.run(agent="it")).events())
        resume = [answered(question, payload)]
        again = (await browser.run(agent="it", run="r2", resume=resume)).events()
        twice = (await browser.run(agent="it", run="r3", resume=resume)).events()

    assert question["message"] == 'Approve launch({"rocket": "A"})?'
    assert text_of(again) == then
    assert results(again) == [then.removeprefix("Then: ")]
    assert failure(twice) == GIVEN


async def test_an_answer_that_says_neither_yes_nor_no_changes_nothing() -> None:
    async with browsing(agents={"it": careful()}) as browser:
        [question] = questions((await browser.run(agent="it")).events())
        resume = [answered(question, "perhaps")]
        unclear = (await browser.run(agent="it", run="r2", resume=resume)).events()
        resume = [answered(question, True)]
        clear = (await browser.run(agent="it", run="r3", resume=resume)).events()

    assert failure(unclear) == (
        "The agent cannot go on with this answer: $: 'perhaps' is not of type 'object'"
    )
    assert text_of(clear) == "Then: A is gone"


async def test_nobody_answers_for_somebody_else() -> None:
    def who(request: Any) -> str:
        return str(request.headers["authorization"].removeprefix("Bearer "))

    async with browsing(agents={"it": careful()}, authenticate=who) as browser:
        [question] = questions((await browser.signed_in("ann").run(agent="it")).events())
        resume = [answered(question, True)]
        events = (await browser.signed_in("bob").run(agent="it", run="r2", resume=resume)).events()

    assert failure(events).startswith("The agent does not wait for this answer: there is no such")


async def test_what_the_page_does_meanwhile_is_not_lost() -> None:
    agent = careful(call("setColor", '{"color": "red"}', id="c2"))
    async with browsing(agents={"it": agent}) as browser:
        [question] = questions((await browser.run(agent="it", tools=[PAINT])).events())
        painted = {"id": "p", "role": "tool", "toolCallId": "c2", "content": "painted"}
        again = await browser.run(
            agent="it",
            run="r2",
            tools=[PAINT],
            messages=[user(), painted],
            resume=[answered(question, True)],
        )

    assert text_of(again.events()) == "Then: A is gone, painted"


async def test_a_person_answers_on_a_v1_page() -> None:
    async with page_v1(careful()) as client:
        [question] = (await asked_v1(client))["metaEvents"]
        meta = {"name": "LangGraphInterruptEvent", "value": question["value"], "response": "true"}
        answer = await asked_v1(client, metaEvents=[meta])

    assert texts_v1(answer) == ["Then: A is gone"]


async def test_what_its_tools_get_may_come_of_the_run() -> None:
    @function_tool
    def where(context: RunContextWrapper[str]) -> str:
        return f"in {context.context}"

    def play(heard: list[Any]) -> Sequence[Output]:
        return [text(told[0])] if (told := outputs(heard)) else [call("where")]

    async def thread(run: RunInput) -> str:
        return run.thread_id

    agent = OpenAIAgentsAgent(agent_of(play, tools=[where]), context=thread)
    async with browsing(agents={"it": agent}) as browser:
        answers = await asyncio.gather(
            browser.run(agent="it", thread="one", run="r1"),
            browser.run(agent="it", thread="two", run="r2"),
        )

    assert [text_of(answer.events()) for answer in answers] == ["in one", "in two"]


async def test_the_application_tells_it_its_context() -> None:
    model = PlayingModel(greet)
    agent = Agent(name="Desk", model=model)
    context = [{"description": "The weather", "value": "rain"}]
    async with browsing(agents={"it": agent}) as browser:
        await browser.run(agent="it", context=context)

    assert "The weather:\nrain" in model.asked[0][0]["content"]


async def test_a_stopped_agent_stops_its_model() -> None:
    model = PlayingModel(greet, endless=True)
    agents = {"it": Agent(name="Desk", model=model)}
    async with browsing(agents=agents) as browser, browser.running(agent="it") as answer:
        await answer.until("TEXT_MESSAGE_CONTENT")
        await browser.stop()
        await model.left.wait()


async def test_whoever_leaves_early_waits_until_the_agent_has_stopped() -> None:
    agent = OpenAIAgentsAgent(Agent(name="Desk", model=PlayingModel(greet, endless=True)))
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


async def test_a_tool_of_its_own_wins_over_one_of_the_page() -> None:
    @function_tool(name_override="setColor")
    def set_color(color: str) -> str:
        return f"own {color}"

    async with browsing(agents={"it": agent_of(painting, tools=[set_color])}) as browser:
        events = (await browser.run(agent="it", tools=[PAINT])).events()

    assert text_of(events) == "The page says own red"


def breaking(heard: list[Any]) -> Sequence[Any]:
    return [text("Half"), RuntimeError("password=hunter2")]


def overloaded(heard: list[Any]) -> Sequence[Any]:
    return [OpenAIError("key=hunter2")]


def calling_on(heard: list[Any]) -> Sequence[Output]:
    return [call("again", id=f"c{len(heard)}")]


def calling_nobody(heard: list[Any]) -> Sequence[Output]:
    return [call("nobody")]


@in_one_test(
    ("play", "message"),
    [
        (breaking, "The run failed. The server's log says why."),
        (overloaded, "The agent 'it' got no answer from its model."),
        (calling_on, "The agent 'it' asked its model 10 times without an answer."),
        (calling_nobody, "The agent 'it' failed. The server's log says why."),
    ],
)
async def test_a_failure_is_a_sentence(play: Play, message: str) -> None:
    @function_tool
    def again() -> str:
        return "once more"

    async with browsing(agents={"it": agent_of(play, tools=[again])}) as browser:
        events = (await browser.run(agent="it")).events()

    assert failure(events).startswith(message)
    assert "hunter2" not in str(events)


async def test_a_guardrail_of_the_agent_refuses_in_a_sentence() -> None:
    def strict(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info="secret rule", tripwire_triggered=True)

    agent = agent_of(greet, input_guardrails=[InputGuardrail(guardrail_function=strict)])
    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    assert failure(events) == "A guardrail of the agent 'it' said no."
    assert "secret" not in str(events)


def test_nothing_is_traced_unless_the_operator_says_so() -> None:
    quiet, traced = (OpenAIAgentsAgent(agent_of(greet), tracing=on) for on in (False, True))

    assert quiet.config.tracing_disabled
    assert not traced.config.tracing_disabled
