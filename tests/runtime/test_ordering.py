"""Our rules of order, against those of AG-UI's own client."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Custom,
    Event,
    Events,
    Interrupt,
    MessagesSnapshot,
    Raw,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    Subagent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.event_order.verify import EventOrder, verify_events
from tests.conformance.v2.oracle import STABLE, Oracle
from tests.in_one_test import in_one_test
from tests.orders import ANY_EVENT, BROKEN, STARTED, STOPPED, any_runs, encoded
from tests.runs import Says, run_input, runtime_with


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as oracle:
        yield oracle


def plain(event: Event) -> dict[str, object]:
    """Return the event on the wire, word for word, so that a wrong order stays wrong."""
    match event:
        case RunStarted():
            return {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
        case RunFinished():
            return {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
        case RunFailed(error=error):
            return {"type": "RUN_ERROR", "message": error.message}
        case TextMessageStart(message_id=key):
            return {"type": "TEXT_MESSAGE_START", "messageId": key, "role": "assistant"}
        case TextMessageContent(message_id=key, content=text):
            return {"type": "TEXT_MESSAGE_CONTENT", "messageId": key, "delta": text}
        case TextMessageEnd(message_id=key):
            return {"type": "TEXT_MESSAGE_END", "messageId": key}
        case ActionExecutionStart(call_id=key, name=name):
            return {"type": "TOOL_CALL_START", "toolCallId": key, "toolCallName": name}
        case ActionExecutionArgs(call_id=key, delta=text):
            return {"type": "TOOL_CALL_ARGS", "toolCallId": key, "delta": text}
        case ActionExecutionEnd(call_id=key):
            return {"type": "TOOL_CALL_END", "toolCallId": key}
        case ActionExecutionResult(call_id=key, result=text):
            more = {"toolCallId": key, "content": text}
            return {"type": "TOOL_CALL_RESULT", "messageId": "x", **more}
        case StepStarted(name=name):
            return {"type": "STEP_STARTED", "stepName": name}
        case StepFinished(name=name):
            return {"type": "STEP_FINISHED", "stepName": name}
        case ReasoningStart(message_id=key):
            return {"type": "REASONING_START", "messageId": key}
        case ReasoningContent(message_id=key, content=text):
            return {"type": "REASONING_MESSAGE_CONTENT", "messageId": key, "delta": text}
        case ReasoningEnd(message_id=key):
            return {"type": "REASONING_END", "messageId": key}
        case Subagent(subagent_id=key, status=status, name=name, message=message):
            kind = {"started": "STARTED", "finished": "FINISHED", "failed": "ERROR"}[status]
            more = {"name": name or "helper", "message": message or "It failed."}
            return {"type": f"SUBAGENT_{kind}", "subagentRunId": key, **more}
        case _:
            return {"type": "CUSTOM", "name": "n", "value": 1}


def first_complaint(events: Sequence[Event]) -> str | None:
    ordering = EventOrder()
    return next(filter(None, map(ordering.violation, events)), None)


BEGUN = TextMessageStart(message_id="m")
CALLED = ActionExecutionStart(call_id="c", name="look")


@in_one_test(
    "events",
    [
        [STARTED, TextMessageContent(message_id="never", content="x")],
        [STARTED, TextMessageEnd(message_id="m")],
        [STARTED, BEGUN, BEGUN],
        [STARTED, ActionExecutionArgs(call_id="c", delta="{}")],
        [STARTED, ActionExecutionEnd(call_id="c")],
        [STARTED, CALLED, CALLED],
        [STARTED, StepStarted(name="a"), StepStarted(name="a")],
        [STARTED, StepFinished(name="z")],
        [STARTED, Subagent(subagent_id="g", status="finished")],
        [STARTED, *[Subagent(subagent_id="g", status="started")] * 2],
        [
            STARTED,
            Subagent(subagent_id="g", status="started"),
            Subagent(subagent_id="g", status="failed"),
            Subagent(subagent_id="g", status="started"),
        ],
        [STARTED, BEGUN, TextMessageStart(message_id="n"), RunFinished()],
        [STARTED, CALLED, RunFinished()],
        [STARTED, StepStarted(name="a"), RunFinished()],
        [STARTED, Subagent(subagent_id="g", status="started"), RunFinished()],
        [STARTED, RunFinished(), Custom(name="n", value=1)],
        [STARTED, BROKEN, ActionExecutionStart(call_id="c", name="look")],
        [STARTED, STARTED],
        [Custom(name="n", value=1)],
    ],
    ids=lambda events: "-".join(event.type for event in events[-2:]),
)
def test_what_breaks_the_order_is_refused_in_the_words_of_the_client(
    events: list[Event], oracle: Oracle
) -> None:
    violation = first_complaint(events)

    assert violation is not None
    assert violation == oracle.verify([plain(event) for event in events])


@given(any_runs())
def test_what_we_let_pass_the_client_takes_and_what_it_refuses_we_refuse(
    oracle: Oracle, events: list[Event]
) -> None:
    assert first_complaint(events) == oracle.verify([plain(event) for event in events])


@given(st.lists(ANY_EVENT, max_size=30), st.sampled_from([RunFinished(), BROKEN, STOPPED]))
def test_closers_end_all_that_is_open(
    oracle: Oracle, events: list[Event], last: RunFinished | RunFailed
) -> None:
    ordering = EventOrder(begun=True)
    legal = [event for event in events if ordering.violation(event) is None]
    closing_events = ordering.closing_events(last.error if isinstance(last, RunFailed) else None)
    for closer in closing_events:
        ordering.check(closer)

    whole = [STARTED, *legal, *closing_events, RunFinished()]
    assert ordering.closing_events() == []
    assert oracle.verify([plain(event) for event in whole]) is None


def test_a_call_that_broke_off_gets_a_result_where_the_run_failed() -> None:
    ordering = EventOrder(begun=True)
    answered = ActionExecutionStart(call_id="d", name="see")
    for event in [BEGUN, StepStarted(name="a"), CALLED, ReasoningStart(message_id="r"), answered]:
        ordering.check(event)
    ordering.check(ActionExecutionResult(call_id="d", name="see", result="sun"))

    assert ordering.closing_events(BROKEN.error) == [
        ActionExecutionEnd(call_id="d"),
        ReasoningEnd(message_id="r"),
        ActionExecutionEnd(call_id="c"),
        ActionExecutionResult(
            call_id="c",
            name="look",
            result='{"status":"error","reason":"missing_terminal_event",'
            '"message":"The model went away."}',
            message_id="c-result",
        ),
        StepFinished(name="a"),
        TextMessageEnd(message_id="m"),
    ]


def test_a_call_gets_no_result_where_nothing_failed() -> None:
    ordering = EventOrder(begun=True)
    ordering.check(CALLED)

    assert ordering.closing_events(None) == [ActionExecutionEnd(call_id="c")]


def test_a_call_that_was_stopped_says_so() -> None:
    ordering = EventOrder(begun=True)
    ordering.check(CALLED)
    last = ordering.closing_events(STOPPED.error)[-1]

    assert isinstance(last, ActionExecutionResult)
    assert '"status":"stopped"' in last.result


def test_an_id_may_be_used_again_after_its_end() -> None:
    again = [CALLED, ActionExecutionEnd(call_id="c"), BEGUN, TextMessageEnd(message_id="m")]

    assert first_complaint([STARTED, *again, *again, RunFinished()]) is None


async def followed(agent: Says) -> list[Event]:
    runtime = runtime_with(agent, stages=[verify_events])
    await runtime.start(run_input())
    events = [event async for batch in runtime.follow("r") for event in batch.events]
    await runtime.aclose()
    return events


@pytest.mark.anyio
async def test_a_run_that_breaks_the_order_fails_and_keeps_what_was_right() -> None:
    agent = Says(BEGUN, TextMessageContent(message_id="never", content="x"))

    *begun, last = await followed(agent)

    assert begun[1:] == [BEGUN]
    assert isinstance(last, RunFailed)
    assert (last.error.code, last.error.message) == (
        "INCOMPLETE_STREAM",
        "Cannot send 'TEXT_MESSAGE_CONTENT' event: No active text message found with ID 'never'. "
        "Start a text message with 'TEXT_MESSAGE_START' first.",
    )


class Foreign:
    type = "custom"


@pytest.mark.anyio
@in_one_test(
    ("yielded", "message"),
    [
        (5, "The agent yielded an int, which is not an event."),
        ({"type": "custom"}, "The agent yielded a dict, which is not an event."),
        (None, "The agent yielded a NoneType, which is not an event."),
        (Foreign(), "The agent yielded a Foreign, which is not an event."),
        (
            TextMessageStart(message_id=5),  # pyright: ignore[reportArgumentType]
            "The agent yielded a TextMessageStart whose message_id is not a string.",
        ),
        (
            TextMessageContent(message_id=[], content="x"),  # pyright: ignore[reportArgumentType]
            "The agent yielded a TextMessageContent whose message_id is not a string.",
        ),
        (
            TextMessageContent(message_id="m", content=None),  # pyright: ignore[reportArgumentType]
            "The agent yielded a TextMessageContent whose content is not a string.",
        ),
        (
            ActionExecutionStart(call_id="c", name="f", parent_id=1),  # pyright: ignore[reportArgumentType]
            "The agent yielded an ActionExecutionStart whose parent_id is not a string.",
        ),
        (
            MessagesSnapshot(messages=[{"id": "m"}]),  # pyright: ignore[reportArgumentType]
            "The agent yielded a MessagesSnapshot whose messages hold a dict.",
        ),
        (
            MessagesSnapshot(messages=None),  # pyright: ignore[reportArgumentType]
            "The agent yielded a MessagesSnapshot whose messages hold a NoneType.",
        ),
        (
            MessagesSnapshot(messages=[TextMessage(id="m", role="user", content="", parts=["x"])]),  # pyright: ignore[reportArgumentType]
            "The agent yielded a MessagesSnapshot whose messages' parts hold a str.",
        ),
        (
            ActionExecutionResult(call_id="c", name="f", result="", parts=[{}]),  # pyright: ignore[reportArgumentType]
            "The agent yielded an ActionExecutionResult whose parts hold a dict.",
        ),
    ],
)
async def test_what_is_no_event_ends_the_run_before_it_is_kept(yielded: Any, message: str) -> None:
    *begun, last = await followed(Says(BEGUN, yielded))

    assert begun[1:] == [BEGUN]
    assert isinstance(last, RunFailed)
    assert (last.error.code, last.error.message) == ("MISUSE", message)


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


DEEPEST = 240
HALF = "\ud83d"
HOLDS_ITSELF: list[Any] = [HALF]
HOLDS_ITSELF.append(HOLDS_ITSELF)


@pytest.mark.anyio
@in_one_test("inner", [1, HALF], ids=["plain", "half"])
async def test_values_may_be_as_deep_as_they_can_be_written(inner: Any) -> None:
    said = AgentState(agent="a", state=nested(DEEPEST, inner))
    written = AgentState(agent="a", state=nested(DEEPEST, "\ufffd" if inner == HALF else inner))

    assert (await followed(Says(said)))[1:] == [written, RunFinished()]


@pytest.mark.anyio
@in_one_test(
    "event",
    [
        AgentState(agent="a", state=nested(DEEPEST + 1)),
        AgentState(agent="a", state=nested(DEEPEST + 1, HALF)),
        AgentState(agent="a", state=HOLDS_ITSELF),
        AgentState(agent="a", state=nested(100_000)),
        Activity(message_id="m", activity_type="a", content=nested(DEEPEST + 1)),
        Custom(name="n", value=nested(DEEPEST + 1)),
        Raw(event=nested(DEEPEST + 1)),
        Interrupt(interrupt_id="i", value=nested(DEEPEST + 1)),
        MessagesSnapshot(
            messages=[TextMessage(id="m", role="user", content="", extra={"a": nested(DEEPEST)})]
        ),
    ],
    ids=lambda event: event.type,
)
async def test_values_nested_too_deeply_end_the_run_before_they_are_kept(event: Event) -> None:
    started, last = await followed(Says(event))

    assert isinstance(started, RunStarted)
    assert isinstance(last, RunFailed)
    assert last.error.code == "INCOMPLETE_STREAM"
    assert "nested too deeply" in last.error.message


@pytest.mark.anyio
async def test_an_agent_may_leave_a_text_open() -> None:
    word = TextMessageContent(message_id="m", content="x")

    assert (await followed(Says(BEGUN, word)))[1:] == [BEGUN, word, RunFinished()]


@pytest.mark.anyio
async def test_only_the_runtime_begins_a_run() -> None:
    last = (await followed(Says(STARTED)))[-1]

    assert isinstance(last, RunFailed)
    assert last.error.message.startswith("Cannot send 'RUN_STARTED' while a run is still active.")


@pytest.mark.anyio
async def test_an_agent_is_closed_when_its_reader_leaves() -> None:
    closed = asyncio.Event()

    async def agent() -> Events:
        try:
            yield BEGUN
            yield TextMessageEnd(message_id="m")
        finally:
            closed.set()

    async with aclosing(verify_events(agent(), run_input())) as events:
        assert await anext(events) == BEGUN

    assert closed.is_set()


@example([STARTED, Subagent(subagent_id="g1", status="failed"), RunFinished()])
@example([STARTED, *[Subagent(subagent_id="g1", status="started")] * 2, RunFinished()])
@given(any_runs())
def test_whatever_an_agent_says_the_client_gets_a_legal_run(
    oracle: Oracle, events: list[Event]
) -> None:
    assert oracle.verify(encoded(events)) is None
    assert oracle.verify(encoded(events, legacy=False), STABLE) is None
