"""A shortened log shows the same as the whole one, to the eyes of AG-UI's own client."""

from collections.abc import Iterator
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import (
    LAST,
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    Raw,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
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
    Usage,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import Interrupted
from copilot_runtime.event_order.verify import EventOrder
from copilot_runtime.threads.compact import compact
from tests.conformance.v2.oracle import Oracle
from tests.in_one_test import in_one_test
from tests.orders import ANY_EVENT, BROKEN, STARTED, any_logs, any_runs, encoded

_KEPT = (Interrupt, Custom, Raw, Usage, ReasoningSignature, MessagesSnapshot, ActionExecutionResult)

_KEPT_ACTIVITY = [
    Activity(message_id="a1", activity_type="plan", content={"n": 1}),
    Activity(message_id="a1", activity_type="list", content={"n": 2}, replace=False),
    Activity(message_id="a1", activity_type="list", content={"n": 2}),
]
_SIGNED_EARLY = [
    ReasoningStart(message_id="r1"),
    ReasoningSignature(entity_id="r1", value="proof"),
    ReasoningContent(message_id="r1", content="and so on"),
    ReasoningEnd(message_id="r1"),
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as oracle:
        yield oracle


def text(piece: str, id: str = "m") -> TextMessageContent:
    return TextMessageContent(message_id=id, content=piece)


def complaints(events: list[Event]) -> list[str]:
    ordering = EventOrder()
    return [violation for event in events if (violation := ordering.violation(event))]


@given(any_logs())
def test_any_log_becomes_one_in_order(events: list[Event]) -> None:
    """Only the first event cannot be made up where it never came."""
    log = compact(events)
    started = [] if log and isinstance(log[0], RunStarted) else [STARTED]

    assert complaints([*started, *log]) == []


@given(any_runs())
def test_the_client_takes_every_replay(oracle: Oracle, events: list[Event]) -> None:
    assert oracle.verify(encoded(compact(events))) is None


@example([STARTED, *_KEPT_ACTIVITY, RunFinished()])
@example([STARTED, *_SIGNED_EARLY, RunFinished()])
@given(any_runs())
def test_a_replay_shows_what_the_live_run_showed(oracle: Oracle, events: list[Event]) -> None:
    assert oracle.apply(encoded(compact(events))) == oracle.apply(encoded(events))


@given(any_runs(), st.lists(ANY_EVENT, max_size=20))
def test_a_live_run_goes_on_after_a_replay_of_its_beginning(
    oracle: Oracle, events: list[Event], more: list[Event]
) -> None:
    begun = [event for event in events if not isinstance(event, LAST)]
    rest = [*(event for event in more if not isinstance(event, Activity)), BROKEN]

    replayed = encoded([*compact(begun), *rest])

    assert oracle.verify(replayed) is None
    assert oracle.apply(replayed) == oracle.apply(encoded([*begun, *rest]))


@given(any_logs())
def test_a_short_log_becomes_no_shorter(events: list[Event]) -> None:
    log = compact(events)
    assert compact(log) == log


@given(any_runs())
def test_what_has_no_parts_stays_as_it_is_and_where_it_is(events: list[Event]) -> None:
    def kept(log: list[Event]) -> list[Event]:
        return [event for event in log if isinstance(event, _KEPT) and not _added(event)]

    assert kept(compact(events)) == kept(events)


def _added(event: Event) -> bool:
    return isinstance(event, ActionExecutionResult) and event.message_id is not None


def test_the_pieces_of_each_item_are_put_together() -> None:
    log = [
        STARTED,
        TextMessageStart(message_id="m"),
        text("Let me "),
        ActionExecutionStart(call_id="c", name="look", parent_id="m"),
        ActionExecutionArgs(call_id="c", delta='{"at":'),
        text("see"),
        ActionExecutionArgs(call_id="c", delta='"sky"}'),
        TextMessageEnd(message_id="m"),
        ActionExecutionEnd(call_id="c"),
        ActionExecutionResult(call_id="c", name="look", result="blue"),
        RunFinished(),
    ]
    assert compact(log) == [
        STARTED,
        *say("Let me see", id="m"),
        *call("look", '{"at":"sky"}', id="c", parent_id="m"),
        ActionExecutionResult(call_id="c", name="look", result="blue"),
        RunFinished(),
    ]


def test_the_text_of_a_failed_run_stays_before_its_end() -> None:
    log = [STARTED, TextMessageStart(message_id="m"), text("par"), text("tial"), BROKEN]

    assert compact(log) == [STARTED, *say("partial", id="m"), BROKEN]


def test_nothing_comes_after_the_last_event() -> None:
    assert compact([STARTED, BROKEN, *say("late"), RunFinished()]) == [STARTED, BROKEN]


def test_a_run_that_goes_on_stays_open() -> None:
    log = [STARTED, TextMessageStart(message_id="m"), text("a"), text("b")]

    assert compact(log) == [STARTED, TextMessageStart(message_id="m"), text("ab")]


def test_the_log_of_a_server_that_died_can_be_given_an_end() -> None:
    died = RunFailed(error=Interrupted("The server ended before the answer did.").report())
    log = [STARTED, StepStarted(name="s"), ActionExecutionStart(call_id="c", name="look")]

    assert compact(log, ending=died) == [
        STARTED,
        StepStarted(name="s"),
        ActionExecutionStart(call_id="c", name="look"),
        ActionExecutionEnd(call_id="c"),
        *_result_closer(died),
        StepFinished(name="s"),
        died,
    ]


def _result_closer(died: RunFailed) -> list[Event]:
    ordering = EventOrder(begun=True)
    ordering.check(ActionExecutionStart(call_id="c", name="look"))
    return ordering.closing_events(died.error)[1:]


def test_an_end_that_came_counts_more_than_one_that_is_given() -> None:
    assert compact([STARTED, RunFinished()], ending=BROKEN) == [STARTED, RunFinished()]


def test_of_each_agents_states_the_last_remains_the_latest_at_last() -> None:
    def state(agent: str, value: int) -> AgentState:
        return AgentState(agent=agent, state={"n": value})

    log = [STARTED, state("a", 1), state("b", 2), *say("x"), state("a", 3), RunFinished()]

    assert compact(log) == [STARTED, *say("x"), state("b", 2), state("a", 3), RunFinished()]


def activity(content: int, *, replace: bool = True) -> Activity:
    return Activity(message_id="a", activity_type="plan", content=content, replace=replace)


@in_one_test(
    ("said", "left"),
    [
        ([activity(1), activity(2), activity(3)], activity(3)),
        ([activity(1), activity(2, replace=False)], activity(1)),
        ([activity(1, replace=False), activity(2, replace=False)], activity(1, replace=False)),
        ([activity(1, replace=False), activity(2)], activity(2)),
    ],
)
def test_of_an_activity_that_remains_which_the_client_would_show(
    said: list[Event], left: Activity
) -> None:
    first, *others = said
    log = [STARTED, first, *say("x"), *others, RunFinished()]

    assert compact(log) == [STARTED, left, *say("x"), RunFinished()]


def test_what_is_said_after_a_snapshot_is_not_put_before_it() -> None:
    snapshot = MessagesSnapshot(messages=[TextMessage(id="m", role="assistant", content="AB")])
    log = [STARTED, TextMessageStart(message_id="m"), text("a"), text("b"), snapshot, text("c")]

    assert compact([*log, text("d"), TextMessageEnd(message_id="m"), RunFinished()]) == [
        STARTED,
        TextMessageStart(message_id="m"),
        text("ab"),
        snapshot,
        text("cd"),
        TextMessageEnd(message_id="m"),
        RunFinished(),
    ]


def test_a_subagent_that_never_came_back_is_ended() -> None:
    begun = Subagent(subagent_id="g", status="started", name="helper")

    assert compact([STARTED, begun, RunFinished()]) == [
        STARTED,
        begun,
        Subagent(subagent_id="g", status="finished"),
        RunFinished(),
    ]


def test_a_hundred_thousand_events_take_little_time() -> None:
    """0.05 s on a machine of 2026; ten times as many must not take a hundred times as long."""
    log: list[Event] = [STARTED]
    for number in range(1_000):
        log += say(["word "] * 98, id=f"m{number}")
    log.append(RunFinished())

    began = process_time()
    short = compact(log)

    assert process_time() - began < 1.0
    assert len(log) == 100_002
    assert len(short) == 3_002
