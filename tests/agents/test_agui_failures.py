"""How a run with a remote agent fails, and what becomes of headers and connections."""

import asyncio
import json
import socket
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionStart,
    MessagesSnapshot,
    TextMessageContent,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    IncompleteStream,
    NetworkError,
    RunStalled,
)
from tests.adapters.provider import CLOSE, END, HANG, HEAD, RESET, Provider, Step, piece, whole
from tests.agents.remote import (
    STARTED,
    Said,
    agent_of,
    asked,
    cut_short,
    frame,
    heard,
    heard_until_error,
    text,
    whole_run,
)
from tests.agents.test_agui import said as all_of
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

PARTIAL = [STARTED, *text("m", "cut of")[:-1]]
PARTIAL_EVENTS = [
    TextMessageStart(message_id="m"),
    TextMessageContent(message_id="m", content="cut of"),
]


def told(error: Exception) -> tuple[str, str]:
    """Return what a client is told of an error."""
    assert isinstance(error, CopilotError), repr(error)
    return error.report().code, error.report().message


async def test_an_agent_may_say_itself_that_it_failed(provider: Provider, agent: AguiAgent):
    failure = {"type": "RUN_ERROR", "message": "agent says no", "code": "E_AGENT"}
    usage = [{"model": "m", "inputTokens": 1}]
    provider.answer(cut_short(*PARTIAL, {**failure, "usage": usage}))

    events, error = await heard_until_error(agent)

    assert events == [*PARTIAL_EVENTS, Usage(model="m", input_tokens=1)]
    assert told(error) == ("E_AGENT", "agent says no")


@in_one_test(
    ("failure", "said"),
    [
        ({"message": "no", "code": None}, ("UNKNOWN", "no")),
        ({"message": {"why": 1}, "code": 7}, ("7", '{"why":1}')),
        ({}, ("UNKNOWN", "The agent failed.")),
    ],
)
async def test_an_agent_may_fail_in_odd_words(
    provider: Provider, agent: AguiAgent, failure: dict[str, Any], said: tuple[str, str]
):
    provider.answer(cut_short({"type": "RUN_ERROR", **failure}))
    events, error = await heard_until_error(agent)
    assert (events, told(error)) == ([], said)


async def test_a_run_without_an_end_is_incomplete(provider: Provider, agent: AguiAgent):
    provider.answer(cut_short(*PARTIAL))
    events, error = await heard_until_error(agent)
    assert events == PARTIAL_EVENTS
    assert told(error) == ("INCOMPLETE_STREAM", "Run ended without emitting a terminal event")


