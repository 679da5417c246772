"""Conversations that the server keeps: what is sent of them, and who remembers where they stand."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.openai.assistants import OpenAIAssistantsAdapter
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import Custom
from copilot_runtime.api.messages import ActionExecutionMessage, Message, ResultMessage, TextMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, NetworkError
from copilot_runtime.transports.graphql.documents import Documents
from tests.adapters.asking import SET_COLOR, answer_of, calls_in, messages_in, sent_back, text_in
from tests.adapters.contract.fakes import (
    KEY,
    CallArgs,
    CallEnd,
    CallStart,
    ErrorInStream,
    Fails,
    Heard,
    Say,
    Silence,
    Stop,
)
from tests.adapters.contract.openai_assistants_fake import RUN, THREAD, OpenAIAssistantsFake
from tests.adapters.provider import whole
from tests.in_one_test import in_one_test
from tests.wire.client import CHAT, PLAIN, WHEN, Answer, acting, chat, client_of, merge, user

pytestmark = pytest.mark.anyio

HELLO = TextMessage(id="u1", role="user", content="Red, please")
RED = (
    CallStart("call_1", "setColor"),
    CallArgs("call_1", '{"color":"red"}'),
    CallEnd("call_1"),
    Stop("tool_calls"),
)
DONE = (Say("Done."), Stop())
CALL = ActionExecutionMessage(id="call_1", name="setColor", arguments='{"color":"red"}')
RESULT = ResultMessage(id="r1", call_id="call_1", name="setColor", result="ok")
PLACE = {"openaiAssistantAPI": {"threadId": THREAD, "runId": RUN}}


@pytest.fixture
async def fake(anyio_backend: str) -> AsyncGenerator[OpenAIAssistantsFake, None]:
    async with OpenAIAssistantsFake() as fake:
        yield fake


def asking(*messages: Message, thread: str = "t1", **more: Any) -> ChatRequest:
    return ChatRequest(messages=messages, actions=[SET_COLOR], thread_id=thread, **more)


def lines(fake: OpenAIAssistantsFake) -> list[str]:
    """Return method and path of all requests."""
    return [request.line.removesuffix(" HTTP/1.1") for request in fake.provider.requests]


async def test_a_conversation_begins_with_a_thread_and_a_run(fake: OpenAIAssistantsFake):
    fake.plays(*DONE)
    system = TextMessage(id="s", role="system", content="Be brief.")

    events = await answer_of(fake.adapter(), asking(system, HELLO))

    assert text_in(events) == "Done."
    assert lines(fake) == ["POST /v1/threads/runs"]
    (asked,) = fake.asked
    assert asked.messages == [
        Heard(role="instructions", text="Be brief."),
        Heard(role="user", text="Red, please"),
    ]
    assert asked.headers["openai-beta"] == "assistants=v2"
    assert asked.headers["authorization"] == f"bearer {KEY}"
    assert [tool["type"] for tool in asked.body["tools"]] == [
        "function",
        "code_interpreter",
        "file_search",
    ]


async def test_a_client_is_told_where_its_conversation_stands(fake: OpenAIAssistantsFake):
    fake.plays(*DONE)

    events = await answer_of(fake.adapter(), asking(HELLO))

    assert events[0] == Custom(name="openaiAssistantAPI", value={"threadId": THREAD, "runId": RUN})


async def test_results_are_handed_in_to_the_run_that_waits_for_them(fake: OpenAIAssistantsFake):
    fake.plays(*RED)
    fake.plays(*DONE)
    adapter = fake.adapter()

    events = await answer_of(adapter, asking(HELLO))
    assert calls_in(events) == {"call_1": ("setColor", '{"color":"red"}')}
    answer = await answer_of(adapter, asking(HELLO, *fold_messages(events), RESULT))

    assert text_in(answer) == "Done."
    assert lines(fake)[1] == f"POST /v1/threads/{THREAD}/runs/{RUN}/submit_tool_outputs"
    assert fake.asked[1].body == {
        "stream": True,
        "tool_outputs": [{"tool_call_id": "call_1", "output": "ok"}],
    }


async def test_a_thread_is_sent_only_what_is_new(fake: OpenAIAssistantsFake):
    fake.plays(*DONE)
    adapter = fake.adapter()
    await answer_of(adapter, asking(HELLO))
    said = TextMessage(id="a1", role="assistant", content="Done.")
    more = TextMessage(id="u2", role="user", content="Thanks")

    await answer_of(adapter, asking(HELLO, said, more))

    assert lines(fake)[1] == f"POST /v1/threads/{THREAD}/runs"
    assert fake.asked[1].messages == [Heard(role="user", text="Thanks")]


async def test_threads_of_two_people_are_not_mixed_up(fake: OpenAIAssistantsFake):
    fake.plays(*DONE)
    adapter = fake.adapter()

    await answer_of(adapter, asking(HELLO, user="ada"))
    await answer_of(adapter, asking(HELLO, user="bob"))

    assert lines(fake) == ["POST /v1/threads/runs"] * 2


async def test_a_client_may_remember_the_run_that_waits(fake: OpenAIAssistantsFake):
    waits = {"tool_calls": [{"id": "call_1"}]}
    kept = {"status": "requires_action", "required_action": {"submit_tool_outputs": waits}}
    fake.plays(*DONE)
    fake.provider.scripts.insert(0, [_json(kept)])

    await answer_of(fake.adapter(), asking(HELLO, CALL, RESULT, extensions=PLACE))

    assert lines(fake) == [
        f"GET /v1/threads/{THREAD}/runs/{RUN}",
        f"POST /v1/threads/{THREAD}/runs/{RUN}/submit_tool_outputs",
    ]


async def test_a_client_may_remember_the_thread(fake: OpenAIAssistantsFake):
    fake.plays(*DONE)
    fake.provider.scripts.insert(0, [_json({"status": "completed"})])

    await answer_of(fake.adapter(), asking(HELLO, extensions=PLACE))

    assert lines(fake)[1] == f"POST /v1/threads/{THREAD}/runs"


@in_one_test("status", ["in_progress", "no such thing"])
async def test_a_run_that_cannot_go_on_is_left_behind(fake: OpenAIAssistantsFake, status: str):
    fake.plays(*DONE)
    fake.provider.scripts.insert(0, [_json({"status": status})])

    answer = await answer_of(fake.adapter(), asking(HELLO, CALL, RESULT, extensions=PLACE))

    assert text_in(answer) == "Done."
    assert lines(fake)[1] == "POST /v1/threads/runs"
    assert fake.asked[1].messages[1] == Heard(
        role="assistant", text='setColor({"color":"red"}) → ok'
    )


@in_one_test(("thread", "run"), [("..", "run_1"), ("thread_1", ".."), ("a/b", ""), ("a?b", "")])
async def test_a_client_cannot_name_another_path(fake: OpenAIAssistantsFake, thread: str, run: str):
    fake.plays(*DONE)
    place = {"openaiAssistantAPI": {"threadId": thread, "runId": run}}

    await answer_of(fake.adapter(), asking(HELLO, extensions=place))

    assert lines(fake) == ["POST /v1/threads/runs"]


async def test_who_goes_on_without_a_result_begins_a_new_thread(fake: OpenAIAssistantsFake):
    fake.plays(*RED)
    fake.plays(*DONE)
    adapter = fake.adapter()
    events = await answer_of(adapter, asking(HELLO))
    other = TextMessage(id="u2", role="user", content="Never mind")

    await answer_of(adapter, asking(HELLO, *fold_messages(events), other))

    assert lines(fake)[1] == "POST /v1/threads/runs"
    assert fake.asked[1].messages[-1] == Heard(role="user", text="Never mind")


async def test_a_run_nobody_listens_to_is_stopped_on_the_server(fake: OpenAIAssistantsFake):
    fake.plays(Say("Do"), Silence())
    fake.plays(*DONE)
    adapter = fake.adapter()
    async with aclosing(adapter.stream(asking(HELLO))) as events:
        async for event in events:
            if event.type == "text_message_content":
                break

    await fake.until_asked(2)

    assert lines(fake)[1] == f"POST /v1/threads/{THREAD}/runs/{RUN}/cancel"


async def test_a_refused_request_leaves_the_conversation_where_it_was(fake: OpenAIAssistantsFake):
    fake.plays(*DONE)
    fake.plays(Fails(400))
    fake.plays(*DONE)
    adapter = fake.adapter()
    await answer_of(adapter, asking(HELLO))
    with pytest.raises(CopilotError):
        await answer_of(adapter, asking(HELLO))

    await answer_of(adapter, asking(HELLO))

    assert lines(fake)[2] == f"POST /v1/threads/{THREAD}/runs"


async def test_a_run_that_failed_is_not_gone_on_with(fake: OpenAIAssistantsFake):
    fake.plays(Say("Do"), ErrorInStream())
    fake.plays(*DONE)
    adapter = fake.adapter()
    with pytest.raises(NetworkError, match="No, says the fake"):
        await answer_of(adapter, asking(HELLO))

    await answer_of(adapter, asking(HELLO))

    assert lines(fake) == ["POST /v1/threads/runs"] * 2


async def test_calls_that_no_piece_told_of_are_made_all_the_same(fake: OpenAIAssistantsFake):
    fake.plays(*RED)
    fake.provider.scripts = [
        [step for step in script if not (isinstance(step, bytes) and b"run.step" in step)]
        for script in fake.provider.scripts
    ]

    events = await answer_of(fake.adapter(), asking(HELLO))

    assert calls_in(events) == {"call_1": ("setColor", '{"color":"red"}')}


def test_openai_itself_is_not_asked_any_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    with pytest.raises(ConfigurationFailed, match="26 August 2026") as caught:
        OpenAIAssistantsAdapter("asst_1", api_key=KEY)

    assert "responses" in str(caught.value.hint)


def _json(body: Any) -> bytes:
    return whole(json.dumps(body).encode())


V1_PLACE = {"runId": RUN, "threadId": THREAD}
KEPT = {"openaiAssistantAPI": V1_PLACE}


@pytest.fixture
async def old_server(anyio_backend: str) -> AsyncGenerator[OpenAIAssistantsFake, None]:
    async with OpenAIAssistantsFake() as old_server:
        old_server.plays(Say("Hi"), Stop())
        yield old_server


async def ask(old_server: OpenAIAssistantsFake, body: dict[str, Any]) -> Answer:
    """Ask a server that has just begun: what it knows of the conversation, the client said."""
    runtime = CopilotRuntime(old_server.adapter(), settings=Settings(threads="memory"))
    async with client_of(runtime) as client:
        return await client.ask(body)


def told(response: Any) -> Any:
    """Return what a response says of the run, without the names of types."""
    extensions = response["extensions"]
    found = extensions and {"openaiAssistantAPI": {**extensions["openaiAssistantAPI"]}}
    if found:
        found["openaiAssistantAPI"].pop("__typename")
    return response["runId"], found


async def test_the_client_is_told_before_the_first_message(old_server: OpenAIAssistantsFake):
    first, second, *rest = (await ask(old_server, chat(user("Hello")))).payloads()

    assert told(first["data"]["generateCopilotResponse"]) == (None, None)
    (patch,) = second["incremental"]
    assert (patch["path"], told(patch["data"])) == (["generateCopilotResponse"], (RUN, KEPT))
    merged = merge([first, second, *rest])["generateCopilotResponse"]
    assert told(merged) == (RUN, KEPT)
    assert [message["content"] for message in merged["messages"]] == [["Hi"]]


async def test_in_one_body_it_is_told_too(old_server: OpenAIAssistantsFake):
    answer = (await ask(old_server, chat(user("Hello"), query=PLAIN))).json()

    assert told(answer["data"]["generateCopilotResponse"]) == (RUN, KEPT)


async def test_a_document_without_a_plan_has_it_in_its_first_payload(
    old_server: OpenAIAssistantsFake, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Documents, "plan", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]

    first = (await ask(old_server, chat(user("Hello"), query=CHAT))).payloads()[0]

    assert told(first["data"]["generateCopilotResponse"]) == (RUN, KEPT)


async def test_an_assistant_that_never_began_is_not_told_of(old_server: OpenAIAssistantsFake):
    old_server.provider.answer([whole({"error": {"message": "No."}}, status="400 No")])

    answer = (await ask(old_server, chat(user("Hello")))).payloads()

    merged = merge(answer)["generateCopilotResponse"]
    assert told(merged) == (None, None)
    assert merged["status"]["code"] == "Failed"


async def test_what_the_client_sends_back_is_where_the_conversation_goes_on(
    old_server: OpenAIAssistantsFake,
):
    done = whole({"id": RUN, "thread_id": THREAD, "status": "completed"})
    old_server.provider.answer([done], old_server.provider.scripts[0])
    said = {"role": "assistant", "content": "Hi"}
    history = [user("Hello"), {"id": "a1", "createdAt": WHEN, "textMessage": said}]

    again = await ask(old_server, chat(*history, user("And you?", "u2"), extensions=KEPT))

    assert [request.line for request in old_server.provider.requests] == [
        f"GET /v1/threads/{THREAD}/runs/{RUN} HTTP/1.1",
        f"POST /v1/threads/{THREAD}/runs HTTP/1.1",
    ]
    assert [one.text for one in old_server.asked[1].messages] == ["And you?"]
    assert told(merge(again.payloads())["generateCopilotResponse"]) == (RUN, KEPT)


async def test_a_result_goes_to_the_run_that_waits_for_it(old_server: OpenAIAssistantsFake):
    call = CallStart("call_1", "setColor"), CallArgs("call_1", '{"color":"red"}')
    old_server.plays(*call, CallEnd("call_1"), Stop("tool_calls"))
    calling = old_server.provider.scripts[1]
    old_server.provider.answer(calling)
    first = (await ask(old_server, acting(query=PLAIN))).json()
    (made,) = messages_in(first)
    kept = first["data"]["generateCopilotResponse"]["extensions"]["openaiAssistantAPI"]
    waits = {"submit_tool_outputs": {"tool_calls": [{"id": "call_1"}]}}
    run = {"status": "requires_action", "required_action": waits}
    old_server.provider.answer([], [whole(run)], calling)

    result = {
        "id": "result-call_1",
        "createdAt": made["createdAt"],
        "resultMessage": {
            "actionExecutionId": "call_1",
            "actionName": "setColor",
            "result": "done",
        },
    }
    extensions = {"openaiAssistantAPI": {"runId": kept["runId"], "threadId": kept["threadId"]}}
    history = [user("Red!"), sent_back(made), result]
    await ask(old_server, chat(*history, query=PLAIN, extensions=extensions))

    last = old_server.provider.requests[-1]
    assert last.line == f"POST /v1/threads/{THREAD}/runs/{RUN}/submit_tool_outputs HTTP/1.1"
    assert last.body["tool_outputs"] == [{"tool_call_id": "call_1", "output": "done"}]


@in_one_test("extensions", [None, {}, {"openaiAssistantAPI": None}])
async def test_a_client_that_remembers_nothing_begins_a_thread(
    old_server: OpenAIAssistantsFake, extensions: Any
):
    await ask(old_server, chat(user("Hello"), query=PLAIN, extensions=extensions))

    assert [request.line for request in old_server.provider.requests] == [
        "POST /v1/threads/runs HTTP/1.1"
    ]
