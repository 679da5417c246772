"""Every adapter behind both doors: clients of CopilotKit v1, and of AG-UI."""

import json
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.testing import Client
from tests.adapters.asking import called_in, messages_in, sent_back
from tests.adapters.contract.fakes import (
    CallArgs,
    CallEnd,
    CallStart,
    Fake,
    Say,
    Step,
    Stop,
    Think,
    needs,
)
from tests.wire.client import PLAIN, browser_action, chat, client_of, user
from tests.wire_agui.http import text_of
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

ONE_CALL: tuple[Step, ...] = (
    CallStart("call_1", "paint"),
    CallArgs("call_1", '{"color":'),
    CallArgs("call_1", '"red"}'),
    CallEnd("call_1"),
    Stop("tool_calls"),
)
TWO_CALLS: tuple[Step, ...] = (
    CallStart("call_1", "setColor"),
    CallArgs("call_1", '{"color":'),
    CallStart("call_2", "setSize"),
    CallArgs("call_2", '{"size"'),
    CallArgs("call_1", '"red"}'),
    CallEnd("call_1"),
    CallArgs("call_2", ":7}"),
    CallEnd("call_2"),
    Stop("tool_calls"),
)
BOTH = [("setColor", {"color": "red"}), ("setSize", {"size": 7})]


@action
def paint(color: str) -> str:
    """Paint the page."""
    return f"painted {color}"


def runtime_of(fake: Fake, **options: Any) -> CopilotRuntime:
    return CopilotRuntime(fake.adapter(), settings=Settings(threads="memory"), **options)


async def test_a_v1_client_gets_a_call_its_result_and_the_follow_up(fake: Fake):
    needs(fake, "calls")
    fake.plays(*ONE_CALL)
    fake.plays(Say("Done."), Stop())
    async with client_of(runtime_of(fake, actions=[paint])) as client:
        first = await client.ask(chat(user("Red!"), query=PLAIN))
        call, result = messages_in(first.json())
        assert (call["name"], result["result"]) == ("paint", "painted red")
        back = [sent_back(call), sent_back(result)]
        second = await client.ask(chat(user("Red!"), *back, query=PLAIN))

    assert ["".join(text["content"]) for text in messages_in(second.json())] == ["Done."]
    assert [one.text for one in fake.asked[1].messages if one.result_of] == ["painted red"]


async def test_an_ag_ui_client_gets_a_call_and_its_follow_up_in_one_run(fake: Fake):
    needs(fake, "calls")
    fake.plays(*ONE_CALL)
    fake.plays(Say("Done."), Stop())
    async with browsing(fake.adapter(), actions=[paint]) as browser:
        events = (await browser.run()).events()

    results = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert called_in(events) == [("paint", {"color": "red"})]
    assert (results, text_of(events)) == (["painted red"], "Done.")
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_v1_page_loses_no_signature_of_a_stored_thread(fake: Fake):
    needs(fake, "reasoning", "signatures", "calls")
    fake.plays(Think("Hm."), Think("", "c2lnLTE="), *ONE_CALL)
    fake.plays(Say("Done."), Stop())
    async with Client(runtime_of(fake, actions=[paint]), protocol="graphql") as page:
        await page.say("Red!")

    heard = fake.asked[-1].messages
    kinds = [one.thought or (one.call and "call") or one.text for one in heard]
    assert kinds == ["Red!", "c2lnLTE=", "call", "painted red"]


async def test_calls_in_turns_reach_a_v1_client_whole(fake: Fake):
    needs(fake, "calls", "interleaved_calls")
    fake.plays(*TWO_CALLS)
    actions = [browser_action("setColor"), browser_action("setSize")]
    frontend = {"actions": actions, "url": "http://localhost:3000/"}
    async with client_of(runtime_of(fake)) as client:
        answer = await client.ask(chat(user("Both!"), query=PLAIN, frontend=frontend))

    calls = messages_in(answer.json())
    assert [(call["name"], json.loads("".join(call["arguments"]))) for call in calls] == BOTH


async def test_calls_in_turns_reach_an_ag_ui_client_whole(fake: Fake):
    needs(fake, "calls", "interleaved_calls")
    fake.plays(*TWO_CALLS)
    tools = [
        {"name": name, "description": "", "parameters": {"type": "object"}}
        for name in ("setColor", "setSize")
    ]
    async with browsing(fake.adapter()) as browser:
        events = (await browser.run(tools=tools)).events()

    assert called_in(events) == BOTH