async def test_a_call_without_an_end_is_incomplete(provider: Provider, agent: AguiAgent):
    start = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "lookup"}
    args = {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"a"'}
    provider.answer(cut_short(STARTED, start, args))

    events, error = await heard_until_error(agent)

    assert events == [
        ActionExecutionStart(call_id="c", name="lookup"),
        ActionExecutionArgs(call_id="c", delta='{"a"'),
    ]
    assert told(error) == ("INCOMPLETE_STREAM", "Run ended without emitting a terminal event")


@in_one_test("end", [RESET, CLOSE])
async def test_a_connection_that_breaks_is_incomplete(
    provider: Provider, agent: AguiAgent, end: Any
):
    provider.answer([HEAD, *(piece(frame(event)) for event in PARTIAL), end])
    events, error = await heard_until_error(agent)
    assert events == PARTIAL_EVENTS
    assert told(error) == (
        "INCOMPLETE_STREAM",
        "The connection to the agent 'default' broke off before the run ended.",
    )


async def test_a_connection_may_break_after_the_end(provider: Provider, agent: AguiAgent):
    events = b"".join(map(frame, [STARTED, *text("m", "Hi"), {"type": "RUN_FINISHED"}]))
    provider.answer([HEAD, piece(events), RESET])
    assert len(await heard(agent)) == 3


@in_one_test(
    ("status", "told_to_the_page"),
    [
        ("307 There", ("CONFIGURATION_ERROR", "refused the request (HTTP 307).")),
        ("400 Bad", ("CONFIGURATION_ERROR", "refused the request (HTTP 400).")),
        (
            "401 No",
            (
                "AUTHENTICATION_ERROR",
                "may not be asked: its server refused the key or the sign-in.",
            ),
        ),
        ("402 Pay", ("PAYMENT_REQUIRED", "refused the request (HTTP 402).")),
        ("404 Not", ("NOT_FOUND", "is not there.")),
        ("409 Busy", ("THREAD_BUSY", "is still busy in this thread.")),
        ("429 Slow", ("RATE_LIMITED", "is asked too often.")),
        ("500 Oh", ("NETWORK_ERROR", "is not well (HTTP 500).")),
    ],
)
async def test_a_refusal_names_the_agent_and_has_the_code_of_its_status(
    provider: Provider, agent: AguiAgent, status: str, told_to_the_page: tuple[str, str]
):
    provider.answer([whole(b"", status=status)])

    events, error = await heard_until_error(agent, asked(agent="weather"))

    code, sentence = told_to_the_page
    assert (events, told(error)) == ([], (code, f"The agent 'weather' {sentence}"))
    assert len(provider.requests) == 1


@in_one_test("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
async def test_an_agent_below_a_path_is_found_by_its_url_without_the_last_slash(
    provider: Provider, agent: AguiAgent, status: str
):
    provider.answer([whole(b"", status=status, location="/agent/")], whole_run(*text("m", "Hi")))

    assert len(await heard(agent)) == 3
    first, second = provider.requests
    assert (first.line, second.line) == ("POST /agent HTTP/1.1", "POST /agent/ HTTP/1.1")
    assert first.body == second.body


@in_one_test(
    "place", ["http://127.0.0.1:9/agent/", "http://x@127.0.0.1:9/", "//evil.test/", "http://[", ""]
)
async def test_an_agent_cannot_send_a_conversation_to_another_server(
    provider: Provider, agent: AguiAgent, place: str
):
    provider.answer([whole(b"", status="307 There", location=place)])

    _, error = await heard_until_error(agent, asked(agent="weather"))

    assert told(error)[1] == "The agent 'weather' refused the request (HTTP 307)."
    assert len(provider.requests) == 1


async def test_redirects_in_a_circle_end(provider: Provider, agent: AguiAgent):
    provider.answer([whole(b"", status="307 There", location="/agent")])

    _, error = await heard_until_error(agent, asked(agent="weather"))

    assert told(error)[1] == "The agent 'weather' refused the request (HTTP 307)."
    assert len(provider.requests) == 4


@in_one_test(
    ("body", "logged"),
    [
        (b"Traceback: db.connect('postgres://admin:hunter2@db')", "//***@db') Are its URL"),
        (b"x" * 3_000, "HTTP 500: " + "x" * 2_000 + "... "),
        (b"\xff key: sk-secret-key", "HTTP 500: \ufffd key: *** "),
    ],
)
async def test_the_text_of_a_refusal_is_for_the_log_alone_without_our_keys(
    provider: Provider, body: bytes, logged: str
):
    provider.answer([whole(body, status="500 Oh")])
    agent = agent_of(provider, headers={"Authorization": "Bearer sk-secret-key"})
    _, error = await heard_until_error(agent)
    await agent.aclose()

    assert told(error) == ("NETWORK_ERROR", "The agent 'default' is not well (HTTP 500).")
    assert isinstance(error, CopilotError)
    assert logged in str(error.hint)


BROKE: Said = {"error": {"message": "Insufficient credits of sk-secret-key", "code": 402}}


@in_one_test(
    ("answer", "shown"),
    [
        ([whole(BROKE, status="402 Pay")], "refused the request: Insufficient credits of ***"),
        ([whole(json.dumps(BROKE, indent=2).encode())], "failed: Insufficient credits of ***"),
        (cut_short(STARTED, BROKE), "failed: Insufficient credits of ***"),
    ],
)
async def test_a_person_reads_what_is_to_be_paid(
    provider: Provider, answer: Sequence[Step], shown: str
):
    provider.answer(answer)
    agent = agent_of(provider, headers={"Authorization": "Bearer sk-secret-key"})
    _, error = await heard_until_error(agent)
    await agent.aclose()

    assert told(error) == ("PAYMENT_REQUIRED", f"The agent 'default' {shown}")


async def test_an_unknown_error_in_place_of_a_stream_is_one_of_the_agent(
    provider: Provider, agent: AguiAgent
):
    provider.answer([whole({"error": "The database is locked"})])
    _, error = await heard_until_error(agent)

    assert isinstance(error, AgentFailed)
    assert error.message == "The agent 'default' failed: The database is locked"


async def test_a_refused_connection_names_the_agent_and_no_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        agent = AguiAgent(f"http://127.0.0.1:{port}/")
        events, error = await heard_until_error(agent, asked(agent="weather"))
        await agent.aclose()

    assert isinstance(error, NetworkError)
    assert (events, error.message) == (
        [],
        "The agent 'weather' did not answer. Connection error. The connection was refused.",
    )
    assert error.hint is not None and str(port) in error.hint


@in_one_test("begun", [[], [HEAD, piece(frame(STARTED))]])
async def test_a_silent_agent_is_given_up(provider: Provider, begun: list[Step]):
    provider.answer([*begun, HANG])
    agent = agent_of(provider, connect_timeout=2, idle_timeout=0.05)
    _, error = await heard_until_error(agent)
    await provider.until_open(0)
    await agent.aclose()

    assert isinstance(error, RunStalled)
    assert error.message == "The agent 'default' is silent. No answer for 0.05 seconds."


async def test_an_agent_that_only_sends_comments_is_given_up(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("copilot_runtime.http.client._KEEP_ALIVES", 1e-9)
    later = asyncio.Event()
    provider.answer([HEAD, piece(b": ping\n\n"), later, piece(b":\n\n"), HANG])
    agent = agent_of(provider)
    asyncio.get_running_loop().call_later(0.05, later.set)
    _, error = await heard_until_error(agent)
    await provider.until_open(0)
    await agent.aclose()

    assert isinstance(error, RunStalled)


LEFT_OUT: list[tuple[Any, str]] = [
    ({"type": "TEXT_MESSAGE_START"}, "TEXT_MESSAGE_START.messageId must be a string."),
    (
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": 5, "delta": "x"},
        "TEXT_MESSAGE_CONTENT.messageId must be a string.",
    ),
    (
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": ["x"]},
        "TEXT_MESSAGE_CONTENT.delta must be a string.",
    ),
    (
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "x"},
        "The first TEXT_MESSAGE_CHUNK.messageId must be a string.",
    ),
    (
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "a", "role": "robot"}]},
        "MESSAGES_SNAPSHOT.messages[0].role is 'robot', which is none of user, assistant, "
        "system, developer, tool, reasoning, activity.",
    ),
    (
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "A", "content": "x"},
        "ACTIVITY_SNAPSHOT.content must be an object.",
    ),
    ({"type": "CUSTOM", "value": 1}, "CUSTOM.name must be a string."),
    ({"type": "STEP_STARTED", "stepName": 7}, "STEP_STARTED.stepName must be a string."),
    (["no", "object"], "An event is not an object."),
    (None, "An event is not an object."),
    (7, "An event is not an object."),
    ("text", "An event is not an object."),
]


