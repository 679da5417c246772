"""What agents may put into events: JSON, and what has one form in JSON, live and stored alike."""

import shutil
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from copilot_runtime import Events, RunInput, Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter, say
from copilot_runtime.api.events import (
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
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import AgentStateMessage, TextMessage
from copilot_runtime.base.errors import NetworkError
from tests.conformance.v2.oracle import NEWEST, Oracle
from tests.in_one_test import in_one_test
from tests.runs import forever
from tests.wire_agui.http import Answer, user
from tests.wire_agui.http import Event as Frame
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


class Trip(BaseModel):
    city: str = "Oslo"
    days: int = 3


@dataclass
class Plan:
    name: str = "North"
    trips: list[Trip] = field(default_factory=lambda: [Trip()])


class Color(StrEnum):
    RED = "red"


TRIP = {"city": "Oslo", "days": 3}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

VALUES: dict[str, tuple[Any, Any]] = {
    "model": (Trip(), TRIP),
    "model inside": ({"trip": Trip()}, {"trip": TRIP}),
    "dataclass": (Plan(), {"name": "North", "trips": [TRIP]}),
    "time beside a model": (
        {"at": NOON, "trip": Trip()},
        {"at": "2026-01-01T12:00:00+00:00", "trip": TRIP},
    ),
    "number as a key": ({2: "two", True: "yes"}, {"2": "two", "true": "yes"}),
    "enum": ({Color.RED: Color.RED}, {"red": "red"}),
    "tuple": ({"at": (1, Trip())}, {"at": [1, TRIP]}),
    "no number beside a model": ({"x": float("nan"), "trip": Trip()}, {"x": None, "trip": TRIP}),
}


async def run_and_connect(event: Event, store: str) -> tuple[Answer, Answer]:
    """Return what a page gets of a run with this event, and after a reload."""

    async def agent(run: RunInput) -> AsyncGenerator[Any, None]:
        yield "before "
        yield event
        yield "after"

    async with browsing(agents={"it": agent}, settings=Settings(threads=store)) as browser:
        return await browser.run(agent="it"), await browser.connect(agent="it")


def state_of(answer: Answer) -> Any:
    return next(one["snapshot"] for one in answer.events() if one["type"] == "STATE_SNAPSHOT")


@in_one_test("store", ["memory", "sqlite"])
@in_one_test("name", VALUES)
async def test_a_state_is_the_same_json_live_and_after_a_reload(
    name: str, store: str, tmp_path: Path
) -> None:
    state, expected = VALUES[name]
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"

    live, reloaded = await run_and_connect(AgentState(agent="it", state=state), place)

    assert [state_of(live), state_of(reloaded)] == [expected, expected]


class Holder(BaseModel, arbitrary_types_allowed=True):
    it: Any


FOREIGN: list[tuple[Event, str]] = [
    (AgentState(agent="it", state={"x": {1, 2}}), "an AgentState whose state"),
    (AgentState(agent="it", state=b"abc"), "an AgentState whose state"),
    (AgentState(agent="it", state={(1, 2): 3}), "an AgentState whose state"),
    (AgentState(agent="it", state=Holder(it=object())), "an AgentState whose state"),
    (Custom(name="n", value=[object()]), "a Custom whose value"),
    (Interrupt(interrupt_id="i", value=object()), "an Interrupt whose value"),
    (
        Interrupt(interrupt_id="i", response_schema={"type": object()}),
        "an Interrupt whose response_schema",
    ),
    (
        MessagesSnapshot(messages=[AgentStateMessage(id="m", agent="it", state={"x": {1}})]),
        "a MessagesSnapshot whose messages",
    ),
]
TYPES = ["set", "bytes", "tuple", "Holder", "object", "object", "object", "set"]


@in_one_test(
    ("event", "where", "kind"),
    [(event, where, kind) for (event, where), kind in zip(FOREIGN, TYPES, strict=True)],
    ids=lambda value: getattr(value, "type", None),
)
async def test_what_is_no_json_ends_the_run_with_one_error_that_names_its_type(
    event: Event, where: str, kind: str, tmp_path: Path
) -> None:
    live, reloaded = await run_and_connect(event, f"sqlite:{tmp_path}/threads.db")

    for answer in (live, reloaded):
        last = answer.events()[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "MISUSE")
        assert f"The agent 'it' yielded {where} is not JSON: " in last["message"]
        assert repr(kind) in last["message"]
    assert "TEXT_MESSAGE_CONTENT" in live.types()


async def test_messages_stay_messages_when_what_they_hold_becomes_json() -> None:
    said = TextMessage(id="m", role="assistant", content="Hi", extra={"trip": Trip()})

    live, _ = await run_and_connect(MessagesSnapshot(messages=[said]), "memory")

    snapshot = next(one for one in live.events() if one["type"] == "MESSAGES_SNAPSHOT")
    assert snapshot["messages"] == [{"id": "m", "role": "assistant", "content": "Hi", "trip": TRIP}]


OLD = "0.0.42"


def called(id: str, *, ended: bool = True, result: str | None = None) -> list[Event]:
    events: list[Event] = [
        ActionExecutionStart(call_id=id, name="look", parent_id=f"{id}-parent"),
        ActionExecutionArgs(call_id=id, delta='{"at":'),
        ActionExecutionArgs(call_id=id, delta="5}" if ended else ""),
    ]
    if ended:
        events.append(ActionExecutionEnd(call_id=id))
    if result is not None:
        events.append(ActionExecutionResult(call_id=id, name="look", result=result))
    return events


HALF: list[Event] = [
    TextMessageStart(message_id="half"),
    TextMessageContent(message_id="half", content="Half an "),
    TextMessageContent(message_id="half", content="answer"),
]
THOUGHT: list[Event] = [
    ReasoningStart(message_id="thought"),
    ReasoningContent(message_id="thought", content="Let me "),
    ReasoningContent(message_id="thought", content="see"),
    ReasoningSignature(entity_id="thought", value="signed", of="message"),
    ReasoningEnd(message_id="thought"),
]
STATES: list[Event] = [
    AgentState(agent="agent", state={"n": number, "list": list(range(number))})
    for number in range(5)
]
ACTIVITIES: list[Event] = [
    Activity(message_id="plan", activity_type="PLAN", content={"steps": list(range(number))})
    for number in range(4)
]
RUNS: dict[str, list[Any]] = {
    "a text": say(["Hel", "lo"]),
    "half a text and an error": [*HALF, NetworkError("The model is away.")],
    "half a text and a stop": [*HALF, forever],
    "half a call and an error": [*called("c", ended=False), NetworkError("The model is away.")],
    "half a call and a stop": [*called("c", ended=False), forever],
    "a call for the browser": called("c"),
    "a call and its result": [*called("c", result="sunny"), *say("It is sunny")],
    "two calls mixed": [
        *called("c1", ended=False),
        *called("c2", ended=False),
        ActionExecutionArgs(call_id="c1", delta="1}"),
        ActionExecutionArgs(call_id="c2", delta="2}"),
        ActionExecutionEnd(call_id="c2"),
        ActionExecutionEnd(call_id="c1"),
        ActionExecutionResult(call_id="c2", name="look", result="two"),
        ActionExecutionResult(call_id="c1", name="look", result="one"),
    ],
    "a thought and a text": [*THOUGHT, *say("Hello")],
    "half a thought and an error": [*THOUGHT[:2], NetworkError("The model is away.")],
    "states": [*STATES[:2], *say("Hello"), *STATES[2:]],
    "a state of null": [AgentState(agent="agent", state=None), *say("Hello")],
    "activities": [*ACTIVITIES, *say("Hello")],
    "an open step": [StepStarted(name="s"), *say("Hello")],
    "steps": [StepStarted(name="s"), *say("Hello"), StepFinished(name="s")],
    "an interrupt": [*say("May I?"), Interrupt(interrupt_id="i", reason="ask", message="May I?")],
    "others": [
        Custom(name="mine", value={"a": 1}),
        Raw(event={"type": "on_chat"}),
        *say("Hello"),
        Usage(model="m", input_tokens=1, output_tokens=2),
    ],
    "a snapshot of messages": [
        *say("Hello"),
        MessagesSnapshot(
            messages=[
                TextMessage(id="user-1", role="user", content="Hi"),
                TextMessage(id="message-1", role="assistant", content="Hello"),
            ]
        ),
    ],
    "nothing": [],
}


class Plays:
    """An agent that plays one list of steps per run, its ids made unlike those of other runs."""

    def __init__(self, *plays: Sequence[Any]) -> None:
        self.plays = [*plays]

    async def run(self, run: RunInput) -> Events:
        for step in self.plays.pop(0):
            if isinstance(step, Exception):
                raise step
            if step is forever:
                await forever()
            else:
                yield step


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    if shutil.which("node") is None:
        pytest.skip("AG-UI's own client code runs under Node.")
    with Oracle() as oracle:
        yield oracle


async def seen(
    *plays: Sequence[Any], store: str = "memory"
) -> tuple[list[list[Frame]], list[Frame]]:
    """Return the frames of each run as it was, and what a connect gets."""
    live: list[list[Frame]] = []
    settings = Settings(threads=store)
    async with browsing(agents={"agent": Plays(*plays)}, settings=settings) as browser:
        for number, steps in enumerate(plays):
            fields: dict[str, Any] = {
                "agent": "agent",
                "run": f"r{number}",
                "messages": [user("Hi", f"user-{number}")],
            }
            if forever not in steps:
                live.append((await browser.run(**fields)).events())
                continue
            async with browser.running(**fields) as exchange:
                while len(exchange.seen) < 3:
                    await exchange.next()
                await browser.stop()
                live.append(await exchange.rest())
        answer = await browser.connect(agent="agent")
    return live, answer.events()


def by_run(frames: Sequence[Frame]) -> list[list[Frame]]:
    runs: list[list[Frame]] = []
    for frame in frames:
        if frame["type"] == "RUN_STARTED":
            runs.append([])
        runs[-1].append(frame)
    return runs


@in_one_test("name", RUNS)
async def test_a_run_is_legal_when_it_happens_and_when_it_is_shown_again(
    name: str, oracle: Oracle
) -> None:
    live, replayed = await seen(RUNS[name])

    assert oracle.verify(live[0]) is None
    assert oracle.verify(replayed) is None
    assert len(replayed) <= len(live[0])


@in_one_test("name", RUNS)
@in_one_test("store", ["memory", "sqlite"])
async def test_what_a_client_shows_of_a_thread_is_the_same_live_and_later(
    name: str, store: str, oracle: Oracle, tmp_path: Any
) -> None:
    """Between two other runs, so that what ends badly is neither first nor last."""
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    live, replayed = await seen(
        say("Before", id="before"), RUNS[name], say("After", id="after"), store=place
    )

    asked: list[Any] = []
    state: Any = None
    for number, frames in enumerate(live):
        asked.append(user("Hi", f"user-{number}"))
        applied = oracle.apply(frames, messages=asked, state=state)
        asked, state = applied.messages, applied.state
    later = oracle.apply(replayed)

    assert [_shown(message) for message in later.messages] == [_shown(one) for one in asked]
    assert (later.state or {}) == (state or {})
    for frames in by_run(replayed):
        assert oracle.verify(frames) is None


def _shown(message: Any) -> Any:
    """Return what a person sees of a message."""
    return {key: message.get(key) for key in ("id", "role", "content", "toolCalls", "toolCallId")}


async def test_a_call_that_broke_off_is_not_made_when_the_thread_is_shown_again() -> None:
    """The browser makes every call that has no result in what it gets."""
    _, replayed = await seen(RUNS["half a call and an error"], say("After", id="after"))
    calls = {frame["toolCallId"] for frame in replayed if frame["type"] == "TOOL_CALL_START"}
    answered = {frame["toolCallId"] for frame in replayed if frame["type"] == "TOOL_CALL_RESULT"}

    assert calls == answered == {"c"}


@in_one_test("name", sorted(RUNS.keys() - {"a thought and a text"}))
async def test_a_client_of_1_50_can_be_shown_every_thread(name: str, oracle: Oracle) -> None:
    _, replayed = await seen(RUNS[name], say("After", id="after"))
    known = [frame for frame in replayed if not frame["type"].startswith("REASONING_")]

    for frames in by_run(known):
        assert oracle.verify(frames, OLD) is None


async def test_a_replay_is_shorter_than_what_happened(oracle: Oracle) -> None:
    words = [f"{number} " for number in range(500)]
    live, replayed = await seen(say(words))

    assert len(live[0]) > 500
    assert len(replayed) == 5
    assert oracle.verify(replayed, NEWEST) is None
    assert oracle.apply(replayed).messages == [
        user("Hi", "user-0"),
        {"id": "message-1", "role": "assistant", "content": "".join(words)},
    ]


@in_one_test("store", ["memory", "sqlite"])
async def test_what_outgrew_the_limit_is_kept_as_it_was_shown(store: str, tmp_path: Any) -> None:
    """All of this answer comes at once, so that its end is there before anything is stored."""
    place = store if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    limited = Settings(threads=place, max_bytes_per_run=20_000)
    async with browsing(ScriptedAdapter(say("x" * 50_000)), settings=limited) as browser:
        live = (await browser.run()).events()
        replayed = (await browser.connect()).events()

    assert [frame["type"] for frame in live] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "RUN_ERROR",
    ]
    assert live[-1]["code"] == "LIMIT_EXCEEDED"
    assert replayed == live
