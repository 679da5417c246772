"""What a CopilotKit v1 client keeps of an assistant's conversation, and sends back."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.transports.graphql.documents import Documents
from tests.adapters.contract.fakes import CallArgs, CallEnd, CallStart, Say, Stop
from tests.adapters.contract.openai_assistants_fake import RUN, THREAD, OpenAIAssistantsFake
from tests.adapters.doors import messages_in, sent_back
from tests.adapters.provider import whole
from tests.in_one_test import in_one_test
from tests.wire.client import Answer, client_of
from tests.wire.documents import CHAT, PLAIN, WHEN, acting, chat, user
from tests.wire.merge import merge

pytestmark = pytest.mark.anyio

PLACE = {"runId": RUN, "threadId": THREAD}
KEPT = {"openaiAssistantAPI": PLACE}


@pytest.fixture
async def fake(anyio_backend: str) -> AsyncGenerator[OpenAIAssistantsFake, None]:
    async with OpenAIAssistantsFake() as fake:
        fake.plays(Say("Hi"), Stop())
        yield fake


async def ask(fake: OpenAIAssistantsFake, body: dict[str, Any]) -> Answer:
    """Ask a server that has just begun: what it knows of the conversation, the client said."""
    runtime = CopilotRuntime(fake.adapter(), settings=Settings(threads="memory"))
    async with client_of(runtime) as client:
        return await client.ask(body)


def told(response: Any) -> Any:
    """Return what a response says of the run, without the names of types."""
    extensions = response["extensions"]
    found = extensions and {"openaiAssistantAPI": {**extensions["openaiAssistantAPI"]}}
    if found:
        found["openaiAssistantAPI"].pop("__typename")
    return response["runId"], found


async def test_the_client_is_told_before_the_first_message(fake: OpenAIAssistantsFake):
    first, second, *rest = (await ask(fake, chat(user("Hello")))).payloads()

    assert told(first["data"]["generateCopilotResponse"]) == (None, None)
    (patch,) = second["incremental"]
    assert (patch["path"], told(patch["data"])) == (["generateCopilotResponse"], (RUN, KEPT))
    merged = merge([first, second, *rest])["generateCopilotResponse"]
    assert told(merged) == (RUN, KEPT)
    assert [message["content"] for message in merged["messages"]] == [["Hi"]]


async def test_in_one_body_it_is_told_too(fake: OpenAIAssistantsFake):
    answer = (await ask(fake, chat(user("Hello"), query=PLAIN))).json()

    assert told(answer["data"]["generateCopilotResponse"]) == (RUN, KEPT)


async def test_a_document_without_a_plan_has_it_in_its_first_payload(
    fake: OpenAIAssistantsFake, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Documents, "plan", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]

    first = (await ask(fake, chat(user("Hello"), query=CHAT))).payloads()[0]

    assert told(first["data"]["generateCopilotResponse"]) == (RUN, KEPT)


async def test_an_assistant_that_never_began_is_not_told_of(fake: OpenAIAssistantsFake):
    fake.provider.answer([whole({"error": {"message": "No."}}, status="400 No")])

    answer = (await ask(fake, chat(user("Hello")))).payloads()

    merged = merge(answer)["generateCopilotResponse"]
    assert told(merged) == (None, None)
    assert merged["status"]["code"] == "Failed"


async def test_what_the_client_sends_back_is_where_the_conversation_goes_on(
    fake: OpenAIAssistantsFake,
):
    done = whole({"id": RUN, "thread_id": THREAD, "status": "completed"})
    fake.provider.answer([done], fake.provider.scripts[0])
    said = {"role": "assistant", "content": "Hi"}
    history = [user("Hello"), {"id": "a1", "createdAt": WHEN, "textMessage": said}]

    again = await ask(fake, chat(*history, user("And you?", "u2"), extensions=KEPT))

    assert [request.line for request in fake.provider.requests] == [
        f"GET /v1/threads/{THREAD}/runs/{RUN} HTTP/1.1",
        f"POST /v1/threads/{THREAD}/runs HTTP/1.1",
    ]
    assert [one.text for one in fake.asked[1].messages] == ["And you?"]
    assert told(merge(again.payloads())["generateCopilotResponse"]) == (RUN, KEPT)


async def test_a_result_goes_to_the_run_that_waits_for_it(fake: OpenAIAssistantsFake):
    call = CallStart("call_1", "setColor"), CallArgs("call_1", '{"color":"red"}')
    fake.plays(*call, CallEnd("call_1"), Stop("tool_calls"))
    calling = fake.provider.scripts[1]
    fake.provider.answer(calling)
    first = (await ask(fake, acting(query=PLAIN))).json()
    (made,) = messages_in(first)
    kept = first["data"]["generateCopilotResponse"]["extensions"]["openaiAssistantAPI"]
    waits = {"submit_tool_outputs": {"tool_calls": [{"id": "call_1"}]}}
    run = {"status": "requires_action", "required_action": waits}
    fake.provider.answer([], [whole(run)], calling)

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
    await ask(fake, chat(*history, query=PLAIN, extensions=extensions))

    last = fake.provider.requests[-1]
    assert last.line == f"POST /v1/threads/{THREAD}/runs/{RUN}/submit_tool_outputs HTTP/1.1"
    assert last.body["tool_outputs"] == [{"tool_call_id": "call_1", "output": "done"}]


@in_one_test("extensions", [None, {}, {"openaiAssistantAPI": None}])
async def test_a_client_that_remembers_nothing_begins_a_thread(
    fake: OpenAIAssistantsFake, extensions: Any
):
    await ask(fake, chat(user("Hello"), query=PLAIN, extensions=extensions))

    assert [request.line for request in fake.provider.requests] == [
        "POST /v1/threads/runs HTTP/1.1"
    ]