@in_one_test(("said", "reason"), LEFT_OUT)
async def test_an_event_that_cannot_be_read_is_left_out_and_named_once(
    provider: Provider, agent: AguiAgent, said: Any, reason: str, caplog: pytest.LogCaptureFixture
):
    around = text("m", "whole")
    provider.answer(whole_run(*around[:-1], said, said, around[-1], *text("n", "after")))

    events = await heard(agent, asked(agent="weather"))

    assert events == [*all_of("m", "whole"), *all_of("n", "after")]
    assert caplog.messages == [f"Agent 'weather': what cannot be read is left out. {reason}"]


async def test_an_answer_of_which_no_text_can_be_read_is_an_error(
    provider: Provider, agent: AguiAgent
):
    provider.answer(whole_run(*({**event, "messageId": None} for event in text("m", "lost"))))
    _, error = await heard_until_error(agent)
    assert isinstance(error, IncompleteStream)
    assert "Its answer has texts, and none can be read." in error.message


async def test_a_snapshot_loses_the_message_that_cannot_be_read(
    provider: Provider, agent: AguiAgent
):
    messages = [{"id": "a", "role": "robot"}, {"id": "b", "role": "assistant", "content": "Hi."}]
    provider.answer(whole_run({"type": "MESSAGES_SNAPSHOT", "messages": messages}))

    assert await heard(agent) == [
        MessagesSnapshot(messages=[TextMessage(id="b", role="assistant", content="Hi.")])
    ]


CALL = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "pay"}


