"""Agents use the actions of the server, and take over from the model and from one another."""

from typing import Any

import pytest

from copilot_runtime import (
    Action,
    Caller,
    CopilotRuntime,
    Events,
    RunInput,
    ScriptedAdapter,
    Settings,
    action,
)
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import ActionContext
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    Interrupt,
    MessagesSnapshot,
    Raw,
    RunFinished,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from tests.adapters.asking import messages_in
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, acting, browser_action, chat, client_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


@action
def weigh(fruit: str) -> str:
    """Weigh a fruit."""
    return f"{fruit}: 80 g"


class Shopkeeper:
    """An agent that plays what it was given, a list for each time it is asked."""

    description = "Knows fruit."

    def __init__(self, *plays: list[Event]) -> None:
        self.plays = list(plays)
        self.asked: list[RunInput] = []

    async def run(self, run: RunInput) -> Events:
        self.asked.append(run)
        for event in self.plays.pop(0) if self.plays else []:
            yield event


def calls(name: str, arguments: str = "{}", id: str = "c1") -> list[Event]:
    return [
        ActionExecutionStart(call_id=id, name=name),
        ActionExecutionArgs(call_id=id, delta=arguments),
        ActionExecutionEnd(call_id=id),
    ]


def says(text: str, id: str = "m1") -> list[Event]:
    return [
        TextMessageStart(message_id=id),
        TextMessageContent(message_id=id, content=text),
        TextMessageEnd(message_id=id),
    ]


def settings(**values: Any) -> Settings:
    return Settings(threads="memory", **values)


def offered_by(adapter: ScriptedAdapter) -> list[Action]:
    """Return what a model was offered first, one per name, as adapters do."""
    return [*{one.name: one for one in reversed(adapter.requests[0].actions)}.values()]


def runtime_of(*models: Any, **options: Any) -> CopilotRuntime:
    options = {"settings": settings(), "actions": [weigh], **options}
    return CopilotRuntime(ScriptedAdapter(*models) if models else None, **options)


SHOP = {"agentSession": {"agentName": "shop"}}
APPLE = calls("weigh", '{"fruit": "apple"}')


async def test_an_agent_is_asked_again_with_what_its_call_of_the_server_came_to():
    shop = Shopkeeper([AgentState(agent="shop", state={"seen": 1}), *APPLE], says("80 g"))

    async with browsing(agents={"shop": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="shop")).events()

    kinds = [
        event["type"] for event in events if "TOOL" in event["type"] or "TEXT" in event["type"]
    ]
    assert kinds == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]
    again = shop.asked[1]
    assert [m.result for m in again.messages if isinstance(m, ResultMessage)] == ["apple: 80 g"]
    assert again.agents["shop"].state == {"seen": 1}
    assert again.run_id != shop.asked[0].run_id


async def test_a_v1_client_gets_the_call_its_result_and_what_the_agent_makes_of_it():
    shop = Shopkeeper(APPLE, says("80 g"))
    async with client_of(runtime_of(agents={"shop": shop})) as client:
        answer = (await client.ask(chat(user("Heavy?"), query=PLAIN, **SHOP))).json()

    messages = answer["data"]["generateCopilotResponse"]["messages"]
    assert [message["__typename"] for message in messages] == [
        "ActionExecutionMessageOutput",
        "ResultMessageOutput",
        "TextMessageOutput",
    ]


@in_one_test("kind", ["event", "snapshot"])
async def test_a_call_that_an_agent_takes_for_one_of_the_page_is_run(kind: str):
    placeholder = "Forwarded to client"  # as an agent of Strands says of all tools of a request
    result: Event = ActionExecutionResult(call_id="c1", name="weigh", result=placeholder)
    if kind == "snapshot":
        call = ActionExecutionMessage(id="c1", name="weigh", arguments='{"fruit": "apple"}')
        message = ResultMessage(id="t", call_id="c1", name="weigh", result=placeholder)
        result = MessagesSnapshot(messages=[call, message])
    shop = Shopkeeper([*APPLE, result], says("80 g"))
    async with browsing(agents={"shop": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="shop")).events()

    assert events[-1]["type"] == "RUN_FINISHED"
    results = [m.result for m in shop.asked[1].messages if isinstance(m, ResultMessage)]
    assert results == ["apple: 80 g"]


async def test_of_more_calls_than_an_answer_may_have_none_is_run():
    weighed: list[str] = []

    @action(name="weigh")
    async def note(fruit: str) -> str:
        weighed.append(fruit)
        return "80 g"

    many = [calls("weigh", '{"fruit": "apple"}', id=f"c{at}") for at in range(257)]
    shop = Shopkeeper([event for one in many for event in one])
    async with browsing(agents={"shop": shop}, actions=[note]) as browser:
        events = (await browser.run(agent="shop")).events()

    assert (events[-1]["type"], events[-1].get("code")) == ("RUN_ERROR", "LIMIT_EXCEEDED")
    assert weighed == []


