"""Threads in the formats of the client's `useThreads` and its inspector."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any

from copilot_runtime.agui.messages import encode_messages
from copilot_runtime.api.bus import Batch
from copilot_runtime.api.events import (
    LAST,
    ActionExecutionArgs,
    ActionExecutionStart,
    AgentState,
    Event,
    ReasoningContent,
    RunFailed,
    RunFinished,
    RunStarted,
    TextMessageContent,
    is_question,
)
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.base.errors import Cancelled, Interrupted
from copilot_runtime.runtime.interrupts import find_asking_run
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.store import StoredRun, Thread, ThreadKey, ThreadPage, ThreadQuery
from copilot_runtime.transports.agui.encode import Dialect, Encoder
from copilot_runtime.transports.body import BadRequest

_PART = 16 * 1024
"""Maximum characters of text in one replayed event."""

_INCOMPLETE = RunFailed(
    error=Interrupted(
        "This answer is not complete: another server is giving it, or one that stopped."
    ).report()
)
"""The end shown for a run without one. It is not stored, because the real end may follow."""


def thread_key(caller: Caller, id: str) -> ThreadKey:
    return ThreadKey.of(caller.user, id)


def thread_query(caller: Caller, query: Mapping[str, str]) -> ThreadQuery:
    """Decode the query parameters of a thread list. Raises `BadRequest`."""
    limit = query.get("limit") or "50"
    if not limit.isascii() or not limit.isdigit() or len(limit) > 9:
        raise BadRequest(f"The query parameter limit must be a number, not {limit[:40]!r}.")
    return ThreadQuery(
        owner=caller.user or "",
        agent=query.get("agentId") or None,
        archived=query.get("includeArchived") == "true",
        limit=int(limit),
        cursor=query.get("cursor") or None,
    )


def page(found: ThreadPage) -> dict[str, Any]:
    return {
        "threads": [thread(item) for item in found.threads],
        "nextCursor": found.next_cursor,
    }


def thread(found: Thread) -> dict[str, Any]:
    last = {"lastRunAt": _time(found.last_run_at)} if found.last_run_at else {}
    return {
        "id": found.key.id,
        "name": found.name,
        "agentId": found.agent,
        "organizationId": "",
        "createdById": found.key.owner,
        "archived": found.archived,
        "createdAt": _time(found.created_at),
        "updatedAt": _time(found.updated_at),
        "running": found.is_running,
        **last,
    }


def messages(runs: Iterable[StoredRun]) -> list[dict[str, Any]]:
    """Return a thread's messages in the format of the inspector, whose calls differ from AG-UI."""
    found = fold_thread(run.events for run in runs)
    return [_inspect(message) for message in encode_messages(found)]


def events(key: ThreadKey, runs: Iterable[StoredRun], dialect: Dialect) -> Iterator[bytes]:
    """Yield the events of each run of a thread, as the items of a JSON list."""
    for run in runs:
        frames = _frames(key, run, run.events, dialect)
        yield b",".join(frame.removeprefix(b"data:").strip() for frame in frames)


def replay(
    key: ThreadKey, runs: Sequence[StoredRun], dialect: Dialect, *, goes_on: bool
) -> Iterator[bytes]:
    """Yield the frames of all stored runs, to show the thread in a client.

    Clients before 1.71 ignore everything after an error, so a failed run appears as finished unless
    it is the last one: its text is there, and its error was shown when it occurred. A stopped run
    appears as stopped to clients of AG-UI 1.0, for which that is not an error. With `goes_on`, the
    active run follows. Any other run without an end gets one. The last run repeats the questions
    that are still open, even those of an earlier run; no other questions are repeated. An answer
    that broke off is left out if the next run answers the same question.
    """
    asking = None if goes_on else find_asking_run(runs)
    for number, run in enumerate(runs, 1):
        events: Sequence[Event] = run.events
        if asking is None or run is not asking or number < len(runs):
            events = [event for event in events if not is_question(event)]
            if asking is not None and number == len(runs):
                questions = [event for event in asking.events if is_question(event)]
                events = [*events[:-1], *questions, RunFinished()]
        if not events or not isinstance(events[-1], LAST):
            events = compact(events, ending=_INCOMPLETE)
        if number < len(runs) and _is_replaced(events, runs[number].events):
            events = [event for event in events if isinstance(event, RunStarted | RunFailed)]
        if (number < len(runs) or goes_on) and _is_shown_as_success(events[-1], dialect):
            events = [*events[:-1], RunFinished()]
        encoder = Encoder(key.id, run.run_id, agent=run.agent, dialect=dialect)
        for event in events:
            for part in _split(event):
                frames = encoder.feed((part,))
                while frames:
                    yield frames.pop(0)  # without keeping frames that were sent


async def split_log(log: AsyncGenerator[Batch, None]) -> AsyncGenerator[Batch, None]:
    """Yield a log in parts small enough for a slow reader to hold."""
    async with aclosing(log) as batches:
        async for cursor, events in batches:
            for event in events:
                for part in _split(event):
                    yield Batch(cursor, (part,))


def _split(event: Event) -> Iterator[Event]:
    """Yield an event in parts small enough for a slow reader; most events are a single part."""
    match event:
        case TextMessageContent(content=text) | ReasoningContent(content=text) if len(text) > _PART:
            for start in range(0, len(text), _PART):
                yield replace(event, content=text[start : start + _PART])
        case ActionExecutionArgs(delta=text) if len(text) > _PART:
            for start in range(0, len(text), _PART):
                yield replace(event, delta=text[start : start + _PART])
        case _:
            yield event


def _is_replaced(events: Sequence[Event], after: Sequence[Event]) -> bool:
    """Return whether a run broke off before it acted, and the next one answers its question."""
    match events[-1], after[:1]:
        case RunFailed(error=error), [RunStarted(messages=[], click="")]:
            has_acted = any(isinstance(event, ActionExecutionStart) for event in events)
            return not has_acted and error.code != Cancelled.code
        case _:
            return False


def _is_shown_as_success(last: Event, dialect: Dialect) -> bool:
    """Return whether a failed run is shown as finished if other runs follow."""
    return isinstance(last, RunFailed) and (dialect.legacy or last.error.code != Cancelled.code)


def _frames(
    key: ThreadKey, run: StoredRun, events: Sequence[Event], dialect: Dialect
) -> Sequence[bytes]:
    return Encoder(key.id, run.run_id, agent=run.agent, dialect=dialect).feed(events)


def state(runs: Sequence[StoredRun]) -> Any:
    """Return the latest state of the thread's agent, or `None` if there is none."""
    for run in reversed(runs):
        for event in reversed(run.events):
            if isinstance(event, AgentState) and event.agent in ("", run.agent):
                return event.state
    return None


def _inspect(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("toolCalls")
    if not calls:
        return dict(message)
    short = [
        {
            "id": call["id"],
            "name": call["function"]["name"],
            "args": call["function"]["arguments"],
        }
        for call in calls
    ]
    return {**message, "toolCalls": short}


def _time(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
