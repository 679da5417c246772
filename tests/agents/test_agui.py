"""What a remote agent says, event by event."""

from typing import Any

import pytest

from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api import AgentInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Custom,
    Interrupt,
    MessagesSnapshot,
    Raw,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    RunFinished,
    StepFinished,
    StepStarted,
    Subagent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    TextMessage,
)
from tests.adapters.provider import HANG, HEAD, Provider, piece
from tests.agents.remote import (
    FINISHED,
    STARTED,
    asked,
    cut_short,
    frame,
    heard,
    text,
    whole_run,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def said(id: str, *pieces: str, **start: Any) -> list[Any]:
    """Return the events of a whole text of ours."""
    return [
        TextMessageStart(message_id=id, **start),
        *(TextMessageContent(message_id=id, content=piece) for piece in pieces),
        TextMessageEnd(message_id=id),
    ]


def called(id: str, name: str, *pieces: str, parent_id: str | None = None) -> list[Any]:
    return [
        ActionExecutionStart(call_id=id, name=name, parent_id=parent_id),
        *(ActionExecutionArgs(call_id=id, delta=piece) for piece in pieces),
        ActionExecutionEnd(call_id=id),
    ]


def call(id: str, name: str, *pieces: str, **start: Any) -> list[dict[str, Any]]:
    """Return a whole call in AG-UI."""
    return [
        {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name, **start},
        *({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": piece} for piece in pieces),
        {"type": "TOOL_CALL_END", "toolCallId": id},
    ]


async def test_a_text_is_passed_on_piece_by_piece(provider: Provider, agent: AguiAgent):
    pieces = ["Grüße, ", "世界 ", "👩🏽‍💻", "\n\ndata: not-an-event\n", "\u2028end"]
    provider.answer(whole_run(*text("m", *pieces)))
    assert await heard(agent) == said("m", *pieces)


async def test_a_run_may_say_nothing(provider: Provider, agent: AguiAgent):
    provider.answer(whole_run())
    assert await heard(agent) == []


async def test_a_call_knows_its_message(provider: Provider, agent: AguiAgent):
    provider.answer(
        whole_run(
            *text("m", "Let me check."),
            *call("c", "getWeather", '{"city":', '"Oslo"}', parentMessageId="m"),
            *call("d", "getWeather", "{not json", parentMessageId=None),
        )
    )
    assert await heard(agent) == [
        *said("m", "Let me check."),
        *called("c", "getWeather", '{"city":', '"Oslo"}', parent_id="m"),
        *called("d", "getWeather", "{not json"),
    ]


async def test_a_result_has_the_name_of_its_call(provider: Provider, agent: AguiAgent):
    result = {"type": "TOOL_CALL_RESULT", "messageId": "x", "role": "tool"}
    before = [ActionExecutionMessage(id="b", name="before", arguments="{}")]
    provider.answer(
        whole_run(
            *call("c", "lookup", "{}"),
            {**result, "toolCallId": "c", "content": '{"hits":3}'},
            {**result, "toolCallId": "b", "content": {"hits": 3}},
            {**result, "toolCallId": "?", "content": None, "messageId": None},
        )
    )
    assert await heard(agent, asked(messages=before)) == [
        *called("c", "lookup", "{}"),
        ActionExecutionResult(call_id="c", name="lookup", result='{"hits":3}', message_id="x"),
        ActionExecutionResult(call_id="b", name="before", result='{"hits":3}', message_id="x"),
        ActionExecutionResult(call_id="?", name="", result=""),
    ]


async def test_chunks_are_written_out_in_full(provider: Provider, agent: AguiAgent):
    provider.answer(
        whole_run(
            {"type": "REASONING_MESSAGE_CHUNK", "messageId": "t", "delta": "Hm"},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "developer", "delta": "one "},
            {"type": "RAW", "event": 1},
            {"type": "TEXT_MESSAGE_CHUNK", "delta": "two"},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m2", "delta": "", "role": None},
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "f", "delta": '{"a":'},
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "delta": "1}"},
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "d", "toolCallName": "g"},
        )
    )
    assert await heard(agent) == [
        ReasoningStart(message_id="t"),
        ReasoningContent(message_id="t", content="Hm"),
        ReasoningEnd(message_id="t"),
        TextMessageStart(message_id="m", role="developer"),
        TextMessageContent(message_id="m", content="one "),
        Raw(event=1),
        TextMessageContent(message_id="m", content="two"),
        TextMessageEnd(message_id="m"),
        *said("m2"),
        *called("c", "f", '{"a":', "1}"),
        *called("d", "g"),
    ]


