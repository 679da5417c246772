"""Every adapter behind both doors: clients of CopilotKit v1, and of AG-UI."""

import json
from collections.abc import Sequence
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
from tests.wire.client import (
    CHAT,
    PLAIN,
    acting,
    browser_action,
    chat,
    client_of,
    merge,
    user,
)
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
CUT = (
    '{"error":{"code":"INCOMPLETE_ARGUMENTS","message":"The call was not run, because its '
    "arguments are incomplete: the answer probably reached its limit. Call again with shorter "
    'arguments, or make several calls."},"result":""}'
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


PIECES: Sequence[Sequence[str]] = [(), ('{"color":"re',)]
"""The arguments of a call in which the answer ends: none of them, or the first half."""
PAGE_TOOL = {"name": "setColor", "description": "", "parameters": {"type": "object"}}


def plays_cut_calls(fake: Fake, name: str, pieces: Sequence[str], *before: Step) -> None:
    """Have the fake reach its limit within a call, and answer when it is asked again."""
    needs(fake, "calls", *(["arguments_in_pieces"] if pieces else []))
    arguments = (CallArgs("call_9", piece) for piece in pieces)
    fake.plays(*before, CallStart("call_9", name), *arguments, CallEnd("call_9"), Stop("length"))
    fake.plays(Say("Sorry."), Stop())


@pytest.mark.parametrize("pieces", PIECES, ids=["no arguments", "half of them"])
async def test_a_call_that_was_cut_off_does_not_run_and_the_model_is_told(
    fake: Fake, pieces: Sequence[str]
):
    plays_cut_calls(fake, "wipe", pieces, Say("I shall."))
    wiped: list[str] = []

    @action
    def wipe(color: str = "all") -> None:
        """Wipe a color; without one, all of them."""
        wiped.append(color)

    async with browsing(fake.adapter(), actions=[wipe]) as browser:
        events = (await browser.run()).events()

    assert wiped == []
    assert [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == [CUT]
    assert (text_of(events), events[-1]["type"]) == ("I shall.Sorry.", "RUN_FINISHED")
    assert any("arguments are incomplete" in str(one.text) for one in fake.asked[1].messages)


@pytest.mark.parametrize("pieces", PIECES, ids=["no arguments", "half of them"])
async def test_a_page_gets_a_result_with_its_call_that_was_cut_off(
    fake: Fake, pieces: Sequence[str]
):
    plays_cut_calls(fake, "setColor", pieces)
    async with browsing(fake.adapter()) as browser:
        events = (await browser.run(tools=[PAGE_TOOL])).events()

    kinds = [event["type"] for event in events if event["type"].startswith("TOOL_CALL")]
    assert [kind for kind in kinds if kind != "TOOL_CALL_ARGS"] == [
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    assert (text_of(events), events[-1]["type"]) == ("Sorry.", "RUN_FINISHED")


@pytest.mark.parametrize("pieces", PIECES, ids=["no arguments", "half of them"])
@pytest.mark.parametrize("query", [CHAT, PLAIN], ids=["in pieces", "at once"])
async def test_a_v1_page_gets_a_call_that_stays_pending_which_it_does_not_run(
    fake: Fake, pieces: Sequence[str], query: str
):
    plays_cut_calls(fake, "setColor", pieces)
    async with client_of(runtime_of(fake)) as client:
        answer = await client.ask(acting(query=query))
        whole = answer.json() if query is PLAIN else {"data": merge(answer.payloads())}
        call, result = messages_in(whole)
        repaired = {**call, "arguments": ['{"color":"re"}' if pieces else "{}"]}  # as clients do
        back = [sent_back(repaired), sent_back(result)]
        await client.ask(acting(query=PLAIN, messages=[user(), *back]))

    assert (call["status"]["code"], result["result"]) == ("Pending", CUT)
    assert any("arguments are incomplete" in str(one.text) for one in fake.asked[1].messages)


async def test_a_whole_call_before_one_that_was_cut_off_runs(fake: Fake):
    needs(fake, "parallel_calls")
    plays_cut_calls(fake, "setColor", (), *ONE_CALL[:-1])
    async with browsing(fake.adapter(), actions=[paint]) as browser:
        events = (await browser.run(tools=[PAGE_TOOL])).events()

    results = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert results == ["painted red", CUT]


async def test_a_call_with_whole_arguments_runs_though_the_answer_was_cut_off(fake: Fake):
    needs(fake, "calls")
    fake.plays(*ONE_CALL[:-1], Stop("length"))
    fake.plays(Say("Done."), Stop())
    async with browsing(fake.adapter(), actions=[paint]) as browser:
        events = (await browser.run()).events()

    results = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert results == ["painted red"]


async def test_a_model_that_is_cut_off_again_and_again_ends_with_an_error(fake: Fake):
    needs(fake, "calls")
    fake.plays(CallStart("call_1", "paint"), CallEnd("call_1"), Stop("length"))
    async with browsing(fake.adapter(), actions=[paint]) as browser:
        *_, last = (await browser.run()).events()

    assert (last["type"], last["code"], len(fake.asked)) == ("RUN_ERROR", "LIMIT_EXCEEDED", 3)
