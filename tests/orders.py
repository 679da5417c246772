"""Runs in any order, legal and not, and what AG-UI's own client makes of them."""

import json
from collections.abc import Sequence
from typing import Any

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
from copilot_runtime.api.messages import MediaPart, Message, TextMessage, TextPart
from copilot_runtime.base.errors import Cancelled, NetworkError
from copilot_runtime.transports.agui.encode import Dialect, Encoder

STARTED = RunStarted(
    run_id="r",
    thread_id="t",
    messages=[TextMessage(id="u-1", role="user", content="Hi")],
    server_actions=("s1",),
)
STOPPED = RunFailed(error=Cancelled("The run was stopped.").report())
BROKEN = RunFailed(error=NetworkError("The model went away.").report())
LAST_EVENTS = [RunFinished(), STOPPED, BROKEN]


def _ids(letter: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{letter}1", f"{letter}2"])


_texts, _calls, _thoughts, _names = _ids("m"), _ids("c"), _ids("r"), _ids("s")
_pieces = st.sampled_from(["a", "bc", " ", "{}", "ü", "\ud83d", "\ude00"])
_IMAGE = MediaPart(kind="image", source="id", value="file-1", provider="openai")
_values = st.sampled_from([None, 1, {"n": 1}, {"n": 2, "deep": {"er": [1]}}, ["x"]])
_snapshots: st.SearchStrategy[list[Message]] = st.lists(
    st.builds(TextMessage, id=_texts, role=st.just("assistant"), content=_pieces),
    max_size=2,
    unique_by=lambda message: message.id,
)

ANY_EVENT: st.SearchStrategy[Event] = st.one_of(
    st.builds(TextMessageStart, message_id=_texts),
    st.builds(TextMessageContent, message_id=_texts, content=_pieces),
    st.builds(TextMessageEnd, message_id=_texts),
    st.builds(ActionExecutionStart, call_id=_calls, name=_names, parent_id=st.none() | _texts),
    st.builds(ActionExecutionArgs, call_id=_calls, delta=_pieces),
    st.builds(ActionExecutionEnd, call_id=_calls),
    st.builds(
        ActionExecutionResult,
        call_id=_calls,
        name=_names,
        result=_pieces,
        parts=st.sampled_from([(), (TextPart(text="a"), _IMAGE)]),
    ),
    st.builds(ReasoningStart, message_id=_thoughts),
    st.builds(ReasoningContent, message_id=_thoughts, content=_pieces),
    st.builds(ReasoningEnd, message_id=_thoughts),
    st.builds(ReasoningSignature, entity_id=_calls, value=_pieces, of=st.just("call")),
    st.builds(ReasoningSignature, entity_id=_thoughts, value=_pieces, of=st.just("message")),
    st.builds(StepStarted, name=_names),
    st.builds(StepFinished, name=_names),
    st.builds(AgentState, agent=st.sampled_from(["one", "two"]), state=_values),
    st.builds(
        Activity,
        message_id=_ids("a"),
        activity_type=st.sampled_from(["plan", "list"]),
        content=st.sampled_from([{"n": 1}, {"n": 2, "more": [1]}]),
        replace=st.booleans(),
    ),
    st.builds(
        Subagent,
        subagent_id=_ids("g"),
        status=st.sampled_from(["started", "finished", "failed"]),
        name=st.just("helper"),
        message=st.none() | st.just("It failed."),
    ),
    st.builds(Interrupt, interrupt_id=_ids("i"), value=_values),
    st.builds(MessagesSnapshot, messages=_snapshots),
    st.builds(Custom, name=st.just("progress"), value=_values),
    st.builds(Raw, event=_values),
    st.builds(
        Usage,
        model=st.just("m"),
        input_tokens=st.none() | st.just(1),
        stop_reason=st.none() | st.just("tool_calls"),
    ),
)
"""Events about so few things that they often meet."""

ANY_ENDING = st.sampled_from([*LAST_EVENTS, None])


@st.composite
def any_runs(draw: st.DrawFn) -> list[Event]:
    """A log as the runtime writes it: its first and last event are right, or it has no last."""
    last = draw(ANY_ENDING)
    return [STARTED, *draw(st.lists(ANY_EVENT, max_size=40)), *([last] if last else [])]


@st.composite
def any_logs(draw: st.DrawFn) -> list[Event]:
    """Anything: first and last events anywhere, or not at all."""
    stray = st.sampled_from([STARTED, *LAST_EVENTS])
    return draw(st.lists(st.one_of(ANY_EVENT, ANY_EVENT, ANY_EVENT, stray), max_size=40))


def encoded(events: Sequence[Event], *, legacy: bool = True) -> list[dict[str, Any]]:
    """Return what the AG-UI transport tells a client of the events."""
    frames = Encoder("t", "r", dialect=Dialect(legacy=legacy, subagents=True)).feed(events)
    return [json.loads(frame.removeprefix(b"data:")) for frame in frames]