async def test_full_events_end_what_chunks_began(provider: Provider, agent: AguiAgent):
    provider.answer(
        whole_run(
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a"},
            *text("n", "b"),
        )
    )
    assert await heard(agent) == [*said("m", "a"), *said("n", "b")]


async def test_a_state_is_always_whole(provider: Provider, agent: AguiAgent):
    provider.answer(
        whole_run(
            {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/n", "value": 1}]},
            {"type": "STATE_SNAPSHOT", "snapshot": {"items": ["a"]}},
            {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/items/-", "value": "b"}]},
            {"type": "STATE_SNAPSHOT", "snapshot": None},
            {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/x", "value": 1}]},
        )
    )
    run = asked(agent="weather", agents={"weather": AgentInput(state={"here": True})})
    assert await heard(agent, run) == [
        AgentState(agent="weather", state=state, thread_id="t", run_id="r")
        for state in (
            {"here": True, "n": 1},
            {"items": ["a"]},
            {"items": ["a", "b"]},
            None,
            {"x": 1},
        )
    ]


async def test_steps_custom_and_raw_events_are_passed_on(provider: Provider, agent: AguiAgent):
    provider.answer(
        whole_run(
            {"type": "STEP_STARTED", "stepName": "plan"},
            {"type": "CUSTOM", "name": "progress", "value": {"pct": 50}},
            {"type": "CUSTOM", "name": "on_interrupt", "value": {"ask": "Approve?"}},
            {"type": "RAW", "event": {"any": "thing"}, "source": "test"},
            {"type": "STEP_FINISHED", "stepName": "plan"},
        )
    )
    assert await heard(agent) == [
        StepStarted(name="plan"),
        Custom(name="progress", value={"pct": 50}),
        Custom(name="on_interrupt", value={"ask": "Approve?"}),
        Raw(event={"any": "thing"}, source="test"),
        StepFinished(name="plan"),
    ]


CALL_WITH_OBJECT = {"id": "c", "function": {"name": "f", "arguments": {"q": 1}}}
"""Some agents do not encode arguments."""


async def test_a_snapshot_of_messages_is_read(provider: Provider, agent: AguiAgent):
    messages = [
        {"id": "u", "role": "user", "content": "Hi"},
        {"id": "s", "role": "assistant", "content": "from snapshot"},
        {"id": "t", "role": "assistant", "toolCalls": [CALL_WITH_OBJECT]},
    ]
    provider.answer(whole_run({"type": "MESSAGES_SNAPSHOT", "messages": messages}))
    assert await heard(agent) == [
        MessagesSnapshot(
            messages=[
                TextMessage(id="u", role="user", content="Hi"),
                TextMessage(id="s", role="assistant", content="from snapshot"),
                ActionExecutionMessage(id="c", name="f", arguments='{"q":1}', parent_id="t"),
            ]
        )
    ]


async def test_a_thought_is_signed_before_it_ends(provider: Provider, agent: AguiAgent):
    signature = {"type": "REASONING_ENCRYPTED_VALUE", "encryptedValue": "ENC"}
    provider.answer(
        whole_run(
            {"type": "REASONING_START", "messageId": "r"},
            {"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"},
            {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "thinking"},
            {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": ""},
            {"type": "REASONING_MESSAGE_END", "messageId": "r"},
            {**signature, "subtype": "message", "entityId": "r"},
            {"type": "REASONING_END", "messageId": "r"},
            *text("m", "answer"),
            {**signature, "subtype": "tool-call", "entityId": "c"},
        )
    )
    assert await heard(agent) == [
        ReasoningStart(message_id="r"),
        ReasoningContent(message_id="r", content="thinking"),
        ReasoningSignature(entity_id="r", value="ENC"),
        ReasoningEnd(message_id="r"),
        *said("m", "answer"),
        ReasoningSignature(entity_id="c", value="ENC", of="call"),
    ]


async def test_a_thought_ends_at_the_latest_before_the_next_event(
    provider: Provider, agent: AguiAgent
):
    start = {"type": "REASONING_MESSAGE_START", "role": "reasoning"}
    provider.answer(
        whole_run(
            {**start, "messageId": "a"},
            {"type": "REASONING_MESSAGE_END", "messageId": "a"},
            {**start, "messageId": "b"},
            {"type": "REASONING_END", "messageId": "block"},
            {**start, "messageId": "c"},
            {"type": "REASONING_MESSAGE_END", "messageId": "c"},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"},
        )
    )
    assert await heard(agent) == [
        ReasoningStart(message_id="a"),
        ReasoningEnd(message_id="a"),
        ReasoningStart(message_id="b"),
        ReasoningEnd(message_id="b"),
        ReasoningStart(message_id="c"),
        ReasoningEnd(message_id="c"),
        TextMessageContent(message_id="m", content="x"),
    ]


async def test_what_no_client_shows_is_left_out_silently(
    provider: Provider, agent: AguiAgent, caplog: pytest.LogCaptureFixture
):
    provider.answer(
        whole_run(
            {"type": "THINKING_START", "title": "hmm"},
            {"type": "THINKING_TEXT_MESSAGE_START"},
            {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "old-style"},
            {"type": "THINKING_TEXT_MESSAGE_END"},
            {"type": "THINKING_END"},
            *text("m", "answer"),
        )
    )
    assert await heard(agent) == said("m", "answer")
    assert caplog.messages == []


async def test_unknown_events_are_left_out_with_one_line_in_the_log(
    provider: Provider, agent: AguiAgent, caplog: pytest.LogCaptureFixture
):
    unknown = {"type": "NO_SUCH_EVENT", "x": 1}
    provider.answer(whole_run(*text("m", "a"), unknown, unknown, *text("n", "b"), {"type": None}))
    assert await heard(agent) == [*said("m", "a"), *said("n", "b")]
    assert [line for line in caplog.messages if "NO_SUCH_EVENT" in line] == [
        "Agent 'default': events of type 'NO_SUCH_EVENT' are left out"
    ]


async def test_an_activity_is_always_whole(provider: Provider, agent: AguiAgent):
    plan = {"messageId": "a", "activityType": "PLAN"}
    add = [{"op": "add", "path": "/steps/-", "value": "two"}]
    provider.answer(
        whole_run(
            {"type": "ACTIVITY_SNAPSHOT", **plan, "content": {"steps": ["one"]}},
            {"type": "ACTIVITY_SNAPSHOT", **plan, "content": {"steps": []}, "replace": False},
            {"type": "ACTIVITY_DELTA", **plan, "patch": add},
            {"type": "ACTIVITY_DELTA", **plan, "messageId": "before", "patch": add},
        )
    )
    before = ActivityMessage(id="before", activity_type="PLAN", content={"steps": []})
    assert await heard(agent, asked(messages=[before])) == [
        Activity(message_id="a", activity_type="PLAN", content={"steps": ["one"]}),
        Activity(message_id="a", activity_type="PLAN", content={"steps": []}, replace=False),
        Activity(message_id="a", activity_type="PLAN", content={"steps": ["one", "two"]}),
        Activity(message_id="before", activity_type="PLAN", content={"steps": ["two"]}),
    ]


@in_one_test("patch", [[{"op": "remove", "path": "/no"}], []])
async def test_a_change_of_an_activity_nobody_has_is_left_out(
    provider: Provider, agent: AguiAgent, caplog: pytest.LogCaptureFixture, patch: list[Any]
):
    delta = {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "PLAN", "patch": patch}
    provider.answer(whole_run(delta, *text("m", "planned")))
    assert await heard(agent) == said("m", "planned")
    assert "patch of activity 'a' dropped" in caplog.text


async def test_subagents_are_passed_on(provider: Provider, agent: AguiAgent):
    provider.answer(
        whole_run(
            {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "researcher"},
            {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "result": {"ok": True}},
            {"type": "SUBAGENT_ERROR", "subagentRunId": "s2", "message": "lost", "code": "E"},
        )
    )
    assert await heard(agent) == [
        Subagent(subagent_id="s", status="started", name="researcher"),
        Subagent(subagent_id="s", status="finished", result={"ok": True}),
        Subagent(subagent_id="s2", status="failed", message="lost"),
    ]


async def test_a_run_that_waits_for_a_person_ends_with_its_questions(
    provider: Provider, agent: AguiAgent
):
    short: dict[str, Any] = {"id": "i-1", "reason": "approval", "message": "Approve?"}
    long: dict[str, Any] = {
        "id": "i-2",
        "reason": "form",
        "message": None,
        "toolCallId": "c",
        "responseSchema": {"type": "object"},
        "expiresAt": "2026-11-21T12:00:00Z",
        "metadata": {"a": 1},
    }
    outcome = {"type": "interrupt", "interrupts": [short, long]}
    provider.answer(cut_short(STARTED, *text("m", "wait"), {**FINISHED, "outcome": outcome}))
    assert await heard(agent) == [
        *said("m", "wait"),
        Interrupt(interrupt_id="i-1", value=short, reason="approval", message="Approve?"),
        Interrupt(
            interrupt_id="i-2",
            value=long,
            reason="form",
            call_id="c",
            response_schema={"type": "object"},
            expires_at="2026-11-21T12:00:00Z",
            metadata={"a": 1},
        ),
    ]


@in_one_test(
    ("end", "found"),
    [
        ({"outcome": "success"}, []),
        (
            {"outcome": "interrupt", "interrupt": {"id": "i"}},
            [Interrupt(interrupt_id="i", value={"id": "i"})],
        ),
    ],
)
async def test_an_outcome_may_be_a_word_as_in_the_draft(
    provider: Provider, agent: AguiAgent, end: dict[str, Any], found: list[Any]
):
    provider.answer(cut_short(STARTED, *text("m", "done"), {**FINISHED, **end}))
    assert await heard(agent) == [*said("m", "done"), *found]


async def test_a_run_may_end_with_a_result_and_what_it_cost(provider: Provider, agent: AguiAgent):
    usage: list[Any] = [
        {
            "provider": "p",
            "model": "m",
            "inputTokens": 1,
            "outputTokens": 2,
            "cachedInputTokens": 3,
            "reasoningTokens": 4,
        },
        {"inputTokens": "many"},
        None,
    ]
    end = {**FINISHED, "result": {"ok": True}, "usage": usage, "outcome": {"type": "success"}}
    provider.answer(cut_short(STARTED, end))
    assert await heard(agent) == [
        Usage(
            model="m",
            provider="p",
            input_tokens=1,
            output_tokens=2,
            cached_tokens=3,
            reasoning_tokens=4,
        ),
        Usage(model=""),
        RunFinished(result={"ok": True}),
    ]


async def test_nulls_are_absent_and_empty_pieces_are_dropped(provider: Provider, agent: AguiAgent):
    provider.answer(
        cut_short(
            {**STARTED, "input": None, "timestamp": None},
            {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": None, "name": None},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": ""},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": None},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m"},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x", "rawEvent": None},
            {"type": "TEXT_MESSAGE_END", "messageId": "m", "timestamp": None},
            *call("c", "f", ""),
            {"type": "RAW", "event": None, "source": None},
            {**FINISHED, "result": None, "outcome": None, "usage": None},
        )
    )
    assert await heard(agent) == [*said("m", "x"), *called("c", "f"), Raw(event=None)]


async def test_the_speaker_of_a_text_is_named(provider: Provider, agent: AguiAgent):
    start = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "user", "name": "Ada"}
    provider.answer(whole_run(start))
    assert await heard(agent) == [TextMessageStart(message_id="m", role="user", agent="Ada")]


async def test_what_follows_the_end_of_a_run_is_ignored(provider: Provider, agent: AguiAgent):
    provider.answer(cut_short(STARTED, *text("m", "a"), FINISHED, *text("n", "b"), FINISHED))
    assert await heard(agent) == said("m", "a")


async def test_a_stream_may_contain_several_runs(provider: Provider, agent: AguiAgent):
    asked_again = {"id": "u-2", "role": "user", "content": "Go on"}
    again = {**STARTED, "runId": "r2", "input": {"messages": [asked_again]}}
    first = {**FINISHED, "result": 1, "usage": [{"model": "a", "inputTokens": 3}]}
    second = {**FINISHED, "result": 2}
    provider.answer(cut_short(STARTED, *text("m", "a"), first, again, *text("n", "b"), second))

    assert await heard(agent) == [
        *said("m", "a"),
        Usage(model="a", input_tokens=3),
        TextMessageStart(message_id="u-2", role="user"),
        TextMessageContent(message_id="u-2", content="Go on"),
        TextMessageEnd(message_id="u-2"),
        *said("n", "b"),
        RunFinished(result=2),
    ]


async def test_an_agent_may_leave_its_stream_open_after_the_run(
    provider: Provider, agent: AguiAgent, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("copilot_runtime.agents.agui._NEXT_RUN_TIMEOUT", 0.0)
    events = b"".join(map(frame, [STARTED, *text("m", "Hi"), FINISHED]))
    provider.answer([HEAD, piece(events), HANG])

    assert await heard(agent) == said("m", "Hi")


async def test_events_in_a_bad_order_are_judged_by_somebody_else(
    provider: Provider, agent: AguiAgent
):
    orphan = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "never", "delta": "x"}
    provider.answer(cut_short(orphan, FINISHED))
    assert await heard(agent) == [TextMessageContent(message_id="never", content="x")]
