"""What a Node runtime asks of a remote endpoint, and what it gets from this one."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, RunInput, Settings
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import AuthenticationFailed
from tests.in_one_test import in_one_test
from tests.transports.served import Slow, at_work, by_token
from tests.wire_agui.http import Answer, Browser, text_of
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

HELLO = [{"type": "TextMessage", "id": "u-1", "role": "user", "content": "Hi"}]


async def run(browser: Browser, name: str, **fields: Any) -> Answer:
    body = {"name": name, "threadId": "t", "messages": HELLO, "state": {}, **fields}
    return await browser.ask("POST", "/agents/execute", body)


def lines(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


def kinds(answer: Answer) -> list[str]:
    return [line["type"] for line in lines(answer)]


async def act(browser: Browser, name: str, **fields: Any) -> Answer:
    return await browser.ask("POST", "/actions/execute", {"name": name, **fields})


async def test_actions_are_offered_in_the_notation_of_copilotkit() -> None:
    async with at_work() as browser:
        offered = (await browser.ask("POST", "/info", {"properties": {}})).json()
    assert offered["actions"][0] == {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": [
            {"name": "a", "required": True, "type": "number"},
            {"name": "b", "required": False, "type": "number"},
        ],
    }


async def test_agents_are_offered_as_a_kind_that_node_passes_on() -> None:
    async with at_work() as browser:
        offered = (await browser.ask("POST", "/info", {})).json()
    assert offered["agents"][0] == {
        "name": "echo",
        "description": "Repeats what you say.",
        "type": "crewai",
    }


async def test_info_of_ag_ui_is_still_there() -> None:
    async with at_work() as browser:
        assert "echo" in (await browser.ask("GET", "/info")).json()["agents"]


async def test_nothing_is_offered_unless_it_is_asked_for() -> None:
    async with at_work(settings={"serve_remote": False}) as browser:
        answers = [
            await browser.ask("POST", f"/{path}", {"name": "add"})
            for path in ("info", "actions/execute", "agents/execute", "agents/state")
        ]
    assert [answer.status for answer in answers] == [405, 404, 404, 404]


async def test_an_action_is_run() -> None:
    async with at_work() as browser:
        answer = await act(browser, "add", arguments={"a": 2, "b": 3}, properties={})
    assert answer.json() == {"result": "5"}


async def test_an_action_knows_the_user_and_the_properties() -> None:
    async with at_work(authenticate=by_token, properties={"tenant": "ours"}) as browser:
        answer = await act(browser.signed_in("ann"), "who", arguments={})
    assert json.loads(answer.json()["result"]) == {"user": "ann", "tenant": "ours"}


@in_one_test(
    ("name", "arguments", "code"),
    [("explode", {}, "HANDLER_ERROR"), ("add", {"a": "many"}, "INVALID_ARGUMENTS")],
)
async def test_a_model_behind_node_reads_why_an_action_failed(
    name: str, arguments: Any, code: str
) -> None:
    async with at_work() as browser:
        answer = await act(browser, name, arguments=arguments)
    assert json.loads(answer.json()["result"])["error"]["code"] == code


async def test_an_action_that_broke_off_is_not_told_as_one_to_ask_for_again() -> None:
    """Node repeats what is answered by 429, 502, 503 or 504."""

    async def forever() -> None:
        await asyncio.Event().wait()

    options: Any = {"actions": [forever], "settings": {"run_timeout": 0.05}}
    async with at_work(**options) as browser:
        answer = await act(browser, "forever")
    assert answer.status == 500


async def test_a_run_too_many_may_be_asked_for_again() -> None:
    slow = Slow()
    async with at_work(agents={"slow": slow}, settings={"max_concurrent_runs": 1}) as browser:
        body = {"name": "slow", "threadId": "t", "messages": HELLO}
        async with browser.open("POST", "/agents/execute", body):
            answer = await act(browser, "add", arguments={"a": 1})
    assert answer.status == 429


async def test_an_unknown_action_is_not_found() -> None:
    async with at_work() as browser:
        answer = await act(browser, "nonesuch", arguments={})
    assert (answer.status, answer.json()) == (404, {"error": "There is no action 'nonesuch'."})


async def test_what_is_not_found_is_named_in_a_hundred_characters() -> None:
    async with at_work() as browser:
        answer = await act(browser, "x" * 100_000, arguments={})
    error = {"error": f"There is no action {'x' * 100!r}."}
    assert (answer.status, answer.json()) == (404, error)


@in_one_test(
    ("path", "body", "error"),
    [
        ("/actions/execute", b"{", "The request body is no JSON."),
        ("/actions/execute", b"[]", "body must be an object."),
        ("/actions/execute", {}, "body.name must be a string."),
        ("/actions/execute", {"name": "add", "arguments": [1]}, "arguments must be an object."),
        ("/agents/execute", {"name": "echo", "messages": "Hi"}, "messages must be a list."),
        ("/agents/execute", {"name": "echo", "messages": [1]}, "messages[] must be an object."),
        ("/agents/execute", {"name": "echo", "state": [1]}, "state must be an object."),
        ("/agents/execute", {"name": "echo", "threadId": "a\nb"}, None),
        ("/agents/state", {"name": "echo"}, "body.threadId must be a string."),
        ("/info", {"properties": "all"}, "properties must be an object."),
    ],
)
async def test_what_cannot_be_read_is_said(path: str, body: Any, error: str | None) -> None:
    async with at_work() as browser:
        answer = await browser.ask("POST", path, body)
    assert answer.status == 400
    assert error in (None, answer.json()["error"])


async def test_a_huge_body_is_refused() -> None:
    async with at_work(settings={"max_body_bytes": 1000}) as browser:
        answer = await act(browser, "add", arguments={"a": "1" * 2000})
    assert answer.status == 413


async def test_a_wrong_method_is_told_the_right_one() -> None:
    async with at_work() as browser:
        answer = await browser.ask("GET", "/agents/execute")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_an_agent_streams_its_text_and_its_state() -> None:
    async with at_work() as browser:
        said = lines(await run(browser, "echo"))
    state = {"threadId": "t", "agentName": "echo", "nodeName": "", "role": "assistant"}
    assert said[1:5] == [
        {"type": "TextMessageStart", "messageId": "echo-1"},
        {"type": "TextMessageContent", "messageId": "echo-1", "content": "You said "},
        {"type": "TextMessageContent", "messageId": "echo-1", "content": "Hi"},
        {"type": "TextMessageEnd", "messageId": "echo-1"},
    ]
    assert state.items() <= said[0].items()
    assert said[0]["state"] == '{"heard":"Hi"}'
    assert (said[-1]["state"], said[-1]["running"]) == ('{"done":true}', False)


async def test_an_action_that_node_has_is_left_to_node() -> None:
    actions = [{"name": "setColor", "description": "", "parameters": {"type": "object"}}]
    async with at_work() as browser:
        answer = await run(browser, "painter", actions=actions)
    assert kinds(answer)[:3] == [
        "ActionExecutionStart",
        "ActionExecutionArgs",
        "ActionExecutionEnd",
    ]
    assert "ActionExecutionResult" not in kinds(answer)


async def test_an_action_of_ours_that_node_knows_too_is_run_once_and_here() -> None:
    actions = [{"name": "add", "description": "", "parameters": {"type": "object"}}]
    async with at_work() as browser:
        said = lines(await run(browser, "adder", actions=actions))
    assert {line["type"] for line in said} & {"ActionExecutionStart", "ActionExecutionEnd"} == set()
    assert "It is 3." in [line.get("content") for line in said]


async def test_an_action_that_only_we_know_is_told_with_its_result() -> None:
    async with at_work() as browser:
        said = lines(await run(browser, "adder"))
    result = {"actionExecutionId": "call-1", "actionName": "add", "result": "3"}
    assert {"type": "ActionExecutionResult", **result} in said


async def test_an_interrupt_is_a_meta_event() -> None:
    async with at_work() as browser:
        said = lines(await run(browser, "asker"))
    meta = {"type": "MetaEvent", "name": "LangGraphInterruptEvent", "value": "Your name?"}
    assert meta in said


async def test_an_interrupt_brings_what_is_shown_meanwhile() -> None:
    async with at_work() as browser:
        said = lines(await run(browser, "choosing"))
    shown = [{"id": "shown", "role": "assistant", "content": "Red or blue?"}]
    assert {
        "type": "MetaEvent",
        "name": "CopilotKitLangGraphInterruptEvent",
        "data": {"value": "Choose", "messages": shown},
    } in said


async def test_an_interrupt_is_answered_by_the_next_request() -> None:
    answered = {"name": "LangGraphInterruptEvent", "value": "Your name?", "response": "Ann"}
    async with at_work() as browser:
        said = lines(await run(browser, "asker", metaEvents=[answered]))
    assert "Hello Ann" in [line.get("content") for line in said]


async def test_a_run_that_fails_says_why_and_breaks_off() -> None:
    async with at_work() as browser:
        body = {"name": "broken", "threadId": "t", "messages": HELLO}
        async with browser.open("POST", "/agents/execute", body) as exchange:
            text = b""
            with pytest.raises(asyncio.IncompleteReadError):
                while True:
                    text += await exchange.piece()
    last = json.loads(text.splitlines()[-1])
    assert (last["type"], last["error"]) == ("RunError", "The model is down.")


@in_one_test("state", [{}, {"topic": "dogs"}], ids=["no state", "a state"])
async def test_an_unknown_agent_is_not_found(state: dict[str, Any]) -> None:
    async with at_work() as browser:
        answer = await run(browser, "nobody", state=state)
    assert answer.status == 404


async def test_whoever_leaves_stops_the_run() -> None:
    slow = Slow()
    async with at_work(agents={"slow": slow}) as browser:
        body = {"name": "slow", "threadId": "t", "messages": HELLO}
        async with browser.open("POST", "/agents/execute", body) as exchange:
            await slow.gate.wait_for_event()
            exchange.hang_up()
            await slow.left.wait()


async def test_a_word_is_written_when_it_is_said() -> None:
    slow = Slow()
    async with at_work(agents={"slow": slow}) as browser:
        body = {"name": "slow", "threadId": "t", "messages": HELLO}
        async with browser.open("POST", "/agents/execute", body) as exchange:
            text = b""
            while b"tick " not in text:
                text += await exchange.piece()
            slow.gate.release(2)
            text += await exchange.body()
    assert b"tock" in text


async def test_many_ask_at_once() -> None:
    async with at_work() as browser:
        answers = await asyncio.gather(
            *(act(browser, "add", arguments={"a": number, "b": 0}) for number in range(20))
        )
    assert [answer.json()["result"] for answer in answers] == [str(n) for n in range(20)]


async def test_the_state_of_a_thread_is_that_of_its_agent() -> None:
    body = {"name": "echo", "threadId": "t", "properties": {"tenant": "acme"}}
    async with at_work() as browser:
        answer = await browser.ask("POST", "/agents/state", body)
    assert answer.json() == {
        "threadId": "t",
        "threadExists": True,
        "state": {"thread": "t", "tenant": "acme"},
        "messages": [],
    }


async def test_a_thread_is_unknown_to_an_agent_that_keeps_none() -> None:
    async with at_work() as browser:
        answer = await browser.ask("POST", "/agents/state", {"name": "adder", "threadId": "t"})
    assert answer.json()["threadExists"] is False


async def test_unauthenticated_clients_get_nothing() -> None:
    async with at_work(authenticate=by_token) as browser:
        answers = [
            await browser.ask("POST", path, {"name": "add"})
            for path in ("/info", "/actions/execute", "/agents/execute", "/agents/state")
        ]
    assert [answer.status for answer in answers] == [401] * 4


async def test_a_page_may_not_ask_unless_its_origin_is_named() -> None:
    page = {"origin": "https://evil.example"}
    async with at_work() as browser:
        by_default = await browser.ask("POST", "/info", {}, page)
    async with at_work(settings={"cors_origins": "https://evil.example"}) as browser:
        named = await browser.ask("POST", "/info", {}, page)
    assert (by_default.status, named.status) == (403, 200)


async def test_the_hook_before_a_request_may_refuse_an_action() -> None:
    def only_reading(run: RunInput) -> None:
        if run.operation == "actions/execute":
            raise AuthenticationFailed("You may not.", status_code=403)

    async with at_work(hooks=Hooks(before_request=only_reading)) as browser:
        answer = await act(browser, "add", arguments={"a": 1})
    assert (answer.status, answer.json()) == (403, {"error": "You may not."})


@asynccontextmanager
async def in_front() -> AsyncGenerator[Browser, None]:
    """Serve a runtime of ours whose remote endpoint is another one."""
    async with at_work() as there:
        url = f"http://127.0.0.1:{there.where}{PATH}"
        here = CopilotRuntime(remote_endpoints=[url], settings=Settings(threads="memory"))
        async with serving(here.app(path=PATH)) as port:
            yield Browser(port)


async def test_a_runtime_of_ours_runs_the_agents_of_another() -> None:
    async with in_front() as browser:
        events = (await browser.run(agent="adder")).events()
    assert text_of(events) == "It is 3."


async def test_a_runtime_of_ours_asks_a_person_for_another() -> None:
    async with in_front() as browser:
        last = (await browser.run(agent="choosing")).events()[-1]
    assert last["outcome"]["type"] == "interrupt"


async def test_a_runtime_of_ours_hears_why_an_agent_of_another_failed() -> None:
    async with in_front() as browser:
        last = (await browser.run(agent="broken")).events()[-1]
    assert (last["type"], last["message"]) == ("RUN_ERROR", "The model is down.")
