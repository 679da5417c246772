"""What a client sees of a thread when it comes back: legal, whole, and in the order of then."""

import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

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
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import NetworkError
from tests.conformance.v2.oracle import NEWEST, Oracle
from tests.in_one_test import in_one_test
from tests.runs import forever
from tests.wire_agui.http import Event as Frame
from tests.wire_agui.http import user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

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