async def test_a_call_that_the_agent_has_answered_itself_is_not_run():
    own = ActionExecutionResult(call_id="c1", name="weigh", result="its own")
    shop = Shopkeeper([*APPLE, own])

    async with browsing(agents={"shop": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="shop")).events()

    assert [e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"] == ["its own"]
    assert len(shop.asked) == 1


SET_COLOR = {"name": "setColor", "description": "", "parameters": {"type": "object"}}
LIMITED = {"content": "", "response_metadata": {"finish_reason": "MAX_TOKENS"}}
EMPTY_CALL: list[Event] = [
    ActionExecutionStart(call_id="c1", name="setColor"),
    ActionExecutionEnd(call_id="c1"),
]
CUT_OFF: dict[str, list[Event]] = {
    "half of its arguments": [
        *calls("setColor", '{"color": "re'),
        Usage(model="m", stop_reason="length"),
    ],
    "no end": EMPTY_CALL[:1],
    "no arguments in an answer that reached its limit": [
        *EMPTY_CALL,
        Usage(model="m", stop_reason="length"),
    ],
    "the same in the words of LangChain": [
        *EMPTY_CALL,
        Raw(event={"event": "on_chat_model_end", "data": {"output": LIMITED}}),
    ],
}


@in_one_test("case", CUT_OFF)
async def test_a_call_of_the_page_that_an_agent_cut_off_gets_a_result(case: str):
    shop = Shopkeeper(CUT_OFF[case], says("Sorry."))
    async with browsing(agents={"shop": shop}) as browser:
        events = (await browser.run(agent="shop", tools=[SET_COLOR])).events()

    kinds = [event["type"] for event in events if event["type"].startswith("TOOL_CALL")]
    assert [kind for kind in kinds if kind != "TOOL_CALL_ARGS"] == [
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    (told,) = [m.result for m in shop.asked[1].messages if isinstance(m, ResultMessage)]
    assert "arguments are incomplete" in told
    assert events[-1]["type"] == "RUN_FINISHED"


@in_one_test("case", ["half of its arguments", "no end"])
async def test_a_v1_page_does_not_run_a_call_that_an_agent_cut_off(case: str):
    shop = Shopkeeper(CUT_OFF[case], says("Sorry."))
    async with client_of(runtime_of(agents={"shop": shop})) as client:
        answer = (await client.ask(acting(query=PLAIN, **SHOP))).json()

    call, *_ = messages_in(answer)
    assert (call["name"], call["status"]["code"]) == ("setColor", "Pending")


async def test_a_call_of_the_page_that_an_agent_answers_itself_keeps_its_result():
    own = ActionExecutionResult(call_id="c1", name="setColor", result="its own")
    shop = Shopkeeper([*calls("setColor", '{"color": "re'), own])
    async with browsing(agents={"shop": shop}) as browser:
        events = (await browser.run(agent="shop", tools=[SET_COLOR])).events()

    assert [e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"] == ["its own"]
    assert (events[-1]["type"], len(shop.asked)) == ("RUN_FINISHED", 1)


def snapshot(*more: Message) -> MessagesSnapshot:
    asked = TextMessage(id="u1", role="user", content="Heavy?")
    called = ActionExecutionMessage(id="c1", name="weigh", arguments='{"fruit": "apple"}')
    return MessagesSnapshot(messages=[asked, called, *more])


async def test_a_call_that_only_stands_in_the_repeated_conversation_is_run_too():
    shop = Shopkeeper([snapshot()], says("80 g"))

    async with browsing(agents={"shop": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="shop")).events()

    assert [e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"] == ["apple: 80 g"]
    assert [message.id for message in shop.asked[1].messages] == ["u1", "c1", "result-c1"]


@in_one_test("streamed", [APPLE, []])
async def test_a_result_that_only_stands_in_the_repeated_conversation_is_the_agents_own(
    streamed: list[Event],
):
    own = ResultMessage(id="r1", call_id="c1", name="weigh", result="its own")
    shop = Shopkeeper([*streamed, snapshot(own)])

    async with browsing(agents={"shop": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="shop")).events()

    assert [e for e in events if e["type"] == "TOOL_CALL_RESULT"] == []
    assert len(shop.asked) == 1


@in_one_test(
    "also",
    [
        calls("paint", id="c2"),
        [Interrupt(interrupt_id="i1", value="Really?")],
    ],
)
async def test_an_agent_that_waits_for_somebody_else_is_not_asked_again(also: list[Event]):
    shop = Shopkeeper([*APPLE, *also], says("Too early"))

    async with browsing(agents={"shop": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="shop", tools=[{"name": "paint"}])).events()

    assert [e["toolCallId"] for e in events if e["type"] == "TOOL_CALL_RESULT"] == ["c1"]
    assert len(shop.asked) == 1


async def test_the_result_of_a_run_is_that_of_its_last_turn():
    shop = Shopkeeper([*APPLE, RunFinished(result="first")], [RunFinished(result="last")])

    async with browsing(agents={"shop": shop}, actions=[weigh]) as browser:
        events = (await browser.run(agent="shop")).events()

    assert [e["result"] for e in events if e["type"] == "RUN_FINISHED"] == ["last"]


async def test_an_agent_that_never_stops_calling_is_stopped():
    shop = Shopkeeper(*[calls("weigh", '{"fruit": "fig"}', id=f"c{n}") for n in range(9)])

    async with browsing(
        agents={"shop": shop}, actions=[weigh], settings=settings(max_turns=3)
    ) as browser:
        events = (await browser.run(agent="shop")).events()

    assert events[-1]["type"] == "RUN_ERROR"
    assert (
        events[-1]["message"]
        == "The agent 'shop' called actions 3 times in a row, the most by `max_turns`."
    )
    assert len(shop.asked) == 3


async def test_a_model_of_a_v1_client_hands_over_to_an_agent():
    shop = Shopkeeper([AgentState(agent="shop", state={"open": True}), *says("What fruit?")])
    runtime = runtime_of(call("shop", {}), agents={"shop": shop})
    actions = [browser_action("paint"), {**browser_action("peel"), "available": "remote"}]

    async with client_of(runtime) as client:
        asked = chat(user("Fruit!"), query=PLAIN, frontend={"actions": actions})
        answer = (await client.ask(asked)).json()

    adapter = runtime.adapter
    assert isinstance(adapter, ScriptedAdapter)
    offered = {one.name: one.description for one in adapter.requests[0].actions}
    assert offered["shop"] == "Knows fruit."
    handed, started, first, text, last = answer["data"]["generateCopilotResponse"]["messages"]
    assert handed["name"] == "shop"
    assert started["result"] == "shop agent started"
    assert (first["agentName"], first["running"], last["running"]) == ("shop", True, False)
    assert text["content"] == ["What fruit?"]
    assert [one.name for one in shop.asked[0].actions] == ["weigh", "paint", "peel"]
    assert shop.asked[0].thread_id == asked["variables"]["data"]["threadId"]


async def test_whoever_was_handed_over_to_may_use_the_server_but_hand_over_no_further():
    shop = Shopkeeper(APPLE, says("80 g"))
    runtime = runtime_of(call("shop", {}), agents={"shop": shop, "other": Shopkeeper()})

    async with client_of(runtime) as client:
        answer = (await client.ask(chat(user("Fruit!"), query=PLAIN))).json()

    messages = answer["data"]["generateCopilotResponse"]["messages"]
    results = [m["result"] for m in messages if m["__typename"] == "ResultMessageOutput"]
    assert results == ["shop agent started", "apple: 80 g"]
    assert {one.name for one in shop.asked[0].actions} == {"weigh"}


async def test_an_action_knows_which_agent_acts_also_after_a_handoff():
    @action
    def tell(context: ActionContext) -> str:
        """Tell who acts."""
        return f"{context.agent} acts"

    shop, farm = Shopkeeper(calls("tell")), Shopkeeper(says("Moo", id="m2"))
    agents = {"shop": shop, "farm": farm}
    runtime = runtime_of(call("tell", {}), call("shop", {}), agents=agents, actions=[tell])

    async with client_of(runtime) as client:
        for expected in ("default acts", "shop acts"):
            answer = (await client.ask(chat(user("Fruit!"), query=PLAIN))).json()
            messages = answer["data"]["generateCopilotResponse"]["messages"]
            results = [it["result"] for it in messages if it["__typename"] == "ResultMessageOutput"]
            assert results[-1] == expected


async def test_an_agent_hands_over_to_another():
    shop, farm = Shopkeeper(calls("farm")), Shopkeeper(says("Moo", id="m2"))

    async with client_of(runtime_of(agents={"shop": shop, "farm": farm})) as client:
        answer = (await client.ask(chat(user("Milk!"), query=PLAIN, **SHOP))).json()

    messages = answer["data"]["generateCopilotResponse"]["messages"]
    assert messages[1]["result"] == "farm agent started"
    assert messages[2]["content"] == ["Moo"]
    assert [one.name for one in shop.asked[0].actions] == ["weigh", "farm"]


@in_one_test("state", [[], [AgentState(agent="shop", state={"open": True})]])
async def test_who_took_over_and_asks_a_person_gets_the_answer(state: list[Event]):
    asks = Interrupt(interrupt_id="i", value="Whole milk?")
    shop, farm = Shopkeeper([*state, *calls("farm")]), Shopkeeper([asks], says("Here", id="m2"))

    async with client_of(runtime_of(agents={"shop": shop, "farm": farm})) as client:
        first = (await client.ask(chat(user("Milk!"), query=PLAIN, **SHOP))).json()
        messages = first["data"]["generateCopilotResponse"]["messages"]
        last = [it for it in messages if it["__typename"] == "AgentStateMessageOutput"][-1]
        answer = {"name": "LangGraphInterruptEvent", "value": '"Whole milk?"', "response": "Yes"}
        session = {"agentName": last["agentName"], "threadId": last["threadId"], "nodeName": ""}
        asked = chat(user("Milk!"), query=PLAIN, agentSession=session, metaEvents=[answer])
        await client.ask(asked)

    assert (last["agentName"], last["running"]) == ("farm", True)
    assert [resume.response for resume in farm.asked[1].resume] == ["Yes"]


async def test_of_an_action_and_an_agent_of_one_name_the_action_counts():
    runtime = runtime_of(say("Hello"), agents={"weigh": Shopkeeper()})

    async with client_of(runtime) as client:
        await client.ask(chat(user("Hi"), query=PLAIN))

    adapter = runtime.adapter
    assert isinstance(adapter, ScriptedAdapter)
    assert [(one.name, one.agent) for one in offered_by(adapter)] == [("weigh", None)]


@in_one_test(("hand_over", "offered"), [("v1", []), ("always", ["shop"]), ("never", [])])
async def test_agents_take_over_from_ag_ui_chats_on_request_only(
    hand_over: str, offered: list[str]
):
    adapter = ScriptedAdapter(say("Hello"))
    chosen = settings(hand_over=hand_over, shared_state=False)

    async with browsing(adapter, agents={"shop": Shopkeeper()}, settings=chosen) as browser:
        await browser.run()

    assert [one.name for one in adapter.requests[0].actions] == offered


async def test_an_ag_ui_chat_hands_over_in_the_middle_of_a_run():
    adapter = ScriptedAdapter(call("shop", {}), say("Never said"))
    shop = Shopkeeper([AgentState(agent="shop", state={"open": True}), *says("What fruit?")])

    chosen = settings(hand_over="always")
    async with browsing(adapter, agents={"shop": shop}, settings=chosen) as browser:
        events = (await browser.run()).events()

    kinds = [event["type"] for event in events]
    assert kinds[-5:] == [
        "CUSTOM",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert len(adapter.requests) == 1


async def test_what_an_agent_asked_that_was_handed_over_to_is_answered_to_it():
    adapter = ScriptedAdapter(call("shop", {}), say("Never said"))
    asks: list[Event] = [Interrupt(interrupt_id="i/1", value="Ripe?")]
    shop = Shopkeeper(asks, says("Then 80 g"))

    chosen = settings(hand_over="always")
    async with browsing(adapter, agents={"shop": shop}, settings=chosen) as browser:
        last = (await browser.run()).events()[-1]
        [asked] = last["outcome"]["interrupts"]
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": "yes"}
        events = (await browser.run(run="r2", messages=[], resume=[answer])).events()

    assert "Then 80 g" in [event.get("delta") for event in events]
    [resume] = shop.asked[1].resume
    assert (resume.interrupt_id, resume.payload) == ("i/1", "yes")
    assert len(adapter.requests) == 1


async def test_a_v1_chat_needs_no_agents_and_goes_on_when_nobody_knows_them():
    def agents(caller: Caller) -> dict[str, Any]:
        raise RuntimeError("no database")

    async with client_of(runtime_of(say("Hello"), agents=agents)) as client:
        chatted = (await client.ask(chat(user("Hi"), query=PLAIN))).json()
        named = (await client.ask(chat(user("Hi"), query=PLAIN, **SHOP))).json()

    [text] = chatted["data"]["generateCopilotResponse"]["messages"]
    assert text["content"] == ["Hello"]
    assert named["errors"]


async def test_where_there_is_no_model_a_v1_chat_is_one_with_the_only_agent():
    shop = Shopkeeper(says("What fruit?"))

    async with client_of(runtime_of(agents={"shop": shop})) as client:
        answer = (await client.ask(chat(user("Hi"), query=PLAIN))).json()

    [text] = answer["data"]["generateCopilotResponse"]["messages"]
    assert text["content"] == ["What fruit?"]


async def test_where_there_is_no_model_and_a_choice_of_agents_one_has_to_be_named():
    agents = {"shop": Shopkeeper(), "farm": Shopkeeper()}

    async with client_of(runtime_of(agents=agents)) as client:
        answer = (await client.ask(chat(user("Hi"), query=PLAIN))).json()

    assert answer["errors"][0]["extensions"]["code"] == "MISUSE"