@in_one_test(
    ("said", "message"),
    [
        ([{"type": "TOOL_CALL_START"}], "TOOL_CALL_START.toolCallId must be a string."),
        (
            [CALL, {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": 7}],
            "TOOL_CALL_ARGS.delta must be a string.",
        ),
        (
            [{"type": "TOOL_CALL_CHUNK", "toolCallId": "c"}],
            "The first TOOL_CALL_CHUNK.toolCallName must be a string.",
        ),
        ([CALL, 7], "An event is not an object."),
        ([{"type": "STATE_DELTA"}], "STATE_DELTA.delta must be a list."),
        (
            [{"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/no/deep"}]}],
            "A change of its state does not apply: remove /no/deep: there is no 'no'.",
        ),
        (
            [{"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [{}]}}],
            "RUN_FINISHED.outcome.interrupts[0].id must be a string.",
        ),
    ],
)
async def test_what_a_run_cannot_go_on_without_is_not_left_out(
    provider: Provider, agent: AguiAgent, said: list[Any], message: str
):
    provider.answer(cut_short(*PARTIAL, *said, *text("n", "after")))
    events, error = await heard_until_error(agent, asked(agent="weather"))
    assert events[:2] == PARTIAL_EVENTS
    assert told(error) == (
        "INCOMPLETE_STREAM",
        f"The agent 'weather' sent something that cannot be read. {message}",
    )


@in_one_test("line", [b"data: {oops\n\n", b"data: [DONE\n\n", b"data: ping\n\n"])
async def test_an_event_that_is_no_json_is_left_out(
    provider: Provider, agent: AguiAgent, line: bytes, caplog: pytest.LogCaptureFixture
):
    steps = whole_run(*text("m", "a"))
    provider.answer([*steps[:-2], piece(line), *steps[-2:]])

    assert await heard(agent) == all_of("m", "a")
    assert "An event is not valid JSON." in caplog.text


async def test_in_a_call_an_event_that_is_no_json_ends_the_run(
    provider: Provider, agent: AguiAgent
):
    provider.answer(
        [HEAD, *(piece(frame(it)) for it in (STARTED, CALL)), piece(b"data: {oops\n\n"), END]
    )
    _, error = await heard_until_error(agent)
    assert told(error) == (
        "INCOMPLETE_STREAM",
        "The agent 'default' sent something that cannot be read. An event is not valid JSON.",
    )
    assert isinstance(error, IncompleteStream) and error.hint == "It sent '{oops'."


@in_one_test("body", [b"<html>Hello</html>", b'{"ok":true}', b""])
async def test_an_answer_that_is_no_stream_is_told_as_such(
    provider: Provider, agent: AguiAgent, body: bytes
):
    provider.answer([whole(body)])
    events, error = await heard_until_error(agent)
    assert events == []
    assert told(error) == (
        "INCOMPLETE_STREAM",
        "The agent 'default' returned a response that is not an event stream.",
    )


async def test_each_event_is_delivered_before_the_next_one_is_sent(
    provider: Provider, agent: AguiAgent
):
    gate = asyncio.Event()
    start, *rest = text("m", "Hi")
    after = [piece(frame(event)) for event in [*rest, {"type": "RUN_FINISHED"}]]
    provider.answer([HEAD, piece(frame(STARTED)), piece(frame(start)), gate, *after, END])

    async with aclosing(agent.run(asked())) as events:
        assert await anext(events) == TextMessageStart(message_id="m")
        gate.set()
        assert await anext(events) == TextMessageContent(message_id="m", content="Hi")


async def test_leaving_a_run_hangs_up_at_once(provider: Provider, agent: AguiAgent):
    provider.answer([HEAD, *(piece(frame(event)) for event in PARTIAL), HANG])
    async with aclosing(agent.run(asked())) as events:
        await anext(events)
        assert provider.open == 1
    await provider.until_open(0)


async def test_cancelling_a_run_hangs_up_at_once(provider: Provider, agent: AguiAgent):
    provider.answer([HANG])
    task = asyncio.create_task(heard(agent))
    await provider.until_asked(1)
    task.cancel()
    await provider.until_open(0)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_finished_run_leaves_its_connection_for_the_next(
    provider: Provider, agent: AguiAgent
):
    provider.answer(whole_run(*text("m", "Hi")))
    for _ in range(3):
        await heard(agent)
    assert len(provider.requests) == 3
    assert provider.connections <= 3


async def test_headers_are_forwarded_and_what_the_server_sets_wins(provider: Provider):
    provider.answer(whole_run())
    agent = agent_of(provider, headers={"X-Tenant": "ours", "authorization": "Bearer ours"})
    client = {
        "authorization": "Bearer theirs",
        "x-tenant": "theirs",
        "x-custom": "yes",
        "cookie": "session=1",
        "content-type": "text/plain",
        "accept": "application/vnd.ag-ui.event+proto",
        "host": "elsewhere",
        "content-length": "7",
    }
    await heard(agent, asked(headers=client))
    await agent.aclose()

    sent = provider.requests[0].headers
    assert {name: sent.get(name) for name in client if name not in ("host", "content-length")} == {
        "authorization": "bearer ours",  # the provider reads headers in lower case
        "x-tenant": "ours",
        "x-custom": "yes",
        "cookie": None,
        "content-type": "application/json",
        "accept": "text/event-stream",
    }
    assert sent["host"].startswith("127.0.0.1")


@in_one_test("url", ["", "weather", "ftp://host/x", "http:///x"])
def test_a_wrong_address_is_told_at_once(url: str):
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        AguiAgent(url)


def test_an_agent_can_be_described():
    assert AguiAgent("http://localhost/x", description="Knows rain").description == "Knows rain"
